/* The plan as a value: its index space, its pieces, its printed form, and what happens when memory is short.
 */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "failing.h"
#include "plan.h"

static uint64_t random_state = 1;

static uint64_t draw(uint64_t limit) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random_state >> 33) % limit;
}

static void add(struct plan *p, enum step_kind kind, enum dtype dtype, uint64_t count) {
        struct step step = { .kind = kind, .op = OP_SUM, .dtype = dtype, .count = count };
        if (kind != STEP_JOIN)
                step.n_inputs = step.n_outputs = 1;
        ck_assert_ptr_nonnull(plan_add_step(p, &step));
}

static void fill(struct operand *o, uint32_t rank, uint64_t buffer, uint64_t offset_bytes) {
        *o = (struct operand){ .rank = rank, .buffer = buffer, .offset_bytes = offset_bytes };
}

#define MAX_STEPS 40
#define MAX_COUNT 700

/* Where `at` of the index space lies in that of the chunks, which begin anew with each part. */
static uint64_t in_chunks(const struct plan *p, uint64_t at) {
        for (uint32_t i = 0; i < p->n_parts; i++)
                if (at - p->parts[i].start_bytes < p->parts[i].n_bytes)
                        return at - p->parts[i].start_bytes + p->parts[i].first_chunk * p->chunk_bytes;
        ck_abort_msg("byte %llu is in no part", (unsigned long long)at);
}

/* Walks all chunks and counts how often each element of each step is handed out. */
static void count_pieces(const struct plan *p, uint8_t seen[MAX_STEPS][MAX_COUNT]) {
        memset(seen, 0, MAX_STEPS * MAX_COUNT);
        for (uint64_t chunk = 0; chunk < p->n_chunks; chunk++) {
                struct piece piece;
                for (uint32_t cursor = 0; plan_next_piece(p, chunk, &cursor, &piece);) {
                        uint64_t size = dtype_bytes(piece.step->dtype);
                        uint64_t at = in_chunks(p, piece.step->start_bytes + piece.first_element * size);
                        ck_assert_uint_gt(piece.n_elements, 0);
                        ck_assert_uint_le(piece.first_element + piece.n_elements, piece.step->count);
                        ck_assert_uint_eq(at / p->chunk_bytes, chunk);
                        ck_assert_uint_eq((at + (piece.n_elements - 1) * size) / p->chunk_bytes, chunk);
                        uint8_t *counts = seen[piece.step - p->steps];
                        for (uint64_t i = 0; i < piece.n_elements; i++)
                                counts[piece.first_element + i]++;
                }
        }
}

/* Whether each of `count` elements was seen once, and nothing behind them. */
static bool is_once(const uint8_t seen[MAX_COUNT], uint64_t count) {
        for (uint64_t i = 0; i < MAX_COUNT; i++)
                if (seen[i] != (i < count))
                        return false;
        return true;
}

START_TEST(every_element_is_in_exactly_one_piece) {
        static const enum dtype dtypes[] = { DTYPE_U8, DTYPE_F16, DTYPE_F32, DTYPE_I64 };
        static uint8_t seen[MAX_STEPS][MAX_COUNT];
        struct plan p;

        plan_init(&p);
        for (int round = 0; round < 2000; round++) {
                uint64_t total = 0, stretch = 0, n_chunks = 0, chunk_bytes = 64 * (1 + draw(20));
                uint32_t n_steps = draw(MAX_STEPS + 1);
                plan_reset(&p);
                for (uint32_t i = 0; i < n_steps; i++) {
                        enum dtype dtype = dtypes[draw(ARRAY_SIZE(dtypes))];
                        uint64_t count = draw(4) == 0 ? draw(3) : draw(MAX_COUNT);
                        bool is_join = draw(10) == 0;
                        add(&p, is_join ? STEP_JOIN : STEP_REDUCE, dtype, is_join ? 0 : count);
                        total += is_join ? 0 : count * dtype_bytes(dtype);
                        if (is_join) {
                                n_chunks += (stretch + chunk_bytes - 1) / chunk_bytes;
                                stretch = 0;
                        } else {
                                stretch += count * dtype_bytes(dtype);
                        }
                }
                n_chunks += (stretch + chunk_bytes - 1) / chunk_bytes;
                plan_freeze(&p, chunk_bytes);
                ck_assert_uint_eq(p.total_bytes, total);
                ck_assert_uint_eq(p.moved_bytes, 2 * total);
                ck_assert_uint_eq(p.n_chunks, n_chunks);
                count_pieces(&p, seen);
                for (uint32_t i = 0; i < n_steps; i++)
                        ck_assert(is_once(seen[i], p.steps[i].count));
        }
        plan_deinit(&p);
}
END_TEST

