"""Loop nest and CUDA text of five hand-made schedules, as they are meant to look."""

from __future__ import annotations

from pathlib import Path

import pytest
from manual_schedules import BY_NAME

from fuser.api.execute import bind
from fuser.api.manual import build_manual
from fuser.codegen.emit import emit
from fuser.nest.nodes import LoopNest
from fuser.nest.printing import to_text

pytestmark = pytest.mark.golden

FOLDER = Path(__file__).with_suffix("")
NAMES = ("vectorized", "transpose_swizzled", "sum_rfactor", "sum_grid", "softmax")


@pytest.mark.parametrize("name", NAMES)
def test_nest_and_source(name, rng, update_golden):
    case = BY_NAME[name]
    fd = case.build()
    call = bind(fd, case.inputs(rng, 1))
    nests: list[str] = []

    def observe(stage: str, ir: object) -> None:
        if isinstance(ir, LoopNest):
            nests.append(f"after {stage}, {to_text(ir)}")

    program = build_manual(fd.fusion, fd.hand, call.cls, call.env, name, (observe,))
    (source,) = (emit(kernel) for kernel in program.kernels)
    header, _, rest = source.partition("typedef")
    function = rest[rest.index('extern "C"') :]
    text = "\n\n".join([*nests, header + function])  # the prelude has tests of its own
    file = FOLDER / f"{name}.txt"
    if update_golden:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} differs; look, then run with --update-golden"
