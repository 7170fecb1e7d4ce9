"""Rings whose loops have unroll directives, in machine code."""

from __future__ import annotations

import re

import pytest
from unroll_cases import ALL, directed, kernel, ring

from fuser import Pipelined, WarpSpecialized
from fuser.codegen.emit import emit
from fuser.runtime.cache import CUBINS
from fuser.runtime.sass import disassemble
from fuser.sass import SassReport, nounroll_pragmas, read_sass
from fuser.sass.flow import cycles_of, graph_of
from fuser.sass.parse import parse

pytestmark = pytest.mark.nvrtc

RINGS = 2
"""Loops that make and invalidate the barriers of three stages; the reduction has a third."""


def compiled(made) -> tuple[SassReport, int, str]:
    """Return what the machine code of a kernel has, its marks in PTX, and its text."""
    cubin = CUBINS.get(emit(made), made.name, "sm_90a", on_spill="ignore")
    text = disassemble(cubin.image)
    return read_sass(text), nounroll_pragmas(cubin.ptx or ""), text


def divides(opcodes: list[str]) -> bool:
    """Whether code divides by 3: the high half of a product with a magic number."""
    return any(re.match(r"U?IMAD\.(HI|WIDE\.U32)", opcode) for opcode in opcodes)


def opcodes(text: str) -> list[str]:
    return [i.opcode for code in parse(text) for i in code.instructions]


@pytest.mark.parametrize(
    "kind", [Pipelined(war="mbarrier"), WarpSpecialized()], ids=["pipelined", "roles"]
)
def test_all_loops_stay_rolled(kind):
    """Prologue, main loop, epilogue, or those of both roles, and the loop inside each that uses."""
    made = kernel(ring(directed("rolled", "rolled"), kind=kind), 2, 2560)
    report, marks, text = compiled(made)
    loops, waits = (3 + 2, 3) if kind == Pipelined(war="mbarrier") else (2 + 1, 2)
    assert (report.rolled_loops, report.spin_loops) == (RINGS + loops, waits)
    assert marks == report.rolled_loops + report.spin_loops
    assert divides(opcodes(text)), "stages and parities follow from the trip"


@pytest.mark.parametrize(
    "kind", [Pipelined(war="mbarrier"), WarpSpecialized()], ids=["pipelined", "roles"]
)
def test_all_loops_unroll(kind):
    """No loop over trips is left: every load and every wait is in the code once a trip."""
    made = kernel(ring(directed(ALL, ALL), kind=kind, extent=2560), 2, 2560)
    report, marks, text = compiled(made)
    assert report.rolled_loops == RINGS
    assert marks == report.rolled_loops + report.spin_loops
    assert emit(made).count("mbarrier_wait(tile_full") == 10
    assert not divides(opcodes(text))


def test_as_many_copies_as_stages_make_stages_constants():
    """Rounds of the main loop know their stages, and parities are one bit of the round."""
    made = kernel(ring(directed(3, ALL), kind=WarpSpecialized(), extent=12 * 256), 2, 12 * 256)
    source = emit(made)
    assert "i0_round % 2" in source
    assert re.search(r"% 3\b", source) is None
    report, marks, text = compiled(made)
    assert report.rolled_loops == RINGS + 2
    assert marks == report.rolled_loops + report.spin_loops
    assert not divides(opcodes(text))


def test_the_main_loop_of_a_pipeline_has_constant_stages():
    """The remainder and the epilogue, which follow, divide; the main loop over rounds does not."""
    made = kernel(ring(directed(3, ALL)), 2, 2560)
    report, marks, text = compiled(made)
    assert marks == report.rolled_loops + report.spin_loops
    by_waits = {sum("TRYWAIT" in opcode for opcode in body): body for body in outermost(text)}
    main = by_waits[max(by_waits)]
    assert max(by_waits) >= 2 * 3, "a round waits for three free stages and three full ones"
    assert not divides(main)
    assert any(divides(body) for body in by_waits.values())


def outermost(text: str) -> list[list[str]]:
    """Return the opcodes of each loop that is inside no other, out-of-line blocks included."""
    found = []
    for code in parse(text):
        cycles, _ = cycles_of(graph_of(code))
        for cycle in cycles:
            if not any(cycle.header in o.body for o in cycles if o is not cycle):
                found.append([i.opcode for i in code.instructions if i.address in cycle.body])
    return found


INDEXED = (
    (re.compile(r"keep_token\((\w+), ([^,]+), ([^;]+)\);"), r"\1[\2] = \3;"),
    (re.compile(r"token_of\((\w+), ([^)]+)\)"), r"\1[\2]"),
)


@pytest.mark.parametrize("war", ["mbarrier", "barrier"])
@pytest.mark.parametrize(("trips", "stages"), [("rolled", 2), ("rolled", 5), (2, 3), (3, 3)])
def test_tokens_are_in_registers(trips, stages, war):
    """Whether the stage is known in the code or not, a token has no address."""
    made = kernel(ring(directed(trips, ALL), stages, Pipelined("token", war)), 2, 2560)
    report, marks, _ = compiled(made)
    assert (report.local_loads, report.local_stores) == (0, 0)
    assert marks == report.rolled_loops + report.spin_loops


def test_tokens_with_an_index_would_be_in_local_memory():
    """The control: the same kernel with elements that the stage chooses."""
    made = kernel(ring(directed("rolled", ALL), 3, Pipelined("token", "mbarrier")), 2, 2560)
    source = emit(made)
    start = source.index("__global__")
    text = source[start:]
    for pattern, indexed in INDEXED:
        text, times = pattern.subn(indexed, text)
        assert times
    cubin = CUBINS.get(source[:start] + text, made.name, "sm_90a", on_spill="ignore")
    report = read_sass(disassemble(cubin.image))
    assert report.local_loads > 0 < report.local_stores


def test_tokens_of_known_stages_are_elements():
    """Of three stages, three copies: the main loop compares nothing."""
    made = kernel(ring(directed(3, ALL), 3, Pipelined("token", "mbarrier")), 2, 2560)
    source = emit(made)
    main = source[source.index("// main") : source.index("// epilogue")]
    first = main[: main.index("#pragma unroll 1")]
    assert [f"tile_token[{s}] = mbarrier_arrive(" in first for s in range(3)] == [True] * 3
    assert "keep_token(" not in first
    assert "token_of(" not in first


def test_each_loop_of_a_ring_has_its_own_directive():
    """The main loop in rounds of its stages, and one copy of a trip in each of the others."""

    def direct(y):
        y.axis(1).unroll(3, loop="main")
        y.axis(1).rolled(loop="prologue")
        y.axis(1).rolled(loop="epilogue")
        y.axis(2).unroll()

    made = kernel(ring(direct), 2, 2560)
    report, marks, text = compiled(made)
    assert marks == report.rolled_loops + report.spin_loops
    assert report.rolled_loops == RINGS + 4, "prologue, main loop and its remainder, epilogue"
    assert emit(made).count("mbarrier_wait(tile_full") == 3 + 1 + 1
    by_waits = {sum("TRYWAIT" in opcode for opcode in body): body for body in outermost(text)}
    assert not divides(by_waits[max(by_waits)]), "stages of the main loop are constants"
