"""Loop nests as text, for dumps and error messages."""

from __future__ import annotations

from typing import assert_never

from fuser.nest.nodes import (
    Acquire,
    Allocate,
    Await,
    Compute,
    Fill,
    InitRing,
    InvalRing,
    Loop,
    LoopNest,
    NestNode,
    Release,
    Ring,
    Sync,
    WarpRoles,
)


def to_text(nest: LoopNest) -> str:
    """Return the nest as indented pseudo code, one node a line."""
    lines = [f"nest {nest.name}:"]
    _print(nest.body, 1, lines)
    return "\n".join(lines)


def _print(body: tuple[NestNode, ...], depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    for node in body:
        match node:
            case Loop(var, extent, parallel, unroll, inner, start, label):
                extra = "" if unroll.kind == "auto" else f", {unroll.kind}"
                name = f"{label}: " if label else ""
                lines.append(
                    f"{pad}{name}for {var} in [{start}, {extent})  # {parallel.name}{extra}"
                )
                _print(inner, depth + 1, lines)
            case Compute(tensor, loops, step):
                where = ", ".join(map(repr, loops))
                lines.append(f"{pad}{step} {tensor}[{where}]")
            case Allocate(tensor):
                lines.append(f"{pad}allocate {tensor}")
            case Sync(why):
                lines.append(f"{pad}sync  # {why}")
            case InitRing(ring):
                stages = ring.buffer.stages
                lines.append(f"{pad}pre-prologue: init {ring.name}[{stages}]  # {_purpose(ring)}")
            case InvalRing(ring):
                lines.append(f"{pad}post-epilogue: inval {ring.name}[{ring.buffer.stages}]")
            case Acquire(ring, trip):
                lines.append(f"{pad}acquire {ring.name}[{trip}]  # until the stage is free")
            case Fill(ring, trip, inner):
                lines.append(f"{pad}fill {ring.name}[{trip}]")
                _print(inner, depth + 1, lines)
            case Await(ring, trip):
                lines.append(f"{pad}await {ring.name}[{trip}]  # until the stage is full")
            case Release(ring, trip):
                lines.append(f"{pad}release {ring.name}[{trip}]  # this thread has read it")
            case WarpRoles(_, producer, consumer):
                for role, inner in (("producer", producer), ("consumer", consumer)):
                    lines.append(f"{pad}role {role}:")
                    _print(inner, depth + 1, lines)
            case _:
                assert_never(node)


def _purpose(ring: Ring) -> str:
    return f"full and empty barriers of {', '.join(ring.tensors)}"
