"""Compiled fusions on a fake GPU: what is launched, when calls are known, where outputs go."""

from __future__ import annotations

import inspect
import threading
import time

import fake_gpu
import fake_torch
import numpy as np
import pytest
from fake_torch import Tensor, aligned

from fuser import DataType, FusionDefinition
from fuser.api import execute, known_calls
from fuser.core.errors import InputError

pytestmark = pytest.mark.unit


@pytest.fixture
def cuda(monkeypatch):
    with fake_gpu.installed(monkeypatch) as fake:
        yield fake


@pytest.fixture
def torch(monkeypatch):
    return fake_torch.installed(monkeypatch)


@pytest.fixture(params=["2.11.0+cu130", "2.12.0"], ids=["guards", "no guards"])
def any_torch(monkeypatch, request, torch):
    """Releases of which the generated function knows the guards, and others."""
    monkeypatch.setattr(torch, "__version__", request.param, raising=False)
    return torch


@pytest.fixture
def bindings(monkeypatch):
    """How often a call was bound the long way."""
    seen = []
    bind = execute.bind
    monkeypatch.setattr(execute, "bind", lambda *args: seen.append(args) or bind(*args))
    return seen


def add(contiguity=True, rank=2):
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1] * rank, contiguity, DataType.Float) for _ in range(2))
        fd.add_output(x + y)
    return fd


def tensor(rng, *shape, at=0):
    memory = aligned(shape, at=at)
    memory[...] = rng.normal(size=shape)
    return Tensor(memory)


def test_a_known_call_is_not_bound_again(cuda, any_torch, bindings, rng):
    compiled = add().compile()
    for _ in range(3):
        x, y = tensor(rng, 5, 8), tensor(rng, 5, 8)
        z = compiled(x, y)
        assert isinstance(z, Tensor)
        assert z.array.tolist() == (x.array + y.array).tolist()
    assert len(bindings) == 1
    assert len(cuda.launches) == 3


def test_execute_and_compiled_share_what_is_known(cuda, torch, bindings, rng):
    fd = add()
    x, y, o = tensor(rng, 5, 8), tensor(rng, 5, 8), tensor(rng, 5, 8)
    for _ in range(2):
        assert fd.execute([x, y], out=o) == [o]
        assert fd.execute([x, y], out=[o]) == [o]
        assert fd.compile()(x, y, out=o) is o
        assert fd.compile()(x, y, out=(o,)) is o
        assert o.array.tolist() == (x.array + y.array).tolist()
        o.array[...] = np.nan
    assert len(bindings) == 1


def test_every_part_of_a_signature_counts(cuda, any_torch, rng):
    """After one call, others of another kind are checked and computed as if they were the first."""
    compiled = add(contiguity=False).compile()
    x = tensor(rng, 8, 8)
    for _ in range(2):
        compiled(x, x)
        for other in (tensor(rng, 4, 8), Tensor(tensor(rng, 8, 8).array.T), tensor(rng, 8, 2)):
            z = compiled(other, other)
            assert z.array.tolist() == (2 * other.array).tolist()
    wrong = [
        ((x, Tensor(np.ones((8, 8)))), "input y: dtype is Double; the definition says Float"),
        ((x, Tensor(x.array.reshape(4, 16))), "they must agree"),
        ((x, Tensor(x.array, index=1)), "input y: on cuda:1; needed cuda:0"),
        ((x, Tensor(x.array[0])), "input y: has 1 dimensions"),
        ((x, Tensor(x.array, neg=True)), "input y: a lazily negated view"),
        ((x, x.array), "input y: on cpu:0; needed cuda:0"),
        ((x, 3.0), "input y: builtins.float is no array"),
    ]
    for out in (None, tensor(rng, 8, 8)):
        for inputs, text in wrong:
            compiled(x, x, out=out)
            launches = len(cuda.launches)
            with pytest.raises(InputError, match=text):
                compiled(*inputs)
            assert len(cuda.launches) == launches


