// cast_vec<To>(x) converts a whole vec; pack_vec<To>(x) does so from float to f16, bf16 and fp8 with
// one instruction for two elements.
// Needs types.cuh, convert.cuh, vector.cuh.

// Pack<To>::pair(low, high): two floats to the bits of two reduced floats; low in the low half.
template <class To> struct Pack;
template <> struct Pack<f16> {
  typedef u32 word;
  static __device__ __forceinline__ u32 pair(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
};
template <> struct Pack<bf16> {
  typedef u32 word;
  static __device__ __forceinline__ u32 pair(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
};
template <> struct Pack<f8e4m3> {
  typedef u16 word;
  static __device__ __forceinline__ u16 pair(float low, float high) {
    u32 y = e4m3_pair(low, high);
    return (u16)(e4m3_overflow(y & 0xff, low) | e4m3_overflow(y >> 8, high) << 8);
  }
};
template <> struct Pack<f8e5m2> {
  typedef u16 word;
  static __device__ __forceinline__ u16 pair(float low, float high) {
    u32 y = e5m2_pair(low, high);
    return (u16)(e5m2_overflow(y & 0xff, low) | e5m2_overflow(y >> 8, high) << 8);
  }
};

template <class To, int N, class From>
__device__ __forceinline__ vec<To, N> cast_vec(const vec<From, N>& x) {
  vec<To, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y[i] = cast<To>(x[i]);
  return y;
}
template <class To, int N> __device__ __forceinline__ vec<To, N> pack_vec(const vec<float, N>& x) {
  union { vec<To, N> elements; typename Pack<To>::word pairs[N / 2]; } y;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) y.pairs[i] = Pack<To>::pair(x[2 * i], x[2 * i + 1]);
  return y.elements;
}
