"""Kernel container and the one interface every statement implements."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import ONE, ZERO, Const, Expr
from fuser.core.hardware import MAX_CLUSTER
from fuser.core.unroll import Unroll
from fuser.kir.fallback import Fallback
from fuser.kir.tensor_map import TensorMapParam

if TYPE_CHECKING:
    from fuser.sim.machine import Agent, Machine, Wait

__all__ = [
    "GRID_1", "BarrierArray", "Context", "IndexType", "Kernel", "Mode", "Param", "Render",
    "Ring", "ScalarParam", "SharedArray", "SizeParam", "Stmt", "TensorMapParam", "TensorParam",
    "Unroll", "field_names", "walk_stmts",
]  # fmt: skip

STATIC_SHARED_BYTES = 48 * 1024
"""Larger shared memory exists only where the launch asks for it."""

Context: TypeAlias = Mapping[str, str | int]
Render: TypeAlias = "Callable[[tuple[Stmt, ...]], str]"
IndexType: TypeAlias = Literal["i32", "i64"]
Mode: TypeAlias = Literal["in", "out", "inout", "workspace"]


@dataclass(frozen=True, slots=True)
class TensorParam:
    """A pointer to `numel` addressable elements of `dtype`.

    Attributes
    ----------
    mode
        ``"in"`` pointers are ``const ... __restrict__`` unless `aliased`.
    aligned_bytes
        What the launch guarantees of the pointer's alignment, in bytes.
    aliased
        Another parameter may point to the same memory, so no ``__restrict__``.
    """

    name: str
    dtype: DataType
    mode: Mode
    numel: Expr
    aligned_bytes: int = 16
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A scalar of the fusion, passed by value."""

    name: str
    dtype: DataType


@dataclass(frozen=True, slots=True)
class SizeParam:
    """An integer size or stride, passed by value in the kernel's index type.

    Attributes
    ----------
    least
        Its smallest value, on which the kernel may rely; 0 where nothing is known.
    """

    name: str
    least: int = 0


Param: TypeAlias = TensorParam | ScalarParam | SizeParam | TensorMapParam


@dataclass(frozen=True, slots=True)
class SharedArray:
    """`numel` elements of static shared memory, one copy per block.

    Attributes
    ----------
    stages
        Equal parts that hold successive trips.
    """

    name: str
    dtype: DataType
    numel: int
    align_bytes: int = 16
    stages: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.numel * self.dtype.nbytes


@dataclass(frozen=True, slots=True)
class BarrierArray:
    """`size` mbarriers in shared memory: 8-byte objects, one copy per block."""

    name: str
    size: int

    nbytes_each: ClassVar[int] = 8

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.size * self.nbytes_each


@dataclass(frozen=True, slots=True)
class Ring:
    """What arrays and barriers of a circular buffer are to each other, for those who show it.

    Attributes
    ----------
    arrays
        Shared arrays of `stages` equal parts, filled in the same trip.
    prefetch
        Trips that the copies run ahead.
    kind
        Its type and options in words.
    full, empty
        Barrier arrays that complete when a stage is full or free; an empty name: there is none.
    """

    name: str
    arrays: tuple[str, ...]
    stages: int
    prefetch: int
    kind: str
    full: str
    empty: str = ""


