"""Loop-nest nodes: a closed set of frozen records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fuser.core.errors import VerifyError
from fuser.core.expr import ONE, ZERO, Expr
from fuser.core.simplify import Facts
from fuser.core.unroll import Unroll
from fuser.fusion.graph import FusionGraph
from fuser.schedule.circular import CircularBuffer
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
    """``for var in [start, extent)``, executed by what `parallel` says.

    Attributes
    ----------
    label
        What the loop is in a pipeline: ``"prologue"``, ``"main"``...
    step
        1 but for loops shared out among the threads of a role.
    outlined
        The user's axis that shall be a device function of its own, as errors name it; or empty.
    """

    var: str
    extent: Expr
    parallel: ParallelType
    unroll: Unroll
    body: tuple[NestNode, ...]
    start: Expr = ZERO
    label: str = ""
    step: Expr = ONE
    outlined: str = ""


@dataclass(frozen=True, slots=True)
class When:
    """``if (condition) body``, for a condition on loop variables and sizes: all threads agree."""

    condition: Expr
    body: tuple[NestNode, ...]


@dataclass(frozen=True, slots=True)
class Ring:
    """A circular-buffered loop: its tensors share stages and barriers.

    Attributes
    ----------
    name
        Prefix of its barriers.
    tensors
        The buffered tensors, all filled in the same trip.
    trips
        Trips of the loop, N; of all its loops together if it goes on across an outer one.
    """

    name: str
    tensors: tuple[str, ...]
    buffer: CircularBuffer
    trips: Expr


@dataclass(frozen=True, slots=True)
class InitRing:
    """Pre-prologue: initialise the barriers of every stage."""

    ring: Ring


@dataclass(frozen=True, slots=True)
class InvalRing:
    """Post-epilogue: nobody waits any more; give the barriers' memory back.

    Attributes
    ----------
    returns
        Producers take the registers back that they gave to the consumers.
    """

    ring: Ring
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Acquire:
    """Wait until the stage of `trip` is free; of verbs, `group` is the consumer group it is of."""

    ring: Ring
    trip: Expr
    group: Expr = ZERO


@dataclass(frozen=True, slots=True)
class Fill:
    """Issue the copies of `trip` into its stage and announce them on its full barrier."""

    ring: Ring
    trip: Expr
    body: tuple[NestNode, ...]
    group: Expr = ZERO


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until the stage of `trip` is full."""

    ring: Ring
    trip: Expr
    group: Expr = ZERO


@dataclass(frozen=True, slots=True)
class Release:
    """Give the stage of `trip` back: this thread has read it."""

    ring: Ring
    trip: Expr
    group: Expr = ZERO


@dataclass(frozen=True, slots=True)
class TakeTurn:
    """Ping-pong: wait until the group before has run its loop of trips; `turn` counts them."""

    ring: Ring
    turn: Expr


@dataclass(frozen=True, slots=True)
class PassTurn:
    """Ping-pong: let the next group run its loop of trips."""

    ring: Ring


@dataclass(frozen=True, slots=True)
class Group:
    """What one consumer group does: the threads of one index of the specialised axis."""

    ring: Ring
    body: tuple[NestNode, ...]


@dataclass(frozen=True, slots=True)
class WarpRoles:
    """Two groups of warps run concurrently: `producer` fills, `consumer` computes.

    Attributes
    ----------
    serves
        Variable of the producer's loop over consumer groups, if any.
    returns
        Consumers give the registers back that they took.
    """

    ring: Ring
    producer: tuple[NestNode, ...]
    consumer: tuple[NestNode, ...]
    serves: str = ""
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Outlet:
    """Outputs that the copy engine stores in the same trip.

    Attributes
    ----------
    stores
        Each output with the tile in shared memory that it is a copy of.
    stages
        Stages of the tiles; 0: the stages are those of a ring of loads.
    """

    stores: tuple[tuple[str, str], ...]
    stages: int

    @property
    def outputs(self) -> str:
        """Names of the outputs, for texts."""
        return ", ".join(output for output, _ in self.stores)

    @property
    def tiles(self) -> str:
        """Names of the tiles, for texts."""
        return ", ".join(dict.fromkeys(tile for _, tile in self.stores))


@dataclass(frozen=True, slots=True)
class Reuse:
    """Wait until the stores of the stage's previous trip have read it.

    Attributes
    ----------
    pending
        Trips behind that one whose stores need not have read yet.
    """

    outlet: Outlet
    pending: int


@dataclass(frozen=True, slots=True)
class Emit:
    """Show the tiles to the copy engine and issue their stores."""

    outlet: Outlet
    body: tuple[NestNode, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until all stores have read their tiles: others fill them, or the block ends."""

    outlets: tuple[Outlet, ...]


@dataclass(frozen=True, slots=True)
class FenceProducts:
    """Show what threads wrote to the accumulators of `tensor` to the products issued next."""

    tensor: str


@dataclass(frozen=True, slots=True)
class CommitProducts:
    """Close the group of the products of `tensor` that have been issued."""

    tensor: str


@dataclass(frozen=True, slots=True)
class AwaitProducts:
    """Wait until all but the latest `pending` groups of products have read and are complete."""

    tensor: str
    pending: int = 0


StoreVerb: TypeAlias = Reuse | Emit | Drain
ProductVerb: TypeAlias = FenceProducts | CommitProducts | AwaitProducts
RingVerb: TypeAlias = InitRing | InvalRing | Acquire | Fill | Await | Release | TakeTurn | PassTurn
NestNode: TypeAlias = (
    Loop | When | Compute | Allocate | Sync | RingVerb | StoreVerb | ProductVerb | Group | WarpRoles
)


def children(node: NestNode) -> tuple[tuple[NestNode, ...], ...]:
    """Return the bodies nested in a node."""
    match node:
        case Loop(body=body) | When(body=body) | Fill(body=body) | Group(body=body):
            return (body,)
        case Emit(body=body):
            return (body,)
        case WarpRoles(producer=producer, consumer=consumer):
            return producer, consumer
        case _:
            return ()


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
        inner = (*path, node) if isinstance(node, Loop) else path
        for nested in children(node):
            yield from walk(nested, inner)
