"""Compiled fusions on a GPU: graphs, streams, threads, alignment, given outputs, leaks."""

from __future__ import annotations

import gc
import threading

import pytest

from benchmarks.start import FIRST_RESULT, run
from fuser import DataType, FusionDefinition
from fuser.api.execute import compiled_of
from fuser.core.errors import InputError
from fuser.runtime.torch_call import GUARDED_RELEASES, guard_of, never

pytestmark = pytest.mark.gpu

POISON = float("nan")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def add(rank=2, contiguity=True):
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1] * rank, contiguity, DataType.Float) for _ in range(2))
        fd.add_output(x + y)
    return fd


def total():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(fd.ops.sum(x))
    return fd


def in_place():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(x + 1.0, x)
        fd.add_output(x * 2.0)
    return fd


def poisoned(torch, *shape):
    return torch.full(shape, POISON, device="cuda")


# ---- guards ------------------------------------------------------------------------------------


def test_guards_refuse_whatever_a_kernel_depends_on(torch):
    """What `TensorGuards` compares is promised by no documentation: this is the promise."""
    assert torch.__version__.startswith(GUARDED_RELEASES), "add it if this test passes with it"
    x, o = torch.randn(64, 128, device="cuda"), torch.randn(64, 128, device="cuda")
    guard = guard_of([x, o])
    assert guard is not never
    assert guard(x, o)
    assert guard(torch.randn(64, 128, device="cuda"), o)
    negated = torch.complex(x, x).conj().imag
    assert negated.is_neg()
    turned = torch.randn(128, 64, device="cuda").t()
    others = {
        "extents": x[:32], "one more dimension": x[None], "strides": turned,
        "dtype": x.double(), "other dtype of as many bytes": x.view(torch.int32), "device": x.cpu(),
        "meta": x.to("meta"), "negated": torch._neg_view(x), "negated part": negated,
        "conjugate": torch.complex(x, x).conj(), "sparse": x.to_sparse(), "no tensor": 3.0,
        "numpy": x.cpu().numpy(), "list": [x], "none": None,
    }  # fmt: skip
    for what, other in others.items():
        assert not guard(other, o), what
        assert not guard(x, other), what
    changed = torch.randn(64, 128, device="cuda")
    assert guard(changed, o)
    changed.t_()
    assert not guard(changed, o)
    scalar = torch.zeros((), device="cuda")
    assert guard_of([scalar])(scalar)
    if torch.cuda.device_count() > 1:
        assert not guard(x.to("cuda:1"), o)


@pytest.mark.parametrize("kind", ["no_grad", "inference_mode", "enable_grad"])
def test_the_state_of_torch_does_not_matter(torch, kind):
    compiled = add().compile()
    x, o = torch.randn(64, 128, device="cuda"), poisoned(torch, 64, 128)
    weight = torch.nn.Parameter(torch.randn(64, 128, device="cuda"))
    for _ in range(4):
        for y in (x, weight):
            with getattr(torch, kind)():
                torch.testing.assert_close(compiled(x, y), (x + y).detach(), rtol=0, atol=0)
                compiled(x, y, out=o.fill_(POISON))
            torch.testing.assert_close(o, (x + y).detach(), rtol=0, atol=0)


# ---- alignment, classes, outputs ----------------------------------------------------------------


def test_alignment_is_checked_at_every_call(torch):
    compiled = add(rank=1).compile()
    base, other = torch.randn(4112, device="cuda"), torch.randn(4096, device="cuda")
    for shift in (0, 1, 2, 0, 3, 4, 1):
        x = base[shift : shift + 4096]
        for _ in range(3):
            o = poisoned(torch, 4096)
            assert compiled(x, other, out=o) is o
            torch.testing.assert_close(o, x + other, rtol=0, atol=0)
            torch.testing.assert_close(compiled(other, x), x + other, rtol=0, atol=0)
            wide = poisoned(torch, 4112)
            compiled(other, x, out=wide[shift : shift + 4096])
            torch.testing.assert_close(wide[shift : shift + 4096], x + other, rtol=0, atol=0)
            rest = torch.cat((wide[:shift], wide[shift + 4096 :]))
            assert rest.isnan().all().item()


