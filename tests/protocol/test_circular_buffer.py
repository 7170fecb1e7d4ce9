"""Circular buffers on the interpreter: exact results, and nothing found by checked mode.

By default cells that meet every pair of choices; FUSER_RING_MATRIX=all runs every cell there is.
"""

from __future__ import annotations

import os

import pytest
from rings import interpret, matrix
from rings.cells import Cell

pytestmark = pytest.mark.protocol

ALL = os.environ.get("FUSER_RING_MATRIX") == "all"
CELLS = matrix.whole() if ALL else (*matrix.covering(), *matrix.every_distance())


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell(cell: Cell) -> None:
    interpret.check(cell)
