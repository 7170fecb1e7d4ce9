"""Mistakes that the blocks of a cluster make about each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from fuser.core.expr import Var, variables
from fuser.kir.core import Stmt
from fuser.kir.stmts import (
    ClusterSync,
    For,
    If,
    MbarrierArriveRemote,
    SyncThreads,
    TensorLoad,
)

Body: TypeAlias = tuple[Stmt, ...]

OWN_RANK = Var("cluster_rank")
OF_BLOCKS = frozenset({"cx", "cy", "cz", "cluster_rank"})
"""What tells the blocks of a cluster apart."""


def share(body: Body, at: int) -> Iterator[tuple[str, Body]]:
    """Yield kinds of mistakes in the statement at a position, with what the body becomes."""
    stmt = body[at]
    before, behind = body[:at], body[at + 1 :]
    match stmt:
        case ClusterSync(why) if not _met(before):
            yield "cluster barrier dropped", (*before, *behind)
            yield "barrier of a block alone", (*before, SyncThreads(why), *behind)
        case MbarrierArriveRemote():
            own = replace(stmt, rank=OWN_RANK)
            yield "release to the own block alone", (*before, own, *behind)
        case TensorLoad(multicast=mask) if mask is not None:
            yield "multicast dropped", (*before, replace(stmt, multicast=None), *behind)
        case If(cond, inner, ()) if _is_shared(inner) and variables(cond) <= OF_BLOCKS:
            yield "multicast by every block", (*before, *inner, *behind)
        case _:
            pass


def _is_shared(body: Body) -> bool:
    """Whether statements are boxes that one block loads for others."""
    return all(isinstance(s, TensorLoad) and s.multicast is not None for s in body)


def _met(before: Body) -> bool:
    """Whether the blocks have just met: the loop before ends so, another meeting adds nothing."""
    last = before[-1] if before else None
    return isinstance(last, For) and isinstance(last.body[-1], ClusterSync)
