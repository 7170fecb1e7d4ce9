"""Extents and indices that no call can have: the value and the extent, at the user's line."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition
from fuser.core.errors import InputError

pytestmark = pytest.mark.unit

D = DataType
BY_ZERO = {
    "//": lambda n: n // (n - 4),
    "%": lambda n: n % (n - 4),
    "div": lambda n: fuser.ops.div(n, n - 4),
    "fmod": lambda n: fuser.ops.fmod(n, n - 4),
}
USES = {
    "full": (lambda ops, x, e: ops.full([2, e], 1.0, D.Float), "dimension 1 of t"),
    "iota": (lambda ops, x, e: ops.iota(e), "dimension 0 of t"),
    "iota: start": (lambda ops, x, e: ops.iota(3, e), "an index of iota t"),
    "iota: step": (lambda ops, x, e: ops.iota(3, 0, e), "an index of iota t"),
    "slice": (lambda ops, x, e: x[e:], "dimension 0 of t"),
    "reshape": (lambda ops, x, e: ops.reshape(x, [e, 4]), "reshape of x: number of elements"),
    "broadcast": (lambda ops, x, e: ops.broadcast_in_dim(x, [e, 4, 4], [1, 2]), "dimension 0 of t"),
}


def refused(fd, inputs, *parts):
    with pytest.raises(InputError) as caught:
        fd.execute(inputs)
    for part in parts:
        assert part in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("division", BY_ZERO)
def test_a_division_by_zero(use, division):
    build, text = USES[use]
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4], True)
        n = fd.define_scalar(dtype=D.Int)
        fd.add_output(build(fd.ops, x, BY_ZERO[division](n)))
    refused(
        fd, [np.ones((4, 4), np.float32), 4], "input", text, "- 4)", "which divides by 0; a div"
    )


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ([2**40, 2**40], "t is Float[1099511627776, 1099511627776]; at most 9223372036854775807 "),
        ([2**62], "t is Float[4611686018427387904]; at most 9223372036854775807 bytes"),
        ([2**62, 0], "t is Float[4611686018427387904, 0]; at most"),
        ([2**63], "dimension 0 of t becomes 9223372036854775808; "),
    ],
    ids=repr,
)
def test_more_elements_than_addresses(shape, text):
    for reduced in (False, True):
        with FusionDefinition() as fd:
            t = fd.ops.full(shape, 1.0, D.Float)
            fd.add_output(fd.ops.sum(t) if reduced else t)
        refused(fd, [], text)


def test_more_elements_than_memory():
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([2**46], 1.0, D.Float))  # more than a process can address
    text = rf"buffer t1: is Float\[{2**46}\]; {2**48} bytes of memory are needed"
    with pytest.raises(InputError, match=text):
        fd.execute([], backend="interpret")


@pytest.mark.parametrize("start", [2**32, -(2**32)])
def test_an_index_of_more_than_64_bits(start):
    with FusionDefinition() as fd:
        n = fd.define_scalar(dtype=D.Int)
        fd.add_output(fd.ops.iota(3, n * n * n))
    refused(fd, [start], "an index of iota t3 becomes", str(start**3), "to 9223372036854775807 is")
    with FusionDefinition() as fd:
        n = fd.define_scalar(dtype=D.Int)
        fd.add_output(fd.ops.full([n * n], 1.0, D.Float))
    refused(fd, [start], "dimension 0 of t3 becomes 18446744073709551616; ")
