"""Reads that go on while their thread does: by stores of the copy engine, and by matrix products.

Either may read its stage from its issue until its own thread has waited for its group; nothing else
tells when it has (PTX ISA, ``cp.async.bulk.wait_group.read``, ``wgmma.wait_group``). So there is
nothing to interleave: a stage that is written, or a block that ends, while such a read may go on is
wrong. Both are by the asynchronous proxy, which need not see what threads wrote.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.protocol.errors import Violation
from fuser.protocol.model import Model
from fuser.protocol.reads import judge
from fuser.protocol.state import PRODUCTS, READERS, STORES, Agent, Groups, Pending, State, Step

COMMITS = {"commit": STORES, "commit products": PRODUCTS}
WAITS = {"wait_read": STORES, "wait products": PRODUCTS}
ACTS = ("store", "show", *COMMITS, *WAITS)
"""Acts that are about groups."""


def effect(model: Model, state: State, a: int, step: Step) -> State:
    """Return the state after an act of agent `a` that is about groups."""
    agent = state.agents[a]
    if step.kind == "store":
        return _store(model, state, a, step) if step.issued else state
    if step.kind == "show":
        return state if step.partial else _put(state, a, agent._replace(hidden=()))
    if step.kind in COMMITS:
        kind = COMMITS[step.kind]
        groups = _with(agent.groups, kind, (), *agent.groups[kind])
        return _put(state, a, agent._replace(groups=groups))
    kind = WAITS[step.kind]
    newest, *closed = agent.groups[kind]
    groups = _with(agent.groups, kind, newest, *closed[: step.number])
    over = () if kind == STORES else _ending(closed[step.number :], step)
    return _put(state, a, agent._replace(groups=groups, pending=(*agent.pending, *over)))


def _ending(groups: list[tuple[Pending, ...]], step: Step) -> Iterator[Pending]:
    """Yield reads that a wait ends: nobody can tell before the next act of the agent.

    All lanes of a warp wait together (``wgmma.wait_group.sync.aligned``).
    """
    yield from (read._replace(converged=not step.partial) for group in groups for read in group)


def begun(
    model: Model, state: State, a: int, read: Pending, groups: tuple[Groups, ...]
) -> tuple[Groups, ...]:
    """Return the groups of agent `a` after it has issued what reads a stage from now on."""
    judge(model, state, a, read)
    for b, other in enumerate(state.agents):
        if other.hidden and not set(read.cells).isdisjoint(other.hidden):
            who, writer = model.agents[a].name, model.agents[b].name
            verb, engine = READERS[read.reader].verb, READERS[read.reader].engine
            raise Violation(
                "fence",
                f"{who} {verb} {model.arrays[read.array]}, of which {engine} need not see what "
                f"{writer} wrote",
            )
    newest, *closed = groups[read.reader]
    return groups if read in newest else _with(groups, read.reader, (*newest, read), *closed)


def hide(stored: frozenset[int], state: State, a: int, step: Step) -> State:
    """Note that agent `a` has written stages that are read by the asynchronous proxy.

    Parameters
    ----------
    stored
        Ring arrays that are.
    """
    agent = state.agents[a]
    cells = {cell for array, cell in step.writes if array in stored}
    if cells <= set(agent.hidden):
        return state
    return _put(state, a, agent._replace(hidden=tuple(sorted(cells | set(agent.hidden)))))


def check_end(state: State) -> None:
    """Raise `Violation` where a block ends and its shared memory may still be read."""
    for agent in state.agents:
        for reader, groups in zip(READERS, agent.groups, strict=True):
            if any(groups):
                raise Violation(
                    "exit", f"the block ends with a {reader.noun} that may still read its stage"
                )


def _store(model: Model, state: State, a: int, step: Step) -> State:
    """Issue a store: by one thread, and no two of the same stage."""
    agent, who = state.agents[a], model.agents[a].name
    array = step.writes[0][0]
    cells = tuple(cell for _, cell in step.writes)
    name = model.arrays[array]
    if step.weight > 1:
        raise Violation("store", f"{step.weight} threads of {who} store the same stage of {name}")
    for b, other in enumerate(state.agents):
        held = {cell for group in other.groups[STORES] for read in group for cell in read.cells}
        if b != a and not held.isdisjoint(cells):
            raise Violation("store", f"{model.agents[b].name} and {who} store a stage of {name}")
    read = Pending(range(cells[0], cells[-1] + 1), array, agent.reads[array], False, STORES)
    groups = begun(model, state, a, read, agent.groups)
    return _put(state, a, agent._replace(groups=groups))


def _with(every: tuple[Groups, ...], kind: int, *new: tuple[Pending, ...]) -> tuple[Groups, ...]:
    """Return groups of which those of a kind are new.

    Its oldest ones go that are empty: nobody waits for those.
    """
    kept = list(new)
    while len(kept) > 1 and not kept[-1]:
        kept.pop()
    return (*every[:kind], tuple(kept), *every[kind + 1 :])


def _put(state: State, a: int, agent: Agent) -> State:
    return state._replace(agents=(*state.agents[:a], agent, *state.agents[a + 1 :]))
