"""Vector axes that the user asked for: one wide access, or an error that says why not."""

from __future__ import annotations

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError
from fuser.core.expr import TRUE, ZERO, Expr, substitute
from fuser.core.simplify import Facts, coefficient_of, is_multiple, simplify
from fuser.kir.core import Stmt, walk_stmts
from fuser.kir.scalar import Element
from fuser.kir.stmts import Store
from fuser.passes.state import Lowering
from fuser.schedule.kinds import ParallelType


def demand_whole(
    var: str, extent: int, body: tuple[Stmt, ...], guard: Expr, facts: Facts, state: Lowering
) -> None:
    """Raise `ScheduleError` unless every copy and store of a vector loop is one access.

    Arithmetic on other operands is not meant: those are read as wide as they can be.

    Parameters
    ----------
    guard
        What remains of the loop's guard when whole vectors are told from the last, partial one.
    """
    for stmt in walk_stmts(body):
        if not isinstance(stmt, Store):
            continue
        value = stmt.value
        if isinstance(value, Element) and value.fill is None:  # a filled read is no plain copy
            check = _Access(var, extent, facts, state, stmt.memory, value.memory, value.dtype)
            check.demand(value.index, value.guard if guard == TRUE else guard)
        dtype = memory_dtype(state, stmt.memory)
        if dtype is not None:
            check = _Access(var, extent, facts, state, stmt.memory, stmt.memory, dtype)
            check.demand(stmt.index, guard)


def memory_dtype(state: Lowering, memory: str) -> DataType | None:
    """Return the dtype of a global or shared memory; None for registers."""
    if memory in state.layouts:
        return state.nest.graph.value(memory).dtype
    return next((s.dtype for s in state.shared if s.name == memory), None)


class _Access:
    """One element access of a vector loop."""

    def __init__(
        self,
        var: str,
        extent: int,
        facts: Facts,
        state: Lowering,
        tensor: str,
        memory: str,
        dtype: DataType,
    ) -> None:
        self.var, self.extent, self.facts, self.state = var, extent, facts, state
        self.tensor, self.memory, self.dtype = tensor, memory, dtype

    def demand(self, index: Expr, guard: Expr) -> None:
        """Raise `ScheduleError` unless the access can be as wide as the axis."""
        if memory_dtype(self.state, self.memory) is None:
            return  # registers
        why = self.obstacle(index, guard)
        if why is None:
            return
        nbytes = self.extent * self.dtype.nbytes
        raise ScheduleError(
            f"{self.tensor}: vectorize of axis {self.axis()}, {self.extent} x {self.dtype.short}: "
            f"{why}; one access of {nbytes} bytes is needed"
        )

    def axis(self) -> str:
        """Return the position of the vector axis in the tensor's loop domain."""
        ts = self.state.nest.schedule.tensors.get(self.tensor)
        loop = () if ts is None else ts.domain.loop
        vector = [j for j, d in enumerate(loop) if d.parallel is ParallelType.vectorize]
        return str(vector[0]) if vector else "?"

    def obstacle(self, index: Expr, guard: Expr) -> str | None:
        """Return why the access is narrower than the axis; None when it is not."""
        if guard != TRUE:
            return f"{self.memory} is accessed under the condition {guard!r}, not the same for all"
        step = coefficient_of(index, self.var, self.facts)
        if step != 1:
            apart = "not at equal distances" if step is None else f"{step} apart"
            return f"neighbours are {apart} in {self.memory}, at index {index!r}"
        layout = self.state.layouts.get(self.memory)
        nbytes = self.extent * self.dtype.nbytes
        if layout is not None and layout.aligned_bytes < nbytes:
            return f"{self.memory} is aligned to {layout.aligned_bytes} bytes"
        base = simplify(substitute(index, {self.var: ZERO}), self.facts)
        if not is_multiple(base, self.extent, self.facts):
            return f"index {base!r} of {self.memory} is no multiple of {self.extent} for every size"
        return None
