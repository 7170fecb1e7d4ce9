"""Who runs a piece of a kernel: all threads of the block, or the warps of one role."""

from __future__ import annotations

from fuser.core.expr import ZERO, Expr, Var, equal
from fuser.kir.core import Stmt
from fuser.kir.stmts import NamedBarrier, SyncThreads
from fuser.passes.state import Lowering, Scope

THREAD = Var("thread")


def first_thread(scope: Scope) -> Expr:
    """Return the linear index of the first thread that runs `scope`."""
    return ZERO if scope.team is None else scope.team.first


def elected(scope: Scope) -> Expr:
    """Return the condition of the one thread of a scope that issues copies."""
    return equal(THREAD, first_thread(scope))


def threads_of(state: Lowering, scope: Scope) -> int:
    """Return how many threads run `scope`; raise `ScheduleError` unless constant."""
    if scope.team is not None:
        return scope.team.threads
    return state.threads() + state.extra_threads


def barrier(why: str, scope: Scope) -> Stmt:
    """Return a barrier of the threads that run `scope`."""
    if scope.team is None:
        return SyncThreads(why)
    return NamedBarrier(scope.team.barrier, scope.team.threads, why)
