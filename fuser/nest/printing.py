"""Loop nests as text, for dumps and error messages."""

from __future__ import annotations

from typing import assert_never

from fuser.nest.nodes import (
    Acquire,
    Allocate,
    Await,
    Compute,
    Fill,
    Group,
    InitRing,
    InvalRing,
    Loop,
    LoopNest,
    NestNode,
    PassTurn,
    Release,
    RingVerb,
    Sync,
    TakeTurn,
    WarpRoles,
    children,
)


def to_text(nest: LoopNest) -> str:
    """Return the nest as indented pseudo code, one node a line."""
    lines = [f"nest {nest.name}:"]
    _print(nest.body, 1, lines)
    return "\n".join(lines)


def _print(body: tuple[NestNode, ...], depth: int, lines: list[str]) -> None:
    for node in body:
        lines.append("  " * depth + line(node))
        if isinstance(node, WarpRoles):
            for role, inner in (("producer", node.producer), ("consumer", node.consumer)):
                lines.append("  " * (depth + 1) + f"role {role}:")
                _print(inner, depth + 2, lines)
        else:
            for nested in children(node):
                _print(nested, depth + 1, lines)


def line(node: NestNode) -> str:
    """Return one node, without what is nested in it."""
    match node:
        case Loop(var, extent, parallel, unroll, _, start, label):
            extra = "" if unroll.kind == "auto" else f", {unroll.kind}"
            name = f"{label}: " if label else ""
            return f"{name}for {var} in [{start}, {extent})  # {parallel.name}{extra}"
        case Compute(tensor, loops, step):
            return f"{step} {tensor}[{', '.join(map(repr, loops))}]"
        case Allocate(tensor):
            return f"allocate {tensor}"
        case Sync(why):
            return f"sync  # {why}"
        case Group(ring):
            return f"each group of the consumer of {ring.name}:"
        case WarpRoles(ring):
            return f"warp roles of {ring.name}:"
        case _:
            return verb(node)


def verb(node: RingVerb) -> str:
    """Return a verb of a circular buffer with what it is for."""
    ring = node.ring
    match node:
        case InitRing():
            names = ", ".join(ring.tensors)
            return f"pre-prologue: init {ring.name}[{ring.buffer.stages}]  # barriers of {names}"
        case InvalRing():
            return f"post-epilogue: inval {ring.name}[{ring.buffer.stages}]"
        case Acquire(_, trip):
            return f"acquire {ring.name}[{trip}]  # until the stage is free"
        case Fill(_, trip):
            return f"fill {ring.name}[{trip}]"
        case Await(_, trip):
            return f"await {ring.name}[{trip}]  # until the stage is full"
        case Release(_, trip):
            return f"release {ring.name}[{trip}]  # this thread has read it"
        case TakeTurn(_, turn):
            return f"take turn {turn} of {ring.name}  # the group before has run its loop"
        case PassTurn():
            return f"pass the turn of {ring.name}"
        case _:
            assert_never(node)