def test_the_number_of_inputs_counts(cuda, torch, rng):
    fd = add()
    x, y, z = (tensor(rng, 8, 8) for _ in range(3))
    for out in (None, z, None):
        fd.execute([x, y], out=out)
        for inputs, text in (([x], "got 1 inputs; the d"), ([x, y, z], "got 3 inputs; the d")):
            with pytest.raises(InputError, match=text):
                fd.execute(inputs)
            with pytest.raises(TypeError, match=r"compiled\(\)"):
                fd.compile()(*inputs)
        for call in (fd.execute, fd.compile):
            with pytest.raises(InputError, match="got a int; needed a list of inputs"):
                call(5)
    assert len(cuda.launches) == 3


def test_parameters_are_named_after_the_inputs():
    with FusionDefinition() as fd:
        out, out_, x = (fd.define_tensor([-1], True, DataType.Float) for _ in range(3))
        fd.add_output(out + 2.0 * out_ + 4.0 * x)
    names = "(out__, out_, x, *, out=None, stream=None)"  # no input takes the name of another
    assert str(inspect.signature(fd.compile())) == names
    one = np.ones(3, np.float32)
    np.testing.assert_array_equal(fd.compile()(one, 2 * one, 4 * one), np.full(3, 21.0))


def test_the_state_of_torch_may_change(cuda, torch, rng, monkeypatch):
    """Guards fail where nothing that matters to a kernel differs: then they are made anew."""
    made, both = add(), add()
    x, o = tensor(rng, 5, 8), tensor(rng, 5, 8)
    for state in (False, True, False):
        monkeypatch.setattr(fake_torch.TensorGuards, "inference", state)
        for _ in range(2):  # the first is bound, or compared in Python
            made.compile()(x, x), both.compile()(x, x), both.compile()(x, x, out=o)
        Tensor.asked = 0
        for fd in (made, both):
            assert fd.compile()(x, x).array.tolist() == (2 * x.array).tolist()
            assert execute.compiled_of(fd).known.made.guard(x, x)
        assert both.compile()(x, x, out=o) is o
        assert execute.compiled_of(both).known.given.guard(x, x, o)
        assert Tensor.asked == 0


def test_promises_are_checked_at_every_new_layout(cuda, torch, rng):
    compiled = add().compile()
    x = tensor(rng, 8, 8)
    compiled(x, x)
    with pytest.raises(InputError, match="input y: stride of dimension 1 is 8 elements"):
        compiled(x, Tensor(x.array.T))


def test_a_misaligned_pointer_takes_another_class(cuda, any_torch, bindings, rng):
    """The fake GPU refuses addresses that a kernel was not compiled for."""
    compiled = add().compile()
    x = tensor(rng, 16, 16)
    for at in (0, 4, 8, 0, 4, 12):
        y = tensor(rng, 16, 16, at=at)
        assert compiled(x, y).array.tolist() == (x.array + y.array).tolist()
        assert compiled(y, x).array.tolist() == (x.array + y.array).tolist()
    assert len(bindings) == 7  # the aligned one, and each of 4, 8 and 12 in both places
    assert len(cuda.images) == 5  # 12 is aligned like 4