def test_a_thousand_row_counts_compile_three_kernels_at_most(torch):
    fd = add()
    compiled = fd.compile()
    base = torch.randn(1000, 64, device="cuda")
    for rows in range(1, 1001):
        x = base[:rows]
        assert torch.equal(compiled(x, x), x + x), rows
    assert len(compiled_of(fd).cuda) <= 3


OUTPUTS = {
    "columns of a wider buffer": lambda base: base[:, :466],
    "rows with gaps": lambda base: base[::2, :],
    "transposed": lambda base: base.t(),
    "every other column": lambda base: base[:, ::2],
    "inner window": lambda base: base[1:-1, 3:-5],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_of_any_strides_are_filled_and_nothing_else(torch, name):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], False, DataType.Int8)
        fd.add_output(fd.ops.neg(x))
    compiled = fd.compile()
    base = torch.full((128, 512), 77, dtype=torch.int8, device="cuda")
    o = OUTPUTS[name](base)
    t = torch.randint(-100, 100, o.shape, dtype=torch.int8, device="cuda")
    for _ in range(3):
        expected = base.fill_(77).clone()
        OUTPUTS[name](expected).copy_(-t)
        assert compiled(t, out=o) is o
        assert torch.equal(base, expected)


def test_an_output_may_be_an_input(torch):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(x + fd.ops.permute(x, [1, 0]))
    compiled = fd.compile()
    apart = poisoned(torch, 512, 512)
    for _ in range(3):
        x = torch.randn(512, 512, device="cuda")
        compiled(x, out=apart)
        expected = x + x.t()
        torch.testing.assert_close(apart, expected, rtol=0, atol=0)
        assert compiled(x, out=x) is x
        torch.testing.assert_close(x, expected, rtol=0, atol=0)
    base = torch.randn(513, 512, device="cuda")
    expected = base[:512] + base[:512].t()
    compiled(base[:512], out=base[1:])
    torch.testing.assert_close(base[1:], expected, rtol=0, atol=0)


def test_aliased_inputs_and_given_outputs(torch):
    compiled = in_place().compile()
    for _ in range(3):
        x, o = torch.randn(65, 66, device="cuda"), poisoned(torch, 65, 66)
        before = x.clone()
        assert compiled(x, out=o) is o
        torch.testing.assert_close(x, before + 1, rtol=0, atol=0)
        torch.testing.assert_close(o, before * 2, rtol=0, atol=0)
        with pytest.raises(InputError, match="shares memory with input x"):
            compiled(x, out=x)


def test_outputs_that_take_turns_in_memory_and_those_that_share_elements(torch):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(x * 2.0)
        fd.add_output(fd.ops.sum(x, [1]))
    compiled = fd.compile()
    x = torch.arange(20.0, device="cuda").reshape(5, 4)
    memory = poisoned(torch, 5, 5)
    for _ in range(3):
        memory.fill_(float("nan"))
        compiled(x, out=(memory[:, :4], memory[:, 4]))
        torch.testing.assert_close(memory[:, :4], 2 * x, rtol=0, atol=0)
        torch.testing.assert_close(memory[:, 4], x.sum(1), rtol=0, atol=0)
    repeated = torch.zeros(32, device="cuda").as_strided((5, 4), (2, 1))
    for wide, row, text in (
        (memory[:, :4], memory[:, 3], "share memory"),
        (repeated, memory[:, 0], "repeats elements"),
    ):
        with pytest.raises(InputError, match=text):
            compiled(x, out=(wide, row))


# ---- streams and threads ------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", [add, in_place])
def test_the_current_stream_is_used_and_so_is_a_given_one(torch, fusion):
    fd = fusion()
    compiled = fd.compile()
    count = len(fd.arguments)
    big = torch.randn(2048, 2048, device="cuda")
    compiled(*[big.clone() for _ in range(count)])
    side = torch.cuda.Stream()
    for given in (None, side):
        for _ in range(3):
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                x = big * 3  # ready only on the side stream
                inputs = [x] * count
                if given is None:
                    y = compiled(*inputs)
            if given is not None:
                y = compiled(*inputs, stream=given)
            side.synchronize()
            torch.testing.assert_close(y, big * 6, rtol=0, atol=0)


