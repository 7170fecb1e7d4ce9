"""The page on circular buffers: its programs run; the kernel of the first is the one generated."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from rings.text import function_of

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "circular_buffer.md"


def test_programs_and_kernel_of_the_page(update_golden: bool) -> None:
    page = PAGE.read_text()
    first, *others = re.findall(r"```python\n(.*?)```", page, re.S)
    x = np.arange(1000, dtype="f4")
    for program in (*others, first):
        names = {"__name__": "page"}
        exec(compile(program, str(PAGE), "exec"), names)
        np.testing.assert_array_equal(names["out"], 2 * x + 1)
    source = function_of(names["fd"], [x]).strip()
    block = re.compile(r"(?<=```c\+\+\n).*?(?=\n```)", re.S)
    if update_golden:
        PAGE.write_text(block.sub(lambda _: source, page))
    (shown,) = block.findall(PAGE.read_text())
    assert shown == source, "the page's kernel differs; look, then run with --update-golden"
