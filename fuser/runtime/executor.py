"""A lowered program on a GPU: compiled when built, then run on arrays of any library.

Nothing is launched before every kernel is compiled and loaded; outputs are fresh memory and
copies into aliased inputs come last, so a failure leaves the caller's arrays as they were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fuser.core.boundary import Boundary
from fuser.core.errors import InputError, LaunchError
from fuser.kir.core import Kernel, ScalarParam, TensorParam
from fuser.kir.program import Program
from fuser.runtime.arrays import ArrayKind, ArrayView
from fuser.runtime.cache import CUBINS, CubinCache
from fuser.runtime.counters import Counters
from fuser.runtime.driver import Device, Function, device, load_function, on_device
from fuser.runtime.job import Arrays, Bound, Job
from fuser.runtime.launch import scalar_value
from fuser.runtime.log import OnSpill
from fuser.runtime.memory import current_stream, stream_handle
from fuser.runtime.nvrtc import Cubin
from fuser.runtime.plan import make_plan, roles_of
from fuser.runtime.prepared import Launch, Prepared

_SIZES_KEPT = 256


class CudaProgram:
    """The compiled kernels of a `Program` and everything about launching them.

    Parameters
    ----------
    emit
        Prints a kernel as CUDA C++ (codegen and runtime do not know each other).
    arch
        What to compile for; by default the architecture of GPU 0.

    Attributes
    ----------
    sources, cubins
        CUDA text and compiled image, per kernel in launch order.

    Raises
    ------
    CompileError
        If any kernel does not compile, or has a finding and `on_spill` is ``"raise"``.
    """

    def __init__(
        self,
        program: Program,
        emit: Callable[[Kernel], str],
        arch: str | None = None,
        *,
        cache: CubinCache = CUBINS,
        on_spill: OnSpill = "warn",
        lineinfo: bool = False,
        debug: bool = False,
    ) -> None:
        self.program = program
        self.arch = arch or device(0).arch
        self.sources: tuple[str, ...] = tuple(emit(kernel) for kernel in program.kernels)

        def build(source: str, kernel: Kernel) -> Cubin:
            return cache.get(
                source, kernel.name, self.arch, lineinfo=lineinfo, debug=debug, on_spill=on_spill
            )

        with ThreadPoolExecutor(max_workers=8) as pool:  # NVRTC runs without the GIL
            self.cubins = tuple(pool.map(build, self.sources, program.kernels))
        self._set_up()

    @classmethod
    def of_cubins(cls, program: Program, cubins: Sequence[Cubin], arch: str) -> CudaProgram:
        """Return a program whose kernels are compiled already; its `sources` are not known."""
        made = cls.__new__(cls)
        made.program, made.cubins, made.arch, made.sources = program, tuple(cubins), arch, ()
        made._set_up()
        return made

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Sizes between which recipes choose these kernels."""
        return self.program.boundaries

    def _set_up(self) -> None:
        params = [param for kernel in self.program.kernels for param in kernel.params]
        self.scalars = {p.name: p.dtype for p in params if isinstance(p, ScalarParam)}
        self._tensors = [p for p in params if isinstance(p, TensorParam)]
        self.roles = roles_of(self.program)
        self._bound: dict[tuple[Any, ...], Bound] = {}
        self._functions: dict[int, tuple[Function, ...]] = {}
        self._counters: dict[int, Counters] = {}
        self._lock = threading.Lock()

    def run(
        self,
        env: Mapping[str, int],
        tensors: Mapping[str, ArrayView],
        scalars: Mapping[str, Any],
        stream: Any = None,
        outputs: Mapping[str, ArrayView] | None = None,
        *,
        kind: ArrayKind | None = None,
        device_id: int | None = None,
    ) -> Arrays:
        """Queue the kernels and return the output buffers as ``{name: (object, view)}``.

        Parameters
        ----------
        env
            Values of the size variables.
        tensors, scalars
            By the names of the program. Host arrays are copied to the GPU and results back.
        stream
            Handle or stream object; by default the current stream of the inputs' library. Inputs
            must be ready in its order.
        outputs
            Buffers to write to instead of new ones, of the same layout.
        kind, device_id
            Library and GPU of the outputs, where there are no inputs to take them from.

        Raises
        ------
        InputError
            If an array is missing, or its dtype, device or alignment is not what was compiled for.
        LaunchError
            If the driver refuses.
        """
        first = next(iter(tensors.values()), None)
        kind = kind or (first.kind if first else "numpy")
        on_host = first.device == "cpu" if first else kind == "numpy"
        if device_id is None:
            device_id = first.device_id if first else 0
        self._check_tensors(tensors, on_host, device_id)
        numbers = self.numbers(scalars)
        with on_device(device_id):
            bound = self.bind(env, tuple(tensors), device_id)
            job = Job(self.roles, bound, numbers, device_id)
            if outputs:
                job.check_outputs(outputs, tensors, on_host)
            if on_host:
                queue = 0 if stream is None else stream_handle(stream)
                return job.run_on_host(tensors, outputs or {}, kind, queue)
            queue = current_stream(kind, device_id) if stream is None else stream_handle(stream)
            try:
                return job.run_on_device(tensors, outputs or {}, kind, queue)
            except LaunchError:
                bound.counters.forget()
                raise

    def numbers(self, scalars: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what the slots of the scalars hold, in the order of `self.scalars`."""
        named = self.scalars.items()
        return tuple(scalar_value(name, dtype, _lookup(scalars, name)) for name, dtype in named)

    def bind(self, env: Mapping[str, int], inputs: tuple[str, ...], device_id: int) -> Bound:
        """Return the program with its sizes bound and its kernels loaded, by `inputs` in order."""
        key = (device_id, inputs, *env.items())
        bound = self._bound.get(key)
        if bound is None:
            functions, plan = self._load(device_id), make_plan(self.program, env)
            launches = [
                Launch(kernel, function, *extents)
                for kernel, function, extents in zip(
                    self.program.kernels, functions, plan.launches, strict=True
                )
                if extents is not None
            ]
            tensors = (*inputs, *self.roles.returned, *self.roles.temporary)
            prepared = Prepared(
                self.program.name, launches, tensors, self.scalars, env, plan.maps, device_id
            )
            with self._lock:
                counters = self._counters.setdefault(device_id, Counters(device_id))
                bound = Bound(plan, prepared, counters, tensors)
                if len(self._bound) >= _SIZES_KEPT:
                    self._bound.pop(next(iter(self._bound)))
                self._bound[key] = bound
        return bound

    def _load(self, device_id: int) -> tuple[Function, ...]:
        with self._lock:
            if device_id not in self._functions:
                _check_arch(self.arch, device(device_id))
                pairs = zip(self.program.kernels, self.cubins, strict=True)
                self._functions[device_id] = tuple(
                    _load_kernel(kernel, cubin, device_id) for kernel, cubin in pairs
                )
            return self._functions[device_id]

    def _check_tensors(
        self, tensors: Mapping[str, ArrayView], on_host: bool, device_id: int
    ) -> None:
        here = ("cpu", 0) if on_host else ("cuda", device_id)
        for name, view in tensors.items():
            if (view.device, view.device_id) != here:
                raise InputError(
                    f"input {name}: on {view.device}:{view.device_id}; "
                    f"needed {here[0]}:{here[1]} like the other inputs"
                )
        for name in self.roles.changed:
            if _lookup(tensors, name).readonly:
                raise InputError(
                    f"input {name}: read-only, but an output is written into it; "
                    "needed a writable array"
                )
        for param in self._tensors:
            if param.name in self.roles.buffers:
                continue
            view = _lookup(tensors, param.name)
            if view.dtype is not param.dtype:
                raise InputError(f"input {param.name}: {view.dtype!r}; needed {param.dtype!r}")
            if not on_host and view.pointer % param.aligned_bytes and view.size:
                raise InputError(
                    f"input {param.name}: address {view.pointer:#x}; "
                    f"needed a multiple of {param.aligned_bytes} bytes"
                )


def _load_kernel(kernel: Kernel, cubin: Cubin, device_id: int) -> Function:
    function = load_function(cubin.image, kernel.name, device_id)
    if kernel.dynamic_shared_bytes:
        function.allow_dynamic_shared(kernel.dynamic_shared_bytes)
    return function


def _lookup(mapping: Mapping[str, Any], name: str) -> Any:
    try:
        return mapping[name]
    except KeyError:
        raise InputError(f"input {name}: not given; needed one of {[*mapping]} and it") from None


def _check_arch(arch: str, gpu: Device) -> None:
    """Reject a cubin for another architecture with words, before the driver does with a code."""
    if arch.endswith("a") and arch != gpu.arch:
        raise InputError(
            f"program for {arch}: GPU {gpu.ordinal} ({gpu.name}) is {gpu.arch}; needed equal ones"
        )
