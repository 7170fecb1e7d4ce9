"""Hand-written kernels of one matrix product a warp group, out of tiles in every layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tensor_map_cases import swizzled

from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, ZERO, Const, Expr, Var, less
from fuser.kir.core import Kernel, SharedArray, Stmt, TensorParam, Unroll
from fuser.kir.matrix import MatrixLayout
from fuser.kir.scalar import Element, Literal
from fuser.kir.stmts import (
    DeclareRegisters,
    FenceProxyAsync,
    For,
    If,
    Store,
    SyncThreads,
    VectorLoad,
    VectorStore,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)

F32, BF16 = DataType.Float, DataType.BFloat16
THREAD, BX, IV = (Var(n) for n in ("thread", "bx", "i"))
SPAN = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
GROUP, DEPTH, STEP = 128, 64, 16
"""Threads of a warp group, depth of a tile and of one product."""
LAYOUTS = [(major, swizzle) for major in ("k", "mn") for swizzle in SPAN]
"""Every major and swizzle."""
START = 0.5
"""What is in the accumulators before the products."""
FULL = Unroll("full")
Body = tuple[Stmt, ...]


@dataclass(frozen=True)
class Tile:
    """An operand of `rows` rows and `DEPTH` columns of k, as copies by the engine would place it.

    Boxes as wide as the swizzle's span, one behind the other; without a swizzle core matrices of 8
    rows of 16 bytes, those of neighbouring k behind each other.
    """

    rows: int
    major: str
    swizzle: str

    @property
    def span(self) -> int:
        """Bytes of a row of a box."""
        return SPAN[self.swizzle]

    @property
    def padded(self) -> int:
        """Rows of whole boxes."""
        across = self.span // 2 if self.major == "mn" else 8
        return -(-self.rows // across) * across

    @property
    def numel(self) -> int:
        """Elements of shared memory, whole patterns of the swizzle."""
        return -(-self.padded * DEPTH // 512) * 512

    def layout(self) -> MatrixLayout:
        """Return what the descriptor says."""
        if self.swizzle == "none":
            return MatrixLayout(self.major, "none", 128, DEPTH // 8 * 128)
        leading = DEPTH * self.span if self.major == "mn" else 0
        return MatrixLayout(self.major, self.swizzle, leading, 8 * self.span)

    def start(self, step: int) -> int:
        """Return the element where the tile of a product begins."""
        if self.swizzle == "none":
            return step * 2 * 64
        if self.major == "mn":
            return step * STEP * self.span // 2
        box, inside = divmod(step * STEP * 2, self.span)
        return (box * self.padded * self.span + inside) // 2

    def image(self, values: np.ndarray) -> np.ndarray:
        """Return shared memory that holds `values`, shape (rows, DEPTH); the rest is poison."""
        image = np.full(self.numel * 2, 0xFF, np.uint8)
        whole = np.full((self.padded, DEPTH), 0xFFFF, np.uint16)
        whole[: self.rows] = values.view(np.uint16)
        if self.swizzle == "none":
            cores = whole.reshape(-1, 8, DEPTH // 8, 8).transpose(0, 2, 1, 3)
            boxes = cores if self.major == "k" else cores.swapaxes(2, 3)
        else:
            table = whole if self.major == "k" else whole.T
            wide = self.span // 2
            boxes = table.reshape(len(table), -1, wide).transpose(1, 0, 2)
        data = np.frombuffer(np.ascontiguousarray(boxes).tobytes(), np.uint8)
        image[: data.size] = data
        image = swizzled(image, 0 if self.swizzle == "none" else self.span)
        return image.view(values.dtype)


@dataclass(frozen=True)
class Product:
    """A kernel in which every warp group computes ``A B + START`` of tiles of its block."""

    n: int
    a: tuple[str, str] = ("k", "128B")
    b: tuple[str, str] = ("k", "128B")
    dtype: DataType = BF16
    groups: int = 1
    blocks: int = 1
    pending: int | None = None

    @property
    def tiles(self) -> dict[str, Tile]:
        """Operands by name."""
        return {"a": Tile(64, *self.a), "b": Tile(self.n, *self.b)}

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.groups * GROUP

    def kernel(self) -> Kernel:
        """Build it."""
        blocks = Const(self.blocks)
        params = [TensorParam(f"{name}_image", self.dtype, "in", blocks * tile.numel)
                  for name, tile in self.tiles.items()]  # fmt: skip
        y = TensorParam("y", F32, "out", blocks * self.groups * 64 * self.n)
        shared = tuple(SharedArray(name, self.dtype, tile.numel, 1024)
                       for name, tile in self.tiles.items())  # fmt: skip
        return Kernel(
            "product", (*params, y), shared, (blocks, ONE, ONE), (Const(self.threads), ONE, ONE),
            "i32", self.body(),
        )  # fmt: skip

    def body(self) -> Body:
        """Return all statements."""
        return (
            *self.fill(),
            FenceProxyAsync("wgmma reads the tiles"),
            SyncThreads("the tiles are complete"),
            *self.clear(),
            WgmmaFence("d", self.n // 2),
            *self.products(),
            WgmmaCommit(),
            WgmmaWait(0, "the product is complete", "d", self.n // 2),
            *self.store(),
        )

    def fill(self) -> Body:
        """Copy the images to shared memory."""
        body: Body = (DeclareRegisters("piece", self.dtype, 8),)
        for name, tile in self.tiles.items():
            at = (IV * self.threads + THREAD) * 8
            move = (
                VectorLoad("piece", ZERO, f"{name}_image", BX * tile.numel + at, 8, self.dtype),
                VectorStore(name, at, "piece", ZERO, 8, self.dtype),
            )
            trips = -(-tile.numel // (self.threads * 8))
            body += (For("i", Const(trips), (If(less(at, tile.numel), move),)),)
        return body

    def clear(self) -> Body:
        """Declare the accumulators."""
        count = self.n // 2
        store = Store("d", IV, Literal(START, F32))
        return DeclareRegisters("d", F32, count), For("i", Const(count), (store,), FULL)

    def products(self) -> Body:
        """Return one product for every 16 of k."""
        a, b = self.tiles["a"], self.tiles["b"]
        return tuple(
            Wgmma("d", ZERO, "a", Const(a.start(s)), a.layout(), "b", Const(b.start(s)),
                  b.layout(), self.n, self.dtype)
            for s in range(DEPTH // STEP)
        )  # fmt: skip

    def store(self) -> Body:
        """Write the result, in the order of its rows."""
        group, thread = THREAD // GROUP, THREAD % GROUP
        row = thread // 32 * 16 + thread % 32 // 4 + IV // 2 % 2 * 8
        column = IV // 4 * 8 + thread % 4 * 2 + IV % 2
        at: Expr = ((BX * self.groups + group) * 64 + row) * self.n + column
        return (For("i", Const(self.n // 2), (Store("y", at, Element("d", IV, F32)),), FULL),)

    def arrays(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return arguments, and the result in float64; small integers, so that it is exact."""
        values = {
            name: rng.integers(-8, 9, (self.blocks, tile.rows, DEPTH)).astype(self.dtype.np)
            for name, tile in self.tiles.items()
        }
        arrays = {
            f"{name}_image": np.concatenate([tile.image(v) for v in values[name]])
            for name, tile in self.tiles.items()
        }
        arrays["y"] = np.full(self.blocks * self.groups * 64 * self.n, np.nan, np.float32)
        a, b = (values[name].astype(np.float64) for name in "ab")
        result = a @ b.swapaxes(1, 2) + START
        return arrays, np.repeat(result, self.groups, axis=0)


def changed(kernel: Kernel, kind: type, change) -> Kernel:
    """Return a kernel with other statements in place of those of one kind at its top level."""
    body: list[Stmt] = []
    for stmt in kernel.body:
        body += change(stmt) if isinstance(stmt, kind) else (stmt,)
    return replace(kernel, body=tuple(body))
