"""Give every loop one directive, and take partially unrolled loops apart.

Loops that nobody gave a directive are unrolled where they are short and their trips known, as long
as their copies are not too many for the compiler, and rolled where not. Those that choose registers
are unrolled, however long, because registers have no addresses, and say which; under
``default_unroll="rolled"`` no others are.

rewrite::

    for i in [a, b) by 4: f(i)                                           (N = b - a trips)
    ->
    for r in [0, N / 4) rolled: for i in [0, 4) unrolled: f(a + 4 r + i)
    for i in [a + N / 4 * 4, b) rolled: f(i)

With one round or one trip left over there is no loop around it, and nothing is left over where N is
known to be a multiple of 4, as of sizes that are; both loops are rolled, or the compiler would
unroll them again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, ZERO, BinOp, Const, Expr, Var, less, maximum, minimum, variables
from fuser.core.simplify import Facts, is_multiple, prove_non_negative, simplify
from fuser.core.unroll import DefaultUnroll, Unroll
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.scalar import walk
from fuser.kir.stmts import DeclareRegisters, For, If
from fuser.passes.loops import hardware_facts, loop_facts
from fuser.passes.mentions import declared, stmt_scalars, unused
from fuser.passes.register_slots import accesses
from fuser.passes.rewrite import map_bodies, substitute_body

Body = tuple[Stmt, ...]

MAX_COPIES = 1024
"""Of one loop."""
MOST_SIZE = 4096
"""Operations of a loop that is unrolled by choice. NVVM leaves one of more than 16384 instructions
rolled, and ptxas then does with it what it likes.
"""


def register_arrays(body: Body) -> frozenset[str]:
    """Return the names of the register arrays that a body declares."""
    return frozenset(s.name for s in walk_stmts(body) if isinstance(s, DeclareRegisters))


def chosen_registers(loop: For, registers: frozenset[str]) -> str | None:
    """Return a register array of which the loop's variable chooses an element."""
    for stmt in walk_stmts(loop.body):
        for name, index in accesses(stmt):
            if name in registers and loop.var in variables(index):
                return name
    return None


def size_of(body: Body) -> int:
    """Return the operations of a body, when its unrolled loops are."""
    count = 0
    for stmt in body:
        repeated = isinstance(stmt, For) and stmt.unroll.kind in ("auto", "full")
        times = (stmt.trip() or 1) if isinstance(stmt, For) and repeated else 1
        count += 1 + sum(1 for value in stmt_scalars(stmt) for _ in walk(value))
        count += times * sum(size_of(nested) for nested in stmt.bodies())
    return count


# ---- one directive for every loop ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResolveUnroll:
    """See the module: afterwards no loop is ``auto``."""

    default: DefaultUnroll

    name: ClassVar[str] = "resolve-unroll"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite the kernel's body."""
        body = self.body(kernel.body, register_arrays(kernel.body))
        return kernel if body == kernel.body else replace(kernel, body=body)

    def body(self, body: Body, registers: frozenset[str]) -> Body:
        """Rewrite the loops of a body."""
        return tuple(self.stmt(stmt, registers) for stmt in body)

    def stmt(self, stmt: Stmt, registers: frozenset[str]) -> Stmt:
        """Rewrite one statement."""
        stmt = map_bodies(stmt, partial(self.body, registers=registers))
        if not isinstance(stmt, For) or stmt.unroll.origin:
            return stmt
        array = chosen_registers(stmt, registers) or ""
        if stmt.unroll.kind != "auto":
            return replace(stmt, unroll=replace(stmt.unroll, registers=array))
        trips = stmt.trip()
        if array:
            full = trips is not None and trips <= MAX_COPIES
        else:
            full = self.default == "auto" and stmt.is_unrolled() and size_of((stmt,)) <= MOST_SIZE
        return replace(stmt, unroll=Unroll("full" if full else "rolled", registers=array))


# ---- partially unrolled loops --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SplitPartial:
    """See the module: afterwards no loop is ``partial``."""

    facts: Facts

    name: ClassVar[str] = "split-partial"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite the kernel's body."""
        loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For)]
        if all(loop.unroll.kind != "partial" for loop in loops):
            return kernel
        splitter = _Splitter(declared(kernel), not kernel.rings)
        return replace(kernel, body=splitter.body(kernel.body, hardware_facts(kernel, self.facts)))


