/* What tuttid and tuttid-gpu say: plans that are taken apart and put together again, and packets that are
 * wrong in every way that a byte can be. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "worker-protocol.h"

#define N_MEMORIES   8
#define MEMORY_BYTES (UINT64_C(1) << 20)

static struct memory memories[N_MEMORIES];
static uint64_t random_state = 1;

static uint64_t draw(uint64_t limit) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random_state >> 33) % limit;
}

static struct memory *find(void *data, uint64_t number) {
        (void)data;
        return number >= 100 && number < 100 + N_MEMORIES ? &memories[number - 100] : NULL;
}

static const struct worker_memories there = { .find = find };

static void set_up(void) {
        for (uint32_t i = 0; i < N_MEMORIES; i++)
                memories[i] = (struct memory){ .remote = 100 + i, .n_bytes = MEMORY_BYTES };
}

static void add_folds(struct plan *p, uint32_t n_inputs) {
        uint64_t *folds = plan_add_folds(p, 2);
        ck_assert_ptr_nonnull(folds);
        for (uint32_t i = 0; i < n_inputs; i++)
                memcpy(folds + (size_t)4 * i, (uint64_t[]){ 1 + i, 2, 5 - i % 5, 7 }, 4 * sizeof(*folds));
        p->steps[p->n_steps - 1].fold_count = 2 * n_inputs;
        p->steps[p->n_steps - 1].fold_dtype = DTYPE_F32;
}

static void add_step(struct plan *p, uint32_t n_inputs, uint32_t n_outputs, uint32_t entry) {
        struct step step = { .kind = STEP_REDUCE,
                .device = DEVICE_GPU + entry % 3,
                .op = OP_MEAN,
                .dtype = DTYPE_F16,
                .output_dtype = DTYPE_F32,
                .rounding = ROUNDING_FLOOR,
                .has_weights = entry % 2,
                .check_inputs = true,
                .n_inputs = n_inputs,
                .n_outputs = n_outputs,
                .divisor = 7,
                .total_weight = 2.5,
                .entry = entry,
                .count = 24,
                .first_element = 1000 * entry,
                .n_dims = entry % 2 ? 2 : 0,
                .shape = { entry % 2 ? 4 : 0, entry % 2 ? 6 : 0 } };
        struct step *s = plan_add_step(p, &step);
        ck_assert_ptr_nonnull(s);
        for (uint32_t i = 0; i < n_inputs + n_outputs; i++) {
                struct operand *o = &p->operands[s->first_operand + i];
                *o = (struct operand){ .memory = &memories[draw(N_MEMORIES)],
                        .offset_bytes = 64 * draw(64),
                        .buffer = draw(99),
                        .result = draw(2),
                        .rank = i,
                        .weight = 0.5 * i,
                        .checksum = draw(UINT32_MAX) };
                if (i == 0) {
                        o->memory = NULL;
                        o->scratch = 1;
                        o->offset_bytes = 0;
                }
                if (s->n_dims) {
                        plan_strides(p, s, i)[0] = 100 + i;
                        plan_strides(p, s, i)[1] = 3;
                }
        }
        if (entry % 3 == 2)
                add_folds(p, n_inputs);
}

static void fill_plan(struct plan *p, uint32_t n_steps, uint32_t n_inputs) {
        plan_init(p);
        p->device = DEVICE_GPU + 1;
        p->order = ORDER_TREE;
        struct operand area;
        ck_assert_int_eq(plan_take_scratch(p, DEVICE_GPU + 2, 1 << 16, &area), 0);
        for (uint32_t i = 0; i < n_steps; i++)
                add_step(p, n_inputs, 2, i);
        ck_assert_int_eq(plan_join(p), 0);
        add_step(p, 1, 1, 0);
        plan_freeze(p, 4096);
}

/* Sends all of it through the checks of the other end; what the assembly said last. */
static int carry(const struct worker_parcel *parcel, struct worker_assembly *a, uint32_t *ret_n_packets) {
        union worker_packet packet;
        struct worker_cursor cursor = { 0 };
        int r = 0;
        *ret_n_packets = 0;
        while (r >= 0 && worker_next_part(parcel, &cursor, &packet)) {
                ck_assert_int_eq(r, 0);
                ck_assert_uint_le(worker_packet_bytes(&packet), MAX_PACKET_BYTES);
                ck_assert_int_eq(
                        worker_check(&packet, worker_packet_bytes(&packet), 0, WORKER_END_TUTTID), 0);
                r = packet.head.verb == WORKER_RUN ? worker_assembly_begin(a, &packet.run)
                                                   : worker_assembly_add(a, &packet.part, &there);
                ++*ret_n_packets;
        }
        return r;
}

