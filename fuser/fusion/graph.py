"""The fusion graph: values keyed by name, edges keyed by operand index.

The only module that imports networkx, and it does so when edges are first followed forwards or
rewritten: importing networkx takes longer than importing the rest of the package, and a process
that finds the launch of its fusion on disk needs neither.
"""

# pyright: reportImportCycles=false
# (printing and verify read graphs; __str__ and verify() import them when called)

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import Expr, Var, substitute, variables
from fuser.core.location import SourceLocation
from fuser.fusion.attrs import NO_ATTRS, Attrs, ConstantAttrs, attr_exprs, map_exprs
from fuser.fusion.names import is_valid_name
from fuser.ops import BY_NAME

LEAVES = frozenset({"input", "scalar", "constant", "size"})
_PREFIX = {"constant": "c", "size": "n", "scalar": "s"}


@cache
def _networkx() -> ModuleType:
    return import_module("networkx")


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor or scalar (``shape == ()``) of a fusion.

    Attributes
    ----------
    name
        Unique C identifier, kept into the CUDA text.
    op
        ``"input"``, ``"scalar"``, ``"constant"``, ``"size"``, a view op, a pointwise op or a
        reduction.
    shape
        Extents; ``Const(1)`` is a broadcast dimension.
    location
        The user's line; not part of equality.
    """

    name: str
    op: str
    dtype: DataType
    shape: tuple[Expr, ...]
    attrs: Attrs = NO_ATTRS
    location: SourceLocation | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Output:
    """The value called `value` leaves the fusion, into the memory of `alias_of` if given."""

    value: str
    alias_of: str | None = None


@dataclass(frozen=True, slots=True)
class Constraint:
    """Two extents that must agree when sizes are bound."""

    lhs: Expr
    rhs: Expr
    why: str
    location: SourceLocation | None = None


class FusionGraph:
    """The DAG of values of one fusion, its outputs and its constraints.

    Values are immutable records: after a mutation look them up again by name.
    """

    def __init__(self) -> None:
        self._drawn: Any = None
        self._values: dict[str, Value] = {}
        self._outputs: list[Output] = []
        self._constraints: dict[tuple[Expr, Expr], Constraint] = {}
        self._order: tuple[Value, ...] | None = ()
        self._operands: dict[str, tuple[str, ...]] = {}
        self._scalars: set[str] = set()
        self._key: tuple[Any, ...] | None = None
        self._count = 0

    # ---- reading -------------------------------------------------------------------------

    def __repr__(self) -> str:
        outputs = ", ".join(output.value for output in self._outputs) or "none"
        return f"<FusionGraph: {len(self)} values, outputs {outputs}>"

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __len__(self) -> int:
        return len(self._values)

    def value(self, name: str) -> Value:
        """Return the value called `name`; raise `VerifyError` if there is none."""
        try:
            return self._values[name]
        except KeyError:
            raise VerifyError(
                f"fusion: no value called {name!r}; it has {', '.join(self._values) or 'none'}"
            ) from None

    @property
    def values(self) -> tuple[Value, ...]:
        """All values, operands before users; definition order wherever that is possible."""
        if self._order is None:
            position = {name: i for i, name in enumerate(self._values)}
            sort = _networkx().lexicographical_topological_sort
            order = sort(self._edges, key=position.__getitem__)
            self._order = tuple(self._values[name] for name in order)
        return self._order

    def operands(self, value: Value | str) -> tuple[Value, ...]:
        """Return the operands of `value` in operand order."""
        return tuple(self._values[name] for name in self.operand_names(value))

    def operand_names(self, value: Value | str) -> tuple[str, ...]:
        """Return the names of the operands of `value` in operand order."""
        name = _name(value)
        try:
            return self._operands[name]
        except KeyError:
            return self._operands[self.value(name).name]

    def uses(self, value: Value | str) -> tuple[tuple[Value, int], ...]:
        """Return ``(user, operand index)`` of every use of `value`."""
        edges = self._edges.out_edges(_name(value), keys=True)
        return tuple((self._values[user], index) for _, user, index in edges)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Input tensors and scalars in definition order."""
        return tuple(v for v in self._values.values() if v.op in ("input", "scalar"))

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What leaves the fusion, in order."""
        return tuple(self._outputs)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Extents that must agree at run time."""
        return tuple(self._constraints.values())

    def is_scalar(self, value: Value | str) -> bool:
        """Whether `value` is computed from scalars only, so that it promotes weakly."""
        return _name(value) in self._scalars

    def ancestors(self, names: Iterable[str]) -> frozenset[str]:
        """Return `names` and everything they are computed from."""
        seen: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo.extend(self.operand_names(name))
        return frozenset(seen)

    @property
    def _edges(self) -> Any:
        """The networkx graph: an edge a use, its key the operand index; drawn when first asked."""
        if self._drawn is None:
            self._drawn = _networkx().MultiDiGraph()
            for name, operands in self._operands.items():
                self._draw(name, operands)
        return self._drawn

    def _draw(self, name: str, operands: Iterable[str]) -> None:
        self._drawn.add_node(name)
        for index, operand in enumerate(operands):
            self._drawn.add_edge(operand, name, key=index)

    # ---- writing -------------------------------------------------------------------------

    def add(
        self,
        op: str,
        operands: Sequence[Value | str],
        dtype: DataType,
        shape: tuple[Expr, ...],
        attrs: Attrs = NO_ATTRS,
        name: str | None = None,
        location: SourceLocation | None = None,
    ) -> Value:
        """Add a value and return it; raise `VerifyError` on a bad name or unknown operand."""
        name = self.fresh(_PREFIX.get(op, "t")) if name is None else self._checked(name)
        names = tuple(_name(operand) for operand in operands)
        for operand in names:
            if operand not in self._values:
                raise VerifyError(f"{op} {name}: operand {operand!r} is not in the fusion")
        value = Value(name, op, dtype, shape, attrs, location)
        if self._drawn is not None:
            self._draw(name, names)
        self._values[name] = value
        self._count += 1
        self._operands[name] = names
        self._note_scalar(value)
        self._order = None if self._order is None else (*self._order, value)
        self._key = None
        return value

    def _note_scalar(self, value: Value) -> None:
        computed = value.op == "cast" or value.op in BY_NAME
        known = all(name in self._scalars for name in self._operands[value.name])
        if value.op in LEAVES - {"input"} or (computed and known):
            self._scalars.add(value.name)

    def fresh(self, prefix: str) -> str:
        """Return a name that is not taken, e.g. ``t3`` for prefix ``t``; it is not reserved."""
        while (name := f"{prefix}{self._count}") in self._values:
            self._count += 1
        return name

    def _checked(self, name: str) -> str:
        if name in self._values:
            raise VerifyError(f"fusion: a second value called {name!r}; names are unique")
        if not is_valid_name(name):
            raise VerifyError(f"fusion: {name!r} cannot name a value in CUDA C++")
        return name

    def add_output(self, value: Value | str, alias_of: str | None = None) -> None:
        """Append an output."""
        self._outputs.append(Output(self.value(_name(value)).name, alias_of))
        self._key = None

    def set_outputs(self, outputs: Iterable[Output]) -> None:
        """Replace all outputs."""
        self._outputs = list(outputs)
        self._key = None

    def constrain(
        self, lhs: Expr, rhs: Expr, why: str, location: SourceLocation | None = None
    ) -> None:
        """Record that two extents must agree; the first reason for a pair is kept."""
        if lhs != rhs and (lhs, rhs) not in self._constraints:
            self._constraints[lhs, rhs] = Constraint(lhs, rhs, why, location)
            self._key = None

    def replace_operand(self, user: Value | str, index: int, new: Value | str) -> None:
        """Make operand `index` of `user` the value `new`; raise `VerifyError` on a cycle."""
        user_name, new_name = _name(user), self.value(_name(new)).name
        old = self.operand_names(user_name)
        if index >= len(old):
            raise VerifyError(f"{user_name}: has {len(old)} operands; operand {index} was asked")
        if user_name in self.ancestors((new_name,)):
            raise VerifyError(f"{user_name}: operand {new_name} is computed from it; a cycle")
        self._edges.remove_edge(old[index], user_name, key=index)
        self._edges.add_edge(new_name, user_name, key=index)
        self._operands[user_name] = (*old[:index], new_name, *old[index + 1 :])
        self._order = self._key = None
        self._scalars.clear()
        for value in self.values:
            self.operand_names(value)
            self._note_scalar(value)

    def replace_attrs(self, value: Value | str, attrs: Attrs) -> None:
        """Give a value other attributes; dtype and shape stay."""
        name = _name(value)
        self._values[name] = replace(self.value(name), attrs=attrs)
        self._order = self._key = None

    def remove(self, value: Value | str) -> None:
        """Remove a value that has no uses and is no output."""
        name = _name(value)
        if self.uses(name) or any(name in (o.value, o.alias_of) for o in self._outputs):
            raise VerifyError(f"fusion: {name} is used; only unused values can be removed")
        self._edges.remove_node(name)
        del self._values[name]
        del self._operands[name]
        self._scalars.discard(name)
        self._order = self._key = None

    def rename(self, old: str, new: str) -> None:
        """Rename one value; see `rename_all`."""
        self.rename_all({old: new})

    def rename_all(self, names: Mapping[str, str]) -> None:
        """Rename values and their size and stride variables, all at once."""
        names = {old: new for old, new in names.items() if old != new}
        kept = self._values.keys() - names.keys()
        for old, new in names.items():
            self.value(old)
            if new in kept or not is_valid_name(new):
                raise VerifyError(f"fusion: {old} cannot be renamed {new!r}; taken or reserved")
        if len(set(names.values())) != len(names):
            raise VerifyError(f"fusion: two values would get one name in {dict(names)}")
        if names:
            self._rebuild(names)

    def _rebuild(self, names: Mapping[str, str]) -> None:
        rewrite = renamer(names)
        edges = {name: self.operand_names(name) for name in self._values}
        renamed = {
            v.name: replace(
                v,
                name=names.get(v.name, v.name),
                shape=tuple(rewrite(e) for e in v.shape),
                attrs=map_exprs(v.attrs, rewrite),
            )
            for v in self._values.values()
        }
        order = self._order
        if self._drawn is not None:
            self._drawn = _networkx().relabel_nodes(self._drawn, dict(names), copy=True)
        self._values = {v.name: v for v in renamed.values()}
        self._operands = {
            names.get(user, user): tuple(names.get(o, o) for o in operands)
            for user, operands in edges.items()
        }
        self._scalars = {names.get(name, name) for name in self._scalars}
        self._order = None if order is None else tuple(renamed[v.name] for v in order)
        self._outputs = [
            Output(names.get(o.value, o.value), o.alias_of and names.get(o.alias_of, o.alias_of))
            for o in self._outputs
        ]
        constraints = self.constraints
        self._constraints = {}
        for c in constraints:
            why = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), c.why)
            self.constrain(rewrite(c.lhs), rewrite(c.rhs), why, c.location)

    def copy(self) -> FusionGraph:
        """Return an independent copy."""
        new = FusionGraph()
        new._drawn = None if self._drawn is None else self._drawn.copy()
        new._values = dict(self._values)
        new._outputs = list(self._outputs)
        new._constraints = dict(self._constraints)
        new._order, new._key, new._count = self._order, self._key, self._count
        new._operands = dict(self._operands)
        new._scalars = set(self._scalars)
        return new

    # ---- identity ------------------------------------------------------------------------

    def structure(self) -> tuple[Any, ...]:
        """Return everything that matters to the result, with names replaced by positions.

        Values that no output needs and that are not inputs do not count.
        """
        if self._key is None:
            self._key = self._structure()
        return self._key

    def _structure(self) -> tuple[Any, ...]:
        live = self.ancestors((*(o.value for o in self._outputs), *(v.name for v in self.inputs)))
        position: dict[str, str] = {}
        for root in (*(v.name for v in self.inputs), *(o.value for o in self._outputs)):
            self._number(root, position)
        rewrite = renamer(position)
        rows = tuple(
            (
                v.op, v.dtype, tuple(rewrite(e) for e in v.shape), _attrs_key(v.attrs, rewrite),
                tuple(position[o] for o in self.operand_names(v)),
            )
            for v in (self._values[name] for name in position)
            if v.name in live
        )  # fmt: skip
        outputs = tuple((position[o.value], position.get(o.alias_of or "")) for o in self._outputs)
        constraints = frozenset((rewrite(c.lhs), rewrite(c.rhs)) for c in self.constraints)
        return rows, outputs, constraints

    def _number(self, root: str, position: dict[str, str]) -> None:
        todo = [root]
        while todo:
            name = todo[-1]
            missing = [o for o in self.operand_names(name) if o not in position]
            if missing:
                todo.extend(reversed(missing))
            else:
                todo.pop()
                position.setdefault(name, f"v{len(position)}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FusionGraph):
            return NotImplemented
        return self.structure() == other.structure()

    def __hash__(self) -> int:
        return hash(self.structure())

    def __str__(self) -> str:
        from fuser.fusion.printing import to_text

        return to_text(self)

    def verify(self) -> None:
        """Raise `VerifyError` when an invariant of the graph does not hold."""
        from fuser.fusion.verify import verify

        verify(self)

    def extent_variables(self) -> frozenset[str]:
        """Return every variable named by shapes, attributes and constraints."""
        exprs = [e for v in self._values.values() for e in (*v.shape, *attr_exprs(v.attrs))]
        exprs += [e for c in self.constraints for e in (c.lhs, c.rhs)]
        return frozenset(name for e in exprs for name in variables(e))


def _name(value: Value | str) -> str:
    return value if isinstance(value, str) else value.name


def _attrs_key(attrs: Attrs, rewrite: Callable[[Expr], Expr]) -> tuple[Any, ...]:
    """Distinguish ``1``, ``1.0`` and ``True``, ``0.0`` and ``-0.0``; let nan equal itself."""
    if isinstance(attrs, ConstantAttrs):
        return (type(attrs.value).__name__, repr(attrs.value), attrs.weak)
    return (type(attrs).__name__, map_exprs(attrs, rewrite))


def renamer(names: Mapping[str, str]) -> Callable[[Expr], Expr]:
    """Return a function that renames the variables ``x``, ``x_size0`` and ``x_stride0`` of `x`."""
    memo: dict[Expr, Expr] = {}

    def rewrite(e: Expr) -> Expr:
        found = memo.get(e)
        if found is None:
            env: dict[str, Expr] = {v: Var(_renamed(v, names)) for v in variables(e)}
            found = memo[e] = substitute(e, env) if env else e
        return found

    return rewrite


def _renamed(variable: str, names: Mapping[str, str]) -> str:
    for kind in ("_size", "_stride"):
        stem, separator, index = variable.rpartition(kind)
        if separator and index.isdigit():
            return f"{names.get(stem, stem)}{kind}{index}"
    return names.get(variable, variable)
