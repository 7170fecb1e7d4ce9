"""The matrix of circular buffers: all of its cells, and few that meet every pair of choices."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cache

from fuser import DataType, LoadStoreOpType, ParallelType
from rings.cells import DIMS, EDGES, GROUPED, ROLES, TRIPS, TYPES, Cell
from rings.families import FAMILIES

P, L = ParallelType, LoadStoreOpType
STAGES = range(1, 9)
DISTANCES = tuple((s, p) for s in STAGES for p in range(s))
KINDS = (L.tma, L.bulk, L.cp_async, L.set)
ALONE = tuple((kind,) for kind in KINDS)
PAIRS = tuple(itertools.combinations_with_replacement(KINDS, 2))
DTYPES = (
    DataType.Float, DataType.BFloat16, DataType.Half, DataType.Int8, DataType.Float8_e4m3fn,
)  # fmt: skip
TILES = (256, 512, 1024)
BINDINGS = (P.serial, P.unroll, P.unswitch)
SEED_STAGES = (2, 3, 4)
MOST_CLUSTER_STAGES = 4
BASES = (
    Cell("single_dim", (L.tma,)),
    Cell("single_dim", (L.tma,), variant=P.unroll),
    Cell("single_dim", (L.tma,), variant=P.unswitch),
    Cell("multi_dim", (L.tma,)),
    Cell("pointwise", (L.tma, L.set)),
    Cell("pointwise", (L.tma, L.cp_async)),
    Cell("reduction_inner", (L.tma,)),
    Cell("reduction_outer", (L.tma,)),
    Cell("inner_persistent", (L.tma,), edge="whole"),
    Cell("matmul", (L.tma, L.tma)),
    Cell("product", (L.tma, L.tma), dtype=DataType.BFloat16),
    Cell("product_turned", (L.tma, L.tma), dtype=DataType.Half),
    Cell("product_rounds", (L.tma, L.tma), dtype=DataType.BFloat16),
    Cell("groups_product", (L.tma, L.tma), type="pingpong", dtype=DataType.Half),
    Cell("groups_map", (L.tma,), type="groups"),
    Cell("groups_map", (L.bulk,), type="groups"),
    Cell("groups_sum", (L.tma,), type="pingpong"),
)
"""The seed's seven families, variants apart."""
STORES = (
    *(Cell("store", loads) for loads in ALONE),
    Cell("store_boxes", (L.tma,)),
    *(Cell(family, loads) for family in ("store_alone", "copy") for loads in ((L.tma,), (L.bulk,))),
)
"""Families whose outputs the copy engine stores."""
SLOTS = tuple((s, p) for s in range(1, 5) for p in range(s))
"""S and P of rings in registers."""
ALONE_IN_A_BLOCK = tuple(kind for kind in TYPES if kind not in GROUPED)
"""Types without consumer groups."""
MULTICAST = Cell("multicast", (L.tma, L.tma), cluster=2)
LONG = (
    Cell("single_dim", (L.tma,), tile=320),
    Cell("single_dim", (L.tma,), tile=640),
    Cell("multi_dim", (L.tma,), tile=2048),
    Cell("reduction_outer", (L.tma,), tile=1280),
    Cell("store", (L.tma,), tile=640),
    Cell("copy", (L.tma,), tile=640),
    Cell("groups_map", (L.tma,), type="groups", tile=640),
)
"""Tiles that become boxes of a size of their own, or end with one that overhangs."""


def whole() -> tuple[Cell, ...]:
    """Return every cell: blocks that each cross some choices completely."""
    blocks = (
        _seed(), _families(), _protocols(), _dtypes(), _stores(), clusters(), beside_multicast(),
        grouped(), groups_in_clusters(), _nested(), nested_pairs(), _registers(), other_fp8(),
        of_many_dimensions(), long_tiles(),
    )  # fmt: skip
    return tuple(dict.fromkeys(itertools.chain(*blocks)))


def _seed() -> Iterator[Cell]:
    """The seed's own sizes."""
    sizes = itertools.product((128, 500, 1024), (128, 1024))
    for base, stages, size in itertools.product(BASES, SEED_STAGES, sizes):
        cell = replace(base, stages=stages, prefetch=stages - 1, size=size)
        if cell.is_legal():
            yield cell


