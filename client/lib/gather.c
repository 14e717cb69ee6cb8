/* The collectives of tutti/axes.h. */
#include <tutti/axes.h>

#include "lib/arguments.h"
#include "lib/submit.h"

void tutti_gather_args_init(struct tutti_gather_args *args) {
        *args = TUTTI_GATHER(.key = NULL);
}

void tutti_reduce_scatter_args_init(struct tutti_reduce_scatter_args *args) {
        *args = TUTTI_REDUCE_SCATTER(.key = NULL);
}

void tutti_reduce_over_args_init(struct tutti_reduce_over_args *args) {
        *args = TUTTI_REDUCE_OVER(.key = NULL);
}

static enum tutti_status refuse_args(const char *what) {
        return thread_say(STATUS_INVALID, FIELD_SIZE,
                "the arguments of a %s are NULL, or do not begin with their size", what);
}

/* --- gather --- */

static enum tutti_status gather(
        struct tutti_group *g, const struct tutti_gather_args *args, struct tutti_work **ret) {
        struct half h = { .g = g,
                .kind = KIND_GATHER,
                .options = args->options,
                .entries = args->entries,
                .n_entries = args->n_entries,
                .stride_bytes = args->entries && args->n_entries ? args->entries->struct_size : 0,
                .axes = { &args->axis, 1 } };
        return submit(&h, args->key, ret);
}

enum tutti_status tutti_gather_start(
        struct tutti_group *g, const struct tutti_gather_args *given, struct tutti_work **ret) {
        struct tutti_gather_args args;
        if (!given || !arguments_copy(&ARGUMENTS(&args), given, given->struct_size))
                return refuse_args("gather");
        return gather(g, &args, ret);
}

enum tutti_status tutti_gather(struct tutti_group *g, const struct tutti_gather_args *given) {
        struct tutti_gather_args args;
        struct tutti_work *w = NULL;
        if (!given || !arguments_copy(&ARGUMENTS(&args), given, given->struct_size))
                return refuse_args("gather");
        enum tutti_status status = gather(g, &args, &w);
        return status == TUTTI_OK ? work_finish(w, args.ret_extents) : status;
}

enum tutti_status tutti_all_gather_start(struct tutti_group *g, const char *key, int32_t axis,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_options *options, struct tutti_work **ret) {
        const struct tutti_entry entry = TUTTI_ENTRY(.input = input, .output = output);
        return gather(g,
                &TUTTI_GATHER(.key = key, .axis = axis, .entries = &entry, .n_entries = 1,
                        .options = options),
                ret);
}

enum tutti_status tutti_all_gather(struct tutti_group *g, const char *key, int32_t axis,
        const struct tutti_value *input, const struct tutti_value *output, uint64_t *ret_extent) {
        struct tutti_work *w = NULL;
        enum tutti_status status = tutti_all_gather_start(g, key, axis, input, output, NULL, &w);
        return status == TUTTI_OK ? work_finish(w, ret_extent) : status;
}

/* --- reduce_scatter --- */

enum tutti_status tutti_reduce_scatter_start(
        struct tutti_group *g, const struct tutti_reduce_scatter_args *given, struct tutti_work **ret) {
        struct tutti_reduce_scatter_args args;
        if (!given || !arguments_copy(&ARGUMENTS(&args), given, given->struct_size))
                return refuse_args("reduce_scatter");
        struct half h = { .g = g,
                .kind = KIND_REDUCE_SCATTER,
                .op = half_op(args.op),
                .options = args.options,
                .entries = args.entries,
                .n_entries = args.n_entries,
                .stride_bytes = args.entries && args.n_entries ? args.entries->struct_size : 0,
                .axes = { &args.axis, 1 } };
        return submit(&h, args.key, ret);
}

enum tutti_status tutti_reduce_scatter(struct tutti_group *g, const struct tutti_reduce_scatter_args *args) {
        struct tutti_work *w = NULL;
        enum tutti_status status = tutti_reduce_scatter_start(g, args, &w);
        return status == TUTTI_OK ? work_finish(w, NULL) : status;
}

void tutti_share(uint64_t extent, uint32_t world, uint32_t rank, uint64_t *ret_first, uint64_t *ret_n) {
        uint64_t each = world ? extent / world : 0, more = world ? extent % world : 0;
        *ret_first = each * rank + (rank < more ? rank : more);
        *ret_n = rank < world ? each + (rank < more) : 0;
}

/* --- reduce over axes --- */

enum tutti_status tutti_reduce_over_start(
        struct tutti_group *g, const struct tutti_reduce_over_args *given, struct tutti_work **ret) {
        struct tutti_reduce_over_args args;
        if (!given || !arguments_copy(&ARGUMENTS(&args), given, given->struct_size))
                return refuse_args("reduction over axes");
        struct half h = { .g = g,
                .kind = args.n_entries == 1 ? KIND_REDUCE : KIND_BATCH_REDUCE,
                .op = half_op(args.op),
                .options = args.options,
                .entries = args.entries,
                .n_entries = args.n_entries,
                .stride_bytes = args.entries && args.n_entries ? args.entries->struct_size : 0,
                .axes = { args.axes, args.n_axes } };
        return submit(&h, args.key, ret);
}

enum tutti_status tutti_reduce_over(struct tutti_group *g, const struct tutti_reduce_over_args *args) {
        struct tutti_work *w = NULL;
        enum tutti_status status = tutti_reduce_over_start(g, args, &w);
        return status == TUTTI_OK ? work_finish(w, NULL) : status;
}
