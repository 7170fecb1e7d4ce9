"""Invariants of a kernel that no single statement can check."""

from __future__ import annotations

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import Const
from fuser.kir.core import Kernel, SharedArray, TensorParam, walk_stmts
from fuser.kir.matrix_verify import verify_products
from fuser.kir.pipeline import verify_pipeline
from fuser.kir.stmts import (
    BlockReduce,
    DeclareRegisters,
    GridReduce,
    Store,
    VectorLoad,
    VectorStore,
)

MAX_SHARED_BYTES = 232448
"""Shared memory of one block of sm_90, the system's own 1024 bytes left out."""
DYNAMIC_ALIGN = 1024
"""What dynamic shared memory is aligned to: the largest that any access needs."""
MAX_THREADS = 1024


def verify_kernel(kernel: Kernel) -> None:
    """Raise `VerifyError` where `kernel` breaks a rule that its parts obey one by one."""
    kernel.verify()
    _verify_block(kernel)
    _verify_shared(kernel)
    _verify_memories(kernel)
    verify_pipeline(kernel)
    verify_products(kernel)
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, BlockReduce):
            _verify_scratch(kernel, stmt)
        if isinstance(stmt, GridReduce):
            _verify_workspace(kernel, stmt)


def _verify_block(kernel: Kernel) -> None:
    threads = 1
    for extent in kernel.block:
        threads *= extent.value if isinstance(extent, Const) else 1
    if not 1 <= threads <= MAX_THREADS:
        raise VerifyError(
            f"kernel {kernel.name}: {threads} threads per block; needs 1 to {MAX_THREADS}"
        )


def shared_bytes_available(kernel: Kernel) -> int:
    """Return how many bytes of shared memory the kernel may declare."""
    grid = any(isinstance(s, GridReduce) for s in walk_stmts(kernel.body))
    return MAX_SHARED_BYTES - DYNAMIC_ALIGN * grid


def _verify_shared(kernel: Kernel) -> None:
    available = shared_bytes_available(kernel)
    if kernel.shared_bytes > available:
        raise VerifyError(
            f"kernel {kernel.name}: {kernel.shared_bytes} bytes of shared memory; "
            f"at most {available} are available to a block"
        )


def _verify_memories(kernel: Kernel) -> None:
    """Every memory a statement writes or moves must be declared, and inputs stay unwritten."""
    tensors = {p.name: p for p in kernel.params if isinstance(p, TensorParam)}
    known = {*tensors, *(s.name for s in kernel.shared)}
    known |= {s.name for s in walk_stmts(kernel.body) if isinstance(s, DeclareRegisters)}
    for stmt in walk_stmts(kernel.body):
        if not isinstance(stmt, Store | VectorLoad | VectorStore):
            continue
        moved = (stmt.memory, stmt.dst) if isinstance(stmt, VectorLoad) else (stmt.memory,)
        for name in moved:
            if name not in known:
                raise VerifyError(
                    f"kernel {kernel.name}: {type(stmt).__name__} names {name}, which is no "
                    f"parameter, shared array or register array"
                )
        written = tensors.get(stmt.memory) if not isinstance(stmt, VectorLoad) else None
        if written is not None and written.mode == "in":
            raise VerifyError(
                f"kernel {kernel.name}: {type(stmt).__name__} writes {written.name}, an input; "
                f"needs mode out, inout or workspace"
            )


def _verify_scratch(kernel: Kernel, stmt: BlockReduce) -> None:
    arrays: dict[str, SharedArray] = {s.name: s for s in kernel.shared}
    scratch = arrays.get(stmt.scratch)
    if scratch is None or scratch.dtype is not stmt.dtype:
        found = f"{scratch.dtype.short} array" if scratch else "no shared array"
        raise VerifyError(
            f"kernel {kernel.name}: scratch {stmt.scratch} of BlockReduce({stmt.name}) is {found}; "
            f"needs {stmt.dtype.short}"
        )
    needed = stmt.scratch_numel(stmt.extents(kernel.block), stmt.axes)
    if scratch.numel < needed:
        raise VerifyError(
            f"kernel {kernel.name}: scratch {stmt.scratch} of BlockReduce({stmt.name}) has "
            f"{scratch.numel} elements; needs {needed}"
        )


def _verify_workspace(kernel: Kernel, stmt: GridReduce) -> None:
    dtypes = {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)}
    for role, name, dtype in (
        ("partials", stmt.partials, stmt.dtype),
        ("counter", stmt.counter, DataType.Int32),
    ):
        found = dtypes.get(name)
        if found is not dtype:
            raise VerifyError(
                f"kernel {kernel.name}: {role} {name} of GridReduce({stmt.name}) is "
                f"{f'a {found.short} tensor' if found else 'no parameter'}; needs {dtype.short}"
            )
