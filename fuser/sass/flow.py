"""The control-flow graph of a section, and the natural loops in it.

A node is the address of an instruction. Backward branches are not counted: blocks that are seldom
run lie out of line, behind the code that they return to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fuser.core.errors import BackendError
from fuser.sass.parse import Code, Instruction

_ENTRY = -1  # before every root: no instruction has a negative address
_INDIRECT = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
_BRANCHES = frozenset({"BRA", "JMP"}) | _INDIRECT
_ENDS = frozenset({"EXIT", "RET", "KILL"})


@dataclass(frozen=True, slots=True)
class Cycle:
    """A natural loop: all paths from its header back to it.

    Attributes
    ----------
    header
        Address; it dominates the body.
    body
        Addresses, the header among them.
    latches
        Addresses of the branches back to the header.
    """

    header: int
    body: frozenset[int]
    latches: tuple[int, ...]


def graph_of(code: Code) -> Any:
    """Return the control-flow graph, a networkx DiGraph of addresses.

    Its entry, address -1, leads to the first instruction and to every function of the section: a
    call falls through, and what it calls is entered from outside. ``BSSY`` and ``BSYNC`` say where
    threads meet again, and add no edge.

    Raises
    ------
    BackendError
        If the target of a branch is not known.
    """
    graph = import_module("networkx").DiGraph()
    graph.add_node(_ENTRY)
    for at, following in zip(code.instructions, [*code.instructions[1:], None], strict=True):
        graph.add_node(at.address)
        if _is_trap(code, at):
            continue
        if at.name in _BRANCHES:
            graph.add_edges_from((at.address, target) for target in _targets(code, at))
        if following is not None and (at.conditional or at.name not in _BRANCHES | _ENDS):
            graph.add_edge(at.address, following.address)
    graph.add_edges_from((_ENTRY, root) for root in _roots(code))
    return graph


def cycles_of(graph: Any) -> tuple[tuple[Cycle, ...], tuple[tuple[int, int], ...]]:
    """Return the natural loops by address, and the edges that go back to no dominator.

    Loops that share a header are one: the branches back to it are its latches. An edge of the
    second kind makes the graph irreducible; its cycle is not among the loops.
    """
    above: dict[int, int] = import_module("networkx").immediate_dominators(graph, _ENTRY)
    latches: dict[int, list[int]] = {}
    irreducible: list[tuple[int, int]] = []
    for source, target in _retreating(graph):
        if _dominates(above, target, source):
            latches.setdefault(target, []).append(source)
        else:
            irreducible.append((source, target))
    cycles = (
        Cycle(header, _body(graph, above, header, ends), tuple(sorted(ends)))
        for header, ends in sorted(latches.items())
    )
    return tuple(cycles), tuple(sorted(irreducible))


def _roots(code: Code) -> list[int]:
    """Return where control enters: the start, functions inside, and what is called."""
    called = (label for i in code.instructions if i.name == "CALL" for label in i.labels)
    starts = [code.labels[name] for name in (*code.functions, *called) if name in code.labels]
    return list(dict.fromkeys([*(i.address for i in code.instructions[:1]), *starts]))


def _is_trap(code: Code, at: Instruction) -> bool:
    """Whether this is the branch to itself that ends a section: nothing but padding follows."""
    if at.name not in _BRANCHES or at.conditional or _addresses(code, at) != [at.address]:
        return False
    return all(i.name == "NOP" for i in code.instructions if i.address > at.address)


def _targets(code: Code, at: Instruction) -> list[int]:
    """Return the addresses a branch may go to."""
    found = _addresses(code, at)
    if not found or len(found) < len(at.labels):
        what = f"at {at.address:#x}, {at.opcode} {at.operands}: target not in the section"
        raise BackendError(f"section {code.name}: {what}; needed labels of its own")
    return found


def _addresses(code: Code, at: Instruction) -> list[int]:
    return [code.labels[label] for label in at.labels if label in code.labels]


def _retreating(graph: Any) -> list[tuple[int, int]]:
    """Return the edges to a node that a depth-first walk is still inside of."""
    inside: set[int] = set()
    found: list[tuple[int, int]] = []
    for source, target, kind in import_module("networkx").dfs_labeled_edges(graph, _ENTRY):
        if kind == "forward":
            inside.add(target)
        elif kind == "reverse":
            inside.discard(target)
        elif target in inside:
            found.append((source, target))
    return found


def _dominates(above: dict[int, int], header: int, node: int) -> bool:
    while node not in (header, _ENTRY):
        node = above[node]
    return node == header


def _body(
    graph: Any, reached: Iterable[int], header: int, latches: Iterable[int]
) -> frozenset[int]:
    """Return the nodes that reach a latch without passing the header."""
    live = frozenset(reached)
    body, todo = {header}, list(latches)
    while todo:
        node = todo.pop()
        if node not in body:
            body.add(node)
            todo.extend(live.intersection(graph.predecessors(node)))
    return frozenset(body)