START_TEST(an_element_across_a_border_belongs_to_the_chunk_of_its_first_byte) {
        struct piece piece;
        struct plan p;
        uint32_t cursor = 0;

        plan_init(&p);
        add(&p, STEP_REDUCE, DTYPE_U8, 61);
        add(&p, STEP_REDUCE, DTYPE_F64, 2); /* bytes 61..68 and 69..76 */
        plan_freeze(&p, 64);
        ck_assert_uint_eq(p.n_chunks, 2);

        ck_assert(plan_next_piece(&p, 0, &cursor, &piece));
        ck_assert_ptr_eq(piece.step, &p.steps[0]);
        ck_assert_uint_eq(piece.n_elements, 61);
        ck_assert(plan_next_piece(&p, 0, &cursor, &piece));
        ck_assert_ptr_eq(piece.step, &p.steps[1]);
        ck_assert_uint_eq(piece.first_element, 0);
        ck_assert_uint_eq(piece.n_elements, 1);
        ck_assert(!plan_next_piece(&p, 0, &cursor, &piece));
        ck_assert(!plan_next_piece(&p, 0, &cursor, &piece));

        cursor = 0;
        ck_assert(plan_next_piece(&p, 1, &cursor, &piece));
        ck_assert_ptr_eq(piece.step, &p.steps[1]);
        ck_assert_uint_eq(piece.first_element, 1);
        ck_assert_uint_eq(piece.n_elements, 1);
        ck_assert(!plan_next_piece(&p, 1, &cursor, &piece));
        plan_deinit(&p);
}
END_TEST

START_TEST(a_chunk_may_hold_only_the_tail_of_an_element) {
        struct piece piece;
        struct plan p;
        uint32_t cursor = 0;

        plan_init(&p);
        add(&p, STEP_REDUCE, DTYPE_U8, 63);
        add(&p, STEP_REDUCE, DTYPE_I32, 1); /* bytes 63..66: the last chunk holds no first byte */
        plan_freeze(&p, 64);
        ck_assert_uint_eq(p.n_chunks, 2);
        ck_assert(!plan_next_piece(&p, 1, &cursor, &piece));
        plan_deinit(&p);
}
END_TEST

/* 3 GiB of f32 in one step: 64-bit counts all the way (P14). */
START_TEST(counts_are_64_bit) {
        struct piece piece;
        struct plan p;
        uint32_t cursor = 0;
        const uint64_t count = UINT64_C(3) << 38, chunk_bytes = 256 * 1024;

        plan_init(&p);
        add(&p, STEP_REDUCE, DTYPE_F32, count);
        plan_freeze(&p, chunk_bytes);
        ck_assert_uint_eq(p.total_bytes, count * 4);
        ck_assert_uint_eq(p.n_chunks, count * 4 / chunk_bytes);
        ck_assert(plan_next_piece(&p, p.n_chunks - 1, &cursor, &piece));
        ck_assert_uint_eq(piece.first_element, count - chunk_bytes / 4);
        ck_assert_uint_eq(piece.n_elements, chunk_bytes / 4);
        plan_deinit(&p);
}
END_TEST

