"""Which names a value may have, so that it can be printed into CUDA C++ as it is."""

from __future__ import annotations

import re

from fuser.ops import BY_NAME, POINTWISE, REDUCTIONS

_CPP = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
linux unix main NULL NAN INFINITY assert printf signed
"""

_CUDA = """
threadIdx blockIdx blockDim gridDim warpSize half half2 uchar ushort uint ulong clock clock64
dim3 size_t ptrdiff_t
"""

_PRELUDE = """
i8 u8 i16 u16 i32 u32 i64 u64 f8e4m3 f8e5m2 f16 bf16 f32 f64 index_t
idx opaque block_x block_y block_z
warp_allreduce block_allreduce grid_allreduce grid_allreduce_shared
whole_block thread_box
INF_F32 NAN_F32 INF_F64 NAN_F64
shared_address mbarrier_init mbarrier_init_fence mbarrier_inval mbarrier_arrive
mbarrier_arrive_expect_tx mbarrier_wait mbarrier_wait_token mbarrier_try_wait
mbarrier_try_wait_token token_of keep_token
bulk_load bulk_store bulk_commit bulk_wait bulk_wait_read tensor_load
tensor_store fence_proxy_async cp_async cp_async_arrive cp_async_commit cp_async_wait named_barrier
set_max_registers_inc set_max_registers_dec CUtensorMap smem_raw thread role_thread
cluster_ctarank cluster_rank cluster_sync mbarrier_arrive_remote mbarrier_wait_cluster
mbarrier_try_wait_cluster tensor_load_multicast
matrix_descriptor pin_registers wgmma_fence wgmma_commit wgmma_wait
tx ty tz bx by bz cx cy cz nx ny nz lane warp cast vec bits bit_cast min max abs smem
"""


def _functions_called() -> frozenset[str]:
    """Every identifier in the CUDA texts of the op tables, which a value must not shadow."""
    texts = [*(spec.text for spec in POINTWISE), *(spec.text for spec in REDUCTIONS)]
    parts = {part for t in texts for part in (t.f32, t.f64, t.integer, t.boolean, t.reduced)}
    return frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(parts)))


RESERVED = frozenset(f"{_CPP} {_CUDA} {_PRELUDE}".split()) | _functions_called()

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_DERIVED = re.compile(r"_(size|stride)\d+\Z")
_VECTOR_TYPE = re.compile(r"(char|uchar|short|ushort|int|uint|long|ulong|float|double)\d+\Z")


def is_valid_name(name: str) -> bool:
    """Whether `name` can name a value.

    It must be an ASCII C identifier without a leading or double underscore, not a word of C++,
    CUDA, the prelude or the op table, and not of the form ``x_size0`` or ``x_stride0``.
    """
    return (
        _IDENTIFIER.match(name) is not None
        and "__" not in name
        and name not in RESERVED
        and name not in BY_NAME
        and name.removesuffix("f") not in BY_NAME
        and _DERIVED.search(name) is None
        and _VECTOR_TYPE.match(name) is None
    )
