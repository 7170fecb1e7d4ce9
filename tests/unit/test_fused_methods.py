"""``@fuser.fuse`` in a class, and on what is no function."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
from fuser.core.errors import DefinitionError

pytestmark = pytest.mark.unit


class Scale:
    def __init__(self, factor):
        self.factor = factor

    @fuser.fuse
    def method(self, x, bias=0.0):
        return x * self.factor + bias

    @fuser.fuse
    def pair(self, x):
        return self.method(x), self.twice(x)

    @fuser.fuse
    @staticmethod
    def twice(x):
        return x * 2.0

    @staticmethod
    @fuser.fuse
    def thrice(x):
        return x * 3.0

    @classmethod
    @fuser.fuse
    def of_class(cls, x):
        return x * float(len(cls.__name__))


def test_methods_bind_their_object(rng):
    x = rng.integers(-9, 9, (3, 5)).astype(np.float32)
    three, five = Scale(3.0), Scale(5.0)
    for _ in range(2):
        assert three.method(x).tolist() == (3 * x).tolist()
        assert five.method(x, bias=1.0).tolist() == (5 * x + 1).tolist()
        assert Scale.method(five, x).tolist() == (5 * x).tolist()
        one, two = three.pair(x)  # methods called while another is traced
        assert (one.tolist(), two.tolist()) == ((3 * x).tolist(), (2 * x).tolist())
    assert three.method.definition(x) is Scale.method.definition(three, x)
    assert three.method.definition(x) is not five.method.definition(x)


def test_methods_without_an_object(rng):
    x = rng.integers(-9, 9, 4).astype(np.float32)
    for of in (Scale, Scale(1.0)):
        assert of.twice(x).tolist() == (2 * x).tolist()
        assert of.thrice(x).tolist() == (3 * x).tolist()
        assert of.of_class(x).tolist() == (5 * x).tolist()


@pytest.mark.parametrize("given", [3, None, "f", np.ones(2), [abs]], ids=repr)
def test_what_is_no_function(given):
    with pytest.raises(DefinitionError) as caught:
        fuser.fuse(given)
    assert f"fuse: got {given!r}, a {type(given).__name__}; a function of" in str(caught.value)
    assert caught.value.location is not None


def test_a_classmethod_goes_outside():
    with pytest.raises(DefinitionError, match="a function of arrays is needed, inside the classm"):
        fuser.fuse(classmethod(lambda cls, x: x))
