"""One cell of the matrix: a family with all its choices made, and how many trips it runs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fuser import DataType, FusionDefinition, LoadStoreOpType, ParallelType
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized
from rings.choices import ENGINE, GROUPS, Choices
from rings.families import FAMILIES, Family

P, L = ParallelType, LoadStoreOpType
GROUPED = ("groups", "groups-regs", "pingpong", "pingpong-regs")
ROLES = ("ws", "ws-regs", *GROUPED)
PRODUCTS = ("product", "product_turned", "product_rounds", "groups_product")
"""Families that tensor cores compute."""
DIMS = tuple(f"dims_{rank}" for rank in (3, 4, 5))
"""Families whose boxes have as many dimensions."""
NESTED = ("nested", "nested_pair")
"""Families with a ring in registers inside a tile."""
SHARED = ("multicast", "groups_multicast")
"""Families of clusters, whose blocks share boxes."""
TYPES = ("parity-mbarrier", "parity-barrier", "token-mbarrier", "token-barrier", *ROLES)
TRIPS = ("0", "1", "S-1", "S", "S+1", "3S+1")
EDGES = ("whole", "cut", "odd")
BLOCKS = 3
WHOLE_CLUSTERS = 4
"""Blocks that fill clusters of 2 and of 4."""
REGISTERS = (40, 232)
BOUND = {DataType.Float8_e4m3fn: 3, DataType.Float8_e5m2: 2}
"""Largest input magnitude whose results every operation of a family represents exactly."""


@dataclass(frozen=True)
class Cell:
    """Choices by name, so that a cell is a line of text.

    Attributes
    ----------
    prefetch
        P; warp-specialised rings run as far ahead as there are stages.
    trips
        How many tiles: a number or a sum with S.
    edge
        Whether sizes fill the last tile, end at a multiple of 16 bytes, or anywhere.
    size
        Outer and inner extent, instead of `trips` and `edge`.
    cluster
        Blocks of a cluster; `BLOCKS` rows do not fill the last one, "whole" ones do.
    slots, ahead
        S and P of the ring in registers of the family ``nested``.
    """

    family: str = "single_dim"
    loads: tuple[LoadStoreOpType, ...] = (L.tma,)
    stages: int = 3
    prefetch: int = 2
    type: str = "parity-mbarrier"
    dtype: DataType = DataType.Float
    trips: str = "3S+1"
    edge: str = "cut"
    tile: int = 256
    variant: ParallelType = P.serial
    size: tuple[int, int] | None = None
    cluster: int = 1
    slots: int = 0
    ahead: int = 0

    def __str__(self) -> str:
        loads = "+".join(load.name for load in self.loads)
        bound = "" if self.variant is P.serial else f"-{self.variant.name}"
        bound += "" if self.cluster == 1 else f"-cluster{self.cluster}"
        inner = f"-registersS{self.slots}P{self.ahead}" if self.slots else ""
        return (
            f"{self.family}{bound}-{loads}-S{self.stages}P{self.prefetch}-{self.type}{inner}"
            f"-{self.dtype.short}-tile{self.tile}-"
            + (f"{self.trips}-{self.edge}" if self.size is None else "{}x{}".format(*self.size))
        )

    @property
    def of(self) -> Family:
        """The family."""
        return FAMILIES[self.family]

    @property
    def hands_registers_over(self) -> bool:
        """Whether ``setmaxnreg`` is used."""
        return self.type.endswith("-regs")

    @property
    def takes_turns(self) -> bool:
        """Whether consumer groups run one after the other."""
        return self.type.startswith("pingpong")

    def is_legal(self) -> bool:
        """Whether the cell exists: what it leaves out is refused, see test_circular_errors.py."""
        roles, f = self.type in ROLES, self.family
        return (
            self.prefetch < self.stages
            and (f in SHARED) == (self.cluster > 1)
            and len(self.loads) == self.of.inputs
            and (self.slots > self.ahead if f in NESTED else not self.slots)
            and not (f == "registers" and (self.type, self.loads) != (TYPES[0], (L.set,)))
            and not (self.of.boxes_only and any(load is not L.tma for load in self.loads))
            and (self.type in GROUPED) == bool(self.of.slice)
            and not (self.takes_turns and f == "groups_map")  # no loop of trips inside a group
            and not (self.type.startswith("groups") and self.stages % GROUPS)
            and not (self.of.slice and self.variant is not P.serial)
            and not (f == "groups_sum" and self.tile != 256)  # its tile is another
            and not (roles and self.prefetch != self.stages - 1)
            and not (f in ("single_dim", "pointwise", "store", "multicast", *NESTED, *DIMS)
                     and self.hands_registers_over
                     and self.tile < 512)  # an element a thread
            and not (f in ("multi_dim", "reduction_outer", "store_boxes")
                     and self.hands_registers_over and self.tile != 1024)  # a column a thread
            and not (f in ("reduction_outer", "inner_persistent", "matmul", "store_boxes", "copy",
                           *NESTED, *DIMS)
                     and self.variant is not P.serial)
            and not (self.edge != "whole" and (self.trips == "0" or f == "inner_persistent"))
            and not (f in SHARED and self.loads[-1] is not L.tma)  # nothing else is multicast
            and not (f in ("pointwise", *SHARED) and self.edge == "odd"
                     and any(load not in ENGINE for load in self.loads))  # rows of no whole vector
            and not (f == "copy" and roles)  # nothing is bound to threads
            and not (f == "store_alone" and (self.type != TYPES[0]
                                             or self.prefetch != self.stages - 1))
            and not (f in ("copy", "store_alone") and self.loads[0] not in ENGINE)
            and not (self.trips == "S-1" and self.stages < 3)  # 0 and 1 again
            and not (f in PRODUCTS and not self._multiplies())
        )  # fmt: skip

    def _multiplies(self) -> bool:
        """Whether tensor cores compute the cell: of 16 bits, within shared memory."""
        fits = self.stages * self.tile <= 8 * 256
        whole = self.variant is P.serial and self.dtype in (DataType.BFloat16, DataType.Half)
        return (
            whole and fits and not (self.family == "product_rounds" and self.hands_registers_over)
        )

    def kind(self) -> CircularBufferType:
        """The directive's type."""
        if self.type in ROLES:
            two = self.family in PRODUCTS and self.hands_registers_over  # warp groups of consumers
            on = P.block_y if self.family == "matmul" or two else P.block_x
            registers = REGISTERS if self.hands_registers_over else None
            if self.of.slice:
                return WarpSpecialized(P.block_y, registers, self.of.slice, self.takes_turns)
            return WarpSpecialized(on, registers)
        if self.family == "registers":
            return Pipelined()  # there are no barriers
        sync, war = self.type.split("-")
        return Pipelined(sync, war)  # type: ignore[arg-type]

    def choices(self) -> Choices:
        """What the builder is given: all but the sizes."""
        prefetch = None if self.type in ROLES else self.prefetch
        threads = 256 if self.hands_registers_over else 64
        tile = min(self.tile, self.columns // 2) if self.columns else self.tile  # several boxes
        return Choices(
            self.loads, self.stages, prefetch, self.kind(), self.dtype, tile, self.variant,
            threads, self.cluster, self.slots, self.ahead, self.columns,
        )  # fmt: skip

    @property
    def columns(self) -> int:
        """Extent of a row where it is a constant of the kernel; else 0."""
        if self.of.row is None:
            return 0
        return self.of.row(self.tile) if self.size is None else self.size[1]

    def count(self) -> int:
        """Number of trips."""
        s = self.stages
        return {"0": 0, "1": 1, "S-1": s - 1, "S": s, "S+1": s + 1, "3S+1": 3 * s + 1}[self.trips]

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the inputs."""
        f = self.of
        if self.size is not None:
            outer, inner = self.size
            streamed, other = (outer, inner) if f.outer else (inner, outer)
            if self.family in ("single_dim", "groups_map"):
                streamed = outer * inner
            return f.shapes(streamed, other, self.tile)
        unit = f.unit(self.tile)
        short = {"whole": 0, "cut": unit // 4, "odd": unit // 4 + 1}[self.edge]
        blocks = WHOLE_CLUSTERS if self.cluster > 1 and self.edge == "whole" else BLOCKS
        columns = self.tile // 2 - {"whole": 0, "cut": 16, "odd": 13}[self.edge]
        other = columns if f.columns else self.columns or f.rows or blocks
        return f.shapes(max(0, self.count() * unit - short), other, self.tile)

    def inputs(self) -> list[np.ndarray]:
        """Random small integers, always the same for a cell."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        most = BOUND.get(self.dtype, 40)
        return [
            rng.integers(-most, most + 1, shape).astype("f4").astype(self.dtype.np)
            for shape in self.shapes()
        ]

    def reference(self, inputs: list[np.ndarray]) -> np.ndarray:
        """The result in float64."""
        return self.of.reference([a.astype("f8") for a in inputs])


@lru_cache(maxsize=64)
def build(family: str, choices: Choices) -> FusionDefinition:
    """Return the definition that cells of the same choices share, compiled once for all sizes."""
    return FAMILIES[family].build(choices)


def definition(cell: Cell) -> FusionDefinition:
    """Return a cell's definition."""
    return build(cell.family, cell.choices())


def require_equal(cell: object, got: np.ndarray, expected: np.ndarray, how: str) -> None:
    """Raise `AssertionError` unless every element is the reference, exactly."""
    assert got.shape == expected.shape, f"{cell} ({how}): {got.shape}, needed {expected.shape}"
    wrong = got.astype("f8") != expected
    if wrong.any():
        at = tuple(int(i[0]) for i in np.nonzero(wrong))
        raise AssertionError(
            f"{cell} ({how}): {int(wrong.sum())} of {wrong.size} elements differ, the first at "
            f"{at}: {got[at]} where the reference is {expected[at]}"
        )
