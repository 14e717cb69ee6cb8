/* Which kernel runs; and copies, which are the same everywhere. */
#include "backends/host/kernels.h"

#include <string.h>
#include "backends/host/kernels-tables.h"
#include "base/check.h"
#include "model/rankset.h"

/* What is copied to several places is read once from far and then from the first-level cache. */
#define COPY_BLOCK_BYTES 8192

/* Of results that go past the caches: a quarter of the first-level one. */
#define STREAM_BLOCK_BYTES 8192

enum isa kernels_isa(enum isa wanted) {
        enum isa isa = wanted == ISA_AUTO ? ISA_AVX512 : wanted;
        while (isa > ISA_SCALAR && !kernel_table_find(isa))
                isa--;
        return isa;
}

const char *isa_name(enum isa isa) {
        switch (isa) {
        case ISA_AUTO: return "auto";
        case ISA_SCALAR: return "scalar";
        case ISA_AVX2: return "AVX2";
        case ISA_AVX512: return "AVX-512";
        }
        return "?";
}

static const struct kernel_table *table_of(enum isa isa) {
        const struct kernel_table *table = isa == ISA_SCALAR ? &kernel_table_scalar : kernel_table_find(isa);
        CHECK(table);
        return table;
}

/* NULL: it is not made in two goes, or its types are those of any other call. */
static kernel_fn *choose_in_tree(const struct kernel_table *table, const struct kernel_call *call) {
        size_t in = dtype_bytes(call->dtype), out = dtype_bytes(call->output_dtype);
        if (out == 0)
                return NULL;
        if (out > in && call->op != OP_MEAN)
                return call->weights ? table->weighted_partial[call->dtype] : table->partial[call->dtype];
        if (out < in)
                return call->weights ? table->weighted_total[call->output_dtype]
                                     : table->total[call->output_dtype];
        return NULL;
}

static kernel_fn *choose(const struct kernel_table *table, const struct kernel_call *call) {
        kernel_fn *in_tree = choose_in_tree(table, call);
        if (in_tree)
                return in_tree;
        if (call->weights)
                return table->weighted[call->dtype];
        if (call->nonfinite && table->checked[call->dtype][call->op])
                return table->checked[call->dtype][call->op];
        return table->reduce[call->dtype][call->op];
}

/* Block by block: what is combined stays in the first-level cache until it is on its way. */
static void reduce_streamed(kernel_fn *kernel, const struct kernel_call *call) {
        _Alignas(64) uint8_t block[STREAM_BLOCK_BYTES];
        const void *inputs[MAX_WORLD];
        void *const to_block = block;
        struct kernel_call part = *call;
        const size_t size = dtype_bytes(call->dtype), n_most = STREAM_BLOCK_BYTES / size;
        CHECK(call->n_inputs <= MAX_WORLD && !call->nonfinite);
        part.inputs = inputs;
        part.outputs = &to_block;
        part.n_outputs = 1;
        for (size_t at = 0; at < call->count; at += part.count) {
                part.count = call->count - at < n_most ? call->count - at : n_most;
                for (uint32_t i = 0; i < call->n_inputs; i++)
                        inputs[i] = (const uint8_t *)call->inputs[i] + at * size;
                kernel(&part);
                for (uint32_t i = 0; i < call->n_outputs; i++)
                        kernels_stream((uint8_t *)call->outputs[i] + at * size, block, part.count * size);
        }
        kernels_stream_end();
}

void kernels_reduce(enum isa isa, const struct kernel_call *call) {
        const struct kernel_table *table = table_of(isa);
        CHECK(call->n_inputs >= 1 && (call->op != OP_MEAN || call->divisor >= 1));
        CHECK(call->dtype < N_DTYPE && call->op < N_OP);
        kernel_fn *kernel = choose(table, call);
        CHECK(kernel);
        if (call->is_streamed)
                reduce_streamed(kernel, call);
        else
                kernel(call);
}

/* A root that receives its own value in place has nothing to copy. */
static void copy_block(const struct kernel_call *call, size_t at, size_t n) {
        const uint8_t *from = call->inputs[0];
        for (uint32_t i = 0; i < call->n_outputs; i++) {
                uint8_t *to = call->outputs[i];
                if (to == from)
                        continue;
                if (call->is_streamed)
                        kernels_stream(to + at, from + at, n);
                else
                        memcpy(to + at, from + at, n);
        }
}

void kernels_copy(enum isa isa, const struct kernel_call *call) {
        bool (*has_nonfinite)(const void *, size_t) =
                call->nonfinite ? table_of(isa)->has_nonfinite[call->dtype] : NULL;
        size_t n_bytes = call->count * dtype_bytes(call->dtype);
        size_t block = call->n_outputs > 1 || has_nonfinite ? COPY_BLOCK_BYTES : n_bytes;
        for (size_t at = 0; at < n_bytes; at += block) {
                size_t n = n_bytes - at < block ? n_bytes - at : block;
                if (has_nonfinite && has_nonfinite((const uint8_t *)call->inputs[0] + at, n))
                        kernels_note_input(call, 0, at, n);
                copy_block(call, at, n);
        }
        if (call->is_streamed)
                kernels_stream_end();
}

/* --- checks --- */

/* The bits that are all ones in a NaN and in an infinity; complex numbers have two such parts. */
static const struct {
        uint64_t exponent;
        size_t part_bytes;
} nonfinites[N_DTYPE] = {
        [DTYPE_F16] = { 0x7c00, 2 },
        [DTYPE_BF16] = { 0x7f80, 2 },
        [DTYPE_F32] = { 0x7f800000, 4 },
        [DTYPE_F64] = { 0x7ff0000000000000, 8 },
        [DTYPE_C64] = { 0x7f800000, 4 },
        [DTYPE_C128] = { 0x7ff0000000000000, 8 },
};

static bool is_nonfinite(enum dtype dtype, const uint8_t *element) {
        uint64_t exponent = nonfinites[dtype].exponent;
        size_t part_bytes = nonfinites[dtype].part_bytes;
        for (size_t at = 0; at < dtype_bytes(dtype); at += part_bytes) {
                uint64_t part = 0;
                for (size_t i = 0; i < part_bytes; i++)
                        part |= (uint64_t)element[at + i] << 8 * i;
                if ((part & exponent) == exponent)
                        return true;
        }
        return false;
}

void kernels_note_input(const struct kernel_call *call, uint32_t input, size_t at_bytes, size_t n_bytes) {
        size_t size = dtype_bytes(call->dtype);
        struct kernel_count *count = &call->nonfinite[input];
        for (size_t at = at_bytes; at < at_bytes + n_bytes; at += size)
                if (is_nonfinite(call->dtype, (const uint8_t *)call->inputs[input] + at) && count->n++ == 0)
                        count->first = at / size;
}

void kernels_note_nonfinite(const struct kernel_call *call, size_t at_bytes, size_t n_bytes) {
        for (uint32_t i = 0; i < call->n_inputs; i++)
                kernels_note_input(call, i, at_bytes, n_bytes);
}

struct kernel_count kernels_count_wrapped(enum isa isa, const struct kernel_call *call) {
        const struct kernel_table *table = table_of(isa);
        struct kernel_count found = { 0 };
        if (table->count_wrapped[call->dtype] && !call->weights)
                table->count_wrapped[call->dtype](call, &found);
        return found;
}
