"""`CompiledFusion`: a fusion as a function of its inputs."""

# pyright: reportImportCycles=false
# (a definition imports this file when it is asked for a function)

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fuser.api.execute import bind_and_run, compile_for, compiled_of, listed
from fuser.api.listen import LISTENERS

if TYPE_CHECKING:
    from fuser.api.definition import FusionDefinition


class CompiledFusion:
    """A fusion to be called like a function, at the least cost to the host.

    Kernels are compiled once per shape class. A call on torch tensors with the dtypes, shapes and
    strides of an earlier one checks nothing again but addresses, and launches.

    ``rewrite::``

        compiled = fd.compile()
        y = compiled(x, bias)           # the output, or a tuple of them
        compiled(x, bias, out=y)        # without a new array
    """

    def __init__(self, fd: FusionDefinition, manual: bool = False) -> None:
        self.fd, self.manual = fd, manual
        self._compiled = compiled_of(fd, manual)
        self._run = self._compiled.known.run
        returned = [output for output in fd.fusion.outputs if output.alias_of is None]
        self._one = len(returned) == 1

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
        outs = None if out is None else listed(out)
        results = None if LISTENERS else self._run(inputs, outs, stream)
        if results is None:
            results = bind_and_run(
                self.fd, self._compiled, inputs, outs, None, None, stream, self.manual
            )
        return results[0] if self._one else tuple(results)

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Compile and load what a call on `inputs` will run; nothing is launched."""
        compile_for(self.fd, self._compiled, inputs, self.manual)
