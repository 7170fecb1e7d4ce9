"""The benchmarks' pictures and page, from results of no run."""

from __future__ import annotations

import base64
import re
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.page import page
from benchmarks.plots import OTHER, STYLES, bandwidth, draw, roofline, workloads
from benchmarks.results import OURS, Results, Row

needs_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib is not installed"
)
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PEERS = ("torch eager", "torch.compile")


def row(name: str, size: str, who: str, gbps: float, nbytes: int, operations: int | None) -> Row:
    us = nbytes / gbps / 1e3
    return Row(f"{name} {size}", who, name, 1e-3, us, us, us, 0, nbytes, gbps, operations,
               "plain_map", 4200.0, gbps / 4200.0)  # fmt: skip


@pytest.fixture
def results() -> Results:
    rows, sweeps = [], []
    for who, gbps in zip((OURS, *PEERS), (4000.0, 2000.0, 4100.0), strict=True):
        rows.append(row("double", "1024x1024", who, gbps, 8 * 2**20, 2**20))
        rows.append(row("softmax", "32x64", who, gbps / 2, 2**13, 5 * 2**11))
        rows.append(row("transpose", "32x32", who, gbps, 2**12, 0))
        sweeps.append(row("double", "32x1024", who, gbps / 4, 2**18, 2**15))
    machine = {"commit": "abc1234", "gpu": "Fake <H200>", "time": "2026-12-01T00:00:00Z"}
    return Results(
        machine, {"plain_map": 4200.0, "ring_sum": 4400.0}, {"fp32_fma": 60.0}, rows=rows,
        sweeps=sweeps, not_yet={"matmul 4096^3": "no <matmul>"}, left_out=["quack: not installed"],
    )  # fmt: skip


def figure():
    from matplotlib.figure import Figure

    return Figure(layout="constrained")


def legend(fig) -> list[str]:
    return [text.get_text() for entry in fig.legends for text in entry.get_texts()]


# ---- pictures --------------------------------------------------------------------------------


@needs_matplotlib
def test_a_panel_for_every_workload_of_several_sizes(results):
    fig = figure()
    assert bandwidth(fig, results)
    (axes,) = (axes for axes in fig.axes if axes.axison)
    assert axes.get_title() == "double"
    assert axes.get_ylabel() == "bandwidth (GB/s)"
    assert axes.get_xlabel() == "bytes moved; rows x columns"
    assert axes.get_xscale() == "log"
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks == ["8 MiB\n1024x1024", "256 KiB\n32x1024"]
    ours = next(line for line in axes.lines if line.get_color() == STYLES[OURS].colour)
    assert ours.get_xydata().tolist() == [[2**18, 1000.0], [2**23, 4000.0]]
    assert legend(fig) == [OURS, *PEERS, "hand-written ceiling"]
    assert "Fake <H200>, commit abc1234, 2026-12-01" in fig.get_suptitle()


@needs_matplotlib
def test_every_workload_is_a_line_with_its_ceiling(results):
    fig = figure()
    assert workloads(fig, results)
    (axes,) = fig.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["double 1024x1024", "softmax 32x64", "transpose 32x32"]
    assert axes.get_xlabel().startswith("bandwidth (GB/s): every input once")
    assert len(axes.lines) == 9
    ceilings = [path.vertices[:, 0].tolist() for c in axes.collections for path in c.get_paths()]
    assert ceilings == [[4200.0, 4200.0]] * 3
    assert legend(fig) == [OURS, *PEERS, "hand-written ceiling"]


@needs_matplotlib
def test_the_roofline_is_of_what_computes_and_under_the_measured_roofs(results):
    fig = figure()
    assert roofline(fig, results)
    (axes,) = fig.axes
    assert axes.get_xlabel() == "operations per byte moved, as the definition asks for them"
    assert axes.get_ylabel() == "billion operations per second (Gop/s)"
    memory, peak, *points = axes.lines
    (_, y0), (x1, y1) = memory.get_xydata()
    assert y1 == pytest.approx(x1 * 4400.0)
    assert peak.get_xydata()[0].tolist() == [x1, y1] == pytest.approx([60_000 / 4400, 60_000])
    assert y0 < y1
    assert len(points) == 6, "a transpose has no operations"
    ours = points[0].get_xydata()[0].tolist()
    assert ours == pytest.approx([2**20 / 2**23, 4000.0 / 8])
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["ring_sum: 4400 GB/s", "fp32_fma: 60.0 TFLOP/s", "b", "a"]
    assert legend(fig) == ["a  double", "b  softmax", OURS, *PEERS]


def test_implementations_are_told_apart_by_shape_and_by_colour():
    styles = [*STYLES.values(), OTHER]
    assert len({style.colour for style in styles}) == len({s.marker for s in styles}) == len(styles)


@needs_matplotlib
def test_pictures_are_only_of_what_was_measured(results, tmp_path):
    host = Results({"commit": "a", "time": "2026"}, rows=[Row("double 8x8", OURS, cold_ms=1.0)])
    assert draw(host, tmp_path) == []
    results.sweeps, results.ceilings = [], {}
    assert [path.name for path in draw(results, tmp_path)] == ["workloads.png"]
    assert (tmp_path / "workloads.png").read_bytes().startswith(b"\x89PNG")


@needs_matplotlib
def test_an_earlier_run_is_drawn_without_running_anything(tmp_path, capsys):
    path = RESULTS / "2026-11-30-h200-989d011.json"
    assert main(["--from", str(path), "--plot", str(tmp_path / "new")]) == 0
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == ["report.html", "workloads.png"], "it knows of no operations, of one size"
    assert "report.html" in capsys.readouterr().out


def test_a_missing_matplotlib_is_named_with_its_extra(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = RESULTS / "2026-11-30-h200-989d011.json"
    with pytest.raises(SystemExit) as end:
        main(["--from", str(path), "--plot", str(tmp_path)])
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert "bias+gelu bf16 16384x8192" in captured.out, "the table is printed all the same"
    assert "needed pip install 'fuser-cuda[bench]'" in captured.err


# ---- page ------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """Checks that elements close in order, and keeps the cells of the table and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_the_page_holds_table_pictures_and_provenance_and_leads_nowhere(results, tmp_path):
    picture = tmp_path / "workloads.png"
    picture.write_bytes(b"\x89PNG picture")
    html = page(results, [picture])
    outline = Outline()
    outline.feed(html)
    assert outline.open == []
    assert len(outline.rows) == 1 + 9
    assert outline.rows[0][:6] == [
        "workload", "implementation", "us", "GB/s", "of ceiling", "vs best peer",
    ]  # fmt: skip
    assert outline.rows[1][:6] == ["double 1024x1024", OURS, "2.1", "4000", "0.952", "0.976"]
    assert outline.rows[2][:2] == ["", "torch eager"], "a name is written once"
    text = " ".join("".join(outline.text).split())
    for said in (
        "Fake <H200>, commit abc1234", "matmul 4096^3: no <matmul>", "quack: not installed",
        "ceiling ring_sum4400 GB/s", "in 0 of 3 workloads",
    ):  # fmt: skip
        assert said in text
    assert base64.b64encode(b"\x89PNG picture").decode() in html
    assert not re.findall(r'(?:href|src)="(?!data:)', html)
