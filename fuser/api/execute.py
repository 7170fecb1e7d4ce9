"""Run a fusion: bind inputs, find the program of their shape class, run it on a backend."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np

from fuser.api import kept
from fuser.api.fallback import tell_fallbacks
from fuser.api.known_calls import KnownCalls
from fuser.api.listen import LISTENERS, build_observed, run_observed, somebody_listens
from fuser.api.out import Given, check_written_apart, given_outputs
from fuser.api.promises import check_contiguity
from fuser.api.shape_class import (
    DIVISORS,
    ShapeClass,
    classify,
    inner_sizes,
    row_sizes,
    vector_divisors,
)
from fuser.api.variants import Variants
from fuser.core.errors import BackendError, DefinitionError, InputError
from fuser.fusion.bind import bind_sizes
from fuser.fusion.scalars import bind_scalars
from fuser.kir.program import Program
from fuser.runtime.arrays import ArrayView, repeats_elements, view_of
from fuser.runtime.driver import device_available, on_device
from fuser.runtime.executor import CudaProgram
from fuser.runtime.memory import current_stream, stream_handle
from fuser.runtime.torch_call import TorchCall

if TYPE_CHECKING:
    from fuser.api.definition import FusionDefinition

Backend: TypeAlias = Literal["cuda", "interpret"]

MAX_FIXED = 8
"""Programs of one fusion after which row lengths are no longer compiled in."""


@dataclass(slots=True)
class Compiled:
    """The programs of one fusion, by shape class; CUDA images are made on first use.

    Attributes
    ----------
    rows
        Row lengths that are part of the class; None until the first call.
    inner, divisors
        Sizes whose divisibility is part of the class, and by what.
    told
        Classes of which the user has been told that they make runs slower.
    known
        Calls that need no binding.
    """

    programs: Variants[Program] = field(default_factory=Variants[Program])
    cuda: Variants[CudaProgram] = field(default_factory=Variants[CudaProgram])
    lock: threading.Lock = field(default_factory=threading.Lock)
    compiling: threading.Lock = field(default_factory=threading.Lock)
    rows: frozenset[str] | None = None
    inner: frozenset[str] | None = None
    divisors: tuple[int, ...] = DIVISORS
    told: set[ShapeClass] = field(default_factory=set[ShapeClass])
    known: KnownCalls = field(default_factory=KnownCalls)

    def is_news(self, cls: ShapeClass) -> bool:
        """Whether the user, in whatever thread, has not been told of a class; from now on he is."""
        with self.lock:
            known = cls in self.told
            self.told.add(cls)
            return not known


@dataclass(frozen=True, slots=True)
class BoundCall:
    """Inputs that fit the definition.

    Attributes
    ----------
    env
        Values of the size and stride variables.
    """

    views: dict[str, ArrayView]
    scalars: dict[str, Any]
    cls: ShapeClass
    env: dict[str, int]


_COMPILED: WeakKeyDictionary[FusionDefinition, Compiled] = WeakKeyDictionary()
_COMPILED_BY_HAND: WeakKeyDictionary[FusionDefinition, Compiled] = WeakKeyDictionary()


def compiled_of(fd: FusionDefinition, manual: bool = False) -> Compiled:
    """Return the compiled programs of a definition, of its automatic or its manual schedule."""
    known = _COMPILED_BY_HAND if manual else _COMPILED
    return known.get(fd) or known.setdefault(fd, Compiled())


def forget(fd: FusionDefinition, manual: bool = False) -> None:
    """Drop the compiled programs of a definition: its next call compiles."""
    (_COMPILED_BY_HAND if manual else _COMPILED).pop(fd, None)


def choose_backend(requested: str | None, views: Sequence[ArrayView], device: Any) -> Backend:
    """Return where to run: what was asked for, else the GPU when inputs or machine have one."""
    if requested not in (None, "cuda", "interpret"):
        raise BackendError(
            f"backend {requested!r}: is not known; needed 'cuda', 'interpret' or None"
        )
    on_gpu = [v for v in views if v.device == "cuda"]
    if requested == "interpret":
        if on_gpu:
            raise BackendError("backend 'interpret': an input is on a GPU; needed host arrays")
        return "interpret"
    if device_available():
        return "cuda"
    if requested == "cuda" or (device is not None and "cuda" in str(device)):
        raise BackendError(
            "backend 'cuda': no CUDA device on this machine; needed one, or backend='interpret'"
        )
    return "interpret"


def execute(
    fd: FusionDefinition,
    inputs: Sequence[Any],
    *,
    out: Any = None,
    device: Any = None,
    backend: str | None = None,
    stream: Any = None,
    manual: bool = False,
) -> list[Any]:
    """Run `fd` on `inputs` and return its outputs, without those that alias an input.

    Parameters
    ----------
    out
        Arrays to write the outputs into, which are then returned: a list or tuple of one for
        each, or the array itself where there is one output.
    stream
        Handle or stream object of the run; by default the current one of the inputs' library.
    """
    outs = None if out is None else listed(out)
    compiled = compiled_of(fd, manual)
    is_list = isinstance(inputs, list | tuple)  # an array has rows, which are no inputs
    if is_list and backend in (None, "cuda") and not LISTENERS:
        known = compiled.known.run(inputs, outs, stream)
        if known is not None:
            return list(known)
    return bind_and_run(fd, compiled, inputs, outs, device, backend, stream, manual)


def listed(out: Any) -> Sequence[Any]:
    """Return the arrays that a caller gives for the outputs, in order."""
    return cast("Sequence[Any]", out) if isinstance(out, list | tuple) else (out,)


def bind_and_run(
    fd: FusionDefinition,
    compiled: Compiled,
    inputs: Sequence[Any],
    outs: Sequence[Any] | None,
    device: Any,
    backend: str | None,
    stream: Any,
    manual: bool,
) -> list[Any]:
    """Run a call of which nothing is known yet."""
    call = bind(fd, inputs, manual)
    where = choose_backend(backend, list(call.views.values()), device)
    binary = binary_of(fd, compiled, call, manual) if where == "cuda" else None
    program = binary.program if binary else program_of(fd, call, manual)
    given = None
    if outs is not None:
        written = frozenset(o.alias_of for o in fd.fusion.outputs if o.alias_of is not None)
        given = given_outputs(program, outs, call.env, call.views, written)
    if any(k.fallbacks for k in program.kernels) and compiled.is_news(call.cls):
        tell_fallbacks(program, call.views, call.env)

    def run() -> list[Any]:
        if binary is None:
            return interpret(program, call, given)
        return run_cuda(fd, compiled, binary, call, inputs, given, stream)

    if not LISTENERS:
        return run()
    for listener in LISTENERS:
        listener.called(fd, inputs, manual)
    gpu = max((v.device_id for v in call.views.values()), default=0)
    return run_observed(fd, program, gpu if binary else None, run)


def bind(fd: FusionDefinition, inputs: Sequence[Any], manual: bool = False) -> BoundCall:
    """Check `inputs` against the definition and find the shape class of the call."""
    if not fd.fusion.outputs:
        raise DefinitionError("execute: the definition has no outputs; needed an add_output()")
    arrays, given = fd.named_inputs(inputs)
    scalars = bind_scalars(fd.fusion, given)
    written = {output.alias_of for output in fd.fusion.outputs}
    views = {name: input_view(name, array, name in written) for name, array in arrays.items()}
    sizes = bind_sizes(fd.fusion, views, scalars)
    check_contiguity(fd.fusion, views)
    check_written_apart(written, views)
    compiled = compiled_of(fd, manual)
    if compiled.rows is None:
        compiled.inner = inner_sizes(fd.fusion, 1 if manual else 2)
        compiled.divisors = DIVISORS if manual else vector_divisors(fd.fusion)
        compiled.rows = frozenset() if manual else row_sizes(fd.fusion)
    cls, strides = classify(
        fd.fusion, views, sizes, rows=compiled.rows, inner=compiled.inner,
        divisors=compiled.divisors,
    )  # fmt: skip
    known = {*compiled.programs.made, *compiled.cuda.made}
    if cls not in known and len(known) >= MAX_FIXED:
        cls, strides = classify(fd.fusion, views, sizes, divisors=compiled.divisors)
    return BoundCall(views, scalars, cls, {**sizes, **strides})


def program_of(fd: FusionDefinition, call: BoundCall, manual: bool = False) -> Program:
    """Return the program of a call's shape class, compiled on its first use."""
    compiled = compiled_of(fd, manual)
    if manual:
        fd.hand.frozen = True
    with compiled.lock:
        program = compiled.programs.find(call.cls, call.env)
        if program is None:
            made = build_observed(fd, call.cls, call.env, manual)
            program = compiled.programs.add(call.cls, made)
    return program


