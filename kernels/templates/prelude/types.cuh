// Element types and their special values. Reduced floats hold bits; convert.cuh computes on them.
typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e4m3 { u8 bits; };
struct f8e5m2 { u8 bits; };
struct alignas(64) CUtensorMap { u64 opaque[16]; };

#define INF_F32 __int_as_float(0x7f800000)
#define NAN_F32 __int_as_float(0x7fc00000)
#define INF_F64 __longlong_as_double(0x7ff0000000000000ll)
#define NAN_F64 __longlong_as_double(0x7ff8000000000000ll)