START_TEST(an_empty_plan_has_no_chunks) {
        struct plan p;
        plan_init(&p);
        plan_freeze(&p, 64);
        ck_assert_uint_eq(p.n_chunks, 0);
        ck_assert_uint_eq(p.total_bytes, 0);

        plan_reset(&p);
        add(&p, STEP_REDUCE, DTYPE_F32, 0);
        add(&p, STEP_JOIN, DTYPE_UNSPECIFIED, 0);
        ck_assert(p.has_joins);
        plan_freeze(&p, 64);
        ck_assert_uint_eq(p.n_chunks, 0);

        plan_reset(&p);
        ck_assert(!p.has_joins);
        plan_deinit(&p);
}
END_TEST

/* Chunks lie in one phase and on one device, in this order, however the steps were mixed. */
START_TEST(chunks_keep_to_one_phase_and_one_device) {
        static const struct {
                enum step_kind kind;
                uint32_t device;
                uint64_t count;
        } steps[] = { { STEP_COPY, 1, 100 }, { STEP_COPY, 0, 65 }, { STEP_COPY, 1, 10 }, { STEP_JOIN, 0, 0 },
                { STEP_JOIN, 0, 0 }, { STEP_COPY, 2, 1 }, { STEP_COPY, 0, 0 }, { STEP_COPY, 2, 64 } };
        static const struct stage expected[] = { { 0, 0, 0, 2 }, { 1, 0, 2, 5 }, { 2, 2, 5, 7 } };
        uint64_t seen[ARRAY_SIZE(steps)] = { 0 };
        struct plan p;
        plan_init(&p);
        for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
                const struct step step = { .kind = steps[i].kind,
                        .device = steps[i].device,
                        .dtype = DTYPE_U8,
                        .count = steps[i].count };
                ck_assert_ptr_nonnull(plan_add_step(&p, &step));
        }
        plan_freeze(&p, 64);
        ck_assert_uint_eq(p.n_phases, 3);
        ck_assert_uint_eq(p.n_chunks, 7);
        struct stage stage;
        uint32_t cursor = 0, n = 0;
        for (; plan_next_stage(&p, &cursor, &stage); n++) {
                ck_assert_uint_eq(stage.device, expected[n].device);
                ck_assert_uint_eq(stage.phase, expected[n].phase);
                ck_assert_uint_eq(stage.first_chunk, expected[n].first_chunk);
                ck_assert_uint_eq(stage.end_chunk, expected[n].end_chunk);
                for (uint64_t chunk = stage.first_chunk; chunk < stage.end_chunk; chunk++) {
                        struct piece piece;
                        for (uint32_t c = 0; plan_next_piece(&p, chunk, &c, &piece);) {
                                ck_assert_uint_eq(piece.step->device, stage.device);
                                seen[piece.step - p.steps] += piece.n_elements;
                        }
                }
        }
        ck_assert_uint_eq(n, ARRAY_SIZE(expected));
        for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
                ck_assert_uint_eq(seen[i], steps[i].count);
        plan_deinit(&p);
}
END_TEST

START_TEST(scratch_is_one_area_a_device) {
        struct operand a, b, c;
        char buf[512];
        struct text t;
        struct plan p;
        plan_init(&p);
        p.algorithm = "test";
        ck_assert_int_eq(plan_take_scratch(&p, 1, 100, &a), 0);
        ck_assert_int_eq(plan_take_scratch(&p, 0, 8, &b), 0);
        ck_assert_int_eq(plan_take_scratch(&p, 1, 1, &c), 0);
        ck_assert_uint_eq(p.n_scratch, 2);
        ck_assert_uint_eq(p.scratch[0].device, 1);
        ck_assert_uint_eq(p.scratch[0].n_bytes, 192);
        ck_assert_uint_eq(plan_scratch_bytes(&p), 256);
        ck_assert_uint_eq(c.scratch, a.scratch);
        ck_assert_uint_eq(c.offset_bytes, 128);
        struct step *s = plan_add_step(&p, &(struct step){ .kind = STEP_COPY,
                                                   .device = 1,
                                                   .dtype = DTYPE_U8,
                                                   .n_inputs = 1,
                                                   .n_outputs = 1,
                                                   .count = 1 });
        ck_assert_ptr_nonnull(s);
        plan_inputs(&p, s)[0] = c;
        plan_outputs(&p, s)[0] = b;
        text_init(&t, buf, sizeof(buf));
        plan_print(&p, &t);
        ck_assert_str_eq(buf, "test order=rank CPU:0: 1 step, scratch 256 bytes\n"
                              "CPU:1: copy u8 x1  CPU:1 scratch+128 -> CPU:0 scratch+0\n");
        for (uint32_t i = 2; i < MAX_SCRATCH; i++)
                ck_assert_int_eq(plan_take_scratch(&p, i, 1, &a), 0);
        ck_assert_int_eq(plan_take_scratch(&p, MAX_SCRATCH, 1, &a), -ENOMEM);
        plan_deinit(&p);
}
END_TEST

