"""The report: one self-contained HTML file of table, pictures and where they come from."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path

from benchmarks.results import OURS, Results, against, best_peer, by_workload
from benchmarks.table import columns

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
       color: #1b1b1b; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .15rem .7rem; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: #fff; border-bottom: 2px solid #888; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
tr.first td { border-top: 1px solid #ccc; }
tr.ours td { background: #fdf0e6; font-weight: 600; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; font-size: 13px; }
dt { color: #666; } dd { margin: 0; }
img { max-width: 100%; height: auto; }
.failure { color: #b00020; }
"""

WORDS = {
    "us": "device time, the median of the repetitions, L2 flushed before each",
    "GB/s": "every input once and every output once, over device time",
    "of ceiling": "against the hand-written kernel of the same traffic, in the same run",
    "vs best peer": "how many times as fast as the fastest peer",
    "host us": "what a call costs the host",
    "cold ms": "from the definition to the first result, nothing cached",
    "warm ms": "from the definition to the first result, compiled before on this disk",
    "interpreter ms": "a run of a small size on the NumPy interpreter",
    "error": "relative error against float64, by norms",
    "discarded": "repetitions that did not count, because the host was late",
}


def page(results: Results, pictures: Iterable[Path]) -> str:
    """Return the report as HTML."""
    machine = results.machine
    where = f"{machine.get('gpu', 'no GPU')}, commit {machine['commit']}, {machine['time']}"
    parts = [
        f"<h1>fuser: benchmarks</h1>\n<p>{escape(where)}</p>", _summary(results),
        *(_picture(path) for path in pictures), "<h2>Table</h2>", _table(results),
        _list("Failures", results.failures, "failure"),
        _list("Not yet", (f"{name}: {reason}" for name, reason in results.not_yet.items())),
        _list("Left out", results.left_out), "<h2>Measured in the same run</h2>",
        _facts(_references(results)), "<h2>Where it was measured</h2>", _facts(machine),
    ]  # fmt: skip
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>fuser: benchmarks, {escape(where)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _summary(results: Results) -> str:
    """Return how many workloads reach the best peer, or nothing where there was none."""
    ratios = [
        ratio
        for rows in by_workload(results.rows).values()
        for ours in rows
        if ours.implementation == OURS and (ratio := against(ours, best_peer(rows))) is not None
    ]
    if not ratios:
        return ""
    fast = sum(ratio >= 0.995 for ratio in ratios)
    return (
        f"<p>As fast as the best peer or faster (ratio of at least 0.995) in {fast} of "
        f"{len(ratios)} workloads.</p>"
    )


def _table(results: Results) -> str:
    found = columns(results)
    head = "".join(
        f'<th title="{escape(WORDS.get(title, ""))}">{escape(title)}</th>' for title, _ in found
    )
    lines = [f"<table>\n<tr>{head}</tr>"]
    before = ""
    for cells in zip(*(column for _, column in found), strict=True):
        kinds = ["first"] * (cells[0] != before) + ["ours"] * (cells[1] == OURS)
        name = "" if cells[0] == before else cells[0]
        before = cells[0]
        text = "".join(f"<td>{escape(cell)}</td>" for cell in (name, *cells[1:]))
        lines.append(f'<tr class="{" ".join(kinds)}">{text}</tr>')
    lines.append("</table>")
    words = {title: WORDS[title] for title, _ in found if title in WORDS}
    return "\n".join([*lines, _facts(words)])


def _references(results: Results) -> dict[str, str]:
    return {
        **{f"ceiling {name}": f"{gbps:.0f} GB/s" for name, gbps in results.ceilings.items()},
        **{f"peak {name}": f"{peak:.1f} TFLOP/s" for name, peak in results.peaks.items()},
        **{f"host cost of {name}": f"{us:.1f} us" for name, us in results.host.items()},
        "discarded repetitions": str(results.discarded),
    }


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<p><img alt="{escape(path.stem)}" src="data:image/png;base64,{data}"></p>'


def _list(title: str, items: Iterable[str], kind: str = "") -> str:
    lines = "".join(f'<li class="{kind}">{escape(item)}</li>\n' for item in items)
    return f"<h2>{title}</h2>\n<ul>\n{lines}</ul>" if lines else ""


def _facts(facts: dict[str, str]) -> str:
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>\n" for name, text in facts.items()
    )
    return f"<dl>\n{rows}</dl>"
