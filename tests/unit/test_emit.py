"""CUDA text: exact literals, few parentheses, only what the kernel uses."""

import re
import subprocess
import sys

import numpy as np
import pytest
from stmt_examples import EXAMPLES

from fuser.codegen.emit import emit, render
from fuser.codegen.env import template
from fuser.codegen.prelude import definitions, parse, prelude_for, words
from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import ONE, ZERO, Const, Var, less, minimum
from fuser.fusion.names import RESERVED
from fuser.kir.core import Kernel, ScalarParam, SharedArray, SizeParam, TensorParam
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref
from fuser.kir.stmts import BlockReduce, DeclareScalar, If, Let, Store, SyncThreads
from fuser.kir.text import is_atom, literal_to_c, value_to_c

pytestmark = pytest.mark.unit

F32, F64, BF16, INT = DataType.Float, DataType.Double, DataType.BFloat16, DataType.Int
IV, N = Var("i"), Var("n")
A, B = Ref("a", F32), Ref("b", F32)


def _apply(op, *args, dtype=F32):
    return Apply(op, args, dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.5, F32, "0.5f"),
        (-0.0, F32, "-0.0f"),
        (0.1, F32, "0.1f"),
        (1e30, F32, "1.0e+30f"),
        (1e300, F32, "INF_F32"),
        (float("-inf"), F32, "-INF_F32"),
        (float("nan"), F32, "NAN_F32"),
        (3, F32, "3.0f"),
        (0.1, F64, "0.1"),
        (2, F64, "2.0"),
        (float("-inf"), F64, "-INF_F64"),
        (float("nan"), F64, "NAN_F64"),
        (True, DataType.Bool, "true"),
        (7, DataType.Int32, "7"),
        (-(2**31), DataType.Int32, "(-2147483647 - 1)"),
        (7, INT, "7ll"),
        (-(2**63), INT, "(-9223372036854775807ll - 1)"),
        (-128, DataType.Int8, "i8(-128)"),
        (255, DataType.UInt8, "u8(255)"),
        (0.1, BF16, "cast<bf16>(0.100097656f)"),
        (1e30, DataType.Half, "cast<f16>(INF_F32)"),
    ],
)
def test_literal(value, dtype, text):
    assert literal_to_c(value, dtype) == text


def test_float_literals_round_trip(rng):
    for bits in rng.integers(0, 2**32, 500, np.uint32):
        value = bits.view(np.float32)
        if np.isfinite(value):
            text = literal_to_c(float(value), F32)
            assert re.fullmatch(r"-?\d+\.\d*(e[+-]\d+)?f", text)
            assert np.float32(text[:-1]).view(np.uint32) == bits


@pytest.mark.parametrize(("value", "dtype"), [(128, DataType.Int8), (-1, DataType.UInt8)])
def test_literal_outside_its_type(value, dtype):
    with pytest.raises(VerifyError, match=rf"^literal {value}: outside {dtype.short}; needs a val"):
        literal_to_c(value, dtype)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (_apply("mul", _apply("add", A, B), Literal(0.5, F32)), "((a + b) * 0.5f)"),
        (_apply("mul", A, Literal(-0.5, F32)), "(a * (-0.5f))"),
        (_apply("maximum", _apply("add", A, B), B), "max_nan(a + b, b)"),
        (Cast(_apply("add", A, B), BF16), "cast<bf16>(a + b)"),
        (Cast(A, F32), "a"),
        (Element("x", IV * 2 + 1, F32), "x[i * 2 + 1]"),
        (Element("x", IV, F32, less(IV, N), Literal(1.0, F32)), "(i < n ? x[i] : 1.0f)"),
        (Element("x", IV, BF16, less(IV, N)), "(i < n ? x[i] : cast<bf16>(0.0f))"),
        (Choose(less(IV, N), A, _apply("add", A, B), F32), "(i < n ? a : (a + b))"),
        (FromIndex(IV + 1, INT), "(i64)(i + 1)"),
        (FromIndex(Const(4), INT), "4ll"),
        (_apply("lt", A, B, dtype=DataType.Bool), "(a < b)"),
        (_apply("where", Ref("c", DataType.Bool), A, B), "(c ? a : b)"),
    ],
)
def test_values(value, text):
    assert value_to_c(value) == text


@pytest.mark.parametrize(
    "text", ["x", "x[i + 1]", "f(a, b)", "(i64)(a + b)", "cast<bf16>(a + b)", "1.0e-30f", "(a)"]
)
def test_atoms(text):
    assert is_atom(text)


@pytest.mark.parametrize("text", ["a + b", "-1.0f", "(a) + (b)", "c ? a : b"])
def test_no_atoms(text):
    assert not is_atom(text)


_BX, _TX = Var("bx"), Var("tx")
_COPY = (
    Let("i", _BX * 128 + _TX),
    If(less(IV, N), (Store("y", IV, Cast(Element("x", IV, BF16), F32)),)),
)


def _kernel(body=_COPY, **fields):
    given = {
        "name": "widen",
        "params": (
            TensorParam("x", BF16, "in", N),
            TensorParam("y", F32, "out", N),
            SizeParam("n"),
        ),
        "shared": (),
        "grid": (N, ONE, ONE),
        "block": (Const(128), ONE, ONE),
        "index": "i32",
        "body": body,
    }
    return Kernel(**(given | fields))


def _function(source):
    return source[source.index('extern "C"') :]


