"""Counterexamples drawn: the columns are the steps of the story, the rows what it says."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from fuser import LoadStoreOpType, Pipelined, WarpSpecialized
from fuser.api.execute import bind
from fuser.api.manual import build_manual
from fuser.cli import check as command
from fuser.cli.main import main
from fuser.cli.pipelines import ring_map
from fuser.core.errors import InputError
from fuser.protocol.mutants import Mutant, mutants
from fuser.protocol.story import tell
from fuser.protocol.verdict import check
from fuser.timeline.counterexample import counterexample
from fuser.timeline.layout import draw
from fuser.timeline.svg import to_svg

pytestmark = pytest.mark.protocol

TYPES = {
    "parity": Pipelined(war="mbarrier"),
    "token": Pipelined("token", "barrier"),
    "roles": WarpSpecialized(),
}


def kernel(type):
    fd = ring_map(LoadStoreOpType.tma, 2, 1, type)
    call = bind(fd, [np.zeros(5000, "f4")])
    (made,) = build_manual(fd.fusion, fd.hand, call.cls, call.env, "fusion", ()).kernels
    return made


def found(name: str, kind: str) -> Mutant:
    return next(m for m in mutants(kernel(TYPES[name])) if m.kind == kind)


@pytest.mark.parametrize("name", TYPES)
def test_every_mistake_has_a_picture(name):
    for mutant in mutants(kernel(TYPES[name])):
        verdict = check(mutant.kernel)
        assert verdict.reach == "wrong", mutant.kind
        t = counterexample(verdict)
        assert verdict.fault is not None
        assert t.fault[0] == f"{verdict.fault.kind}: {verdict.fault.text}"
        steps = [int(line.split(".")[0]) for line in t.notes]
        assert steps == list(range(steps[0], steps[0] + len(steps))) if steps else True
        if t.rings:
            assert t.stop == steps[-1] + 2, "a column per step, and one for what goes wrong"
        rows = [row for ring in t.rings for row in ring.stages]
        for row in rows:
            assert row.spans[-1].stop == t.stop
            assert all(a.stop == b.start for a, b in pairwise(row.spans))
        for row in t.warps:
            assert all(a.stop <= b.start for a, b in pairwise(row.spans))
        svg = to_svg(draw(t))
        ElementTree.fromstring(svg)
        assert svg == to_svg(draw(counterexample(verdict)))


def test_a_deadlock_shows_who_waits_for_what():
    verdict = check(found("parity", "release dropped").kernel)
    t = counterexample(verdict)
    last = {row.name: row.spans[-1] for row in t.warps if row.name != "takes effect"}
    assert last["warp 0"].what == "wait empty"
    assert last["warp 0"].text.startswith("empty[")
    assert last["warp 0"].stop == t.stop
    assert any(
        re.fullmatch(r"x_cache_empty\[\d\]: 2 of 2 arrivals and 0 bytes pending", line)
        for line in t.fault
    )
    (ring,) = t.rings
    stage = int(last["warp 0"].text[-2])
    assert ring.stages[stage].spans[-1].what == "reading", "nobody has given it back"
    assert t.title == f"fusion: deadlock with N = {verdict.trips[0]}"


def test_the_story_has_true_trip_numbers():
    verdict = check(found("parity", "release dropped").kernel)
    assert verdict.model is not None
    assert verdict.fault is not None
    told = "\n".join(tell(verdict.model, verdict.fault))
    landed = re.findall(r"copy of warp 0 into stage (\d) of x_cache for trip (\d+) lands", told)
    assert len(landed) > 1
    assert all(int(stage) == int(trip) % 2 for stage, trip in landed)
    assert [int(trip) for _, trip in landed] == list(range(len(landed)))


def test_a_stage_that_is_refilled_too_early_is_seen_refilled():
    t = counterexample(check(found("parity", "acquire dropped").kernel))
    assert t.fault[0].startswith("WAR: ")
    (ring,) = t.rings
    orders = [[(s.what, s.trip) for s in row.spans if s.trip is not None] for row in ring.stages]
    assert any(("filling", 2) in order for order in orders)
    assert not any(("free", None) in order for order in orders)


def test_what_is_right_has_no_counterexample():
    with pytest.raises(InputError, match="kernel fusion: nothing is wrong"):
        counterexample(check(kernel(Pipelined(war="mbarrier"))))


SCRIPT = """
import numpy as np
from fuser import LoadStoreOpType, Pipelined
from fuser.cli.pipelines import ring_map

fd = ring_map(LoadStoreOpType.bulk, 2, 1, Pipelined(war="mbarrier"))
fd.manual_execute([np.ones(5000, "f4")], backend="interpret")
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_check_writes_the_picture_of_what_is_wrong(file, tmp_path, capsys, monkeypatch):
    out = tmp_path / "wrong.svg"
    assert main(["check", str(file), "--timeline", str(out)]) == 0
    assert not out.exists()
    assert "nothing is wrong" in capsys.readouterr().out
    mutant = found("parity", "release dropped")
    monkeypatch.setattr(command, "check", lambda _, go_on: check(mutant.kernel, go_on=go_on))
    assert main(["check", str(file), "--timeline", str(out)]) == 1
    assert "deadlock: nobody can go on" in out.read_text()
    assert f"wrote {out}" in capsys.readouterr().out


def test_explain_writes_timelines(file, tmp_path, capsys):
    out = tmp_path / "t.svg"
    assert main(["explain", str(file), "--timeline", str(out)]) == 0
    assert "Ring x_cache: S = 2, P = 1" in out.read_text()
    assert main(["explain", "--timeline", "t.gif", str(file)]) == 2
    assert "t.gif: needed a name that ends in .svg or .png" in capsys.readouterr().err
    plain = tmp_path / "plain.py"
    plain.write_text(SCRIPT.replace("fd.manual_execute", "fd = ring_map; (lambda *a, **k: 0)"))
    assert main(["explain", str(plain), "--timeline", str(out)]) == 2
    assert "defines no fusion" in capsys.readouterr().err


def test_the_page_shows_the_timeline_of_each_kernel(file, tmp_path):
    file.write_text(SCRIPT + SCRIPT)
    page = tmp_path / "page.html"
    assert main(["explain", str(file), "--html", str(page)]) == 0
    text = page.read_text()
    assert text.count("<svg ") == text.count("</svg>") == 2
    assert "fusion0kernel0hatch0" in text
    assert "fusion1kernel0hatch0" in text
