"""One instance of every kernel-IR statement; a new statement adds one row."""

from fuser.core.dtypes import DataType
from fuser.core.expr import Const, Var, less
from fuser.kir.core import Stmt
from fuser.kir.scalar import Apply, Cast, Element, Literal, Ref
from fuser.kir.stmts import (
    Assign,
    BlockReduce,
    DeclareRegisters,
    DeclareScalar,
    Define,
    For,
    GridReduce,
    If,
    Let,
    Store,
    SyncThreads,
    VectorLoad,
    VectorStore,
    WarpReduce,
)

F32, BF16 = DataType.Float, DataType.BFloat16
_I = Var("i")
_SUM = Ref("total", F32)
_XI = Element("x_v", _I, BF16)

EXAMPLES: tuple[Stmt, ...] = (
    Assign("total", Apply("add", (_SUM, Cast(_XI, F32)), F32)),
    BlockReduce("total", "sum", F32, ("x",), "scratch"),
    DeclareRegisters("x_v", BF16, 8),
    DeclareScalar("total", F32, Literal(0.0, F32)),
    Define("y", F32, Apply("mul", (Cast(_XI, F32), Literal(0.5, F32)), F32)),
    For("i", Const(8), (Store("x_v", _I, Literal(1.0, BF16)),)),
    GridReduce(
        "total", "sum", F32, "partials", "tickets", Var("bx"), Var("blocks"), Const(0),
        Var("tx"), Const(128), "is_last",
    ),
    If(less(_I, Var("n")), (Assign("total", Literal(1.0, F32)),)),
    Let("i", Var("bx") * 256 + Var("tx")),
    Store("out", _I + 1, Cast(_SUM, BF16)),
    SyncThreads("the tile is complete"),
    VectorLoad("x_v", Const(0), "x", _I * 8, 8, BF16),
    VectorStore("out", _I * 8, "x_v", Const(0), 8, BF16, "cs"),
    WarpReduce("total", "max", F32, 16),
)  # fmt: skip
