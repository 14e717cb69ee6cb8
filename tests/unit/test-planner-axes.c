/* Plans of collectives along axes, as printed text; what only all halves together show (P4 P10 P14 P15). */
#include "problem.h"

#define CHUNK_BYTES 4096

struct bench {
        struct made_problem *m;
        struct planner *planner;
};

/* One entry of f32, [lengths[i], 3] or [3, lengths[i]] for half i; outputs have room for `room` along that
 * axis, or as slices for lengths[i]. */
static void bench_init(struct bench *b, enum kind kind, uint32_t axis, const uint64_t *lengths, uint32_t n) {
        b->m = problem_make(n, 1);
        ck_assert_int_eq(planner_new(&b->planner, 1, CHUNK_BYTES), 0);
        problem_add(b->m, DTYPE_F32, 0);
        b->m->signature.kind = kind;
        b->m->signature.op = kind == KIND_GATHER ? OP_UNSPECIFIED : OP_SUM;
        b->m->signature.axes = 1u << axis;
        for (uint32_t i = 0; i < n; i++) {
                struct entry *e = &b->m->entries[i][0];
                e->n_dims = 2;
                e->shape[axis] = lengths[i];
                e->shape[1 - axis] = 3;
                e->output_extent = 10;
                e->input.span.n_bytes = 12 * lengths[i];
                e->output.span.n_bytes = 120;
        }
}

static void bench_deinit(struct bench *b) {
        planner_free(b->planner);
        free(b->m);
}

static void check_plan(struct bench *b, const char *text) {
        problem_prints(b->m, b->planner, CHUNK_BYTES, text);
        bench_deinit(b);
}

static void check_refused(struct bench *b, enum status status, enum field field, const char *part) {
        static struct error err;
        struct plan plan;
        plan_init(&plan);
        ck_assert_int_eq(planner_plan(b->planner, &b->m->problem, &plan, &err), status);
        ck_assert_int_eq(err.status, status);
        ck_assert_msg(err.field == field, "%s: %s", field_name(err.field), err.detail);
        ck_assert_msg(strstr(err.detail, part), "%s", err.detail);
        ck_assert_int_eq(err.entry, 0);
        plan_deinit(&plan);
        bench_deinit(b);
}

static void check_made(struct bench *b) {
        static struct error err;
        struct plan plan;
        plan_init(&plan);
        ck_assert_int_eq(planner_plan(b->planner, &b->m->problem, &plan, &err), STATUS_OK);
        plan_deinit(&plan);
        bench_deinit(b);
}

START_TEST(P14_a_gather_copies_each_value_once_to_all_outputs) {
        struct bench b;
        /* Along the first axis what is contiguous stays so. */
        bench_init(&b, KIND_GATHER, 0, (uint64_t[]){ 2, 0, 3 }, 3);
        check_plan(&b, "gather order=rank CPU:0: 2 steps, 1 chunk of 4 KiB, moves 240 bytes\n"
                       "copy f32 x6  R0 b1+0 -> R0 b2+0, R1 b2+0, R2 b2+0\n"
                       "copy f32 x9  R2 b1+0 -> R0 b2+24, R1 b2+24, R2 b2+24\n");
        /* Along another one it is rows of the whole. */
        bench_init(&b, KIND_GATHER, 1, (uint64_t[]){ 2, 4 }, 2);
        for (uint32_t i = 0; i < 2; i++) {
                b.m->entries[i][0].destination = DESTINATION_RANK;
                b.m->entries[i][0].destination_rank = 1;
        }
        check_plan(&b, "gather order=rank CPU:0: 2 steps, 1 chunk of 4 KiB, moves 144 bytes\n"
                       "copy f32 x6 [3,2]  R0 b1+0/2,1 -> R1 b2+0/6,1\n"
                       "copy f32 x12 [3,4]  R1 b1+0/4,1 -> R1 b2+8/6,1\n");
        /* With strides of the output's own. */
        bench_init(&b, KIND_GATHER, 0, (uint64_t[]){ 1, 1 }, 2);
        struct place *output = &b.m->entries[1][0].output;
        output->n_strides = 2;
        output->strides[0] = 1;
        output->strides[1] = 20;
        output->span.n_bytes = 4 * 50;
        check_plan(&b, "gather order=rank CPU:0: 2 steps, 1 chunk of 4 KiB, moves 72 bytes\n"
                       "copy f32 x3 [3]  R0 b1+0/1 -> R0 b2+0/1, R1 b2+0/20\n"
                       "copy f32 x3 [3]  R1 b1+0/1 -> R0 b2+12/1, R1 b2+4/20\n");
}
END_TEST

