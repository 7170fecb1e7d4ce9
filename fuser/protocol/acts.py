"""Acts and sizes that follow from a statement alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fuser.core.expr import Const, Expr, substitute
from fuser.kir.core import Stmt
from fuser.kir.stmts import (
    BulkCommit,
    BulkWait,
    BulkWaitRead,
    FenceProxyAsync,
    For,
    WgmmaCommit,
    WgmmaWait,
)
from fuser.protocol.errors import Unsupported
from fuser.protocol.program import Act
from fuser.protocol.values import compile_index

LONGEST_UNROLLED = 64


def group_act(stmt: Stmt) -> Act | None:
    """Return the act of a statement on what its thread has issued in groups."""
    match stmt:
        case BulkCommit():
            return Act("commit")
        case BulkWaitRead(pending) | BulkWait(pending):
            return Act("wait_read", number=compile_index(Const(pending), {}, {}))
        case WgmmaCommit():
            return Act("commit products")
        case WgmmaWait(pending, why):
            return Act("wait products", number=compile_index(Const(pending), {}, {}), why=why)
        case FenceProxyAsync(why):
            return Act("show", why=why)
        case _:
            return None


def constant_range(loop: For, lets: Mapping[str, Expr]) -> Iterator[int]:
    """Return the values of a loop that is unrolled."""
    bounds = [substitute(e, lets) for e in (loop.start, loop.extent, loop.step)]
    values = [e.value for e in bounds if isinstance(e, Const)]
    if len(values) < 3:
        raise Unsupported(f"loop {loop.var} runs from {bounds[0]} to {bounds[1]}")
    if values[2] < 1 or (values[1] - values[0]) // values[2] > LONGEST_UNROLLED:
        raise Unsupported(
            f"loop {loop.var} over barriers or boxes runs from {values[0]} to {values[1]}; at most "
            f"{LONGEST_UNROLLED} iterations are taken apart, so fewer stages or boxes are needed"
        )
    yield from range(*values)
