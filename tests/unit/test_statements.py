"""Every statement has a template, every template a statement, and their names agree."""

import dataclasses
import importlib
import inspect
import pkgutil

import jinja2.nodes as jn
import pytest
from jinja2 import meta
from stmt_examples import EXAMPLES

import fuser.kir.stmts as stmts
from fuser.codegen.emit import render
from fuser.codegen.env import environment, template_dir
from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import ONE, Const, Var
from fuser.kir.core import Kernel, SharedArray, Stmt, TensorParam, Unroll
from fuser.kir.scalar import Literal
from fuser.kir.stmts import (
    BlockReduce,
    For,
    GridReduce,
    If,
    Store,
    VectorLoad,
    VectorStore,
    WarpReduce,
)
from fuser.kir.verify import verify_kernel

ALLOWED = (jn.Template, jn.Output, jn.TemplateData, jn.Name, jn.Filter, jn.Const)
F32, BF16 = DataType.Float, DataType.BFloat16
IV, N = Var("i"), Var("n")


def test_table_lists_every_statement_class():
    found = set()
    for info in pkgutil.iter_modules(stmts.__path__):
        module = importlib.import_module(f"{stmts.__name__}.{info.name}")
        classes = (c for _, c in inspect.getmembers(module, inspect.isclass))
        found |= {c for c in classes if issubclass(c, Stmt) and c is not Stmt}
    assert found == set(stmts.STATEMENTS)


def test_no_orphan_templates():
    files = {f"stmt/{p.name}" for p in (template_dir() / "stmt").iterdir()}
    assert files == {s.template() for s in stmts.STATEMENTS}


@pytest.mark.parametrize("stmt", stmts.STATEMENTS, ids=lambda s: s.__name__)
def test_statement_is_frozen_data(stmt):
    assert dataclasses.is_dataclass(stmt)
    assert stmt.__dataclass_params__.frozen
    assert "__slots__" in vars(stmt)


@pytest.mark.parametrize(
    "path", sorted(str(p.relative_to(template_dir())) for p in template_dir().rglob("*.j2"))
)
def test_templates_hold_no_logic(path):
    ast = environment().parse((template_dir() / path).read_text())
    bad = [n for n in ast.find_all(jn.Node) if not isinstance(n, ALLOWED)]
    assert not bad, f"{path}: logic in template: {bad}"


def test_every_statement_has_an_example():
    assert {type(e) for e in EXAMPLES} == set(stmts.STATEMENTS)


@pytest.mark.parametrize("stmt", EXAMPLES, ids=lambda s: type(s).__name__)
def test_context_keys_match_template(stmt):
    source = (template_dir() / stmt.template()).read_text()
    wanted = meta.find_undeclared_variables(environment().parse(source))
    assert set(stmt.context(lambda _: "")) == wanted


@pytest.mark.parametrize(
    ("loop", "pragma"),
    [
        (For("i", Const(16), ()), "#pragma unroll"),
        (For("i", Const(17), ()), "#pragma unroll 1"),
        (For("i", Const(64), (), start=Const(32), step=Const(2)), "#pragma unroll"),
        (For("i", N, ()), "#pragma unroll 1"),
        (For("i", Const(100), (), Unroll("full")), "#pragma unroll"),
        (For("i", Const(8), (), Unroll("rolled")), "#pragma unroll 1"),
        (For("i", N, (), Unroll("partial", 4)), "#pragma unroll 4"),
    ],
)
def test_every_loop_has_one_pragma_right_before_it(loop, pragma):
    lines = render((loop,)).splitlines()
    assert lines[0] == pragma
    assert lines[1].startswith("for (idx i = ")
    assert sum(line.startswith("#pragma") for line in lines) == 1


def test_else_branch():
    store = Store("y", IV, Literal(0.0, F32))
    assert render((If(N, (store,), (store,)),)) == (
        "if (n) {\n  y[i] = 0.0f;\n} else {\n  y[i] = 0.0f;\n}"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: VectorLoad("r", IV, "x", IV, 16, BF16),
            r"^VectorLoad of x: 16 x bf16 is 32 bytes; one access moves 1, 2, 4, 8 or 16$",
        ),
        (
            lambda: VectorStore("x", IV, "r", IV, 3, F32),
            r"^VectorStore of x: 3 x f32 is 12 bytes; one access moves 1, 2, 4, 8 or 16$",
        ),
        (
            lambda: VectorStore("x", IV, "r", IV, 4, F32, "nc"),
            r"^VectorStore of x: hint 'nc'; needs one of \['', 'ca', 'cg', 'cs'\]$",
        ),
        (
            lambda: WarpReduce("v", "sum", F32, 12),
            r"^WarpReduce of v: width 12; needs a power of two from 2 to 32$",
        ),
        (
            lambda: BlockReduce("v", "sum", F32, ("x", "x"), "s"),
            r"^BlockReduce of v: axes \('x', 'x'\); needs distinct x, y or z$",
        ),
    ],
)
def test_statement_errors(make, message):
    with pytest.raises(VerifyError, match=message):
        make()


_BLOCK = (Const(64), ONE, ONE)


def _kernel(*body, block=_BLOCK, shared=(), mode="out"):
    params = (TensorParam("y", F32, mode, N),)
    return Kernel("k", params, shared, (ONE, ONE, ONE), block, "i32", body)


def _grid_reduce(partials, counter):
    return GridReduce("v", "sum", F32, partials, counter, IV, N, IV, IV, N, "last")


_REDUCE = BlockReduce("v", "sum", F32, ("x",), "s")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            _kernel(block=(Const(64), Const(32), ONE)),
            r"^kernel k: 2048 threads per block; needs 1 to 1024$",
        ),
        (
            _kernel(shared=(SharedArray("s", F32, 58113),)),
            r"^kernel k: 232452 bytes of shared memory; at most 232448 are available to a block$",
        ),
        (
            _kernel(Store("z", IV, Literal(0.0, F32))),
            r"^kernel k: Store names z, which is no parameter, shared array or register array$",
        ),
        (
            _kernel(Store("y", IV, Literal(0.0, F32)), mode="in"),
            r"^kernel k: Store writes y, an input; needs mode out, inout or workspace$",
        ),
        (
            _kernel(_REDUCE),
            r"^kernel k: scratch s of BlockReduce\(v\) is no shared array; needs f32$",
        ),
        (
            _kernel(_REDUCE, shared=(SharedArray("s", DataType.Int, 64),)),
            r"^kernel k: scratch s of BlockReduce\(v\) is i64 array; needs f32$",
        ),
        (
            _kernel(_REDUCE, shared=(SharedArray("s", F32, 1),)),
            r"^kernel k: scratch s of BlockReduce\(v\) has 1 elements; needs 2$",
        ),
        (
            _kernel(_REDUCE, shared=(SharedArray("s", F32, 2),), block=(N, ONE, ONE)),
            r"^kernel k: scratch s of BlockReduce\(v\) has 2 elements; needs 1024$",
        ),
        (
            _kernel(_grid_reduce("z", "y")),
            r"^kernel k: partials z of GridReduce\(v\) is no parameter; needs f32$",
        ),
        (
            _kernel(_grid_reduce("y", "y")),
            r"^kernel k: counter y of GridReduce\(v\) is a f32 tensor; needs i32$",
        ),
    ],
)
def test_kernel_errors(kernel, message):
    with pytest.raises(VerifyError, match=message):
        verify_kernel(kernel)
