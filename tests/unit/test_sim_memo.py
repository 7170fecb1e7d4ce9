"""What agents remember is what they would compute, and no more than fits."""

import numpy as np
import pytest

from fuser.core.errors import ProtocolError
from fuser.core.expr import Var, binop
from fuser.sim.agent import Agent
from fuser.sim.machine import Machine
from fuser.sim.memo import FEW_LANES, MOST
from fuser.sim.memory import Memory


def agent_of(lanes=4):
    tid = np.arange(lanes)
    return Agent("warp", tid, np.zeros(lanes, np.int64), {"tx": tid.copy(), "i": 0})


def machine(numel=64):
    memory = Memory("x", None, np.arange(numel), numel, "global")
    return Machine("k", (4, 1, 1), 1, {"x": memory}, narrow_index=True)


def test_the_same_inputs_give_the_same_frozen_array():
    m, agent, e = machine(), agent_of(), Var("tx") * 8 + Var("i")
    first = m.index(agent, e)
    agent.env["i"] = 1
    second = m.index(agent, e)
    assert (first.tolist(), second.tolist()) == ([0, 8, 16, 24], [1, 9, 17, 25])
    agent.env["i"] = 0
    assert m.index(agent, e) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 3


def test_an_array_that_may_still_change_is_not_remembered():
    m, agent, e = machine(), agent_of(), Var("j") + 1
    agent.env["j"] = j = np.zeros(4, np.int64)
    assert m.index(agent, e).tolist() == [1, 1, 1, 1]
    j += 5
    assert m.index(agent, e).tolist() == [6, 6, 6, 6]


def test_an_int_is_not_taken_for_an_array_of_that_identity():
    m, agent, e = machine(), agent_of(), Var("j") % 7
    agent.env["j"] = j = np.arange(4)
    j.flags.writeable = False
    assert m.index(agent, e).tolist() == [0, 1, 2, 3]
    agent.env["j"] = id(j)
    m.narrow_index = False
    assert m.index(agent, e) == id(j) % 7


def test_overflow_counts_where_lanes_are_active_each_time():
    m, agent, e = machine(), agent_of(), Var("tx") * 2**30
    agent.mask = np.array([True, True, False, False])
    assert m.index(agent, e).tolist()[:2] == [0, 2**30]
    agent.mask = None
    with pytest.raises(ProtocolError, match=f"reaches {3 * 2**30}"):
        m.index(agent, e)
    agent.mask = np.array([True, True, False, False])
    assert m.index(agent, e).tolist()[:2] == [0, 2**30]


def test_bounds_are_those_of_the_mask():
    m, agent, e = machine(20), agent_of(), Var("tx") * 8
    index = m.index(agent, e)
    few = agent.narrow(None, m.index(agent, binop("<", Var("tx"), 3)))
    for _ in range(2):
        assert m.load(agent, "x", index, few).tolist()[:3] == [0, 8, 16]
        with pytest.raises(ProtocolError, match=r"x\[24\] is outside its 20 elements"):
            m.load(agent, "x", index, None)
    m.memories["x"].data[8] = 99
    assert m.load(agent, "x", index, few).tolist()[:3] == [0, 99, 16]


def test_memory_is_bounded_and_for_few_lanes():
    m, agent, e = machine(), agent_of(), Var("tx") + Var("i")
    for i in range(MOST + 10):
        agent.env["i"] = i
        assert m.index(agent, e)[1] == i + 1
    assert 0 < len(agent.memo.results) <= MOST
    assert agent_of(FEW_LANES + 1).memo is None