def input_view(name: str, array: Any, written: bool = False) -> ArrayView:
    """Return the view of an input; host arrays with negative strides are copied.

    Raises
    ------
    InputError
        An output is written into the array, and it is a copy, repeats elements or is read-only.
    """
    view = view_of(array, what=f"input {name}")
    forward = all(s > 0 or n < 2 for n, s in zip(view.shape, view.strides_elems, strict=True))
    if written and (view.readonly or not (forward or 0 in view.shape) or repeats_elements(view)):
        raise InputError(
            f"input {name}: an output is written into it, and its strides are "
            f"{list(view.strides_elems)}{', read-only' * view.readonly}; needed a writable array "
            "with positive strides that repeats no element"
        )
    if any(s < 0 for s in view.strides_elems):
        view = view_of(np.ascontiguousarray(view.numpy()), what=f"input {name}")
    return view


def interpret(program: Program, call: BoundCall, given: Given | None) -> list[Any]:
    """Run on the NumPy interpreter."""
    from fuser.interp.functional import run_program

    if any(view.device != "cpu" for view in call.views.values()):
        raise InputError("interpreter: an input is on a GPU; needed host arrays")
    arrays = {name: view.numpy() for name, view in call.views.items()}
    buffers = run_program(program, call.env, arrays, call.scalars)
    names = [o.buffer for o in program.outputs if o.returned]
    if given is None:
        return [buffers[name] for name in names]
    return given.receive({name: view_of(buffers[name]) for name in names})