static struct step *add_wide(struct plan *p, struct step step) {
        struct step *added = plan_add_step(p, &step);
        ck_assert_ptr_nonnull(added);
        return added;
}

START_TEST(prints_what_it_will_do) {
        static const char expected[] =
                "one_device order=rank CPU:0: 4 steps, 3 chunks of 4 KiB, moves 27.4 KiB, 2 phases\n"
                "reduce SUM f32 x1000  R0 b1+0, R3 b1+64 -> R0 b2+0, R3 b2+4\n"
                "join\n"
                "reduce MEAN/3 bf16 x2000  R0 b1+8 -> R1 b7+2\n"
                "copy u8 x2054  R1 b9+0 -> R0 b2+0\n";
        char buf[1024];
        struct text t;
        struct plan p;

        plan_init(&p);
        struct step *s = add_wide(&p, (struct step){ .kind = STEP_REDUCE,
                                              .op = OP_SUM,
                                              .dtype = DTYPE_F32,
                                              .n_inputs = 2,
                                              .n_outputs = 2,
                                              .count = 1000 });
        fill(&plan_inputs(&p, s)[0], 0, 1, 0);
        fill(&plan_inputs(&p, s)[1], 3, 1, 64);
        fill(&plan_outputs(&p, s)[0], 0, 2, 0);
        fill(&plan_outputs(&p, s)[1], 3, 2, 4);
        add(&p, STEP_JOIN, DTYPE_UNSPECIFIED, 0);
        s = add_wide(&p, (struct step){ .kind = STEP_REDUCE,
                                 .op = OP_MEAN,
                                 .dtype = DTYPE_BF16,
                                 .divisor = 3,
                                 .n_inputs = 1,
                                 .n_outputs = 1,
                                 .count = 2000 });
        fill(plan_inputs(&p, s), 0, 1, 8);
        fill(plan_outputs(&p, s), 1, 7, 2);
        s = add_wide(&p,
                (struct step){
                        .kind = STEP_COPY, .dtype = DTYPE_U8, .n_inputs = 1, .n_outputs = 1, .count = 2054 });
        fill(plan_inputs(&p, s), 1, 9, 0);
        fill(plan_outputs(&p, s), 0, 2, 0);
        p.algorithm = "one_device";
        plan_freeze(&p, 4096);

        text_init(&t, buf, sizeof(buf));
        plan_print(&p, &t);
        ck_assert_str_eq(buf, expected);
        plan_deinit(&p);
}
END_TEST

START_TEST(the_first_steps_survive_growth) {
        struct plan p;
        plan_init(&p);
        for (uint32_t i = 0; i < 5000; i++) {
                struct step *s = add_wide(&p, (struct step){ .kind = STEP_REDUCE,
                                                      .dtype = DTYPE_F32,
                                                      .entry = i,
                                                      .n_inputs = 3,
                                                      .n_outputs = 2,
                                                      .count = 1 });
                for (uint32_t j = 0; j < 3; j++)
                        fill(&plan_inputs(&p, s)[j], j, i, 0);
                for (uint32_t j = 0; j < 2; j++)
                        fill(&plan_outputs(&p, s)[j], 10 + j, i, 0);
        }
        for (uint32_t i = 0; i < 5000; i++) {
                const struct step *s = &p.steps[i];
                ck_assert_uint_eq(s->entry, i);
                ck_assert_uint_eq(plan_inputs(&p, s)[2].rank, 2);
                ck_assert_uint_eq(plan_inputs(&p, s)[2].buffer, i);
                ck_assert_uint_eq(plan_outputs(&p, s)[1].rank, 11);
        }
        plan_deinit(&p);
}
END_TEST

