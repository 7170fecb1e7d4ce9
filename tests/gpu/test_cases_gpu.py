"""Bug reports of comparable compilers, as behaviours, on a GPU; the largest need torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from matrix import on_gpu
from matrix.case_aliases import *  # noqa: F403
from matrix.case_rings import *  # noqa: F403
from matrix.case_shapes import *  # noqa: F403
from matrix.case_values import *  # noqa: F403
from matrix.pointwise import Execute

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

ROWS, COLUMNS = 70_000, 40_000  # more than 2**31 elements


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    with on_gpu.poisoned_memory():
        yield


@pytest.fixture(params=["numpy", "torch"])
def execute(request: pytest.FixtureRequest) -> Execute:
    if request.param == "numpy":
        return on_gpu.run_on_numpy
    pytest.importorskip("torch", reason="torch is not installed on this machine")
    return on_gpu.run_on_torch


@pytest.fixture(params=["numpy", "torch"])
def by_hand(request: pytest.FixtureRequest) -> Execute:
    if request.param == "numpy":
        return on_gpu.run_by_hand_on_numpy
    pytest.importorskip("torch", reason="torch is not installed on this machine")
    return on_gpu.run_by_hand_on_torch


@pytest.fixture
def repeats() -> int:
    return 20


# -- case 37: more elements, or larger offsets, than 32 bits count ---------------------------------


@pytest.fixture
def torch() -> Iterator[Any]:
    module = pytest.importorskip("torch", reason="torch is not installed on this machine")
    if module.cuda.mem_get_info()[0] < 24 << 30:
        pytest.skip("less than 24 GiB of GPU memory are free")
    yield module
    module.cuda.empty_cache()


def row_of(torch: Any, length: int) -> Any:
    return (torch.arange(length, device="cuda") % 100).to(torch.int8)


@pytest.mark.slow
def test_case_37_an_output_of_more_than_2_31_elements(torch: Any) -> None:
    row = row_of(torch, COLUMNS)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], dtype=DataType.Int8)
        fd.add_output(fd.ops.add(t, 1))
    (got,) = fd.execute([row.expand(ROWS, COLUMNS)])
    for first in range(0, ROWS, 10_000):
        assert bool((got[first : first + 10_000] == row + 1).all())


@pytest.mark.slow
def test_case_37_a_transposed_output_of_more_than_2_31_elements(torch: Any) -> None:
    row = row_of(torch, COLUMNS)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], dtype=DataType.Int8)
        fd.add_output(fd.ops.permute(t, [1, 0]))
    (got,) = fd.execute([row.expand(ROWS, COLUMNS)])
    assert got.shape == (COLUMNS, ROWS)
    for first in range(0, COLUMNS, 10_000):
        assert bool((got[first : first + 10_000] == row[first : first + 10_000, None]).all())


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
def test_case_37_broadcast_inside_the_fusion(torch: Any, flat: bool) -> None:
    row = row_of(torch, COLUMNS)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], dtype=DataType.Int8)
        wide = fd.ops.broadcast_in_dim(t, [ROWS, COLUMNS], [1])
        fd.add_output(fd.ops.reshape(wide, [-1]) if flat else wide)
    (got,) = fd.execute([row])
    got = got.reshape(ROWS, COLUMNS)
    for first in range(0, ROWS, 10_000):
        assert bool((got[first : first + 10_000] == row).all())


@pytest.mark.slow
def test_case_37_rows_far_apart(torch: Any) -> None:
    stride = (1 << 30) + 8
    memory = torch.zeros(4 * stride, dtype=torch.int8, device="cuda")
    rows = memory.view(4, stride)[:, :100]
    rows.copy_(torch.arange(400, device="cuda").reshape(4, 100) % 127)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], dtype=DataType.Int8)
        fd.add_output(fd.ops.add(t, 1))
        fd.add_output(fd.ops.sum(t, [1]))
        fd.add_output(fd.ops.permute(t, [1, 0]))
    added, total, turned = fd.execute([rows])
    assert bool((added == rows + 1).all())
    assert bool((total == rows.long().sum(1)).all())
    assert bool((turned == rows.T).all())


@pytest.mark.slow
def test_case_37_a_start_past_2_31(torch: Any) -> None:
    start = (1 << 31) + 5
    memory = torch.zeros(start + 1000, dtype=torch.int8, device="cuda")
    memory[start:] = (torch.arange(1000, device="cuda") % 127).to(torch.int8)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], dtype=DataType.Int8)
        fd.add_output(fd.ops.slice(t, [start], [start + 1000]))
    (got,) = fd.execute([memory])
    assert bool((got == memory[start:]).all())


@pytest.mark.slow
@pytest.mark.parametrize("dims", [[0], [1], [0, 1]], ids=str)
def test_case_37_reducing_more_than_2_31_elements(torch: Any, dims: list[int]) -> None:
    row = row_of(torch, COLUMNS)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], dtype=DataType.Int8)
        fd.add_output(fd.ops.sum(t, dims))
        fd.add_output(fd.ops.max(t, dims))
    total, top = fd.execute([row.expand(ROWS, COLUMNS)])
    exact = {0: row.long() * ROWS, 1: row.long().sum(), 2: row.long().sum() * ROWS}
    assert bool((total == exact[2 if len(dims) == 2 else dims[0]]).all())
    assert bool((top == (row if dims == [0] else row.max())).all())


def test_case_37_just_below_the_limit(torch: Any) -> None:
    """The widest 32-bit kernel: indices of its rounded-up last tile must not wrap."""
    n = 2**31 - 2**21
    x = torch.zeros(n, dtype=torch.int8, device="cuda")
    x[-1] = 7
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], dtype=DataType.Int8)
        fd.add_output(fd.ops.add(t, 1))
    (got,) = fd.execute([x])
    assert int(got[-1]) == 8
    assert bool((got[:-1] == 1).all())