static void same_step(const struct plan *a, const struct plan *b, uint32_t i) {
        const struct step *x = &a->steps[i], *y = &b->steps[i];
        ck_assert_int_eq(x->kind, y->kind);
        ck_assert_uint_eq(x->device, y->device);
        ck_assert_int_eq(x->op, y->op);
        ck_assert_int_eq(x->dtype, y->dtype);
        ck_assert_int_eq(x->output_dtype, y->output_dtype);
        ck_assert_int_eq(x->rounding, y->rounding);
        ck_assert(x->has_weights == y->has_weights && x->check_numerics == y->check_numerics);
        ck_assert(x->check_inputs == y->check_inputs && x->check_overflow == y->check_overflow);
        ck_assert_uint_eq(x->n_inputs, y->n_inputs);
        ck_assert_uint_eq(x->n_outputs, y->n_outputs);
        ck_assert_uint_eq(x->first_operand, y->first_operand);
        ck_assert_uint_eq(x->divisor, y->divisor);
        ck_assert(x->total_weight == y->total_weight);
        ck_assert_uint_eq(x->entry, y->entry);
        ck_assert_uint_eq(x->count, y->count);
        ck_assert_uint_eq(x->first_element, y->first_element);
        ck_assert_uint_eq(x->start_bytes, y->start_bytes);
        ck_assert_uint_eq(x->n_bytes, y->n_bytes);
        ck_assert_uint_eq(x->n_dims, y->n_dims);
        ck_assert_mem_eq(x->shape, y->shape, sizeof(x->shape));
        ck_assert_int_eq(x->stage, y->stage);
        ck_assert_uint_eq(x->bound, y->bound);
        ck_assert_uint_eq(x->run, y->run);
        ck_assert_uint_eq(x->room, y->room);
        ck_assert_uint_eq(x->room_rank, y->room_rank);
        ck_assert_uint_eq(x->row_elements, y->row_elements);
        ck_assert_uint_eq(x->n_folds, y->n_folds);
        ck_assert_uint_eq(x->fold_count, y->fold_count);
        ck_assert_int_eq(x->fold_dtype, y->fold_dtype);
        if (x->n_folds)
                ck_assert_mem_eq(plan_fold(a, x, 0), plan_fold(b, y, 0),
                        2 * (size_t)x->n_inputs * x->n_folds * sizeof(uint64_t));
        for (uint32_t k = 0; x->n_dims && k < x->n_inputs + x->n_outputs; k++)
                ck_assert_mem_eq(plan_strides(a, x, k), plan_strides(b, y, k), x->n_dims * sizeof(uint64_t));
}

static void same_operand(const struct operand *x, const struct operand *y) {
        ck_assert_ptr_eq(x->memory, y->memory);
        ck_assert_uint_eq(x->offset_bytes, y->offset_bytes);
        ck_assert_uint_eq(x->buffer, y->buffer);
        ck_assert_uint_eq(x->result, y->result);
        ck_assert_uint_eq(x->scratch, y->scratch);
        ck_assert_uint_eq(x->rank, y->rank);
        ck_assert(x->weight == y->weight);
        ck_assert_uint_eq(x->checksum, y->checksum);
        ck_assert_uint_eq(x->first_row, y->first_row);
        ck_assert_uint_eq(x->n_rows, y->n_rows);
        ck_assert_uint_eq(x->row_stride, y->row_stride);
}

static void same_plan(const struct plan *a, const struct plan *b) {
        ck_assert_uint_eq(a->n_steps, b->n_steps);
        ck_assert_uint_eq(a->n_operands, b->n_operands);
        ck_assert_uint_eq(a->n_strides, b->n_strides);
        ck_assert_uint_eq(a->n_scratch, b->n_scratch);
        ck_assert_uint_eq(a->device, b->device);
        ck_assert_int_eq(a->order, b->order);
        ck_assert_uint_eq(a->n_chunks, b->n_chunks);
        ck_assert_uint_eq(a->n_parts, b->n_parts);
        ck_assert_uint_eq(a->n_phases, b->n_phases);
        ck_assert(a->has_joins == b->has_joins && b->is_frozen);
        ck_assert_uint_eq(a->scratch[0].device, b->scratch[0].device);
        ck_assert_uint_eq(a->scratch[0].n_bytes, b->scratch[0].n_bytes);
        for (uint32_t i = 0; i < a->n_steps; i++)
                same_step(a, b, i);
        for (uint32_t i = 0; i < a->n_operands; i++)
                same_operand(&a->operands[i], &b->operands[i]);
}

