"""Invariants of matrix products: tiles, accumulators, and whole warp groups that issue them."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import Const, Expr
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.matrix import DEPTH, MatrixLayout
from fuser.kir.pipeline import WARP_GROUP
from fuser.kir.stmts import (
    DeclareRegisters,
    If,
    Roles,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)


def verify_products(kernel: Kernel) -> None:
    """Raise `VerifyError` where products name what is not there, misplace it, or lack threads."""
    for stmt in walk_stmts(kernel.body):
        for problem in _problems(kernel, stmt):
            raise VerifyError(f"kernel {kernel.name}: {type(stmt).__name__} {problem}")
    extents = [e.value for e in kernel.block if isinstance(e, Const)]
    block = None
    if len(extents) == len(kernel.block):
        x, y, z = extents
        block = range(x * y * z)
    for problem in _threads(kernel.body, block, "the block"):
        raise VerifyError(f"kernel {kernel.name}: {problem}")


def _problems(kernel: Kernel, stmt: Stmt) -> Iterator[str]:
    match stmt:
        case Wgmma():
            first = stmt.first.value if isinstance(stmt.first, Const) else 0
            yield from _registers(kernel, stmt.accumulator, first, first + stmt.registers)
            yield from _tile(kernel, stmt, stmt.a, stmt.a_index, stmt.a_layout, stmt.rows)
            yield from _tile(kernel, stmt, stmt.b, stmt.b_index, stmt.b_layout, stmt.n)
        case WgmmaFence(name, size):
            yield from _registers(kernel, name, 0, size)
        case WgmmaWait(accumulator=name, size=size) if name:
            yield from _registers(kernel, name, 0, size)
        case _:
            pass


def _registers(kernel: Kernel, name: str, first: int, end: int) -> Iterator[str]:
    arrays = {s.name: s for s in walk_stmts(kernel.body) if isinstance(s, DeclareRegisters)}
    array = arrays.get(name)
    if array is None or array.dtype is not DataType.Float:
        found = f"{array.dtype.short} registers" if array else "no register array"
        yield f"has accumulators in {name}, {found}; needed {DataType.Float.short} registers"
    elif first < 0 or end > array.size:
        yield f"has accumulators {name}[{first}:{end}]; it has {array.size}"


def _tile(
    kernel: Kernel, stmt: Wgmma, name: str, index: Expr, layout: MatrixLayout, rows: int
) -> Iterator[str]:
    arrays = {s.name: s for s in kernel.shared}
    array = arrays.get(name)
    if array is None:
        yield f"reads {name}; needed a shared array, one of {sorted(arrays)}"
        return
    if array.dtype is not stmt.dtype:
        yield f"reads {name} of {array.dtype.short}; needed {stmt.dtype.short}"
    if array.align_bytes < layout.align_bytes:
        yield (
            f"reads {name}, aligned to {array.align_bytes} bytes; swizzle {layout.swizzle} needs "
            f"{layout.align_bytes}"
        )
    if isinstance(index, Const):
        problem = layout.misplaced(index.value * array.dtype.nbytes, rows)
        if problem:
            yield f"reads a tile from {name}[{index.value}] on, {problem}"
            return
        last = index.value + int(layout.offset(rows - 1, DEPTH - 1)) // array.dtype.nbytes
        if index.value < 0 or last >= array.numel:
            yield (
                f"reads {name}[{index.value}:{last + 1}], as elements before the swizzle; it has "
                f"{array.numel}"
            )


def _threads(body: tuple[Stmt, ...], threads: range | None, who: str) -> Iterator[str]:
    """Who runs products, where that does not depend on a branch: whole warp groups."""
    for stmt in body:
        match stmt:
            case Wgmma() | WgmmaFence() | WgmmaCommit() | WgmmaWait():
                if threads and (threads.start % WARP_GROUP or len(threads) % WARP_GROUP):
                    yield (
                        f"{type(stmt).__name__} of {who}: threads {threads.start} to "
                        f"{threads.stop - 1}; needed whole warp groups of {WARP_GROUP}"
                    )
            case Roles():
                for role in stmt.roles:
                    for name, part in role.parts:
                        yield from _threads(role.body, part, f"role {name}")
            case If():
                for nested in stmt.bodies():
                    yield from _threads(nested, None, who)
            case _:
                for nested in stmt.bodies():
                    yield from _threads(nested, threads, who)
