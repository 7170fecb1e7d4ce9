// Integer arithmetic that wraps, and division, power and shifts without undefined cases.
// x / 0 has all bits set, x % 0 is x, INT_MIN / -1 is INT_MIN; see docs/ops.md. Needs types.cuh.

template <class T> __device__ __forceinline__ T iadd(T a, T b) { return (T)((u64)a + (u64)b); }
template <class T> __device__ __forceinline__ T isub(T a, T b) { return (T)((u64)a - (u64)b); }
template <class T> __device__ __forceinline__ T imul(T a, T b) { return (T)((u64)a * (u64)b); }
template <class T> __device__ __forceinline__ T ineg(T a) { return (T)(0 - (u64)a); }
template <class T> __device__ __forceinline__ T iabs(T a) { return (i64)a < 0 ? ineg(a) : a; }

template <class T> __device__ __forceinline__ bool is_minus_one(T b) {
  return (T)-1 < (T)1 && b == (T)-1;  // false for unsigned T
}
template <class T> __device__ __forceinline__ T idiv(T a, T b) {
  if (b == 0) return (T)-1;
  return is_minus_one(b) ? ineg(a) : (T)(a / b);
}
template <class T> __device__ __forceinline__ T irem(T a, T b) {
  if (b == 0) return a;
  return is_minus_one(b) ? (T)0 : (T)(a % b);
}
template <class T> __device__ __forceinline__ bool signs_differ(T rest, T b) {
  return rest != 0 && ((i64)rest < 0) != ((i64)b < 0);
}
template <class T> __device__ __forceinline__ T ifloordiv(T a, T b) {
  return b != 0 && signs_differ(irem(a, b), b) ? (T)(idiv(a, b) - 1) : idiv(a, b);
}
template <class T> __device__ __forceinline__ T imod(T a, T b) {
  T rest = irem(a, b);
  return signs_differ(rest, b) ? (T)(rest + b) : rest;
}
template <class T> __device__ __forceinline__ T ipow(T a, T n) {
  if ((i64)n < 0) return a == 1 ? (T)1 : a == (T)-1 ? (T)((n & 1) ? -1 : 1) : (T)0;
  u64 result = 1, square = (u64)a;
#pragma unroll 1
  for (u64 rest = (u64)n; rest != 0; rest >>= 1) {
    if (rest & 1) result *= square;
    square *= square;
  }
  return (T)result;
}
template <class T> __device__ __forceinline__ T igcd(T a, T b) {
  u64 x = (u64)iabs((i64)a), y = (u64)iabs((i64)b);
#pragma unroll 1
  while (y != 0) {
    u64 rest = x % y;
    x = y;
    y = rest;
  }
  return (T)x;
}

// A count that is negative or at least the width shifts everything out.
template <class T> __device__ __forceinline__ bool in_width(T n) { return (u64)n < 8 * sizeof(T); }
template <class T> __device__ __forceinline__ T shift_left(T a, T n) {
  return in_width(n) ? (T)((u64)a << n) : (T)0;
}
template <class T> __device__ __forceinline__ T shift_right(T a, T n) {
  return in_width(n) ? (T)(a >> n) : (T)((i64)a < 0 ? -1 : 0);
}
template <class T> __device__ __forceinline__ T shift_right_logical(T a, T n) {
  return in_width(n) ? (T)(((u64)a & ~0ull >> (64 - 8 * sizeof(T))) >> n) : (T)0;
}
