// Matrix products of warp groups (PTX ISA: asynchronous warpgroup-level matrix instructions). Needs
// types.cuh and mbarrier.cuh.

// Where and how a tile lies in shared memory; offsets in bytes.
template <int swizzle, int leading, int stride>
__device__ __forceinline__ u64 matrix_descriptor(const void* tile) {
  constexpr u64 layout = u64(swizzle) << 62 | u64(stride / 16) << 32 | u64(leading / 16) << 16;
  return layout | (shared_address(tile) & 0x3FFFF) >> 4;
}
// The compiler moves no use of these registers across.
template <int size> __device__ __forceinline__ void pin_registers(float* d) {
#pragma unroll
  for (int i = 0; i < size; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int size> __device__ __forceinline__ void wgmma_fence(float* d) {
  pin_registers<size>(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
template <int pending, int size> __device__ __forceinline__ void wgmma_wait(float* d) {
  wgmma_wait<pending>();
  pin_registers<size>(d);
}
