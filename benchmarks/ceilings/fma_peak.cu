// The peak of float arithmetic: 16 independent chains of fused multiply-adds a thread.
extern "C" __global__ void __launch_bounds__(256) fma_peak(float* out, float a, float b,
                                                           int trips) {
  float v[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) v[k] = (float)(threadIdx.x + k);
  for (int t = 0; t < trips; ++t) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int k = 0; k < 16; ++k) v[k] = v[k] * a + b;
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int k = 0; k < 16; ++k) total += v[k];
  out[(long long)blockIdx.x * 256 + threadIdx.x] = total;
}
