// Copies past the registers (PTX ISA: cp.async). Needs types.cuh and mbarrier.cuh.

// 16 bytes skip L1. Where `guard` is false, zeros are written and nothing is read.
template <int bytes>
__device__ __forceinline__ void cp_async(void* dst, const void* src, bool guard = true) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "sizes of cp.async");
  const u32 to = shared_address(dst), read = guard ? bytes : 0;
  const auto from = __cvta_generic_to_global(src);
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(bytes), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(bytes), "r"(read) : "memory");
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