class Stmt:
    """One kernel-IR statement.

    A statement is added in one file: its fields, its template context and its rule on the
    modelled machine. The template is ``stmt/<snake_case_class_name>.cu.j2``. Type checkers hold
    the abstract methods; with `abc.ABC` each ``case`` of a ``match`` would cost a Python call.
    """

    __slots__ = ()

    @abc.abstractmethod
    def context(self, render: Render) -> Context:
        """Return every string or integer the template prints; `render` prints a nested body."""

    @abc.abstractmethod
    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """Act on the machine for all threads of `agent`; yield a `Wait` whenever it must block."""

    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """Return the nested statement tuples (loops and branches override this)."""
        return ()

    @classmethod
    def template(cls) -> str:
        """Template path, derived from the class name."""
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        return f"stmt/{snake}.cu.j2"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A complete kernel.

    Attributes
    ----------
    name
        C identifier of the ``__global__`` function.
    params
        In argument order.
    shared
        Shared-memory arrays; dynamic when all together are larger than what is static.
    grid, block
        Launch extents (x, y, z) over size variables. Block extents are constants wherever the
        schedule makes them so.
    cluster
        Blocks of a cluster (x, y, z); the grid's extents are multiples of these.
    index
        Width of index arithmetic.
    body
        What every thread runs. Free index variables are the size parameters and
        ``bx by bz`` (block index; in a kernel of clusters the cluster's index), ``tx ty tz``
        (thread index), ``thread`` (linear thread index), ``cx cy cz`` (index of the block in its
        cluster) and ``cluster_rank`` (the same, linear), defined by the kernel template.
    header
        Comment lines: fusion and schedule, for the person who reads the CUDA.
    min_blocks
        Second argument of ``__launch_bounds__``; 0 leaves it out.
    barriers
        Arrays of mbarriers in shared memory.
    rings
        Which arrays and barriers are circular buffers.
    register_rings
        Tensors that every thread loads ahead into registers of its own, and their slots.
    fallbacks
        Copies that the shape class does not allow to be made as asked.
    """

    name: str
    params: tuple[Param, ...]
    shared: tuple[SharedArray, ...]
    grid: tuple[Expr, Expr, Expr]
    block: tuple[Expr, Expr, Expr]
    index: IndexType
    body: tuple[Stmt, ...]
    header: tuple[str, ...] = ()
    min_blocks: int = 0
    barriers: tuple[BarrierArray, ...] = ()
    rings: tuple[Ring, ...] = ()
    register_rings: tuple[tuple[str, int], ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    cluster: tuple[int, int, int] = (1, 1, 1)

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return prod(self.cluster)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the kernel declares, padding included."""
        return self._shared_layout()[1]

    @property
    def dynamic_shared_bytes(self) -> int:
        """Bytes the launch must ask for: 0 while all shared memory is static."""
        return self.shared_bytes if self.shared_bytes > STATIC_SHARED_BYTES else 0

    def shared_offsets(self) -> dict[str, int]:
        """Return where each shared and barrier array begins in dynamic shared memory."""
        return self._shared_layout()[0]

    def _shared_layout(self) -> tuple[dict[str, int], int]:
        offsets: dict[str, int] = {}
        end = 0
        arrays = [(s.name, s.nbytes, s.align_bytes) for s in self.shared]
        arrays += [(b.name, b.nbytes, b.nbytes_each) for b in self.barriers]
        for name, nbytes, align in arrays:
            offsets[name] = -(-end // align) * align
            end = offsets[name] + nbytes
        return offsets, end

    def verify(self) -> None:
        """Raise `VerifyError` on duplicate names, a map of no tensor or an empty block."""
        names = [p.name for p in self.params] + [s.name for s in self.shared]
        names += [b.name for b in self.barriers]
        if len(set(names)) != len(names):
            raise VerifyError(f"kernel {self.name}: duplicate names in {names}")
        tensors = {p.name for p in self.params if isinstance(p, TensorParam)}
        for p in self.params:
            if isinstance(p, TensorMapParam) and p.tensor not in tensors:
                raise VerifyError(f"kernel {self.name}: {p.label}; needed one of {sorted(tensors)}")
        if ZERO in self.block:
            raise VerifyError(f"kernel {self.name}: block {self.block} has no threads")
        self._verify_cluster()

    def _verify_cluster(self) -> None:
        if min(self.cluster) < 1 or self.cluster_size > MAX_CLUSTER:
            raise VerifyError(
                f"kernel {self.name}: cluster {self.cluster}; needed 1 to {MAX_CLUSTER} blocks"
            )
        for extent, blocks in zip(self.grid, self.cluster, strict=True):
            if isinstance(extent, Const) and extent.value % blocks:
                raise VerifyError(
                    f"kernel {self.name}: grid {self.grid} of clusters {self.cluster}; needed "
                    "extents that are multiples of the cluster's"
                )


GRID_1: tuple[Expr, Expr, Expr] = (ONE, ONE, ONE)


def field_names(stmt: Stmt) -> tuple[str, ...]:
    """Return the names of a statement's fields, in order, as its class keeps them."""
    record: Any = stmt
    names: tuple[str, ...] = record.__match_args__
    return names


def walk_stmts(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield every statement of `body`, outer before inner."""
    for stmt in body:
        yield stmt
        for nested in stmt.bodies():
            yield from walk_stmts(nested)
