"""Loop nest and CUDA text of some circular buffers, as they are meant to look."""

from __future__ import annotations

from pathlib import Path

import pytest
from rings.cells import Cell, L, definition
from rings.text import listing

from fuser import DataType

pytestmark = pytest.mark.golden

FOLDER = Path(__file__).with_suffix("")
CELLS = {
    "reduced_by_a_role": Cell(
        "inner_persistent", (L.bulk,), stages=2, prefetch=1, type="ws", edge="whole"
    ),
    "pipelined_boxes": Cell("reduction_outer", (L.tma,), stages=3, prefetch=1),
    "mixed_loads_by_token": Cell(
        "pointwise", (L.tma, L.cp_async), stages=2, prefetch=1, type="token-barrier"
    ),
    "multicast_by_token": Cell(
        "multicast", (L.tma, L.tma), stages=2, prefetch=1, type="token-barrier", cluster=2
    ),
    "specialised_with_registers": Cell(
        "single_dim", (L.bulk,), stages=4, prefetch=3, type="ws-regs", tile=1024
    ),
    "stored_by_consumers": Cell("store", (L.tma,), stages=2, prefetch=1, type="ws", tile=512),
    "stored_out_of_a_ring": Cell("copy", (L.tma,), stages=3, prefetch=1),
    "registers_inside_a_ring": Cell(
        "nested", (L.tma,), stages=2, prefetch=1, tile=512, slots=2, ahead=1
    ),
    "products": Cell("product", (L.tma, L.tma), stages=3, prefetch=2, dtype=DataType.BFloat16),
    "products_by_a_role": Cell(
        "product_turned", (L.tma, L.tma), stages=3, prefetch=2, type="ws", dtype=DataType.Half
    ),
    "registers_alone": Cell("registers", (L.set,), stages=3, prefetch=2),
}


@pytest.mark.parametrize("name", CELLS)
def test_nest_and_source(name: str, update_golden: bool) -> None:
    cell = CELLS[name]
    text = listing(definition(cell), cell.inputs(), name)
    file = FOLDER / f"{name}.txt"
    if update_golden:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} differs; look, then run with --update-golden"