START_TEST(a_plan_comes_out_as_it_went_in) {
        static const uint32_t sizes[][2] = { { 1, 1 }, { 3, 4 }, { 700, 5 }, { 40, 1024 } };
        set_up();
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                struct plan plan;
                struct worker_assembly a;
                uint32_t n_packets;
                const struct signal signals[] = { { &memories[3], 17, 5 }, { NULL, 0, 0 } };
                fill_plan(&plan, sizes[i][0], sizes[i][1]);
                const struct worker_parcel parcel = { .ticket = 9,
                        .group = 4,
                        .limit_ns = 11,
                        .plan = &plan,
                        .signals = signals,
                        .n_signals = 2 };
                worker_assembly_init(&a);
                ck_assert(worker_fits(&parcel));
                ck_assert_int_eq(carry(&parcel, &a, &n_packets), 1);
                ck_assert_uint_ge(n_packets, sizes[i][0] > 100 ? 7 : 5);
                same_plan(&plan, &a.plan);
                ck_assert_uint_eq(a.missing, 0);
                ck_assert_ptr_nonnull(a.plan.sums);
                ck_assert_uint_eq(a.head.group, 4);
                ck_assert_uint_eq(a.head.limit_ns, 11);
                ck_assert_ptr_eq(a.signals[0].page, &memories[3]);
                ck_assert_uint_eq(a.signals[0].slot, 17);
                ck_assert_uint_eq(a.signals[0].value, 5);
                ck_assert_ptr_null(a.signals[1].page);
                worker_assembly_deinit(&a);
                plan_deinit(&plan);
        }
}
END_TEST

START_TEST(a_memory_that_is_not_there_is_named) {
        struct plan plan;
        struct worker_assembly a;
        struct memory stranger = { .remote = 4711, .n_bytes = MEMORY_BYTES };
        uint32_t n_packets;
        set_up();
        fill_plan(&plan, 2, 2);
        plan.operands[1].memory = &stranger;
        const struct worker_parcel parcel = { .ticket = 9, .plan = &plan };
        worker_assembly_init(&a);
        ck_assert_int_eq(carry(&parcel, &a, &n_packets), 1);
        ck_assert_uint_eq(a.missing, 4711);
        worker_assembly_deinit(&a);
        plan_deinit(&plan);
}
END_TEST

/* An operand that reaches a byte beyond its memory, with and without strides, ones that cannot be counted,
 * and axes that reach beyond or have nothing. */
START_TEST(operands_beyond_their_memory_are_refused) {
        for (int i = 0; i < 7; i++) {
                struct plan plan;
                struct worker_assembly a;
                uint32_t n_packets;
                set_up();
                fill_plan(&plan, 3, 2);
                struct operand *dense = &plan.operands[1], *strided = &plan.operands[5];
                uint64_t *strides = plan_strides(&plan, &plan.steps[1], 1);
                if (i == 0)
                        dense->offset_bytes = MEMORY_BYTES - 24 * 2 + 1;
                if (i == 1)
                        strided->offset_bytes = MEMORY_BYTES - (3 * strides[0] + 5 * strides[1]) * 2;
                if (i == 2)
                        strides[0] = UINT64_MAX;
                if (i == 3)
                        dense->offset_bytes = UINT64_MAX - 3;
                if (i == 4)
                        plan.steps[0].count = UINT64_MAX / 2;
                uint64_t *fold = &plan.strides[plan.steps[2].first_fold + 4];
                if (i == 5)
                        fold[0] = MEMORY_BYTES;
                if (i == 6)
                        fold[0] = 0;
                const struct worker_parcel parcel = { .ticket = 9, .plan = &plan };
                worker_assembly_init(&a);
                ck_assert_int_eq(carry(&parcel, &a, &n_packets), -EPROTO);
                worker_assembly_deinit(&a);
                plan_deinit(&plan);
        }
}
END_TEST

/* --- sparse values --- */

enum { TAKE, SORT, MERGE, NUMBER, SCATTER, WRITE, N_SPARSE };

static void add_sparse(struct plan *p, struct step step) {
        step.device = DEVICE_GPU;
        step.n_outputs = 1;
        struct step *s = plan_add_step(p, &step);
        ck_assert_ptr_nonnull(s);
        for (uint32_t i = 0; i < s->n_inputs + 1; i++)
                p->operands[s->first_operand + i] = (struct operand){ .memory = &memories[i], .rank = i };
}

