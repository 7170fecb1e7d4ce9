"""Registers that roles hand over and give back, so that all threads of the block go on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from manual_schedules import program, run_checked
from mutant_runs import greedy
from rings.cells import Cell, definition
from side_by_side import ALL, BEHIND, LESS, MORE, both, sums_of_rows

from fuser import DataType, FusionDefinition, LoadStoreOpType
from fuser.api.execute import bind, program_of
from fuser.core.errors import ProtocolError, VerifyError
from fuser.core.expr import Const
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import BlockReduce, NamedBarrier, Role, Roles, SetMaxRegisters, SyncThreads
from fuser.kir.verify import verify_kernel
from fuser.protocol.model import analyse
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check, prove

pytestmark = pytest.mark.protocol

L = LoadStoreOpType


def kernel_of(fd: FusionDefinition, n: int = 512) -> Kernel:
    x = np.ones(n, np.float32)
    (kernel,) = program(fd, [x, x]).kernels
    return kernel


@pytest.mark.parametrize(("first", "threads", "second", "load"), BEHIND, ids=str)
def test_a_ring_behind_registers_handed_over(first, threads, second, load, rng):
    """Of two stages, over trips of its own; the block meets between them, so both are proved."""
    fd = both(second, load, False, threads, first)
    for one, other in ((1, 1), (1, 3), (3, 1), (2, 7), (7, 2)):
        a, b = (rng.integers(-9, 10, 128 * n - 4 * (n > 1)).astype("f4") for n in (one, other))
        wanted = [(a.astype("f8") * 2).tolist(), (b.astype("f8") * 3).tolist()]
        for found in (
            fd.manual_execute([a, b], backend="interpret"),
            run_checked(fd, [a, b], seed=one),
        ):
            assert [np.asarray(y).ravel().tolist() for y in found] == wanted
    kernel = kernel_of(fd)
    verify_kernel(kernel)
    if load in (L.tma, L.cp_async) and second in (ALL, None):  # others have many more states
        assert check(kernel).reach == "proved"


def test_what_changes_hands_goes_back():
    """168 registers to begin with; what is behind the last roles computes nothing."""
    kernel = kernel_of(both(LESS, L.tma, False, 256, MORE))
    changes = [
        (role.name, s.count if s.increase else -s.count)
        for roles in kernel.body if isinstance(roles, Roles)
        for role in roles.roles for s in walk_stmts(role.body) if isinstance(s, SetMaxRegisters)
    ]  # fmt: skip
    assert changes == [
        ("consumer of a_cache", 232), ("consumer of a_cache", -168), ("producer of a_cache", -40),
        ("producer of a_cache", 168),
        ("consumer of b_cache", 240), ("producer of b_cache", -24),
    ]  # fmt: skip


@pytest.mark.parametrize("ring", ["a_cache", "b_cache"])
def test_mistakes_in_either_ring_are_found_by_the_proof(ring):
    made = [m for m in mutants(kernel_of(both(ALL, L.tma, False, 128, ALL))) if ring in m.where]
    assert len(made) > 20
    for mutant in made[::5]:
        assert prove(analyse(mutant.kernel))[0].fault is not None, (mutant.kind, mutant.where)


def test_work_of_all_threads_behind_the_roles(rng):
    """Producers take part in the reduction over threads: its barriers are those of the block."""
    fd = sums_of_rows()
    for rows, columns in ((1, 4), (2, 512), (3, 4 * 512 + 8)):
        x = rng.integers(-9, 10, (rows, columns)).astype("f4")
        for (found,) in (fd.manual_execute([x], backend="interpret"), run_checked(fd, [x], seed=1)):
            assert np.ravel(found).tolist() == x.astype("f8").sum(1).tolist()
    (kernel,) = program(fd, [x]).kernels
    verify_kernel(kernel)
    (_, back) = (s for s in kernel.body if isinstance(s, Roles))
    assert [(r.range, r.body) for r in back.roles] == [
        (range(256, 384), (SetMaxRegisters(168, True),))
    ]
    assert any(
        isinstance(s, BlockReduce) for s in walk_stmts(kernel.body[kernel.body.index(back) :])
    )


# ---- mistakes ----------------------------------------------------------------------------------


def rewritten(kernel: Kernel, change) -> Kernel:
    """Return a kernel with the statements of its body changed, each into several."""
    return replace(kernel, body=tuple(t for s in kernel.body for t in change(s)))


def in_roles(change):
    """Return a change of the roles of every `Roles`: of name and body."""

    def changed(stmt):
        if not isinstance(stmt, Roles):
            return (stmt,)
        roles = [replace(r, body=tuple(change(r, i, s) for i, s in enumerate(r.body)))
                 for r in stmt.roles]  # fmt: skip
        roles = [replace(r, body=tuple(s for part in r.body for s in part)) for r in roles]
        return (Roles(tuple(roles)),)

    return changed


def no_decrease(role: Role, at: int, stmt) -> tuple:
    """The consumers keep what they took."""
    dropped = at and isinstance(stmt, SetMaxRegisters)
    return () if dropped else (stmt,)


def no_meeting(role: Role, at: int, stmt) -> tuple:
    """The consumers do not meet before they change their registers again."""
    dropped = isinstance(stmt, NamedBarrier) and at == len(role.body) - 2
    return () if dropped else (stmt,)


def in_its_role(role: Role, at: int, stmt) -> tuple:
    """The producers take theirs back as soon as they have issued all copies."""
    last = role.name.startswith("producer") and at == len(role.body) - 1 and at > 0
    meet = NamedBarrier(Const(2), 128, "all copies are issued")
    return (stmt, meet, SetMaxRegisters(168, True)) if last else (stmt,)


def inside_a_loop(role: Role, at: int, stmt) -> tuple:
    """Registers change in every trip."""
    loop = role.name.startswith("consumer") and hasattr(stmt, "extent")
    return (replace(stmt, body=(SetMaxRegisters(168, True), *stmt.body)),) if loop else (stmt,)


MISTAKES = [
    (in_roles(no_decrease), "hands out 80896 registers; the block begins with 64512, 168 a thread"),
    (in_roles(no_meeting), "consumer of a_cache: changes its registers twice, and its warps do "),
    (in_roles(in_its_role), "producer of a_cache: takes registers back in the roles in which oth"),
    (in_roles(inside_a_loop), "consumer of a_cache: changes its registers in a loop or branch; "),
    (lambda s: () if isinstance(s, SyncThreads) else (s,),
     "producer of a_cache: changes its registers, and the block has not met since others did"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "text"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_a_hand_over_that_could_wait_forever_is_refused(change, text):
    kernel = kernel_of(both(MORE, L.tma, False, 256, MORE))
    with pytest.raises(VerifyError, match=text):
        verify_kernel(rewritten(kernel, change))


def checked(fd: FusionDefinition, kernel: Kernel, inputs, seed: int) -> None:
    """Run a kernel with agents that run as long as they can."""
    call = bind(fd, inputs, True)
    memory = {name: view.numpy() for name, view in call.views.items()}
    memory |= {b.name: allocate(b, call.env)[1] for b in program_of(fd, call, True).buffers}
    check_kernel(kernel, call.env, memory, seed=seed, order=greedy)


def test_producers_that_take_first_are_seen_to_wait_forever():
    """With few trips they are done before a consumer has come to take what they gave up."""
    fd = both(MORE, L.tma, False, 256, MORE)
    inputs = [np.ones(128, np.float32)] * 2
    kernel = kernel_of(fd, 128)

    def run(made: Kernel) -> None:
        for seed in range(8):
            checked(fd, made, inputs, seed)

    run(kernel)
    early = rewritten(kernel, in_roles(in_its_role))
    with pytest.raises(ProtocolError, match=r"deadlock(.|\n)*setmaxnreg\.inc to 232"):
        run(early)


def test_a_change_in_the_wrong_direction_is_reported():
    fd = both(MORE, L.tma, False, 256, MORE)
    x = np.ones(128, np.float32)

    def wrong(role: Role, at: int, stmt) -> tuple:
        dec = isinstance(stmt, SetMaxRegisters) and not stmt.increase
        return (replace(stmt, increase=True),) if dec else (stmt,)

    kernel = rewritten(kernel_of(fd, 128), in_roles(wrong))
    with pytest.raises(ProtocolError, match=r"setmaxnreg\.inc to 40 registers by threads that"):
        checked(fd, kernel, [x, x], 0)


@pytest.mark.parametrize("kind", ["groups-regs", "pingpong-regs", "ws-regs"])
def test_producers_that_fall_back_to_threads_give_up_registers_at_once(kind):
    """Names that their copies have in common stand before the decrease; they make nobody wait."""
    family = "groups_product" if kind != "ws-regs" else "product_turned"
    cell = Cell(
        family, (L.tma, L.tma), stages=2, prefetch=1, type=kind, dtype=DataType.Half, edge="odd"
    )
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels  # raises if it waits
    (roles,) = (s for s in walk_stmts(kernel.body) if isinstance(s, Roles))
    producer = roles.roles[-1].body
    assert isinstance(producer[0], SetMaxRegisters) == (kind == "ws-regs")
