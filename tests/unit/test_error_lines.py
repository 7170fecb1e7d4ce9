"""What `manual_execute` refuses is at the user's line: of a directive, or of a definition."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fuser import FusionDefinition, ParallelType
from fuser.core.errors import ScheduleError

pytestmark = pytest.mark.unit
P = ParallelType


def cached_after() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(y := fd.ops.add(x, 1.0))
    x.cache_after()  # here
    y.split(0, 8)
    return fd


def cached_before() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(y := fd.ops.add(x, 1.0))
    y.cache_before()  # here
    y.split(0, 8)
    return fd


def cached_twice() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(y := fd.ops.add(x, 1.0))
    cache = x.cache_after()
    cache.split(0, 4)
    cache.axis(1).parallelize(P.serial)  # here
    y.split(0, 8)
    return fd


def rfactored() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(s := fd.ops.sum(x, [1]))
    s.split(1, 8)
    s.rfactor([1])  # here
    s.axis(0).parallelize(P.grid_x)
    return fd


def defined() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        s = fd.ops.sum(x, [1], keepdim=True)  # here
        fd.add_output(y := fd.ops.add(x, s))
    y.merge(0, 1)
    return fd


@pytest.mark.parametrize("build", [cached_after, cached_before, cached_twice, rfactored, defined])
def test_where_it_is_refused(build: Callable[[], FusionDefinition]):
    fd = build()
    data = np.ones((3, 5) if build in (rfactored, defined) else 10, np.float32)
    with pytest.raises(ScheduleError, match="lives in local memory") as caught:
        fd.manual_execute([data], backend="interpret")
    where = caught.value.location
    assert where is not None
    assert where.function == build.__name__
    assert Path(where.file).read_text().splitlines()[where.line - 1].endswith("# here")
    assert str(caught.value).startswith(f"{where}: ")
