"""The README's commands, quickstart and pipeline are what the project really does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = ("pip install -e . && python -m fuser demo", "pip install -e '.[test]' && pytest")


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_has_the_command(command: str):
    assert command in README.splitlines()


def test_ci_runs_the_second_command_as_written():
    assert f"  {COMMANDS[1]}\n" in (ROOT / ".ci/run").read_text()


def test_quickstart_is_short_and_parses():
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")
    assert len(blocks[0].splitlines()) <= 30


def test_links_lead_to_files():
    links = [*re.findall(r"\]\(([^)#:]+)\)", README), *re.findall(r'src="([^":]+)"', README)]
    assert links
    missing = [link for link in links if not (ROOT / link).exists()]
    assert not missing


def test_benchmark_block_is_marked_once():
    assert README.count("<!-- benchmarks:begin -->") == 1
    assert README.count("<!-- benchmarks:end -->") == 1
    assert README.index("<!-- benchmarks:begin -->") < README.index("<!-- benchmarks:end -->")
