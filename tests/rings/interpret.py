"""A cell on the interpreter: functional result, and checked mode over several interleavings."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from fuser.api.execute import bind, program_of
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate, run_program
from rings.cells import Cell, definition, require_equal

SAMPLE = 4
"""Blocks of a large cell that checked mode runs."""


def check(cell: Cell, seeds: int = 2) -> None:
    """Raise unless every run is exactly the reference and checked mode finds nothing.

    A tensor without elements launches nothing, so the kernel of many trips is run on it here.
    """
    fd, inputs = definition(cell), cell.inputs()
    expected = cell.reference(inputs)
    call = bind(fd, inputs, True)
    compiled = call if cell.count() else bind(fd, replace(cell, trips="3S+1").inputs(), True)
    program = program_of(fd, compiled, True)
    arrays = {name: view.numpy() for name, view in call.views.items()}
    (output,) = program.outputs
    got = run_program(program, call.env, arrays, call.scalars)[output.buffer]
    require_equal(cell, got, expected, "functional")
    (kernel,), (buffer,) = program.kernels, program.buffers
    blocks = 1 << 20 if cell.size is None else SAMPLE
    first = zlib.crc32(str(cell).encode()) % 10_000
    for seed in range(first, first + seeds):
        flat, view = allocate(buffer, call.env)
        memory = arrays | {buffer.name: view if view.ndim else flat}
        done = check_kernel(kernel, call.env, memory, blocks=blocks, seed=seed)
        if blocks == SAMPLE:
            continue  # the others have left their part of the output poisoned
        got = np.asarray(done[buffer.name]).reshape(expected.shape)
        require_equal(cell, got, expected, f"checked, seed {seed}")
