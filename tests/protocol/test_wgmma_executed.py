"""Rings of matrix products are executed: right ones are right, and mutants as the checker says.

``FUSER_MUTANTS=all`` runs every mutant, not only the mistakes in products.
"""

import os

import numpy as np
import pytest
from product_rings import BF16, F32, REGISTERS, Products
from ring_kernels import mutant
from wgmma_kernels import Tile

from fuser.core.errors import ProtocolError
from fuser.core.expr import Const, Var
from fuser.interp.checked import check_kernel
from fuser.interp.functional import run_kernel
from fuser.kir.scalar import Literal
from fuser.kir.stmts import DeclareRegisters, For, Store
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check

pytestmark = pytest.mark.protocol

ALL = os.environ.get("FUSER_MUTANTS") == "all"
PRODUCTS = ("product", "groups", "commit")
SEEDS = range(4)
FORMS = [
    Products(1), Products(2, 1), Products(2, 1, "token"), Products(3, 2, war="barrier"),
    Products(1, roles=True), Products(3, 2, groups=2, roles=True),
]  # fmt: skip


def cleared(kernel):
    """Return the kernel with accumulators that begin at 0."""
    clear = For("i", Const(REGISTERS), (Store("acc", Var("i"), Literal(0.0, F32)),))
    return mutant(kernel, DeclareRegisters, lambda s: (s, clear), name="acc")


def operands(form, trips, rng):
    """Return arguments for a number of trips, and the sum of products in float64."""
    tile = Tile(64, "k", "128B")
    a, b = (rng.integers(-4, 5, (trips, 64, 64)).astype(BF16.np) for _ in "ab")
    arrays = {
        name: np.concatenate([np.zeros(0, BF16.np), *(tile.image(part) for part in x)])
        for name, x in (("a", a), ("b", b))
    }
    arrays["y"] = np.full(form.consumers * REGISTERS, np.nan, np.float32)
    return arrays, np.einsum("tmk,tnk->mn", a.astype("f8"), b.astype("f8"))


def table(form, y):
    """Return what the threads of each warp group hold as rows and columns."""
    parts = y.reshape(form.groups, 4, 8, 4, 8, 2, 2)  # group, warp, row, column, piece, half, pair
    return parts.transpose(0, 1, 5, 2, 4, 3, 6).reshape(form.groups, 64, 64)


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_sums_of_products(form, trips, rng):
    kernel = cleared(form.kernel())
    arrays, expected = operands(form, trips, rng)
    done = check_kernel(kernel, {"n": trips}, arrays, seed=trips)
    run_kernel(kernel, {"n": trips}, arrays)
    for y in (arrays["y"], done["y"]):
        np.testing.assert_array_equal(table(form, y), [expected] * form.groups)


@pytest.mark.parametrize("form", [Products(2, 1), Products(2, 1, roles=True)], ids=str)
def test_mutants_fail_where_the_checker_says_so(form, rng):
    made = [m for m in mutants(form.kernel()) if ALL or m.kind.startswith(PRODUCTS)]
    assert made
    for found in made:
        verdict = check(found.kernel)
        trips = verdict.trips[0] if verdict.trips else 4
        errors = list[str]()
        for seed in SEEDS:
            arrays, _ = operands(form, trips, rng)
            try:
                check_kernel(cleared(found.kernel), {"n": trips}, arrays, seed=seed)
            except ProtocolError as error:
                errors.append(str(error))
        assert bool(errors) == (verdict.reach == "wrong"), (found.kind, found.where, errors)
