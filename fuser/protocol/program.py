"""What a thread of the protocol does: a flat program of acts, reads, loops and branches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from fuser.protocol.values import Compiled

Index = Compiled


@dataclass(frozen=True, slots=True)
class Act:
    """A step that others can see.

    Attributes
    ----------
    kind
        ``init fence inval arrive wait wait_token copy write cp_async sync end``; of stores by the
        copy engine ``store commit wait_read show``; of matrix products ``commit products``
        and ``wait products``.
    barrier, index, number
        Element of a barrier array, of a store: stage of an array; count, bytes, parity or groups
        that may be pending, by kind.
    weight
        Arrivals: threads that take part, times their count.
    array, stage, part
        Where a copy or a store goes.
    guard
        A copy is issued only where it holds; elsewhere there is nothing to load.
    slots, token
        Token register array elements: which lanes' copy of it.
    partial
        Only some threads of the agent take part.
    why
        For the story.
    """

    kind: str
    barrier: str = ""
    index: Index | None = None
    number: Index | None = None
    weight: int = 0
    writes: tuple[tuple[str, Index, int], ...] = ()
    guard: Index | None = None
    token: tuple[str, Index, int] | None = None
    partial: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """The agent reads a stage, some time between the acts around this.

    Attributes
    ----------
    by_product
        A matrix product reads, which is issued here and goes on until its group is waited for.
    """

    array: str
    stage: Index
    by_product: bool = False


@dataclass(frozen=True, slots=True)
class Converge:
    """All lanes are done with what is before."""


@dataclass(slots=True)
class Enter:
    """A loop variable begins; `head` follows."""

    slot: int
    start: Index


@dataclass(slots=True)
class Head:
    """``if (!(var < extent)) goto exit``."""

    slot: int
    below: Index
    exit: int = -1


@dataclass(slots=True)
class Next:
    """``var += step; goto head``."""

    slot: int
    step: int
    head: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A trip of an array has been filled, or read, as `what` says."""

    what: str
    array: str


@dataclass(slots=True)
class Branch:
    """``if (!cond) goto target``."""

    cond: Index
    target: int = -1


@dataclass(slots=True)
class Jump:
    """``goto target``."""

    target: int = -1


Instruction: TypeAlias = Act | Read | Counted | Converge | Enter | Head | Next | Branch | Jump


@dataclass(frozen=True, slots=True)
class LoopRange:
    """Where a trip loop lies in a program: ``enter`` is its `Enter`, ``exit`` is behind it."""

    level: int
    enter: int
    exit: int
    start: Index
    extent: Index
    step: int


@dataclass(slots=True)
class Program:
    """The program of one agent: `threads` threads that move together."""

    name: str
    threads: int
    code: list[Instruction] = field(default_factory=list[Instruction])
    loops: list[LoopRange] = field(default_factory=list[LoopRange])

    def signature(self) -> str:
        """Return a text that is equal for agents that act alike."""
        return "\n".join(map(_text, self.code))


def indices(instruction: Instruction) -> Iterator[Index]:
    """Yield every index that an instruction depends on."""
    for name in instruction.__slots__:
        yield from _compiled(getattr(instruction, name))


def _compiled(value: object) -> Iterator[Index]:
    if isinstance(value, Compiled):
        yield value
    elif isinstance(value, tuple):
        for part in cast("tuple[object, ...]", value):
            yield from _compiled(part)


def _text(instruction: Instruction) -> str:
    """Print an instruction without function objects."""
    words: list[str] = [type(instruction).__name__]
    for name in instruction.__slots__:
        value = getattr(instruction, name)
        words.append(f"{name}={_plain(value)}")
    return " ".join(words)


def _plain(value: object) -> str:
    if isinstance(value, Compiled):
        return " of ".join((value.text, *(name for name, _ in value.names)))
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_plain, cast("tuple[object, ...]", value))) + ")"
    return str(value)
