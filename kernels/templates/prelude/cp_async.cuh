// Copies past the registers (PTX ISA: cp.async). Needs types.cuh and mbarrier.cuh.

// 16 bytes skip L1. Of `read` bytes behind `src` the rest is written as zeros.
template <int bytes>
__device__ __forceinline__ void cp_async_bytes(void* dst, const void* src, u32 read) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "sizes of cp.async");
  const u32 to = shared_address(dst);
  const auto from = __cvta_generic_to_global(src);
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(bytes), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(bytes), "r"(read) : "memory");
}
// Where `guard` is false, zeros are written and nothing is read.
template <int bytes>
__device__ __forceinline__ void cp_async(void* dst, const void* src, bool guard = true) {
  cp_async_bytes<bytes>(dst, src, guard ? bytes : 0);
}
// There are `rest` elements of `size` bytes behind `src`: none, or more than are copied, perhaps.
template <int bytes, int size>
__device__ __forceinline__ void cp_async_part(void* dst, const void* src, idx rest) {
  constexpr idx most = bytes / size;
  cp_async_bytes<bytes>(dst, src, static_cast<u32>(rest < 0 ? 0 : rest < most ? rest : most) * size);
}
__device__ __forceinline__ void cp_async_arrive(u64* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int pending> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
