"""The picture on the page about timelines is the one that is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fuser import LoadStoreOpType, Pipelined
from fuser.api.execute import bind
from fuser.api.manual import build_manual
from fuser.cli.pipelines import ring_map
from fuser.timeline.layout import draw
from fuser.timeline.record import record
from fuser.timeline.svg import to_svg

pytestmark = pytest.mark.golden

PICTURE = Path(__file__).parents[2] / "docs" / "timeline.svg"


def test_the_picture_of_the_page(update_golden: bool) -> None:
    fd = ring_map(LoadStoreOpType.tma, 3, 2, Pipelined(war="mbarrier"))
    call = bind(fd, [np.zeros(100_000, "f4")])
    (kernel,) = build_manual(fd.fusion, fd.hand, call.cls, call.env, "fusion", ()).kernels
    svg = to_svg(draw(record(kernel, call.env)))
    if update_golden:
        PICTURE.write_text(svg)
    assert svg == PICTURE.read_text(), "the picture differs; look, then run with --update-golden"
