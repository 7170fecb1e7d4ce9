"""Loops and branches around nothing are not printed."""

from __future__ import annotations

import numpy as np
import pytest
from manual_schedules import CASES, program

from fuser import FusionDefinition
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import For, If

pytestmark = pytest.mark.unit


def empty(made):
    """Return the loops and branches without a statement inside."""
    stmts = (s for kernel in made.kernels for s in walk_stmts(kernel.body))
    return [s for s in stmts if isinstance(s, For | If) and not s.body]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hand_made_schedules(case, rng):
    assert empty(program(case.build(), case.inputs(rng, len(case.shapes) - 1))) == []


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_whose_results_stay_in_registers(axis):
    """Serial reductions have a beginning and no end: both stages, and what is kept."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[33, 2], contiguity=True)
        y = fd.ops.sum(x, [0])
        fd.add_output(y)
    y.split(0, 2)
    y.split(1, 4, inner_split=False)
    y.rfactor([axis])
    assert empty(program(fd, [np.ones((33, 2), np.float32)])) == []