START_TEST(P4_a_receiver_without_room_is_named) {
        struct bench b;
        bench_init(&b, KIND_GATHER, 0, (uint64_t[]){ 2, 9, 0 }, 3);
        b.m->entries[0][0].output_extent = 11;
        check_refused(
                &b, STATUS_INVALID, FIELD_SIZE, "the output of R1 (entry 0) has room for 10 along axis 0");
        bench_init(&b, KIND_GATHER, 1, (uint64_t[]){ INT64_MAX, 1 }, 2);
        check_refused(&b, STATUS_INVALID, FIELD_EXTENT, "beyond what 63 bits can count");
}
END_TEST

static void set_slices(struct bench *b, const uint64_t *slices) {
        for (uint32_t i = 0; i < b->m->problem.n_ranks; i++)
                b->m->entries[i][0].output_extent = slices[i];
}

START_TEST(P10_a_reduce_scatter_is_one_pass_in_rank_order_for_each_slice) {
        struct bench b;
        bench_init(&b, KIND_REDUCE_SCATTER, 0, (uint64_t[]){ 5, 5, 5 }, 3);
        set_slices(&b, (uint64_t[]){ 2, 0, 3 });
        check_plan(&b, "one_device order=rank CPU:0: 2 steps, 1 chunk of 4 KiB, moves 240 bytes\n"
                       "reduce SUM f32 x6  R0 b1+0, R1 b1+0, R2 b1+0 -> R0 b2+0\n"
                       "reduce SUM f32 x9  R0 b1+24, R1 b1+24, R2 b1+24 -> R2 b2+0\n");
        bench_init(&b, KIND_REDUCE_SCATTER, 1, (uint64_t[]){ 5, 5 }, 2);
        set_slices(&b, (uint64_t[]){ 4, 1 });
        check_plan(&b, "one_device order=rank CPU:0: 2 steps, 1 chunk of 4 KiB, moves 180 bytes\n"
                       "reduce SUM f32 x12 [3,4]  R0 b1+0/5,1, R1 b1+0/5,1 -> R0 b2+0/4,1\n"
                       "reduce SUM f32 x3 [3]  R0 b1+16/5, R1 b1+16/5 -> R1 b2+0/1\n");
        bench_init(&b, KIND_REDUCE_SCATTER, 1, (uint64_t[]){ 5, 5 }, 2);
        set_slices(&b, (uint64_t[]){ 4, 2 });
        check_refused(
                &b, STATUS_INVALID, FIELD_EXTENT, "add up to 6, and the value has 5 along axis 1: 4 by R0");
}
END_TEST

/* Messages name elements of the whole. */
START_TEST(an_element_of_a_slice_is_known_by_its_index_in_the_whole) {
        static struct error err;
        struct bench b;
        struct plan plan;
        bench_init(&b, KIND_REDUCE_SCATTER, 1, (uint64_t[]){ 5, 5 }, 2);
        set_slices(&b, (uint64_t[]){ 3, 2 });
        plan_init(&plan);
        ck_assert_int_eq(planner_plan(b.planner, &b.m->problem, &plan, &err), STATUS_OK);
        ck_assert_uint_eq(step_entry_index(&plan.steps[0], 4), 6); /* [1,1] */
        ck_assert_uint_eq(step_entry_index(&plan.steps[1], 0), 3); /* [0,3] */
        ck_assert_uint_eq(step_entry_index(&plan.steps[1], 5), 14);
        ck_assert_uint_eq(plan_extents(&plan, 0)[1], 3);
        ck_assert_uint_eq(plan_extents(&plan, 0)[2], 5);
        plan_deinit(&plan);
        bench_deinit(&b);
}
END_TEST

START_TEST(P12_a_reduction_over_an_axis_is_one_chain_with_the_count_as_divisor) {
        struct bench b;
        bench_init(&b, KIND_BATCH_REDUCE, 0, (uint64_t[]){ 2, 0, 3 }, 3);
        b.m->signature.op = OP_MEAN;
        for (uint32_t i = 0; i < 3; i++)
                b.m->entries[i][0].output.span.n_bytes = 12;
        check_plan(&b,
                "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 96 bytes\n"
                "reduce MEAN/5 f32 x3  R0 b1+0 over 2/3, R2 b1+0 over 3/3 -> R0 b2+0, R1 b2+0, R2 b2+0\n");
        bench_init(&b, KIND_BATCH_REDUCE, 1, (uint64_t[]){ 4 }, 1);
        check_plan(&b, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 60 bytes\n"
                       "reduce SUM f32 x3 [3]  R0 b1+0/4 over 4/1 -> R0 b2+0/1\n");
        bench_init(&b, KIND_BATCH_REDUCE, 0, (uint64_t[]){ 0, 0 }, 2);
        check_refused(&b, STATUS_INVALID, FIELD_EXTENT, "no replica of 2 brings any element");
        bench_init(&b, KIND_BATCH_REDUCE, 0, (uint64_t[]){ UINT32_MAX, 1 }, 2);
        check_refused(&b, STATUS_LIMIT, FIELD_EXTENT, "reduce in parts");
}
END_TEST

