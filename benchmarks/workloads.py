"""The workloads: inputs, the fusion, the same in torch by name, and the ceiling that bounds it.

Nothing here needs torch or a GPU: what has them makes the inputs and looks the torch function up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple, TypeAlias

from benchmarks import fusions
from benchmarks.fusions import BF16, F32
from benchmarks.rings import BOX, RING_MAP, RING_SUM, RingShape, ring_map, ring_sum
from fuser import DataType, FusionDefinition, LoadStoreOpType, Pipelined

Draw: TypeAlias = Literal["normal", "uniform", "index"]


class Size(NamedTuple):
    """Rows and columns of the matrices of a workload; rings take as many elements."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


SMALL = Size(256, 1024)


class Input(NamedTuple):
    """A random input: standard normal, uniform in [0, 1), or an index below `bound`."""

    shape: tuple[int, ...]
    dtype: DataType
    draw: Draw = "normal"
    bound: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """One computation at several sizes.

    Attributes
    ----------
    inputs
        What a size takes.
    build
        The fusion for a size.
    torch
        Name of the function of `benchmarks.in_torch` that computes the same.
    sizes
        What the table holds.
    swept
        Sizes for the picture of bandwidth over size only.
    ceiling
        Key of the hand-written kernel that bounds it.
    manual
        Whether the fusion runs by the schedule that was set by hand.
    small
        What the interpreter runs where there is no GPU.
    title
        Prints the name of a size.
    """

    name: str
    inputs: Callable[[Size], tuple[Input, ...]]
    build: Callable[[Size], FusionDefinition]
    torch: str
    sizes: tuple[Size, ...]
    swept: tuple[Size, ...] = ()
    ceiling: str = "plain_map"
    manual: bool = False
    small: Size = SMALL
    title: str = "{name} {size}"


