/* The element types of kernels.cu, and what is done to one element alone: widening, rounding, ordering,
 * looking for what is not finite. Bits as in backends/host/kernels-impl.h, which says why. */
#pragma once

#include <stdint.h>
#include <string.h>

#define INLINE static __forceinline__ __device__
/* What is long and not for the fast path: once, not in every kernel. */
#define APART static __noinline__ __device__

typedef float f32;
typedef double f64;
typedef __int128 int128;

struct f16 {
        uint16_t bits;
};
struct bf16 {
        uint16_t bits;
};
/* A complex number, aligned as its parts are. */
template <class T> struct Pair { T real, imaginary; };
typedef Pair<f32> c64;
typedef Pair<f64> c128;

template <class To, class From> INLINE To bits_as(From from) {
        static_assert(sizeof(To) == sizeof(From), "the same bits");
        To to;
        memcpy(&to, &from, sizeof(to));
        return to;
}

/* --- halves: exact one way, rounded to nearest-even the other; subnormals are kept --- */

INLINE f32 widen(f16 half) {
#ifdef __CUDA_ARCH__
        f32 single;
        asm("cvt.f32.f16 %0, %1;" : "=f"(single) : "h"(half.bits));
        return single;
#else
        uint32_t sign = (uint32_t)(half.bits & 0x8000) << 16;
        f32 magnitude = bits_as<f32>((uint32_t)(half.bits & 0x7fff) << 13) * 0x1p112f;
        uint32_t special = magnitude >= 0x1p16f ? 0x7f800000 : 0;
        return bits_as<f32>(bits_as<uint32_t>(magnitude) | special | sign);
#endif
}

INLINE void narrow(f32 wide, f16 *ret) {
#ifdef __CUDA_ARCH__
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(ret->bits) : "f"(wide));
#else
        uint32_t bits = bits_as<uint32_t>(wide), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
        uint32_t half;
        if (magnitude > 0x7f800000)
                half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
        else if (magnitude >= 0x477ff000)
                half = 0x7c00;
        else if (magnitude < 0x38800000)
                half = bits_as<uint32_t>(bits_as<f32>(magnitude) + 0.5f) - 0x3f000000;
        else
                half = (magnitude + 0xc8000fff + ((magnitude >> 13) & 1)) >> 13;
        ret->bits = (uint16_t)(half | sign);
#endif
}

INLINE f32 widen(bf16 half) {
        return bits_as<f32>((uint32_t)half.bits << 16);
}

INLINE void narrow(f32 wide, bf16 *ret) {
        uint32_t bits = bits_as<uint32_t>(wide);
        bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
        ret->bits = (uint16_t)(is_nan ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* To f32 so that one more rounding, to a half, does what a single one would have done. */
INLINE f32 round_to_odd(f64 value) {
        f32 nearest = (f32)value;
        f64 exact = value < 0 ? -value : value, reached = (f64)nearest < 0 ? -(f64)nearest : (f64)nearest;
        uint32_t bits = bits_as<uint32_t>(nearest), is_even = ~bits & 1;
        bits += is_even & (reached < exact);
        bits -= is_even & (reached > exact);
        return bits_as<f32>(bits);
}

/* Everything as its kernel combines it: halves as f32, the rest as it is. */
INLINE f32 widen(f32 v) {
        return v;
}

INLINE f64 widen(f64 v) {
        return v;
}

INLINE void narrow(f32 wide, f32 *ret) {
        *ret = wide;
}

INLINE void narrow(f64 wide, f64 *ret) {
        *ret = wide;
}

/* From f64 with a single rounding. */
INLINE void narrow_once(f64 wide, f16 *ret) {
        narrow(round_to_odd(wide), ret);
}

INLINE void narrow_once(f64 wide, bf16 *ret) {
        narrow(round_to_odd(wide), ret);
}

INLINE void narrow_once(f64 wide, f32 *ret) {
        *ret = (f32)wide;
}

INLINE void narrow_once(f64 wide, f64 *ret) {
        *ret = wide;
}

/* --- floats as integers of the same order --- */

template <class T> struct FloatBits;
template <> struct FloatBits<f16> {
        typedef int16_t Integer;
        static const int16_t infinity = 0x7c00, most = INT16_MAX;
};
template <> struct FloatBits<bf16> {
        typedef int16_t Integer;
        static const int16_t infinity = 0x7f80, most = INT16_MAX;
};
template <> struct FloatBits<f32> {
        typedef int32_t Integer;
        static const int32_t infinity = 0x7f800000, most = INT32_MAX;
};
template <> struct FloatBits<f64> {
        typedef int64_t Integer;
        static const int64_t infinity = INT64_C(0x7ff0000000000000), most = INT64_MAX;
};

/* The magnitude of a negative one is complemented, which puts -0 right below +0; doing it again undoes it. */
template <class B> INLINE typename B::Integer order(typename B::Integer bits) {
        return (typename B::Integer)(bits < 0 ? bits ^ B::most : bits);
}

template <class B> INLINE bool is_nan(typename B::Integer bits) {
        return (bits & B::most) > B::infinity;
}

/* --- what is not finite: an exponent of all ones --- */

template <class T> INLINE bool is_nonfinite(T) {
        return false; /* integers and truths are always finite */
}

template <class T> INLINE bool has_full_exponent(T v) {
        typedef FloatBits<T> B;
        return (bits_as<typename B::Integer>(v) & B::infinity) == B::infinity;
}

INLINE bool is_nonfinite(f16 v) {
        return has_full_exponent(v);
}

INLINE bool is_nonfinite(bf16 v) {
        return has_full_exponent(v);
}

INLINE bool is_nonfinite(f32 v) {
        return has_full_exponent(v);
}

INLINE bool is_nonfinite(f64 v) {
        return has_full_exponent(v);
}

template <class T> INLINE bool is_nonfinite(Pair<T> v) {
        return has_full_exponent(v.real) || has_full_exponent(v.imaginary);
}

/* --- the checksum of an element and its index, as model/checksum.c makes it --- */

INLINE uint64_t mix(uint64_t index, uint64_t bits) {
        uint64_t z = bits ^ ((index + 1) * UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        return (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
}

template <class T> INLINE uint64_t checksum(uint64_t index, T v) {
        uint64_t bits = 0;
        memcpy(&bits, &v, sizeof(v)); /* little-endian, as every host with such a device is */
        return mix(index, bits);
}

INLINE uint64_t checksum(uint64_t index, c128 v) {
        return mix(2 * index, bits_as<uint64_t>(v.real)) + mix(2 * index + 1, bits_as<uint64_t>(v.imaginary));
}
