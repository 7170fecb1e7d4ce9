// The ring-sum ceiling: all floats added to *sum, read through a ring of bulk copies.
// In front of it: ring.cuh, STAGES, TILE_BYTES and READERS (threads that read; one warp more fills).
extern __shared__ __align__(128) char ring[];

extern "C" __global__ void __launch_bounds__(READERS + 32, 1) ring_sum(const char* x, float* sum,
                                                                       int tiles) {
  __shared__ u64 full[STAGES], empty[STAGES];
  __shared__ float of_warp[READERS / 32];
  const u32 full0 = shared_address(full), empty0 = shared_address(empty);
  init_ring(STAGES, full0, empty0, READERS / 32);

  if (threadIdx.x >= READERS) {
    if (threadIdx.x == READERS)
      fill_ring(x, tiles, STAGES, TILE_BYTES, shared_address(ring), full0, empty0);
  } else {
    float4 a = {0.0f, 0.0f, 0.0f, 0.0f};
    Cursor at;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      barrier_wait(full0 + 8 * at.stage, at.phase);
      const float4* stage = (const float4*)(ring + at.stage * TILE_BYTES) + threadIdx.x;
      float4 v[TILE_BYTES / 16 / READERS];
#pragma unroll
      for (int k = 0; k < TILE_BYTES / 16 / READERS; ++k) v[k] = stage[k * READERS];
      release(empty0 + 8 * at.stage);
#pragma unroll
      for (int k = 0; k < TILE_BYTES / 16 / READERS; ++k) {
        a.x += v[k].x;
        a.y += v[k].y;
        a.z += v[k].z;
        a.w += v[k].w;
      }
      at.advance(STAGES);
    }
    float total = (a.x + a.y) + (a.z + a.w);
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) total += __shfl_xor_sync(~0u, total, lanes);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = total;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0f;
    for (int w = 0; w < READERS / 32; ++w) total += of_warp[w];
    atomicAdd(sum, total);
  }
}
