"""``python -m benchmarks.unroll_table``: unroll directives of schedules, counted in machine code.

A small filter, ``y[i] = sum over t of w[t] * x[i + t]`` on shifted slices of `x`, which a view of
windows has, and filters with such taps in each of several frames, each under a schedule that says
which loops stay. Every kernel is compiled optimised, with line information, for the debugger but
optimised, and for the debugger; nothing runs, so no GPU is needed. The exit status is 1 when a
count of loops or of loads is not what the schedule says, a loop has no mark in PTX, or code that
is optimised differs between builds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from fuser import DataType, FusionDefinition, ParallelType
from fuser.api.execute import bind
from fuser.api.manual import build_manual
from fuser.codegen.emit import emit
from fuser.kir.core import Kernel
from fuser.runtime.nvrtc import compile_cubin, nvrtc_archs, nvrtc_version
from fuser.runtime.sass import disassemble
from fuser.sass import nounroll_pragmas, read_sass
from fuser.sass.parse import Code, parse

ARCHS = ("sm_90a", "sm_80", "sm_120a")


class Options(TypedDict, total=False):
    """Options of the compiler."""

    lineinfo: bool
    debug: bool
    optimised: bool


BUILDS: dict[str, Options] = {
    "release": {}, "lineinfo": {"lineinfo": True},
    "-G -dopt=on": {"debug": True, "optimised": True}, "debug": {"debug": True},
}  # fmt: skip
THREADS, TAPS, OUTPUTS, FRAMES = 128, 4, 1000, 9
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
    """Return ``y[i] = sum over t of w[t] * x[i + t]``, weights from memory."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True])
        w = fd.define_tensor(shape=[TAPS], contiguity=[True])
        taps = fd.ops.unfold(x, 0, TAPS) * fd.ops.broadcast(w, [True, False])
        scheduled(fd, fd.ops.sum(taps, [1]), schedule)
    return fd, [signal(TAPS), np.arange(1, TAPS + 1, dtype=np.float32)]


def boxed(schedule: Callable[[Any], None]) -> tuple[FusionDefinition, list[Any]]:
    """Return ``y[i] = sum over t of w * x[i + t]``: an argument that nothing is loaded for."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True])
        w = fd.define_scalar(DataType.Float)
        scheduled(fd, fd.ops.sum(w * fd.ops.unfold(x, 0, TAPS), [1]), schedule)
    return fd, [signal(TAPS), 0.25]


def framed(
    schedule: Callable[[Any], None], frames: int | None, length: int
) -> tuple[FusionDefinition, list[Any]]:
    """Return ``y[i] = sum over k, t of w * x[i + length k + t]``; None: as many k as an argument.

    A window has frames of `length` elements, of which the first are taps.
    """
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True])
        w = fd.define_scalar(DataType.Float)
        count = fd.define_scalar(DataType.Int) if frames is None else frames
        windows = fd.ops.unfold(x, 0, count * length)
        taps = fd.ops.reshape(windows, [windows.shape[0], count, length])[:, :, :TAPS]
        scheduled(fd, fd.ops.sum(w * taps, [1, 2]), schedule)
    if frames is None:
        return fd, [signal(FRAMES * length), 0.25, FRAMES]
    return fd, [signal(frames * length), 0.25]


def signal(window: int) -> Any:
    """Return an input with as many windows as there shall be outputs."""
    return np.ones(OUTPUTS + window - 1, np.float32)


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
    Row("rolled_k_unrolled_inner", lambda: framed(rolled_outside, 8, 4), (1, 4), (1, 4)),
    Row("rolled_inside_full_unroll", lambda: framed(rolled_inside_full, 4, 64), (4, 4), (4, 4)),
    Row(
        "rolled_inside_partial_unroll", lambda: framed(rolled_inside_partial, None, 64),
        (7, 5), (7, 5),
    ),
    Row("rolled_in_device_fn", lambda: boxed(in_a_function), (1, 1), (1, 1), 2),
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
        if self.found == self.expected and not self.is_ok:
            verdict += f": {self.sections} sections of code"
        name = f"{self.arch:8s} {self.build:11s} {self.row.name:29s}"
        return f"{name} {loops:12d} {loads:12d}  {wanted:8s} {verdict}"


HEADER = f"{'arch':8s} {'build':11s} {'kernel':29s} rolled_loops global_loads  expected"


@dataclass(frozen=True, slots=True)
class Table:
    """All kernels in one build.

    Attributes
    ----------
    marks
        Loops that PTX asks to be left rolled: all of them, in optimised code.
    code
        The instructions.
    """

    lines: tuple[Line, ...]
    marks: int
    code: tuple[Code, ...]

    @property
    def loops(self) -> int:
        """Rolled loops in the machine code of all kernels."""
        return sum(line.found[0] for line in self.lines)

    @property
    def marked(self) -> int:
        """Marks that PTX should have."""
        return 0 if self.lines[0].build == "debug" else self.loops

    def is_ok(self, release: Table) -> bool:
        """Whether every line is, every loop has its mark, and optimised code is the same."""
        same = self.lines[0].build == "debug" or self.code == release.code
        return all(line.is_ok for line in self.lines) and self.marks == self.marked and same

    def text(self, release: Table) -> str:
        """Return the lines, and what is true of all kernels."""
        first = self.lines[0]
        start = f"{first.arch:8s} {first.build:11s}"
        verdict = "ok" if self.marks == self.marked else "DIFFERS"
        told = [*map(str, self.lines)]
        told.append(f"{start} {'marks in PTX':29s} {self.marks:12d} {self.marked:22d}  {verdict}")
        if first.build != "debug" and self is not release:
            verdict = "ok" if self.code == release.code else "DIFFERS"
            what = "instructions, as of release"
            told.append(f"{start} {what:29s} {size(self):12d} {size(release):22d}  {verdict}")
        return "\n".join(told)


def size(table: Table) -> int:
    """Return the instructions of all kernels."""
    return sum(len(code.instructions) for code in table.code)


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
    text = disassemble(cubin.image)
    report = read_sass(text)
    lines: list[Line] = []
    for row in ROWS:
        mine = [s for s in report.sections if row.name in s.name]
        found = sum(len(s.rolled) for s in mine), sum(s.loads for s in mine)
        lines.append(Line(arch, build, row, found, len(mine)))
    return Table(tuple(lines), nounroll_pragmas(cubin.ptx or ""), parse(text))


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unroll_table", description=__doc__)
    parser.add_argument("--source", action="store_true", help="print the CUDA of the kernels too")
    options = parser.parse_args()
    kernels = tuple(kernel_of(row) for row in ROWS)
    if options.source:
        print("\n".join(emit(kernel) for kernel in kernels))
    unknown = sorted(set(ARCHS) - set(nvrtc_archs()))
    if unknown:
        version = "{}.{}".format(*nvrtc_version())
        print(f"NVRTC {version} does not know {', '.join(unknown)}; a newer one is needed")
        return 1
    print(HEADER)
    passed: list[bool] = []
    for arch in ARCHS:
        release = table(kernels, arch, "release")
        for build in BUILDS:
            found = release if build == "release" else table(kernels, arch, build)
            print(found.text(release), flush=True)
            passed.append(found.is_ok(release))
    print(f"{sum(passed)} of {len(passed)} builds ok")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
