"""Random tensor maps, legal ones and ones that break a rule, and what a copy through one reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.expr import Const
from fuser.kir.tensor_map import MAX_BOX_BYTES, SWIZZLE_BYTES, Encoding, TensorMapParam

Rng = np.random.Generator
SWIZZLES = tuple(SWIZZLE_BYTES)


def log_uniform(rng: Rng, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`, every order of magnitude as likely."""
    return min(high, max(low, round(math.exp(rng.uniform(math.log(low), math.log(high))))))


def legal(rng: Rng) -> Encoding:
    """Return a map that keeps every rule; often on the edge of one."""
    rank = int(rng.integers(1, 6))
    dtype = list(DataType)[rng.integers(len(DataType))]
    swizzle = SWIZZLES[rng.integers(len(SWIZZLES))]
    unit = 16 // dtype.nbytes
    widest = min(256, SWIZZLE_BYTES[swizzle] // dtype.nbytes) if swizzle != "none" else 256
    units = widest // unit
    inner = unit * (units if rng.random() < 0.5 else int(rng.integers(1, units + 1)))
    dims = [2**32 if rng.random() < 0.1 else log_uniform(rng, 1, 2**32) for _ in range(rank)]
    strides = [
        2**40 - 16 if rng.random() < 0.1 else 16 * log_uniform(rng, 1, 2**36 - 1)
        for _ in range(rank - 1)
    ]
    box = [256 if rng.random() < 0.1 else int(rng.integers(1, 257)) for _ in range(rank - 1)]
    steps = [1 if rng.random() < 0.7 else int(rng.integers(1, 9)) for _ in range(rank - 1)]
    while inner * dtype.nbytes * math.prod(-(-b // s) for b, s in zip(box, steps, strict=True)) > (
        MAX_BOX_BYTES
    ):
        box[box.index(max(box))] //= 2
    return Encoding(
        dtype=dtype,
        address=16 * log_uniform(rng, 2**16, 2**42),
        dims=tuple(dims),
        strides_bytes=tuple(strides),
        box=(inner, *box),
        element_strides=(1, *steps),
        swizzle=swizzle,
    )


def _one(rng: Rng, of: tuple[int, ...], value: int, start: int = 0) -> tuple[int, ...]:
    at = int(rng.integers(start, len(of)))
    return (*of[:at], value, *of[at + 1 :])


def _rank_6(rng: Rng, e: Encoding) -> Encoding:
    more = 6 - len(e.dims)
    return replace(
        e,
        dims=e.dims + (4,) * more,
        strides_bytes=e.strides_bytes + (4096,) * more,
        box=e.box + (1,) * more,
        element_strides=e.element_strides + (1,) * more,
    )


def _rank_0(rng: Rng, e: Encoding) -> Encoding:
    return replace(e, dims=(), strides_bytes=(), box=(), element_strides=())


def _ranked(rng: Rng, e: Encoding) -> Encoding:
    """Return `e`, or another map if it has one dimension only."""
    while len(e.dims) == 1:
        e = legal(rng)
    return e


def _stride(rng: Rng, e: Encoding, value: int) -> Encoding:
    e = _ranked(rng, e)
    return replace(e, strides_bytes=_one(rng, e.strides_bytes, value))


def _step(rng: Rng, e: Encoding, value: int) -> Encoding:
    e = _ranked(rng, e)
    return replace(e, element_strides=_one(rng, e.element_strides, value, start=1))


def _tall(rng: Rng, e: Encoding) -> Encoding:
    e = _ranked(rng, e)
    return replace(e, box=_one(rng, e.box, 257, start=1))


def _narrow(rng: Rng, e: Encoding) -> Encoding:
    unit = 16 // e.dtype.nbytes
    return replace(e, box=(int(rng.integers(1, unit)), *e.box[1:]))


def _wide(rng: Rng, e: Encoding) -> Encoding:
    swizzle = SWIZZLES[rng.integers(1, len(SWIZZLES))]
    inner = (SWIZZLE_BYTES[swizzle] + 16) // e.dtype.nbytes
    return replace(e, swizzle=swizzle, box=(inner, *e.box[1:]))


BREAKS: dict[str, tuple[Callable[[Rng, Encoding], Encoding], str]] = {
    "rank 0": (_rank_0, "rank is 0"),
    "rank 6": (_rank_6, "rank is 6"),
    "address": (lambda r, e: replace(e, address=e.address + int(r.integers(1, 16))), "address is"),
    "dim 0": (lambda r, e: replace(e, dims=_one(r, e.dims, 0)), "has 0 elements"),
    "dim 2^32+1": (lambda r, e: replace(e, dims=_one(r, e.dims, 2**32 + 1)), "has 4294967297"),
    "stride unit": (
        lambda r, e: _stride(r, e, 16 * int(r.integers(1, 999)) + int(r.integers(1, 16))),
        "needed a multiple of 16",
    ),
    "stride 2^40": (lambda r, e: _stride(r, e, 2**40), "stride of dim"),
    "stride < 0": (lambda r, e: _stride(r, e, -16), "is -16 bytes"),
    "box bytes": (
        lambda r, e: replace(
            e,
            dtype=DataType.Float,
            dims=(4096, 4096),
            strides_bytes=(16384,),
            box=(256, 229),
            element_strides=(1, 1),
            swizzle="none",
        ),
        "box is 234496 bytes; needed at most 233472",
    ),
    "box 0": (lambda r, e: replace(e, box=_one(r, e.box, 0)), "is 0; needed 1 to 256"),
    "box 257": (_tall, "is 257; needed 1 to 256"),
    "inner bytes": (_narrow, "needed a multiple of 16 bytes"),
    "swizzle span": (_wide, "the span of swizzle"),
    "step 0": (lambda r, e: _step(r, e, 0), "is 0; needed 1 to 8"),
    "step 9": (lambda r, e: _step(r, e, 9), "is 9; needed 1 to 8"),
}
"""Name of a rule: what breaks it, and a part of the text that says so."""


def as_param(encoding: Encoding, name: str = "x_map", tensor: str = "x") -> TensorMapParam:
    """Return the parameter with constants for which `encoding` is the answer at its address."""
    return TensorMapParam(
        name,
        tensor,
        encoding.dtype,
        tuple(Const(d) for d in encoding.dims),
        tuple(Const(s) for s in encoding.strides_bytes),
        encoding.box,
        encoding.element_strides,
        encoding.swizzle,
    )


@dataclass(frozen=True, slots=True)
class Copy:
    """A map small enough to be copied through, and where a box is taken.

    Attributes
    ----------
    numel
        Elements of the tensor.
    """

    param: TensorMapParam
    numel: int
    coords: tuple[int, ...]


def copyable(rng: Rng, rank: int, dtype: DataType, swizzle: Any) -> Copy:
    """Return a random copy: padded, possibly permuted dimensions, boxes inside and overhanging."""
    unit = 16 // dtype.nbytes
    span = SWIZZLE_BYTES[swizzle]
    inner = span // dtype.nbytes if span else unit * int(rng.integers(1, 256 // unit // 2 + 1))
    dims, box, steps = [int(rng.integers(1, 3 * inner))], [inner], [1]
    room = 32 * 1024 // (inner * dtype.nbytes)  # boxes of shared memory
    budget = 2**20 // dims[0]
    for _ in range(rank - 1):
        steps.append(1 if rng.random() < 0.7 else int(rng.integers(2, 5)))
        loaded = int(rng.integers(1, min(room, 9) + 1))
        box.append(loaded * steps[-1])
        room //= loaded
        dims.append(int(rng.integers(1, min(2 * box[-1] + 1, budget) + 1)))
        budget //= dims[-1]
    strides = [0] * rank
    strides[0], reach = 1, dims[0]
    for dim in 1 + rng.permutation(rank - 1):  # any order of the outer dimensions in memory
        pitch = -(-reach // unit) * unit + unit * int(rng.integers(0, 3))
        strides[dim], reach = pitch, pitch * (dims[dim] - 1) + reach
    offset = unit * int(rng.integers(0, 4))
    first = unit * int(rng.integers(-(inner // unit), dims[0] // unit + 1))
    coords = (
        first,
        *(int(rng.integers(-b, d + 1)) for b, d in zip(box[1:], dims[1:], strict=True)),
    )
    param = TensorMapParam(
        "x_map",
        "x",
        dtype,
        tuple(Const(d) for d in dims),
        tuple(Const(s * dtype.nbytes) for s in strides[1:]),
        tuple(box),
        tuple(steps),
        swizzle,
        Const(offset),
    )
    return Copy(param, offset + reach + int(rng.integers(0, 9)), coords)


def read_box(copy: Copy, flat: np.ndarray) -> np.ndarray:
    """Return the bytes of shared memory after the copy, by the book and without hardware."""
    param, itemsize = copy.param, copy.param.dtype.nbytes
    index, inside = np.int64(0), np.True_
    strides = (1, *(s.value // itemsize for s in param.strides_bytes))
    for dim in reversed(range(param.rank)):
        step = 1 if dim == 0 else param.element_strides[dim]
        at = copy.coords[dim] + step * np.arange(param.loaded[dim])
        index = np.add.outer(index, at * strides[dim])
        inside = np.logical_and.outer(inside, (at >= 0) & (at < param.dims[dim].value))
    elements = np.zeros(index.shape, param.dtype.np)
    elements[inside] = flat[param.offset_elems.value + index[inside]]
    return swizzled(np.frombuffer(elements.tobytes(), np.uint8), SWIZZLE_BYTES[param.swizzle])


def swizzled(box: np.ndarray, span: int) -> np.ndarray:
    """Return shared memory in which 16-byte pieces of a span are permuted by the row's number.

    A row is 128 bytes of shared memory; the piece's number is xored with the row's, both modulo
    the pieces of a span.
    """
    if not span:
        return box
    pieces = span // 16
    at = np.arange(box.size)
    moved = at ^ (((at // 128) % pieces) * 16)
    out = np.empty_like(box)
    out[moved] = box
    return out
