// Functions that the CUDA texts of the op table name; each has its meaning in fuser/ops/meanings.py.
// Needs types.cuh.

// -- NaN-propagating extrema; -0 < +0 ------------------------------------------------------------
template <class T> __device__ __forceinline__ T max_nan(T a, T b) { return a > b ? a : b; }
template <class T> __device__ __forceinline__ T min_nan(T a, T b) { return a < b ? a : b; }
__device__ __forceinline__ float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ float min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ double max_nan(double a, double b) {
  return a != a || b != b ? a + b : fmax(a, b);
}
__device__ __forceinline__ double min_nan(double a, double b) {
  return a != a || b != b ? a + b : fmin(a, b);
}
template <class T> __device__ __forceinline__ T relu(T x) { return max_nan(x, (T)0); }

// -- predicates ----------------------------------------------------------------------------------
__device__ __forceinline__ bool sign_bit(float x) { return __float_as_int(x) < 0; }
__device__ __forceinline__ bool sign_bit(double x) { return __double_as_longlong(x) < 0; }
template <class T> __device__ __forceinline__ bool sign_bit(T x) { return (i64)x < 0; }
__device__ __forceinline__ bool sign_bit(f16 x) { return x.bits >> 15; }
__device__ __forceinline__ bool sign_bit(bf16 x) { return x.bits >> 15; }
__device__ __forceinline__ bool sign_bit(f8e4m3 x) { return x.bits >> 7; }
__device__ __forceinline__ bool sign_bit(f8e5m2 x) { return x.bits >> 7; }
__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) < INF_F32; }
__device__ __forceinline__ bool is_finite(double x) { return fabs(x) < INF_F64; }
__device__ __forceinline__ bool is_inf(float x) { return fabsf(x) == INF_F32; }
__device__ __forceinline__ bool is_inf(double x) { return fabs(x) == INF_F64; }
__device__ __forceinline__ bool is_pos_inf(float x) { return x == INF_F32; }
__device__ __forceinline__ bool is_pos_inf(double x) { return x == INF_F64; }
__device__ __forceinline__ bool is_neg_inf(float x) { return x == -INF_F32; }
__device__ __forceinline__ bool is_neg_inf(double x) { return x == -INF_F64; }

// -- activations ---------------------------------------------------------------------------------
// f32: results under 2^-126 may flush to zero (rcp.approx.ftz saves three instructions).
__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float sigmoid(float x) { return rcp_approx(1.0f + expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
template <class T> __device__ __forceinline__ T silu(T x) { return x * sigmoid(x); }
// x Phi(x), with Phi(-|x|) = exp(-x^2 / 2) P(t), t = 1 / (1 + 0.3 |x|): P is the minimax polynomial
// of degree 8 without constant term, relative error 1.5e-7 down to where the result underflows.
__device__ __forceinline__ float gelu(float x) {
  float t = rcp_approx(fmaf(0.3f, fabsf(x), 1.0f));
  float p = 0.0356748328f;
  p = fmaf(p, t, -0.157203317f);
  p = fmaf(p, t, 0.206353888f);
  p = fmaf(p, t, -0.0536839850f);
  p = fmaf(p, t, 0.128561795f);
  p = fmaf(p, t, 0.0999134406f);
  p = fmaf(p, t, 0.120753966f);
  p = fmaf(p, t, 0.119629301f);
  float tail = p * t * exp2_approx(x * x * -0.721347520f);
  return x * (x < 0.0f ? tail : 1.0f - tail);
}
__device__ __forceinline__ double gelu(double x) {
  return x * (0.5 * erfc(x * -0.70710678118654752));
}
// x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation for x << 0. log2(e) is folded in.
__device__ __forceinline__ float gelu_tanh(float x) {
  float t = x * fmaf(-0.102943240f, x * x, -2.30220819f);
  return x * rcp_approx(1.0f + exp2_approx(t));
}
__device__ __forceinline__ double gelu_tanh(double x) {
  return x * sigmoid(x * (1.5957691216057308 + 0.071354816272600248 * x * x));
}

// -- other float functions -----------------------------------------------------------------------
__device__ __forceinline__ float frac(float x) { return x - truncf(x); }
__device__ __forceinline__ double frac(double x) { return x - trunc(x); }
__device__ __forceinline__ float rcp_up(float x) { return __frcp_ru(x); }
__device__ __forceinline__ double rcp_up(double x) { return __drcp_ru(x); }
__device__ __forceinline__ float mul_up(float a, float b) { return __fmul_ru(a, b); }
__device__ __forceinline__ double mul_up(double a, double b) { return __dmul_ru(a, b); }
// What is left of a number when the quotient, one too large at most, is taken off. It is a multiple of
// the last bit of the divisor in [-divisor, divisor), which is exact.
template <class T> __device__ __forceinline__ T rest_of(T rest, T quotient, T divisor) {
  rest = fma(-trunc(quotient), divisor, rest);
  return rest < (T)0 ? rest + divisor : rest;
}
// Not fmodf and fmod of CUDA, whose loops bear no directive. Quotients of few bits are divided once;
// others by long division of mantissas in [1, 2), some bits of the quotient, rounded up, a trip.
template <class T> __device__ __forceinline__ T fmod_of(T a, T b) {
  T rest = fabs(a), divisor = fabs(b);
  if (!is_finite(rest) || !(divisor > (T)0)) return (a * b) / (a * b);
  if (rest < divisor) return a;
  const T few = sizeof(T) == 4 ? (T)0x1p20 : (T)0x1p49;
  T quotient = rest / divisor;
  if (quotient < few) return copysign(rest_of(rest, quotient, divisor), a);
  int scale = ilogb(divisor), bits = ilogb(rest) - scale;
  divisor = scalbn(divisor, -scale);
  rest = scalbn(rest, -scale - bits);
  T inverse = rcp_up(divisor);
#pragma unroll 1
  do {
    int some = min(bits, sizeof(T) == 4 ? 20 : 30);
    rest *= (T)(1 << some);
    rest = rest_of(rest, mul_up(rest, inverse), divisor);
    bits -= some;
  } while (bits > 0);
  return copysign(scalbn(rest, scale), a);
}
template <class T> __device__ __forceinline__ T remainder_of(T a, T b) {
  T rest = fmod_of(a, b);
  return rest != (T)0 && (rest < (T)0) != (b < (T)0) ? rest + b : rest;
}
// Products that no addition contracts into an fma: lerp rounds each step, as NumPy does.
__device__ __forceinline__ float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double mul_rn(double a, double b) { return __dmul_rn(a, b); }
template <class T> __device__ __forceinline__ T lerp(T a, T b, T weight) {
  return weight < (T)0.5 ? a + mul_rn(weight, b - a) : b - mul_rn(b - a, (T)1 - weight);
}
