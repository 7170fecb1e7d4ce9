// Mbarriers (PTX ISA: parallel synchronization, mbarrier). Needs types.cuh.

__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void mbarrier_init(u64* barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_inval(u64* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrivals return the state of the phase they belong to: mbarrier_wait_token takes it.
__device__ __forceinline__ u64 mbarrier_arrive(u64* barrier, u32 count = 1) {
  u64 state;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(shared_address(barrier)), "r"(count) : "memory");
  return state;
}
__device__ __forceinline__ u64 mbarrier_arrive_expect_tx(u64* barrier, u32 bytes) {
  u64 state;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(shared_address(barrier)), "r"(bytes) : "memory");
  return state;
}

// The tokens of a ring's stages are in registers, which have no addresses: where the stage is known
// when the kernel runs, comparisons find its token.
template <int stages> __device__ __forceinline__ u64 token_of(const i64 (&tokens)[stages], int stage) {
  u64 token = tokens[0];
#pragma unroll
  for (int s = 1; s < stages; ++s) token = s == stage ? tokens[s] : token;
  return token;
}
template <int stages> __device__ __forceinline__ void keep_token(i64 (&tokens)[stages], int stage, u64 token) {
#pragma unroll
  for (int s = 0; s < stages; ++s) tokens[s] = s == stage ? token : tokens[s];
}

// try_wait suspends the thread for a while; it may come back early, hence the loops. The first try is
// outside of the loop: a loop that begins with a wait would begin with the wait's loop otherwise, and
// two loops that begin at one instruction are one or two, as the compiler likes.
__device__ __forceinline__ bool mbarrier_try_wait(u64* barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}" : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
  return done;
}
__device__ __forceinline__ bool mbarrier_try_wait_token(u64* barrier, u64 state) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}" : "=r"(done) : "r"(shared_address(barrier)), "l"(state) : "memory");
  return done;
}
__device__ __forceinline__ void mbarrier_wait(u64* barrier, u32 parity) {
  if (mbarrier_try_wait(barrier, parity)) return;
#pragma unroll 1
  while (!mbarrier_try_wait(barrier, parity)) {}
}
__device__ __forceinline__ void mbarrier_wait_token(u64* barrier, u64 state) {
  if (mbarrier_try_wait_token(barrier, state)) return;
#pragma unroll 1
  while (!mbarrier_try_wait_token(barrier, state)) {}
}
