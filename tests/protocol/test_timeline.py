"""Timelines: the lives of trips in their stages, what warps do meanwhile, and the pictures."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from rings import families

from fuser import LoadStoreOpType, ParallelType, Pipelined, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.api.manual import build_manual
from fuser.cli.pipelines import ring_copy, ring_map, ring_rows, ring_store, ring_sum
from fuser.core.errors import BackendError, InputError, OptionError
from fuser.protocol.mutants import mutants
from fuser.timeline import png
from fuser.timeline.drawing import Rect, Text
from fuser.timeline.layout import draw
from fuser.timeline.record import record
from fuser.timeline.svg import to_svg
from fuser.timeline.timeline import Span, Timeline
from fuser.timeline.write import write

pytestmark = pytest.mark.protocol

L = LoadStoreOpType
TILE = 256
TMA = L.tma
COPY = 30.0
PIPELINED = Pipelined(war="mbarrier")


def built(fd, *shapes):
    call = bind(fd, [np.zeros(shape, "f4") for shape in shapes])
    (kernel,) = build_manual(fd.fusion, fd.hand, call.cls, call.env, "fusion", ()).kernels
    return kernel, call.env


def timeline(trips, load=TMA, stages=3, prefetch=None, type=PIPELINED, second=None, **options):
    fd = ring_map(load, stages, prefetch, type, TILE, second=second)
    shapes = [TILE * trips - 20] * (1 if second is None else 2)
    return record(*built(fd, *shapes), **options)


def life(ring, trip: int) -> dict[str, Span]:
    """Return the spans of a trip by what they are, checked to follow each other."""
    spans = list(ring.of_trip(trip))
    order = ["filling", "full", "reading"]
    whats = [span.what for span in spans]
    assert whats == [w for w in order if w in whats]
    assert {"filling", "reading"} <= set(whats)
    assert all(a.stop == b.start for a, b in pairwise(spans))
    return dict(zip(whats, spans, strict=True))


def check(t: Timeline, trips: int) -> None:
    """Check what holds for every pipeline that is right."""
    assert t.fault == ()
    (ring,) = t.rings
    stages = ring.ring.stages
    assert ring.trips == trips
    assert len(ring.stages) == stages
    for row in ring.stages:  # a stage is in one state at a time, and always in some
        assert row.spans[0].start == 0
        assert row.spans[-1].stop == t.stop
        assert all(a.stop == b.start for a, b in pairwise(row.spans))
    lives = [life(ring, trip) for trip in range(trips)]
    for trip, spans in enumerate(lives):
        assert set(spans.values()) <= set(ring.stages[trip % stages].spans)
        landed = spans["filling"].stop
        work = [s for row in t.warps for s in row.spans if (s.what, s.trip) == ("compute", trip)]
        assert work
        assert min(s.start for s in work) >= landed, "nobody computes before the stage is full"
        if trip >= stages:
            before = lives[trip - stages]["reading"].stop
            assert spans["filling"].start >= before, "a stage is refilled once it has been read"
    for row in t.warps:
        assert all(a.stop <= b.start for a, b in pairwise(row.spans))
        order = [s.trip for s in row.spans if s.what == "compute"]
        assert order == sorted(order)


def test_a_small_pipeline_in_full():
    t = timeline(5, prefetch=2)
    check(t, 5)
    (ring,) = t.rings
    assert (ring.ring.stages, ring.ring.prefetch) == (3, 2)
    assert ring.ring.kind == "pipelined, sync parity, war mbarrier"
    assert [p.what for p in t.phases] == [
        "pre-prologue", "prologue", "main", "epilogue", "post-epilogue",
    ]  # fmt: skip
    assert all(a.stop == b.start for a, b in pairwise(t.phases))
    for trip in range(5):
        filling = life(ring, trip)["filling"]
        assert filling.stop - filling.start == COPY
    issues = [s for row in t.warps for s in row.spans if s.what == "issue"]
    assert [s.trip for s in issues] == [0, 1, 2, 3, 4]
    prologue = t.phases[1]
    assert [s.trip for s in issues if s.stop <= prologue.stop] == [0, 1], "P trips are ahead"
    for at in sorted({s.start for row in ring.stages for s in row.spans}):
        ahead = [s for row in ring.stages for s in row.spans if s.start <= at < s.stop]
        assert sum(s.what != "free" for s in ahead) <= 3


@pytest.mark.parametrize("stages", range(1, 9))
@pytest.mark.parametrize(
    "type",
    [Pipelined(war="mbarrier"), Pipelined("token", "barrier"), WarpSpecialized()],
    ids=["mbarrier", "token", "roles"],
)
def test_every_ring_is_a_pipeline(stages, type):
    prefetch = stages - 1 if isinstance(type, WarpSpecialized) else stages // 2
    check(timeline(2 * stages + 1, L.bulk, stages, prefetch, type), 2 * stages + 1)


@pytest.mark.parametrize("second", [L.set, L.cp_async])
def test_mixed_loads_fill_one_stage(second):
    t = timeline(7, second=second)
    check(t, 7)
    (ring,) = t.rings
    assert ring.ring.arrays == ("x_cache", "z_cache")
    for row in t.warps:
        assert [s.trip for s in row.spans if s.what == "issue"] == list(range(7)), row.name


@pytest.mark.parametrize("load", [L.set, L.cp_async])
def test_threads_fill_stages(load):
    check(timeline(7, load), 7)


@pytest.mark.parametrize("trips", [1, 2, 3])
def test_few_trips(trips):
    check(timeline(trips, stages=4), trips)


def test_trips_ahead_save_time():
    stops = [timeline(12, prefetch=p, stages=4).stop for p in range(4)]
    assert stops == sorted(stops, reverse=True)
    assert stops[0] > 2 * stops[-1]
    waits = [
        sum(s.stop - s.start for s in t.warps[0].spans if s.what == "wait full" and s.trip)
        for t in (timeline(12, prefetch=3, stages=4, copy=c) for c in (10.0, 100.0))
    ]
    assert waits[0] == 0 < waits[1]


def test_roles_are_rows_and_wait_for_what_they_must():
    t = timeline(9, type=WarpSpecialized())
    names = [row.name for row in t.warps]
    assert names == ["warp 0 · consumer", "warp 1 · consumer", "warp 2 · producer"]
    did = {row.name: {s.what for s in row.spans} for row in t.warps}
    assert did["warp 2 · producer"] >= {"issue", "wait empty"}
    assert "compute" not in did["warp 2 · producer"]
    assert "issue" not in did["warp 0 · consumer"]
    assert "warp roles" in [p.what for p in t.phases]


def test_warps_that_act_alike_share_a_row():
    fd = ring_map(L.bulk, 3, 2, Pipelined(war="mbarrier"), 1024, 256)
    names = [row.name for row in record(*built(fd, 5120)).warps]
    assert names == ["warp 0", "warps 1–7"]


@pytest.mark.parametrize("turns", [False, True], ids=["own stages", "turns"])
def test_consumer_groups_use_trips_of_their_own(turns):
    position = 3 if turns else 2
    type = WarpSpecialized(ParallelType.block_y, None, position, turns)
    build = families.groups_sum if turns else families.groups_map
    fd = build(families.Choices((TMA,), 4, None, type, threads=128))
    t = record(*built(fd, (200, 64) if turns else 256 * 9 + 4))
    assert t.fault == ()
    (ring,) = t.rings
    used = {
        row.name.split(" · ")[1]: {s.trip for s in row.spans if s.what == "compute"}
        for row in t.warps
        if " · " in row.name  # a row of threads is completed by warps without a role
    }
    first, second = used["consumer 0"], used["consumer 1"]
    assert first
    assert second
    assert not first & second
    assert first | second == set(range(ring.trips))
    for trip in range(ring.trips):
        life(ring, trip)


@pytest.mark.parametrize("build", [ring_store, ring_copy])
def test_a_wait_for_stores_has_a_name(build):
    fd = build(TMA, 3, 2, Pipelined(war="mbarrier"))
    call = bind(fd, [np.zeros(TILE * 6, "f4")], True)  # whole tiles, so that the engine stores
    (kernel,) = program_of(fd, call, True).kernels
    t = record(kernel, call.env, copy=60.0)
    assert t.fault == ()
    waits = [(row.name, s) for row in t.warps for s in row.spans if s.what == "wait store"]
    assert {name for name, _ in waits} == {"warp 0"}, "the thread that stores waits, nobody else"
    assert all(span.stop > span.start and span.trip is None for _, span in waits)
    assert waits
    others = [s for row in t.warps[1:] for s in row.spans if s.what == "meet"]
    assert others, "the other warps wait for the one that does"
    assert "waits for its stores" in to_svg(draw(t))


def test_sizes_are_cut_to_few_trips():
    t = timeline(1000)
    check(t, 12)
    assert any("x_size0 = 3072 instead of 255980" in note for note in t.notes)
    check(timeline(1000, stages=8), 18)


def test_rings_inside_of_and_across_outer_loops():
    again = record(*built(ring_rows(L.bulk, 2, 1, Pipelined(war="mbarrier")), (50, 4096)))
    assert again.fault == ()
    (ring,) = again.rings
    assert ring.trips == 5, "counted anew in each of three outer trips"
    assert sum(s.what == "filling" for row in ring.stages for s in row.spans) == 15
    across = record(*built(ring_rows(L.bulk, 2, 1, WarpSpecialized()), (50, 4096)))
    check(across, 15)


def test_a_reduction_works_behind_its_ring():
    check(record(*built(ring_sum(TMA, 2, 1, Pipelined(war="mbarrier")), 2000)), 8)


def test_a_kernel_without_a_ring_is_named():
    kernel, sizes = built(ring_map(TMA, 2, 1, Pipelined(war="mbarrier")), 700)
    with pytest.raises(InputError, match="kernel fusion: has no circular buffer"):
        record(replace(kernel, rings=()), sizes)


def test_a_failing_run_is_drawn_up_to_where_it_fails():
    kernel, sizes = built(ring_map(TMA, 3, 2, Pipelined(war="mbarrier")), 3000)
    kinds = dict[str, Timeline]()
    for mutant in mutants(kernel):
        kinds.setdefault(mutant.kind, record(mutant.kernel, sizes))
    stuck = kinds["release dropped"]
    assert stuck.fault[0] == "kernel fusion: deadlock:"
    assert any("x_cache_empty[0] is in phase 0 with 2 of 2 arrivals" in f for f in stuck.fault)
    last = {row.name: row.spans[-1] for row in stuck.warps}
    assert (last["warp 0"].what, last["warp 0"].trip) == ("wait empty", 3)
    assert (last["warp 1"].what, last["warp 1"].trip) == ("wait full", 3)
    assert all(span.stop == stuck.stop for span in last.values())
    assert "race on x_cache" in kinds["acquire dropped"].fault[0]
    assert "fence" in kinds["fence dropped"].fault[0].lower()
    for t in kinds.values():
        ElementTree.fromstring(to_svg(draw(t)))


# ---- pictures ------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_svg_has_every_stage_and_trip_and_is_the_same_each_time():
    svg = to_svg(draw(timeline(20, prefetch=2)))
    assert svg == to_svg(draw(timeline(20, prefetch=2)))
    written = texts(svg)
    assert {f"stage {s}" for s in range(3)} | {"warp 0", "warp 1"} <= set(written)
    assert {str(trip) for trip in range(12)} <= set(written)
    title = "Ring x_cache: S = 3, P = 2, pipelined, sync parity, war mbarrier; N = 12 trips"
    assert title in written
    assert {"copy in flight", "full, not read yet", "being read", "free"} <= set(written)
    assert {"pre-prologue", "prologue", "main", "epilogue", "post-epilogue"} <= set(written)
    hints = [e.text or "" for e in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    assert any(
        re.fullmatch(r"stage 2, trip 11: copy in flight, [\d.]+ to [\d.]+", h) for h in hints
    )


def test_ids_of_two_pictures_differ_by_their_prefix():
    drawing = draw(timeline(5))
    ids = [set(re.findall(r'id="([^"]+)"', to_svg(drawing, p))) for p in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("stages", [1, 3, 8])
@pytest.mark.parametrize(
    "type", [Pipelined(war="mbarrier"), WarpSpecialized()], ids=["pipelined", "roles"]
)
def test_nothing_is_written_over_something_else(stages, type):
    drawing = draw(timeline(50, stages=stages, type=type))
    boxes = []
    for t in (s for s in drawing.shapes if isinstance(s, Text)):
        left = t.x - {"start": 0, "middle": t.width / 2, "end": t.width}[t.anchor]
        boxes.append((left, t.y - t.size / 2, left + t.width, t.y + t.size / 2, t.text))
    for x0, y0, x1, y1, text in boxes:
        assert x0 >= 0, text
        assert y0 >= 0, text
        assert x1 <= drawing.width, text
        assert y1 <= drawing.height, text
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, (a[4], b[4])


def test_many_trips_are_drawn_at_both_ends():
    t = timeline(40, whole=True)
    check(t, 40)
    drawing = draw(t)
    written = [s.text for s in drawing.shapes if isinstance(s, Text)]
    assert {"0", "11", "38", "39"} <= set(written)
    hints = " ".join(s.hint for s in drawing.shapes if isinstance(s, Rect))
    assert "trip 39: being read" in hints
    assert "trip 25: being read" not in hints
    assert any("Not drawn: what follows trip 11" in line for line in written)
    assert drawing.width < 1700


def test_a_long_run_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("fuser.timeline.record.MOST_STEPS", 500)
    t = timeline(100, whole=True)
    assert t.rings[0].trips < 40
    assert any(note.startswith(f"Stopped after {t.rings[0].trips} trips") for note in t.notes)


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_png_is_as_large_as_the_drawing(tmp_path):
    t = timeline(5)
    write(tmp_path / "t.png", t)
    image = (tmp_path / "t.png").read_bytes()
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", image[16:24])
    drawing = draw(t)
    assert abs(width - 2 * drawing.width) <= 2
    assert abs(height - 2 * drawing.height) <= 2
    assert image == png.to_png(drawing), "the same each time"


def test_a_missing_matplotlib_is_named_with_its_extra(monkeypatch, tmp_path):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(png, "import_module", missing)
    with pytest.raises(BackendError, match=r"matplotlib: pip install 'fuser-cuda\[bench\]'"):
        write(tmp_path / "t.png", timeline(3))
    assert not (tmp_path / "t.png").exists()


def test_other_suffixes_and_places_are_refused(tmp_path):
    t = timeline(3)
    with pytest.raises(OptionError, match=r"t\.gif: needed a name that ends in \.svg or \.png"):
        write(tmp_path / "t.gif", t)
    with pytest.raises(OptionError, match="a file that can be written is needed"):
        write(tmp_path / "missing" / "t.svg", t)


@pytest.mark.parametrize(
    "type", [PIPELINED, Pipelined("token", "barrier"), WarpSpecialized()], ids=str
)
def test_of_a_cluster_the_first_block_is_drawn(type):
    """The other blocks run with it, and are not seen: their stages and warps are not drawn."""
    c = families.Choices((TMA, TMA), cluster=2, type=type)
    t = record(*built(families.multicast(c), (4, 256 * 7), (256 * 7,)))
    assert len(t.warps) == len(timeline(7, type=type).warps)
    check(t, 7)
