"""The page on tensor cores: its program runs, and the kernel is the one it shows."""

import re
from pathlib import Path

import numpy as np
import pytest
from rings.text import function_of

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "tensor_cores.md"


def test_the_program_of_the_page():
    text = PAGE.read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names = {"__name__": "page"}
    exec(compile(program, str(PAGE), "exec"), names)
    a, b = (names[name].astype("f8") for name in ("left", "right"))
    expected = np.maximum(a @ b.T, 0).astype(names["out"].dtype)
    np.testing.assert_array_equal(names["out"], expected)
    (loop,) = re.findall(r"```c\+\+\n(.*?)```", text, re.S)
    assert loop in function_of(names["fd"], [names["left"], names["right"]])
