"""Rebuilding nest nodes with parts replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from fuser.core.expr import Expr, substitute
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
    NestNode,
    PassTurn,
    Release,
    Reuse,
    Sync,
    TakeTurn,
    WarpRoles,
    When,
)

Body = tuple[NestNode, ...]


def map_bodies(node: NestNode, change: Callable[[Body], Body]) -> NestNode:
    """Rebuild a node with every body nested in it changed."""
    match node:
        case Loop(body=body) | When(body=body) | Fill(body=body) | Group(body=body):
            return replace(node, body=change(body))
        case Emit(body=body):
            return replace(node, body=change(body))
        case WarpRoles(producer=producer, consumer=consumer):
            return replace(node, producer=change(producer), consumer=change(consumer))
        case _:
            return node


def substituted(body: Body, env: Mapping[str, Expr]) -> Body:
    """Return a copy with loop variables replaced by expressions."""
    return tuple(_substituted(node, env) for node in body)


def _substituted(node: NestNode, env: Mapping[str, Expr]) -> NestNode:
    node = map_bodies(node, lambda body: substituted(body, env))
    match node:
        case Loop(start=start, extent=extent):
            return replace(node, start=substitute(start, env), extent=substitute(extent, env))
        case When(condition, body):
            return When(substitute(condition, env), body)
        case Compute(loops=loops):
            return replace(node, loops=tuple(substitute(e, env) for e in loops))
        case Acquire() | Fill() | Await() | Release():
            trip, group = substitute(node.trip, env), substitute(node.group, env)
            return replace(node, trip=trip, group=group)
        case TakeTurn(turn=turn):
            return replace(node, turn=substitute(turn, env))
        case Allocate() | Sync() | InitRing() | InvalRing() | PassTurn() | Group() | WarpRoles():
            return node
        case Reuse() | Emit() | Drain() | FenceProducts() | CommitProducts() | AwaitProducts():
            return node
        case _:
            assert_never(node)