def seed_sizes() -> tuple[Cell, ...]:
    """Return a cell of every family of the seed, and every size of the seed; long loops are few."""
    sizes = (
        (128, 128), (500, 128), (128, 128), (500, 1024), (1024, 128), (500, 128), (128, 1024),
        (1024, 1024), (128, 128), (128, 128), (128, 1024),
    )  # fmt: skip
    bases = (*BASES[:10], BASES[8])
    stages = itertools.cycle(SEED_STAGES)
    return tuple(
        replace(base, stages=s, prefetch=s - 1, size=size)
        for base, s, size in zip(bases, stages, sizes, strict=False)
    )


def _families() -> Iterator[Cell]:
    """Every family with every P, type, number of trips and edge."""
    for base, stages, kind in itertools.product(BASES, SEED_STAGES, TYPES):
        for prefetch, trips, edge in itertools.product(range(stages), TRIPS, EDGES):
            cell = replace(
                base, stages=stages, prefetch=prefetch, type=kind, trips=trips, edge=edge
            )
            if kind == "ws-regs":
                cell = replace(cell, tile=1024)
            if cell.is_legal():
                yield cell


def _protocols() -> Iterator[Cell]:
    """Every way to load, alone and in pairs, with every S, P, type and number of trips."""
    edges = itertools.cycle(EDGES)
    for loads, (stages, prefetch), kind in itertools.product((*ALONE, *PAIRS), DISTANCES, TYPES):
        base = Cell("single_dim" if len(loads) == 1 else "pointwise", loads)
        for trips in TRIPS:
            cell = replace(
                base, stages=stages, prefetch=prefetch, type=kind, trips=trips, edge=next(edges),
                tile=512 if kind == "ws-regs" else 256,
            )  # fmt: skip
            if not cell.is_legal():
                cell = replace(cell, edge="whole")
            if cell.is_legal():
                yield cell


def _dtypes() -> Iterator[Cell]:
    """Every dtype with every way to load, type, tile, number of trips and edge."""
    for loads, dtype, kind, tile in itertools.product((*ALONE, *PAIRS), DTYPES, TYPES, TILES):
        base = Cell(
            "single_dim" if len(loads) == 1 else "pointwise", loads, type=kind, dtype=dtype,
            tile=tile,
        )  # fmt: skip
        for trips, edge in itertools.product(("1", "3S+1"), EDGES):
            cell = replace(base, trips=trips, edge=edge)
            if cell.is_legal():
                yield cell


def _stores() -> Iterator[Cell]:
    """Every way to store with every S, type, dtype and number of trips; edges and tiles in turn."""
    tiles, edges = itertools.cycle(TILES), itertools.cycle(EDGES)
    for base, stages, kind, dtype in itertools.product(STORES, range(1, 5), TYPES, DTYPES):
        for trips in TRIPS:
            cell = replace(
                base, stages=stages, prefetch=stages - 1, type=kind, dtype=dtype, trips=trips,
                edge=next(edges), tile=1024 if kind == "ws-regs" else next(tiles),
            )  # fmt: skip
            if not cell.is_legal():
                cell = replace(cell, edge="whole")
            if cell.is_legal():
                yield cell


def clusters(types: Sequence[str] = ALONE_IN_A_BLOCK) -> Iterator[Cell]:
    """Multicast in clusters of 2 and 4, with every S, type and trips; the rest in turn.

    And every P up to four stages.
    """
    distances = [(s, p) for s, p in DISTANCES if s <= MOST_CLUSTER_STAGES or p in (0, s - 1)]
    dtypes, edges = itertools.cycle(DTYPES), itertools.cycle(EDGES)
    bindings = itertools.cycle((*BINDINGS, *BINDINGS, P.serial))
    tiles = itertools.cycle(TILES[:2])
    for blocks, (stages, prefetch), kind in itertools.product((2, 4), distances, types):
        base = replace(
            MULTICAST, cluster=blocks, stages=stages, prefetch=prefetch, type=kind,
            dtype=next(dtypes), variant=next(bindings),
            tile=512 if kind == "ws-regs" else next(tiles),
        )  # fmt: skip
        for trips in TRIPS:
            cell = replace(base, trips=trips, edge=next(edges))
            if not cell.is_legal():
                cell = replace(cell, edge="whole")
            if cell.is_legal():
                yield cell


