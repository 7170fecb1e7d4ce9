"""Names kept from local variables, and ``repr(fd)`` as Python that builds the same fusion."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import (
    DataType,
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    Pipelined,
)

pytestmark = pytest.mark.unit

D = DataType


def test_values_take_the_names_of_local_variables():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4], contiguity=True)
        bias = fd.define_tensor(shape=[4], contiguity=True)
        y = x + fd.ops.broadcast_in_dim(bias, x.shape, [1])
        same = one = fd.ops.exp(y)  # two names: ambiguous
        minus = fd.ops.neg(y)
        half = fd.ops.abs(y)  # a CUDA type
        _hidden = fd.ops.relu(y)
        fd.add_output(fd.ops.cat([same, one, minus, half, _hidden]), None)
    names = {v.op: v.name for v in fd.fusion.values}
    assert (x.name, bias.name, y.name) == ("x", "bias", "y")
    assert x.value.shape[0].name == "x_size0"
    assert names["neg"] == "minus"
    for op in ("exp", "abs", "relu", "cat"):
        assert names[op].startswith("t")
    fd.fusion.verify()


def test_swapped_names_do_not_collide():
    with FusionDefinition() as fd:
        t1 = fd.define_tensor(shape=[-1])
        t0 = fd.define_tensor(shape=[-1])
        t9 = t1 - t0
        fd.add_output(t9)
    assert [v.name for v in fd.fusion.values] == ["t1", "t0", "t9"]
    assert fd.fusion.operand_names("t9") == ("t1", "t0")


def test_a_name_taken_by_an_unnamed_value_is_not_used():
    with FusionDefinition() as fd:
        values = [fd.define_tensor(shape=[-1]), fd.define_tensor(shape=[-1])]
        t0 = values[0] + values[1]
        fd.add_output(t0)
    assert t0.name == "t2"


def test_names_survive_an_exception_in_the_block():
    fd = FusionDefinition()
    try:
        with fd:
            x = fd.define_tensor(shape=[-1])
            raise KeyError
    except KeyError:
        pass
    assert x.name == "t0"


def bias_gelu(fd):
    x = fd.define_tensor(shape=[-1, 64], contiguity=[True, True], dtype=D.BFloat16)
    b = fd.define_tensor(shape=[64], contiguity=[True], dtype=D.BFloat16)
    y = fd.ops.gelu(x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1]), approximate="tanh")
    fd.add_output(fd.ops.cast(y, D.BFloat16))


def layouts(fd):
    x = fd.define_tensor(shape=[-1, 1, 5], contiguity=[True, False, None], stride_order=[2, 0, 1])
    y = fd.define_tensor([4, 1, 5], [5, 5, 1], D.Half, static_sizes=True)
    z = fd.define_tensor(sizes=(3, 4), strides=(0, 1))
    w = fd.define_tensor(shape=[], is_cpu=True)
    u = fd.from_pytorch(np.ones((3, 2), np.float64).T)
    for t in (x, y, z, w, u):
        fd.add_output(t)
    fd.add_output(fd.ops.set(x), x)


def views(fd):
    x = fd.define_tensor(shape=[-1, 6, -1], contiguity=True, dtype=D.Int8)
    y = x[1:-1, None, ..., ::2]
    z = x[:, -1]
    p = fd.ops.pad(fd.ops.permute(z, [1, 0]), [1, -1, 0, 2], value=3)
    c = fd.ops.cat([z, z], dim=-1)
    r = fd.ops.reshape(x, [2, -1, x.shape[0] // 2, 3])
    s = fd.ops.slice(r, [0, 0, 1, 0], [2, 9, 2, 3], [1, 2, 1, 1])
    e = fd.ops.expand(fd.ops.broadcast(z, [False, True, False]), [-1, 4, -1])
    u = fd.ops.unfold(fd.ops.unfold(x, 1, 4), dim=0, size=x.shape[2], step=2)
    q = fd.ops.squeeze(fd.ops.sum(x, [1], keepdim=True), [1])
    for t in (y, p, c, s, e, u, q):
        fd.add_output(t)


def scalars(fd):
    x = fd.define_tensor(shape=[-1], dtype=D.BFloat16)
    alpha = fd.define_scalar()
    n = fd.define_scalar(D.Int)
    c = fd.define_scalar(2.5, dtype=D.Float)
    k = fd.define_scalar(None, D.Int32)
    (v,) = fd.define_vector(1)
    y = x * alpha + c * n - k
    fd.add_output(fd.ops.where(y > float("inf"), float("nan"), y) + float("-inf"))
    fd.add_output(fd.ops.full([n + 1, v], True, D.Bool))
    fd.add_output(fd.ops.iota(v, start=n, step=-2))
    fd.add_output(fd.ops.broadcast_in_dim(x, [v, x.size(0)], [1]))


def statistics(fd):
    x = fd.define_tensor(shape=[-1, -1], dtype=D.Half)
    w = fd.define_tensor(shape=[-1])
    var, mean = fd.ops.var_mean(x, [1], correction=0, keepdim=True)
    avg, m2, n = fd.ops.welford(x, [0])
    fd.add_output(var + mean)
    for t in (avg, m2, n):
        fd.add_output(t)
    fd.add_output(fd.ops.softmax(x))
    fd.add_output(fd.ops.layer_norm(x, [x.shape[1]], w, w, eps=1e-6))
    fd.add_output(fd.ops.triu(x, diagonal=-1))
    fd.add_output(fd.ops.prod(x, dtype=D.Double))


def aliases(fd):
    x = fd.define_tensor(shape=[-1, -1], contiguity=True)
    y = fd.ops.relu(x)
    fd.add_output(y, alias_input=x)
    fd.add_output(y)
    fd.add_output(y)
    fd.add_output(x)


def nothing(fd):
    pass


FUSIONS = [bias_gelu, layouts, views, scalars, statistics, aliases, nothing]


@pytest.mark.parametrize("define", FUSIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("numpy_broadcasting", [False, True])
def test_repr_builds_an_equal_fusion(define, numpy_broadcasting):
    with FusionDefinition(numpy_broadcasting=numpy_broadcasting) as fd:
        define(fd)
    fd.fusion.verify()
    namespace = {}
    exec(repr(fd), namespace)
    again = namespace["fd"]
    again.fusion.verify()
    assert again.fusion == fd.fusion
    assert hash(again.fusion) == hash(fd.fusion)
    assert again.fusion.inputs == tuple(again.fusion.value(v.name) for v in fd.fusion.inputs)
    assert repr(again) == repr(fd)


def test_repr_text():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4], contiguity=True, dtype=D.Half)
        total = fd.ops.sum(x * 0.5, [1])
        fd.add_output(total)
    assert repr(fd).splitlines() == [
        "from fuser import DataType, FusionDefinition",
        "",
        "with FusionDefinition() as fd:",
        "    x = fd.define_tensor(shape=[-1, 4], contiguity=True, dtype=DataType.Half)",
        "    t2 = fd.ops.mul(x, 0.5)",
        "    total = fd.ops.sum(t2, [1])",
        "    fd.add_output(total)",
    ]


def test_repr_builds_an_equal_schedule():
    with FusionDefinition(default_unroll="rolled") as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.relu(x)
        fd.add_output(y)
        tile = x.cache_after(LoadStoreOpType.tma)
        tile.set_memory_type(MemoryType.shared)
        y.split(1, 64)
        y.split(-1, factor=8)
        y.reorder({0: 1})
        fd.sched.transform_like(y)
        y.axis(0).parallelize(ParallelType.grid_x)
        fd.sched.parallelize_like(y)
        tile.axis(-1).parallelize(ParallelType.tma)
        tile.inline_at(y, 2)
        tile.circular_buffer(4, -1, Pipelined(war="barrier"))
        y.axis(1).unroll(4)
        y.axis(2).rolled()
        y.axis(3).unroll()
    text = repr(fd).splitlines()
    assert text[0] == (
        "from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType, "
        "Pipelined"
    )
    assert text[2] == "with FusionDefinition(default_unroll='rolled') as fd:"
    assert text[-4:] == [
        "    tile.circular_buffer(4, -1, Pipelined(sync='parity', war='barrier'))",
        "    y.axis(1).unroll(4)",
        "    y.axis(2).rolled()",
        "    y.axis(3).unroll()",
    ]
    namespace = {}
    exec(repr(fd), namespace)
    again = namespace["fd"]
    assert repr(again) == repr(fd)
    assert hash(again.hand.structure()) == hash(fd.hand.structure())
    assert again.hand.structure() == fd.hand.structure()
    del namespace["fd"]
    exec(repr(fd).replace("y.axis(1).unroll(4)", "y.axis(1).unroll(3)"), namespace)
    assert namespace["fd"].hand.structure() != fd.hand.structure()


def test_every_value_knows_the_users_line():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4])
        fd.add_output(fd.ops.softmax(x))
    lines = {v.location.line for v in fd.fusion.values if v.op != "input"}
    assert {v.location.file for v in fd.fusion.values} == {__file__}
    assert lines == {x.value.location.line + 1}


@pytest.mark.parametrize(
    ("sizes", "strides", "contiguity", "order"),
    [
        ((2, 3, 4), (12, 4, 1), (True, True, True), (2, 1, 0)),
        ((2, 3, 4), (1, 2, 6), (True, True, True), (0, 1, 2)),
        ((2, 3, 4), (24, 8, 2), (True, True, False), (2, 1, 0)),
        ((2, 3, 4), (24, 4, 1), (False, True, True), (2, 1, 0)),
        ((2, 1, 4), (4, 7, 1), (True, None, True), (2, 1, 0)),
        ((2, 3, 4), (0, 4, 1), (None, True, True), (2, 1, 0)),
        ((2, 3), (0, 0), (None, None), (1, 0)),
        ((4, 3), (1, 4), (True, True), (0, 1)),
        ((), (), (), ()),
    ],
)
def test_layout_of_an_example(sizes, strides, contiguity, order):
    fd = FusionDefinition()
    attrs = fd.define_tensor(sizes=sizes, strides=strides).value.attrs
    assert (attrs.contiguity, attrs.stride_order) == (contiguity, order)
    assert attrs.expanded == tuple(n != 1 and s == 0 for n, s in zip(sizes, strides, strict=True))


def test_contiguity_is_given_in_memory_order():
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1, -1], contiguity=[False, True, True], stride_order=[0, 2, 1])
    assert x.value.attrs.contiguity == (True, False, True)
    assert x.value.attrs.outer_to_inner == (1, 2, 0)
