"""``python -m benchmarks.unroll_table``: unroll directives of schedules, counted in machine code.

A small filter, ``y[i] = sum over t of w[t] * x[i + t]`` on a sliding window of `x`, and sums of
windows over windows, each under a schedule that says which loops stay. Every kernel is compiled
optimised, with line information and for the debugger; nothing runs, so no GPU is needed. The
exit status is 1 when a count of loops or of loads is not what the schedule says.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import FusionDefinition, ParallelType
from fuser.api.execute import bind
from fuser.api.manual import build_manual
from fuser.codegen.emit import emit
from fuser.kir.core import Kernel
from fuser.runtime.nvrtc import compile_cubin
from fuser.sass import nounroll_pragmas, read_cubin

ARCHS = ("sm_90a", "sm_80", "sm_120a")
BUILDS: dict[str, dict[str, bool]] = {
    "release": {}, "lineinfo": {"lineinfo": True}, "debug": {"debug": True},
}  # fmt: skip
THREADS, TAPS, OUTPUTS = 128, 4, 1000
Counts = tuple[int, int]
"""Rolled loops and global loads."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of the table.

    Attributes
    ----------
    build
        Makes its fusion and schedule, and inputs.
    expected
        In optimised builds.
    debug
        In builds for the debugger: the compiler unrolls nothing there, so that the one kernel
        without a directive has its loop.
    sections
        Sections of code in builds for the debugger; the counts are sums over them.
    """

    name: str
    build: Callable[[], tuple[FusionDefinition, list[Any]]]
    expected: Counts
    debug: Counts
    sections: int = 1


def filtered(schedule: Callable[[Any], None]) -> tuple[FusionDefinition, list[Any]]:
    """Return ``y[i] = sum over t of w[t] * x[i, t]``; `x` is a sliding window in memory."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, TAPS], contiguity=[False, True])
        w = fd.define_tensor(shape=[TAPS], contiguity=[True])
        taps = fd.ops.mul(x, fd.ops.broadcast(w, [True, False]))
        scheduled(fd, fd.ops.sum(taps, [1]), schedule)
    data = np.ones(OUTPUTS + TAPS - 1, np.float32)
    return fd, [windows(data, (1, 1), (OUTPUTS, TAPS)), np.ones(TAPS, np.float32)]


def summed(
    schedule: Callable[[Any], None], outer: int, stride: int
) -> tuple[FusionDefinition, list[Any]]:
    """Return ``y[i] = sum over k, t of x[i + stride k + t]``; `outer` extent of k, -1: symbolic."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, outer, TAPS], contiguity=[False, False, True])
        scheduled(fd, fd.ops.sum(x, [1, 2]), schedule)
    trips = 9 if outer < 0 else outer
    data = np.ones(OUTPUTS + stride * trips + TAPS, np.float32)
    return fd, [windows(data, (1, stride, 1), (OUTPUTS, trips, TAPS))]


def windowed(schedule: Callable[[Any], None]) -> tuple[FusionDefinition, list[Any]]:
    """Return ``y[i] = sum over t of x[i + t]``."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, TAPS], contiguity=[False, True])
        scheduled(fd, fd.ops.sum(x, [1]), schedule)
    data = np.ones(OUTPUTS + TAPS - 1, np.float32)
    return fd, [windows(data, (1, 1), (OUTPUTS, TAPS))]


