// What some warps of a block share: barriers of their own, and registers that change hands.

__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// `threads` threads of a role that reduce together, from thread (x, y, z) of the block on.
template <int id, int threads, int x0, int y0, int z0> struct thread_box {
  static constexpr int x = x0, y = y0, z = z0;
  static __device__ __forceinline__ void meet() { named_barrier(id, threads); }
};

template <int count> __device__ __forceinline__ void set_max_registers_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> __device__ __forceinline__ void set_max_registers_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