/* A chunk has as many results as make it up in bytes that are read. */
/* The sum of the weights is finite; that of what all their elements weigh need not be. */
START_TEST(P12_weights_that_overflow_over_an_axis_are_refused) {
        struct bench b;
        for (uint64_t length = 1; length <= 2; length++) {
                bench_init(&b, KIND_REDUCE, 0, (uint64_t[]){ length, 1 }, 2);
                b.m->signature.op = OP_MEAN;
                b.m->signature.options.has_weight = true;
                b.m->weights[0] = 0x1p1023;
                b.m->weights[1] = 1;
                if (length == 2)
                        check_refused(&b, STATUS_INVALID, FIELD_OPTIONS, "more than f64 can hold");
                else
                        check_made(&b);
        }
}
END_TEST

START_TEST(long_axes_make_chunks_of_few_results) {
        static struct error err;
        struct bench b;
        struct plan plan;
        struct piece piece;
        uint64_t n = 0;
        bench_init(&b, KIND_BATCH_REDUCE, 1, (uint64_t[]){ 1024 }, 1);
        b.m->entries[0][0].output.span.n_bytes = 12;
        plan_init(&plan);
        ck_assert_int_eq(planner_plan(b.planner, &b.m->problem, &plan, &err), STATUS_OK);
        ck_assert_uint_eq(plan.n_chunks, 3);
        for (uint64_t chunk = 0; chunk < plan.n_chunks; chunk++)
                for (uint32_t cursor = 0; plan_next_piece(&plan, chunk, &cursor, &piece); n++) {
                        ck_assert_uint_eq(piece.first_element, chunk);
                        ck_assert_uint_eq(piece.n_elements, 1);
                }
        ck_assert_uint_eq(n, 3);
        plan_deinit(&plan);
        bench_deinit(&b);
}
END_TEST

START_TEST(P15_what_gpus_do_not_do_is_said) {
        static const uint8_t apart[] = { 1, 2 };
        struct bench b;
        bench_init(&b, KIND_GATHER, 0, (uint64_t[]){ 1, 1 }, 2);
        problem_on_gpus(b.m, 2, NULL);
        check_plan(&b, "gather order=rank GPU:0: 2 steps, 1 chunk of 4 KiB, moves 72 bytes\n"
                       "copy f32 x3  R0 b1+0 -> R0 b2+0, R1 b2+0\n"
                       "copy f32 x3  R1 b1+0 -> R0 b2+12, R1 b2+12\n");
        for (enum kind kind = KIND_GATHER; kind <= KIND_REDUCE_SCATTER; kind++) {
                static struct error err;
                struct plan plan;
                plan_init(&plan);
                bench_init(&b, kind, 0, (uint64_t[]){ 1, 1 }, 2);
                problem_on_gpus(b.m, 2, apart);
                ck_assert_int_eq(planner_plan(b.planner, &b.m->problem, &plan, &err), STATUS_UNSUPPORTED);
                ck_assert_msg(
                        strstr(err.detail, "there is none that reaches all of these GPUs"), "%s", err.detail);
                plan_deinit(&plan);
                bench_deinit(&b);
        }
        static struct error err;
        struct plan plan;
        plan_init(&plan);
        bench_init(&b, KIND_BATCH_REDUCE, 0, (uint64_t[]){ 1, 1 }, 2);
        problem_on_gpus(b.m, 2, apart);
        ck_assert_int_eq(planner_plan(b.planner, &b.m->problem, &plan, &err), STATUS_UNSUPPORTED);
        ck_assert_msg(strstr(err.detail, "over axes one device reads all values"), "%s", err.detail);
        problem_on_gpus(b.m, 2, NULL);
        ck_assert_int_eq(planner_plan(b.planner, &b.m->problem, &plan, &err), STATUS_OK);
        ck_assert(plan.device == DEVICE_GPU && plan.n_steps == 1 && plan.steps[0].n_folds == 1);
        plan_deinit(&plan);
        bench_deinit(&b);
}
END_TEST

UNIT_MAIN("planner-axes", 30, P14_a_gather_copies_each_value_once_to_all_outputs,
        P4_a_receiver_without_room_is_named, P10_a_reduce_scatter_is_one_pass_in_rank_order_for_each_slice,
        an_element_of_a_slice_is_known_by_its_index_in_the_whole,
        P12_a_reduction_over_an_axis_is_one_chain_with_the_count_as_divisor,
        P12_weights_that_overflow_over_an_axis_are_refused, long_axes_make_chunks_of_few_results,
        P15_what_gpus_do_not_do_is_said)
