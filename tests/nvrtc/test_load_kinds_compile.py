"""Kernels of long tiles and of loads that are cut short: they compile, with the loops asked for."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from long_tiles import KINDS, L, kernel_of, matrix, numbers, vector, vectors
from machine_code import MachineCode
from sass_loops import require_marked_loops

from fuser import FusionDefinition
from fuser.kir.core import Kernel

pytestmark = pytest.mark.nvrtc

FUSIONS: dict[str, tuple[Callable[[], FusionDefinition], tuple[int, ...], str, int]] = {
    # builder, shape, instruction, how many at least: in the prologue and in the main loop
    "vector": (lambda: vector(512), (5000,), r"UTMALDG\.1D", 4),
    "overhanging": (lambda: matrix(4, 300), (37, 600), r"UTMALDG\.2D", 4),
    "roles": (lambda: matrix(4, 512, kind=KINDS[2]), (37, 600), r"UTMALDG\.2D", 2),
    "cut": (lambda: vector(512, L.bulk, box=128), (5000,), r"UBLKCP", 2),
    "zeros": (vectors, (5000,), r"LDGSTS\.E\.BYPASS\.128 \[\S+\], desc\[\w+\]\[\S+\], !?P\d", 2),
    "parts": (lambda: vectors(1, 4), (5001,), r"LDGSTS\.E\.BYPASS\.128\.ZFILL", 1),
    "parts by roles": (
        lambda: vectors(2, 1, KINDS[2], contiguity=[False, True]),
        (9, 1037),
        r"LDGSTS\.E\.BYPASS\.128\.ZFILL",
        1,
    ),
    "cut rows": (lambda: matrix(4, 256, L.bulk, KINDS[2], box=64), (37, 300), r"UBLKCP", 1),
}


def built(name: str) -> Kernel:
    fusion, shape, _, _ = FUSIONS[name]
    rows, columns = (1, *shape)[-2:]
    x = numbers(np.random.default_rng(1), rows, -(-columns // 4) * 4)[:, :columns]
    return kernel_of(fusion(), x.reshape(shape))


CODE = MachineCode(list(FUSIONS), built)


@pytest.mark.parametrize("name", FUSIONS)
def test_loops_and_copies(name: str) -> None:
    _, _, instruction, least = FUSIONS[name]
    require_marked_loops(name, built(name))
    assert len(re.findall(instruction, CODE[name])) >= least


@pytest.mark.parametrize("name", ["zeros", "parts", "parts by roles"])
def test_no_element_takes_a_way_of_its_own(name: str) -> None:
    """Every load is a copy past the registers; none is made element by element."""
    assert not re.findall(r"\bLDG\.", CODE[name])
