"""Hand-written kernels whose warp groups multiply matrices out of a ring's stages.

Two operands of a trip are tiles that the copy engine brings; the stage of a trip is given back one
trip late, behind the wait that leaves one group of products pending.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, ZERO, Const, Expr, Var, equal, less, maximum, minimum
from fuser.kir.core import (
    BarrierArray,
    Kernel,
    Ring,
    SharedArray,
    SizeParam,
    Stmt,
    TensorParam,
    Unroll,
)
from fuser.kir.matrix import MatrixLayout
from fuser.kir.scalar import Element
from fuser.kir.stmts import (
    BulkLoad,
    DeclareRegisters,
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
    Role,
    Roles,
    Store,
    SyncThreads,
    SyncWarp,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)

BF16, F32, INT = DataType.BFloat16, DataType.Float, DataType.Int
THREAD, N, M, T, L, S = (Var(n) for n in ("thread", "n", "m", "t", "l", "s"))
ROLLED = Unroll("rolled")
GROUP, WIDTH, DEPTH, STEP = 128, 64, 64, 16
TILE = WIDTH * DEPTH
"""Elements of a tile of either operand: 64 rows, 64 deep."""
TILE_BYTES = TILE * BF16.nbytes
LAYOUT = MatrixLayout("k", "128B", 0, 1024)
REGISTERS = WIDTH // 2
Body = tuple[Stmt, ...]


@dataclass(frozen=True)
class Products:
    """Choices of a kernel: ``y += sum of A[l] B[l]`` over `n` trips.

    Attributes
    ----------
    groups
        Warp groups that multiply, each all of the stage.
    roles
        A producer warp and consumers, instead of the pipelined loop.
    outer
        The ring inside a loop over `m` outer trips: ``anew`` in each, or ``carried`` over them;
        empty: there is none.
    """

    stages: int
    prefetch: int = 0
    sync: str = "parity"
    war: str = "mbarrier"
    groups: int = 1
    roles: bool = False
    outer: str = ""

    @property
    def consumers(self) -> int:
        """Threads that multiply."""
        return self.groups * GROUP

    @property
    def arrivals(self) -> int:
        """Arrivals that fill a stage."""
        return self.consumers if self.sync == "token" else 1

    @property
    def pending(self) -> int:
        """Groups of products that the wait of a trip leaves pending."""
        return min(1, self.stages - 1)

    def kernel(self) -> Kernel:
        """Build it."""
        threads = self.consumers + 32 * self.roles
        numel = N * TILE if not self.outer else N * M * TILE
        sizes = (SizeParam("n"), SizeParam("m")) if self.outer else (SizeParam("n"),)
        params = (
            TensorParam("a", BF16, "in", numel), TensorParam("b", BF16, "in", numel),
            TensorParam("y", F32, "out", Const(self.consumers * REGISTERS)), *sizes,
        )  # fmt: skip
        shared = tuple(
            SharedArray(name, BF16, self.stages * TILE, 1024) for name in ("a_tile", "b_tile")
        )
        names = ("full", "empty") if self.war == "mbarrier" else ("full",)
        barriers = tuple(BarrierArray(name, self.stages) for name in names)
        kind = "warp-specialised" if self.roles else "pipelined"
        ring = Ring(
            "a_tile", ("a_tile", "b_tile"), self.stages, self.prefetch, kind, "full",
            "empty" if self.war == "mbarrier" else "",
        )  # fmt: skip
        return Kernel(
            "products", params, shared, (ONE, ONE, ONE), (Const(threads), ONE, ONE), "i32",
            self._body(), barriers=barriers, rings=(ring,),
        )  # fmt: skip

    # ---- the block ---------------------------------------------------------------------------

    def _body(self) -> Body:
        head: Body = (DeclareRegisters("acc", F32, REGISTERS),)
        if self.sync == "token":
            head += (DeclareRegisters("tokens", INT, self.stages),)
        ring = self._roles() if self.roles else self._pipeline()
        if self.outer == "anew":
            inside = (*self._made(), *ring, *self._given_back())
            return (*head, For("t", M, inside, ROLLED))
        if self.outer and not self.roles:
            ring = (For("t", M, ring, ROLLED),)
        return (*head, *self._made(), *ring, *self._given_back())

    def _made(self) -> Body:
        inits: Body = (MbarrierInit("full", S, Const(self.arrivals)),)
        if self.war == "mbarrier":
            inits += (MbarrierInit("empty", S, Const(self.consumers // 32)),)
        first = If(equal(THREAD, 0), (For("s", Const(self.stages), inits), MbarrierInitFence()))
        return first, SyncThreads("the barriers of a_tile are initialised")

    def _given_back(self) -> Body:
        names = ("full", "empty") if self.war == "mbarrier" else ("full",)
        gone = For("s", Const(self.stages), tuple(MbarrierInval(name, S) for name in names))
        return (
            SyncThreads("nobody waits on the barriers of a_tile any more"),
            If(equal(THREAD, 0), (gone,)),
            *((SyncThreads("the barriers of a_tile are given back"),) if self.outer else ()),
        )

    def _pipeline(self) -> Body:
        p = self.prefetch
        whole: Body = (
            *self.fill(L + p), *self.use(L, self.pending), *self.release(L),
        ) if not p else (
            *self.use(L, self.pending), *self.release(L), *self.fill(L + p),
        )  # fmt: skip
        last = self.use(L, None) if p else ()
        return (
            *(
                (
                    For(
                        "l",
                        minimum(Const(p), N),
                        self.fill(L, first=True),
                        ROLLED,
                        label="prologue",
                    ),
                )
                if p
                else ()
            ),
            WgmmaFence("acc", REGISTERS),
            For("l", maximum(N - p, 0), whole, ROLLED, label="main"),
            *((For("l", N, last, ROLLED, maximum(N - p, 0), label="epilogue"),) if p else ()),
            *self.results(),
        )

    def results(self) -> Body:
        """Wait for all products and store the sums."""
        at = THREAD * REGISTERS + Var("i")
        out = For("i", Const(REGISTERS), (Store("y", at, Element("acc", Var("i"), F32)),))
        return WgmmaWait(0, "the sums are complete", "acc", REGISTERS), out

    def _roles(self) -> Body:
        trip = T * N + L if self.outer == "carried" else L
        last = T * N + (N - 1) if self.outer == "carried" else N - 1
        consume: Body = (
            WgmmaFence("acc", REGISTERS),
            For("l", N, (*self.use(trip, self.pending), *self.release(trip, L)), ROLLED),
            self.results()[0],
            *((If(less(ZERO, N), self.arrive(last)),) if self.pending else ()),
            *self.results()[1:],
        )
        produce: Body = (For("l", N, self.fill(trip), ROLLED),)
        if self.outer == "carried":
            consume, produce = ((For("t", M, b, ROLLED),) for b in (consume, produce))
        return (
            Roles((
                Role("consumer", 0, self.consumers, consume),
                Role("producer", self.consumers, 32, produce),
            )),
        )  # fmt: skip

    # ---- one trip ----------------------------------------------------------------------------

    def fill(self, trip: Expr, *, first: bool = False) -> Body:
        """Load both operands of a trip into its stage, which is free from the `first` round on."""
        stage = trip % self.stages
        free: Body = ()
        if self.war == "mbarrier" and not first:
            parity = (trip // self.stages % 2) ^ 1
            free = (MbarrierWait("empty", stage, parity, "the stage is free"),)
        nbytes = Const(2 * TILE_BYTES)
        copies = tuple(
            BulkLoad(f"{x}_tile", stage * TILE, x, trip * TILE, Const(TILE_BYTES), "full", stage)
            for x in ("a", "b")
        )
        elected = equal(THREAD, self.consumers if self.roles else 0)
        if self.sync == "token":
            own = MbarrierArriveToken("tokens", stage, "full", stage)
            tx = MbarrierArriveToken("tokens", stage, "full", stage, nbytes)
            return (*free, If(elected, (tx, *copies), (own,)))
        return (If(elected, (*free, MbarrierArriveExpectTx("full", stage, nbytes), *copies)),)

    def use(self, trip: Expr, pending: int | None) -> Body:
        """Wait for the stage and multiply; then for all but `pending` groups, if for any."""
        stage = trip % self.stages
        why = "the stage is full"
        wait: Stmt = (
            MbarrierWaitToken("full", stage, "tokens", stage, why)
            if self.sync == "token"
            else MbarrierWait("full", stage, trip // self.stages % 2, why)
        )
        k = Var("k") * STEP
        product = Wgmma(
            "acc", ZERO, "a_tile", stage * TILE + k, LAYOUT, "b_tile", stage * TILE + k, LAYOUT,
            WIDTH, BF16,
        )  # fmt: skip
        steps = For("k", Const(DEPTH // STEP), (product,), Unroll("full"))
        left: Body = () if pending is None else (WgmmaWait(pending, "a stage has been read"),)
        return (wait, steps, WgmmaCommit(), *left)

    def release(self, trip: Expr, inner: Expr = L) -> Body:
        """Let the stage of the trip before be filled again; with one stage that of this trip."""
        if not self.pending:
            return self.arrive(trip)
        return (If(less(ZERO, inner), self.arrive(trip - 1)),)

    def arrive(self, trip: Expr) -> Body:
        """Let the stage of a trip be filled again."""
        if self.war == "barrier":
            return (SyncThreads("every thread has read its stage of a_tile"),)
        arrive = MbarrierArrive("empty", trip % self.stages)
        return SyncWarp("all lanes have read the stage"), If(equal(THREAD % 32, 0), (arrive,))
