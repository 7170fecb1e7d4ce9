// A ring of bulk copies: barriers in shared memory, one thread that fills, warps that read.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 shared_address(const void* p) {
  u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(p));
  return (u32)address;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

__device__ __forceinline__ void bulk_load(u32 shared, const char* global, u32 bytes, u32 barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared), "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// Stage and phase of the ring; the phase is the parity that the full barrier completes next.
struct Cursor {
  int stage = 0;
  u32 phase = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// One warp more than the readers: its first lane fills every tile of this block into the ring.
__device__ __forceinline__ void fill_ring(const char* x, int tiles, int stages, int tile_bytes,
                                          u32 ring, u32 full, u32 empty) {
  Cursor at;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    barrier_wait(empty + 8 * at.stage, at.phase ^ 1);  // passes at once while the ring is new
    bulk_load(ring + at.stage * tile_bytes, x + (u64)tile * tile_bytes, tile_bytes,
              full + 8 * at.stage);
    at.advance(stages);
  }
}

// Full barriers wait for the filling thread and its bytes, empty ones for every reading warp.
__device__ __forceinline__ void init_ring(int stages, u32 full, u32 empty, int reading_warps) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, reading_warps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}

// A warp is done with a stage: one arrival, after all its lanes have read.
__device__ __forceinline__ void release(u32 empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}
