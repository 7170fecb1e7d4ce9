"""Consumer groups in the exploration: proofs, and the mistakes that only groups can make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import LoadStoreOpType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.cli.pipelines import ring_groups
from fuser.core.expr import Const, Var
from fuser.kir.core import Kernel, Stmt
from fuser.kir.stmts import MbarrierWait, Role, Roles
from fuser.passes.rewrite import substitute_body
from fuser.protocol.verdict import check
from fuser.schedule.circular import WarpSpecialized

pytestmark = pytest.mark.protocol


def kernel(stages: int, turns: bool, trips: int, groups: int = 2) -> Kernel:
    form = WarpSpecialized(ParallelType.block_y, None, 3, turns)
    fd = ring_groups(LoadStoreOpType.tma, stages, None, form, trips, groups)
    x = np.zeros((512, 16 * trips), np.float32)
    (made,) = program_of(fd, bind(fd, [x], True), True).kernels
    return made


@pytest.mark.parametrize(
    ("stages", "turns", "trips", "groups"),
    [(2, False, 2, 2), (4, False, 3, 2), (3, False, 2, 3), (1, True, 2, 2), (3, True, 3, 2),
     (3, True, 2, 3)],
)  # fmt: skip
def test_groups_are_proved_for_every_number_of_rounds(stages, turns, trips, groups):
    verdict = check(kernel(stages, turns, trips, groups))
    assert verdict.reach == "proved", verdict


def test_trips_of_unknown_number_in_a_round_are_explored():
    form = WarpSpecialized(ParallelType.block_y, None, 3, True)
    fd = ring_groups(LoadStoreOpType.tma, 2, None, form, -1)
    x = np.zeros((512, 64), np.float32)
    (made,) = program_of(fd, bind(fd, [x], True), True).kernels
    verdict = check(made)
    assert verdict.reach == "explored", verdict
    assert "unknown number of trips in each round" in verdict.note


def _changed(stmts: tuple[Stmt, ...], change) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Roles):
            roles = [replace(r, body=_changed(r.body, change)) for r in stmt.roles]
            result.append(replace(stmt, roles=tuple(roles)))
            continue
        inner = getattr(stmt, "body", None)
        if inner is not None:
            stmt = replace(stmt, body=_changed(inner, change))
        result += change(stmt)
    return tuple(result)


def test_shared_stages_without_turns_are_wrong():
    """A group then awaits phases whose predecessors it has not seen; parity cannot tell them."""
    made = kernel(3, True, 2)
    bad = replace(made, body=_changed(
        made.body,
        lambda s: [] if isinstance(s, MbarrierWait) and s.barrier.endswith("turn") else [s],
    ))  # fmt: skip
    verdict = check(bad)
    assert verdict.reach == "wrong"
    assert verdict.fault is not None
    assert verdict.fault.kind in ("RAW", "WAR"), verdict.fault


def test_a_group_that_reads_the_other_groups_stages_is_caught():
    made = kernel(4, False, 1)

    def consumers(stmt: Stmt) -> Stmt:
        assert isinstance(stmt, Roles)
        roles = tuple(_with_group(role, 1) if role.groups > 1 else role for role in stmt.roles)
        return replace(stmt, roles=roles)

    body = tuple(consumers(s) if isinstance(s, Roles) else s for s in made.body)
    verdict = check(replace(made, body=body))
    assert verdict.reach == "wrong", verdict


def _with_group(role: Role, shift: int) -> Role:
    """Return a role in which group g does what is meant for group (g + shift) % 2."""
    return replace(role, body=substitute_body(role.body, {"ty": (Var("ty") + Const(shift)) % 2}))