START_TEST(E11_the_first_input_that_was_read_otherwise_is_found) {
        const struct step *step;
        const struct operand *input;
        struct plan p;
        plan_init(&p);
        for (uint32_t i = 0; i < 2; i++) {
                struct step *s = add_wide(&p, (struct step){ .kind = STEP_REDUCE,
                                                      .op = OP_SUM,
                                                      .dtype = DTYPE_F32,
                                                      .entry = i,
                                                      .n_inputs = 3,
                                                      .n_outputs = 1,
                                                      .has_weights = i == 1,
                                                      .check_inputs = true,
                                                      .count = 1 });
                for (uint32_t j = 0; j < 3; j++)
                        plan_inputs(&p, s)[j] =
                                (struct operand){ .rank = 10 + j, .checksum = 100 * i + j, .weight = j };
        }
        ck_assert_int_eq(plan_begin_sums(&p), 0);
        for (uint32_t i = 0; i < 2; i++)
                for (uint32_t j = 0; j < 3; j++)
                        p.sums[p.steps[i].first_operand + j] += 100 * i + j;
        ck_assert(!plan_find_changed_input(&p, &step, &input));
        p.sums[p.steps[1].first_operand]++; /* of weight 0: not read */
        ck_assert(!plan_find_changed_input(&p, &step, &input));
        p.sums[p.steps[1].first_operand + 2]++;
        ck_assert(plan_find_changed_input(&p, &step, &input));
        ck_assert_uint_eq(step->entry, 1);
        ck_assert_uint_eq(input->rank, 12);
        p.sums[p.steps[0].first_operand + 1]--;
        ck_assert(plan_find_changed_input(&p, &step, &input));
        ck_assert_uint_eq(step->entry, 0);
        ck_assert_uint_eq(input->rank, 11);
        plan_reset(&p);
        ck_assert_int_eq(plan_begin_sums(&p), 0);
        ck_assert(!plan_find_changed_input(&p, &step, &input));
        plan_deinit(&p);
}
END_TEST

/* Adds steps until one is refused, and checks that nothing but that one is missing. */
static bool build_in_short_memory(struct plan *p, uint32_t n_steps) {
        for (uint32_t i = 0; i < n_steps; i++) {
                struct step step = { .kind = STEP_REDUCE,
                        .op = OP_MAX,
                        .dtype = DTYPE_I32,
                        .entry = i,
                        .n_inputs = 4,
                        .n_outputs = 4,
                        .count = 10 };
                if (plan_add_step(p, &step))
                        continue;
                failing_at(0); /* Check allocates too */
                ck_assert_uint_eq(p->n_steps, i);
                ck_assert_uint_eq(p->n_operands, 8 * i);
                return false;
        }
        return true;
}

START_TEST(short_memory_leaves_a_plan_that_can_go_on) {
        int n_failures = 0;
        for (unsigned int nth = 1;; nth++) {
                struct plan p;
                plan_init(&p);
                failing_at(nth);
                bool is_built = build_in_short_memory(&p, 100);
                failing_at(0);
                if (!is_built) {
                        n_failures++;
                        uint32_t n_before = p.n_steps;
                        ck_assert(build_in_short_memory(&p, 3));
                        ck_assert_uint_eq(p.n_steps, n_before + 3);
                }
                plan_deinit(&p);
                if (is_built)
                        break;
        }
        ck_assert_int_ge(n_failures, 2);
}
END_TEST

