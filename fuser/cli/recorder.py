"""What happened while a command ran the user's code: fusions compiled and executed, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuser.api.definition import FusionDefinition
from fuser.api.listen import title_of
from fuser.api.listing import Listing, list_kernel
from fuser.core.expr import evaluate
from fuser.debug.trace import Trace
from fuser.kir.program import Program
from fuser.runtime.driver import device


@dataclass(slots=True)
class Record:
    """One fusion for one shape class.

    Attributes
    ----------
    sizes
        Sizes and strides of the call it was compiled for.
    program
        None when the compilation failed.
    build_seconds
        Definition to kernel IR.
    seconds
        Wall-clock time of every run.
    backend
        Where it last ran, for people; empty if it never did.
    by_hand
        It was lowered under a schedule set by hand that the script never runs.
    """

    fd: FusionDefinition
    trace: Trace
    sizes: Mapping[str, int]
    program: Program | None = None
    build_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list[float])
    backend: str = ""
    by_hand: bool = False
    listings: tuple[Listing, ...] = ()

    def compile(self, arch: str) -> None:
        """Add CUDA, PTX and SASS to the trace."""
        assert self.program is not None
        self.listings = tuple(list_kernel(kernel, arch) for kernel in self.program.kernels)
        for listing in self.listings:
            self.trace.add("cuda", listing.kernel, listing.cuda)
            self.trace.add("ptx", listing.kernel, listing.ptx)
            self.trace.add("sass", listing.kernel, listing.sass)


class Recorder:
    """A `fuser.api.listen.Listener` that keeps a `Record` per compilation."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def building(
        self, fd: FusionDefinition, sizes: Mapping[str, int]
    ) -> Callable[[str, object], None]:
        """Begin a record."""
        record = Record(fd, Trace(title_of(fd), shapes_text(fd, sizes)), dict(sizes))
        self.records.append(record)
        return record.trace.observe

    def built(self, fd: FusionDefinition, program: Program, seconds: float) -> None:
        """Complete the compilation of a record."""
        record = next(r for r in reversed(self.records) if r.fd is fd and r.program is None)
        record.program, record.build_seconds = program, seconds

    def called(self, fd: FusionDefinition, inputs: Sequence[Any], manual: bool) -> None:
        """Nothing: no inputs are kept."""

    def ran(self, fd: FusionDefinition, program: Program, gpu: int | None, seconds: float) -> None:
        """Add a run to the record of its program."""
        for record in self.records:
            if record.program is program:
                record.seconds.append(seconds)
                record.backend = "interpreter" if gpu is None else f"cuda:{gpu} {device(gpu).name}"


def shapes_text(fd: FusionDefinition, sizes: Mapping[str, int]) -> str:
    """Print the shapes of a call's input tensors."""
    tensors = (value for value in fd.fusion.inputs if value.op == "input")
    return ", ".join(f"{v.name}{[int(evaluate(e, sizes)) for e in v.shape]}" for v in tensors)
