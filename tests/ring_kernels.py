"""Hand-written kernels over rings of stages, one per combination of choices, and their mutants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, ZERO, Const, Expr, Var, equal, less, maximum, minimum
from fuser.kir.core import (
    BarrierArray,
    Kernel,
    SharedArray,
    SizeParam,
    Stmt,
    TensorMapParam,
    TensorParam,
    Unroll,
)
from fuser.kir.scalar import Apply, Element, Literal, Ref
from fuser.kir.stmts import (
    Assign,
    BulkCommit,
    BulkLoad,
    BulkStore,
    BulkWaitRead,
    CpAsync,
    CpAsyncArrive,
    DeclareRegisters,
    DeclareScalar,
    FenceProxyAsync,
    For,
    If,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    MbarrierWaitToken,
    NamedBarrier,
    Role,
    Roles,
    Store,
    SyncThreads,
    TensorLoad,
    TensorStore,
)

F32, INT = DataType.Float, DataType.Int
THREAD, BX, N, L, S = (Var(n) for n in ("thread", "bx", "n", "l", "s"))
ROLLED = Unroll("rolled")
TX = ("bulk", "tensor")
Body = tuple[Stmt, ...]


@dataclass(frozen=True)
class Ring:
    """Choices of a kernel over `n` tiles a block.

    ``y = x0 (+ x1)`` with every tile reversed, or the sums of that over the tiles.

    Attributes
    ----------
    loads
        How each operand gets into shared memory: bulk, tensor, cp.async or set.
    roles
        A producer warp and consumers, instead of the pipelined loop.
    store
        How a map's result gets out: plain, bulk or tensor.
    """

    stages: int
    loads: tuple[str, ...] = ("bulk",)
    sync: str = "parity"
    war: str = "mbarrier"
    roles: bool = False
    store: str = "plain"
    total: bool = False
    prefetch: int | None = None
    consumers: int = 64
    tile: int = 64
    blocks: int = 2

    @property
    def distance(self) -> int:
        """Trips between fill and use."""
        return self.stages - 1 if self.prefetch is None else self.prefetch

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.consumers + 32 * self.roles

    @property
    def writers(self) -> int:
        """Threads that fill a stage."""
        return 32 if self.roles else self.consumers

    @property
    def elected(self) -> Expr:
        """Whether this thread speaks to the copy engine."""
        return equal(THREAD, self.threads - 32 if self.roles else 0)

    @property
    def arrivals(self) -> int:
        """Arrivals that fill a stage."""
        if self.sync == "token":
            return self.writers * (1 + self.loads.count("cp.async"))
        by_thread = sum(kind not in TX for kind in self.loads)
        return any(kind in TX for kind in self.loads) + self.writers * by_thread

    def kernel(self) -> Kernel:
        """Build it."""
        params = [TensorParam(f"x{i}", F32, "in", N * self.blocks * self.tile)
                  for i in range(len(self.loads))]  # fmt: skip
        out = Const(self.blocks * self.consumers) if self.total else N * self.blocks * self.tile
        params += [TensorParam("y", F32, "out", out), SizeParam("n")]
        dims = Const(self.tile), N * self.blocks
        maps = [n for n in ("x0", "x1", "y") if n in self._mapped()]
        params += [TensorMapParam(f"{n}_map", n, F32, dims, (Const(self.tile * 4),),
                                  (self.tile, 1)) for n in maps]  # fmt: skip
        shared = [SharedArray(f"t{i}", F32, self.stages * self.tile, 128)
                  for i in range(len(self.loads))]  # fmt: skip
        if self.store != "plain":
            shared.append(SharedArray("out", F32, self.tile, 128))
        barriers = [BarrierArray("full", self.stages)]
        if self.war == "mbarrier":
            barriers.append(BarrierArray("empty", self.stages))
        return Kernel(
            "ring", tuple(params), tuple(shared), (Const(self.blocks), ONE, ONE),
            (Const(self.threads), ONE, ONE), "i32", self._body(), barriers=tuple(barriers),
        )  # fmt: skip

    def _mapped(self) -> set[str]:
        names = {f"x{i}" for i, kind in enumerate(self.loads) if kind == "tensor"}
        return names | ({"y"} if self.store == "tensor" else set())

    def _body(self) -> Body:
        inits: Body = (MbarrierInit("full", S, Const(self.arrivals)),)
        invals: Body = (MbarrierInval("full", S),)
        if self.war == "mbarrier":
            inits += (MbarrierInit("empty", S, Const(self.consumers)),)
            invals += (MbarrierInval("empty", S),)

        def stages(body: Body) -> Stmt:
            return For("s", Const(self.stages), body)

        loops = self._roles() if self.roles else self._pipeline()
        head: Body = (DeclareScalar("total", F32, Literal(0.0, F32)),) if self.total else ()
        if self.sync == "token":
            head += (DeclareRegisters("tokens", INT, self.stages),)
        tail: Body = (Store("y", BX * self.consumers + THREAD, Ref("total", F32)),)
        return (
            *head,
            If(equal(THREAD, 0), (stages(inits), MbarrierInitFence())),
            SyncThreads("the barriers exist"),
            *loops,
            *(tail if self.total and not self.roles else ()),
            SyncThreads("nobody waits any more"),
            If(equal(THREAD, 0), (stages(invals),)),
        )  # fmt: skip

    def _pipeline(self) -> Body:
        p = self.distance
        main = (*self.fill(L + p), *self.use(L), *self.release(L))
        return (
            For("l", minimum(Const(p), N), self.fill(L), ROLLED),
            For("l", maximum(N - p, 0), main, ROLLED),
            For("l", N, self.use(L), ROLLED, maximum(N - p, 0)),
            *((If(self.elected, (BulkWaitRead(0),)),) if self.store != "plain" else ()),
        )

    def _roles(self) -> Body:
        tail: Body = (
            (Store("y", BX * self.consumers + THREAD, Ref("total", F32)),) if self.total else ()
        )
        drain: Body = (If(equal(THREAD, 0), (BulkWaitRead(0),)),) if self.store != "plain" else ()
        consume = (For("l", N, (*self.use(L), *self.release(L)), ROLLED), *tail, *drain)
        return (
            Roles((
                Role("consumer", 0, self.consumers, consume),
                Role("producer", self.consumers, 32, (For("l", N, self.fill(L), ROLLED),)),
            )),
        )  # fmt: skip

    # one trip --------------------------------------------------------------------------------

    def fill(self, trip: Expr) -> Body:
        """Load the operands of a trip into its stage."""
        stage = trip % self.stages
        free: Body = ()
        if self.war == "mbarrier":
            parity = (trip // self.stages % 2) ^ 1
            free = (MbarrierWait("empty", stage, parity, "the stage is free"),)
        copies = [self._load(i, kind, trip, stage) for i, kind in enumerate(self.loads)]
        engine = tuple(s for kind, s in zip(self.loads, copies, strict=True) if kind in TX)
        threads = tuple(s for kind, s in zip(self.loads, copies, strict=True) if kind not in TX)
        nbytes = Const(len(engine) * self.tile * 4)
        if self.sync == "token":
            own: Body = (MbarrierArriveToken("tokens", stage, "full", stage),)
            if engine:
                tx = MbarrierArriveToken("tokens", stage, "full", stage, nbytes)
                own = (If(self.elected, (tx, *engine), own),)
            late = tuple(CpAsyncArrive("full", stage) for k in self.loads if k == "cp.async")
            return (*free, *threads, *own, *late)
        if not threads:
            tx = MbarrierArriveExpectTx("full", stage, nbytes)
            return (If(self.elected, (*free, tx, *engine)),)
        tx_part: Body = ()
        if engine:
            tx_part = (If(self.elected, (MbarrierArriveExpectTx("full", stage, nbytes), *engine)),)
        arrivals: Body = tuple(
            CpAsyncArrive("full", stage) if kind == "cp.async" else MbarrierArrive("full", stage)
            for kind in self.loads
            if kind not in TX
        )
        return (*free, *tx_part, *threads, *arrivals)

    def _load(self, operand: int, kind: str, trip: Expr, stage: Expr) -> Stmt:
        dst, src, first = f"t{operand}", f"x{operand}", (BX * N + trip) * self.tile
        at = stage * self.tile
        if kind == "bulk":
            return BulkLoad(dst, at, src, first, Const(self.tile * 4), "full", stage)
        if kind == "tensor":
            return TensorLoad(dst, at, f"{src}_map", (ZERO, BX * N + trip), "full", stage)
        me = THREAD - (self.threads - 32) if self.roles else THREAD
        if kind == "cp.async":
            at_i = (Var("i") * self.writers + me) * 2
            copy: Stmt = CpAsync(dst, at + at_i, src, first + at_i, 2, F32)
            trips = self.tile // self.writers // 2
            if not trips:  # fewer vectors than threads
                return If(less(me, self.tile // 2), (_with_i(copy),))
            return For("i", Const(trips), (copy,))
        at_i = Var("i") * self.writers + me
        store = Store(dst, at + at_i, Element(src, first + at_i, F32))
        return For("i", Const(self.tile // self.writers), (store,))

    def use(self, trip: Expr) -> Body:
        """Wait for the stage and compute from it."""
        stage = trip % self.stages
        wait: Stmt = (
            MbarrierWaitToken("full", stage, "tokens", stage, "the stage is full")
            if self.sync == "token"
            else MbarrierWait("full", stage, trip // self.stages % 2, "the stage is full")
        )
        place = stage * self.tile + (self.tile - 1) - THREAD  # what another warp has written
        value = Element("t0", place, F32)
        for i in range(1, len(self.loads)):
            other = Element(f"t{i}", place, F32)
            value = Apply("add", (value, other), F32)
        if self.total:
            return wait, Assign("total", Apply("add", (Ref("total", F32), value), F32))
        first = (BX * N + trip) * self.tile
        if self.store == "plain":
            return wait, Store("y", first + THREAD, value)
        out: Stmt = (
            BulkStore("y", first, "out", ZERO, Const(self.tile * 4))
            if self.store == "bulk"
            else TensorStore("y_map", (ZERO, BX * N + trip), "out", ZERO)
        )
        return (
            wait,
            If(equal(THREAD, 0), (BulkWaitRead(0),)),
            self.meet("the tile before has left"),
            Store("out", THREAD, value),
            FenceProxyAsync("the copy engine reads the tile"),
            self.meet("the tile is complete"),
            If(equal(THREAD, 0), (out, BulkCommit())),
        )

    def meet(self, why: str) -> Stmt:
        """Return a barrier of the consumers."""
        return NamedBarrier(Const(1), self.consumers, why) if self.roles else SyncThreads(why)

    def release(self, trip: Expr) -> Body:
        """Let the stage be filled again."""
        if self.war == "mbarrier":
            return (MbarrierArrive("empty", trip % self.stages),)
        return (SyncThreads("the stage has been read"),)

    # data ------------------------------------------------------------------------------------

    def arrays(self, trips: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Return inputs, and an output of NaN."""
        rng = np.random.default_rng(seed)
        numel = self.blocks * trips * self.tile
        inputs = {f"x{i}": rng.integers(-99, 99, numel).astype(np.float32)
                  for i in range(len(self.loads))}  # fmt: skip
        out = self.blocks * self.consumers if self.total else numel
        return inputs | {"y": np.full(out, np.nan, np.float32)}

    def expected(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Return what the kernel computes; small integers, so every order of sums is exact."""
        value = sum(arrays[f"x{i}"].astype(np.float64) for i in range(len(self.loads)))
        value = value.reshape(self.blocks, -1, self.tile)[:, :, ::-1]
        if self.total:
            value = value.sum(axis=1)
        return value.reshape(-1).astype(np.float32)


def _with_i(stmt: Stmt) -> Stmt:
    return For("i", ONE, (stmt,))


def rewrite(body: Body, change: Callable[[Stmt], Body | None]) -> Body:
    """Replace statements by what `change` returns; ``None`` keeps one and looks inside."""
    result: list[Stmt] = []
    for stmt in body:
        new = change(stmt)
        if new is not None:
            result += new
            continue
        match stmt:
            case For(body=inner):
                stmt = replace(stmt, body=rewrite(inner, change))
            case If(body=then, orelse=orelse):
                stmt = replace(stmt, body=rewrite(then, change), orelse=rewrite(orelse, change))
            case Roles(roles=roles):
                stmt = Roles(tuple(replace(r, body=rewrite(r.body, change)) for r in roles))
            case _:
                pass
        result.append(stmt)
    return tuple(result)


def mutant(
    kernel: Kernel, kind: type[Stmt], change: Callable[[Stmt], Body], **fields: object
) -> Kernel:
    """Change every statement of `kind` with these fields; there must be one."""
    hits = 0

    def one(stmt: Stmt) -> Body | None:
        nonlocal hits
        if not isinstance(stmt, kind) or any(getattr(stmt, f) != v for f, v in fields.items()):
            return None
        hits += 1
        return change(stmt)

    result = replace(kernel, body=rewrite(kernel.body, one))
    assert hits, f"no {kind.__name__} with {fields}"
    return result
