// Clusters of blocks (PTX ISA: barrier.cluster, mapa, .shared::cluster). Needs types.cuh and
// mbarrier.cuh.

__device__ __forceinline__ u32 cluster_ctarank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The barrier at the same place in the shared memory of another block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_remote(u64* barrier, u32 rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(shared_address(barrier)), "r"(rank) : "memory");
}
__device__ __forceinline__ bool mbarrier_try_wait_cluster(u64* barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}" : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
  return done;
}
__device__ __forceinline__ void mbarrier_wait_cluster(u64* barrier, u32 parity) {
  if (mbarrier_try_wait_cluster(barrier, parity)) return;  // see mbarrier_wait
#pragma unroll 1
  while (!mbarrier_try_wait_cluster(barrier, parity)) {}
}

// One box of a tensor map to the same place in the shared memory of every block whose bit is set.
__device__ __forceinline__ void tensor_load_multicast(void* dst, const CUtensorMap* map, u64* barrier, u32 mask, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4}], [%2], %3;" ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "h"((u16)mask), "r"(c0) : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* dst, const CUtensorMap* map, u64* barrier, u32 mask, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "h"((u16)mask), "r"(c0), "r"(c1) : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* dst, const CUtensorMap* map, u64* barrier, u32 mask, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "h"((u16)mask), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* dst, const CUtensorMap* map, u64* barrier, u32 mask, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "h"((u16)mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* dst, const CUtensorMap* map, u64* barrier, u32 mask, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(barrier)), "h"((u16)mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
