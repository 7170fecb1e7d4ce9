"""One compilation as it happened: an observer that keeps the text of every stage."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.debug.stages import Snapshot, Stage, snapshot
from fuser.passes.pipeline import Scheduled


@dataclass(slots=True)
class Trace:
    """The snapshots of one compilation, in order.

    Attributes
    ----------
    title
        Where the user defined the fusion.
    shapes
        Input shapes of the call it was compiled for, for people.
    schedules
        By kernel: the recipe and its notes, one line.
    """

    title: str
    shapes: str = ""
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    schedules: dict[str, str] = field(default_factory=dict[str, str])

    def observe(self, step: str, ir: object) -> None:
        """Keep what `build_program` shows of a step."""
        if isinstance(ir, Scheduled):
            self.schedules[ir.name] = "; ".join(ir.schedule.notes) or ir.schedule.recipe
        taken = snapshot(step, ir)
        if taken is not None:
            self.snapshots.append(taken)

    def add(self, stage: Stage, kernel: str, text: str) -> None:
        """Keep a stage behind the kernel IR: CUDA, PTX, SASS."""
        self.snapshots.append(Snapshot(stage, stage, kernel, text))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in launch order."""
        return tuple(dict.fromkeys(s.kernel for s in self.snapshots if s.kernel is not None))

    def of(self, kernel: str | None, stage: Stage) -> tuple[Snapshot, ...]:
        """Return the snapshots of one stage of one kernel (None: of the whole fusion)."""
        return tuple(s for s in self.snapshots if s.kernel == kernel and s.stage == stage)


def changed_lines(before: str, after: str) -> frozenset[int]:
    """Return the 0-based lines of `after` that a line diff finds new or different."""
    from difflib import SequenceMatcher

    old, new = before.splitlines(), after.splitlines()
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return frozenset(n for kind, _, _, a, b in blocks if kind != "equal" for n in range(a, b))