/* 2,000 rows of 3 elements, which two ranks bring. */
static void fill_sparse_plan(struct plan *p) {
        const struct step steps[N_SPARSE] = {
                [TAKE] = { .kind = STEP_INDICES,
                        .dtype = DTYPE_I32,
                        .bound = 70,
                        .n_inputs = 1,
                        .count = 2000 },
                [SORT] = { .kind = STEP_ORDER,
                        .stage = ORDER_SORT,
                        .dtype = DTYPE_I32,
                        .output_dtype = ORDER_PAIR_DTYPE,
                        .n_inputs = 1,
                        .count = 2000 },
                [MERGE] = { .kind = STEP_ORDER,
                        .stage = ORDER_MERGE,
                        .dtype = ORDER_PAIR_DTYPE,
                        .run = 1024,
                        .n_inputs = 1,
                        .count = 2000 },
                [NUMBER] = { .kind = STEP_ORDER,
                        .stage = ORDER_NUMBER,
                        .dtype = DTYPE_U64,
                        .bound = 2,
                        .room = 900,
                        .room_rank = 3,
                        .n_inputs = 1,
                        .count = 1 },
                [SCATTER] = { .kind = STEP_SCATTER_ADD,
                        .op = OP_SUM,
                        .dtype = DTYPE_F32,
                        .n_inputs = 2 + SCATTER_ORDER,
                        .row_elements = 3,
                        .count = 6000 },
                [WRITE] = { .kind = STEP_ORDER,
                        .stage = ORDER_WRITE,
                        .dtype = ORDER_PAIR_DTYPE,
                        .output_dtype = DTYPE_I32,
                        .n_inputs = 2,
                        .count = 2000 },
        };
        plan_init(p);
        p->device = DEVICE_GPU;
        ck_assert_int_eq(plan_make_extents(p, 1, 2), 0);
        for (uint32_t i = 0; i < N_SPARSE; i++)
                add_sparse(p, steps[i]);
        struct operand *rows = plan_inputs(p, &p->steps[SCATTER]);
        for (uint32_t i = 0; i < 2; i++) {
                rows[i].first_row = 1500 * i;
                rows[i].n_rows = i ? 500 : 1500;
                rows[i].row_stride = 4;
        }
        plan_freeze(p, 4096);
}

START_TEST(a_plan_of_sparse_values_comes_out_as_it_went_in) {
        struct plan plan;
        struct worker_assembly a;
        uint32_t n_packets;
        set_up();
        fill_sparse_plan(&plan);
        const struct worker_parcel parcel = { .ticket = 9, .plan = &plan };
        worker_assembly_init(&a);
        ck_assert_int_eq(carry(&parcel, &a, &n_packets), 1);
        for (uint32_t i = 0; i < plan.n_steps; i++)
                same_step(&plan, &a.plan, i);
        for (uint32_t i = 0; i < plan.n_operands; i++)
                same_operand(&plan.operands[i], &a.plan.operands[i]);
        ck_assert_uint_eq(*plan_extents(&a.plan, 0), 0); /* there is room for a length */
        worker_assembly_deinit(&a);
        plan_deinit(&plan);
}
END_TEST

/* One thing that is wrong with it, of those that kernels would go astray by. */
static void spoil(struct plan *p, int what) {
        struct operand *rows = plan_inputs(p, &p->steps[SCATTER]);
        const uint64_t beyond = MEMORY_BYTES - 64;
        switch (what) {
        case 0: p->steps[MERGE].run = 0; break;
        case 1: p->steps[NUMBER].entry = 1; break;
        case 2: rows[1].first_row = 1501; break;
        case 3: rows[1].n_rows = 501; break;
        case 4: p->steps[SCATTER].row_elements = 0; break;
        case 5: rows[0].row_stride = MEMORY_BYTES; break;
        case 6: plan_inputs(p, &p->steps[SORT])->offset_bytes = beyond; break;
        case 7: plan_outputs(p, &p->steps[SORT])->offset_bytes = beyond; break;
        case 8: rows[3].offset_bytes = MEMORY_BYTES - 8; break; /* numbers of two blocks */
        case 9: p->steps[NUMBER].bound = UINT64_MAX / 4; break;
        case 10: p->steps[WRITE].stage = ORDER_WRITE + 1; break;
        case 11: p->steps[TAKE].count = UINT64_MAX / 2; break;
        }
}

