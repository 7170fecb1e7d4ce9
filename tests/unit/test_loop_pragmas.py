"""Every loop of the CUDA text has one directive, right before it, and so have loops in assembly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuser.codegen.env import template_dir

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parents[1] / "golden"
PRELUDE = sorted((template_dir() / "prelude").glob("*.cuh"))
_LOOP = re.compile(r"\s*(for|while|do)\b\s*[({]")
_PRAGMA = re.compile(r"\s*#pragma unroll( \d+)?$")
_BACK = re.compile(r"@!?\w+ bra|bra(\.uni)? ")
_LABEL = re.compile(r'"\s*\$?\w+%?=?:')


def wrong_loops(text: str) -> list[str]:
    """Return the loops without a directive right before them, and the directives of no loop."""
    lines = [line for line in text.splitlines() if line.strip()]
    found: list[str] = []
    for before, line in zip(["", *lines], [*lines, ""], strict=True):
        if bool(_LOOP.match(line)) != bool(_PRAGMA.match(before)):
            found.append(line if _LOOP.match(line) else before)
    return found


def wrong_labels(text: str) -> list[str]:
    """Return the labels of loops in assembly without ``.pragma "nounroll"`` right after them."""
    lines = text.splitlines()
    if not any(_BACK.search(line) for line in lines):
        return []
    following = zip(lines, [*lines[1:], ""], strict=True)
    return [a for a, b in following if _LABEL.search(a) and r".pragma \"nounroll\";" not in b]


@pytest.mark.parametrize("path", PRELUDE, ids=lambda path: path.name)
def test_the_prelude(path):
    assert wrong_loops(path.read_text()) == []
    assert wrong_labels(path.read_text()) == []


def test_generated_kernels():
    texts = [p.read_text() for p in sorted(GOLDEN.rglob("*.txt")) + sorted(GOLDEN.rglob("*.cu"))]
    sources = [t[t.index("__global__") :] for t in texts if "__global__" in t]
    assert len(sources) > 10
    assert [line for source in sources for line in wrong_loops(source)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#pragma unroll 1\nfor (;;) {", []),
        ("for (int i = 0; i < n; ++i) {", ["for (int i = 0; i < n; ++i) {"]),
        ("#pragma unroll 1\nint a;\nfor (;;) {", ["#pragma unroll 1", "for (;;) {"]),
        ("#pragma unroll\n#pragma unroll 4\nfor (;;) {", ["#pragma unroll"]),
        ("  while (x) {}", ["  while (x) {}"]),
    ],
)
def test_what_is_found(text, found):
    assert wrong_loops(text) == found


def test_what_is_found_in_assembly():
    loop = '"{ .reg .pred p;\\n"\n"again:\\n"\n{}"@p bra again; }}"'
    good = loop.replace("{}", '".pragma \\"nounroll\\";\\n"\n')
    assert wrong_labels(good) == []
    assert wrong_labels(loop.replace("{}", "")) == ['"again:\\n"']
