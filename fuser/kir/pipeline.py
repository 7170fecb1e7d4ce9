"""Invariants of pipelines: what barriers, copies and roles of one kernel owe each other."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import Const, Expr, evaluate, to_c
from fuser.kir.core import Kernel, SharedArray, Stmt, TensorMapParam, TensorParam, walk_stmts
from fuser.kir.hand_over import hand_over_problems
from fuser.kir.stmts import (
    BlockReduce,
    BulkLoad,
    BulkStore,
    CpAsync,
    DeclareRegisters,
    GridReduce,
    MbarrierArriveToken,
    MbarrierWaitToken,
    Role,
    Roles,
    SyncThreads,
    TensorLoad,
    TensorStore,
)
from fuser.kir.team_box import TeamBox

WARP_GROUP = 128
UNIT = 16
TENSOR_ALIGN = 128
PATTERN = {"none": 128, "32B": 256, "64B": 512, "128B": 1024}
"""Alignment of shared memory by swizzle: the pattern repeats at these addresses."""


def verify_pipeline(kernel: Kernel) -> None:
    """Raise `VerifyError` where statements of a pipeline name what is not there, or misalign it."""
    for stmt in walk_stmts(kernel.body):
        for problem in _problems(kernel, stmt):
            raise VerifyError(f"kernel {kernel.name}: {type(stmt).__name__} {problem}")
    for problem in hand_over_problems(kernel):
        raise VerifyError(f"kernel {kernel.name}: Roles {problem}")


def _problems(kernel: Kernel, stmt: Stmt) -> Iterator[str]:
    yield from _barriers(kernel, stmt)
    match stmt:
        case BulkLoad() | BulkStore():
            yield from _bulk(kernel, stmt)
        case TensorLoad(dst=array, dst_index=index) | TensorStore(src=array, src_index=index):
            yield from _tensor(kernel, stmt, array, index)
        case CpAsync(dst=dst, src=src):
            yield from _places(kernel, dst, src)
        case MbarrierArriveToken(tokens=tokens) | MbarrierWaitToken(tokens=tokens):
            yield from _tokens(kernel, tokens)
        case Roles():
            yield from _roles(kernel, stmt)
        case _:
            pass


def _barriers(kernel: Kernel, stmt: Stmt) -> Iterator[str]:
    name = getattr(stmt, "barrier", None)
    arrays = {b.name: b.size for b in kernel.barriers}
    if name is None:
        return
    if name not in arrays:
        yield f"names barrier {name}; needed one of {sorted(arrays)}"
        return
    index = getattr(stmt, "barrier_index", None) or getattr(stmt, "index", None)
    if isinstance(index, Const) and not 0 <= index.value < arrays[name]:
        yield f"names {name}[{index.value}]; needed 0 to {arrays[name] - 1}"


def _places(kernel: Kernel, shared: str, tensor: str) -> Iterator[str]:
    arrays = {s.name for s in kernel.shared}
    tensors = {p.name for p in kernel.params if isinstance(p, TensorParam)}
    if shared not in arrays:
        yield f"copies to or from {shared}; needed a shared array, one of {sorted(arrays)}"
    if tensor not in tensors:
        yield f"copies to or from {tensor}; needed a tensor, one of {sorted(tensors)}"


def _shared(kernel: Kernel, name: str) -> SharedArray | None:
    return next((s for s in kernel.shared if s.name == name), None)


def _bulk(kernel: Kernel, stmt: BulkLoad | BulkStore) -> Iterator[str]:
    pair = (stmt.dst, stmt.src) if isinstance(stmt, BulkLoad) else (stmt.src, stmt.dst)
    yield from _places(kernel, *pair)
    dtypes = {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)}
    dtypes |= {s.name: s.dtype for s in kernel.shared}
    if dtypes.get(stmt.dst) is not dtypes.get(stmt.src):
        yield f"copies {stmt.src} to {stmt.dst}; needed equal dtypes"
        return
    nbytes = stmt.nbytes
    if isinstance(nbytes, Const) and (nbytes.value <= 0 or nbytes.value % UNIT):
        yield f"copies {nbytes.value} bytes; needed a positive multiple of {UNIT}"
    item = dtypes[stmt.dst].nbytes
    for name, index in ((stmt.dst, stmt.dst_index), (stmt.src, stmt.src_index)):
        yield from _aligned(name, index, item, UNIT)
    array = _shared(kernel, pair[0])
    if array is not None and array.align_bytes < UNIT:
        yield f"copies {array.name}, aligned to {array.align_bytes} bytes; needed {UNIT}"


def _aligned(name: str, index: Expr, item: int, align: int) -> Iterator[str]:
    if isinstance(index, Const) and index.value * item % align:
        at = index.value * item
        yield f"copies from or to byte {at} of {name}; needed a multiple of {align}"


def _tensor(
    kernel: Kernel, stmt: TensorLoad | TensorStore, array_name: str, index: Expr
) -> Iterator[str]:
    maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
    param, array = maps.get(stmt.tensor_map), _shared(kernel, array_name)
    if param is None:
        yield f"names tensor map {stmt.tensor_map}; needed one of {sorted(maps)}"
        return
    if array is None:
        yield from _places(kernel, array_name, param.tensor)
        return
    if len(stmt.coords) != param.rank:
        yield f"gives {len(stmt.coords)} coordinates; {param.label} has {param.rank} dimensions"
    if array.dtype is not param.dtype:
        yield f"copies {param.dtype.short} to or from {array.name} of {array.dtype.short}"
    needed = PATTERN[param.swizzle]
    if array.align_bytes < needed:
        yield (
            f"copies {array.name}, aligned to {array.align_bytes} bytes; swizzle {param.swizzle} "
            f"needs {needed}"
        )
    yield from _aligned(array.name, index, array.dtype.nbytes, TENSOR_ALIGN)


def _tokens(kernel: Kernel, tokens: str) -> Iterator[str]:
    arrays = (s for s in walk_stmts(kernel.body) if isinstance(s, DeclareRegisters))
    dtypes = {s.name: s.dtype for s in arrays}
    if dtypes.get(tokens) is not DataType.Int:
        yield f"keeps tokens in {tokens}; needed a register array of {DataType.Int.short}"


def _roles(kernel: Kernel, stmt: Roles) -> Iterator[str]:
    extents = [e.value for e in kernel.block if isinstance(e, Const)]
    if len(extents) < len(kernel.block):
        yield "needs a block of constant extents"
        return
    x, y, z = extents
    threads = x * y * z
    if stmt.roles and stmt.roles[-1].range.stop > threads:
        role = stmt.roles[-1]
        yield f"{role.name} ends at thread {role.range.stop}; the block has {threads}"
    for role in stmt.roles:
        yield from _meetings(role, (x, y, z))


def _meetings(role: Role, block: tuple[int, int, int]) -> Iterator[str]:
    """Threads of a role wait for no others of the block: those do not come by."""
    for stmt in walk_stmts(role.body):
        match stmt:
            case SyncThreads() | GridReduce() | BlockReduce(box=None):
                yield f"{role.name}: {type(stmt).__name__} waits for all threads of the block"
            case BlockReduce(name, box=TeamBox() as box) if _misses(box, role, block):
                yield (
                    f"{role.name}: BlockReduce({name}) is over {box.extents} threads from "
                    f"({', '.join(map(to_c, box.first))}) on; the role has threads "
                    f"{role.first_thread} to {role.range.stop - 1} in {role.groups} groups"
                )
            case _:
                pass


def _misses(box: TeamBox, role: Role, block: tuple[int, int, int]) -> bool:
    """Whether a box is other threads than those of the role or of the group that runs it."""
    x, y, _ = block

    def threads_of(t: int) -> range | None:
        at = {"thread": t, "tx": t % x, "ty": t // x % y, "tz": t // (x * y)}
        return box.of(lambda e: int(evaluate(e, at))).range(block)

    return any(threads_of(part.start) not in (part, role.range) for _, part in role.parts)
