"""Timelines of rings that matrix products read: until their group is complete, and no longer."""

from itertools import pairwise

import numpy as np
import pytest

from fuser import LoadStoreOpType, Pipelined, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.cli.pipelines import ring_products
from fuser.timeline.layout import draw
from fuser.timeline.record import record
from fuser.timeline.svg import to_svg

pytestmark = pytest.mark.protocol

TRIPS, STAGES = 5, 3
COPY = 10.0
"""Shorter than the products of a trip: they are what everybody waits for."""
FORMS = [Pipelined(war="mbarrier"), Pipelined(war="barrier"), WarpSpecialized()]


def timeline(form):
    fd = ring_products(LoadStoreOpType.tma, STAGES, STAGES - 1, form)
    call = bind(fd, [np.zeros((64, 64 * TRIPS), "f2")] * 2, True)
    (kernel,) = program_of(fd, call, True).kernels
    return record(kernel, call.env, copy=COPY)


def spans(row, what):
    return [s for s in row.spans if s.what == what]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_stage_is_read_until_the_products_out_of_it_have_been_waited_for(form):
    t = timeline(form)
    assert t.fault == ()
    (ring,) = t.rings
    assert ring.trips == TRIPS
    reading = [next(s for s in ring.of_trip(n) if s.what == "reading") for n in range(TRIPS)]
    readers = [row for row in t.warps if spans(row, "compute")]
    for trip, (read, after) in enumerate(pairwise(reading)):
        mine = [[s for s in spans(row, "compute") if s.trip == trip + 1] for row in readers]
        issued = max(row[0].start for row in mine)
        assert read.stop > issued, "the products of the next trip are under way by then"
        assert read.stop <= after.stop
    ends = {s.stop for row in readers for s in spans(row, "wait product")}
    assert {reading[-1].stop, reading[-1].stop - 1} & ends, "or an arrival later: it is given back"
    for row in readers:  # busy with nothing else while products run, it waits in every trip
        assert len(spans(row, "wait product")) >= TRIPS - STAGES
    assert "waits for its products" in to_svg(draw(t))