def test_sixteen_threads_call_one_fusion(torch):
    """From nothing: they compile together, then launch on streams of their own."""
    fd = add()
    inputs = [torch.full((257, 64), float(n), device="cuda") for n in range(16)]
    torch.cuda.synchronize()
    start, wrong = threading.Barrier(16), []

    def work(n):
        compiled = fd.compile()
        start.wait()
        with torch.cuda.stream(torch.cuda.Stream()):
            outs = [torch.full_like(inputs[n], POISON) for _ in range(200)]
            for o in outs:
                compiled(inputs[n], inputs[n - 1], out=o)
            fresh = [compiled(inputs[n], inputs[n - 1]) for _ in range(200)]
            torch.cuda.current_stream().synchronize()
        expected = float(n + (n - 1) % 16)
        wrong.extend(n for o in (*outs, *fresh) if not (o == expected).all().item())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(compiled_of(fd).cuda) == 1


def test_a_thread_without_a_context(torch):
    """A new thread has no current context; the launch finds the one of its kernel."""
    compiled = add().compile()
    x = torch.randn(64, 128, device="cuda")
    o = poisoned(torch, 64, 128)
    for _ in range(3):
        compiled(x, x, out=o)
    o.fill_(POISON)
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: compiled(x, x, out=o))
    thread.start()
    thread.join()
    torch.testing.assert_close(o, x + x, rtol=0, atol=0)


# ---- graphs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", [add, total, in_place])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_a_captured_call_replays_with_new_inputs(torch, fusion, warm, given):
    """Captured as the very first call, or as a known one."""
    fd = fusion()
    compiled = fd.compile()
    count, rank = len(fd.arguments), 1 if fusion is total else 2
    shape = (100_000,) if rank == 1 else (250, 400)
    inputs = [torch.ones(shape, device="cuda") for _ in range(count)]
    out = poisoned(torch, *(() if fusion is total else shape)) if given else None
    for _ in range(3 * warm):
        compiled(*inputs, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(*inputs, out=out)
    assert out is None or result is out
    for value in (2.0, 3.0):
        for x in inputs:
            x.fill_(value)
        result.fill_(POISON)
        graph.replay()
        torch.cuda.synchronize()
        expected = 100_000 * value if fusion is total else 2 * value
        assert (result == expected).all().item()
        if fusion is in_place:
            assert (inputs[0] == value + 1).all().item()
    for x in inputs:
        x.fill_(5.0)
    again = compiled(*inputs)  # outside of the graph, after it
    assert (again == (500_000 if fusion is total else 10.0)).all().item()


# ---- processes and leaks ------------------------------------------------------------------------


def test_a_warm_process_does_not_compile(torch, tmp_path):
    """How long it takes is told by ``python -m benchmarks.start``."""
    cache = {"FUSER_CACHE_DIR": str(tmp_path)}
    run(FIRST_RESULT.format(more=""), cache)
    no_compiler = (
        "import fuser.runtime.cache as c, fuser.fusion.graph as g\n"
        "c.CUBINS._compiler = g._networkx = None"
    )
    run(FIRST_RESULT.format(more=no_compiler), cache)  # would raise if it compiled


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("fusion", [add, total])
def test_calls_leak_nothing(torch, fusion, given):
    psutil = pytest.importorskip("psutil")
    fd = fusion()
    compiled = fd.compile()
    x = torch.ones((1000,) if fusion is total else (10, 100), device="cuda")
    inputs = [x] * len(fd.arguments)
    out = compiled(*inputs) if given else None
    process = psutil.Process()

    def calls(count):
        for i in range(count):
            compiled(*inputs, out=out)
            if i % 500 == 0:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        gc.collect()
        return process.memory_info().rss, torch.cuda.memory_allocated()

    calls(3000)
    before, after = calls(1000), calls(20_000)
    assert after[1] == before[1]
    assert after[0] - before[0] < 512 * 1024
