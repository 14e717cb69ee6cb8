/* How one op is done on one type: what kernels-pass.cuh goes over the elements with.
 *
 * Each has the types Stored (of the inputs), Wide (in which they are combined) and Output, and
 *   begin(a, v, i)          what the first input that is read makes
 *   combine(a, sum, v, i)   what another one adds to it; v is of input i
 *   finish(a, sum)          the result.
 * Where is_weighted is true an input of weight 0 is not read, and the sum begins with start(a). */
#pragma once

#include "backends/cuda/kernels-place.cuh"

/* --- the types in which is combined --- */

/* Integers that wrap do so in unsigned ones of at least 32 bits, which C++ defines. */
template <class T> struct WideOf { typedef uint32_t Type; };
template <> struct WideOf<uint64_t> { typedef uint64_t Type; };
template <> struct WideOf<f16> { typedef f32 Type; };
template <> struct WideOf<bf16> { typedef f32 Type; };
template <> struct WideOf<f32> { typedef f32 Type; };
template <> struct WideOf<f64> { typedef f64 Type; };
template <class T> struct WideOf<Pair<T>> { typedef Pair<T> Type; };

#define DEFINE_WRAPPING(type)                                                                                \
        INLINE WideOf<type>::Type widen(type v) {                                                            \
                return v;                                                                                    \
        }                                                                                                    \
        INLINE void narrow(WideOf<type>::Type wide, type *ret) {                                             \
                *ret = (type)wide;                                                                           \
        }

DEFINE_WRAPPING(uint8_t)
DEFINE_WRAPPING(uint16_t)
DEFINE_WRAPPING(uint32_t)
DEFINE_WRAPPING(uint64_t)

template <class T> INLINE Pair<T> widen(Pair<T> v) {
        return v;
}

template <class T> INLINE void narrow(Pair<T> wide, Pair<T> *ret) {
        *ret = wide;
}

template <class T> INLINE T add(T a, T b) {
        return a + b;
}

template <class T> INLINE Pair<T> add(Pair<T> a, Pair<T> b) {
        return { a.real + b.real, a.imaginary + b.imaginary };
}

template <class T> INLINE T multiply(T a, T b) {
        return a * b;
}

/* Each operation rounded by itself. */
template <class T> INLINE Pair<T> multiply(Pair<T> a, Pair<T> b) {
        return { a.real * b.real + -(a.imaginary * b.imaginary),
                a.real * b.imaginary + a.imaginary * b.real };
}

INLINE f32 divide(f32 sum, uint32_t divisor) {
        return sum / (f32)divisor;
}

INLINE f64 divide(f64 sum, uint32_t divisor) {
        return sum / (f64)divisor;
}

template <class T> INLINE Pair<T> divide(Pair<T> sum, uint32_t divisor) {
        return { divide(sum.real, divisor), divide(sum.imaginary, divisor) };
}

/* --- ops --- */

template <class T> struct Plain {
        typedef T Stored;
        typedef T Output;
        typedef typename WideOf<T>::Type Wide;
        static const bool is_weighted = false;
        INLINE Wide start(const cuda_args &) {
                return Wide();
        }
        INLINE Wide begin(const cuda_args &, T v, uint32_t) {
                return widen(v);
        }
        INLINE T finish(const cuda_args &, Wide sum) {
                T result;
                narrow(sum, &result);
                return result;
        }
};

template <class T> struct Sum : Plain<T> {
        typedef typename WideOf<T>::Type Wide;
        INLINE Wide combine(const cuda_args &, Wide sum, T v, uint32_t) {
                return add(sum, widen(v));
        }
};

template <class T> struct Mean : Sum<T> {
        INLINE T finish(const cuda_args &a, typename WideOf<T>::Type sum) {
                T result;
                narrow(divide(sum, a.divisor), &result);
                return result;
        }
};

template <class T> struct Product : Plain<T> {
        typedef typename WideOf<T>::Type Wide;
        INLINE Wide combine(const cuda_args &, Wide product, T v, uint32_t) {
                return multiply(product, widen(v));
        }
};

/* Halves to a partial result, which is left in the type in which it is made. */
template <class P> struct Partial : P {
        typedef typename P::Wide Output;
        INLINE Output finish(const cuda_args &, Output sum) {
                return sum;
        }
};

