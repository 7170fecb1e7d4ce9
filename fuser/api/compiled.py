"""A fusion as a function of its inputs, the way to call it that costs the host the least.

Two or three tensors are not worth a loop, nor a tuple: CPython would spend more time on those than
on the launch. So the function is generated for its number of arguments, like the methods of a
dataclass. What it does not know by heart it leaves to `known_calls`, and that to a bound call.
"""

# pyright: reportImportCycles=false
# (a definition imports this file when it is asked for a function)

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fuser.api.execute import bind_and_run, compiled_of, listed
from fuser.api.listen import LISTENERS
from fuser.api.tensor import Tensor

if TYPE_CHECKING:
    from fuser.api.definition import FusionDefinition


class CompiledFusion(Protocol):
    """What `FusionDefinition.compile` returns; its parameters have the names of the inputs."""

    def __call__(self, *inputs: Any, out: Any = None, stream: Any = None) -> Any:
        """Run the fusion; return its output, or a tuple where there are several or none.

        Parameters
        ----------
        out
            Array to write the output to, or a list or tuple of one for each output. It may be of
            any strides and share memory with inputs: then the result is copied to it.
        stream
            Handle or stream object; by default the current stream of the inputs' library.
        """
        ...


_ANY = """
def compiled(*inputs, out=None, stream=None):
    return otherwise(inputs, out, stream)
"""

_SHORT = """
def compiled({inputs}, *, out=None, stream=None):
    if stream is None and not LISTENERS:
        if out is None:
            known = calls.made
            if known.guard({inputs}):
                addresses = ({addresses},)
                at, call = known.latest
                if addresses == at or (call := known.find(addresses)):
                    return call.run_short(({inputs},), addresses)
        else:
            known = calls.given
            if known.guard({inputs}, out):
                addresses = ({addresses}, out.data_ptr())
                at, call = known.latest
                if addresses == at or (call := known.find(addresses)):
                    call.launch(addresses, call.current(call.device_id))
                    return out
    return otherwise(({inputs},), out, stream)
"""
_TAKEN = {"out", "stream", "known", "addresses", "at", "call", "calls", "otherwise", "LISTENERS"}


def parameter_names(names: Sequence[str]) -> list[str]:
    """Return names of inputs as parameters: those that mean something else get underscores."""
    found: list[str] = []
    for name in names:
        parameter = name
        while (
            keyword.iskeyword(parameter)
            or parameter in _TAKEN
            or (parameter != name and parameter in names)
        ):
            parameter += "_"
        found.append(parameter)
    return found


def function_of(fd: FusionDefinition, manual: bool = False) -> CompiledFusion:
    """Return `fd` as a function.

    ``rewrite::``

        compiled = fd.compile()
        y = compiled(x, bias)
        compiled(x, bias, out=y)        # without a new array
    """
    compiled = compiled_of(fd, manual)
    returned = [output for output in fd.fusion.outputs if output.alias_of is None]

    def otherwise(inputs: Sequence[Any], out: Any, stream: Any) -> Any:
        outs = None if out is None else listed(out)
        results = None if LISTENERS else compiled.known.run(inputs, outs, stream)
        if results is None:
            results = bind_and_run(fd, compiled, inputs, outs, None, None, stream, manual)
        return results[0] if len(returned) == 1 else tuple(results)

    text = _ANY
    if fd.arguments and len(returned) == 1:
        names = [item.name for item in fd.arguments if isinstance(item, Tensor)]
        if len(names) == len(fd.arguments):
            names = parameter_names(names)
            pointers = (f"{name}.data_ptr()" for name in names)
            text = _SHORT.format(inputs=", ".join(names), addresses=", ".join(pointers))
    scope = {"calls": compiled.known, "otherwise": otherwise, "LISTENERS": LISTENERS}
    exec(text, scope)
    function: Any = scope["compiled"]
    function.__doc__ = CompiledFusion.__call__.__doc__
    made: CompiledFusion = function
    return made
