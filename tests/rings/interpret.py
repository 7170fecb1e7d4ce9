"""Rings on the interpreter: functional result, and checked mode over several interleavings."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from fuser import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from rings.cells import Cell, definition, require_equal

SAMPLE = 4
"""Blocks of a large cell that checked mode runs."""


def check(cell: Cell, seeds: int = 2) -> None:
    """Raise unless every run is exactly the reference and checked mode finds nothing.

    Without elements of an output nothing is launched: kernels of maps may count on one trip. Sums
    and products over no trips have elements.
    """
    inputs = cell.inputs()
    expected = cell.reference(inputs)
    blocks = None if cell.size is None else SAMPLE
    exact(cell, definition(cell), inputs, expected, seeds if expected.size else 0, blocks)


def exact(
    what: object,
    fd: FusionDefinition,
    inputs: list[np.ndarray],
    expected: np.ndarray,
    seeds: int = 2,
    blocks: int | None = None,
) -> None:
    """Raise unless a schedule's functional result and `seeds` checked runs are the reference.

    Parameters
    ----------
    what
        What errors call it, and what the first seed follows from.
    blocks
        Blocks that checked mode runs of a large grid, whose result is not looked at; None: all.
    """
    (got,) = fd.manual_execute(inputs, backend="interpret")
    require_equal(what, got, expected, "functional")
    if not seeds:
        return
    call = bind(fd, inputs, True)
    program = program_of(fd, call, True)
    (kernel,), (buffer,) = program.kernels, program.buffers
    arrays = {name: view.numpy() for name, view in call.views.items()}
    first = zlib.crc32(str(what).encode()) % 10_000
    for seed in range(first, first + seeds):
        flat, view = allocate(buffer, call.env)
        memory = arrays | {buffer.name: view if view.ndim else flat}
        done = check_kernel(kernel, call.env, memory, blocks=blocks or 1 << 20, seed=seed)
        if blocks is not None:
            continue  # the others have left their part of the output poisoned
        got = np.asarray(done[buffer.name]).reshape(expected.shape)
        require_equal(what, got, expected, f"checked, seed {seed}")


def run_by_hand(
    fd: FusionDefinition, inputs: Sequence[np.ndarray], seed: int = 0
) -> list[np.ndarray]:
    """Run a definition's own schedule; raise unless checked mode agrees and finds nothing."""
    call = bind(fd, inputs, True)
    program = program_of(fd, call, True)
    memory = {name: view.numpy() for name, view in call.views.items()}
    memory |= {b.name: allocate(b, call.env)[0] for b in program.buffers}
    for kernel in program.kernels:
        memory |= check_kernel(kernel, call.env, memory, blocks=1 << 20, seed=seed)
    outputs = fd.manual_execute(inputs, backend="interpret")
    returned = [o.buffer for o in program.outputs if o.returned]
    for name, out in zip(returned, outputs, strict=True):
        np.testing.assert_array_equal(memory[name].reshape(-1), out.reshape(-1))
    return outputs
