"""Definitions used as they are not meant: what would be ignored or fail later is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.core.errors import DefinitionError, InputError

pytestmark = pytest.mark.unit

BOTH = "an example or a promise is needed, not both"
TENSORS = {
    "shape and sizes": (
        {"shape": [2], "sizes": [2, 3], "strides": [3, 1]},
        f"define_tensor: sizes are [2, 3] and shape is [2]; {BOTH}",
    ),
    "contiguity and sizes": (
        {"contiguity": True, "sizes": [2], "strides": [1]}, f"and contiguity is True; {BOTH}",
    ),
    "order and sizes": (
        {"stride_order": [0, 1], "sizes": [2, 3], "strides": [3, 1]},
        f"and stride_order is [0, 1]; {BOTH}",
    ),
    "order and sizes by position": (
        {"shape": [2, 3], "contiguity": [3, 1], "stride_order": [0, 1]},
        f"sizes are [2, 3] and stride_order is [0, 1]; {BOTH}",
    ),
    "strides alone": (
        {"shape": [2, 3], "strides": [3, 1]},
        "define_tensor: strides are [3, 1] and sizes are not given; both are needed",
    ),
    "too large": (
        {"shape": [4, 2**63]},
        "dimension 1 of [4, 9223372036854775808] is 9223372036854775808; -1, 1 or an extent below",
    ),
    "below -1": ({"shape": [-2]}, "dimension 0 of [-2] is -2; -1, 1 or an extent below 2**63"),
}  # fmt: skip


def refused(text, call, *args, **kwargs):
    with pytest.raises(DefinitionError) as caught:
        call(*args, **kwargs)
    assert text in str(caught.value)
    assert caught.value.location is not None


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_two_kinds_and_of_none(name):
    arguments, text = TENSORS[name]
    refused(text, FusionDefinition().define_tensor, **arguments)


@pytest.mark.parametrize("n", [-1, 2**63, 2.0, "3", None, True, np.int8(-1)])
def test_vectors_of_no_length(n):
    text = f"define_vector: number of items is {n!r}; an int from 0 to 2**63 - 1 is needed"
    refused(text, FusionDefinition().define_vector, n)


def test_vectors_of_any_length():
    assert [len(FusionDefinition().define_vector(n)) for n in (0, 2, np.int64(3))] == [0, 2, 3]


def negated():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        y = -x
        fd.add_output(y)
    return fd


def test_a_definition_is_written_once():
    fd = negated()
    refused("with: the definition is finished; a new FusionDefinition", fd.__enter__)
    with FusionDefinition() as other:
        refused("with: the definition is being written already; a new", other.__enter__)
        refused("with: the definition is finished", fd.__enter__)
        y = other.ops.full([2], 1.0, DataType.Float)  # and goes on
        other.add_output(y)
    assert other.execute([])[0].tolist() == [1.0, 1.0]


def test_a_definition_goes_on_after_an_error():
    fd = FusionDefinition()
    with pytest.raises(ZeroDivisionError), fd:
        raise ZeroDivisionError
    with fd:
        fd.add_output(-fd.define_tensor([-1]))
    assert fd.execute([np.ones(2, np.float32)])[0].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("call", ["execute", "compile", "validate"])
def test_what_is_no_list_of_inputs(call):
    x = np.ones(3, np.float32)
    for inputs, text in (
        (x, f"^{call}: got a ndarray; needed a list of inputs, one for each of x"),
        ([x, x], f"^{call}: got 2 inputs; the definition has 1: x"),
    ):
        with pytest.raises(InputError, match=text):
            getattr(negated(), call)(inputs)


def test_a_graph_says_what_it_is():
    assert repr(negated().fusion) == "<FusionGraph: 2 values, outputs y>"
    assert repr(FusionDefinition().fusion) == "<FusionGraph: 0 values, outputs none>"
