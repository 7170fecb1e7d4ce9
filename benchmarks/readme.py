"""``python -m benchmarks.readme``: write the newest results into README's table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import OURS

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"


def newest() -> Path | None:
    """Return the results file of the latest run on a GPU by the time recorded in it, or None."""
    runs = {path: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    on_gpu = [path for path, run in runs.items() if any("us" in row for row in run["rows"])]
    return max(on_gpu, default=None, key=lambda path: str(runs[path]["machine"]["time"]))


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown: one line a workload, ours beside the best peer."""
    machine, rows = results["machine"], results["rows"]
    lines = [
        "| workload | fuser GB/s | best peer GB/s | against it | of the hand-written ceiling |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["workload"] for row in rows):
        group = [row for row in rows if row["workload"] == name]
        ours = next((row for row in group if row["implementation"] == OURS), None)
        if ours is None:
            continue
        peers = [row for row in group if row is not ours]
        best = max(peers, key=lambda r: r["GBps"], default=None)
        peer, ratio = ("", "") if best is None else (
            f"{best['GBps']:.0f} ({best['implementation']})", f"{best['us'] / ours['us']:.2f}x"
        )  # fmt: skip
        lines.append(
            f"| {name} | {ours['GBps']:.0f} | {peer} | {ratio} | {ours['of_ceiling']:.3f} |"
        )
    lines += [
        "",
        f"{machine['gpu']}, driver {machine['driver']}, NVRTC {machine['nvrtc']}, torch "
        f"{machine['torch']}, {machine['time'][:10]}, commit {machine['commit']}. Medians of one "
        f"run, L2 flushed before every repetition. Not yet: {not_yet(results)}.",
    ]
    return "\n".join(lines)


def not_yet(results: dict[str, Any]) -> str:
    """Return what the peers have and we do not, without the sizes."""
    if "not_yet" not in results:  # a run of before it was recorded
        return "matmul, backward, rows kept on chip"
    names = dict.fromkeys(name.rpartition(" ")[0] for name in results["not_yet"])
    return ", ".join(names) or "nothing of what the peers have"


def with_table(readme: str, text: str) -> str:
    """Return `readme` with the marked block replaced."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite README.md; return the exit status."""
    argparse.ArgumentParser("python -m benchmarks.readme", description=__doc__).parse_args(argv)
    path = newest()
    if path is None:
        print(f"no results in {RESULTS.name}/: README.md stays as it is")
        return 1
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(), table(json.loads(path.read_text()))))
    print(f"README.md: table of {path.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
