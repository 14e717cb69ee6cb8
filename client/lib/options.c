#include "lib/options.h"

#include "lib/arguments.h"
#include "lib/work.h"

static void take_timeout(double seconds, struct half_options *ret) {
        ret->has_timeout = seconds != 0;
        if (seconds > 0 && seconds < 1e9) /* beyond thirty years there is no deadline */
                ret->timeout_ns = seconds < 1e-9 ? 1 : ns_of_seconds(seconds);
}

/* What this version does not know goes out as the first number beyond the list, for tuttid to refuse. */
static int word_on_wire(unsigned int word, unsigned int last) {
        return (int)(word <= last ? word : last + 1);
}

static void take_ways(const struct tutti_options *given, struct options *ret) {
        ret->algorithm = given->algorithm ? algorithm_parse(given->algorithm) : ALGORITHM_UNSPECIFIED;
        ret->has_place = given->device != NULL;
        ret->place = given->device ? device_parse(given->device) : 0;
        ret->implementation = word_on_wire(given->implementation, IMPLEMENTATION_NCCL);
        ret->reproducible = given->reproducible;
        ret->packing = (struct packing){ .num_packs = given->num_packs,
                .small_bytes = given->agg_small_grads_max_bytes,
                .small_group = given->agg_small_grads_max_group,
                .bytes_per_pack = given->bytes_per_pack };
        ret->priority = given->priority;
}

enum status options_take(const struct tutti_options *given, struct half_options *ret, struct error *err) {
        struct tutti_options options;
        *ret = (struct half_options){ 0 };
        if (!given)
                return STATUS_OK;
        if (!arguments_copy(&ARGUMENTS_SINCE(&options, check_inputs), given, given->struct_size))
                return refuse(err, STATUS_INVALID, FIELD_OPTIONS,
                        "the options have struct_size %zu; begin them with TUTTI_OPTIONS or "
                        "tutti_options_init",
                        given->struct_size);
        if (options.timeout != options.timeout)
                return refuse(err, STATUS_INVALID, FIELD_TIMEOUT, "the timeout is not a number");
        take_timeout(options.timeout, ret);
        ret->options = (struct options){ .rounding = word_on_wire(options.rounding, ROUNDING_NEAREST),
                .has_weight = options.has_weight,
                .weight = options.has_weight ? options.weight : 0,
                .check_numerics = options.check_numerics,
                .check_overflow = options.check_overflow,
                .check_inputs = options.check_inputs,
                .coalesce = options.coalesce };
        take_ways(&options, &ret->options);
        ret->reset = options.reset;
        ret->has_stream = options.has_stream;
        ret->stream = options.stream;
        return STATUS_OK;
}

/* --- merging --- */

static bool has_packing(const struct packing *p) {
        return p->num_packs || p->small_bytes || p->small_group || p->bytes_per_pack;
}

static void merge_ways(const struct options *base, uint64_t reset, struct options *call) {
        if (!(reset & TUTTI_RESET_ALGORITHM) && call->algorithm == ALGORITHM_UNSPECIFIED &&
                !call->has_place) {
                call->algorithm = base->algorithm;
                call->has_place = base->has_place;
                call->place = base->place;
        }
        if (!(reset & TUTTI_RESET_IMPLEMENTATION) && (call->implementation == IMPLEMENTATION_UNSPECIFIED ||
                                                             call->implementation == IMPLEMENTATION_AUTO))
                call->implementation = base->implementation;
        if (!(reset & TUTTI_RESET_REPRODUCIBLE))
                call->reproducible |= base->reproducible;
        if (!(reset & TUTTI_RESET_PACKING) && !has_packing(&call->packing))
                call->packing = base->packing;
        if (!(reset & TUTTI_RESET_PRIORITY) && call->priority == 0)
                call->priority = base->priority;
}

/* A mean of integers that stays one. */
static bool is_rounded(const struct options_use *use) {
        return kind_reduces(use->kind) && use->op == OP_MEAN && use->entry &&
               dtype_is_integer(use->entry->dtype) && entry_output_dtype(use->entry) == use->entry->dtype;
}

static bool is_weighted(const struct options_use *use) {
        return kind_reduces(use->kind) && (use->op == OP_SUM || use->op == OP_MEAN);
}

static void merge_arithmetic(
        const struct options *base, const struct options_use *use, uint64_t reset, struct options *call) {
        if (!(reset & TUTTI_RESET_COALESCE) && kind_reduces(use->kind))
                call->coalesce |= base->coalesce;
        if (!(reset & TUTTI_RESET_ROUNDING) && call->rounding == ROUNDING_UNSPECIFIED && is_rounded(use))
                call->rounding = base->rounding;
        if (!(reset & TUTTI_RESET_WEIGHT) && !call->has_weight && is_weighted(use)) {
                call->has_weight = base->has_weight;
                call->weight = base->weight;
        }
        if (reset & TUTTI_RESET_CHECKS)
                return;
        call->check_numerics |= base->check_numerics;
        call->check_overflow |= base->check_overflow;
        call->check_inputs |= base->check_inputs;
}

void options_merge(
        const struct half_options *base, const struct options_use *use, struct half_options *call) {
        if (!(call->reset & TUTTI_RESET_TIMEOUT) && !call->has_timeout) {
                call->has_timeout = base->has_timeout;
                call->timeout_ns = base->timeout_ns;
        }
        merge_arithmetic(&base->options, use, call->reset, &call->options);
        merge_ways(&base->options, call->reset, &call->options);
}
