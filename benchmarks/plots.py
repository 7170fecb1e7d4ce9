"""The results as pictures: every workload, bandwidth over size, the roofline. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import OURS, Results, Row, by_workload


class Style(NamedTuple):
    """How an implementation is drawn: told apart by shape as well as by colour."""

    colour: str
    marker: str


STYLES = {
    OURS: Style("#d55e00", "o"),
    "torch eager": Style("#767676", "s"),
    "torch.compile": Style("#0072b2", "^"),
    "quack": Style("#009e73", "D"),
    "liger": Style("#aa4499", "P"),
}
OTHER = Style("#222222", "X")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DPI = 140
BANDWIDTH = "bandwidth (GB/s)"


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the pictures for which there are figures; return them in the order they are read.

    Raises
    ------
    ValueError
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(f"--plot: {error}; needed pip install 'fuser-cuda[bench]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, picture in PICTURES.items():
        figure = Figure(dpi=DPI, layout="constrained")
        if picture(figure, results):
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1])
    return written


def workloads(figure: Any, results: Results) -> bool:
    """Draw a line a workload, with the bandwidth of every implementation and the ceiling."""
    groups = by_workload(row for row in results.rows if row.GBps is not None)
    if not groups:
        return False
    figure.set_size_inches(9, 1.6 + 0.27 * len(groups))
    axes = figure.add_subplot()
    for place, rows in enumerate(groups.values()):
        for row in rows:
            axes.plot(row.GBps, place, **_marks(row.implementation))
        ceilings = {row.ceiling_GBps for row in rows if row.ceiling_GBps}
        axes.vlines(list(ceilings), place - 0.38, place + 0.38, color="black", linewidth=1.5)
    axes.set_yticks(range(len(groups)), list(groups), fontsize=8)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{BANDWIDTH}: every input once and every output once, over device time")
    axes.grid(axis="x", color="#dddddd")
    axes.grid(axis="y", color="#f0f0f0")
    axes.set_axisbelow(True)
    lines = [_line(name) for name in _names(results.rows)]
    ceiling = _mark(color="black", marker="|", label="hand-written ceiling")
    _finish(figure, results, "Bandwidth of every workload", [*lines, ceiling])
    return True


def bandwidth(figure: Any, results: Results) -> bool:
    """Draw a panel for every workload of several sizes: bandwidth over the bytes moved."""
    rows = [row for row in (*results.rows, *results.sweeps) if row.GBps is not None and row.bytes]
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    panels = {f: r for f, r in families.items() if len({row.workload for row in r}) > 1}
    if not panels:
        return False
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure.set_size_inches(5 * across, 1.0 + 3.1 * down)
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for number, (axes, (family, group)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
        _panel(axes, family, group)
        if number % across == 0:
            axes.set_ylabel(BANDWIDTH)
        if number >= len(panels) - across:
            axes.set_xlabel("bytes moved; rows x columns")
    grid.flat[0].set_ylim(bottom=0)
    shown = [row for group in panels.values() for row in group]
    lines = [_line(name, joined=True) for name in _names(shown)]
    ceiling = _mark(color="black", linestyle="--", label="hand-written ceiling")
    _finish(figure, results, "Bandwidth against size", [*lines, ceiling])
    return True


def _panel(axes: Any, family: str, rows: list[Row]) -> None:
    for name in _names(rows):
        points = sorted((r.bytes, r.GBps) for r in rows if r.implementation == name)
        axes.plot(*zip(*points, strict=True), **_marks(name, joined=True))
    for ceiling in {row.ceiling_GBps for row in rows if row.ceiling_GBps}:
        axes.axhline(ceiling, color="black", linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    sizes = {
        row.bytes: row.workload.rpartition(" ")[2] for row in rows if row.implementation == OURS
    }
    sizes = sizes or {row.bytes: row.workload.rpartition(" ")[2] for row in rows}
    labels = [f"{_bytes(nbytes)}\n{size}" for nbytes, size in sizes.items()]
    axes.set_xticks(list(sizes), labels, fontsize=6.5)
    axes.minorticks_off()
    axes.set_xlim(min(sizes) / 1.6, max(sizes) * 1.6)
    axes.set_title(family, fontsize=10)
    axes.grid(color="#e4e4e4")


def roofline(figure: Any, results: Results) -> bool:
    """Draw operations per second over operations per byte, under the measured roofs."""
    rows = [row for row in results.rows if row.operations and row.us and row.bytes]
    rows = [row for row in rows if row.workload == _largest(row.family, rows)]
    if not rows or not results.ceilings:
        return False
    figure.set_size_inches(10, 6)
    axes = figure.add_subplot()
    _roof(axes, results, min(map(_intensity, rows)) / 2)
    letters = dict(zip(dict.fromkeys(row.family for row in rows), LETTERS, strict=False))
    for row in rows:
        axes.plot(_intensity(row), _gops(row), **_marks(row.implementation))
    _write_letters(axes, [row for row in rows if row.implementation == OURS], letters)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.3g}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    axes.set_xlabel("operations per byte moved, as the definition asks for them")
    axes.set_ylabel("billion operations per second (Gop/s)")
    axes.grid(color="#dddddd")
    axes.grid(color="#f0f0f0", which="minor")
    key = [_mark(label=f"{letter}  {name}") for name, letter in letters.items()]
    figure.legend(handles=key, loc="outside right upper", fontsize=8, frameon=False, handlelength=0)
    lines = [_line(name) for name in _names(rows)]
    _finish(figure, results, "Roofline, each workload at its largest size", lines)
    return True


def _roof(axes: Any, results: Results, low: float) -> None:
    """Draw the best memory ceiling and, if it was measured, the peak of arithmetic."""
    best, gbps = max(results.ceilings.items(), key=lambda item: item[1])
    peak, tflops = max(results.peaks.items(), default=("", 0.0), key=lambda item: item[1])
    ridge = 1e3 * tflops / gbps if tflops else 16.0
    axes.plot([low, ridge], [low * gbps, ridge * gbps], color="black", linewidth=1.4)
    middle = (low * ridge) ** 0.5
    axes.annotate(
        f"{best}: {gbps:.0f} GB/s", (middle, middle * gbps), xytext=(-6, 6), ha="right",
        textcoords="offset points", fontsize=9,
    )  # fmt: skip
    if tflops:
        axes.plot([ridge, 4 * ridge], [1e3 * tflops] * 2, color="black", linewidth=1.4)
        axes.annotate(
            f"{peak}: {tflops:.1f} TFLOP/s", (4 * ridge, 1e3 * tflops), xytext=(0, 5), ha="right",
            textcoords="offset points", fontsize=9,
        )  # fmt: skip


def _write_letters(axes: Any, rows: list[Row], letters: dict[str, str]) -> None:
    """Write its letter above each point; points that cover one another share a text."""
    from matplotlib.patheffects import withStroke

    places: list[tuple[Row, list[str]]] = []
    for row in sorted(rows, key=_gops, reverse=True):
        near = (known for other, known in places if _covers(other, row))
        known = next(near, None)
        if known is None:
            places.append((row, [letters[row.family]]))
        else:
            known.append(letters[row.family])
    for row, known in places:
        axes.annotate(
            " ".join(sorted(known)), (_intensity(row), _gops(row)), xytext=(0, 6), ha="center",
            textcoords="offset points", fontsize=9, color=STYLES[OURS].colour, zorder=5,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


def _covers(one: Row, other: Row) -> bool:
    """Whether two points are so near that texts above them would overlap."""
    across = _intensity(one) / _intensity(other)
    up = _gops(one) / _gops(other)
    return 0.97 < across < 1.03 and 0.8 < up < 1.25


PICTURES = {"workloads": workloads, "bandwidth": bandwidth, "roofline": roofline}


def _finish(figure: Any, results: Results, title: str, legend: list[Any]) -> None:
    """Add the title, what was measured where, and the legend."""
    machine = results.machine
    where = f"{machine.get('gpu', 'no GPU')}, commit {machine['commit']}, {machine['time'][:10]}"
    figure.suptitle(f"{title}\n{where}", fontsize=11)
    figure.legend(handles=legend, loc="outside lower center", ncols=6, fontsize=8, frameon=False)


def _names(rows: Iterable[Row]) -> list[str]:
    """Return the implementations, ours first."""
    found = dict.fromkeys(row.implementation for row in rows if row.us is not None)
    return sorted(found, key=lambda name: name != OURS)


def _marks(name: str, *, joined: bool = False) -> dict[str, Any]:
    """Return how an implementation is drawn; a mark of a peer shows on a larger one of ours."""
    style, ours = STYLES.get(name, OTHER), name == OURS
    return {
        "color": style.colour, "marker": style.marker, "markersize": 8 if ours else 5,
        "linestyle": "-" if joined else "none", "linewidth": 1.4, "zorder": 3 if ours else 4,
    }  # fmt: skip


def _line(name: str, *, joined: bool = False) -> Any:
    return _mark(**_marks(name, joined=joined), label=name)


def _mark(**options: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **{"linestyle": "none", **options})


def _largest(family: str, rows: list[Row]) -> str:
    return max((row for row in rows if row.family == family), key=lambda row: row.bytes).workload


def _intensity(row: Row) -> float:
    return (row.operations or 0) / row.bytes


def _gops(row: Row) -> float:
    return (row.operations or 0) / (row.us or 1.0) / 1e3


def _bytes(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:{'.0f' if count >= 100 * scale else '.3g'}} {unit}"
    return f"{count} B"
