// The ring-map ceiling: y = 2x + 1, read through a ring of bulk copies, written from registers.
// In front of it: ring.cuh, STAGES, TILE_BYTES and READERS (threads that read; one warp more fills).
extern __shared__ __align__(128) char ring[];

extern "C" __global__ void __launch_bounds__(READERS + 32) ring_map(const char* x, char* y,
                                                                    int tiles) {
  __shared__ u64 full[STAGES], empty[STAGES];
  const u32 full0 = shared_address(full), empty0 = shared_address(empty);
  init_ring(STAGES, full0, empty0, READERS / 32);

  if (threadIdx.x >= READERS) {
    if (threadIdx.x == READERS)
      fill_ring(x, tiles, STAGES, TILE_BYTES, shared_address(ring), full0, empty0);
    return;
  }
  Cursor at;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    barrier_wait(full0 + 8 * at.stage, at.phase);
    const float4* stage = (const float4*)(ring + at.stage * TILE_BYTES) + threadIdx.x;
    float4 v[TILE_BYTES / 16 / READERS];
#pragma unroll
    for (int k = 0; k < TILE_BYTES / 16 / READERS; ++k) v[k] = stage[k * READERS];
    release(empty0 + 8 * at.stage);  // the next copy need not wait for the stores
    float4* out = (float4*)(y + (u64)tile * TILE_BYTES) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < TILE_BYTES / 16 / READERS; ++k) {
      v[k].x = 2.0f * v[k].x + 1.0f;
      v[k].y = 2.0f * v[k].y + 1.0f;
      v[k].z = 2.0f * v[k].z + 1.0f;
      v[k].w = 2.0f * v[k].w + 1.0f;
      out[k * READERS] = v[k];
    }
    at.advance(STAGES);
  }
}
