"""Stores by the copy engine: what they read, for how long, and whether they may see it.

A store may read its stage from its issue until its thread has waited for its group; nothing else
tells when it has (PTX ISA, ``cp.async.bulk.wait_group.read``). So there is nothing to interleave: a
stage that is written, or a block that ends, while a store may still read is wrong.
"""

from __future__ import annotations

from fuser.protocol.errors import Violation
from fuser.protocol.machine import Machine
from fuser.protocol.state import Agent, Pending, State, Step


def effect(m: Machine, state: State, a: int, step: Step) -> State:
    """Return the state after an act of agent `a` that is about stores."""
    agent = state.agents[a]
    begun, *closed = agent.stores
    match step.kind:
        case "store":
            return _issue(m, state, a, step) if step.issued else state
        case "commit":
            return _put(state, a, agent._replace(stores=_groups((), begun, *closed)))
        case "wait_read":
            return _put(state, a, agent._replace(stores=_groups(begun, *closed[: step.number])))
        case "show":
            return state if step.partial else _put(state, a, agent._replace(hidden=()))
        case _:
            raise AssertionError(step.kind)


def hide(m: Machine, state: State, a: int, step: Step) -> State:
    """Note that agent `a` has written a stage that the copy engine stores: it need not see it."""
    agent = state.agents[a]
    arrays = m.stored
    cells = {cell for array, cell in step.writes if array in arrays}
    if cells <= set(agent.hidden):
        return state
    return _put(state, a, agent._replace(hidden=tuple(sorted(cells | set(agent.hidden)))))


def check_end(state: State) -> None:
    """Raise `Violation` where a block ends and its shared memory may still be read."""
    if any(group for agent in state.agents for group in agent.stores):
        raise Violation("exit", "the block ends with a store that may still read its stage")


def _issue(m: Machine, state: State, a: int, step: Step) -> State:
    agent, who = state.agents[a], m.model.agents[a].name
    array = step.writes[0][0]
    cells = tuple(cell for _, cell in step.writes)
    name = m.model.arrays[array]
    if step.weight > 1:
        raise Violation("store", f"{step.weight} threads of {who} store the same stage of {name}")
    for b, other in enumerate(state.agents):
        if b != a and any(cell in group for group in other.stores for cell in cells):
            raise Violation("store", f"{m.model.agents[b].name} and {who} store a stage of {name}")
    read = Pending(range(cells[0], cells[-1] + 1), array, agent.reads[array], False)
    m.judge(state, a, read)
    for b, other in enumerate(state.agents):
        if not set(cells).isdisjoint(other.hidden):
            writer = m.model.agents[b].name
            raise Violation(
                "fence",
                f"{who} stores {name}, of which the copy engine need not see what {writer} wrote",
            )
    begun, *closed = agent.stores
    more = tuple(sorted({*begun, *cells}))
    return _put(state, a, agent._replace(stores=(more, *closed)))


def _groups(*groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return groups without the oldest ones that are empty: nobody waits for those."""
    kept = list(groups)
    while len(kept) > 1 and not kept[-1]:
        kept.pop()
    return tuple(kept)


def _put(state: State, a: int, agent: Agent) -> State:
    return state._replace(agents=(*state.agents[:a], agent, *state.agents[a + 1 :]))
