"""A launch that no GPU accepts: one error, on a GPU and in both modes of the interpreter."""

from __future__ import annotations

import fake_gpu
import numpy as np
import pytest
from manual_schedules import run_checked, tensor

from fuser import FusionDefinition, ParallelType
from fuser.core.errors import LaunchError

pytestmark = pytest.mark.unit

P = ParallelType
BAD = [
    ({P.block_x: 1025}, "block extent x is 1025; needed 1 to 1024"),
    ({P.block_y: 5000}, "block extent y is 5000; needed 1 to 1024"),
    ({P.block_z: 65}, "block extent z is 65; needed 1 to 64"),
    ({P.block_x: 33, P.block_y: 32}, r"block \(33, 32, 1\) has 1056 threads; needed at most 1024"),
    ({P.grid_y: 65536}, "grid extent y is 65536; needed 1 to 65535"),
    ({P.grid_z: 65536}, "grid extent z is 65536; needed 1 to 65535"),
]
GOOD = [{P.block_x: 1024}, {P.block_z: 64}, {P.block_x: 32, P.block_y: 32}, {P.grid_y: 65535}]
EMPTY = [{P.block_x: 0}, {P.grid_x: 0, P.block_x: 5}, {P.grid_x: 5, P.block_x: 0}]


def doubled(kinds):
    with FusionDefinition() as fd:
        y = tensor(fd, len(kinds)) * 2.0
        fd.add_output(y)
    for axis, kind in enumerate(kinds):
        y.axis(axis).parallelize(kind)
    return fd


def ones(sizes):
    return np.ones(tuple(sizes.values()), np.float32)


@pytest.mark.parametrize(("sizes", "text"), BAD)
def test_no_mode_launches_it(monkeypatch, sizes, text):
    text = rf"kernel fusion: {text}"
    with pytest.raises(LaunchError, match=text):
        doubled(sizes).manual_execute([ones(sizes)], backend="interpret")
    with pytest.raises(LaunchError, match=text):
        run_checked(doubled(sizes), [ones(sizes)], seed=0)
    with fake_gpu.installed(monkeypatch) as cuda, pytest.raises(LaunchError, match=text):
        doubled(sizes).manual_execute([ones(sizes)])
    assert not cuda.launches


@pytest.mark.parametrize("sizes", [*GOOD, *EMPTY])
def test_the_largest_and_the_empty_run(monkeypatch, sizes):
    x = ones(sizes)
    (y,) = doubled(sizes).manual_execute([x], backend="interpret")
    assert y.tolist() == (2 * x).tolist()
    with fake_gpu.installed(monkeypatch):
        (y,) = doubled(sizes).manual_execute([x])
    assert y.tolist() == (2 * x).tolist()
