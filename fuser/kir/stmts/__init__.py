"""All kernel-IR statements. Adding one is one class, one template and one line here."""

from fuser.kir.core import Stmt
from fuser.kir.stmts.control import For, If
from fuser.kir.stmts.memory import Store, VectorLoad, VectorStore
from fuser.kir.stmts.names import Assign, DeclareRegisters, DeclareScalar, Define, Let
from fuser.kir.stmts.reduce import BlockReduce, GridReduce, WarpReduce
from fuser.kir.stmts.sync import SyncThreads

STATEMENTS: tuple[type[Stmt], ...] = (
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

__all__ = [
    "STATEMENTS",
    "Assign",
    "BlockReduce",
    "DeclareRegisters",
    "DeclareScalar",
    "Define",
    "For",
    "GridReduce",
    "If",
    "Let",
    "Store",
    "SyncThreads",
    "VectorLoad",
    "VectorStore",
    "WarpReduce",
]