def beside_multicast() -> Iterator[Cell]:
    """Every other load beside one that is multicast, with every type; the rest in turn."""
    dtypes, trips = itertools.cycle(DTYPES), itertools.cycle(TRIPS[1:])
    blocks, edges = itertools.cycle((2, 4)), itertools.cycle(("cut", "whole", "odd"))
    distances = ((1, 0), (2, 1), (3, 1), (3, 2))
    for kind, (stages, prefetch), load in itertools.product(TYPES, distances, KINDS[1:]):
        cell = replace(
            MULTICAST, loads=(load, L.tma), cluster=next(blocks), stages=stages, prefetch=prefetch,
            type=kind, trips=next(trips), dtype=next(dtypes), edge=next(edges),
            tile=512 if kind == "ws-regs" else 256,
        )  # fmt: skip
        for other in (cell, replace(cell, edge="whole"), replace(cell, edge="whole", trips="S")):
            if other.is_legal():
                yield other
                break


def groups_in_clusters() -> Iterator[Cell]:
    """Two consumer groups in each block, of boxes that the blocks share; the rest in turn."""
    base = replace(MULTICAST, family="groups_multicast")
    dtypes, edges, blocks = (itertools.cycle(c) for c in (DTYPES, EDGES, (2, 4, 2)))
    tiles = itertools.cycle(TILES[:2])
    for kind, load, stages in itertools.product(GROUPED, KINDS, range(1, MOST_CLUSTER_STAGES + 1)):
        made = replace(
            base, loads=(load, L.tma), type=kind, stages=stages, prefetch=stages - 1,
            dtype=next(dtypes), cluster=next(blocks), tile=next(tiles),
        )  # fmt: skip
        for trips in TRIPS:
            cell = replace(made, trips=trips, edge=next(edges))
            if not cell.is_legal():
                cell = replace(cell, edge="whole")
            if cell.is_legal():
                yield cell


def grouped() -> Iterator[Cell]:
    """Two consumer groups: every load and pair with every type, S and trips; the rest in turn."""
    dtypes, edges, tiles = (itertools.cycle(c) for c in (DTYPES, EDGES, TILES))
    for loads, kind, stages in itertools.product((*ALONE, *PAIRS), GROUPED, STAGES):
        base = Cell(
            "groups_trips" if len(loads) == 1 else "groups_pair", loads, stages, stages - 1, kind,
            next(dtypes), tile=next(tiles),
        )  # fmt: skip
        for trips in TRIPS:
            cell = replace(base, trips=trips, edge=next(edges))
            if not cell.is_legal():
                cell = replace(cell, edge="whole")
            if cell.is_legal():
                yield cell


def of_groups() -> tuple[Cell, ...]:
    """Return one cell for every type of consumer groups and every load and pair; S in turn."""
    alike: dict[tuple[str, object], list[Cell]] = {}
    for cell in grouped():
        alike.setdefault((cell.type, cell.loads), []).append(cell)
    return tuple(cells[k * 5 % len(cells)] for k, cells in enumerate(alike.values()))


def _nested() -> Iterator[Cell]:
    """Rings in registers with every S and P, in rings of every type and way to load."""
    dtypes, outer = itertools.cycle(DTYPES), itertools.cycle(((2, 1), (3, 1), (3, 2), (1, 0)))
    for kind, loads, (slots, ahead) in itertools.product(TYPES, ALONE, SLOTS):
        stages, prefetch = (3, 2) if kind in ROLES else next(outer)
        base = Cell(
            "nested", loads, stages, prefetch, kind, next(dtypes), slots=slots, ahead=ahead,
            tile=1024,
        )  # fmt: skip
        for trips, edge in (("1", "odd"), ("S", "whole"), ("3S+1", "cut")):
            cell = replace(base, trips=trips, edge=edge)
            if cell.is_legal():
                yield cell


