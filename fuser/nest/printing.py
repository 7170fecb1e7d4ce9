"""Loop nests as text, for dumps and error messages."""

from __future__ import annotations

from typing import assert_never

from fuser.nest.nodes import (
    Acquire,
    Allocate,
    Await,
    AwaitProducts,
    CommitProducts,
    Compute,
    Drain,
    Emit,
    FenceProducts,
    Fill,
    Group,
    InitRing,
    InvalRing,
    Loop,
    LoopNest,
    NestNode,
    PassTurn,
    ProductVerb,
    Release,
    Reuse,
    Ring,
    RingVerb,
    StoreVerb,
    Sync,
    TakeTurn,
    WarpRoles,
    When,
    children,
)
from fuser.schedule.circular import Pipelined, WarpSpecialized


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
        elif isinstance(node, InitRing | InvalRing):
            lines += ["  " * (depth + 1) + text for text in _each_stage(node)]
        else:
            for nested in children(node):
                _print(nested, depth + 1, lines)


def line(node: NestNode) -> str:
    """Return one node, without what is nested in it."""
    match node:
        case Loop(var, extent, parallel, unroll, _, start, label):
            factor = f" {unroll.factor}" if unroll.kind == "partial" else ""
            extra = "" if unroll.kind == "auto" else f", {unroll.kind}{factor}"
            name = f"{label}: " if label else ""
            return f"{name}for {var} in [{start}, {extent})  # {parallel.name}{extra}"
        case When(condition):
            return f"when {condition}:"
        case Compute(tensor, loops, step):
            return f"{step} {tensor}[{', '.join(map(repr, loops))}]"
        case Allocate(tensor):
            return f"allocate {tensor}"
        case Sync(why):
            return f"sync  # {why}"
        case Group(ring):
            return f"each group of the consumer of {ring.name}:"
        case WarpRoles(ring, returns=returns):
            back = "  # consumers give their registers back" if returns else ""
            return f"warp roles of {ring.name}:{back}"
        case Reuse() | Emit() | Drain():
            return store_verb(node)
        case FenceProducts() | CommitProducts() | AwaitProducts():
            return product_verb(node)
        case _:
            return verb(node)


def store_verb(node: StoreVerb) -> str:
    """Return a verb of stores by the copy engine with what it is for."""
    match node:
        case Reuse(outlet, pending):
            return f"reuse {outlet.tiles}  # until its stores have read, {pending} pending"
        case Emit(outlet):
            return f"emit {outlet.outputs}  # stores out of {outlet.tiles}"
        case Drain(outlets):
            names = ", ".join(outlet.outputs for outlet in outlets)
            return f"drain {names}  # until all stores have read"


def product_verb(node: ProductVerb) -> str:
    """Return a verb of products of tensor cores with what it is for."""
    match node:
        case FenceProducts(tensor):
            return f"fence {tensor}  # products see what was written to its accumulators"
        case CommitProducts(tensor):
            return f"commit {tensor}  # its products since the last commit are a group"
        case AwaitProducts(tensor, pending):
            what = f"all but {pending} groups" if pending else "all groups"
            return f"await {tensor}  # until {what} have read their stages and are complete"


def verb(node: RingVerb) -> str:
    """Return a verb of a circular buffer, with the barrier it uses and what for."""
    ring = node.ring
    match node:
        case InitRing():
            names = ", ".join(ring.tensors)
            return f"pre-prologue: for s in [0, {ring.buffer.stages})  # barriers of {names}"
        case InvalRing():
            why = "behind a barrier of the block: nobody waits any more"
            if node.returns:
                why = f"{why}, and producers take their registers back"
            return f"post-epilogue: for s in [0, {ring.buffer.stages})  # {why}"
        case Acquire(_, trip):
            why = (
                "waits on empty: the stage is free"
                if "empty" in barriers(ring)
                else "free since the barrier of the block a trip before"
            )
            return f"acquire {ring.name}[{trip}]  # {why}"
        case Fill(_, trip):
            return f"fill {ring.name}[{trip}]  # arrives on full, which its copies complete"
        case Await(_, trip):
            return f"await {ring.name}[{trip}]  # waits on full: the stage has been filled"
        case Release(_, trip):
            how = "arrives on empty" if "empty" in barriers(ring) else "a barrier of the block"
            return f"release {ring.name}[{trip}]  # {how}: the stage has been read"
        case TakeTurn(_, turn):
            return f"take turn {turn} of {ring.name}  # waits on turn: the group before is through"
        case PassTurn():
            return f"pass the turn of {ring.name}  # arrives on the next group's turn"
        case _:
            assert_never(node)


def barriers(ring: Ring) -> dict[str, str]:
    """Return the barriers of each stage of a ring, and when they complete."""
    purpose = {"full": "completes once a round, when the stage has been filled"}
    kind = ring.buffer.type
    if not isinstance(kind, Pipelined) or kind.war == "mbarrier":
        purpose["empty"] = "completes once a round, when the stage has been read"
    return purpose


def _each_stage(node: InitRing | InvalRing) -> list[str]:
    kind = node.ring.buffer.type
    purpose = {f"{name}[s]": why for name, why in barriers(node.ring).items()}
    if isinstance(kind, WarpSpecialized) and kind.ping_pong:
        purpose["turn of each group"] = "completes when the group before has run its loop"
    if isinstance(node, InvalRing):
        return [f"inval {name}" for name in purpose]
    return [f"init {name}  # {why}" for name, why in purpose.items()]
