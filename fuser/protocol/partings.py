"""Where the parts of a kernel that have nothing to do with each other meet: trips count anew there.

Behind a meeting of all threads, outside of loops, at which no barrier and no stage is used both
before and after, what was counted before says nothing about what comes. The proof then takes every
number of trips for what follows, be it of the same size or of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fuser.protocol.errors import Unsupported
from fuser.protocol.program import Act, Branch, Counted, Instruction, Jump, Program, Read, indices
from fuser.protocol.rings import ring_of

USING = ("arrive", "wait", "wait_token", "copy", "cp_async", "write", "store")
"""Acts on barriers and stages; to make and give back barriers is none, wherever it stands."""


def partings(agents: Sequence[Program]) -> tuple[tuple[int, ...], ...]:
    """Return, by agent, the instructions at which all threads meet between two such parts."""
    nowhere: tuple[int, ...] = ()
    threads = sum(program.threads for program in agents)
    meetings = [tuple(_meetings(program, threads)) for program in agents]
    if len({len(found) for found in meetings}) > 1:
        return (nowhere,) * len(agents)
    chosen = [
        pcs for pcs in zip(*meetings, strict=True)
        if _parts(
            {name for p, pc in zip(agents, pcs, strict=True) for name in _used(p.code[:pc])},
            {name for p, pc in zip(agents, pcs, strict=True) for name in _used(p.code[pc:])},
        )
    ]  # fmt: skip
    return tuple(tuple(pcs[a] for pcs in chosen) for a in range(len(agents)))


def require_one_size(agents: Sequence[Program], parts: Sequence[tuple[int, ...]]) -> None:
    """Raise `Unsupported` where one part of a kernel counts trips of two sizes on one level."""
    for number in range(max((len(pcs) for pcs in parts), default=0) + 1):
        names: dict[int, set[str]] = {}
        for program, pcs in zip(agents, parts, strict=True):
            begin, end = (0, *pcs, len(program.code))[number : number + 2]
            for e in (e for i in program.code[begin:end] for e in indices(i)):
                for name, level in e.names:
                    names.setdefault(level, set()).add(name)
        for level, several in names.items():
            if len(several) > 1:
                raise Unsupported(
                    f"on level {level} it counts {' and '.join(sorted(several))}; loops that are "
                    "nested equally deep, and do not lie apart, must have their trips from one size"
                )


def _parts(before: set[str], after: set[str]) -> bool:
    return bool(before) and bool(after) and before.isdisjoint(after)


def _meetings(program: Program, threads: int) -> Iterator[int]:
    """Yield where all threads meet, outside of loops and branches."""
    spans = [range(loop.enter, loop.exit) for loop in program.loops]
    for pc, i in enumerate(program.code):
        if isinstance(i, Branch | Jump):
            spans.append(range(pc, i.target))
    for pc, i in enumerate(program.code):
        if isinstance(i, Act) and i.kind == "sync" and i.weight == threads:
            if not any(pc in span for span in spans):
                yield pc


def _used(code: Iterable[Instruction]) -> Iterator[str]:
    """Yield the barriers and rings that instructions use."""
    for i in code:
        if isinstance(i, Read | Counted):
            yield ring_of(i.array)
        if isinstance(i, Act) and i.kind in USING:
            yield ring_of(i.barrier)
            yield from (ring_of(array) for array, _, _ in i.writes)
