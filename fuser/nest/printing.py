"""Loop nests as text, for dumps and error messages."""

from __future__ import annotations

from typing import assert_never

from fuser.nest.nodes import Allocate, Compute, Loop, LoopNest, NestNode, Sync


def to_text(nest: LoopNest) -> str:
    """Return the nest as indented pseudo code, one node a line."""
    lines = [f"nest {nest.name}:"]
    _print(nest.body, 1, lines)
    return "\n".join(lines)


def _print(body: tuple[NestNode, ...], depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    for node in body:
        match node:
            case Loop(var, extent, parallel, unroll, inner):
                extra = "" if unroll.kind == "auto" else f", {unroll.kind}"
                lines.append(f"{pad}for {var} in [0, {extent})  # {parallel.name}{extra}")
                _print(inner, depth + 1, lines)
            case Compute(tensor, loops, step):
                where = ", ".join(map(repr, loops))
                lines.append(f"{pad}{step} {tensor}[{where}]")
            case Allocate(tensor):
                lines.append(f"{pad}allocate {tensor}")
            case Sync(why):
                lines.append(f"{pad}sync  # {why}")
            case _:
                assert_never(node)