def nested_pairs() -> Iterator[Cell]:
    """Every pair of loads, of which one goes on into a ring in registers; the rest in turn."""
    dtypes, slots = itertools.cycle(DTYPES), itertools.cycle(SLOTS)
    distances = itertools.cycle(((2, 1), (3, 1), (3, 2), (1, 0), (4, 2)))
    edges = itertools.cycle(EDGES)
    every = (*PAIRS, *(pair[::-1] for pair in PAIRS if len(set(pair)) > 1))
    for loads, kind in itertools.product(every, ALONE_IN_A_BLOCK):
        (stages, prefetch), (own, ahead) = next(distances), next(slots)
        base = Cell(
            "nested_pair", loads, stages, stages - 1 if kind in ROLES else prefetch, kind,
            next(dtypes), slots=own, ahead=ahead, tile=1024,
        )  # fmt: skip
        for trips in ("1", "S", "3S+1"):
            cell = replace(base, trips=trips, edge=next(edges))
            if not cell.is_legal():
                cell = replace(cell, edge="whole")
            if cell.is_legal():
                yield cell


def of_many_dimensions() -> Iterator[Cell]:
    """Boxes of 3 to 5 dimensions with every type and dtype; the rest in turn."""
    distances, tiles = itertools.cycle(((3, 2), (2, 1), (4, 1))), itertools.cycle((512, 1024))
    trips, edges = itertools.cycle(TRIPS), itertools.cycle(EDGES)
    for family, kind, dtype in itertools.product(DIMS, ALONE_IN_A_BLOCK, DTYPES):
        stages, prefetch = next(distances)
        base = Cell(
            family, (L.tma,), stages, stages - 1 if kind in ROLES else prefetch, kind, dtype,
            tile=next(tiles),
        )  # fmt: skip
        for _ in range(2):
            cell = replace(base, trips=next(trips), edge=next(edges))
            if not cell.is_legal():
                cell = replace(cell, edge="whole", trips="S")
            if cell.is_legal():
                yield cell


def other_fp8() -> Iterator[Cell]:
    """The other format of 8 bits with every way to load and type; tiles and trips in turn."""
    tiles, trips = itertools.cycle(TILES), itertools.cycle(TRIPS[1:])
    for loads, kind in itertools.product((*ALONE, *PAIRS), ALONE_IN_A_BLOCK):
        base = Cell(
            "single_dim" if len(loads) == 1 else "pointwise", loads, type=kind, tile=next(tiles),
            dtype=DataType.Float8_e5m2, trips=next(trips),
        )  # fmt: skip
        for edge in EDGES:
            cell = replace(base, edge=edge)
            if cell.is_legal():
                yield cell


def _registers() -> Iterator[Cell]:
    """Rings from global memory straight into registers."""
    dtypes = itertools.cycle(DTYPES)
    for (slots, ahead), variant in itertools.product(SLOTS, BINDINGS):
        base = Cell("registers", (L.set,), slots, ahead, dtype=next(dtypes), variant=variant)
        for trips, edge in itertools.product(TRIPS, EDGES):
            cell = replace(base, trips=trips, edge=edge)
            if cell.is_legal():
                yield cell


def long_tiles() -> Iterator[Cell]:
    """Tiles of several boxes, with every type, dtype and edge."""
    for base, kind, dtype in itertools.product(LONG, TYPES, DTYPES):
        for trips, edge in zip(("1", "S+1", "3S+1"), EDGES, strict=True):
            cell = replace(base, type=kind, dtype=dtype, trips=trips, edge=edge)
            if cell.is_legal():
                yield cell


def with_registers() -> tuple[Cell, ...]:
    """Return one cell for every S and P in registers: in every type of ring, and alone."""
    alike: dict[tuple[str, int, int], list[Cell]] = {}
    for cell in _nested():
        if cell.trips == "3S+1":
            alike.setdefault((cell.type, cell.slots, cell.ahead), []).append(cell)
    nested = (cells[k % len(cells)] for k, cells in enumerate(alike.values()))  # loads in turn
    alone = (c for c in _registers() if (c.trips, c.edge, c.variant) == ("S+1", "cut", P.serial))
    return (*nested, *alone)


