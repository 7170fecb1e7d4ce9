"""Operations that move elements without computing: broadcast, reshape, permute, slice, pad, cat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from fuser.api.builder import Builder
from fuser.api.extents import (
    difference,
    steps,
    to_dim,
    to_dims,
    to_expr,
    to_shape,
)
from fuser.api.indexing import parse_index
from fuser.api.recording import recorded
from fuser.api.slicing import slice_range
from fuser.api.tensor import Extent, Index, Operand, Scalar, Tensor, Vector
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.core.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    maximum,
    minimum,
    product,
)
from fuser.fusion.attrs import (
    BroadcastAttrs,
    CatAttrs,
    ExpandAttrs,
    PadAttrs,
    PermuteAttrs,
    ReshapeAttrs,
    SizeAttrs,
    SliceAttrs,
    SqueezeAttrs,
    UnfoldAttrs,
)
from fuser.fusion.graph import Value
from fuser.fusion.shapes import canonical, quotient, shape_text


class ViewOps:
    """View operations and sizes of one definition."""

    definition: Builder

    # ---- sizes ---------------------------------------------------------------------------

    @recorded
    def size(self, a: Tensor, dim: int) -> Scalar:
        """Return the extent of dimension `dim` as an Int scalar."""
        value = self.definition.tensor("size", a)
        extent = value.shape[to_dim(dim, value.rank, f"size of {value.name}")]
        return self._scalar(extent)

    @recorded
    def shape(self, a: Tensor) -> Vector:
        """Return all extents as Int scalars."""
        value = self.definition.tensor("shape", a)
        return Vector(self._scalar(extent) for extent in value.shape)

    def _scalar(self, extent: Expr) -> Scalar:
        result: Scalar = self.definition.emit("size", (), DataType.Int, (), SizeAttrs(extent))
        return result

    # ---- broadcasting --------------------------------------------------------------------

    @recorded
    def broadcast_in_dim(
        self, a: Tensor, shape: Sequence[Extent], broadcast_dims: Sequence[int]
    ) -> Tensor:
        """Place dimension ``i`` of `a` at ``broadcast_dims[i]`` of `shape`; repeat along the rest.

        Dimensions of extent 1 stretch to the extent of `shape`.
        """
        fd = self.definition
        value = fd.operand("broadcast_in_dim", a)
        what = f"broadcast_in_dim of {value.name}"
        target = to_shape(fd.fusion, shape, what)
        dims = to_dims(list(broadcast_dims), len(target), what)
        if len(dims) != value.rank or list(dims) != sorted(dims):
            raise DefinitionError(
                f"{what}: broadcast_dims is {list(broadcast_dims)}; one ascending dimension for "
                f"each of the {value.rank} of {shape_text(value.shape)} is needed"
            )
        extents = list(target)
        for i, d in enumerate(dims):
            if value.shape[i] != ONE:
                extents[d] = fd.unify(value.shape[i], target[d], f"{what}: dimension {i}")
        return fd.emit_tensor(
            "broadcast_in_dim", (value,), value.dtype, tuple(extents), BroadcastAttrs(dims)
        )

    @recorded
    def broadcast(self, a: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
        """Insert a dimension of extent 1 wherever `is_broadcast_dim` holds."""
        value = self.definition.operand("broadcast", a)
        dims = tuple(d for d, new in enumerate(is_broadcast_dim) if not new)
        if len(dims) != value.rank:
            raise DefinitionError(
                f"broadcast of {value.name}: {list(is_broadcast_dim)} keeps {len(dims)} "
                f"dimensions; the tensor has {value.rank}"
            )
        kept = iter(value.shape)
        shape = tuple(ONE if new else next(kept) for new in is_broadcast_dim)
        return self.definition.emit_tensor(
            "broadcast", (value,), value.dtype, shape, BroadcastAttrs(dims)
        )

    @recorded
    def expand(self, a: Tensor, shape: Sequence[Extent]) -> Tensor:
        """Stretch dimensions of extent 1 to `shape`; -1 keeps a dimension."""
        fd = self.definition
        value = fd.tensor("expand", a)
        what = f"expand of {value.name}"
        if len(shape) != value.rank:
            raise DefinitionError(
                f"{what}: shape has {len(shape)} dimensions; the tensor has {value.rank}"
            )
        kept = [old if _is_minus_one(new) else new
                for old, new in zip(value.shape, shape, strict=True)]  # fmt: skip
        target = to_shape(fd.fusion, kept, what)
        extents = tuple(
            new if old == ONE else fd.unify(old, new, f"{what}: dimension {d}")
            for d, (old, new) in enumerate(zip(value.shape, target, strict=True))
        )
        return fd.emit_tensor("expand", (value,), value.dtype, extents, ExpandAttrs())

    @recorded
    def squeeze(self, a: Tensor, dims: Sequence[int]) -> Tensor:
        """Remove dimensions of extent 1."""
        value = self.definition.tensor("squeeze", a)
        removed = tuple(sorted(to_dims(dims, value.rank, f"squeeze of {value.name}")))
        for d in removed:
            if value.shape[d] != ONE:
                raise DefinitionError(
                    f"squeeze of {value.name}: dimension {d} has extent {value.shape[d]}; 1 is "
                    "needed"
                )
        shape = tuple(e for d, e in enumerate(value.shape) if d not in removed)
        return self.definition.emit_tensor(
            "squeeze", (value,), value.dtype, shape, SqueezeAttrs(removed)
        )

    # ---- reordering ----------------------------------------------------------------------

    @recorded
    def permute(self, a: Tensor, dims: Sequence[int]) -> Tensor:
        """Return dimension ``dims[i]`` of `a` as dimension ``i``."""
        value = self.definition.tensor("permute", a)
        order = to_dims(list(dims), value.rank, f"permute of {value.name}")
        if len(order) != value.rank:
            raise DefinitionError(
                f"permute of {value.name}: dims is {list(dims)}; each of the {value.rank} "
                "dimensions once is needed"
            )
        shape = tuple(value.shape[d] for d in order)
        return self.definition.emit_tensor(
            "permute", (value,), value.dtype, shape, PermuteAttrs(order)
        )

    @recorded
    def reshape(self, a: Tensor, new_shape: Sequence[Extent]) -> Tensor:
        """Keep the elements in row-major order under new extents; one may be -1."""
        fd = self.definition
        value = fd.operand("reshape", a)
        what = f"reshape of {value.name}"
        shape = self._inferred(value, new_shape, what)
        old, new = canonical(value.shape), canonical(shape)
        if not old.factors and not new.factors and old != new:
            raise DefinitionError(
                f"{what}: {shape_text(value.shape)} has {old.coefficient} elements and "
                f"{shape_text(shape)} has {new.coefficient}; they must agree"
            )
        if old != new:
            fd.constrain(product(value.shape), product(shape), f"{what}: number of elements")
        return fd.emit_tensor("reshape", (value,), value.dtype, shape, ReshapeAttrs())

    def _inferred(self, value: Value, new_shape: Sequence[Any], what: str) -> tuple[Expr, ...]:
        unknown = [d for d, e in enumerate(new_shape) if _is_minus_one(e)]
        if len(unknown) > 1:
            raise DefinitionError(f"{what}: {list(new_shape)} has -1 twice; at most one is allowed")
        known = [ONE if d in unknown else e for d, e in enumerate(new_shape)]
        shape = to_shape(self.definition.fusion, known, what)
        if not unknown:
            return shape
        rest = product(shape)
        if rest == ZERO:
            raise DefinitionError(
                f"{what}: -1 in {list(new_shape)} stands next to 0; any extent would do"
            )
        inferred, exact = quotient(value.shape, shape)
        if not exact and not isinstance(rest, Const):
            inferred = product(value.shape) // maximum(rest, 1)
        return (*shape[: unknown[0]], inferred, *shape[unknown[0] + 1 :])

    # ---- parts ---------------------------------------------------------------------------

    @recorded
    def slice(
        self,
        a: Tensor,
        start_indices: Sequence[Extent],
        end_indices: Sequence[Extent],
        strides: Sequence[Extent] | None = None,
        manual_normalization: bool = False,
    ) -> Tensor:
        """Return ``a[start:end:stride, ...]`` with NumPy's treatment of negative and large indices.

        With `manual_normalization` the indices are taken as they are: ``0 <= start <= end``, and
        ``end`` at most the extent, is then the caller's promise.
        """
        value = self.definition.tensor("slice", a)
        what = f"slice of {value.name}"
        strides = [1] * value.rank if strides is None else strides
        for name, given in (("start", start_indices), ("end", end_indices), ("stride", strides)):
            if len(given) != value.rank:
                raise DefinitionError(
                    f"{what}: {len(given)} {name} indices; one for each of the {value.rank} "
                    "dimensions is needed"
                )
        triples = zip(start_indices, end_indices, strides, strict=True)
        return self._sliced(value, [(*t, manual_normalization) for t in triples], what)

    def _sliced(self, value: Value, triples: Sequence[tuple[Any, ...]], what: str) -> Tensor:
        parts = [
            self._range(f"{what}: dimension {d}", extent, *triple)
            for d, (extent, triple) in enumerate(zip(value.shape, triples, strict=True))
        ]
        starts, counts, strides = zip(*parts, strict=True) if parts else ((), (), ())
        return self.definition.emit_tensor(
            "slice", (value,), value.dtype, counts, SliceAttrs(starts, strides)
        )

    def _range(
        self, what: str, extent: Expr, start: Any, end: Any, stride: Any, normalized: bool
    ) -> tuple[Expr, Expr, Expr]:
        """Return ``(first index, count, stride)`` of one dimension."""
        graph = self.definition.fusion
        step = to_expr(graph, 1 if stride is None else stride, f"{what}: stride")
        if isinstance(step, Const) and step.value < 1:
            raise DefinitionError(f"{what}: stride is {step.value}; a positive one is needed")
        first = to_expr(graph, 0 if start is None else start, f"{what}: start")
        last = extent if end is None else to_expr(graph, end, f"{what}: end")
        if normalized:
            return first, steps(difference(last, first), step), step
        first, length = slice_range(first, last, extent)
        return first, steps(length, step), step

    @recorded
    def unfold(self, a: Tensor, dim: int, size: Extent, step: Extent = 1) -> Tensor:
        """Return the windows of `size` elements along `dim`, one every `step` elements.

        Dimension `dim` becomes ``(extent - size) // step + 1`` windows, and their elements are a
        new last dimension: ``y[.., i, .., t] = a[.., i * step + t, ..]``, as of
        ``torch.Tensor.unfold``. Windows overlap where `step` is less than `size`; nothing is
        copied. A loop over the last dimension is a loop over shifted slices.

        Raises
        ------
        DefinitionError
            `size` or `step` is below 1, or `size` is above the extent; what only run-time sizes
            tell is an `InputError` at execution.
        """
        fd = self.definition
        value = fd.tensor("unfold", a)
        what = f"unfold of {value.name}"
        at = to_dim(dim, value.rank, what)
        extent = value.shape[at]
        length = self._positive(size, f"{what}: size")
        stride = self._positive(step, f"{what}: step")
        why = f"{what}: dimension {at} is shorter than a window"
        if isinstance(extent, Const) and isinstance(length, Const):
            if length.value > extent.value:
                raise DefinitionError(f"{why}: the extent is {extent}; at least {length} is needed")
        else:
            fd.constrain(minimum(extent, length), length, why)
        if stride == ONE:
            count = difference(extent + 1, length)
        else:
            count = difference(extent, length) // stride + 1
        shape = (*value.shape[:at], count, *value.shape[at + 1 :], length)
        return fd.emit_tensor("unfold", (value,), value.dtype, shape, UnfoldAttrs(at, stride))

    def _positive(self, given: Extent, what: str) -> Expr:
        """Return an extent of at least 1, as far as it is known."""
        fd = self.definition
        found = to_expr(fd.fusion, given, what)
        if not isinstance(found, Const):
            fd.constrain(minimum(found, 1), ONE, f"{what} is below 1")
        elif found.value < 1:
            raise DefinitionError(f"{what} is {found.value}; at least 1 is needed")
        return found

    @recorded
    def pad(
        self, a: Tensor, widths_last_dim_first: Sequence[Extent], value: Operand | None = None
    ) -> Tensor:
        """Add elements around `a`: ``(before, after)`` of the last dimension, then the one before.

        Negative widths crop. The fill is `value` (0 by default) in the dtype of `a`.
        """
        fd = self.definition
        tensor = fd.tensor("pad", a)
        what = f"pad of {tensor.name}"
        given = [
            to_expr(fd.fusion, w, f"{what}: width {i}") for i, w in enumerate(widths_last_dim_first)
        ]
        if len(given) % 2 or len(given) > 2 * tensor.rank:
            raise DefinitionError(
                f"{what}: {len(given)} widths; a pair for each of at most {tensor.rank} dimensions "
                "is needed"
            )
        pairs = [(given[i], given[i + 1]) for i in range(0, len(given), 2)]
        widths = (*[(ZERO, ZERO)] * (tensor.rank - len(pairs)), *reversed(pairs))
        summed = zip(tensor.shape, widths, strict=True)
        shape = to_shape(fd.fusion, [e + before + after for e, (before, after) in summed], what)
        fill = fd.scalar_operand(what, 0 if value is None else value)
        fd.check_fits(what, fill, tensor.dtype)
        return fd.emit_tensor("pad", (tensor, fill), tensor.dtype, shape, PadAttrs(widths))

    @recorded
    def cat(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Join tensors of one dtype and equal other extents along `dim`."""
        fd = self.definition
        values = [fd.tensor("cat", t) for t in tensors]
        if not values:
            raise DefinitionError("cat: got no tensors; at least one is needed")
        first = values[0]
        axis = to_dim(dim, first.rank, f"cat of {first.name}")
        shape = list(first.shape)
        for other in values[1:]:
            self._check_cat(first, other)
            for d in range(first.rank):
                if d == axis:
                    shape[d] = shape[d] + other.shape[d]
                else:
                    why = f"cat: dimension {d} of {first.name} and {other.name}"
                    shape[d] = fd.unify(shape[d], other.shape[d], why)
        return fd.emit_tensor("cat", values, first.dtype, tuple(shape), CatAttrs(axis))

    def _check_cat(self, first: Value, other: Value) -> None:
        if other.rank != first.rank:
            raise DefinitionError(
                f"cat: {first.name} has {first.rank} dimensions and {other.name} has {other.rank}; "
                "ranks must agree"
            )
        if other.dtype is not first.dtype:
            raise DefinitionError(
                f"cat: {first.name} has dtype {first.dtype.name} and {other.name} has "
                f"{other.dtype.name}; cast them to one"
            )

    @recorded
    def getitem(self, a: Tensor, index: Index | tuple[Index, ...]) -> Tensor:
        """NumPy basic indexing: ints, slices with positive steps, ``None`` and ``...``."""
        value = self.definition.tensor("getitem", a)
        selection = parse_index(value, index)
        result = a
        if selection.slices is not None:
            triples = [self._selected(value, d, part) for d, part in enumerate(selection.slices)]
            result = self._sliced(value, triples, f"index into {value.name}")
        if selection.squeezed:
            result = self.squeeze(result, selection.squeezed)
        if any(selection.inserted):
            result = self.broadcast(result, selection.inserted)
        return result

    def _selected(self, value: Value, d: int, part: Any) -> tuple[Any, ...]:
        """Return the slice triple of one dimension; an int index keeps one element."""
        if isinstance(part, slice):
            bounds = cast("Any", part)
            return bounds.start, bounds.stop, bounds.step, False
        fd, extent = self.definition, value.shape[d]
        what = f"index into {value.name}: dimension {d}"
        at = to_expr(fd.fusion, part, what)
        needed = at + 1
        if isinstance(at, Const) and at.value < 0:
            needed, at = Const(-at.value), extent - -at.value
        if isinstance(extent, Const) and isinstance(needed, Const):
            if needed.value > extent.value:
                raise DefinitionError(
                    f"{what}: index {part} is out of range; the extent is {extent.value}"
                )
        else:
            fd.constrain(minimum(extent, needed), needed, f"{what}: index {part} is out of range")
        return at, at + 1, ONE, True


def _is_minus_one(extent: Any) -> bool:
    return isinstance(extent, int) and extent == -1
