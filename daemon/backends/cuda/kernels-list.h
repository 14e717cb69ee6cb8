/* Every kernel by name, once: X(name, how it is made). The second is read by kernels.cu alone. */
#pragma once

#define CUDA_INTEGER_REDUCTIONS(X, bits)                                                                     \
        X(sum_##bits, Sum<uint##bits##_t>)                                                                   \
        X(prod_##bits, Product<uint##bits##_t>)                                                              \
        X(min_u##bits, Least<uint##bits##_t>)                                                                \
        X(max_u##bits, Most<uint##bits##_t>)                                                                 \
        X(min_i##bits, Least<int##bits##_t>)                                                                 \
        X(max_i##bits, Most<int##bits##_t>)                                                                  \
        X(and_##bits, And<uint##bits##_t>)                                                                   \
        X(or_##bits, Or<uint##bits##_t>)                                                                     \
        X(xor_##bits, Xor<uint##bits##_t>)                                                                   \
        X(mean_u##bits, RoundedMean<uint##bits##_t>)                                                         \
        X(mean_i##bits, RoundedMean<int##bits##_t>)                                                          \
        X(quotient_u##bits, FloatMean<uint##bits##_t>)                                                       \
        X(quotient_i##bits, FloatMean<int##bits##_t>)

#define CUDA_FLOAT_REDUCTIONS(X, type)                                                                       \
        X(sum_##type, Sum<type>)                                                                             \
        X(mean_##type, Mean<type>)                                                                           \
        X(prod_##type, Product<type>)                                                                        \
        X(min_##type, Least<type>)                                                                           \
        X(max_##type, Most<type>)                                                                            \
        X(weighted_##type, Weighted<type>)

#define CUDA_COMPLEX_REDUCTIONS(X, type)                                                                     \
        X(sum_##type, Sum<type>)                                                                             \
        X(mean_##type, Mean<type>)                                                                           \
        X(prod_##type, Product<type>)

/* What combines inputs: struct cuda_args. Each is there over axes too. */
#define CUDA_REDUCTIONS(X)                                                                                   \
        CUDA_INTEGER_REDUCTIONS(X, 8)                                                                        \
        CUDA_INTEGER_REDUCTIONS(X, 16)                                                                       \
        CUDA_INTEGER_REDUCTIONS(X, 32)                                                                       \
        CUDA_INTEGER_REDUCTIONS(X, 64)                                                                       \
        CUDA_FLOAT_REDUCTIONS(X, f16)                                                                        \
        CUDA_FLOAT_REDUCTIONS(X, bf16)                                                                       \
        CUDA_FLOAT_REDUCTIONS(X, f32)                                                                        \
        CUDA_FLOAT_REDUCTIONS(X, f64)                                                                        \
        CUDA_COMPLEX_REDUCTIONS(X, c64)                                                                      \
        CUDA_COMPLEX_REDUCTIONS(X, c128)                                                                     \
        X(land_bool, LogicalAnd)                                                                             \
        X(lor_bool, LogicalOr)

/* What goes over elements: struct cuda_args. */
#define CUDA_ELEMENT_KERNELS(X)                                                                              \
        CUDA_REDUCTIONS(X)                                                                                   \
        X(copy_8, Copy<uint8_t>)                                                                             \
        X(copy_16, Copy<uint16_t>)                                                                           \
        X(copy_32, Copy<uint32_t>)                                                                           \
        X(copy_64, Copy<uint64_t>)                                                                           \
        X(copy_f16, Copy<f16>)                                                                               \
        X(copy_bf16, Copy<bf16>)                                                                             \
        X(copy_f32, Copy<f32>)                                                                               \
        X(copy_f64, Copy<f64>)                                                                               \
        X(copy_c64, Copy<c64>)                                                                               \
        X(copy_c128, Copy<c128>)                                                                             \
        X(partial_sum_f16, Partial<Sum<f16>>)                                                                \
        X(partial_sum_bf16, Partial<Sum<bf16>>)                                                              \
        X(partial_prod_f16, Partial<Product<f16>>)                                                           \
        X(partial_prod_bf16, Partial<Product<bf16>>)                                                         \
        X(total_prod_f16, FinishProduct<f16>)                                                                \
        X(total_prod_bf16, FinishProduct<bf16>)                                                              \
        X(finish_f16, Finish<f16>)                                                                           \
        X(finish_bf16, Finish<bf16>)

#define CUDA_INTEGER_ROWS(X, bits)                                                                           \
        X(sum_##bits, Sum<uint##bits##_t>)                                                                   \
        X(min_u##bits, Least<uint##bits##_t>)                                                                \
        X(max_u##bits, Most<uint##bits##_t>)                                                                 \
        X(min_i##bits, Least<int##bits##_t>)                                                                 \
        X(max_i##bits, Most<int##bits##_t>)

#define CUDA_FLOAT_ROWS(X, type)                                                                             \
        X(sum_##type, Sum<type>)                                                                             \
        X(mean_##type, Mean<type>)                                                                           \
        X(min_##type, Least<type>)                                                                           \
        X(max_##type, Most<type>)

/* What combines sparse rows of equal index: struct cuda_args. */
#define CUDA_ROW_KERNELS(X)                                                                                  \
        CUDA_INTEGER_ROWS(X, 8)                                                                              \
        CUDA_INTEGER_ROWS(X, 16)                                                                             \
        CUDA_INTEGER_ROWS(X, 32)                                                                             \
        CUDA_INTEGER_ROWS(X, 64)                                                                             \
        CUDA_FLOAT_ROWS(X, f16)                                                                              \
        CUDA_FLOAT_ROWS(X, bf16)                                                                             \
        CUDA_FLOAT_ROWS(X, f32)                                                                              \
        CUDA_FLOAT_ROWS(X, f64)                                                                              \
        X(sum_c64, Sum<c64>)                                                                                 \
        X(mean_c64, Mean<c64>)                                                                               \
        X(sum_c128, Sum<c128>)                                                                               \
        X(mean_c128, Mean<c128>)

/* What counts results beyond their type, and writes none: struct cuda_args. */
#define CUDA_COUNTING_KERNELS(X)                                                                             \
        X(wrapped_u8, uint8_t)                                                                               \
        X(wrapped_i8, int8_t)                                                                                \
        X(wrapped_u16, uint16_t)                                                                             \
        X(wrapped_i16, int16_t)                                                                              \
        X(wrapped_u32, uint32_t)                                                                             \
        X(wrapped_i32, int32_t)                                                                              \
        X(wrapped_u64, uint64_t)                                                                             \
        X(wrapped_i64, int64_t)

/* The others: X(name, what it is made with, its parameter). */
#define CUDA_OTHER_KERNELS(X)                                                                                \
        X(move, move, cuda_move_args)                                                                        \
        X(take_indices, take_indices, cuda_indices_args)                                                     \
        X(tell_index, tell_index, cuda_indices_args)                                                         \
        X(order_sort, order_sort, cuda_order_args)                                                           \
        X(order_merge, order_merge, cuda_order_args)                                                         \
        X(order_count, order_count, cuda_order_args)                                                         \
        X(order_number, order_number, cuda_order_args)                                                       \
        X(order_write, order_write, cuda_order_args)                                                         \
        X(order_place, order_place, cuda_order_args)                                                         \
        X(fill, fill, cuda_pattern_args)                                                                     \
        X(verify, verify, cuda_pattern_args)