@dataclass(frozen=True, slots=True)
class Case:
    """A workload at a size."""

    workload: Workload
    size: Size

    @property
    def name(self) -> str:
        """What the table and the files of results call it."""
        elements = self.size.rows * self.size.columns
        exact = elements.bit_count() == 1
        count = f"2^{elements.bit_length() - 1}" if exact else str(elements)
        return self.workload.title.format(name=self.workload.name, size=self.size, count=count)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it takes."""
        return self.workload.inputs(self.size)

    def build(self) -> FusionDefinition:
        """Return a new definition of its fusion."""
        return self.workload.build(self.size)


class NotYet(NamedTuple):
    """A workload of the peers that fuser cannot do, and why."""

    name: str
    reason: str


def _automatic(
    define: Callable[[FusionDefinition, int], None],
) -> Callable[[Size], FusionDefinition]:
    def build(size: Size) -> FusionDefinition:
        with FusionDefinition() as fd:
            define(fd, size.columns)
        return fd

    return build


def _matrices(*kinds: DataType, draw: Draw = "normal") -> Callable[[Size], tuple[Input, ...]]:
    return lambda size: tuple(Input(tuple(size), dtype, draw) for dtype in kinds)


def _rows_and(*vectors: DataType) -> Callable[[Size], tuple[Input, ...]]:
    """Return a bf16 matrix and vectors as long as its rows."""
    return lambda size: (
        Input(tuple(size), BF16), *(Input((size.columns,), dtype) for dtype in vectors)
    )  # fmt: skip


def _residual(size: Size) -> tuple[Input, ...]:
    return (*_rows_and(BF16, BF16)(size), Input(tuple(size), BF16))


def _backward(size: Size) -> tuple[Input, ...]:
    row_factors = Input((size.rows,), F32, "uniform")
    return (*_rows_and(BF16)(size), Input(tuple(size), BF16), row_factors)


def _logits(size: Size) -> tuple[Input, ...]:
    target = Input((size.rows,), DataType.Int, "index", size.columns)
    return (Input(tuple(size), BF16), target)


def _vector(draw: Draw) -> Callable[[Size], tuple[Input, ...]]:
    return lambda size: (Input((size.rows * size.columns,), F32, draw),)


def _boxes(draw: Draw) -> Callable[[Size], tuple[Input, ...]]:
    return lambda size: (Input((size.rows * size.columns // BOX, BOX), F32, draw),)


WIDE = Size(16384, 8192)
RING = Size(2**15, 2**13)
SMALL_RING = Size(2**7, 2**13)
SWEPT = tuple(Size(rows, 8192) for rows in (32, 128, 512, 2048, 65536))
ROWS = (Size(32768, 1024), Size(32768, 4096), Size(16384, 16384), Size(8192, 65536))
HIDDEN = (Size(32768, 4096), Size(16384, 16384))
VOCABULARY = (Size(16384, 32000), Size(8192, 128256))


def _ring(name: str, torch: str, ceiling: str, build: Callable[[], FusionDefinition]) -> Workload:
    draw: Draw = "uniform" if torch == "total" else "normal"  # addends of one sign
    inputs = _boxes(draw) if name.endswith("tma") else _vector(draw)
    words = name.rpartition(" ")
    return Workload(
        name, inputs, lambda size: build(), torch, (RING,), ceiling=ceiling, manual=True,
        small=SMALL_RING, title=f"{words[0]} {{count}}, {words[2]}",
    )  # fmt: skip


_TMA = LoadStoreOpType.tma
War: TypeAlias = Literal["mbarrier", "barrier"]
WARS: tuple[War, ...] = ("mbarrier", "barrier")


def _pipelined(kind: str, war: War) -> Workload:
    """Without roles: what releases stages faster (war of `Pipelined`), everything else the same."""
    build = {"sum": ring_sum, "map": ring_map}[kind]
    shape = RingShape(8192 if kind == "sum" else 4096, 4, 256, 132, type=Pipelined(war=war))
    return _ring(
        f"ring {kind} fp32 war={war}", {"sum": "total", "map": "double_plus_one"}[kind],
        f"ring_{kind}", lambda: build(shape),
    )  # fmt: skip


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "bias+gelu bf16", _rows_and(BF16), _automatic(fusions.bias_gelu), "bias_gelu", (WIDE,)
    ),
    Workload(
        "silu(x)*y bf16", _matrices(BF16, BF16), _automatic(fusions.silu_mul), "silu_mul", (WIDE,),
        swept=SWEPT,
    ),
    Workload("(x+y)*2 fp32", _matrices(F32, F32), _automatic(fusions.add_mul), "add_mul", (WIDE,)),
    Workload("fmod fp32", _matrices(F32, F32), _automatic(fusions.remainder), "remainder", (WIDE,)),
    Workload(
        "sum rows fp32", _matrices(F32, draw="uniform"), _automatic(fusions.sum_rows), "sum_rows",
        (WIDE,), swept=SWEPT, ceiling="ring_sum",
    ),
    Workload(
        "sum columns fp32", _matrices(F32, draw="uniform"), _automatic(fusions.sum_columns),
        "sum_columns", (WIDE,), ceiling="ring_sum",
    ),
    Workload(
        "transpose bf16", _matrices(BF16), _automatic(fusions.transpose), "transpose", (WIDE,)
    ),
    Workload("softmax bf16", _matrices(BF16), _automatic(fusions.softmax), "softmax", ROWS),
    Workload("rmsnorm bf16", _rows_and(BF16), _automatic(fusions.rms_norm), "rms_norm", ROWS),
    Workload(
        "layernorm bf16", _rows_and(BF16, BF16), _automatic(fusions.layer_norm), "layer_norm", ROWS
    ),
    Workload(
        "rmsnorm backward bf16", _backward, _automatic(fusions.rms_norm_backward),
        "rms_norm_backward", HIDDEN,
    ),
    Workload(
        "residual+layernorm bf16", _residual, _automatic(fusions.residual_layer_norm),
        "residual_layer_norm", HIDDEN,
    ),
    Workload(
        "cross entropy bf16", _logits, _automatic(fusions.cross_entropy), "cross_entropy",
        VOCABULARY, ceiling="ring_sum",
    ),
    _ring("ring sum fp32 bulk", "total", "ring_sum", ring_sum),
    _ring("ring sum fp32 tma", "total", "ring_sum", lambda: ring_sum(replace(RING_SUM, load=_TMA))),
    _ring("ring map fp32 bulk", "double_plus_one", "ring_map", ring_map),
    _ring(
        "ring map fp32 tma", "double_plus_one", "ring_map",
        lambda: ring_map(replace(RING_MAP, load=_TMA)),
    ),
    *(_pipelined(*form) for form in product(("sum", "map"), WARS)),
)  # fmt: skip

NO_MATMUL = "fuser.ops has no matmul"
NOT_YET: tuple[NotYet, ...] = (
    NotYet("matmul bf16 4096^3", NO_MATMUL),
    NotYet("matmul bf16 8192^3", NO_MATMUL),
    NotYet("matmul+bias+gelu bf16 4096^3", NO_MATMUL),
    NotYet("matmul+bias+gelu bf16 8192^3", NO_MATMUL),
    NotYet("silu(a@b^T)*(a@c^T) bf16 8192x4096x14336", NO_MATMUL),
)


def cases(names: list[str], sizes: tuple[Size, ...] = ()) -> list[Case]:
    """Return the workloads whose names contain one of `names`, at `sizes` or their own."""
    found = [Case(w, size) for w in WORKLOADS for size in sizes or w.sizes]
    return [case for case in found if not names or any(name in case.name for name in names)]


def swept_cases(names: list[str]) -> list[Case]:
    """Return the sizes of the picture only, of the workloads that `names` select."""
    chosen = {case.workload.name: case.workload for case in cases(names)}
    return [Case(workload, size) for workload in chosen.values() for size in workload.swept]
