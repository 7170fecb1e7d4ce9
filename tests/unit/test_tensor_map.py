"""Tensor maps without a GPU: every rule and its text, argument slots, what a launch is given."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import replace

import numpy as np
import pytest
from fake_cuda import installed
from tensor_map_cases import BREAKS, as_param, copyable, legal, read_box

from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.core.errors import BackendError, LaunchError, ScheduleError, VerifyError
from fuser.core.expr import ONE, Const, Var
from fuser.debug.kernel_text import to_text
from fuser.kir.core import GRID_1, Kernel, SizeParam, TensorMapParam, TensorParam
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.kir.tensor_map import (
    MAP_ALIGN_BYTES,
    bind,
    check_encoding,
    obstacle,
    require_encodable,
    violations,
)
from fuser.runtime import driver as runtime_driver
from fuser.runtime import tensor_map as runtime_maps
from fuser.runtime.arrays import view_of
from fuser.runtime.executor import CudaProgram
from fuser.runtime.launch import ArgumentSlots
from fuser.runtime.log import CompileLog
from fuser.runtime.nvrtc import Cubin

pytestmark = pytest.mark.unit

SPLIT = ", so split the axis that is bound to tma by 256 or less"

FLOAT = DataType.Float
ROWS, COLS, PITCH, START = Var("rows"), Var("cols"), Var("pitch"), Var("start")
MAP = TensorMapParam("x_map", "x", FLOAT, (COLS, ROWS), (PITCH * 4,), (32, 8), offset_elems=START)
SIZES = {"rows": 100, "cols": 1000, "pitch": 1024, "start": 64}
BASE = 0x7F0000000000


class Numbers:
    """An enum whose members are numbers made of their names."""

    def __getattr__(self, name: str) -> int:
        return zlib.crc32(name.encode()) >> 1


@pytest.fixture
def cuda(monkeypatch):
    """The fake driver; a map is encoded as the text of its address."""
    with installed(monkeypatch) as fake:
        runtime_maps._encode.cache_clear()
        fake.encoded = []
        runtime_maps._entry_point.cache_clear()
        for name in ("DataType", "Interleave", "Swizzle", "L2promotion", "FloatOOBfill"):
            setattr(fake, f"CUtensorMap{name}", Numbers())
        fake.CUresult = int

        @runtime_maps._ENCODE_TILED
        def tensor_map(out, dtype, rank, address, dims, strides, box, steps, *modes):
            assert out % MAP_ALIGN_BYTES == 0
            counts = zip((dims, strides, box, steps), (rank, rank - 1, rank, rank), strict=True)
            numbers = [values[:count] for values, count in counts]
            fake.encoded.append((dtype, rank, address, *numbers, *modes))
            ctypes.memmove(out, f"{address:#x}".encode().ljust(128, b"\0"), 128)
            return fake.failing.get("cuTensorMapEncodeTiled", 0)

        found = ctypes.cast(tensor_map, ctypes.c_void_p).value
        fake.cuGetProcAddress = lambda name, version, flags: (0, fake.entry_point, 0)
        fake.entry_point = found
        yield fake
        runtime_maps._encode.cache_clear()
        runtime_maps._entry_point.cache_clear()


# -- the rules ------------------------------------------------------------------------------------

A = "tensor map x_map of x: "
VIOLATIONS = [
    ({"rows": 0}, {}, 0, ["dim 1 has 0 elements; needed 1 to 4294967296"]),
    ({"cols": 2**32 + 1}, {}, 0, ["dim 0 has 4294967297 elements; needed 1 to 4294967296"]),
    ({"pitch": 1001}, {}, 0, ["stride of dim 1 is 4004 bytes; needed a multiple of 16"]),
    ({"pitch": 2**38}, {}, 0,
     ["stride of dim 1 is 1099511627776 bytes; needed 0 to 1099511627775"]),
    ({"pitch": -1024}, {}, 0, ["stride of dim 1 is -4096 bytes; needed 0 to 1099511627775"]),
    ({}, {}, 8, ["address is 0x7f0000000108; needed a multiple of 16"]),
    ({"start": 65}, {}, 0, ["address is 0x7f0000000104; needed a multiple of 16"]),
    ({"start": 65}, {}, 12, []),  # the offset makes up for the address
    ({}, {"box": (30, 8)}, 0,
     ["box dim 0 is 30 elements, 120 bytes; needed a multiple of 16 bytes"]),
    ({}, {"box": (32, 257)}, 0, ["box dim 1 is 257; needed 1 to 256" + SPLIT]),
    ({}, {"box": (0, 8)}, 0, ["box dim 0 is 0; needed 1 to 256"]),
    ({}, {"element_strides": (1, 9)}, 0, ["element stride of dim 1 is 9; needed 1 to 8"]),
    ({}, {"element_strides": (0, 1)}, 0, ["element stride of dim 0 is 0; needed 1 to 8"]),
    ({}, {"swizzle": "64B"}, 0,
     ["box dim 0 is 32 elements, 128 bytes; needed at most 64 bytes, the span of swizzle 64B"]),
    ({}, {"swizzle": "32B", "box": (12, 8)}, 0,
     ["box dim 0 is 12 elements, 48 bytes; needed at most 32 bytes, the span of swizzle 32B"]),
    ({}, {"swizzle": "128B"}, 0, []),
    ({}, {"swizzle": "128B", "box": (4, 8)}, 0, []),  # the driver takes it, a schedule may not
    ({"cols": 2**32, "rows": 1, "pitch": 2**38 - 4}, {"box": (256, 228)}, 0, []),
    ({"pitch": 0}, {}, 0, []),
    ({"rows": 0, "pitch": 3}, {"box": (1, 300)}, 1, [
        "box dim 1 is 300; needed 1 to 256" + SPLIT,
        "box dim 0 is 1 elements, 4 bytes; needed a multiple of 16 bytes",
        "dim 1 has 0 elements; needed 1 to 4294967296",
        "stride of dim 1 is 12 bytes; needed a multiple of 16",
        "address is 0x7f0000000101; needed a multiple of 16",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "changes", "shift", "texts"), VIOLATIONS)
def test_every_rule_names_tensor_dimension_value_and_need(sizes, changes, shift, texts):
    found = check_encoding(replace(MAP, **changes), SIZES | sizes, BASE + shift)
    assert found == [A + text for text in texts]


@pytest.mark.parametrize("rank", [0, 6])
def test_ranks_outside_one_to_five(rank):
    dims = (Const(8),) * rank
    param = TensorMapParam("x_map", "x", FLOAT, dims, (Const(32),) * (rank - 1), (4,) * rank)
    assert check_encoding(param, {}, 0) == [f"{A}rank is {rank}; needed 1 to 5"]
    with pytest.raises(ScheduleError, match=f"^{A}rank is {rank}; needed 1 to 5$"):
        require_encodable(param)


def test_random_legal_maps_pass(rng):
    for _ in range(500):
        encoding = legal(rng)
        assert violations(encoding) == [], encoding
        assert check_encoding(as_param(encoding), {}, encoding.address) == []


@pytest.mark.parametrize("rule", BREAKS)
def test_a_broken_rule_is_found_alone(rule, rng):
    breaking, text = BREAKS[rule]
    for _ in range(50):
        encoding = breaking(rng, legal(rng))
        found = violations(encoding)
        assert len(found) == 1, (encoding, found)
        assert text in found[0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"box": (32, 512)}, "box dim 1 is 512; needed 1 to 256" + SPLIT),
        ({"box": (3, 8)}, "box dim 0 is 3 elements, 12 bytes; needed a multiple of 16 bytes"),
        ({"dims": (COLS, Const(0))}, "dim 1 has 0 elements; needed 1 to 4294967296"),
        ({"strides_bytes": (Const(100),)},
         "stride of dim 1 is 100 bytes; needed a multiple of 16"),
        ({"offset_elems": Const(3)}, "offset is 12 bytes; needed a multiple of 16"),
        ({"swizzle": "128B", "box": (16, 8)},
         "box dim 0 is 16 elements, 64 bytes; needed 128 bytes, the span of swizzle 128B"),
        ({"box": (3, 512)},
         f"box dim 1 is 512; needed 1 to 256{SPLIT}; also: box dim 0 is 3 elements, 12 bytes; "
         "needed a multiple of 16 bytes"),
    ],
)  # fmt: skip
def test_what_no_size_could_mend_is_an_error_of_the_schedule(changes, text):
    with pytest.raises(ScheduleError) as caught:
        require_encodable(replace(MAP, **changes))
    assert str(caught.value) == A + text


def test_sizes_are_not_judged_before_they_are_known():
    require_encodable(MAP)
    require_encodable(replace(MAP, swizzle="128B"))
    assert obstacle(MAP, SIZES, BASE) is None
    assert obstacle(MAP, SIZES | {"pitch": 1001}, BASE) == (
        A + "stride of dim 1 is 4004 bytes; needed a multiple of 16"
    )


def test_a_copy_cannot_name_elements_past_its_coordinates():
    sizes = SIZES | {"cols": 2**31}
    assert check_encoding(MAP, sizes, BASE) == []
    assert obstacle(MAP, sizes, BASE) == (
        A + "dim 0 has 2147483648 elements; needed at most 2147483647, the largest coordinate"
    )


def test_shapes_that_do_not_fit_together_are_a_bug_of_the_builder():
    with pytest.raises(
        VerifyError, match=f"^{A}1 strides, 3 box extents and 2 element strides; needed 1, 2 and 2$"
    ):
        replace(MAP, box=(4, 4, 4))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_a_box_counts_in_full_wherever_it_lies(rank, rng):
    for _ in range(20):
        dtype = list(DataType)[rng.integers(len(DataType))]
        copy = copyable(rng, rank, dtype, "none")
        flat = rng.integers(1, 2, copy.numel).astype(dtype.np)
        assert read_box(copy, flat).size == copy.param.box_bytes
        require_encodable(copy.param)
        assert obstacle(copy.param, {}, BASE) is None


# -- argument slots -------------------------------------------------------------------------------


def addresses(slots):
    count = len(slots.kinds)
    return list((ctypes.c_void_p * count).from_address(slots.array(range(count))))


def test_maps_are_aligned_and_other_slots_stay_eight_bytes_apart():
    slots = ArgumentSlots(("pointer", "tensor_map", "i32", "tensor_map", "u8"))
    at = addresses(slots)
    assert at[1] % MAP_ALIGN_BYTES == at[3] % MAP_ALIGN_BYTES == 0
    ends = [at[0] + 8, at[1] + 128, at[2] + 8, at[3] + 128]
    assert all(end <= start for end, start in zip(ends, at[1:], strict=True))
    first, second = bytes(range(128)), bytes(range(128, 256))
    slots.pack("kernel k", (77, first, -5, second, 9))
    assert ctypes.c_uint64.from_address(at[0]).value == 77
    assert ctypes.string_at(at[1], 128) == first
    assert ctypes.c_int32.from_address(at[2]).value == -5
    assert ctypes.string_at(at[3], 128) == second
    assert ctypes.c_uint8.from_address(at[4]).value == 9
    plain = addresses(ArgumentSlots(("pointer", "bool", "f64")))
    assert plain == [plain[0] + 8 * i for i in range(3)]


# -- encoding and launching -----------------------------------------------------------------------


def test_the_driver_is_given_what_the_parameter_says(cuda):
    param, number = replace(MAP, swizzle="128B", element_strides=(1, 2)), Numbers()
    assert len(runtime_maps.encode(param, SIZES, BASE)) == 128
    assert cuda.encoded == [
        (
            number.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, BASE + 256,
            [1000, 100], [4096], [32, 8], [1, 2],
            number.CU_TENSOR_MAP_INTERLEAVE_NONE, number.CU_TENSOR_MAP_SWIZZLE_128B,
            number.CU_TENSOR_MAP_L2_PROMOTION_NONE, number.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    ]  # fmt: skip


def test_equal_maps_are_encoded_once_and_any_change_encodes_anew(cuda):
    maps = [runtime_maps.encode(MAP, SIZES, BASE) for _ in range(3)]
    assert len(cuda.encoded) == len(set(maps)) == 1
    runtime_maps.encode(replace(MAP, name="other"), SIZES, BASE)
    assert len(cuda.encoded) == 1
    runtime_maps.encode(MAP, SIZES, BASE + 16)
    runtime_maps.encode(MAP, SIZES | {"rows": 7}, BASE)
    runtime_maps.encode(MAP, SIZES | {"pitch": 2048}, BASE)
    runtime_maps.encode(replace(MAP, box=(64, 8)), SIZES, BASE)
    runtime_maps.encode(replace(MAP, swizzle="128B"), SIZES, BASE)
    runtime_maps.encode(replace(MAP, dtype=DataType.Int32), SIZES, BASE)
    assert len(cuda.encoded) == 7


def test_errors_of_encoding_name_the_tensor(cuda):
    with pytest.raises(LaunchError, match=f"^{A}stride of dim 1 is 4004 bytes; needed a mult"):
        runtime_maps.encode(MAP, SIZES | {"pitch": 1001}, BASE)
    assert cuda.encoded == []
    cuda.failing["cuTensorMapEncodeTiled"] = 1
    with pytest.raises(LaunchError, match=f"^{A}.*the driver gave 1 .fake error 1.*CUDA_SUCCESS"):
        runtime_maps.encode(MAP, SIZES, BASE)


def test_without_a_driver_only_encoding_fails(cuda):
    cuda.failing["cuInit"] = 100
    runtime_driver.driver.cache_clear()
    with pytest.raises(BackendError, match="cuInit gave 100"):
        runtime_maps.encode(MAP, SIZES, BASE)
    assert check_encoding(MAP, SIZES, BASE) == []


def test_a_driver_that_cannot_encode(cuda):
    cuda.entry_point = 0
    with pytest.raises(BackendError, match=r"has no cuTensorMapEncodeTiled; needed CUDA 12\.0"):
        runtime_maps.encode(MAP, SIZES, BASE)


def kernel_with_map(name, param, grid=GRID_1):
    params = (
        TensorParam("x", FLOAT, "in", ROWS * PITCH),
        param,
        TensorParam("y", FLOAT, "out", ONE),
        SizeParam("rows"),
    )
    return Kernel(name, params, (), grid, (Const(32), ONE, ONE), "i32", ())


class FakeCache:
    def get(self, source, name, arch, **options):
        return Cubin(name, arch, source.encode(), None, CompileLog(), 0.0)


def build(*kernels):
    y = Buffer("y", FLOAT, (ONE,), (ONE,), ONE)
    program = Program("maps", ("x",), (y,), kernels, (OutputBinding("y"),))
    return CudaProgram(program, emit, "sm_90a", cache=FakeCache())


def test_a_launch_passes_the_map_of_this_runs_address(cuda, rng):
    """Two kernels call different maps by one name; each gets its own."""
    seen = []

    def look(grid, block, params):
        x, at, _, rows = (ctypes.c_void_p * 4).from_address(params)
        pointer = ctypes.c_uint64.from_address(x).value
        assert at % MAP_ALIGN_BYTES == 0
        seen.append(
            (ctypes.string_at(at).decode(), pointer, ctypes.c_int32.from_address(rows).value)
        )

    cuda.kernels.update(first=look, second=look)
    shifted = replace(MAP, offset_elems=START + 4)
    program = build(kernel_with_map("first", MAP), kernel_with_map("second", shifted))
    view = view_of(rng.normal(size=100 * 1024).astype(np.float32))
    program.run(SIZES, {"x": view}, {})
    (text1, pointer, rows), (text2, _, _) = seen
    assert (int(text1, 16), int(text2, 16), rows) == (pointer + 256, pointer + 272, 100)


def test_nothing_is_launched_when_a_map_cannot_be_encoded(cuda, rng):
    cuda.kernels.update(first=None, second=None)
    program = build(kernel_with_map("first", MAP), kernel_with_map("second", MAP))
    view = view_of(rng.normal(size=100 * 1001).astype(np.float32))
    with pytest.raises(LaunchError, match=f"^{A}stride of dim 1 is 4004"):
        program.run(SIZES | {"pitch": 1001}, {"x": view}, {})
    assert cuda.launches == []
    assert cuda.blocks == {}


def test_a_kernel_without_blocks_needs_no_map(cuda):
    cuda.kernels["first"] = None
    grid = (ROWS, ONE, ONE)
    view = view_of(np.empty(0, np.float32))
    build(kernel_with_map("first", MAP, grid)).run(SIZES | {"rows": 0}, {"x": view}, {})
    assert cuda.launches == cuda.encoded == []


def test_the_reason_for_the_variant_without_tma(cuda):
    program = Program("p", ("x",), (), (kernel_with_map("k", MAP),), ())
    assert runtime_maps.tma_obstacle(program, SIZES, {"x": BASE}) is None
    assert runtime_maps.tma_obstacle(program, SIZES, {"x": BASE + 4}) == (
        A + "address is 0x7f0000000104; needed a multiple of 16"
    )
    assert runtime_maps.tma_obstacle(program, SIZES | {"pitch": 1002}, {"x": BASE}) == (
        A + "stride of dim 1 is 4008 bytes; needed a multiple of 16"
    )


# -- in text --------------------------------------------------------------------------------------


def test_a_map_is_printed_and_must_view_a_tensor_of_the_kernel():
    kernel = kernel_with_map("k", MAP)
    assert "const __grid_constant__ CUtensorMap x_map" in emit(kernel)
    assert "struct alignas(64) CUtensorMap" in emit(kernel)
    assert (
        "x_map: tensor map of x from element start, f32[cols, rows] innermost first, "
        "strides [pitch * 4] bytes, box [32, 8], swizzle none" in to_text(kernel)
    )
    with pytest.raises(VerifyError, match=r"kernel k: tensor map x_map of z; needed one of"):
        emit(kernel_with_map("k", replace(MAP, tensor="z")))


def test_binding_adds_the_offset_in_bytes():
    encoding = bind(MAP, SIZES, BASE)
    assert (encoding.address, encoding.dims) == (BASE + 256, (1000, 100))
    assert encoding.strides_bytes == (4096,)
