"""``@fuser.fuse``: a Python function on arrays becomes one fusion per kind of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, TypeAlias, cast

import numpy as np

from fuser.api.arrays import array_kind
from fuser.api.definition import FusionDefinition
from fuser.api.destination import destination, is_array, writing
from fuser.api.tensor import Handle, Scalar, StaticNeededError, Tensor
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.core.expr import variables
from fuser.core.location import caller_location
from fuser.fusion.attrs import SizeAttrs
from fuser.fusion.names import is_valid_name

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced fusion and whether the function returned a tuple."""

    fd: FusionDefinition
    returns_tuple: bool


class FusedFunction:
    """A Python function traced once per kind of its arguments, then executed as a fusion.

    Arrays are symbolic: dtype, rank, extents of 1 and contiguity select the trace. Floats and ints
    are passed at every call, unless the function needs an int while it is traced (a dimension, a
    loop bound, a condition); such an int, and every other argument, is part of the trace. So are
    the extents of an array whose ``shape`` decides such a thing: a trace per shape.

    Of a method, the object is such an argument: what the function reads of it is read when it is
    traced, once per object.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise DefinitionError(
                f"fuse: got {function!r}, a {type(function).__name__}; a function of arrays is "
                f"needed{', inside the classmethod' * isinstance(function, classmethod)}",
                caller_location(),
            )
        self.function = function
        self._static: set[Path] = set()
        self._traces: dict[Hashable, Trace] = {}
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the fusion on arrays; inside another trace, call the function itself."""
        if destination(args, kwargs) is not None:
            return self.function(*args, **kwargs)
        trace, inputs = self._traced(args, kwargs)
        outputs = trace.fd.execute(inputs)
        return tuple(outputs) if trace.returns_tuple else outputs[0]

    def __get__(self, instance: Any, owner: type | None = None) -> FusedFunction | FusedMethod:
        """Bind the object that a method is looked up on, as functions do."""
        if instance is None or isinstance(self.function, staticmethod):
            return self
        return FusedMethod(self, instance)

    def definition(self, *args: Any, **kwargs: Any) -> FusionDefinition:
        """Return the fusion that these arguments run."""
        return self._traced(args, kwargs)[0].fd

    def _traced(self, args: Any, kwargs: Any) -> tuple[Trace, list[Any]]:
        leaves = dict(_leaves((), {"": args, **kwargs}))
        while True:
            inputs = {p: x for p, x in leaves.items() if self._is_input(p, x)}
            key = tuple((p, _key(x, p in inputs, p in self._static)) for p, x in leaves.items())
            trace = self._traces.get(key)
            if trace is None:
                try:
                    trace = self._traces[key] = self._trace(args, kwargs, inputs)
                except _Retry as retry:
                    self._static |= retry.paths
                    continue
            return trace, list(inputs.values())

    def _is_input(self, path: Path, leaf: Any) -> bool:
        if is_array(leaf):
            return True
        return type(_number(leaf)) in (int, float) and path not in self._static

    def _trace(self, args: Any, kwargs: Any, inputs: dict[Path, Any]) -> Trace:
        fd = FusionDefinition(numpy_broadcasting=True)
        handles = {p: _define(fd, leaf, p in self._static) for p, leaf in inputs.items()}
        tree = _replaced((), {"": args, **kwargs}, handles)
        positional = tree.pop("")
        try:
            with writing(fd):
                result = self.function(*positional, **tree)
        except StaticNeededError as error:
            paths = _inputs_of(error.scalar, handles)
            if paths <= self._static:
                raise
            raise _Retry(paths) from None
        several = isinstance(result, list | tuple)
        outputs: list[Any] = list(cast("Sequence[Any]", result)) if several else [result]
        for output in outputs:
            if not isinstance(output, Tensor):
                raise DefinitionError(
                    f"{self.function.__name__}: returned {output!r}; a tensor or a tuple of "
                    "tensors is needed"
                )
            fd.add_output(output)
        fd.finish(self._names(positional, tree))
        return Trace(fd, several)

    def _names(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that hold one tensor or scalar each."""
        bound = inspect.signature(self.function).bind(*args, **kwargs).arguments
        held = {name: item for name, item in bound.items() if isinstance(item, Handle)}
        return {name: item for name, item in held.items() if is_valid_name(name)}


@dataclass(frozen=True, slots=True)
class FusedMethod:
    """A `FusedFunction` of a class, bound to an object of it."""

    fused: FusedFunction
    instance: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the fusion on arrays, with the object as the first argument."""
        return self.fused(self.instance, *args, **kwargs)

    def definition(self, *args: Any, **kwargs: Any) -> FusionDefinition:
        """Return the fusion that these arguments run."""
        return self.fused.definition(self.instance, *args, **kwargs)


def fuse(function: Callable[..., Any]) -> FusedFunction:
    """Make `function` run as one fusion.

    ``rewrite::``

        @fuser.fuse
        def silu_mul(x, y):
            return fuser.ops.silu(x) * y

        out = silu_mul(x_array, y_array)
    """
    return FusedFunction(function)


class _Retry(Exception):
    """The trace needs some scalar inputs, or extents of some tensors, as numbers."""

    def __init__(self, paths: set[Path]) -> None:
        super().__init__(paths)
        self.paths = paths


def _inputs_of(scalar: Scalar, handles: dict[Path, Any]) -> set[Path]:
    """Return which scalar inputs, and extents of which tensors, `scalar` is computed from."""
    graph = scalar.fd.fusion
    values = [graph.value(name) for name in graph.ancestors((scalar.name,))]
    names = {value.name for value in values}
    sizes = [v.attrs.expr for v in values if isinstance(v.attrs, SizeAttrs)]
    extents = frozenset[str]().union(*map(variables, sizes))
    return {p for p, h in handles.items() if h.name in names or extents & _extents_of(h)}


def _extents_of(handle: Handle) -> frozenset[str]:
    return frozenset[str]().union(*map(variables, handle.value.shape))


def _leaves(path: Path, tree: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(tree, dict):
        named: dict[str, Any] = cast("Any", tree)
        for name, item in named.items():
            yield from _leaves((*path, name), item)
    elif isinstance(tree, list | tuple):
        items: Sequence[Any] = cast("Any", tree)
        yield (*path, "len"), f"{'list' if isinstance(tree, list) else 'tuple'} {len(items)}"
        for i, item in enumerate(items):
            yield from _leaves((*path, i), item)
    else:
        yield path, tree


def _replaced(path: Path, tree: Any, handles: dict[Path, Any]) -> Any:
    if isinstance(tree, dict):
        named: dict[str, Any] = cast("Any", tree)
        return {name: _replaced((*path, name), item, handles) for name, item in named.items()}
    if isinstance(tree, list | tuple):
        given: Sequence[Any] = cast("Any", tree)
        items = [_replaced((*path, i), item, handles) for i, item in enumerate(given)]
        return items if isinstance(tree, list) else tuple(items)
    return handles.get(path, tree)


def _key(leaf: Any, is_input: bool, static: bool) -> Hashable:
    if is_array(leaf):
        kind = array_kind(leaf)
        return (kind.key, kind.sizes) if static else kind.key
    if is_input:
        return type(_number(leaf)).__name__
    key: Hashable = leaf if isinstance(leaf, Hashable) else repr(leaf)
    return type(leaf).__name__, key


def _number(leaf: Any) -> Any:
    """Turn a NumPy scalar into the Python number it stands for."""
    scalar: Any = leaf
    return scalar.item() if isinstance(leaf, np.generic) else scalar


def _define(fd: FusionDefinition, leaf: Any, static: bool) -> Any:
    if not is_array(leaf):
        is_int = isinstance(leaf, int | np.integer)
        return fd.define_scalar(DataType.Int if is_int else DataType.Double)
    kind = array_kind(leaf)
    return fd.define_tensor(
        sizes=kind.sizes, strides=kind.strides, dtype=kind.dtype, static_sizes=static
    )
