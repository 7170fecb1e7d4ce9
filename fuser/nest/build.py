"""Build the loop nest of a scheduled fusion.

Every axis of every materialised tensor is a loop; computing a producer at position ``k`` of its
consumers makes its first ``k`` axes the same loops as theirs. The classes of equal axes form a
forest; the items of each body are ordered by data dependence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Expr, Var
from fuser.core.simplify import Facts, prove_equal
from fuser.core.unroll import Unroll
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import FusionGraph
from fuser.nest.nodes import Allocate, Compute, Loop, LoopNest, NestNode, Step
from fuser.schedule.domain import IterDomain
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.schedule import Schedule

AxisRef = tuple[str, int]


def build_nest(name: str, graph: FusionGraph, schedule: Schedule, facts: Facts) -> LoopNest:
    """Return the loop nest of `graph` under `schedule`; raise `ScheduleError` if there is none."""
    order = tuple(v.name for v in graph.values if v.name in schedule.tensors)
    reads = {name: materialised_operands(graph, schedule, name) for name in order}
    tree = _Tree(graph, schedule, order, reads, facts)
    body = tree.emit(tree.grow())
    nest = LoopNest(name, graph, schedule, order, body, facts)
    nest.verify()
    return nest


def materialised_operands(graph: FusionGraph, schedule: Schedule, tensor: str) -> tuple[str, ...]:
    """Return the materialised tensors that `tensor` reads, through inlined expressions."""
    found: dict[str, None] = {}
    todo = list(graph.operand_names(tensor))
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in schedule.tensors:
            found[name] = None
        else:
            todo.extend(graph.operand_names(name))
    return tuple(found)


@dataclass(slots=True)
class _Item:
    """A loop (with children) or a statement of one tensor, before ordering."""

    axis: IterDomain | None = None
    unroll: Unroll = Unroll()
    outlined: str = ""
    var: str = ""
    tensor: str = ""
    step: Step = "assign"
    children: list[_Item] = field(default_factory=list["_Item"])
    loops: tuple[Expr, ...] = ()


class _Tree:
    def __init__(
        self,
        graph: FusionGraph,
        schedule: Schedule,
        order: tuple[str, ...],
        reads: dict[str, tuple[str, ...]],
        facts: Facts,
    ) -> None:
        self.graph, self.schedule, self.order, self.reads = graph, schedule, order, reads
        self.facts = facts
        self.parent: dict[AxisRef, AxisRef] = {}
        self.counter: dict[str, int] = {}
        self.homes: dict[str, _Item] = {}
        self.directives: dict[AxisRef, Unroll] = {}
        self.outlined: dict[AxisRef, str] = {}

    # ---- classes of equal loops ------------------------------------------------------------

    def find(self, ref: AxisRef) -> AxisRef:
        """Return the representative of a loop."""
        while (up := self.parent.get(ref, ref)) != ref:
            ref = up
        return ref

    def unite(self, producer: AxisRef, consumer: AxisRef) -> None:
        """Make two axes one loop; they must agree in extent and in what executes them."""
        a, b = self.axis(producer), self.axis(consumer)
        if a.parallel is not b.parallel:
            raise ScheduleError(
                f"{producer[0]}: computed inside axis {consumer[1]} of {consumer[0]}, which is "
                f"{b.parallel.name}, but its own axis {producer[1]} is {a.parallel.name}; "
                "both must be bound alike"
            )
        if not prove_equal(a.extent, b.extent, self.facts):
            raise ScheduleError(
                f"{producer[0]}: computed inside axis {consumer[1]} of {consumer[0]}, which has "
                f"extent {b.extent}, but its own axis {producer[1]} has extent {a.extent}; both "
                "must be equal"
            )
        a_root, b_root = self.find(producer), self.find(consumer)
        if a_root != b_root:
            self.parent[a_root] = b_root

    def axis(self, ref: AxisRef) -> IterDomain:
        """Return the iteration domain of a loop axis."""
        loop = self.schedule.tensors[ref[0]].domain.loop
        if ref[1] >= len(loop):
            raise ScheduleError(
                f"{ref[0]}: a producer is computed at position {ref[1] + 1}; the loop domain has "
                f"{len(loop)} axes"
            )
        return loop[ref[1]]

    def direct(self) -> None:
        """Note the directive of each loop; the axes that are one loop must not contradict it."""
        for tensor in self.order:
            for j, axis in enumerate(self.schedule.tensors[tensor].domain.loop):
                ref, origin = self.find((tensor, j)), f"{tensor}: axis {j}"
                if axis.outlined:
                    self.outlined.setdefault(ref, origin)
                if not axis.unroll.is_given:
                    continue
                asked = axis.unroll.asked_by(origin)
                known = self.directives.setdefault(ref, asked)
                if known.asked_by(origin) != asked:
                    other, _, where = known.origin.partition(": ")
                    raise ScheduleError(
                        f"{asked.origin} has the directive {asked.directive}, but it is one loop "
                        f"with {where} of {other}, which has {known.directive}; a loop has one "
                        "directive: give it to one of the tensors"
                    )

    def directive(self, ref: AxisRef) -> Unroll:
        """Return the directive of the loop that an axis is."""
        return self.directives.get(self.find(ref), Unroll())

    # ---- the forest ------------------------------------------------------------------------

    def grow(self) -> _Item:
        """Return the root item holding every loop and statement."""
        for consumer in reversed(self.order):
            for producer in self.reads[consumer]:
                for j in range(self.schedule.tensors[producer].position):
                    self.unite((producer, j), (consumer, j))
        for tensor in self.order:
            sibling = self.schedule.tensors[tensor].same_loops_as
            if sibling is not None:
                for j in range(len(self.schedule.tensors[tensor].domain.loop)):
                    self.unite((tensor, j), (sibling, j))
        self.direct()
        root = _Item()
        loops: dict[AxisRef, tuple[_Item, _Item]] = {}
        for tensor in self.order:
            self.place(tensor, root, loops)
        return root

    def place(self, tensor: str, root: _Item, loops: dict[AxisRef, tuple[_Item, _Item]]) -> None:
        """Add the loops and statements of one tensor to the tree."""
        domain = self.schedule.tensors[tensor].domain.loop
        path: list[_Item] = [root]
        for j, axis in enumerate(domain):
            ref = self.find((tensor, j))
            if ref not in loops:
                outlined = self.outlined.get(ref, "")
                loop = _Item(axis, self.directive(ref), outlined, self.name(axis))
                path[-1].children.append(loop)
                loops[ref] = (path[-1], loop)
            elif loops[ref][0] is not path[-1]:
                raise ScheduleError(
                    f"{tensor}: axis {j} is shared with another tensor but the axes left of it "
                    "are not; tensors share a prefix of their loops"
                )
            path.append(loops[ref][1])
        ts = self.schedule.tensors[tensor]
        if ts.memory is not MemoryType.global_:
            self.homes[tensor] = path[ts.position]
        variables = tuple(Var(item.var) for item in path[1:])
        reduce = isinstance(self.graph.value(tensor).attrs, ReduceAttrs)
        step: Step = "combine" if reduce else "assign"
        path[-1].children.append(_Item(tensor=tensor, loops=variables, step=step))
        if reduce:
            self.bracket(tensor, domain, path)

    def bracket(self, tensor: str, domain: tuple[IterDomain, ...], path: list[_Item]) -> None:
        """Put the init and finish steps of a reduction around its outermost reduction loop."""
        first = next((j for j, axis in enumerate(domain) if axis.reduction), len(domain))
        host = path[first]
        inner = domain[first:]
        for step in ("init", "finish"):
            item, where = host, list[Expr](Var(p.var) for p in path[1 : first + 1])
            for j, axis in enumerate(inner, first):
                if axis.reduction:
                    where.append(ZERO)
                    continue
                unroll = self.directive((tensor, j))
                loop = _Item(axis=axis, unroll=unroll, var=self.name(axis))
                item.children.append(loop)
                item = loop
                where.append(Var(loop.var))
            item.children.append(_Item(tensor=tensor, loops=tuple(where), step=step))

    def name(self, axis: IterDomain) -> str:
        """Return the variable of a new loop: the hardware index, or a fresh i0, u0, v0."""
        if axis.parallel.is_parallel:
            return axis.parallel.value
        stem = {ParallelType.vectorize: "v", ParallelType.unroll: "u"}.get(axis.parallel, "i")
        while True:
            number = self.counter.get(stem, 0)
            self.counter[stem] = number + 1
            if f"{stem}{number}" not in self.graph:
                return f"{stem}{number}"

    # ---- order -----------------------------------------------------------------------------

    def emit(self, item: _Item) -> tuple[NestNode, ...]:
        """Return the body of an item: allocations first, then children by data dependence."""
        nodes: list[NestNode] = [Allocate(t) for t in self.order if self.homes.get(t) is item]
        for child in self.sorted(item.children):
            if child.axis is None:
                nodes.append(Compute(child.tensor, child.loops, child.step))
            else:
                axis = child.axis
                body = self.emit(child)
                nodes.append(
                    Loop(
                        child.var, axis.extent, axis.parallel, child.unroll, body,
                        outlined=child.outlined,
                    )
                )  # fmt: skip
        return tuple(nodes)

    def sorted(self, children: list[_Item]) -> list[_Item]:
        """Order siblings so that every tensor is complete before it is read."""
        statements = [list(_statements(c)) for c in children]
        before: list[set[int]] = [set() for _ in children]
        for b, mine in enumerate(statements):
            needs = {
                r for s in mine if s.step in ("assign", "combine") for r in self.reads[s.tensor]
            }
            steps = {s.tensor: _RANK[s.step] for s in mine}
            for a, theirs in enumerate(statements):
                if a == b:
                    continue
                if any(s.tensor in needs or _RANK[s.step] < steps.get(s.tensor, 0) for s in theirs):
                    before[b].add(a)
        result: list[int] = []
        while len(result) < len(children):
            ready = [i for i in range(len(children)) if i not in result and before[i] <= {*result}]
            if not ready:
                stuck = sorted(
                    {
                        s.tensor
                        for i in range(len(children))
                        if i not in result
                        for s in statements[i]
                    }
                )
                raise ScheduleError(
                    f"{', '.join(stuck)}: their loops need each other's results; no order of the "
                    "loops computes every tensor before it is read"
                )
            result.append(ready[0])
        return [children[i] for i in result]


_RANK: dict[Step, int] = {"init": 0, "assign": 1, "combine": 1, "finish": 2}


def _statements(item: _Item) -> Iterator[_Item]:
    if item.axis is None:
        yield item
    for child in item.children:
        yield from _statements(child)