@dataclass(frozen=True, slots=True)
class _Splitter:
    """State of one kernel.

    Attributes
    ----------
    taken
        Names that are not free.
    trusts_sizes
        Leave out what no size of the shape class leaves over. Rings are checked for any number of
        trips, and keep it.
    """

    taken: frozenset[str]
    trusts_sizes: bool

    def body(self, body: Body, facts: Facts) -> Body:
        """Rewrite the loops of a body."""
        return tuple(part for stmt in body for part in self.stmt(stmt, facts))

    def stmt(self, stmt: Stmt, facts: Facts) -> Body:
        """Rewrite one statement, inner loops first."""
        match stmt:
            case For():
                inner = loop_facts(stmt, stmt.extent, facts)
                loop = replace(stmt, body=self.body(stmt.body, inner))
                return self.split(loop, facts) if loop.unroll.kind == "partial" else (loop,)
            case If(cond, body, orelse):
                held = facts.with_guard(cond)
                return (If(cond, self.body(body, held), self.body(orelse, facts)),)
            case _:
                return (map_bodies(stmt, lambda body: self.body(body, facts)),)

    def split(self, loop: For, facts: Facts) -> Body:
        """Return the loop over rounds and the loop over what is left."""
        n = loop.unroll.factor
        if loop.step != ONE:
            raise ScheduleError(
                f"{loop.unroll.origin or loop.var} has the directive {loop.unroll.directive}, and "
                f"its loop has step {loop.step!r}; needed 1: {Unroll('rolled').directive}, or an "
                "axis that no threads share"
            )
        trips, most = trip_count(loop, facts)
        rolled = replace(loop.unroll, kind="rolled")
        if most is not None and most < n:
            alone = replace(loop, unroll=replace(rolled, factor=1))
            return self.loop(alone, loop.trip(), most)
        rounds = simplify(trips // n, facts)
        name = unused(f"{loop.var}_round", self.taken)
        first = loop.start + Var(name) * n
        copies = For(
            loop.var, Const(n), substitute_body(loop.body, {loop.var: first + Var(loop.var)}),
            replace(loop.unroll, kind="full", factor=1),
        )  # fmt: skip
        main = For(name, rounds, (copies,), rolled, label=loop.label, outlined=loop.outlined)
        rest = replace(loop, start=simplify(loop.start + rounds * n, facts), unroll=rolled)
        known = trips.value if isinstance(trips, Const) else None
        over = None if known is None else known % n
        if self.trusts_sizes and is_whole(trips, n, facts):
            over = 0
        return (
            *self.loop(main, None if known is None else known // n, None),
            *self.loop(rest, over, n - 1),
        )

    def loop(self, loop: For, trips: int | None, most: int | None) -> Body:
        """Return a loop of `trips` trips, if they are known, else of at most `most`."""
        once = substitute_body(loop.body, {loop.var: loop.start})
        if trips == 0:
            return ()
        if trips == 1:
            return once
        if trips is None and most == 1:
            return (If(less(loop.start, loop.extent), once),)
        return (loop,)


def is_whole(trips: Expr, n: int, facts: Facts) -> bool:
    """Return whether trips are known to be a multiple of `n`, as those over known tiles may be."""
    match trips:
        case BinOp("/", size, Const(tile)):
            return is_multiple(size, tile * n, facts)
        case _:
            return is_multiple(trips, n, facts)


def trip_count(loop: For, facts: Facts) -> tuple[Expr, int | None]:
    """Return the trips of a loop of step 1, and the most that there can be, as far as known."""
    known = loop.trip()
    if known is not None:
        return Const(known), known
    trips = simplify(loop.extent - loop.start, facts)
    match loop.start:
        case BinOp("max", cut, Const(0)):  # the last trips of a pipeline, or all where they are few
            ahead = simplify(loop.extent - cut, facts)
            trips = minimum(ahead, loop.extent) if isinstance(ahead, Const) else trips
        case _:
            pass
    bound: int | None = None
    other = trips
    match trips:
        case BinOp("min", Const(most), rest) | BinOp("min", rest, Const(most)):
            bound, other = most, rest
        case _:
            pass
    return (trips if prove_non_negative(other, facts) else maximum(trips, ZERO)), bound
