"""Every error of a definition: its text, with values, and the user's line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition
from fuser.api.ops import operation_names
from fuser.core.errors import DefinitionError, InputError
from fuser.fusion.bind import bind_sizes
from fuser.ops.planned import PLANNED

pytestmark = pytest.mark.unit

D = DataType
ROOT = Path(__file__).parents[2]


class Fusion:
    """Inputs the cases below speak of."""

    def __init__(self):
        self.fd = FusionDefinition()
        self.x = self.fd.define_tensor(shape=[-1, 4096], contiguity=True)  # t0
        self.b = self.fd.define_tensor(shape=[4096], contiguity=True)  # t1
        self.i = self.fd.define_tensor(shape=[3, 1, 5], dtype=D.Int32)  # t2
        self.s = self.fd.define_scalar()  # s3
        self.z = self.fd.define_tensor(shape=[])  # t4

    def __getattr__(self, name):
        return getattr(self.fd, name)


CASES = {
    "ranks": (lambda f: f.ops.add(f.x, f.b),
              "add: t0 has 2 dimensions [t0_size0, 4096] and t1 has 1 [4096]; ranks must agree"),
    "extents": (lambda f: f.ops.add(f.b, f.ops.full([8], 0, D.Float)),
                "add: dimension 0 of t1 and t6: extents 4096 and 8 differ; they must agree"),
    "foreign": (lambda f: f.ops.neg(FusionDefinition().define_tensor(shape=[1])),
                "neg: operand t0 belongs to another FusionDefinition"),
    "operand": (lambda f: f.ops.add(f.x, "a"),
                "add: operand 'a' is a str; a tensor, a scalar or a number is needed"),
    "array": (lambda f: f.x + np.ones(3), "operand array([1., 1., 1.]) is a ndarray"),
    "not a tensor": (lambda f: f.ops.permute(f.s, [0]), "permute: got <Scalar s3: f64>; a tensor"),
    "arity": (lambda f: f.ops.add(f.x), "add: got 1 operand(s); takes 2"),
    "no meaning": (lambda f: f.ops.bitwise_and(f.x, f.x), "bitwise_and: operands (Float, Float)"),
    "cast": (lambda f: f.ops.cast(f.x, "f32"), "cast: dtype is 'f32'; a DataType is needed"),
    "where": (lambda f: f.ops.where(f.x, f.x, f.x),
              "where: condition t0 has dtype Float; Bool is needed"),
    "clamp": (lambda f: f.ops.clamp(f.x), "clamp: neither min nor max is given; at least one"),
    "gelu": (lambda f: f.ops.gelu(f.x, approximate="erf"),
             "gelu: approximate is 'erf'; 'none' or 'tanh' needed"),
    "dimension": (lambda f: f.ops.sum(f.x, [2]),
                  "sum of t0: dimension 2 of a rank 2 tensor; -2..1 is needed"),
    "no dimension": (lambda f: f.ops.sum(f.z, [0]),
                     "sum of t4: dimension 0 of a rank 0 tensor; a 0-d tensor has no dimensions"),
    "dimension twice": (lambda f: f.ops.sum(f.x, [0, -2]),
                        "sum of t0: dimensions [0, -2] name one twice; each at most once"),
    "scalar dimension": (lambda f: f.ops.sum(f.x, [f.s]),
                         "s3: is used as a dimension in sum of t0, and its value is known at"),
    "truth": (lambda f: bool(f.s), "s3: is used as a truth value, and its value is known at"),
    "index": (lambda f: range(f.s), "s3: is used as a Python integer"),
    "int": (lambda f: int(f.s), "s3: is converted to int"),
    "float": (lambda f: float(f.s), "s3: is converted to float"),
    "mean dtype": (lambda f: f.ops.mean(f.x, dtype=D.Int),
                   "mean: dtype is Int; a float is needed"),
    "full scalar": (lambda f: f.ops.full([2], f.z, D.Float),
                    "full: value t4 is a tensor; a scalar is needed"),
    "extent": (lambda f: f.ops.full([f.s], 0, D.Float),
               "full: dimension 0: <Scalar s3: f64> is no extent; an int or an Int scalar"),
    "negative extent": (lambda f: f.ops.full([2, -3], 0, D.Float),
                        "full: dimension 1 of [2, -3] is -3; extents are not negative"),
    "iota dtype": (lambda f: f.ops.iota(3, dtype=D.Bool),
                   "iota: dtype is Bool; an integer or float is needed"),
    "iota start": (lambda f: f.ops.iota(3, 0.5),
                   "iota: start is 0.5 and dtype Int; an integer is needed"),
    "softmax": (lambda f: f.ops.softmax(f.x, 5), "softmax of t0: dimension 5 of a rank 2 tensor"),
    "triu": (lambda f: f.ops.triu(f.b), "triu of t1: it has 1 dimensions; at least 2 are needed"),
    "norm rank": (lambda f: f.ops.rms_norm(f.b, [2, 4096]),
                  "rms_norm of t1: normalized_shape has 2 dimensions; 1 to 1 are needed"),
    "norm extent": (lambda f: f.ops.layer_norm(f.x, [100]),
                    "layer_norm of t0: dimension 1: extents 4096 and 100 differ"),
    "size": (lambda f: f.ops.size(f.x, 3), "size of t0: dimension 3 of a rank 2 tensor"),
    "broadcast_in_dim": (lambda f: f.ops.broadcast_in_dim(f.b, [2, 4096], [0, 1]),
                         "broadcast_in_dim of t1: broadcast_dims is [0, 1]; one ascending"),
    "broadcast extent": (lambda f: f.ops.broadcast_in_dim(f.b, [2, 8], [1]),
                         "broadcast_in_dim of t1: dimension 0: extents 4096 and 8 differ"),
    "broadcast": (lambda f: f.ops.broadcast(f.b, [True, True]),
                  "broadcast of t1: [True, True] keeps 0 dimensions; the tensor has 1"),
    "expand": (lambda f: f.ops.expand(f.b, [2, 4096]),
               "expand of t1: shape has 2 dimensions; the tensor has 1"),
    "expand extent": (lambda f: f.ops.expand(f.b, [5]),
                      "expand of t1: dimension 0: extents 4096 and 5 differ"),
    "squeeze": (lambda f: f.ops.squeeze(f.i, [0]),
                "squeeze of t2: dimension 0 has extent 3; 1 is needed"),
    "permute": (lambda f: f.ops.permute(f.x, [0]),
                "permute of t0: dims is [0]; each of the 2 dimensions once is needed"),
    "reshape": (lambda f: f.ops.reshape(f.i, [4, 4]),
                "reshape of t2: [3, 1, 5] has 15 elements and [4, 4] has 16; they must agree"),
    "reshape -1": (lambda f: f.ops.reshape(f.i, [-1, -1]),
                   "reshape of t2: [-1, -1] has -1 twice; at most one is allowed"),
    "reshape -1 inexact": (lambda f: f.ops.reshape(f.i, [-1, 4]), "has 15 elements and [3, 4] has"),
    "reshape 0": (lambda f: f.ops.reshape(f.i, [-1, 0]),
                  "reshape of t2: -1 in [-1, 0] stands next to 0; any extent would do"),
    "slice": (lambda f: f.ops.slice(f.x, [0], [1, 2]),
              "slice of t0: 1 start indices; one for each of the 2 dimensions is needed"),
    "stride": (lambda f: f.x[::-1],
               "index into t0: dimension 0: stride is -1; a positive one is needed"),
    "unfold dim": (lambda f: f.ops.unfold(f.b, 1, 2), "unfold of t1: dimension 1 of a rank 1 tens"),
    "unfold size": (lambda f: f.ops.unfold(f.b, 0, 0),
                    "unfold of t1: size is 0; at least 1 is needed"),
    "unfold step": (lambda f: f.ops.unfold(f.b, 0, 2, -1),
                    "unfold of t1: step is -1; at least 1 is needed"),
    "unfold long": (lambda f: f.ops.unfold(f.i, 0, 4),
                    "unfold of t2: dimension 0 is shorter than a window: the extent is 3; at "),
    "pad odd": (lambda f: f.ops.pad(f.b, [1]),
                "pad of t1: 1 widths; a pair for each of at most 1 dimensions is needed"),
    "pad many": (lambda f: f.ops.pad(f.b, [1] * 4), "pad of t1: 4 widths; a pair for each of at"),
    "pad crop": (lambda f: f.ops.pad(f.i, [-3, -3]),
                 "pad of t2: dimension 2 of [3, 1, -1] is -1; extents are not negative"),
    "pad value": (lambda f: f.ops.pad(f.b, [1, 1], f.z), "value t4 is a tensor; a scalar is"),
    "cat": (lambda f: f.ops.cat([]), "cat: got no tensors; at least one is needed"),
    "cat ranks": (lambda f: f.ops.cat([f.x, f.b]),
                  "cat: t0 has 2 dimensions and t1 has 1; ranks must agree"),
    "cat dtypes": (lambda f: f.ops.cat([f.b, f.ops.iota(4)]),
                   "cat: t1 has dtype Float and t5 has Int; cast them to one"),
    "cat extents": (lambda f: f.ops.cat([f.x, f.ops.full([2, 8], 0, D.Float)]),
                    "cat: dimension 1 of t0 and t6: extents 4096 and 8 differ"),
    "basic index": (lambda f: f.x[1.5], "index into t0: 1.5 is no basic index; ints, slices"),
    "mask": (lambda f: f.x[True], "index into t0: True is no basic index"),
    "too many": (lambda f: f.b[0, 0], "index into t1: 2 indices and 0 ellipses; at most 1 and 1"),
    "ellipses": (lambda f: f.x[..., ...], "index into t0: 0 indices and 2 ellipses; at most 2"),
    "range": (lambda f: f.b[4096],
              "index into t1: dimension 0: index 4096 is out of range; the extent is 4096"),
    "range below": (lambda f: f.b[-4097], "index -4097 is out of range; the extent is 4096"),
    "shape": (lambda f: f.define_tensor(shape=[-2]),
              "define_tensor: dimension 0 of [-2] is -2; -1, 1 or an extent below 2**63 is needed"),
    "contiguity": (lambda f: f.define_tensor(shape=[-1, 2], contiguity=[True]),
                   "define_tensor: contiguity is [True]; True, False or None for each of the 2"),
    "contiguity of 1": (lambda f: f.define_tensor(shape=[1], contiguity=[True]),
                        "define_tensor: contiguity of dimension 0 is True and its extent is 1"),
    "stride order": (lambda f: f.define_tensor(shape=[-1, 2], stride_order=[1, 2]),
                     "define_tensor: stride_order is [1, 2]; the positions 0 to 1 counted from"),
    "strides": (lambda f: f.define_tensor(sizes=[2, 3], strides=[1]),
                "define_tensor: 2 sizes and 1 strides; one stride per size is needed"),
    "cpu": (lambda f: f.define_tensor(shape=[2], is_cpu=True),
            "define_tensor: is_cpu with shape [2]; a 0-d one is needed"),
    "dtype": (lambda f: f.define_tensor(shape=[2], dtype="f32"),
              "dtype is 'f32'; a DataType is needed"),
    "from_pytorch": (lambda f: f.from_pytorch(np.ones(2, np.complex64)),
                     "array: dtype complex64 is not supported; use bool, int8"),
    "alias dtype": (lambda f: f.add_output(f.ops.cast(f.b, D.Half), f.b),
                    "add_output: t5 cannot alias t1: dtypes are Half and Float; they must agree"),
    "alias shape": (lambda f: f.add_output(f.ops.permute(f.i, [2, 1, 0]), f.i),
                    "add_output: t5 cannot alias t2: shapes are [5, 1, 3] and [3, 1, 5]; they"),
    "alias extent": (lambda f: f.add_output(f.ops.permute(f.x, [1, 0]), f.x),
                     None),
    "alias input": (lambda f: f.add_output(f.b, f.ops.neg(f.b)),
                    "add_output: t1 cannot alias t5: it is no input; an input tensor is needed"),
    "alias twice": (lambda f: (f.add_output(f.ops.neg(f.b), f.b), f.add_output(f.b, f.b)),
                    "add_output: t1 cannot alias t1: output t5 already does; one output per"),
    "no list": (lambda f: f.define_tensor(shape=5), "define_tensor: takes no such arguments: "),
    "float axis": (lambda f: f.ops.sum(f.x, 1.5), "sum: takes no such arguments: 'float' object"),
    "cat of one": (lambda f: f.ops.cat(f.x), "cat: takes no such arguments: t0: tensors of a"),
    "no operand": (lambda f: f.ops.sum(), "sum: takes no such arguments: "),
    "vector": (lambda f: f.define_vector("a"),
               "define_vector: number of items is 'a'; an int from 0 to 2**63 - 1 is needed"),
    "a list": (lambda f: f.from_pytorch([1.0, 2.0]),
               "array: got [1.0, 2.0], a list; needed an array with a dtype and a shape, of NumPy"),
    "an op to come": (lambda f: f.ops.matmul(f.x, f.x),
                      "ops.matmul: is not there yet; near names: mul"),
    "an op misspelt": (lambda f: f.ops.rsqr(f.x), "ops.rsqr: is no operation; near names: rsqrt"),
    "no op": (lambda f: f.ops.xyzzy(f.x), "ops.xyzzy: is no operation"),
    "an op to come, as a function": (lambda f: fuser.ops.topk(f.x), "ops.topk: is not there yet"),
    "past Int": (lambda f: f.i + 2**63, f"add: {2**63} does not fit Int; {-2**63} to {2**63 - 1}"),
    "below Int": (lambda f: f.i > -2**63 - 1, f"gt: {-2**63 - 1} does not fit Int"),
    "past Int, logical": (lambda f: f.ops.logical_and(f.i, 2**64), f"{2**64} does not fit Int"),
    "past Int, chosen": (lambda f: f.ops.where(f.i > 0, f.i, 2**63), "where: 92233720368547758"),
    "past Int, full": (lambda f: f.ops.full([2], 2**63, D.Int32), "full: 9223372036854775808 does"),
    "past Int, pad": (lambda f: f.ops.pad(f.i, [1, 1], 2**63), "pad of t2: 9223372036854775808"),
    "past Int, cast": (lambda f: f.ops.cast(2**63, D.Int), "cast: 9223372036854775808 does not"),
    "past Int, iota": (lambda f: f.ops.iota(3, 2**63), "iota: start: 9223372036854775808 does"),
    "past Int, scalar": (lambda f: f.define_scalar(2**63, D.Int), "define_scalar: 922337203685477"),
    "past floats": (lambda f: f.x * 10**400, "mul: an integer does not fit a float; -1.79769313"),
    "scalar output": (lambda f: f.add_output(f.s), "add_output: got <Scalar s3: f64>; a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", [name for name, (_, text) in CASES.items() if text])
def test_definition_error(case):
    act, text = CASES[case]
    with pytest.raises(DefinitionError, match=re.escape(text)) as caught:
        act(Fusion())
    assert caught.value.location is not None, "the user's line is missing"
    assert str(caught.value).startswith(f"{__file__}:")
    line = Path(__file__).read_text().splitlines()[caught.value.location.line - 1]
    assert "lambda f:" in line


def test_tensors_have_no_truth_value_length_or_iterator():
    f = Fusion()
    with pytest.raises(TypeError, match="t0: has no truth value while a fusion is defined"):
        bool(f.x)
    with pytest.raises(TypeError, match="t0: its length is an Int scalar"):
        len(f.x)
    with pytest.raises(TypeError, match="t0: tensors of a fusion cannot be iterated"):
        list(f.x)
    assert f.x != None  # noqa: E711 (comparison with what is no operand is Python's)


def test_a_finished_definition_takes_no_more_calls():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x)
    with pytest.raises(DefinitionError, match=r"errors.py:\d+: neg: the definition is finished"):
        fd.ops.neg(x)


def test_a_tensor_of_a_finished_definition_is_foreign():
    """Whichever side it stands on, and with whatever else: the fault is the operand."""
    with FusionDefinition() as fd:
        old = fd.define_tensor(shape=[-1])
        fd.add_output(old)
    with FusionDefinition() as fd:
        new = fd.define_tensor(shape=[-1])
        for act in (
            lambda: old + new, lambda: new + old, lambda: old * 2.0, lambda: fd.ops.add(old, new),
            lambda: fuser.ops.relu(old), lambda: fuser.ops.add(old, new), lambda: -old,
        ):  # fmt: skip
            with pytest.raises(DefinitionError, match="operand old belongs to another Fusion"):
                act()


def test_large_integers_are_floats_beside_floats():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x + 2**63)
        fd.add_output(x < 10**300)
    wide, less = fd.execute([np.ones(3, np.float32)], backend="interpret")
    np.testing.assert_array_equal(wide, np.full(3, 2.0**63, np.float32))
    assert less.all()


def test_a_missing_operation_is_no_attribute():
    fd = FusionDefinition()
    assert not hasattr(fd.ops, "matmul")
    assert not hasattr(fuser.ops, "matmul")
    assert not hasattr(fd.ops, "__wrapped__")


def test_what_is_planned_is_missing_and_listed():
    existing = set(operation_names())
    texts = [(ROOT / name).read_text() for name in ("README.md", "docs/ops.md")]
    for name in PLANNED:
        assert name not in existing
        assert all(f"`{name}`" in text for text in texts), name


def test_a_definition_without_outputs_has_nothing_to_execute():
    with FusionDefinition() as fd:
        fd.define_tensor(shape=[-1])
    for call in (fd.execute, fd.compile, fd.manual_execute, fd.validate):
        with pytest.raises(DefinitionError, match="the definition has no outputs; needed an add_"):
            call([np.ones(3, np.float32)])


@pytest.mark.parametrize("given", [np.ones(4, np.float32), np.ones(1, np.float32), 3, "ab"])
def test_inputs_are_a_list(given):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        fd.add_output(x + 1.0)
    text = f"execute: got a {type(given).__name__}; needed a list of inputs, one for each of x"
    for call in (fd.execute, fd.manual_execute):
        with pytest.raises(InputError, match=text):
            call(given, backend="interpret")


def test_an_index_out_of_range_names_the_size():
    @fuser.fuse
    def fifth(x):
        return x[5]

    @fuser.fuse
    def fifth_from_behind(x):
        return x[:, -5]

    with pytest.raises(InputError, match=r"index into x: dimension 0: index 5 is out of range: "
                       r"size 0 of x is 3; at least 6 is needed"):  # fmt: skip
        fifth(np.ones(3, np.float32))
    with pytest.raises(InputError, match=r"dimension 1: index -5 is out of range: size 1 of x is "
                       r"4; at least 5 is needed"):  # fmt: skip
        fifth_from_behind(np.ones((9, 4), np.float32))


def test_number_of_inputs():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        shape = fd.define_vector(2)
        fd.add_output(x)
    names = ", ".join(item.name for item in shape)
    text = f"execute: got 1 inputs; the definition has 2: x, [{names}]"
    with pytest.raises(InputError, match=re.escape(text)):
        fd.named_inputs([1])
    with pytest.raises(InputError, match="has 3 items; the definition says 2"):
        fd.named_inputs([1, [1, 2, 3]])
    assert fd.named_inputs([7, (5, 6)]) == ({"x": 7}, {shape[0].name: 5, shape[1].name: 6})


def bindable():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4096], contiguity=True, dtype=D.Float)
        y = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=D.Float)
        n = fd.define_scalar(D.Int)
        fd.add_output(x + y)
        fd.add_output(x[-2])
        fd.add_output(fd.ops.full([n], 0, D.Float))
    return fd.fusion


def test_sizes_are_bound():
    shape = (3, 4096)
    arrays = {"x": np.ones(shape, np.float32), "y": np.ones(shape, np.float32)}
    sizes = bind_sizes(bindable(), arrays, {"n": 7})
    assert sizes == {"x_size0": 3, "x_size1": 4096, "y_size0": 3, "y_size1": 4096, "n": 7}


@pytest.mark.parametrize(
    ("x", "y", "n", "text"),
    [
        (None, (3, 4096), 1, "input x: is missing; the fusion needs every input"),
        ((3, 5), (3, 5), 1, "input x: size of dimension 1 is 5; the definition says 4096"),
        ((3,), (3, 5), 1, "input x: has 1 dimensions [3]; the definition says 2"),
        ((3, 4096), (4, 4096), 1,
         "inputs x, y: add: dimension 0 of x and y: size 0 of x is 3 and size 0 of y is 4; they"),
        ((1, 4096), (1, 4096), 1, "input x: index into x: dimension 0: index -2 is out of range"),
        ((3, 4096), (3, 4096), -2, "input n: dimension 0 of t15 becomes -2; extents are not"),
    ],
)  # fmt: skip
def test_input_errors(x, y, n, text):
    arrays = {"y": np.ones(y, np.float32)}
    if x is not None:
        arrays["x"] = np.ones(x, np.float32)
    with pytest.raises(InputError) as caught:
        bind_sizes(bindable(), arrays, {"n": n})
    assert re.sub(r"t\d+", "t15", text) in re.sub(r"t\d+", "t15", str(caught.value))


def test_input_dtypes():
    y = np.ones((3, 4096), np.float32)
    with pytest.raises(InputError, match="input x: dtype is Double; the definition says Float"):
        bind_sizes(bindable(), {"x": y.astype(np.float64), "y": y}, {"n": 1})
    with pytest.raises(InputError, match="input x: dtype complex128 is not supported; use Bool"):
        bind_sizes(bindable(), {"x": y.astype(complex), "y": y}, {"n": 1})


def test_an_alias_of_symbolic_extents_is_checked_when_sizes_are_bound():
    f = Fusion()
    f.add_output(f.ops.permute(f.x, [1, 0]), f.x)
    (first, second) = f.fusion.constraints
    assert {repr(first.lhs), repr(first.rhs)} == {"t0_size0", "4096"}
    assert first.why == "add_output: t5 cannot alias t0: dimension 0"
    assert {second.lhs, second.rhs} == {first.lhs, first.rhs}
