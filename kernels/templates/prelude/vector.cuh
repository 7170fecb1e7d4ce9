// vec<T, N>: N elements in one naturally aligned register group, moved by one load or store.
// Needs types.cuh.

template <class T, int N> struct alignas(sizeof(T) * N) vec {
  T v[N];
  __device__ __forceinline__ T& operator[](int i) { return v[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
};

template <int Bytes> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef u16 type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

template <class T, int N> union VecWord {
  vec<T, N> elements;
  typename Word<sizeof(T) * N>::type word;
};

// p is aligned to sizeof(T) * N bytes: 1, 2, 4, 8 or 16.
template <class T, int N> __device__ __forceinline__ vec<T, N> load_vec(const T* p) {
  VecWord<T, N> u;
  u.word = *reinterpret_cast<const typename Word<sizeof(T) * N>::type*>(p);
  return u.elements;
}
template <class T, int N> __device__ __forceinline__ void store_vec(T* p, const vec<T, N>& x) {
  VecWord<T, N> u;
  u.elements = x;
  *reinterpret_cast<typename Word<sizeof(T) * N>::type*>(p) = u.word;
}