# ---- covering ----------------------------------------------------------------------------------

AXES: dict[str, Sequence[object]] = {
    "base": (
        *((b.family, b.variant, b.loads) for b in (*BASES, *STORES)),
        *(("single_dim", P.serial, loads) for loads in ALONE[1:]),
        *(("pointwise", P.serial, loads) for loads in PAIRS
          if loads not in ((L.tma, L.set), (L.tma, L.cp_async))),
    ),
    "stages": STAGES,
    "distance": ("0", "1", "half", "S-2", "S-1"),
    "type": TYPES,
    "dtype": DTYPES,
    "trips": TRIPS,
    "edge": EDGES,
    "tile": TILES,
}  # fmt: skip


_CHOSEN = tuple(f.name for f in fields(Cell) if f.name in AXES)


def cell_of(choice: dict[str, object]) -> Cell | None:
    """Return the cell that one value an axis makes; None where there is none."""
    family, variant, loads = choice["base"]  # type: ignore[misc]
    s = choice["stages"]
    assert isinstance(s, int)
    distance = {"0": 0, "1": 1, "half": s // 2, "S-2": s - 2, "S-1": s - 1}
    rest = {name: choice[name] for name in _CHOSEN}
    p = distance[str(choice["distance"])]
    cell = Cell(family=family, variant=variant, loads=loads, prefetch=p, **rest)  # type: ignore[arg-type]
    return cell if p >= 0 and cell.is_legal() else None


def pairs_of(choice: dict[str, object]) -> set[tuple[str, object, str, object]]:
    """Return every pair of values that a choice has."""
    return {(a, choice[a], b, choice[b]) for a, b in itertools.combinations(AXES, 2)}


@cache
def covering(seed: int = 0, tries: int = 10) -> tuple[Cell, ...]:
    """Return cells in which every pair of values of `AXES` that can meet does.

    Greedy: each pair not met yet is completed at random, several times; the completion that meets
    most other pairs is kept.
    """
    rng = random.Random(seed)
    missing = [
        (a, x, b, y)
        for a, b in itertools.combinations(AXES, 2)
        for x, y in itertools.product(AXES[a], AXES[b])
    ]
    rng.shuffle(missing)
    met: set[tuple[str, object, str, object]] = set()
    cells: list[Cell] = []
    for pair in missing:
        if pair in met:
            continue
        found = [c for c in (_complete(pair, rng) for _ in range(tries)) if c is not None]
        if not found:
            continue  # the two exclude each other
        best = max(found, key=lambda choice: len(pairs_of(choice) - met))
        met |= pairs_of(best)
        cell = cell_of(best)
        assert cell is not None
        cells.append(cell)
    return tuple(dict.fromkeys(cells))


def _complete(
    pair: tuple[str, object, str, object], rng: random.Random
) -> dict[str, object] | None:
    """Return a legal choice that has a pair of values, or None after some tries.

    Families of consumer groups are few, and have types of their own: bases are drawn by type.
    """
    a, x, b, y = pair
    for _ in range(60):
        choice = {name: rng.choice(values) for name, values in AXES.items()} | {a: x, b: y}
        if "base" not in (a, b):
            choice["base"] = rng.choice(_bases_of(choice["type"] in GROUPED))
        if cell_of(choice) is not None:
            return choice
    return None


def _bases_of(grouped: bool) -> list[object]:
    """Return the bases that have consumer groups, or those that have none."""
    return [base for base in AXES["base"] if bool(FAMILIES[base[0]].slice) == grouped]  # type: ignore[index]


def every_distance() -> tuple[Cell, ...]:
    """Return one cell for every S and P, types in turn."""
    kinds = itertools.cycle(TYPES[:4])
    return tuple(
        Cell("single_dim", (L.bulk,), s, p, next(kinds), trips="S+1") for s, p in DISTANCES
    )