/* Of sums that are there already: in the type in which they were made, to the one that they are for. A
 * divisor of 0: no division. */
template <class T> struct Finish : Sum<f32> {
        typedef T Output;
        INLINE T finish(const cuda_args &a, f32 sum) {
                T result;
                narrow(a.divisor ? divide(sum, a.divisor) : sum, &result);
                return result;
        }
};

template <class T> struct FinishProduct : Product<f32> {
        typedef T Output;
        INLINE T finish(const cuda_args &, f32 product) {
                T result;
                narrow(product, &result);
                return result;
        }
};

/* What needs no other type than its own. */
template <class T> struct Kept {
        typedef T Stored;
        typedef T Output;
        typedef T Wide;
        static const bool is_weighted = false;
        INLINE T start(const cuda_args &) {
                return T();
        }
        INLINE T begin(const cuda_args &, T v, uint32_t) {
                return v;
        }
        INLINE T finish(const cuda_args &, T result) {
                return result;
        }
};

template <class T> struct Copy : Kept<T> {
        INLINE T combine(const cuda_args &, T first, T, uint32_t) {
                return first;
        }
};

template <class T> struct And : Kept<T> {
        INLINE T combine(const cuda_args &, T all, T v, uint32_t) {
                return all & v;
        }
};

template <class T> struct Or : Kept<T> {
        INLINE T combine(const cuda_args &, T all, T v, uint32_t) {
                return all | v;
        }
};

template <class T> struct Xor : Kept<T> {
        INLINE T combine(const cuda_args &, T all, T v, uint32_t) {
                return all ^ v;
        }
};

/* Any byte but 0 is true; true is written as 1. */
struct Truth : Kept<uint8_t> {
        INLINE uint8_t begin(const cuda_args &, uint8_t v, uint32_t) {
                return v != 0;
        }
};

struct LogicalAnd : Truth {
        INLINE uint8_t combine(const cuda_args &, uint8_t all, uint8_t v, uint32_t) {
                return all & (v != 0);
        }
};

struct LogicalOr : Truth {
        INLINE uint8_t combine(const cuda_args &, uint8_t all, uint8_t v, uint32_t) {
                return all | (v != 0);
        }
};

/* --- minimum and maximum: floats as integers of their order, where a NaN is one that wins --- */

template <class T> struct OrderOf {
        typedef T Wide;
        template <int winner> INLINE T enter(T v) {
                return v;
        }
        INLINE T leave(T v) {
                return v;
        }
};

template <class T> struct FloatOrder {
        typedef FloatBits<T> B;
        typedef typename B::Integer Wide;
        template <int winner> INLINE Wide enter(T v) {
                Wide bits = bits_as<Wide>(v);
                return is_nan<B>(bits) ? (Wide)(winner < 0 ? -B::most - 1 : B::most) : order<B>(bits);
        }
        INLINE T leave(Wide bits) {
                return bits_as<T>(order<B>(bits));
        }
};
template <> struct OrderOf<f16> : FloatOrder<f16> {};
template <> struct OrderOf<bf16> : FloatOrder<bf16> {};
template <> struct OrderOf<f32> : FloatOrder<f32> {};
template <> struct OrderOf<f64> : FloatOrder<f64> {};

template <class T, int winner> struct Extreme {
        typedef T Stored;
        typedef T Output;
        typedef typename OrderOf<T>::Wide Wide;
        static const bool is_weighted = false;
        INLINE Wide start(const cuda_args &) {
                return Wide();
        }
        INLINE Wide begin(const cuda_args &, T v, uint32_t) {
                return OrderOf<T>::template enter<winner>(v);
        }
        INLINE Wide combine(const cuda_args &, Wide a, T v, uint32_t) {
                Wide b = OrderOf<T>::template enter<winner>(v);
                return winner < 0 ? (b < a ? b : a) : (b > a ? b : a);
        }
        INLINE T finish(const cuda_args &, Wide winning) {
                return OrderOf<T>::leave(winning);
        }
};

template <class T> struct Least : Extreme<T, -1> {};
template <class T> struct Most : Extreme<T, 1> {};
