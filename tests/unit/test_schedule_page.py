"""The pages on scheduling: their programs run."""

import re
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[2] / "docs"
PAGE, UNROLL = DOCS / "schedule.md", DOCS / "unroll.md"


def test_programs_of_the_page():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 2
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["out"].shape == (70, 100)
    np.testing.assert_array_equal(names["out"], 1)


def test_programs_of_the_page_on_unrolling():
    blocks = re.findall(r"```python\n(.*?)```", UNROLL.read_text(), re.S)
    assert len(blocks) == 2
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(UNROLL), "exec"), names)
