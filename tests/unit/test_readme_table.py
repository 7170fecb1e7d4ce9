"""README's table of results is what the command writes from the newest results file."""

import json
from pathlib import Path

from benchmarks.readme import newest, table, with_table

README = Path(__file__).parents[2] / "README.md"


def test_the_table_is_of_the_newest_results():
    path = newest()
    assert path is not None
    text = README.read_text()
    assert text == with_table(text, table(json.loads(path.read_text()))), (
        "run python -m benchmarks.readme"
    )


def test_a_changed_result_changes_the_table():
    results = json.loads(newest().read_text())
    before = table(results)
    ours = next(r for r in results["rows"] if r["implementation"] == "fuser")
    ours["GBps"] += 100
    assert table(results) != before
