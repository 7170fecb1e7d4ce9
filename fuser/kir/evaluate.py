"""What scalar values and statement bodies mean on the modelled machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.expr import TRUE
from fuser.kir.core import Stmt
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref, Value
from fuser.ops import BY_NAME
from fuser.ops.convert import convert
from fuser.sim.agent import STEP, Agent, Mask, Wait, any_lane, choose
from fuser.sim.machine import Machine


def run_body(body: tuple[Stmt, ...], m: Machine, agent: Agent) -> Iterator[Wait]:
    """Run statements in order; an interleaved machine may switch agents before each."""
    for stmt in body:
        agent.at = stmt
        if m.interleaved:
            yield STEP
        yield from stmt.run(m, agent)


def evaluate_value(value: Value, m: Machine, agent: Agent, mask: Mask) -> Any:
    """Return `value` in the lanes of `mask`: a NumPy scalar if uniform, else shape (lanes,).

    Other lanes hold something unspecified and touch no memory.
    """
    match value:
        case Literal(number, dtype):
            return dtype.np.type(number)
        case Ref(name=name):
            return agent.values[name]
        case Element():
            return _element(value, m, agent, mask)
        case FromIndex(expr, dtype):
            return _from_index(m.index(agent, expr), dtype)
        case Apply(op, args, _):
            return BY_NAME[op].numpy(*(evaluate_value(a, m, agent, mask) for a in args))
        case Cast(arg, dtype):
            return convert(evaluate_value(arg, m, agent, mask), dtype)
        case Choose(cond, if_true, if_false, _):
            return _choose(m.index(agent, cond), if_true, if_false, m, agent, mask)
        case _:
            assert_never(value)


def _element(e: Element, m: Machine, agent: Agent, mask: Mask) -> Any:
    if e.guard == TRUE:
        return m.load(agent, e.memory, m.index(agent, e.index), mask)
    fill = e.fill if e.fill is not None else Literal(0, e.dtype)
    return _choose(
        m.index(agent, e.guard), Element(e.memory, e.index, e.dtype), fill, m, agent, mask
    )


def _choose(
    cond: Any, if_true: Value, if_false: Value, m: Machine, agent: Agent, mask: Mask
) -> Any:
    holds = agent.narrow(mask, cond)
    if not any_lane(holds):
        return evaluate_value(if_false, m, agent, mask)
    if holds is None or (mask is not None and np.array_equal(holds, mask)):
        return evaluate_value(if_true, m, agent, mask)
    a = evaluate_value(if_true, m, agent, holds)
    b = evaluate_value(if_false, m, agent, agent.narrow(mask, np.logical_not(holds)))
    return choose(holds, a, b)


def _from_index(index: Any, dtype: DataType) -> Any:
    return dtype.np.type(index) if isinstance(index, int) else np.asarray(index).astype(dtype.np)
