"""All cells of the matrix of circular buffers on a GPU, in batches: a hang costs only its cell.

Made for ``pytest -m gpu -n 12``: each test is one worker process.
"""

from __future__ import annotations

import itertools

import pytest
from rings import matrix
from rings.cells import Cell
from rings.on_gpu import run_guarded

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

KERNELS = 30
"""Kernels a worker compiles."""


def batches() -> list[tuple[Cell, ...]]:
    """Return the cells with those of one kernel next to each other."""
    by_kernel: dict[object, list[Cell]] = {}
    for cell in (*matrix.whole(), *matrix.covering()):
        by_kernel.setdefault((cell.family, cell.choices()), []).append(cell)
    groups = list(by_kernel.values())
    return [
        tuple(dict.fromkeys(itertools.chain(*groups[first : first + KERNELS])))
        for first in range(0, len(groups), KERNELS)
    ]


BATCHES = batches()


@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_batch(batch: int) -> None:
    failures = run_guarded([str(cell) for cell in BATCHES[batch]])
    assert not failures, "\n".join(f"{name}: {text}" for name, text in failures.items())
