"""A random fusion while it is drawn: its tensors with the extents of the first call."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from fuser import DataType, FusionDefinition
from fuser.api.tensor import Tensor
from fuser.core.expr import Const, evaluate
from tests.fuzz.inputs import LAYOUTS, ScalarArgument, TensorArgument
from tests.fuzz.source import Source

SIZES = (3, 2, 1, 5, 8, 7, 4, 16, 17, 33, 64, 130, 0)
DTYPES = (
    DataType.Float, DataType.Half, DataType.BFloat16, DataType.Int, DataType.Int32, DataType.Bool,
    DataType.Double, DataType.Int8, DataType.UInt8, DataType.Float8_e4m3fn, DataType.Float8_e5m2,
)  # fmt: skip
MAX_NUMEL = 6_000


@dataclass(slots=True)
class Draft:
    """State of drawing one fusion.

    Attributes
    ----------
    tensors
        Every tensor so far; later operations choose among them.
    sizes
        Values of size variables and integer scalars in the first call.
    """

    source: Source
    fd: FusionDefinition = field(default_factory=FusionDefinition)
    tensors: list[Tensor] = field(default_factory=list)
    arguments: list[TensorArgument | ScalarArgument] = field(default_factory=list)
    inputs: dict[str, TensorArgument] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the extents of the first call."""
        return tuple(int(evaluate(e, self.sizes)) for e in tensor.value.shape)

    def fits(self, shape: Any) -> bool:
        """Whether a tensor of this shape is small enough."""
        return math.prod(shape) <= MAX_NUMEL and len(shape) <= 6

    # ---- inputs --------------------------------------------------------------------------

    def new_input(self) -> Tensor:
        """Add an input of any dtype and shape."""
        source = self.source
        rank = source.pick((2, 1, 3, 0, 2, 4, 5))
        sizes: list[int] = []
        for _ in range(rank):
            n = source.pick(SIZES)
            if n == 0 and not source.chance(25):
                n = 1
            sizes.append(n if self.fits([*sizes, n]) else 2)
        return self.input_like(tuple(sizes), source.pick(DTYPES))

    def input_like(
        self, sizes: tuple[int, ...], dtype: DataType, fixed: tuple[bool, ...] | None = None
    ) -> Tensor:
        """Add an input with these extents; `fixed` are those that must be constants."""
        source = self.source
        fixed = fixed or (False,) * len(sizes)
        # an extent of 1 is mostly a broadcast dimension
        symbolic = tuple(
            not f and source.chance(20 if n == 1 else 70) for n, f in zip(sizes, fixed, strict=True)
        )
        argument = TensorArgument(
            dtype, sizes, symbolic,
            LAYOUTS[0] if source.chance(50) else source.pick(LAYOUTS),
            source.pick(("small", "small", "normal", "special")),
            source.below(1 << 16),
        )  # fmt: skip
        shape = [-1 if s else n for n, s in zip(sizes, symbolic, strict=True)]
        contiguous = argument.layout == "contiguous" and source.chance(50)
        contiguity: Any = [None if n == 1 else contiguous for n in shape]
        tensor = self.fd.define_tensor(shape=shape, contiguity=contiguity, dtype=dtype)
        self.arguments.append(argument)
        self.inputs[tensor.name] = argument
        self.sizes |= {f"{tensor.name}_size{d}": n for d, n in enumerate(sizes)}
        self.tensors.append(tensor)
        return tensor

    def partner(self, a: Tensor, dtype: DataType | None = None) -> Tensor:
        """Return a tensor that broadcasts with `a`: a known one, or a new input."""
        known = [t for t in self.tensors if self.broadcasts(a, t) and dtype in (None, t.dtype)]
        if known and self.source.chance(70):
            return self.source.pick(known[::-1])
        sizes = tuple(1 if self.source.chance(25) else n for n in self.shape(a))
        # an extent of 1 that stretches must be a constant
        fixed = tuple(n == 1 for n in sizes)
        return self.input_like(sizes, dtype or self.source.pick(DTYPES), fixed)

    def broadcasts(self, a: Tensor, b: Tensor) -> bool:
        """Whether a pointwise operation takes both."""
        extents = zip(a.value.shape, b.value.shape, self.shape(a), self.shape(b), strict=False)
        return a.ndim == b.ndim and all(n == m or Const(1) in (x, y) for x, y, n, m in extents)

    # ---- scalars -------------------------------------------------------------------------

    def runtime_scalar(self, dtype: DataType, number: float) -> Any:
        """Add a scalar input with this value."""
        scalar = self.fd.define_scalar(dtype)
        self.arguments.append(ScalarArgument(dtype, number))
        if not dtype.is_float:
            self.sizes[scalar.name] = int(number)
        return scalar

    def extent(self, number: int) -> Any:
        """Return an integer, or rarely a scalar input of that value."""
        return self.runtime_scalar(DataType.Int, number) if self.source.chance(5) else number

    def scalar(self) -> Any:
        """Return a Python number, a scalar input or arithmetic on one."""
        source = self.source
        number: Any = source.pick((2, 0.5, -1, 1.5, 3, 0, True, -0.25))
        if source.chance(70):
            return number
        if isinstance(number, float):
            dtype = source.pick((DataType.Double, DataType.Float))
        else:
            dtype = source.pick((DataType.Int, DataType.Int32))
        scalar = self.runtime_scalar(dtype, number + 0)
        return scalar * 2 if source.chance(20) else scalar
