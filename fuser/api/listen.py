"""Who hears of compilations and runs: the commands, and ``FUSER_DUMP``. Nobody, as a rule."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fuser.core.location import SourceLocation
from fuser.kir.program import Program

if TYPE_CHECKING:
    from fuser.api.definition import FusionDefinition
    from fuser.api.shape_class import ShapeClass
    from fuser.debug.dump import Dump
    from fuser.passes.manager import Observer


class Listener(Protocol):
    """Hears of every fusion that is compiled or run while it is in `LISTENERS`."""

    def building(self, fd: FusionDefinition, sizes: Mapping[str, int]) -> Observer:
        """Before a compilation, with the sizes of a call; what it returns sees each step."""
        ...

    def built(self, fd: FusionDefinition, program: Program, seconds: float) -> None:
        """After a compilation to kernel IR."""
        ...

    def called(self, fd: FusionDefinition, inputs: Sequence[Any], manual: bool) -> None:
        """Before a run, with the inputs as they were given."""
        ...

    def ran(self, fd: FusionDefinition, program: Program, gpu: int | None, seconds: float) -> None:
        """After a run, wall-clock; work on a GPU is complete."""
        ...


LISTENERS: list[Listener] = []
_compilations = itertools.count()


def somebody_listens() -> bool:
    """Whether anybody has to hear of a compilation."""
    return bool(LISTENERS or os.environ.get("FUSER_DUMP"))


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Let `listener` hear what happens in the block."""
    LISTENERS.append(listener)
    try:
        yield
    finally:
        LISTENERS.remove(listener)


def build_observed(
    fd: FusionDefinition, cls: ShapeClass, sizes: Mapping[str, int], manual: bool = False
) -> Program:
    """Compile `fd` for a shape class, seen by the listeners and by ``FUSER_DUMP``."""
    from fuser.api.manual import build_manual
    from fuser.api.pipeline import build_program

    observers = [listener.building(fd, sizes) for listener in LISTENERS]
    dump = _dump(fd)
    if dump is not None:
        observers.append(dump.observe)
    started = time.perf_counter()
    if manual:
        program = build_manual(fd.fusion, fd.hand, cls, sizes, observers=observers, loops=fd.loops)
    else:
        program = build_program(fd.fusion, cls, sizes, observers=observers, loops=fd.loops)
    seconds = time.perf_counter() - started
    for listener in LISTENERS:
        listener.built(fd, program, seconds)
    if dump is not None:
        _dump_listings(dump, program)
    return program


def run_observed(
    fd: FusionDefinition, program: Program, gpu: int | None, run: Callable[[], list[Any]]
) -> list[Any]:
    """Run, timed for the listeners; `gpu` is the ordinal of the GPU, None on the interpreter."""
    started = time.perf_counter()
    outputs = run()
    if gpu is not None:
        from fuser.runtime.driver import check, driver, on_device

        with on_device(gpu):
            check(driver().cuCtxSynchronize(), f"cuda:{gpu}")
    seconds = time.perf_counter() - started
    for listener in LISTENERS:
        listener.ran(fd, program, gpu, seconds)
    return outputs


def location_of(fd: FusionDefinition) -> SourceLocation | None:
    """Return the user's line that defines the first value."""
    return next((v.location for v in fd.fusion.values if v.location is not None), None)


def title_of(fd: FusionDefinition) -> str:
    """Name a fusion by the user's file, line and function."""
    where = location_of(fd)
    if where is None:
        return "fusion"
    path = Path(where.file)
    file = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    function = _function(fd)
    return f"{file}:{where.line}" + (f" ({function})" if function else "")


def _function(fd: FusionDefinition) -> str | None:
    """Return the function that the operations (not the inputs) stand in."""
    places = [v.location.function for v in fd.fusion.values if v.location and v.op != "input"]
    return next((name for name in places if name.isidentifier()), None)


def _dump(fd: FusionDefinition) -> Dump | None:
    if not os.environ.get("FUSER_DUMP"):
        return None
    from fuser.debug.dump import dump_from_environment

    where = location_of(fd)
    place = [Path(where.file).stem, str(where.line)] if where else []
    label = "_".join([_function(fd) or "fusion", *place])
    return dump_from_environment(next(_compilations), label)


def _dump_listings(dump: Dump, program: Program) -> None:
    if dump.stages.isdisjoint(("cuda", "ptx", "sass")):
        return
    from fuser.api.listing import list_kernel, local_arch

    compiled = not dump.stages.isdisjoint(("ptx", "sass"))
    for kernel in program.kernels:
        listing = list_kernel(kernel, local_arch(), compiled=compiled)
        dump.write("cuda", "cuda", kernel.name, listing.cuda)
        dump.write("ptx", "ptx", kernel.name, listing.ptx)
        dump.write("sass", "sass", kernel.name, listing.sass)