def test_a_small_kernel_in_full():
    assert _function(emit(_kernel())) == (
        'extern "C" __global__ void __launch_bounds__(128) '
        "widen(const bf16* __restrict__ x, float* __restrict__ y, const idx n) {\n"
        "  const idx bx = blockIdx.x, tx = threadIdx.x;\n"
        "  const idx i = bx * 128 + tx;\n"
        "  if (i < n) {\n"
        "    y[i] = cast<float>(x[i]);\n"
        "  }\n"
        "}"
    )


def test_wide_indices_bring_their_own_min():
    body = (Store("y", minimum(N, 3), Literal(0.0, F32)),)
    assert "long long min(" in emit(_kernel(body, index="i64"))
    assert "long long min(" not in emit(_kernel(body))
    assert "long long min(" not in emit(_kernel(index="i64"))


def test_header_and_index_type():
    source = emit(_kernel(header=("widen", "", "y = x"), index="i64"))
    assert source.startswith("// widen\n//\n// y = x\ntypedef long long idx;\n")
    assert emit(_kernel()).startswith("typedef int idx;\n")


def test_launch_bounds_only_of_constant_blocks():
    assert "__launch_bounds__(128, 4) " in emit(_kernel(min_blocks=4))
    assert "__launch_bounds__" not in emit(_kernel(block=(N, ONE, ONE)))


def test_parameters_say_what_may_change_and_alias():
    params = (
        TensorParam("x", BF16, "in", N, aliased=True),
        TensorParam("y", F32, "inout", N),
        ScalarParam("s", F64),
        ScalarParam("scale_of_the_output", F32),
        SizeParam("n"),
    )
    source = emit(_kernel(params=params))
    assert "    const bf16* x,\n    float* __restrict__ y,\n    const double s,\n" in source


def test_block_extents_are_printed_where_a_reduction_needs_them():
    reduce = (
        DeclareScalar("v", F32, Literal(0.0, F32)),
        BlockReduce("v", "sum", F32, ("x",), "s"),
        SyncThreads("why not"),
    )
    shared = (SharedArray("s", F32, 1024, 128),)
    fixed = _function(emit(_kernel(reduce, shared=shared)))
    assert "  const int block_x = 128, block_y = 1, block_z = 1;\n" in fixed
    assert "  __shared__ alignas(128) float s[1024];\n" in fixed
    assert "  __syncthreads();  // why not\n" in fixed
    assert "bx" not in fixed
    loose = _function(emit(_kernel(reduce, shared=shared, block=(N, ONE, ONE))))
    assert "  const int block_x = blockDim.x, block_y = 1, block_z = 1;\n" in loose


def test_the_prelude_is_cut_to_what_the_kernel_uses():
    prelude = emit(_kernel()).split('extern "C"')[0]
    assert "struct bf16" in prelude
    assert "Convert<float>" in prelude
    for absent in ("double", "struct f16", "f8e4m3", "max_nan", "__syncthreads", "Convert<i8>"):
        assert absent not in prelude, absent
    assert len(prelude.splitlines()) < 45


def test_overloads_come_with_their_types():
    text = prelude_for("y[i] = cast<f8e5m2>(x[i]);")
    assert "round_to<f8e5m2>" in text
    assert "e5m2_bits" in text
    assert "round_to<f8e4m3>" not in text
    assert "double max_nan" in prelude_for("max_nan(a, 0.5)"), "a literal without f is a double"
    assert "double max_nan" not in prelude_for("max_nan(a, 0.5f)")


def test_prelude_definitions_are_parsed_whole():
    for definition in definitions():
        assert definition.defines, definition.text
        assert definition.text.count("{") == definition.text.count("}")
        assert definition.text.count("#if") == definition.text.count("#endif")
    head, body = "// of the file\n\n// of f\ntemplate <class T>\n", "{\n\n  return g(x);\n}\n"
    source = f"{head}__device__ T f(T x) {body}"
    (f,) = parse(source)
    assert f.text.startswith("// of f\ntemplate")
    assert f.defines == {"f"}
    assert "g" in f.body


@pytest.mark.parametrize("statement", EXAMPLES, ids=lambda s: type(s).__name__)
def test_a_fusion_cannot_name_a_value_like_what_statements_print(statement):
    """A value called ``idx`` or ``warp_allreduce`` would hide what the kernel needs."""
    given = {v for v in statement.context(lambda _: "").values() if isinstance(v, str)}
    printed = words(render((statement,))) - words(" ".join(given))
    defined = {name for d in definitions() for name in d.defines}
    assert printed & (defined | {"idx", "block_x", "block_y", "block_z"}) <= RESERVED
    assert {"INF_F32", "NAN_F32", "INF_F64", "NAN_F64", "cast"} <= RESERVED
    assert {"grid_allreduce", "grid_allreduce_shared"} <= RESERVED


def test_templates_are_parsed_once():
    emit(_kernel())
    misses = template.cache_info().misses
    emit(_kernel())
    assert template.cache_info().misses == misses


def test_jinja2_is_imported_only_to_print():
    code = "import sys, fuser.codegen.emit; print('jinja2' in sys.modules)"
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_bodies_are_indented_once_per_level():
    inner = If(less(IV, N), (Store("y", ZERO, Literal(0.0, F32)),))
    assert render((If(less(ZERO, N), (inner,)),)) == (
        "if (0 < n) {\n  if (i < n) {\n    y[0] = 0.0f;\n  }\n}"
    )