START_TEST(steps_of_sparse_values_that_would_lead_astray_are_refused) {
        for (int what = 0; what < 12; what++) {
                struct plan plan;
                struct worker_assembly a;
                uint32_t n_packets;
                set_up();
                fill_sparse_plan(&plan);
                spoil(&plan, what);
                const struct worker_parcel parcel = { .ticket = 9, .plan = &plan };
                worker_assembly_init(&a);
                ck_assert_msg(carry(&parcel, &a, &n_packets) == -EPROTO, "%d", what);
                worker_assembly_deinit(&a);
                plan_deinit(&plan);
        }
}
END_TEST

START_TEST(parts_in_another_order_are_refused) {
        struct plan plan;
        struct worker_assembly a;
        union worker_packet head, part;
        struct worker_cursor cursor = { 0 };
        set_up();
        fill_plan(&plan, 2, 2);
        const struct worker_parcel parcel = { .ticket = 9, .plan = &plan };
        worker_assembly_init(&a);
        ck_assert(worker_next_part(&parcel, &cursor, &head));
        ck_assert(worker_next_part(&parcel, &cursor, &part));
        ck_assert_int_eq(worker_assembly_add(&a, &part.part, &there), -EPROTO); /* no head before it */
        ck_assert_int_eq(worker_assembly_begin(&a, &head.run), 0);
        ck_assert_int_eq(worker_assembly_begin(&a, &head.run), -EPROTO); /* two heads */
        part.head.ticket = 10;
        ck_assert_int_eq(worker_assembly_add(&a, &part.part, &there), -EPROTO);
        part.head.ticket = 9;
        ck_assert_int_eq(worker_assembly_add(&a, &part.part, &there), 0);
        ck_assert_int_eq(worker_assembly_add(&a, &part.part, &there), -EPROTO); /* again */
        worker_assembly_deinit(&a);
        plan_deinit(&plan);
}
END_TEST

/* One packet of each verb, as its sender would make it. */
static size_t example(uint32_t verb, union worker_packet *p, enum worker_end *ret_sender) {
        memset(p, 0, sizeof(*p));
        p->head.verb = verb;
        *ret_sender = verb >= WORKER_HELLO ? WORKER_END_GPU : WORKER_END_TUTTID;
        switch ((enum worker_verb)verb) {
        case WORKER_IMPORT:
                p->import.number = 7;
                p->import.path = PATH_MEMFD;
                p->head.n_fds = 1;
                break;
        case WORKER_RELEASE: p->release.number = 7; break;
        case WORKER_RUN:
                p->head.ticket = 3;
                p->run.n_steps = 1;
                p->run.chunk_bytes = 64;
                break;
        case WORKER_PART:
                p->part.record = RECORD_STRIDES;
                p->part.n_records = 5;
                break;
        case WORKER_DEVICE: p->device.n_devices = 2; break;
        case WORKER_SUMS: p->sums.n = 3; break;
        case WORKER_LENGTHS: p->lengths.n = 2; break;
        case WORKER_SETTINGS:
        case WORKER_PING:
        case WORKER_HELLO:
        case WORKER_FALLBACK:
        case WORKER_READY:
        case WORKER_OFF:
        case WORKER_CHORE_DONE:
        case WORKER_RUN_LAUNCHED:
        case WORKER_RUN_DONE:
        case WORKER_PONG: break;
        }
        return worker_packet_bytes(p);
}

START_TEST(every_verb_passes_its_check_and_no_other_length_or_sender_does) {
        union worker_packet p;
        enum worker_end sender;
        for (uint32_t verb = WORKER_SETTINGS; verb <= WORKER_PONG; verb++) {
                size_t n = example(verb, &p, &sender);
                uint32_t n_fds = p.head.n_fds;
                ck_assert_int_eq(worker_check(&p, n, n_fds, sender), 0);
                ck_assert_int_eq(worker_check(&p, n, n_fds, !sender), -EPROTO);
                ck_assert_int_eq(worker_check(&p, n, n_fds + 1, sender), -EPROTO);
                ck_assert_int_eq(worker_check(&p, n + 1, n_fds, sender), -EPROTO);
                for (size_t less = 0; less < n; less++)
                        ck_assert_int_eq(worker_check(&p, less, n_fds, sender), -EPROTO);
        }
        for (uint32_t verb = WORKER_PONG + 1; verb < WORKER_PONG + 100; verb++) {
                example(WORKER_PING, &p, &sender);
                p.head.verb = verb;
                ck_assert_int_eq(worker_check(&p, sizeof(struct worker_ping), 0, WORKER_END_TUTTID), -EPROTO);
        }
}
END_TEST

