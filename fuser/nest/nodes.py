"""Loop-nest nodes: a closed set of frozen records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fuser.core.errors import VerifyError
from fuser.core.expr import Expr
from fuser.core.simplify import Facts
from fuser.core.unroll import Unroll
from fuser.fusion.graph import FusionGraph
from fuser.schedule.kinds import ParallelType
from fuser.schedule.schedule import Schedule

Step: TypeAlias = Literal["assign", "init", "combine", "finish"]


@dataclass(frozen=True, slots=True)
class Compute:
    """Evaluate one element of a materialised tensor.

    Attributes
    ----------
    tensor
        Value name.
    loops
        Index of each axis of its loop domain; the loop variables in scope, or 0 for a reduction
        axis in the ``init`` and ``finish`` steps.
    step
        ``"assign"``; of a reduction ``"init"`` (identity), ``"combine"`` (one operand element) and
        ``"finish"`` (combine across threads and blocks).
    """

    tensor: str
    loops: tuple[Expr, ...]
    step: Step = "assign"


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory of a local or shared tensor, alive until the end of the enclosing body."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Sync:
    """A barrier of all threads of the block, and why it is there."""

    why: str


@dataclass(frozen=True, slots=True)
class Loop:
    """``for var in [0, extent)``, executed by what `parallel` says."""

    var: str
    extent: Expr
    parallel: ParallelType
    unroll: Unroll
    body: tuple[NestNode, ...]


NestNode: TypeAlias = Loop | Compute | Allocate | Sync


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A scheduled fusion.

    Attributes
    ----------
    order
        Materialised tensors, producers first.
    facts
        What the shape class promises about sizes.
    """

    name: str
    graph: FusionGraph
    schedule: Schedule
    order: tuple[str, ...]
    body: tuple[NestNode, ...]
    facts: Facts

    def verify(self) -> None:
        """Raise `VerifyError` when a loop variable is defined twice in one path."""
        for path, _ in walk(self.body):
            names = [loop.var for loop in path]
            if len(set(names)) != len(names):
                raise VerifyError(f"nest {self.name}: loop variable defined twice in {names}")


def walk(
    body: tuple[NestNode, ...], path: tuple[Loop, ...] = ()
) -> Iterator[tuple[tuple[Loop, ...], NestNode]]:
    """Yield ``(enclosing loops, node)`` for every node, in program order."""
    for node in body:
        yield path, node
        if isinstance(node, Loop):
            yield from walk(node.body, (*path, node))
