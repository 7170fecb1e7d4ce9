"""The page on circular buffers: its program runs, and its kernel is the one that is generated."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from rings.text import function_of

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "circular_buffer.md"


def test_program_and_kernel_of_the_page(update_golden: bool) -> None:
    page = PAGE.read_text()
    program, stores, of_clusters = re.findall(r"```python\n(.*?)```", page, re.S)
    names = {"__name__": "page"}
    exec(compile(of_clusters, str(PAGE), "exec"), names)
    np.testing.assert_array_equal(names["out"], np.ones((5, 1)) + np.arange(1000))
    assert "tensor_load_multicast(bias_cache" in function_of(names["fd"], names["inputs"])
    exec(compile(program, str(PAGE), "exec"), names)
    x = np.arange(1000, dtype="f4")
    np.testing.assert_array_equal(names["out"], 2 * x + 1)
    source = function_of(names["fd"], [x]).strip()
    block = re.compile(r"(?<=```c\+\+\n).*?(?=\n```)", re.S)
    if update_golden:
        PAGE.write_text(block.sub(lambda _: source, page))
    (shown,) = block.findall(PAGE.read_text())
    assert shown == source, "the page's kernel differs; look, then run with --update-golden"
    exec(compile(stores, str(PAGE), "exec"), names)
    np.testing.assert_array_equal(names["result"], 2 * x + 1)
    assert "tensor_store(&y_map" in function_of(names["fd"], [x])
