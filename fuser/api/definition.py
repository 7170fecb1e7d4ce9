"""`FusionDefinition`: the user builds a fusion graph here, then executes it."""

# pyright: reportImportCycles=false
# (execute and validate take definitions; the methods import them when called)

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from fuser.api.arrays import array_kind
from fuser.api.builder import Builder
from fuser.api.destination import enter, leave
from fuser.api.given import check_dtype, check_number, is_count
from fuser.api.layout import layout_from_promise, layout_from_strides
from fuser.api.naming import names_from
from fuser.api.ops import Ops
from fuser.api.recording import recorded
from fuser.api.sched import Sched
from fuser.api.tensor import Handle, Number, Scalar, Tensor, Vector
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError, InputError
from fuser.core.expr import Const, Expr
from fuser.core.location import caller_location
from fuser.core.unroll import DefaultUnroll, LoopOptions
from fuser.fusion.attrs import (
    Attrs,
    ScalarAttrs,
)
from fuser.fusion.graph import Value
from fuser.fusion.shapes import shape_text, size_var

if TYPE_CHECKING:
    from fuser.api.compiled import CompiledFusion


class FusionDefinition(Builder):
    """A fusion under construction and, once defined, the thing to execute.

    Attributes
    ----------
    ops
        The operations.
    sched
        Scheduling directives on several tensors.
    arguments
        What `execute` takes, in order.

    Parameters
    ----------
    default_unroll
        Loops without a directive of their own: ``"auto"`` unrolls short ones of known trips,
        ``"rolled"`` none but those that choose registers.
    exact_loops
        The machine code has the loops that the directives say, and no second version of a loop
        around a partially unrolled one whose trips are not constant.
    """

    prefix = ""

    def __init__(
        self,
        *,
        numpy_broadcasting: bool = False,
        default_unroll: DefaultUnroll = "auto",
        exact_loops: bool = False,
    ) -> None:
        super().__init__(numpy_broadcasting, _loops(default_unroll, exact_loops))
        self.ops = Ops(self)
        self.sched = Sched(self)
        self.arguments: list[Tensor | Scalar | Vector] = []
        self._entered = False

    @property
    def definition(self) -> FusionDefinition:
        """The definition itself: where recorded calls go."""
        return self

    # ---- with ----------------------------------------------------------------------------

    def __enter__(self) -> FusionDefinition:
        if self.closed or self._entered:
            state = "finished" if self.closed else "being written already"
            raise DefinitionError(
                f"with: the definition is {state}; a new FusionDefinition is needed",
                caller_location(),
            )
        self._entered = True
        enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave()
        self._entered = False
        if kind is None:
            caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
            self.finish(caller.f_locals)

    def finish(self, local_variables: Any = None) -> None:
        """Close the definition; values take the names of the local variables that hold them."""
        if local_variables:
            self.rename(names_from(self, local_variables))
        self.closed = True

    # ---- inputs --------------------------------------------------------------------------

    @recorded
    def define_tensor(
        self,
        shape: Sequence[int] | None = None,
        contiguity: bool | Sequence[bool | None] | Sequence[int] = False,
        dtype: DataType = DataType.Float,
        static_sizes: bool = False,
        is_cpu: bool = False,
        stride_order: Sequence[int] = (),
        *,
        sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Tensor:
        """Add an input tensor, by promise or by example.

        Parameters
        ----------
        shape
            Extents; -1 is known at execution only, 1 is a broadcast dimension.
        contiguity
            One bool, or per dimension in memory order: whether its stride is that of the next
            inner dimension times its extent; ``None`` for broadcast and expanded dimensions.
        stride_order
            Per dimension its position from the innermost; row major when empty.
        sizes, strides
            An example (strides in elements) instead of `shape` and `contiguity`; also taken by
            position. Extents stay symbolic unless `static_sizes`; 1 is always a broadcast.
        is_cpu
            A 0-d tensor in host memory.
        """
        if sizes is None and _is_ints(contiguity):
            sizes, strides, shape = shape, contiguity, None  # type: ignore[assignment]
            contiguity = False
        _check_one_way(
            {"shape": shape, "contiguity": contiguity, "stride_order": stride_order}, sizes, strides
        )
        if sizes is not None:
            layout = layout_from_strides(sizes, strides or (), is_cpu)
            shape = [n if static_sizes or n == 1 else -1 for n in sizes]
            extents = self._input_shape(shape)
        else:
            extents = self._input_shape([] if shape is None else shape)
            layout = layout_from_promise(extents, contiguity, stride_order, is_cpu)
        if is_cpu and extents:
            raise DefinitionError(f"define_tensor: is_cpu with shape {shape}; a 0-d one is needed")
        tensor: Tensor = self._input("input", check_dtype("define_tensor", dtype), extents, layout)
        self.arguments.append(tensor)
        return tensor

    def _input_shape(self, shape: Sequence[Any]) -> tuple[Expr, ...]:
        for d, n in enumerate(shape):
            if not is_count(n, low=-1):
                raise DefinitionError(
                    f"define_tensor: dimension {d} of {list(shape)} is {n!r}; -1, 1 or an extent "
                    "below 2**63 is needed"
                )
        name = self.fusion.fresh("t")
        return tuple(size_var(name, d) if n == -1 else Const(int(n)) for d, n in enumerate(shape))

    def _input(self, op: str, dtype: DataType, shape: tuple[Expr, ...], attrs: Attrs) -> Any:
        name = self.fusion.fresh("t" if op == "input" else "s")
        value = self.fusion.add(op, (), dtype, shape, attrs, name, self.location)
        return self.handle(value)

    def from_pytorch(self, tensor: Any, static_sizes: bool = False) -> Tensor:
        """Add an input tensor with the dtype, rank and layout of an array of any library."""
        kind = array_kind(tensor)
        return self.define_tensor(
            sizes=list(kind.sizes),
            strides=list(kind.strides),
            dtype=kind.dtype,
            static_sizes=static_sizes,
        )

    @recorded
    def define_scalar(
        self, value: Number | DataType | None = None, dtype: DataType | None = None
    ) -> Scalar:
        """Add a scalar input (Double unless `dtype` is given), or a constant when `value` is."""
        if isinstance(value, DataType):
            value, dtype = None, value
        kind = None if dtype is None else check_dtype("define_scalar", dtype)
        if value is None:
            scalar: Scalar = self._input("scalar", kind or DataType.Double, (), ScalarAttrs())
            self.arguments.append(scalar)
            return scalar
        constant: Scalar = self.handle(self.constant(check_number("define_scalar", value), kind))
        return constant

    @recorded
    def define_vector(self, n: int) -> Vector:
        """Add `n` Int scalar inputs that are passed as one sequence."""
        if not is_count(n):
            raise DefinitionError(
                f"define_vector: number of items is {n!r}; an int from 0 to 2**63 - 1 is needed"
            )
        items = (self._input("scalar", DataType.Int, (), ScalarAttrs()) for _ in range(n))
        vector = Vector(items)
        self.arguments.append(vector)
        return vector

    # ---- outputs -------------------------------------------------------------------------

    @recorded
    def add_output(self, tv: Tensor, alias_input: Tensor | None = None) -> None:
        """Make `tv` an output, written into the memory of `alias_input` when that is given.

        An aliased output is not returned. The meaning is functional: every read of the input
        sees the values from before the call. As with ``return y, y``, a value added twice is
        the same array twice.
        """
        value = self.tensor("add_output", tv)
        if alias_input is None:
            self.fusion.add_output(value)
            return
        target = self.tensor("add_output", alias_input)
        what = f"add_output: {value.name} cannot alias {target.name}"
        if target.op != "input":
            raise DefinitionError(f"{what}: it is no input; an input tensor is needed")
        taken = [o.value for o in self.fusion.outputs if o.alias_of == target.name]
        if taken:
            raise DefinitionError(
                f"{what}: output {taken[0]} already does; one output per input is needed"
            )
        if value.dtype is not target.dtype:
            raise DefinitionError(
                f"{what}: dtypes are {value.dtype.name} and {target.dtype.name}; they must agree"
            )
        self._check_alias_shape(value, target, what)
        self.fusion.add_output(value, target.name)

    def _check_alias_shape(self, value: Value, target: Value, what: str) -> None:
        known = all(isinstance(e, Const) for e in (*value.shape, *target.shape))
        if value.rank != target.rank or (known and value.shape != target.shape):
            raise DefinitionError(
                f"{what}: shapes are {shape_text(value.shape)} and {shape_text(target.shape)}; "
                "they must agree"
            )
        for d, (a, b) in enumerate(zip(value.shape, target.shape, strict=True)):
            self.unify(a, b, f"{what}: dimension {d}")

    # ---- execution -----------------------------------------------------------------------

    def execute(
        self,
        inputs: Sequence[Any],
        *,
        out: Any = None,
        device: Any = None,
        backend: str | None = None,
        **options: Any,
    ) -> list[Any]:
        """Run the fusion and return its outputs, aliased ones left out.

        `out` is an array to write to, or a list or tuple of one for each output; see
        `CompiledFusion`, which `compile` returns.
        """
        from fuser.api.execute import execute

        self.closed = True
        return execute(self, inputs, out=out, device=device, backend=backend, **options)

    def compile(
        self, inputs: Sequence[Any] | None = None, *, manual: bool = False
    ) -> CompiledFusion:
        """Return the fusion as a function; its calls cost the host the least.

        Parameters
        ----------
        inputs
            Compile for arrays like these now; else the first call does.
        manual
            Use the schedule set by hand.
        """
        from fuser.api.compiled import function_of
        from fuser.api.execute import compile_for

        self.closed = True
        if inputs is not None:
            self._check_inputs("compile", inputs)
            compile_for(self, inputs, manual)
        return function_of(self, manual)

    def manual_execute(self, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """Run the fusion under the schedule set by hand."""
        return self.execute(inputs, manual=True, **options)

    def validate(
        self,
        inputs: Sequence[Any],
        reference_outputs: Sequence[Any] | None = None,
        **options: Any,
    ) -> list[Any]:
        """Run the fusion, compare with `reference_outputs` or the built-in float64 reference.

        Raises
        ------
        ResultMismatchError
            An output differs by more than its dtype and operations allow.
        """
        from fuser.api.validate import validate

        self._check_inputs("validate", inputs)
        return validate(self, inputs, reference_outputs, options)

    def named_inputs(self, inputs: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return positional inputs as (arrays, scalars) by name; a vector is one sequence.

        Raises
        ------
        InputError
            They are no list, or their number or the length of a vector is wrong.
        """
        self._check_inputs("execute", inputs)
        arrays: dict[str, Any] = {}
        scalars: dict[str, Any] = {}
        for argument, given in zip(self.arguments, inputs, strict=True):
            if isinstance(argument, Tensor):
                arrays[argument.name] = given
            elif isinstance(argument, Scalar):
                scalars[argument.name] = given
            else:
                scalars |= _vector_items(argument, given)
        return arrays, scalars

    def _check_inputs(self, call: str, inputs: Sequence[Any]) -> None:
        """Raise `InputError` for what is no list of as many inputs as `call` needs."""
        names = ", ".join(map(_argument_name, self.arguments))
        given: Any = inputs
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InputError(
                f"{call}: got a {type(inputs).__name__}; needed a list of inputs, one for each "
                f"of {names}"
            )
        if len(inputs) != len(self.arguments):
            raise InputError(
                f"{call}: got {len(inputs)} inputs; the definition has {len(self.arguments)}: "
                f"{names}"
            )

    def __repr__(self) -> str:
        from fuser.api.repro import to_python

        return to_python(self)


def _check_one_way(
    promise: Mapping[str, Any], sizes: Sequence[int] | None, strides: Sequence[int] | None
) -> None:
    """Refuse a promise next to an example, of which one would be ignored, and half an example."""
    if sizes is None:
        if strides is not None:
            raise DefinitionError(
                f"define_tensor: strides are {list(strides)} and sizes are not given; both are "
                "needed"
            )
        return
    for name, given in promise.items():
        if given is not None and given is not False and given != ():
            raise DefinitionError(
                f"define_tensor: sizes are {list(sizes)} and {name} is {given!r}; an example or a "
                "promise is needed, not both"
            )


def _loops(default: DefaultUnroll, exact: object) -> LoopOptions:
    """Return the options of all loops; callers without a type checker may have given anything."""
    if default not in get_args(DefaultUnroll):
        raise DefinitionError(
            f"default_unroll: got {default!r}; needed 'auto' or 'rolled'", caller_location()
        )
    if not isinstance(exact, bool):
        raise DefinitionError(
            f"exact_loops: got {exact!r}; needed True or False", caller_location()
        )
    return LoopOptions(default, exact)


def _is_ints(item: Any) -> bool:
    """Whether `item` is a non-empty sequence of ints: strides rather than contiguity."""
    if not isinstance(item, list | tuple):
        return False
    numbers: list[Any] = list(cast("Sequence[Any]", item))
    plain = (isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers)
    return len(numbers) > 0 and all(plain)


def _argument_name(argument: Tensor | Scalar | Vector) -> str:
    if isinstance(argument, Handle):
        return argument.name
    return f"[{', '.join(item.name for item in argument)}]"


def _vector_items(vector: Vector, given: Any) -> dict[str, Any]:
    several = isinstance(given, list | tuple)
    listed: list[Any] = list(cast("Sequence[Any]", given)) if several else [given]
    if len(listed) != len(vector):
        raise InputError(
            f"input {_argument_name(vector)}: has {len(listed)} items; the definition says "
            f"{len(vector)}"
        )
    return {item.name: n for item, n in zip(vector, listed, strict=True)}