def run_cuda(
    fd: FusionDefinition,
    compiled: Compiled,
    binary: CudaProgram,
    call: BoundCall,
    inputs: Sequence[Any],
    given: Given | None,
    stream: Any,
) -> list[Any]:
    """Run on the GPU; the next call on such torch tensors is a known one."""
    direct = {} if given is None else given.direct(binary.roles, call.env, call.views)
    results = binary.run(call.env, call.views, call.scalars, stream, direct)
    first = next(iter(call.views.values()), None)
    if given is None:
        outputs = [results[o.buffer][0] for o in binary.program.outputs if o.returned]
    else:
        kind, device_id = (first.kind, first.device_id) if first else ("numpy", 0)
        queue = current_stream(kind, device_id) if stream is None else stream_handle(stream)
        outputs = given.receive({name: view for name, (_, view) in results.items()}, queue)
    if first and is_on_torch(call.views) and (given is None or len(direct) == len(outputs)):
        bound = binary.bind(call.env, tuple(call.views), first.device_id)
        again = TorchCall(binary, bound, call.views, call.scalars)
        compiled.known.learn(fd, inputs, None if given is None else given.arrays, again)
    return outputs


def is_on_torch(views: Mapping[str, ArrayView]) -> bool:
    """Whether all inputs are torch tensors on a GPU."""
    return all(view.kind == "torch" and view.device == "cuda" for view in views.values())


def binary_of(
    fd: FusionDefinition, compiled: Compiled, call: BoundCall, manual: bool
) -> CudaProgram:
    """Return the compiled kernels of a shape class; threads that need them first wait for one."""
    found = compiled.cuda.find(call.cls, call.env)
    if found is not None:
        return found
    with compiled.compiling:
        found = compiled.cuda.find(call.cls, call.env)
        if found is None:
            found = compiled.cuda.add(call.cls, find_or_compile(fd, call, manual))
        return found


def find_or_compile(fd: FusionDefinition, call: BoundCall, manual: bool) -> CudaProgram:
    """Return the kernels that an earlier process kept, or compile and keep them."""
    listened = manual or somebody_listens()  # schedules set by hand are not part of the key
    key = None if listened else kept.key_of(fd.fusion, call.cls, call.env, fd.loops)
    found = kept.find(key) if key else None
    if found is None:
        found = compile_class(fd, call, manual)
        if key:
            kept.keep(key, found)
    return found


def compile_class(fd: FusionDefinition, call: BoundCall, manual: bool) -> CudaProgram:
    """Lower, print and compile the program of a call's shape class."""
    program = program_of(fd, call, manual)
    from fuser.codegen.emit import emit

    return CudaProgram(program, emit)


def compile_for(fd: FusionDefinition, inputs: Sequence[Any], manual: bool) -> None:
    """Compile and load the kernels of the class of `inputs`, and run nothing."""
    call = bind(fd, inputs, manual)
    if choose_backend(None, list(call.views.values()), None) == "interpret":
        program_of(fd, call, manual)
        return
    first = next(iter(call.views.values()), None)
    device_id = first.device_id if first else 0
    binary = binary_of(fd, compiled_of(fd, manual), call, manual)
    with on_device(device_id):
        binary.bind(call.env, tuple(call.views), device_id)
