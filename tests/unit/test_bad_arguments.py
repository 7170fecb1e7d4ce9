"""Whatever a directive is given, it works or says what it needs: a ScheduleError, no other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import (
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    Pipelined,
    WarpSpecialized,
)
from fuser.core.errors import ScheduleError

pytestmark = pytest.mark.unit
P = ParallelType


class Tensors:
    """A definition with tensors of every role, of which directives can be given anything."""

    def __init__(self) -> None:
        with FusionDefinition() as fd:
            self.x = fd.define_tensor(shape=[-1, 8], contiguity=True)
            self.y = fd.ops.mul(self.x, 2.0)
            self.s = fd.ops.sum(self.y, [0, 1])
            self.n = fd.ops.size(self.x, 0)
            fd.add_output(self.y)
            fd.add_output(self.s)
        self.fd, self.sched = fd, fd.sched
        self.tile = self.x.cache_after(LoadStoreOpType.tma)
        self.tile.set_memory_type(MemoryType.shared)

    def bad(self) -> tuple[Any, ...]:
        """Return what most arguments are not."""
        return (
            self.y, self.n, self.fd, self.y.axis(0), None, True, -100, 100, 1.5, "a", b"a", (),
            [[0]], [None], {}, {0: None}, {self.y: 1}, np.array(1), np.array([0, 0]),
            np.array([None, "a"], object), np.float32(1), object(), int, iter([0]), [self.n],
            [self.y, 0], P.tma, MemoryType.tensor, LoadStoreOpType.load_matrix, Pipelined(),
            WarpSpecialized(P.block_x), float("nan"), 2**70,
        )  # fmt: skip


BAD = range(len(Tensors().bad()))

CALLS: dict[str, Callable[[Tensors], tuple[Callable[..., Any], dict[str, Any]]]] = {
    "axis": lambda t: (t.y.axis, {"position": 0}),
    "split": lambda t: (t.y.split, {"axis": 0, "factor": 4, "inner_split": True}),
    "merge": lambda t: (t.y.merge, {"outer": 0, "inner": 1}),
    "reorder": lambda t: (t.y.reorder, {"old_to_new": {0: 1}}),
    "swizzle": lambda t: (t.y.swizzle, {"x": 0, "y": 1}),
    "set_memory_type": lambda t: (t.tile.set_memory_type, {"memory": MemoryType.local}),
    "set_allocation_domain": lambda t: (t.tile.set_allocation_domain, {"order": [1, 0]}),
    "set_swizzle": lambda t: (t.tile.set_swizzle, {"swizzle": "32B"}),
    "cache_after": lambda t: (t.y.cache_after, {"op_type": LoadStoreOpType.set}),
    "cache_before": lambda t: (t.y.cache_before, {"op_type": LoadStoreOpType.set}),
    "rfactor": lambda t: (t.s.rfactor, {"axes": [1]}),
    "inline_at": lambda t: (t.tile.inline_at, {"consumer": t.y, "pos": 1}),
    "parallelize": lambda t: (t.y.axis(0).parallelize, {"kind": P.block_x}),
    "unroll": lambda t: (t.y.axis(0).unroll, {"factor": 2}),
    "bounded_transform_backward": lambda t: (
        t.sched.bounded_transform_backward,
        {"from_tv": t.y, "pos": 1, "to": [t.tile], "propagate_parallel_type": True},
    ),
    "transform_like": lambda t: (
        t.sched.transform_like, {"ref": t.y, "selected_tensors": [t.tile]},
    ),
    "parallelize_like": lambda t: (
        t.sched.parallelize_like,
        {
            "ref": t.y, "pos": 1, "selected_tensors": [t.tile],
            "selected_parallel_types": [P.block_x],
        },
    ),
    "inline_most": lambda t: (t.sched.inline_most, {"selected_tensors": [t.tile]}),
    "sched.inline_at": lambda t: (
        t.sched.inline_at,
        {"ref": t.y, "pos": 1, "best_effort": True, "selected_tensors": [t.tile]},
    ),
    "circular_buffer": lambda t: (
        t.tile.circular_buffer,
        {"number_of_stages": 3, "prefetch_distance": 1, "type": WarpSpecialized(P.block_x)},
    ),
    "warp_specialize": lambda t: (
        t.sched.warp_specialize,
        {
            "tv": t.tile, "number_of_stages": 3, "prefetch_distance": 1, "parallel_type": P.block_x,
            "num_registers": (40, 232), "stage_slice_position": 1, "ping_pong": True,
        },
    ),
    "WarpSpecialized": lambda _: (
        WarpSpecialized,
        {"on": P.block_x, "num_registers": (40, 232), "stage_slice_position": 1, "ping_pong": True},
    ),
    "Pipelined": lambda _: (Pipelined, {"sync": "parity", "war": "mbarrier"}),
}  # fmt: skip


@pytest.mark.parametrize("which", BAD)
@pytest.mark.parametrize("directive", CALLS)
def test_no_other_error(directive, which):
    for argument in CALLS[directive](Tensors())[1]:
        t = Tensors()
        if "circular" in directive or "warp_specialize" in directive:
            t.tile.inline_at(t.y, 1)
        call, arguments = CALLS[directive](t)
        arguments[argument] = t.bad()[which]
        try:
            call(**arguments)
        except ScheduleError as error:
            if error.location is None or Path(error.location.file).name != Path(__file__).name:
                pytest.fail(f"{argument}: not at the user's line: {error}")
