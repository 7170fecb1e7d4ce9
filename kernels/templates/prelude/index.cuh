// min and max of index expressions in kernels with 64-bit indices, where literals stay int: CUDA's
// own overloads are ambiguous there.

__device__ __forceinline__ long long min(long long a, int b) { return min(a, (long long)b); }
__device__ __forceinline__ long long min(int a, long long b) { return min((long long)a, b); }
__device__ __forceinline__ long long max(long long a, int b) { return max(a, (long long)b); }
__device__ __forceinline__ long long max(int a, long long b) { return max((long long)a, b); }

// The same number, of which the compiler knows nothing: it moves no test of it out of a loop.
__device__ __forceinline__ int opaque(int number) {
  asm volatile("" : "+r"(number));
  return number;
}
__device__ __forceinline__ long long opaque(long long number) {
  asm volatile("" : "+l"(number));
  return number;
}
