"""Move loops that shall be in a device function of their own into one.

rewrite::

    acc = 0; for t in [0, 4): acc += x[i + t]
    ->
    float f(const float* x, idx i, float acc) { for t in [0, 4): acc += x[i + t]; return acc; }
    acc = 0; acc = f(x, i, acc)

The function is given the names of the kernel that the loop mentions. It can return one scalar;
registers with an index have no address that could be passed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError
from fuser.core.expr import variables
from fuser.kir.core import Kernel, ScalarParam, Stmt, TensorParam, walk_stmts
from fuser.kir.scalar import Ref, walk
from fuser.kir.stmts import Assign, DeclareScalar, Define, For, Outlined
from fuser.kir.stmts.outlined import Argument
from fuser.passes.mentions import DEFINES, declared, memories_of, stmt_exprs, stmt_scalars, unused
from fuser.passes.rewrite import map_bodies
from fuser.passes.unroll import register_arrays

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class OutlineLoops:
    """See the module."""

    name: ClassVar[str] = "outline"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite the kernel's body."""
        if not any(isinstance(s, For) and s.outlined for s in walk_stmts(kernel.body)):
            return kernel
        return replace(kernel, body=_Outliner(kernel, declared(kernel), []).body(kernel.body))


@dataclass(frozen=True, slots=True)
class _Outliner:
    kernel: Kernel
    taken: frozenset[str]
    names: list[str]

    def body(self, body: Body) -> Body:
        """Rewrite every statement."""
        return tuple(self.stmt(stmt) for stmt in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        """Rewrite one statement; a function has no function inside."""
        if not isinstance(stmt, For) or not stmt.outlined:
            return map_bodies(stmt, self.body)
        name = f"{self.kernel.name}_{stmt.var}_{len(self.names)}"
        self.names.append(unused(name, self.taken))
        changed = self.changed(stmt)
        arguments = (*self.memories(stmt), *self.scalars(stmt), *indices(stmt))
        body = (replace(stmt, outlined=""),)
        if not changed:
            return Outlined(self.names[-1], arguments, body)
        ((scalar, dtype),) = changed.items()
        return Outlined(self.names[-1], arguments, body, scalar, dtype)

    def changed(self, loop: For) -> dict[str, DataType]:
        """Return the scalar from around the loop that it changes."""
        around = {
            s.name: s.dtype for s in walk_stmts(self.kernel.body) if isinstance(s, DeclareScalar)
        }
        inside = {s.name for s in walk_stmts(loop.body) if isinstance(s, DeclareScalar)}
        names: dict[str, DataType] = {}
        for stmt in walk_stmts(loop.body):
            name = getattr(stmt, "name", "")
            if isinstance(stmt, DeclareScalar) or name not in around or name in inside:
                continue
            if not isinstance(stmt, Assign):
                raise ScheduleError(
                    f"{loop.outlined} is outlined, and its threads meet in it to reduce {name}; "
                    "needed a loop that one thread runs by itself"
                )
            names[name] = around[name]
        if len(names) > 1:
            raise ScheduleError(
                f"{loop.outlined} is outlined and changes {', '.join(names)}; a function returns "
                "one scalar: compute them in loops of their own"
            )
        return names

    def memories(self, loop: For) -> tuple[Argument, ...]:
        """Return the pointers that a loop reads or writes through."""
        types = {s.name: f"{s.dtype.cuda}*" for s in self.kernel.shared}
        for p in self.kernel.params:
            if isinstance(p, TensorParam):
                const = "const " if p.mode == "in" else ""
                restrict = "" if p.aliased else " __restrict__"
                types[p.name] = f"{const}{p.dtype.cuda}*{restrict}"
        own = register_arrays(loop.body)
        used = sorted(memories_of(loop.body) - own)
        for name in used:
            if name not in types:
                raise ScheduleError(
                    f"{loop.outlined} is outlined and uses {name}, which is in registers; they "
                    "have no addresses to pass: needed a loop of scalars and memory"
                )
        return tuple(Argument(types[name], name) for name in used)

    def scalars(self, loop: For) -> tuple[Argument, ...]:
        """Return the scalars from around a loop that it reads or changes."""
        dtypes = {p.name: p.dtype for p in self.kernel.params if isinstance(p, ScalarParam)}
        inside: set[str] = set()
        found: dict[str, DataType] = {}
        for stmt in walk_stmts(loop.body):
            for value in stmt_scalars(stmt):
                found |= {n.name: n.dtype for n in walk(value) if isinstance(n, Ref)}
            if isinstance(stmt, Define | DeclareScalar):
                inside.add(stmt.name)
        changed = self.changed(loop)
        return tuple(
            Argument(("" if n in changed else "const ") + dtypes.get(n, d).cuda, n)
            for n, d in (found | changed).items()
            if n not in inside
        )


def indices(loop: For) -> tuple[Argument, ...]:
    """Return the index variables from around a loop that it mentions."""
    used: set[str] = set()
    defined: set[str] = set()
    for stmt in walk_stmts((loop,)):
        for f in fields(stmt):  # type: ignore[arg-type]
            if f.name in ("tensor_map", "barrier"):
                raise ScheduleError(
                    f"{loop.outlined} is outlined, and {type(stmt).__name__} in it belongs to a "
                    "pipeline; needed a loop that computes"
                )
        for e in stmt_exprs(stmt):
            used |= variables(e)
        defined |= {getattr(stmt, f) for f in DEFINES.get(type(stmt), ())}
    return tuple(Argument("const idx", name) for name in sorted(used - defined))
