"""``python -m benchmarks.readme``: write the newest results into README's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"


def newest() -> Path | None:
    """Return the results file of the latest run by the time recorded in it, or None."""
    return max(RESULTS.glob("*.json"), default=None, key=_time)


def _time(path: Path) -> str:
    time: str = json.loads(path.read_text())["machine"]["time"]
    return time


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown: one line a workload, ours beside the best peer."""
    machine, rows = results["machine"], results["rows"]
    lines = [
        "| workload | fuser GB/s | best peer GB/s | against it | of the hand-written ceiling |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["workload"] for row in rows):
        ours = next(r for r in rows if r["workload"] == name and r["implementation"] == "fuser")
        peers = [r for r in rows if r["workload"] == name and r is not ours]
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
        "run, L2 flushed before every repetition. Not yet: matmul, backward, rows kept on chip.",
    ]
    return "\n".join(lines)


def with_table(readme: str, text: str) -> str:
    """Return `readme` with the marked block replaced."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> int:
    """Rewrite README.md; return the exit status."""
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
