"""Circular buffers on the interpreter: exact results, and nothing found by checked mode.

By default cells that meet every pair of choices; FUSER_RING_MATRIX=all runs every cell there is.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from rings import interpret, matrix
from rings.cells import DIMS, GROUPED, SHARED, Cell
from rings.families import Choices, L, P, buffered, shared_out, staged, tensor, tiled

from fuser import FusionDefinition

pytestmark = [
    pytest.mark.protocol,
    pytest.mark.filterwarnings("ignore::fuser.core.errors.FallbackWarning"),  # odd sizes
]

ALL = os.environ.get("FUSER_RING_MATRIX") == "all"
SAMPLED = (
    *tuple(matrix.clusters())[::37], *tuple(matrix.beside_multicast())[::7],
    *tuple(matrix.groups_in_clusters())[::23], *tuple(matrix.nested_pairs())[::23],
    *tuple(matrix.other_fp8())[::25], *tuple(matrix.of_many_dimensions())[::23],
    *tuple(matrix.long_tiles())[::31],
)  # fmt: skip
"""Choices go round in short cycles: steps that have no divisor in common with them meet many."""
FEW = (
    *matrix.covering(), *matrix.every_distance(), *matrix.seed_sizes(),
    *matrix.with_registers()[::3], *matrix.of_groups(), *SAMPLED,
)  # fmt: skip
CELLS = matrix.whole() if ALL else FEW


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell(cell: Cell) -> None:
    interpret.check(cell, seeds=2 if ALL else 1)


@pytest.mark.parametrize("load", [L.tma, L.bulk, L.cp_async, L.set])
def test_in_place(load: L) -> None:
    """Tiles are loaded ahead of stores into the same tensor."""
    c = Choices((load,))
    with FusionDefinition() as fd:
        x = tensor(fd, 1, c.dtype)
        y = x * 2.0 + 1.0
        fd.add_output(y, alias_input=x)
    cache = staged(x, load)
    shared_out(y, 0, c)
    tiled(cache, 0, load, c)
    buffered(cache, y, 1, c)
    memory = np.arange(2500, dtype="f4")
    fd.manual_execute([memory], backend="interpret")
    np.testing.assert_array_equal(memory, 2 * np.arange(2500) + 1)


def test_the_subset_meets_what_it_says() -> None:
    """Every S and P, every base, and most pairs of choices: those left exclude each other."""
    cells = (*matrix.covering(), *matrix.every_distance())
    assert {(c.stages, c.prefetch) for c in cells} == set(matrix.DISTANCES)
    assert {(c.type, c.trips) for c in cells} >= {
        (k, t) for k in matrix.TYPES for t in matrix.TRIPS
    }
    assert {(c.dtype, c.edge) for c in cells} >= {
        (d, e) for d in matrix.DTYPES for e in matrix.EDGES
    }
    loads = {(c.loads, c.dtype) for c in cells}
    every = (*matrix.ALONE, *matrix.PAIRS)
    assert loads >= {(a, d) for a in every for d in matrix.DTYPES}
    of_groups = {(c.loads, c.type) for c in matrix.of_groups()}
    assert of_groups == set(itertools.product(every, GROUPED))
    assert {c.trips for c in matrix.of_groups()} == set(matrix.TRIPS)
    assert {c.stages for c in matrix.of_groups()} == set(matrix.STAGES)
    assert {c.family for c in SAMPLED} >= {*SHARED, *DIMS, "nested_pair"}
    shared = [c for c in SAMPLED if c.family in SHARED]
    assert {c.type for c in shared} == set(matrix.TYPES)
    assert {c.loads[0] for c in shared} == set(matrix.KINDS)
    assert {c.cluster for c in shared} == {2, 4}


@pytest.mark.parametrize("load", [L.tma, L.bulk], ids=lambda load: load.name)
def test_a_grid_axis_right_of_the_position(load: L) -> None:
    """Blocks are dealt out inside the trips: each loads its own tile, and only that."""
    c = Choices((load,))
    with FusionDefinition() as fd:
        x = tensor(fd, 1, c.dtype)
        y = x * 2.0 + 1.0
        fd.add_output(y)
    cache = staged(x, load)
    for t in (y, cache):
        t.split(0, 128)
        t.split(0, 4)  # trip, block, element
        t.axis(1).parallelize(P.grid_x)
    y.split(2, 32)
    y.axis(3).parallelize(P.block_x)
    cache.axis(2).parallelize(P.tma)
    buffered(cache, y, 1, c)
    inputs = [np.random.default_rng(0).integers(-9, 10, 3000).astype("f4")]
    interpret.exact("grid inside", fd, inputs, inputs[0].astype("f8") * 2 + 1, 2)


def test_cells_of_different_sizes_have_different_shapes() -> None:
    """A size in a cell's name is what it runs, or it would only be there in name."""
    sized = [cell for cell in matrix.whole() if cell.size is not None]
    assert {cell.size for cell in matrix.seed_sizes()} == {cell.size for cell in sized}
    shapes: dict[str, dict[tuple[int, int] | None, object]] = {}
    for cell in sized:
        shapes.setdefault(f"{cell.family} {cell.choices()}", {})[cell.size] = cell.shapes()
    for name, by_size in shapes.items():
        extents = {size and size[0] * size[1] for size in by_size}
        assert len(set(by_size.values())) >= len(extents), name
