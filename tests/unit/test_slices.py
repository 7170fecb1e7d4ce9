"""Slices by symbolic bounds select what NumPy does, and their extents stay short in chains."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.api.tensor import Tensor
from fuser.fusion.reference import evaluate

pytestmark = pytest.mark.unit

D = DataType
BOUNDS = {
    "n-1": lambda n: n - 1, "n-2": lambda n: n - 2, "n-3": lambda n: n - 3, "n-5": lambda n: n - 5,
    "n": lambda n: n, "n+1": lambda n: n + 1, "n*2": lambda n: n * 2, "n/2": lambda n: n // 2,
    "1-n": lambda n: 1 - n, "-n": lambda n: -n, "0": lambda n: 0, "2": lambda n: 2,
    "7": lambda n: 7, "-1": lambda n: -1, "-3": lambda n: -3, "end": lambda n: None,
}  # fmt: skip


def check(build: Any, sizes: Iterable[int]) -> None:
    """Compare what `build` of a symbolic 1-d tensor means with `build` of NumPy arrays."""
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], contiguity=True, dtype=D.Float)
        y = build(t)
        fd.add_output(y)
    for size in sizes:
        x = np.arange(size, dtype=np.float32) ** 2
        got = evaluate(fd.fusion, {t.name: x})[y.name]
        np.testing.assert_array_equal(got, build(x), err_msg=f"{size} elements")


@pytest.mark.parametrize(("start", "end"), list(product(BOUNDS, BOUNDS)))
@pytest.mark.parametrize("before", [0, 2])
def test_bounds_in_terms_of_the_extent(start: str, end: str, before: int) -> None:
    """At every size around the bounds, of an input and of what an earlier slice left."""

    def cut(a: Any) -> Any:
        a = a[before:] if before else a
        n = a.shape[0]
        return a[BOUNDS[start](n) : BOUNDS[end](n)] * 1.0

    check(cut, range(9))


def narrowed(a: Any) -> Any:
    """Neighbours added: one element less."""
    n = a.shape[0]
    return a[0 : n - 1] + a[1:n]


CHAINS = {
    "neighbours": (narrowed, 1),
    "neighbours by literals": (lambda a: a[:-1] + a[1:], 1),
    "two at a time": (lambda a: a[: a.shape[0] - 2] - a[2:], 2),
    "three by literals": (lambda a: a[:-3] + a[3:], 3),
    "both ends": (lambda a: a[1:-1] * 2.0, 2),
    "the last ones": (lambda a: a[-5:-1] * 2.0, None),
    "every second": (lambda a: a[1::2] * 2.0, None),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("links", [1, 2, 5])
def test_chains(name: str, links: int) -> None:
    link, loss = CHAINS[name]

    def chain(a: Any) -> Any:
        for _ in range(links):
            a = link(a)
        return a

    total = 3 * links if loss is None else loss * links
    check(chain, {0, 1, total - 1, total, total + 1, 2 * total + 3})


@pytest.mark.parametrize("name", [n for n, (_, loss) in CHAINS.items() if loss is not None])
def test_extents_of_chains_stay_short(name: str) -> None:
    """A nested extent doubles with every link, and so did the time to compile it."""
    link, loss = CHAINS[name]
    with FusionDefinition() as fd:
        y: Tensor = fd.define_tensor(shape=[-1], contiguity=True, dtype=D.Float)
        for _ in range(50):
            y = link(y)
        fd.add_output(y)
    (extent,) = fd.fusion.value(y.name).shape
    (size,) = fd.fusion.inputs[0].shape
    assert repr(extent) == f"max({size} - {50 * loss}, 0)"
    assert not fd.fusion.constraints
    assert max(map(len, str(fd.fusion).splitlines())) < 100