START_TEST(texts_without_an_end_and_numbers_out_of_range_are_refused) {
        union worker_packet p;
        enum worker_end sender;
        size_t n = example(WORKER_HELLO, &p, &sender);
        memset(p.hello.build, 'x', sizeof(p.hello.build));
        ck_assert_int_eq(worker_check(&p, n, 0, sender), -EPROTO);
        n = example(WORKER_RUN_DONE, &p, &sender);
        p.run_done.status = STATUS_PENDING;
        ck_assert_int_eq(worker_check(&p, n, 0, sender), -EPROTO);
        n = example(WORKER_CHORE_DONE, &p, &sender);
        p.chore_done.status = N_STATUS;
        ck_assert_int_eq(worker_check(&p, n, 0, sender), -EPROTO);
        n = example(WORKER_DEVICE, &p, &sender);
        p.device.device = 2;
        ck_assert_int_eq(worker_check(&p, n, 0, sender), -EPROTO);
        n = example(WORKER_DEVICE, &p, &sender);
        memset(&p.device.report.has_timeline, 0x7f, 1);
        ck_assert_int_eq(worker_check(&p, n, 0, sender), -EPROTO);
        n = example(WORKER_DEVICE, &p, &sender);
        memset(&p.device.report.has_events, 0x7f, 1);
        ck_assert_int_eq(worker_check(&p, n, 0, sender), -EPROTO);
        n = example(WORKER_IMPORT, &p, &sender);
        p.import.path = PATH_EVENTS; /* a page, which has one */
        ck_assert_int_eq(worker_check(&p, n, 1, sender), 0);
        n = example(WORKER_IMPORT, &p, &sender);
        p.import.path = PATH_CUDA_IPC; /* brings no descriptor */
        ck_assert_int_eq(worker_check(&p, n, 1, sender), -EPROTO);
        n = example(WORKER_IMPORT, &p, &sender);
        p.import.path = 77;
        ck_assert_int_eq(worker_check(&p, n, 1, sender), -EPROTO);
        example(WORKER_PART, &p, &sender);
        p.part.n_records = WORKER_PART_BYTES / 8 + 1;
        ck_assert_int_eq(worker_check(&p, sizeof(p), 0, sender), -EPROTO);
}
END_TEST

/* Any bytes at all: it answers, reads nothing beyond them (a sanitizer looks on), and plans that come of them
 * lie within their memory or are refused. */
START_TEST(random_bytes_never_do_harm) {
        union worker_packet p;
        struct plan plan;
        set_up();
        fill_plan(&plan, 3, 2);
        for (int round = 0; round < 20000; round++) {
                const struct worker_parcel parcel = { .ticket = 9, .plan = &plan };
                struct worker_cursor cursor = { 0 };
                struct worker_assembly a;
                worker_assembly_init(&a);
                while (worker_next_part(&parcel, &cursor, &p)) {
                        size_t n = worker_packet_bytes(&p);
                        if (draw(3) == 0)
                                p.bytes[draw(n)] ^= (uint8_t)(1 << draw(8));
                        if (worker_check(&p, n, p.head.n_fds, WORKER_END_TUTTID) < 0)
                                break;
                        if (p.head.verb != WORKER_RUN && p.head.verb != WORKER_PART)
                                break;
                        if (p.head.verb == WORKER_RUN && p.run.n_operands + p.run.n_steps > 100000)
                                break; /* only memory */
                        int r = p.head.verb == WORKER_RUN ? worker_assembly_begin(&a, &p.run)
                                                          : worker_assembly_add(&a, &p.part, &there);
                        if (r != 0)
                                break;
                }
                worker_assembly_deinit(&a);
        }
        plan_deinit(&plan);
}
END_TEST

UNIT_MAIN("worker-protocol", 30, a_plan_comes_out_as_it_went_in, a_memory_that_is_not_there_is_named,
        operands_beyond_their_memory_are_refused, a_plan_of_sparse_values_comes_out_as_it_went_in,
        steps_of_sparse_values_that_would_lead_astray_are_refused, parts_in_another_order_are_refused,
        every_verb_passes_its_check_and_no_other_length_or_sender_does,
        texts_without_an_end_and_numbers_out_of_range_are_refused, random_bytes_never_do_harm)
