"""Boxes that the blocks of a cluster share, on a GPU: every type of ring gives the same results.

Each test is one worker process, which a hang ends after a minute; all cells of the matrix, these
among them, are those of `test_circular_buffer_gpu`.
"""

from __future__ import annotations

import pytest
from rings import matrix
from rings.on_gpu import run_guarded

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

EVERY = 7
"""Of the cells of a type, so many-th: other choices go round in cycles of 2 to 6."""
CELLS = (*matrix.clusters(), *matrix.beside_multicast(), *matrix.groups_in_clusters())
TYPES = tuple(dict.fromkeys(cell.type for cell in CELLS))


@pytest.mark.parametrize("kind", TYPES)
def test_rings_of_a_type(kind: str) -> None:
    cells = [cell for cell in CELLS if cell.type == kind][::EVERY]
    assert {cell.cluster for cell in cells} == {2, 4}
    failures = run_guarded([str(cell) for cell in cells])
    assert not failures, "\n".join(f"{name}: {text}" for name, text in failures.items())
