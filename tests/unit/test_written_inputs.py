"""Two inputs that outputs are written into: elements in common are refused, at every call."""

from __future__ import annotations

import fake_gpu
import fake_torch
import numpy as np
import pytest
from fake_torch import Tensor, aligned

from fuser import DataType, FusionDefinition
from fuser.api import execute
from fuser.core.errors import InputError

pytestmark = pytest.mark.unit

SHARED = "inputs x and z: share memory, and an output is written into each; an element of its own"
PLACES = {
    "the same": ((0, 64, 1), (0, 64, 1), False),
    "one further": ((0, 64, 1), (1, 64, 1), False),
    "half": ((32, 64, 1), (0, 64, 1), False),
    "every third": ((0, 64, 2), (3, 64, 3), False),
    "one after the other": ((0, 64, 1), (64, 64, 1), True),
    "in turns": ((0, 64, 2), (1, 64, 2), True),
    "nothing": ((8, 0, 1), (8, 0, 1), True),
}


def sum_and_product(second=True):
    with FusionDefinition() as fd:
        x, z = (fd.define_tensor([-1], False, DataType.Float) for _ in range(2))
        fd.add_output(x + z, x)
        fd.add_output(x * z, z if second else None)
    return fd


def place(base, start, count, step):
    return base[start : start + count * step : step]


@pytest.mark.parametrize("name", PLACES)
def test_written_inputs_in_one_buffer(name, rng):
    first, second, apart = PLACES[name]
    base = rng.integers(-9, 9, 256).astype(np.float32)
    x, z = place(base, *first), place(base, *second)
    fd, before = sum_and_product(), base.copy()
    if not apart:
        for call in (lambda: fd.execute([x, z]), lambda: fd.compile()(x, z)):
            with pytest.raises(InputError, match=SHARED):
                call()
            assert base.tolist() == before.tolist()
        return
    old_x, old_z = place(before, *first).copy(), place(before, *second).copy()
    fd.execute([x, z])
    assert x.tolist() == (old_x + old_z).tolist()
    assert z.tolist() == (old_x * old_z).tolist()


def test_an_input_that_is_only_read_may_overlap(rng):
    base = rng.integers(-9, 9, 65).astype(np.float32)
    before = base.copy()
    (product,) = sum_and_product(second=False).execute([base[:-1], base[1:]])
    assert product.tolist() == (before[:-1] * before[1:]).tolist()
    assert base[:-1].tolist() == (before[:-1] + before[1:]).tolist()


def test_known_calls_are_checked_too(monkeypatch):
    """A signature says nothing of where tensors lie; where they do is remembered."""
    fake_torch.installed(monkeypatch)
    bound, bind = [], execute.bind
    monkeypatch.setattr(execute, "bind", lambda *args: bound.append(args) or bind(*args))
    with fake_gpu.installed(monkeypatch) as cuda:
        for form in (lambda fd: fd.compile(), lambda fd: lambda *args: fd.execute([*args])):
            call = form(sum_and_product())
            for name, (first, second, apart) in (*PLACES.items(), *PLACES.items()):
                base = aligned((256,))
                base[...] = np.arange(256)
                x, z = Tensor(place(base, *first)), Tensor(place(base, *second))
                before, launches = base.copy(), len(cuda.launches)
                if apart:
                    call(x, z)
                    expected = place(before, *first) * place(before, *second)
                    assert z.array.tolist() == expected.tolist()
                    bound.clear()
                    call(x, z)
                    assert name == "nothing" or not bound, name
                    continue
                with pytest.raises(InputError, match=SHARED):
                    call(x, z)
                assert base.tolist() == before.tolist()
                assert len(cuda.launches) == launches
