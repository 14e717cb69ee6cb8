/* Which kernel runs; and copies, which are the same everywhere. */
#include "backends/host/kernels.h"

#include <string.h>
#include "backends/host/kernels-tables.h"
#include "base/check.h"

/* What is copied to several places is read once from far and then from the first-level cache. */
#define COPY_BLOCK_BYTES 8192

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

void kernels_reduce(enum isa isa, const struct kernel_call *call) {
        const struct kernel_table *table = isa == ISA_SCALAR ? &kernel_table_scalar : kernel_table_find(isa);
        CHECK(table && call->n_inputs >= 1 && (call->op != OP_MEAN || call->divisor >= 1));
        CHECK(call->dtype < N_DTYPE && call->op < N_OP && table->reduce[call->dtype][call->op]);
        table->reduce[call->dtype][call->op](call);
}

/* A root that receives its own value in place has nothing to copy. */
static void copy_block(const struct kernel_call *call, size_t at, size_t n) {
        const uint8_t *from = call->inputs[0];
        for (uint32_t i = 0; i < call->n_outputs; i++) {
                uint8_t *to = call->outputs[i];
                if (to != from)
                        memcpy(to + at, from + at, n);
        }
}

void kernels_copy(enum isa isa, const struct kernel_call *call) {
        (void)isa;
        size_t n_bytes = call->count * dtype_bytes(call->dtype);
        size_t block = call->n_outputs > 1 ? COPY_BLOCK_BYTES : n_bytes;
        for (size_t at = 0; at < n_bytes; at += block)
                copy_block(call, at, n_bytes - at < block ? n_bytes - at : block);
}
