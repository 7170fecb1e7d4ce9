"""Tensor maps: the kernel parameter, and every rule by which the driver accepts or refuses one.

A map is built twice: when a schedule asks for it, where sizes are expressions and only constants
can be judged (`require_encodable`), and for each run, where everything is known
(`check_encoding`, `obstacle`). Both read the same rules; docs/tensor_maps.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError, VerifyError
from fuser.core.expr import ZERO, Const, Expr, evaluate

Swizzle: TypeAlias = Literal["none", "32B", "64B", "128B"]

MAP_BYTES = 128
MAP_ALIGN_BYTES = 64
MAX_RANK = 5
UNIT_BYTES = 16
"""Addresses, strides and the inner box extent are multiples of this."""
MAX_DIM = 2**32
MAX_STRIDE_BYTES = 2**40
MAX_BOX = 256
SPLIT = ", so split the axis that is bound to tma"
MAX_BOX_BYTES = 228 * 1024
"""All of an SM's shared memory; the largest box the driver took on an H200 (driver 580)."""
MAX_ELEMENT_STRIDE = 8
MAX_COORDINATE = 2**31 - 1
"""A copy names its box by 32-bit signed coordinates."""
SWIZZLE_BYTES: dict[Swizzle, int] = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


@dataclass(frozen=True, slots=True)
class TensorMapParam:
    """A ``const __grid_constant__ CUtensorMap``: how TMA sees the memory of one tensor.

    Attributes
    ----------
    tensor
        Name of the `TensorParam` whose memory it describes.
    dims
        Extents in elements, innermost first; dimension 0 is contiguous.
    strides_bytes
        Strides of dimensions 1, 2, ...: one fewer than `dims`.
    box
        Extents of what one copy traverses, in elements of the tensor.
    element_strides
        Step along each dimension within the box; ones when left out. Hardware ignores the first.
    swizzle
        Span within which 16-byte pieces of shared memory are permuted.
    offset_elems
        Element of the tensor at which coordinate (0, ..., 0) lies.
    """

    name: str
    tensor: str
    dtype: DataType
    dims: tuple[Expr, ...]
    strides_bytes: tuple[Expr, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: Swizzle = "none"
    offset_elems: Expr = ZERO

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))
        lengths = (len(self.strides_bytes) + 1, len(self.box), len(self.element_strides))
        if self.dims and lengths != (self.rank,) * 3:
            raise VerifyError(
                f"{self.label}: {lengths[0] - 1} strides, {lengths[1]} box extents and "
                f"{lengths[2]} element strides; needed {self.rank - 1}, {self.rank} and {self.rank}"
            )

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def label(self) -> str:
        """How errors name it."""
        return f"tensor map {self.name} of {self.tensor}"

    @property
    def loaded(self) -> tuple[int, ...]:
        """Elements that one copy transfers along each dimension, innermost first."""
        steps = (1, *self.element_strides[1:])
        return tuple(-(-extent // step) for extent, step in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes one copy completes on its barrier: all of the box, even where it overhangs."""
        return prod(self.loaded) * self.dtype.nbytes


@dataclass(frozen=True, slots=True)
class Encoding:
    """A tensor map whose every number is known: what the driver is given, and a cache's key."""

    dtype: DataType
    address: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: Swizzle


def bind(param: TensorMapParam, values: Mapping[str, int], base_address: int) -> Encoding:
    """Evaluate `param` for sizes `values` and a tensor that begins at `base_address`."""
    offset = int(evaluate(param.offset_elems, values))
    return Encoding(
        dtype=param.dtype,
        address=base_address + offset * param.dtype.nbytes,
        dims=tuple(int(evaluate(e, values)) for e in param.dims),
        strides_bytes=tuple(int(evaluate(e, values)) for e in param.strides_bytes),
        box=param.box,
        element_strides=param.element_strides,
        swizzle=param.swizzle,
    )


def check_encoding(
    param: TensorMapParam, values: Mapping[str, int], base_address: int
) -> list[str]:
    """Return why the driver would refuse the map, one text a violation; empty when it would not.

    Parameters
    ----------
    values
        Sizes and strides that the expressions of `param` name.
    base_address
        Where the tensor begins; `TensorMapParam.offset_elems` is added here.
    """
    return [f"{param.label}: {text}" for text in violations(bind(param, values, base_address))]


def violations(encoding: Encoding) -> list[str]:
    """Return what the driver would refuse of `encoding`, without a name in front."""
    found = [
        *_check_constants(encoding),
        *_check_dims(dict(enumerate(encoding.dims))),
        *_check_strides(dict(enumerate(encoding.strides_bytes, start=1))),
    ]
    if encoding.address % UNIT_BYTES:
        found.append(f"address is {encoding.address:#x}; needed a multiple of {UNIT_BYTES}")
    return found


def obstacle(param: TensorMapParam, values: Mapping[str, int], base_address: int) -> str | None:
    """Return why a run has to take the variant without TMA, or None when nothing is in the way.

    Beyond `check_encoding`, every element must be within reach of a copy's coordinates.
    """
    encoding = bind(param, values, base_address)
    found = violations(encoding)
    found += [
        f"dim {dim} has {extent} elements; needed at most {MAX_COORDINATE}, the largest coordinate"
        for dim, extent in enumerate(encoding.dims)
        if extent > MAX_COORDINATE
    ]
    return f"{param.label}: {found[0]}" if found else None


def require_encodable(param: TensorMapParam) -> None:
    """Raise `ScheduleError` for what no size could mend: call it where a map is built.

    Stricter than the driver in one point: a swizzled box is exactly as wide as the span, since
    rows of narrower boxes are not laid out at the pitch that readers compute.
    """
    dims = {i: e.value for i, e in enumerate(param.dims) if isinstance(e, Const)}
    strides = {
        i: e.value for i, e in enumerate(param.strides_bytes, start=1) if isinstance(e, Const)
    }
    found = [*_check_constants(param), *_check_dims(dims), *_check_strides(strides)]
    if isinstance(param.offset_elems, Const):
        offset = param.offset_elems.value * param.dtype.nbytes
        if offset % UNIT_BYTES:
            found.append(f"offset is {offset} bytes; needed a multiple of {UNIT_BYTES}")
    if not found and param.swizzle != "none":
        inner, span = _inner_bytes(param), SWIZZLE_BYTES[param.swizzle]
        if inner != span:
            found.append(
                f"box dim 0 is {param.box[0]} elements, {inner} bytes; "
                f"needed {span} bytes, the span of swizzle {param.swizzle}"
            )
    if found:
        raise ScheduleError(f"{param.label}: " + "; also: ".join(found))


def _inner_bytes(of: TensorMapParam | Encoding) -> int:
    return of.box[0] * of.dtype.nbytes


def _check_constants(of: TensorMapParam | Encoding) -> Iterator[str]:
    """Rules on what a schedule chooses: rank, box, element strides, swizzle."""
    if not 1 <= len(of.dims) <= MAX_RANK:
        yield f"rank is {len(of.dims)}; needed 1 to {MAX_RANK}"
    for dim, extent in enumerate(of.box):
        if not 1 <= extent <= MAX_BOX:
            help = f"{SPLIT} by {MAX_BOX} or less" if extent > MAX_BOX else ""
            yield f"box dim {dim} is {extent}; needed 1 to {MAX_BOX}{help}"
    for dim, step in enumerate(of.element_strides):
        if not 1 <= step <= MAX_ELEMENT_STRIDE:
            yield f"element stride of dim {dim} is {step}; needed 1 to {MAX_ELEMENT_STRIDE}"
    if not of.box:
        return
    inner, span = _inner_bytes(of), SWIZZLE_BYTES[of.swizzle]
    shown = f"box dim 0 is {of.box[0]} elements, {inner} bytes"
    if inner % UNIT_BYTES:
        yield f"{shown}; needed a multiple of {UNIT_BYTES} bytes"
    if span and inner > span:
        yield f"{shown}; needed at most {span} bytes, the span of swizzle {of.swizzle}"
    elif all(1 <= n <= MAX_BOX for n in of.box) and all(step >= 1 for step in of.element_strides):
        yield from _check_box_bytes(of)


def _check_box_bytes(of: TensorMapParam | Encoding) -> Iterator[str]:
    steps = (1, *of.element_strides[1:])
    loaded = prod(-(-extent // step) for extent, step in zip(of.box, steps, strict=True))
    if loaded * of.dtype.nbytes > MAX_BOX_BYTES:
        yield f"box is {loaded * of.dtype.nbytes} bytes; needed at most {MAX_BOX_BYTES}"


def _check_dims(dims: Mapping[int, int]) -> Iterator[str]:
    for dim, extent in dims.items():
        if not 1 <= extent <= MAX_DIM:
            yield f"dim {dim} has {extent} elements; needed 1 to {MAX_DIM}"


def _check_strides(strides: Mapping[int, int]) -> Iterator[str]:
    for dim, stride in strides.items():
        if stride % UNIT_BYTES:
            yield f"stride of dim {dim} is {stride} bytes; needed a multiple of {UNIT_BYTES}"
        if not 0 <= stride < MAX_STRIDE_BYTES:
            yield f"stride of dim {dim} is {stride} bytes; needed 0 to {MAX_STRIDE_BYTES - 1}"