def windows(data: Any, strides: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Return an array whose elements overlap in memory; strides in elements."""
    steps = tuple(s * data.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(data, shape, steps, writeable=False)


def scheduled(fd: FusionDefinition, y: Any, schedule: Callable[[Any], None]) -> None:
    """Make `y` the output; one output a thread, its loops as `schedule` says."""
    fd.add_output(y)
    y.split(0, THREADS)
    y.axis(0).parallelize(ParallelType.grid_x)
    y.axis(1).parallelize(ParallelType.block_x)
    schedule(y)


def untouched(y: Any) -> None:
    """Leave the loops to the generator."""


def rolled(y: Any) -> None:
    """Keep the loop over taps."""
    y.axis(2).rolled()


def rolled_outside(y: Any) -> None:
    """Keep the outer loop, unroll the inner."""
    y.axis(2).rolled()
    y.axis(3).unroll()


def rolled_inside_full(y: Any) -> None:
    """Unroll the outer loop, keep the inner one in every copy."""
    y.axis(2).unroll()
    y.axis(3).rolled()


def rolled_inside_partial(y: Any) -> None:
    """Unroll the outer loop by 4, keep the inner one in every copy and in the remainder."""
    y.axis(2).unroll(4)
    y.axis(3).rolled()


def in_a_function(y: Any) -> None:
    """Keep the loop, in a device function that is not inlined."""
    y.axis(2).rolled()
    y.axis(2).outlined()


ROWS = (
    Row("taps_default", lambda: filtered(untouched), (0, 8), (1, 2)),
    Row("taps_rolled", lambda: filtered(rolled), (1, 2), (1, 2)),
    Row("rolled_k_unrolled_inner", lambda: summed(rolled_outside, 8, 4), (1, 4), (1, 4)),
    Row("rolled_inside_full_unroll", lambda: summed(rolled_inside_full, 4, 64), (4, 4), (4, 4)),
    Row(
        "rolled_inside_partial_unroll", lambda: summed(rolled_inside_partial, -1, 64),
        (7, 5), (7, 5),
    ),
    Row("rolled_in_device_fn", lambda: windowed(in_a_function), (1, 1), (1, 1), 2),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """What was counted in one build of one kernel.

    Attributes
    ----------
    sections
        Sections of code that are the kernel's.
    """

    arch: str
    build: str
    row: Row
    found: Counts
    sections: int

    @property
    def expected(self) -> Counts:
        """What the schedule says."""
        return self.row.debug if self.build == "debug" else self.row.expected

    @property
    def is_ok(self) -> bool:
        """Whether all counts are as expected."""
        sections = self.row.sections if self.build == "debug" else 1
        return self.found == self.expected and self.sections == sections

    def __str__(self) -> str:
        loops, loads = self.found
        wanted = "/".join(map(str, self.expected))
        verdict = "ok" if self.is_ok else "DIFFERS"
        name = f"{self.arch:8s} {self.build:9s} {self.row.name:29s}"
        return f"{name} {loops:12d} {loads:12d}  {wanted:8s} {verdict}"


HEADER = f"{'arch':8s} {'build':9s} {'kernel':29s} rolled_loops global_loads  expected"


@dataclass(frozen=True, slots=True)
class Table:
    """All kernels in one build.

    Attributes
    ----------
    marks
        Loops that PTX asks to be left rolled: all of them, in optimised code.
    """

    lines: tuple[Line, ...]
    marks: int

    @property
    def loops(self) -> int:
        """Rolled loops in the machine code of all kernels."""
        return sum(line.found[0] for line in self.lines)

    @property
    def is_ok(self) -> bool:
        """Whether every line is, and every loop has its mark."""
        marked = 0 if self.lines[0].build == "debug" else self.loops
        return all(line.is_ok for line in self.lines) and self.marks == marked


def kernel_of(row: Row) -> Kernel:
    """Return the kernel of a row, named after it."""
    fd, inputs = row.build()
    call = bind(fd, inputs, manual=True)
    (kernel,) = build_manual(fd.fusion, fd.hand, call.cls, call.env, row.name).kernels
    return kernel


def table(kernels: tuple[Kernel, ...], arch: str, build: str) -> Table:
    """Compile the kernels of all rows, in one module, and count."""
    source = "\n".join(emit(kernel) for kernel in kernels)
    cubin = compile_cubin(source, kernels[0].name, arch, **BUILDS[build])
    report = read_cubin(cubin.image)
    lines: list[Line] = []
    for row in ROWS:
        mine = [s for s in report.sections if row.name in s.name]
        found = sum(len(s.rolled) for s in mine), sum(s.loads for s in mine)
        lines.append(Line(arch, build, row, found, len(mine)))
    return Table(tuple(lines), nounroll_pragmas(cubin.ptx or ""))


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unroll_table", description=__doc__)
    parser.add_argument("--source", action="store_true", help="print the CUDA of the kernels too")
    options = parser.parse_args()
    kernels = tuple(kernel_of(row) for row in ROWS)
    if options.source:
        print("\n".join(emit(kernel) for kernel in kernels))
    print(HEADER)
    tables: list[Table] = []
    for arch in ARCHS:
        for build in BUILDS:
            found = table(kernels, arch, build)
            print(*found.lines, sep="\n")
            marks = "marks in PTX of all loops above"
            print(f"{arch:8s} {build:9s} {marks:29s} {found.marks:10d}", flush=True)
            tables.append(found)
    lines = [line for t in tables for line in t.lines]
    print(f"{sum(line.is_ok for line in lines)} of {len(lines)} ok")
    return 0 if all(t.is_ok for t in tables) else 1


if __name__ == "__main__":
    raise SystemExit(main())