OUTPUTS = {
    "misaligned": lambda base: base[3 : 3 + 40].reshape(5, 8),
    "in a wider buffer": lambda base: base[:80].reshape(5, 16)[:, :8],
    "transposed": lambda base: base[:40].reshape(8, 5).T,
    "every other column": lambda base: base[:80].reshape(5, 16)[:, ::2],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_of_any_strides_is_filled_and_nothing_else(cuda, torch, rng, name):
    compiled = add().compile()
    x, y = tensor(rng, 5, 8), tensor(rng, 5, 8)
    for _ in range(3):
        compiled(x, y, out=tensor(rng, 5, 8))
        base = aligned((96,))
        before = base.copy()
        o = Tensor(OUTPUTS[name](base))
        assert compiled(x, y, out=o) is o
        OUTPUTS[name](before)[...] = x.array + y.array
        assert base.tobytes() == before.tobytes()


def test_an_output_may_share_memory_with_inputs(cuda, any_torch, rng):
    """As with ``torch.add(x, y, out=x)``; no kernel writes where it may read."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x * 2.0)
    compiled = fd.compile()
    base = tensor(rng, 1024).array
    x, far = Tensor(base[:512]), tensor(rng, 512)
    for _ in range(3):
        compiled(x, out=far)
    for o in (x, Tensor(base[4:516]), Tensor(base[256:768]), far):
        expected = (2 * x.array).tolist()
        assert compiled(x, out=o) is o
        assert o.array.tolist() == expected


def test_wrong_outputs(cuda, torch, rng):
    fd = add()
    compiled = fd.compile()
    x = tensor(rng, 5, 8)
    good = tensor(rng, 5, 8)
    repeated = np.lib.stride_tricks.as_strided(aligned((96,)), (5, 8), (16, 4))
    wrong = [
        (Tensor(repeated), r"out\[0\] \(t2\): repeats elements; a writable array"),
        (
            tensor(rng, 5, 9),
            r"out\[0\] \(t2\): is Float\[5, 9\] on cuda:0; Float\[5, 8\] on cuda:0 is",
        ),
        (Tensor(np.ones((5, 8))), r"is Double\[5, 8\] on cuda:0; Float"),
        (Tensor(good.array, index=1), r"on cuda:1; Float\[5, 8\] on cuda:0 is needed"),
        (good.array, r"is Float\[5, 8\] on cpu:0; Float\[5, 8\] on cuda:0 is needed"),
        (Tensor(np.broadcast_to(good.array[:1], (5, 8))), "repeats elements; a writable array"),
        ((good, good), r"out: got 2 arrays; the fusion returns 1: t2"),
        ((), "out: got 0 arrays"),
        ("y", r"out\[0\] \(t2\): builtins.str is no array"),
    ]
    for known in (False, True):
        for out, text in wrong:
            with pytest.raises(InputError, match=text):
                compiled(x, x, out=out)
            with pytest.raises(InputError, match=text):
                fd.execute([x, x], out=out)
        assert len(cuda.launches) == known
        compiled(x, x, out=good)


def test_host_arrays_are_outputs_too(rng):
    x, y = rng.normal(size=(2, 5, 8)).astype(np.float32)
    o = np.full((5, 8), np.nan, np.float32)
    assert add().compile()(x, y, out=o) is o
    assert o.tolist() == (x + y).tolist()
    turned = np.full((8, 5), np.nan, np.float32).T
    assert add().execute([x, y], out=turned, backend="interpret")[0] is turned
    assert turned.tolist() == (x + y).tolist()
    o.flags.writeable = False
    with pytest.raises(InputError, match=r"out\[0\] \(t2\): is read-only; a writable array"):
        add().compile()(x, y, out=o)


def test_an_input_that_is_written_repeats_no_element():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], False, DataType.Float)
        fd.add_output(x + 1.0, x)
    memory = np.zeros(12, np.float32)
    with pytest.raises(InputError, match=r"input x: an output is written .* repeats no element"):
        fd.execute([np.lib.stride_tricks.as_strided(memory, (3, 4), (8, 4))])
    assert not memory.any()
    fd.execute([np.lib.stride_tricks.as_strided(memory, (3, 2), (8, 12))])
    assert memory.tolist() == [1, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0]


def test_several_outputs(cuda, torch, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        y, z = x * 2.0, x + 1.0
        for output in (y, z, y):
            fd.add_output(output)
    compiled = fd.compile()
    t = tensor(rng, 64)
    for _ in range(2):
        a, b, c = compiled(t)
        assert a is c
        assert (a.array.tolist(), b.array.tolist()) == (
            (t.array * 2).tolist(),
            (t.array + 1).tolist(),
        )
        outs = [tensor(rng, 64) for _ in range(3)]
        assert compiled(t, out=outs) == tuple(outs)
        assert [o.array.tolist() for o in outs] == [
            a.array.tolist(),
            b.array.tolist(),
            a.array.tolist(),
        ]


def double_and_next(*, twice=False):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        y = x * 2.0
        fd.add_output(y)
        fd.add_output(y if twice else x + 1.0)
    return fd


SHARED = r"out\[0\] \(y\) and out\[1\] \(\w+\): share memory; an element of its own is needed"


def test_outputs_that_share_elements_are_refused(cuda, torch, rng):
    compiled = double_and_next().compile()
    t, base = tensor(rng, 64), aligned((256,))
    pairs = {
        "one after the other": (base[:64], base[64:128]), "in turns": (base[:128:2], base[1:128:2]),
        "backwards": (base[:64], base[127:63:-1]), "the same": (base[:64], base[:64]),
        "half": (base[:64], base[32:96]), "every third": (base[:128:2], base[3:195:3]),
    }  # fmt: skip
    for name in (*pairs, "one after the other"):
        a, b = pairs[name]
        base[...] = np.nan
        for arrays, given in (((a, b), t.array), ((Tensor(a), Tensor(b)), t)):
            if name in ("the same", "half", "every third"):
                with pytest.raises(InputError, match=SHARED):
                    compiled(given, out=arrays)
                assert np.isnan(base).all()
                continue
            compiled(given, out=arrays)
            assert a.tolist() == (2 * t.array).tolist()
            assert b.tolist() == (t.array + 1).tolist()
    u = tensor(rng, 64).array
    with pytest.raises(InputError, match=SHARED):
        compiled(u, out=(u, u))


def test_an_output_returned_twice_may_be_given_one_array(cuda, torch, rng):
    compiled = double_and_next(twice=True).compile()
    t, o = tensor(rng, 64), tensor(rng, 64)
    for x, out in ((t, o), (t.array, o.array)):
        assert compiled(x, out=(out, out)) == (out, out)
        assert o.array.tolist() == (2 * t.array).tolist()
        o.array[...] = np.nan
    with pytest.raises(InputError, match=SHARED):
        compiled(t.array, out=(o.array, o.array[::-1]))


def in_place():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x + 1.0, x)
        fd.add_output(x * 2.0)
    return fd


def test_aliased_inputs_in_known_calls(cuda, torch, bindings, rng):
    compiled = in_place().compile()
    for _ in range(3):
        t = tensor(rng, 64)
        before = t.array.copy()
        z = compiled(t)
        assert t.array.tolist() == (before + 1).tolist()
        assert z.array.tolist() == (2 * before).tolist()
    assert len(bindings) == 1
    with pytest.raises(InputError, match="shares memory with input x, which another output is wr"):
        compiled(t, out=t)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x + 1.0, x)
    before = t.array.copy()
    assert fd.compile()(t) == ()
    assert t.array.tolist() == (before + 1).tolist()


def test_scalars_vary_in_known_calls(cuda, torch, bindings, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        a, n = fd.define_scalar(), fd.define_scalar(dtype=DataType.Int)
        fd.add_output(fd.ops.cast(x * a, DataType.Float) + fd.ops.cast(n, DataType.Float))
    compiled = fd.compile()
    t = tensor(rng, 64)

    def expected(a, n):
        return (t.array * np.float32(a) + np.float32(n)).tolist()

    for a, n in ((2.0, 3), (2.5, 3), (-1.0, 3), (2.5, 4), (2.5, 3)):
        assert compiled(t, a, n).array.tolist() == expected(a, n)
    assert len(bindings) == 2  # integers are part of the signature
    cell = np.array(5)
    for value in (5, 6):
        cell[...] = value  # an array that holds a scalar is read at every call
        assert compiled(t, 1.0, cell).array.tolist() == expected(1.0, value)
    with pytest.raises(InputError, match=r"input \w+: 2.5 is no integer"):
        compiled(t, 1.0, 2.5)


def test_zeros_of_either_sign_are_two_scalars(cuda, torch, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(fd.ops.cast(x * fd.define_scalar(), DataType.Float))
    t, o = tensor(rng, 64), tensor(rng, 64)
    for a in (0.0, 0.0, -0.0, 0.0):
        fd.execute([t, a], out=o)
        assert o.array.tobytes() == (t.array * np.float32(a)).tobytes()


def test_streams(cuda, any_torch, bindings, rng):
    """torch's current stream of the tensors' GPU, or the one that is given."""
    compiled = add().compile()
    x, o = tensor(rng, 5, 8), tensor(rng, 5, 8)
    for handle in (0, 7, 9, 7):
        any_torch.streams[0] = handle
        compiled(x, x)
        compiled(x, x, out=o)
        compiled(x, x, stream=33)
        compiled(x, x, out=o, stream=44)
        assert [launch[3] for launch in cuda.launches[-4:]] == [handle, handle, 33, 44]
    assert len(bindings) == 2


def test_another_current_context_costs_nothing_but_is_found(cuda, torch, rng, monkeypatch):
    launch, refused = cuda.cuLaunchKernelEx, []

    def picky(*args):
        if cuda.context != 1000:
            refused.append(cuda.context)
            return (400,)
        return launch(*args)

    monkeypatch.setattr(cuda, "cuLaunchKernelEx", picky)
    compiled = add().compile()
    x = tensor(rng, 5, 8)
    compiled(x, x)
    for context in (0, 1001, 1000):
        cuda.context = context
        assert compiled(x, x).array.tolist() == (2 * x.array).tolist()
        assert cuda.context == context
    assert refused == [0, 1001]


def test_threads_call_one_fusion(cuda, torch, rng, monkeypatch):
    """Each launch has argument slots of its own: the driver reads them after a pause."""
    launch = cuda.cuLaunchKernelEx
    monkeypatch.setattr(cuda, "cuLaunchKernelEx", lambda *args: time.sleep(0.001) or launch(*args))
    compiled = add().compile()
    inputs = [tensor(rng, 5, 8) for _ in range(16)]
    failed = []
    start = threading.Barrier(len(inputs))

    def work(x):
        start.wait()
        for _ in range(4):
            if compiled(x, x).array.tolist() != (2 * x.array).tolist():
                failed.append(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(cuda.images) == 1


def test_a_thousand_row_counts_compile_three_kernels_at_most(cuda, torch, rng, monkeypatch):
    compiled = add().compile()
    monkeypatch.setattr(fake_gpu, "run_kernel", lambda *args: None)
    for rows in range(1, 1001):
        x = Tensor(np.broadcast_to(np.float32(0), (rows, 64)).copy())
        compiled(x, x)
    assert len(cuda.images) <= 3


def test_what_is_known_is_bounded(cuda, torch, rng, monkeypatch):
    fd = add(rank=1)
    compiled = fd.compile()
    monkeypatch.setattr(fake_gpu, "run_kernel", lambda *args: None)
    monkeypatch.setattr(known_calls, "SIGNATURES_KEPT", 8)
    base = aligned((64,))
    sizes = [len(execute.compiled_of(fd).known._known) for n in range(1, 40)
             if compiled(Tensor(base[:n]), Tensor(base[:n]))]  # fmt: skip
    assert max(sizes) == 8


def test_compile_for_example_inputs_launches_nothing(cuda, torch, rng):
    x = tensor(rng, 5, 8)
    compiled = add().compile([x, x])
    assert (len(cuda.images), len(cuda.launches)) == (1, 0)
    compiled(x, x)
    assert (len(cuda.images), len(cuda.launches)) == (1, 1)


def test_the_example_of_outputs_like_an_input_and_not(cuda, torch, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], False, DataType.Float)
        fd.add_output(fd.ops.sum(x, [1]))
        fd.add_output(x + 1.0)
    compiled = fd.compile()
    x = tensor(rng, 8, 32)
    for view in (x, Tensor(x.array.T), x, Tensor(x.array.T)):
        total, more = compiled(view)
        assert more.array.flags.c_contiguous
        assert more.array.tolist() == (view.array + 1).tolist()
        added = view.array.astype(float)
        bound = 32 * 2.0**-24 * abs(added).sum(1)  # of 32 additions in any order
        assert (abs(total.array - added.sum(1)) <= bound).all()