START_TEST(lengths_of_results_are_zero_until_they_are_known_and_go_with_a_reset) {
        struct plan p;
        plan_init(&p);
        ck_assert_ptr_null(plan_extents(&p, 0));
        for (int round = 0; round < 2; round++) {
                ck_assert_int_eq(plan_make_extents(&p, 5, 3), 0);
                for (uint32_t e = 0; e < 5; e++)
                        for (uint32_t i = 0; i <= 3; i++) {
                                ck_assert_uint_eq(plan_extents(&p, e)[i], 0);
                                plan_extents(&p, e)[i] = 100 * e + i;
                        }
                ck_assert_uint_eq(plan_extents(&p, 4)[3], 403);
                ck_assert_uint_eq(plan_extents(&p, 2)[0], 200);
                plan_reset(&p);
                ck_assert_ptr_null(plan_extents(&p, 0));
        }
        failing_at(1);
        int r = plan_make_extents(&p, 5000, 3);
        failing_at(0);
        ck_assert_int_eq(r, -ENOMEM);
        ck_assert_ptr_null(plan_extents(&p, 0));
        plan_deinit(&p);
}
END_TEST

START_TEST(what_lies_in_a_result_object_moves_with_its_slot) {
        struct plan p;
        plan_init(&p);
        for (uint32_t i = 0; i < 3; i++) {
                const struct step step = {
                        .kind = STEP_COPY, .dtype = DTYPE_U8, .n_inputs = 1, .n_outputs = 1, .count = 100
                };
                struct step *added = plan_add_step(&p, &step);
                ck_assert_ptr_nonnull(added);
                *plan_inputs(&p, added) = (struct operand){ .buffer = 1, .offset_bytes = 7 };
                *plan_outputs(&p, added) =
                        (struct operand){ .buffer = i == 1, .offset_bytes = 8192 + i, .result = i != 1 };
        }
        p.slot_offset_bytes = 8192;
        plan_freeze(&p, 64);
        const uint64_t offsets[] = { 0, 0, 1 << 20, 8192, 4096 };
        for (size_t k = 0; k < sizeof(offsets) / sizeof(*offsets); k++) {
                plan_move_slot(&p, offsets[k]);
                for (uint32_t i = 0; i < 3; i++) {
                        ck_assert_uint_eq(plan_inputs(&p, &p.steps[i])->offset_bytes, 7);
                        ck_assert_uint_eq(
                                plan_outputs(&p, &p.steps[i])->offset_bytes, i == 1 ? 8193 : offsets[k] + i);
                }
        }
        plan_reset(&p);
        ck_assert_uint_eq(p.slot_offset_bytes, 0);
        plan_deinit(&p);
}
END_TEST

START_TEST(a_plan_that_is_used_again_allocates_nothing) {
        struct plan p;
        plan_init(&p);
        ck_assert(build_in_short_memory(&p, 100));
        plan_reset(&p);
        failing_at(1);
        bool is_built = build_in_short_memory(&p, 100);
        failing_at(0);
        ck_assert(is_built);
        ck_assert(!failing_has_failed());
        plan_freeze(&p, 64);
        ck_assert_uint_eq(p.n_steps, 100);
        plan_deinit(&p);
}
END_TEST

UNIT_MAIN("plan", 30, every_element_is_in_exactly_one_piece,
        an_element_across_a_border_belongs_to_the_chunk_of_its_first_byte,
        a_chunk_may_hold_only_the_tail_of_an_element, counts_are_64_bit, an_empty_plan_has_no_chunks,
        chunks_keep_to_one_phase_and_one_device, scratch_is_one_area_a_device, prints_what_it_will_do,
        the_first_steps_survive_growth, short_memory_leaves_a_plan_that_can_go_on,
        a_plan_that_is_used_again_allocates_nothing, what_lies_in_a_result_object_moves_with_its_slot,
        lengths_of_results_are_zero_until_they_are_known_and_go_with_a_reset,
        E11_the_first_input_that_was_read_otherwise_is_found)
