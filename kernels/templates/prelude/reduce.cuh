// Reductions of one value across threads. `op` is associative and commutative; every function
// combines in an order fixed by the block's shape, so results do not change from run to run.

// The value of `v` in the lane whose number differs by the bits of `bits`.
template <class T>
__device__ __forceinline__ T shuffle_xor(unsigned group, T v, int bits) {
  if constexpr (sizeof(T) == 8 || sizeof(T) == 4)
    return __shfl_xor_sync(group, v, bits);
  else
    return T(__shfl_xor_sync(group, int(v), bits));
}

// All-reduce over groups of `width` consecutive lanes; groups need not be converged.
template <int width, class T, class Op>
__device__ __forceinline__ T warp_allreduce(T v, Op op) {
  unsigned group = ~0u;
  if constexpr (width < 32) {
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    group = ((1u << width) - 1) << (thread % 32 / width * width);
  }
#pragma unroll
  for (int bits = width / 2; bits > 0; bits /= 2) v = op(v, shuffle_xor(group, v, bits));
  return v;
}

// The threads of a block that reduce together, from thread (x, y, z) on: all of them.
struct whole_block {
  static constexpr int x = 0, y = 0, z = 0;
  __device__ __forceinline__ void meet() const { __syncthreads(); }
};

// All-reduce over the threads of a block, or of a box of it, that differ only along the chosen
// axes. Rows of whole warps are reduced by shuffles first, then one value per warp meets in
// `scratch`; other shapes put one value per thread there.
template <bool along_x, bool along_y, bool along_z, class T, class Op, class Box = whole_block>
__device__ __forceinline__ T block_allreduce(T v, T* scratch, Op op, int block_x, int block_y, int block_z, Box box = {}) {
  const bool by_warp = along_x && block_x % 32 == 0;
  const int lanes = by_warp ? 32 : 1;
  if (by_warp) v = warp_allreduce<32>(v, op);
  const int row = block_x / lanes, plane = row * block_y;  // exchange slots per row and per plane
  const int x = (threadIdx.x - box.x) / lanes, y = threadIdx.y - box.y, z = threadIdx.z - box.z;
  if ((threadIdx.x - box.x) % lanes == 0) scratch[x + row * y + plane * z] = v;
  box.meet();
  const int x0 = along_x ? 0 : x, x1 = along_x ? row : x + 1;
  const int y0 = along_y ? 0 : y, y1 = along_y ? block_y : y + 1;
  const int z0 = along_z ? 0 : z, z1 = along_z ? block_z : z + 1;
  v = scratch[x0 + row * y0 + plane * z0];
#pragma unroll 1
  for (int k = z0; k < z1; ++k)
#pragma unroll 1
    for (int j = y0; j < y1; ++j)
#pragma unroll 4
      for (int i = x0; i < x1; ++i)
        if (i != x0 || j != y0 || k != z0) v = op(v, scratch[i + row * j + plane * k]);
  box.meet();  // scratch may be written again
  return v;
}

// Takes the next of the tickets 0 to `highest` and tells whether it was the highest, after which they
// begin anew. What the block wrote is visible to holders of later tickets, and what holders of
// earlier ones wrote is visible to it (PTX ISA, atom.acq_rel: cheaper than a fence on either side).
__device__ __forceinline__ bool take_ticket(int* counter, unsigned highest) {
  unsigned ticket;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(ticket) : "l"(counter), "r"(highest) : "memory");
  return ticket == highest;
}

// Publishes `v` as partial `rank` of its segment and takes a ticket. The block with the last
// ticket combines all ranks in order, leaves the counter at zero and returns true.
template <class T, class Op>
__device__ __forceinline__ bool grid_allreduce(T& v, T* partials, int* counter, Op op, long long rank, long long ranks, long long segment, long long slot, long long slots, bool when) {
  __shared__ bool last;
  T* const mine = partials + segment * ranks * slots + slot;
  if (when) mine[rank * slots] = v;
  __syncthreads();  // the partials of this block are written
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
    last = take_ticket(counter + segment, unsigned(ranks - 1));
  __syncthreads();  // the ticket is known to the block
  const bool is_last = last;
  if (is_last && when) {
    v = mine[0];
#pragma unroll 4
    for (long long r = 1; r < ranks; ++r) v = op(v, mine[r * slots]);
  }
  __syncthreads();  // `last` may be written again
  return is_last;
}

// As above, for a value that all threads of a block share: thread 0 publishes it, and the threads
// of the last block read different ranks and meet in `scratch`.
template <class T, class Op>
__device__ __forceinline__ bool grid_allreduce_shared(T& v, T* partials, int* counter, Op op, long long rank, long long ranks, long long segment, T* scratch, T identity, int block_x, int block_y, int block_z) {
  __shared__ bool last;
  T* const mine = partials + segment * ranks;
  const int thread = threadIdx.x + block_x * (threadIdx.y + block_y * threadIdx.z);
  if (thread == 0) {
    mine[rank] = v;
    last = take_ticket(counter + segment, unsigned(ranks - 1));
  }
  __syncthreads();  // the ticket is known to the block
  const bool is_last = last;
  if (is_last) {
    v = identity;
#pragma unroll 4
    for (long long r = thread; r < ranks; r += block_x * block_y * block_z) v = op(v, __ldcg(mine + r));
    v = block_allreduce<true, true, true>(v, scratch, op, block_x, block_y, block_z);
  }
  __syncthreads();  // `last` may be written again
  return is_last;
}
