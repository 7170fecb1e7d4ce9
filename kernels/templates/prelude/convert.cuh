// cast<To>(x) between all element types; the meaning is fuser/ops/convert.py, see docs/dtypes.md.
// Needs types.cuh.

// -- widen: reduced floats to float, exactly; everything else as it is ---------------------------
template <class T> __device__ __forceinline__ T widen(T x) { return x; }
__device__ __forceinline__ float widen(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float widen(f8e5m2 x) { return widen(f16{(u16)(x.bits << 8)}); }
__device__ __forceinline__ float widen(f8e4m3 x) {
#if __CUDA_ARCH__ >= 890
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)x.bits));
  return widen(f16{(u16)pair});
#else
  u32 size = x.bits & 0x7f;
  float y = widen(f16{(u16)((x.bits & 0x80) << 8 | size << 7)}) * 256.0f;
  return size == 0x7f ? NAN_F32 : y;
#endif
}

// -- to_odd: to float for a second rounding; an inexact result gets a last bit of 1 --------------
template <class T> __device__ __forceinline__ float to_odd(T x) { return (float)x; }
__device__ __forceinline__ float sticky(float y, bool inexact) {
  return __uint_as_float(__float_as_uint(y) | (u32)inexact);
}
__device__ __forceinline__ float to_odd(i32 x) {
  float y = __int2float_rz(x);
  return sticky(y, __float2int_rz(y) != x);
}
__device__ __forceinline__ float to_odd(i64 x) {
  float y = __ll2float_rz(x);
  return sticky(y, __float2ll_rz(y) != x);
}
__device__ __forceinline__ float to_odd(double x) {
  float y = __double2float_rz(x);
  return sticky(y, (double)y != x);
}

// -- round_to: float to reduced floats, to nearest even ------------------------------------------
template <class To> __device__ To round_to(float x);
template <> __device__ __forceinline__ f16 round_to<f16>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <> __device__ __forceinline__ bf16 round_to<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// The fp8 hardware saturates: what must become NaN does so before, what must become infinity after.
#if __CUDA_ARCH__ >= 890
__device__ __forceinline__ u8 e4m3_bits(float x) {
  u16 y;
  float kept = fabsf(x) > 464.0f ? NAN_F32 : x;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(kept));
  return (u8)y;
}
__device__ __forceinline__ u8 e5m2_bits(float x) {
  u16 y;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
  return (u8)(fabsf(x) >= 61440.0f ? (y & 0x80) | 0x7c : y);
}
#else
// Bits of |x| in a float of `mantissa` bits and exponent bias `bias`, growing past its largest.
// Below the smallest normal, 2^(1 - bias), adding a power of two rounds at the right bit.
__device__ __forceinline__ u32 round_bits(float x, int mantissa, int bias) {
  u32 bits = __float_as_uint(x) & 0x7fffffff;
  if (bits < (u32)(128 - bias) << 23) {
    u32 magic = (u32)(127 + 24 - bias - mantissa) << 23;
    return __float_as_uint(__uint_as_float(bits) + __uint_as_float(magic)) - magic;
  }
  int drop = 23 - mantissa;
  u32 rounded = bits + ((1u << (drop - 1)) - 1) + (bits >> drop & 1);
  return (rounded >> drop) - ((127 - bias) << mantissa);
}
__device__ __forceinline__ u8 e4m3_bits(float x) {
  u32 y = fabsf(x) <= 464.0f ? round_bits(x, 3, 7) : 0x7f;
  return (u8)(y | (__float_as_uint(x) >> 24 & 0x80));
}
__device__ __forceinline__ u8 e5m2_bits(float x) {
  u32 y = x == x ? min(round_bits(x, 2, 15), 0x7cu) : 0x7f;
  return (u8)(y | (__float_as_uint(x) >> 24 & 0x80));
}
#endif
template <> __device__ __forceinline__ f8e4m3 round_to<f8e4m3>(float x) { return {e4m3_bits(x)}; }
template <> __device__ __forceinline__ f8e5m2 round_to<f8e5m2>(float x) { return {e5m2_bits(x)}; }

// -- Convert<To>::from(widened) ------------------------------------------------------------------
template <class To> struct Convert {  // reduced floats
  template <class W> static __device__ __forceinline__ To from(W x) {
    return round_to<To>(to_odd(x));
  }
};
template <class To> struct Native {  // C's own conversion rounds once and wraps
  template <class W> static __device__ __forceinline__ To from(W x) { return (To)x; }
};
template <> struct Convert<float> : Native<float> {};
template <> struct Convert<double> : Native<double> {};
template <> struct Convert<bool> {
  template <class W> static __device__ __forceinline__ bool from(W x) { return x != 0; }
};
// Float to integer saturates in hardware; NaN gives 0 only for f32 -> i32, hence the comparisons.
template <> struct Convert<i32> : Native<i32> {
  using Native<i32>::from;
  static __device__ __forceinline__ i32 from(float x) { return __float2int_rz(x); }
  static __device__ __forceinline__ i32 from(double x) { return x == x ? __double2int_rz(x) : 0; }
};
template <> struct Convert<i64> : Native<i64> {
  using Native<i64>::from;
  static __device__ __forceinline__ i64 from(float x) { return x == x ? __float2ll_rz(x) : 0; }
  static __device__ __forceinline__ i64 from(double x) { return x == x ? __double2ll_rz(x) : 0; }
};
template <class To, int Low, int High> struct ConvertByte : Native<To> {
  using Native<To>::from;
  template <class F> static __device__ __forceinline__ To clamped(F x) {
    return (To)max(Low, min(High, Convert<i32>::from(x)));
  }
  static __device__ __forceinline__ To from(float x) { return clamped(x); }
  static __device__ __forceinline__ To from(double x) { return clamped(x); }
};
template <> struct Convert<i8> : ConvertByte<i8, -128, 127> {};
template <> struct Convert<u8> : ConvertByte<u8, 0, 255> {};

template <class To, class From> __device__ __forceinline__ To cast(From x) {
  return Convert<To>::from(widen(x));
}
