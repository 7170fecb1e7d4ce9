"""Machine code read from small hand-written listings: which loops there are, and of which kind."""

from __future__ import annotations

import pytest

from fuser.core.errors import BackendError
from fuser.sass import Section, nounroll_pragmas, read_sass

pytestmark = pytest.mark.unit

TAIL = """
EXIT
.trap:
BRA `(.trap)
NOP
NOP
"""


def listing(body: str, name: str = "k") -> str:
    """Print a section as the disassembler does: an instruction or a label a line, 16 bytes each."""
    lines = [f'\t.section\t.text.{name},"ax",@progbits', f"{name}:", f".text.{name}:"]
    address = 0
    for line in filter(None, map(str.strip, body.splitlines())):
        if line.endswith(":") or line.startswith(".type"):
            lines.append(line)
            continue
        lines.append(f"        /*{address:04x}*/              {line} ;")
        address += 16
    return "\n".join(lines) + "\n"


def section(body: str) -> Section:
    (found,) = read_sass(listing(body)).sections
    return found


def headers(body: str) -> list[tuple[int, int]]:
    """Return (instruction number of the header, depth) of every loop."""
    return [(loop.header // 16, loop.depth) for loop in section(body).loops]


@pytest.mark.parametrize(
    "branch",
    ["@P0 BRA `(.L)", "@!P3 BRA `(.L)", "BRA.U UP0, `(.L)", "BRA.U !UP0, `(.L)",
     "BRA.DIV ~URZ, `(.L)", "@UP1 JMP `(.L)"],
)  # fmt: skip
def test_a_branch_with_any_predicate_falls_through(branch):
    code = f"MOV R1, R2\n.L:\nLDG.E R0, desc[UR4][R2.64]\n{branch}\n.M:\nSTG.E R1\n@P2 BRA `(.M)\n"
    found = section(code + TAIL)
    loop, behind = found.loops  # the second only because control gets there
    assert (loop.header, loop.depth, loop.size, loop.latches, loop.kind) == (16, 1, 2, 1, "rolled")
    assert (behind.header, behind.depth, behind.size) == (48, 1, 2)
    assert (found.loads, found.stores, found.instructions) == (1, 1, 7)


def test_an_unconditional_branch_does_not_fall_through():
    # were it otherwise, what follows would reach the loop
    assert headers(f"BRA `(.end)\n.L:\nMOV R1, R2\nBRA `(.L)\n.end:\n{TAIL}") == []


def test_the_trap_at_the_end_is_no_loop_even_where_it_is_reached():
    assert headers("CALL.ABS.NOINC `(elsewhere)\n.trap:\nBRA `(.trap)\nNOP") == []


@pytest.mark.parametrize("branch", ["@P0 BRA `(.L)", "BRA.U !UP0, `(.L)"])
def test_a_branch_to_itself_that_ends_is_no_trap(branch):
    """It waits for something, and only padding follows."""
    assert headers(f"MOV R1, R2\n.L:\n{branch}\nNOP\nNOP") == [(1, 1)]


@pytest.mark.parametrize("end", ["EXIT", "RET.REL.NODEC R6 `(k)", "KILL"])
def test_what_follows_an_end_is_not_reached(end):
    assert headers(f"MOV R1, R2\n{end}\n.L:\nMOV R1, R2\n@P0 BRA `(.L)\n{TAIL}") == []


def test_code_that_nobody_reaches_is_in_no_loop():
    body = ".L:\nMOV R1, R2\nBRA `(.M)\nMOV R2, R3\n.M:\nMOV R3, R4\n@P0 BRA `(.L)\n" + TAIL
    assert [loop.size for loop in section(body).loops] == [4]


def test_an_endless_loop_of_the_program_is_one():
    assert headers(f".L:\nBRA `(.L)\n{TAIL}") == [(0, 1)]


def test_straight_line_code_with_an_early_exit():
    assert headers(f"@P0 EXIT\nMOV R1, R2\n{TAIL}") == []


def test_what_follows_a_conditional_exit_is_reached():
    assert headers(f"@P0 EXIT\n.L:\nMOV R1, R2\n@P1 BRA `(.L)\n{TAIL}") == [(1, 1)]


def test_nested_loops():
    body = ".A:\nMOV R1, R2\n.B:\nMOV R2, R3\n@P0 BRA `(.B)\n@P1 BRA `(.A)\n" + TAIL
    assert headers(body) == [(0, 1), (1, 2)]
    assert [loop.size for loop in section(body).loops] == [4, 2]


def test_loops_one_after_the_other():
    assert headers(f".A:\n@P0 BRA `(.A)\n.B:\n@P1 BRA `(.B)\n{TAIL}") == [(0, 1), (1, 1)]


def test_two_latches_are_one_loop():
    found = section(f".A:\nMOV R1, R2\n@P0 BRA `(.A)\nMOV R2, R3\nBRA.U UP0, `(.A)\n{TAIL}")
    (loop,) = found.loops
    assert (loop.size, loop.latches) == (4, 2)


def test_a_shared_header_is_one_loop():
    """An inner loop that is the first thing of an outer one: two in the source, one here."""
    body = ".A:\nLDG.E R0\n@P0 BRA `(.A)\nSTG.E R0\n@P1 BRA `(.A)\n" + TAIL
    (loop,) = section(body).loops
    assert (loop.size, loop.latches, loop.depth) == (4, 2, 1)


@pytest.mark.parametrize("branch", ["BRX", "BRXU", "JMX", "JMXU"])
def test_targets_of_an_indirect_branch(branch):
    """The loop is closed only through the table."""
    table = '(*"BRANCH_TARGETS .one,.two,.out"*)'
    body = (
        f".A:\nMOV R1, R2\n{branch} R2 -0x1d0   {table}\n.one:\nMOV R1, R3\nBRA `(.join)\n"
        f".two:\nMOV R1, R4\n.join:\n@P0 BRA `(.A)\n.out:\n{TAIL}"
    )
    (loop,) = section(body).loops
    assert (loop.header, loop.size) == (0, 6)


@pytest.mark.parametrize("table", [".out", ".out,.cold"])
def test_an_indirect_branch_does_not_fall_through(table):
    """However many targets its table has."""
    body = f'BRX R2 -0x10 (*"BRANCH_TARGETS {table}"*)\n.A:\n@P0 BRA `(.A)\n.out:\n.cold:\n{TAIL}'
    assert headers(body) == []


@pytest.mark.parametrize(
    "branch",
    ["BRX R2 -0x10", "BRA `(.gone)", "BRA 0x100", 'BRX R2 -0x10 (*"BRANCH_TARGETS .here,.gone"*)'],
)
def test_a_target_that_is_not_known(branch):
    with pytest.raises(BackendError, match=r"section k: at 0x10, .*target not in the section"):
        section(f"MOV R1, R2\n.here:\n{branch}\n{TAIL}")


def test_a_blocks_out_of_line_is_no_loop():
    """It lies behind the exit and branches back: textually backward, but nothing repeats."""
    assert (
        headers(f"@P0 BRA `(.cold)\n.back:\nMOV R1, R2\nEXIT\n.cold:\nBRA `(.back)\n{TAIL}") == []
    )


WAIT = "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+URZ], R2"


def test_a_wait_out_of_line_is_a_spin_loop():
    body = (
        f".A:\n{WAIT}\n@!P0 BRA `(.slow)\n.go:\nLDS R0, [R1]\n@P1 BRA `(.A)\nEXIT\n"
        f".slow:\nYIELD\n{WAIT}\n@!P0 BRA `(.slow)\nBRA `(.go)\n{TAIL}"
    )
    found = section(body)
    assert [(loop.header // 16, loop.depth, loop.kind) for loop in found.loops] == [
        (0, 1, "rolled"), (5, 2, "spin"),
    ]  # fmt: skip
    assert found.loops[0].size == 8, "what lies out of line belongs to the loop"
    assert (len(found.rolled), len(found.spins)) == (1, 1)


@pytest.mark.parametrize(("extra", "kind"), [(13, "spin"), (14, "rolled")])
def test_a_long_loop_with_a_wait_is_not_a_spin_loop(extra, kind):
    body = ".A:\n" + "MOV R1, R2\n" * extra + f"{WAIT}\n@!P0 BRA `(.A)\n" + TAIL
    assert [loop.kind for loop in section(body).loops] == [kind]


def test_loops_that_ptxas_makes():
    lanes = ".A:\n@P0 ELECT P2, URZ, PT\nUTMALDG.1D [UR8], [UR6]\n@P0 BRA.U.ANY `(.A)\n"
    claim = ".B:\nUSETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8\n@!P0 BRA `(.B)\n"
    found = section(f".L:\n{lanes}MOV R1, R2\n@P1 BRA `(.L)\n{claim}{TAIL}")
    # the first header is shared: then it is the outer loop's
    assert [loop.kind for loop in found.loops] == ["rolled", "registers"]
    found = section(f".L:\nMOV R1, R2\n{lanes}@P1 BRA `(.L)\n{claim}{TAIL}")
    assert [loop.kind for loop in found.loops] == ["rolled", "lanes", "registers"]
    assert found.async_copies == 1


def test_a_called_function_in_the_section_is_entered():
    function = ".A:\nLDG.E R3, desc[UR6][R2.64]\n@P0 BRA `(.A)\nRET.REL.NODEC R6 `(k)\n"
    called = f"CALL.REL.NOINC `($k$f)\nEXIT\n$k$f:\n{function}{TAIL}"
    assert headers(called) == [(2, 1)]
    assert headers(called.replace("CALL.REL.NOINC", "MOV R1,")) == []
    by_pointer = called.replace("CALL.REL.NOINC `($k$f)", "CALL.REL.NOINC R2 0x0")
    assert headers(by_pointer.replace("$k$f:", ".type $k$f,@function\n$k$f:")) == [(2, 1)]


def test_a_call_falls_through():
    assert headers(f".A:\nCALL.ABS.NOINC `(f)\n@P0 BRA `(.A)\n{TAIL}") == [(0, 1)]


def test_reconvergence_adds_no_edge():
    """Were ``BSSY`` an edge to where threads meet, this loop would have two entries."""
    body = "BSSY B0, `(.meet)\n.A:\nMOV R1, R2\n.meet:\nBSYNC B0\n@P0 BRA `(.A)\n" + TAIL
    found = section(body)
    assert [loop.header // 16 for loop in found.loops] == [1]
    assert found.irreducible == ()


def test_a_cycle_with_two_entries_is_reported():
    body = "@P0 BRA `(.B)\n.A:\nMOV R1, R2\n.B:\nMOV R2, R3\n@P1 BRA `(.A)\n" + TAIL
    found = section(body)
    assert found.loops == ()
    assert len(found.irreducible) == 1
    assert read_sass(listing(body)).irreducible_edges == 1


def test_accesses_and_products():
    body = (
        "LDG.E.128 R0\nLD.E R1\nLDS R2\nLDL R3\nSTL.64 [R1]\nSTL [R1]\nSTG.E R0\nST.E R1\nSTS R2\n"
        "LDC R1\nLDGSTS.E [R1]\nUBLKCP.S.G [UR8], [UR6], UR5\nUBLKCP.G.S [UR8], [UR6], UR5\n"
        "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24\nHGMMA.64x64x16.F32 RZ, gdesc[URZ], RZ\n" + TAIL
    )
    found = section(body)
    assert (found.loads, found.stores, found.async_copies) == (2, 2, 2)
    assert (found.local_loads, found.local_stores, found.hgmma) == (1, 2, 1)


def test_sections_add_up_and_labels_are_their_own():
    text = listing(f".A:\nLDG.E R0\n@P0 BRA `(.A)\n{TAIL}", "f")
    text += '\t.section\t.nv.info,"",@progbits\n        /*0000*/ .word 1\n'
    text += listing(f"MOV R1, R2\n.A:\nLDL R0\n@P0 BRA `(.A)\n{TAIL}", "g")
    report = read_sass(text)
    assert [s.name for s in report.sections] == ["f", "g"]
    assert [s.loops[0].header for s in report.sections] == [0, 16]
    assert (report.rolled_loops, report.loads, report.local_loads) == (2, 1, 1)


def test_a_text_without_code():
    assert read_sass("\t.target\tsm_90a\n").sections == ()


def test_a_line_that_is_no_instruction():
    with pytest.raises(BackendError, match=r"section k: .* is no instruction"):
        read_sass(listing("").rstrip() + "\n        /*0000*/   what is this\n")


def test_marks_in_ptx():
    ptx = '$L1:\n\t.pragma "nounroll";\n\tbra $L1;\n// .pragma "nounroll";\n'
    ptx += '{\n.pragma  "nounroll" ;\n}'
    assert nounroll_pragmas(ptx) == 2
