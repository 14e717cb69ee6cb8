/* Sums that are wider than their elements: weighted ones in f64, means of integers in integers, and the
 * search for results beyond their type. Included behind kernels-arithmetic.cuh. */
#pragma once

/* --- weights --- */

/* -0 is where a sum begins that must keep the sign of a zero; a sum of nothing is +0. */
template <class T> struct Weighted {
        typedef T Stored;
        typedef T Output;
        typedef f64 Wide;
        static const bool is_weighted = true;
        INLINE f64 start(const cuda_args &a) {
                return a.total_weight > 0 ? -0.0 : 0.0;
        }
        INLINE f64 begin(const cuda_args &a, T v, uint32_t i) {
                return combine(a, start(a), v, i);
        }
        INLINE f64 combine(const cuda_args &a, f64 sum, T v, uint32_t i) {
                return sum + weight_of(a, i) * (f64)widen(v);
        }
        INLINE T finish(const cuda_args &a, f64 sum) {
                T result;
                narrow_once(sum / a.quotient, &result);
                return result;
        }
};

/* --- exact sums --- */

/* A whole world of any of these types fits. */
template <class T> struct ExactOf {
        typedef int32_t Sum;
        typedef f32 Quotient;
};
template <> struct ExactOf<uint32_t> {
        typedef int64_t Sum;
        typedef f64 Quotient;
};
template <> struct ExactOf<int32_t> : ExactOf<uint32_t> {};
template <> struct ExactOf<uint64_t> {
        typedef int128 Sum;
        typedef f64 Quotient;
};
template <> struct ExactOf<int64_t> : ExactOf<uint64_t> {};

template <class T, class Sum = typename ExactOf<T>::Sum> struct Exact {
        typedef T Stored;
        typedef Sum Wide;
        static const bool is_weighted = false;
        INLINE Wide start(const cuda_args &) {
                return 0;
        }
        INLINE Wide begin(const cuda_args &, T v, uint32_t) {
                return (Wide)v;
        }
        INLINE Wide combine(const cuda_args &, Wide sum, T v, uint32_t) {
                return sum + (Wide)v;
        }
};

/* --- means of integers --- */

enum { TRUNC = 1, FLOOR = 2, NEAREST = 3 }; /* of enum rounding */

template <class Wide> INLINE Wide round_quotient(Wide sum, uint32_t by, uint32_t rounding) {
        Wide divisor = (Wide)by, cut = sum / divisor, rest = sum - cut * divisor;
        if (rounding == TRUNC)
                return cut;
        Wide floor = cut - (rest < 0);
        if (rounding == FLOOR)
                return floor;
        Wide twice = 2 * (sum - floor * divisor); /* 0 .. 2 * divisor - 1 */
        return floor + (twice > divisor) + ((twice == divisor) & (floor & 1));
}

template <class T, class Sum = typename ExactOf<T>::Sum> struct RoundedMean : Exact<T, Sum> {
        typedef T Output;
        INLINE T finish(const cuda_args &a, Sum sum) {
                return (T)round_quotient(sum, a.divisor, a.rounding);
        }
};

INLINE f64 to_f64(int32_t sum) {
        return (f64)sum;
}

INLINE f64 to_f64(int64_t sum) {
        return (f64)sum;
}

/* Rounded once: what is cut off above 64 bits leaves its trace in the last bit, far below those of an f64. */
INLINE f64 to_f64(int128 sum) {
        unsigned __int128 magnitude = sum < 0 ? -(unsigned __int128)sum : (unsigned __int128)sum;
        f64 scale = 1;
        while (magnitude >> 64) {
                magnitude = (magnitude >> 1) | (magnitude & 1);
                scale *= 2;
        }
        f64 value = (f64)(uint64_t)magnitude * scale;
        return sum < 0 ? -value : value;
}

/* The quotient in f64, then its type. */
template <class T, class Sum = typename ExactOf<T>::Sum> struct FloatMean : Exact<T, Sum> {
        typedef typename ExactOf<T>::Quotient Output;
        INLINE Output finish(const cuda_args &a, Sum sum) {
                return (Output)(to_f64(sum) / (f64)a.divisor);
        }
};

/* --- results beyond their type --- */

/* Whether the exact sum of one element of each input is beyond the type. */
template <class T> INLINE bool sum_wraps(const cuda_args &a, const Place &place) {
        typename ExactOf<T>::Sum sum = 0;
        ROLLED for (uint32_t i = 0; i < a.n_inputs; i++) sum +=
                (typename ExactOf<T>::Sum)load<T>(a, i, place);
        return (typename ExactOf<T>::Sum)(T)sum != sum;
}

/* The same of the product. A factor 0 makes up for all. */
template <class T> INLINE bool product_wraps(const cuda_args &a, const Place &place) {
        const uint64_t most = (T)-1 < (T)0 ? ((uint64_t)1 << (8 * sizeof(T) - 1)) - 1 : (uint64_t)(T)-1;
        uint64_t magnitude = 1;
        bool is_beyond = false, is_negative = false;
        ROLLED for (uint32_t i = 0; i < a.n_inputs; i++) {
                T factor = load<T>(a, i, place);
                if (factor == 0)
                        return false;
                bool is_below = factor < 1;
                uint64_t by = is_below ? 0 - (uint64_t)factor : (uint64_t)factor;
                is_negative ^= is_below;
                is_beyond |= (unsigned __int128)magnitude * by >> 64 != 0;
                magnitude *= by;
        }
        return is_beyond || magnitude > most + is_negative;
}
