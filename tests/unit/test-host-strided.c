/* Strided values on the host backend: the numbers are those of the same values laid out densely, bit for bit,
 * at every instruction set and in chunks of any size; bytes between elements are never touched (D1 D16 P10
 * P14). */
#include "backends/host/kernels.h"
#include "host-memory.h"
#include "oracle.h"

#define MAX_RANKS    5
#define MEMORY_BYTES (512u << 10)

static uint64_t random_state = 5;

static uint64_t draw(uint64_t limit) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random_state >> 33) % limit;
}

/* Lays `shape` out somehow: dimensions in any order, gaps between them. Returns the extent. */
static uint64_t draw_strides(uint32_t n_dims, const uint64_t *shape, uint64_t *ret) {
        uint32_t order[MAX_DIMS];
        uint64_t stride = draw(3) ? 1 : 1 + draw(4), extent = 1;
        for (uint32_t i = 0; i < n_dims; i++)
                order[i] = n_dims - 1 - i;
        for (uint32_t i = 0; i < n_dims && draw(2); i++) {
                uint32_t other = (uint32_t)draw(n_dims), swap = order[i];
                order[i] = order[other];
                order[other] = swap;
        }
        for (uint32_t i = 0; i < n_dims; i++) {
                ret[order[i]] = stride;
                extent += (shape[order[i]] - 1) * stride;
                stride = extent + (draw(2) ? 0 : draw(5));
        }
        return extent;
}

struct operand_plan {
        uint64_t strides[MAX_DIMS], extent, offset_bytes;
};

/* A step with inputs and outputs of its own strides, and of one the output in place. */
struct trial {
        struct step step;
        uint64_t shape[MAX_DIMS];
        uint32_t n_dims;
        struct operand_plan operands[2 * MAX_RANKS];
        bool is_in_place;
};

static void draw_trial(struct trial *t) {
        static const struct {
                enum op op;
                enum dtype dtype;
        } sorts[] = { { OP_SUM, DTYPE_F32 }, { OP_MEAN, DTYPE_F16 }, { OP_MAX, DTYPE_F64 },
                { OP_SUM, DTYPE_U8 }, { OP_PROD, DTYPE_C128 }, { OP_MIN, DTYPE_BF16 } };
        size_t sort = draw(ARRAY_SIZE(sorts));
        uint32_t n = 1 + (uint32_t)draw(MAX_RANKS);
        *t = (struct trial){ .step = { .kind = draw(5) ? STEP_REDUCE : STEP_COPY,
                                     .op = sorts[sort].op,
                                     .dtype = sorts[sort].dtype,
                                     .n_inputs = n,
                                     .n_outputs = (uint32_t)draw(n + 1),
                                     .divisor = n,
                                     .count = 1 },
                .is_in_place = draw(2) };
        if (t->step.kind == STEP_COPY)
                t->step.n_inputs = 1;
        t->n_dims = 1 + (uint32_t)draw(5);
        for (uint32_t i = 0; i < t->n_dims; i++) {
                t->shape[i] = 1 + draw(i == t->n_dims - 1 && draw(2) ? 600 : 5);
                t->step.count *= t->shape[i];
        }
        bool is_dense = draw(8) == 0;
        for (uint32_t i = 0; i < t->step.n_inputs + t->step.n_outputs; i++) {
                struct operand_plan *o = &t->operands[i];
                o->extent = draw_strides(t->n_dims, t->shape, o->strides);
                if (is_dense || draw(4) == 0) {
                        struct view v;
                        view_make(&v, t->n_dims, t->shape, NULL);
                        memcpy(o->strides, v.strides, sizeof(v.strides));
                        o->extent = t->step.count;
                }
        }
        /* The output of rank 0, where there is one, is its input. */
        t->is_in_place &= t->step.n_outputs > 0;
        if (t->is_in_place)
                t->operands[t->step.n_inputs] = t->operands[0];
}

static bool lay_out(struct trial *t) {
        size_t size = dtype_bytes(t->step.dtype);
        uint64_t used = 0;
        for (uint32_t i = 0; i < t->step.n_inputs + t->step.n_outputs; i++) {
                struct operand_plan *o = &t->operands[i];
                used = (used + 40 + draw(100)) / size * size + size;
                o->offset_bytes = used;
                used += o->extent * size;
        }
        if (t->is_in_place)
                t->operands[t->step.n_inputs].offset_bytes = t->operands[0].offset_bytes;
        return used + 64 < MEMORY_BYTES;
}

static struct lattice lattice_of(const struct trial *t, const struct operand_plan *o) {
        return (struct lattice){ dtype_bytes(t->step.dtype), t->n_dims, t->shape, o->strides };
}

/* Canaries, inputs, and what must be there afterwards. */
static void prepare(const struct trial *t, uint8_t *memory, uint8_t *expected) {
        size_t n_bytes = t->step.count * dtype_bytes(t->step.dtype);
        uint8_t *inputs[MAX_RANKS], *output = malloc(n_bytes + 1);
        memset(memory, 0xa5, MEMORY_BYTES);
        for (uint32_t i = 0; i < t->step.n_inputs; i++) {
                const struct lattice l = lattice_of(t, &t->operands[i]);
                inputs[i] = malloc(n_bytes + 1);
                oracle_fill(t->step.dtype, inputs[i], t->step.count, draw(1 << 30));
                lattice_scatter(&l, memory + t->operands[i].offset_bytes, 0, t->step.count, inputs[i]);
        }
        if (t->step.kind == STEP_COPY)
                memcpy(output, inputs[0], n_bytes);
        else
                oracle_reduce(t->step.op, t->step.dtype, (const void *const *)inputs, t->step.n_inputs,
                        output, t->step.count, t->step.divisor);
        memcpy(expected, memory, MEMORY_BYTES);
        for (uint32_t i = 0; i < t->step.n_outputs; i++) {
                const struct operand_plan *o = &t->operands[t->step.n_inputs + i];
                const struct lattice l = lattice_of(t, o);
                lattice_scatter(&l, expected + o->offset_bytes, 0, t->step.count, output);
        }
        for (uint32_t i = 0; i < t->step.n_inputs; i++)
                free(inputs[i]);
        free(output);
}

static void plan_trial(const struct trial *t, struct buffer *buf, struct plan *p) {
        struct step step = t->step;
        plan_reset(p);
        step.n_dims = t->n_dims;
        memcpy(step.shape, t->shape, sizeof(step.shape));
        struct step *s = plan_add_step(p, &step);
        ck_assert_ptr_nonnull(s);
        for (uint32_t i = 0; i < s->n_inputs + s->n_outputs; i++) {
                plan_inputs(p, s)[i] = (struct operand){ .memory = buf->chore.memory,
                        .offset_bytes = t->operands[i].offset_bytes };
                memcpy(plan_strides(p, s, i), t->operands[i].strides, t->n_dims * sizeof(uint64_t));
        }
        plan_simplify_step(p);
        plan_freeze(p, draw(2) ? 64 * (1 + draw(100)) : 1 << 20);
}

/* NaNs may differ in their payload: those that are due are taken over. */
static void expect(const struct trial *t, const uint8_t *memory, uint8_t *expected, int round) {
        size_t size = dtype_bytes(t->step.dtype);
        for (uint32_t i = 0; i < t->step.n_outputs; i++) {
                const struct operand_plan *o = &t->operands[t->step.n_inputs + i];
                const struct lattice l = lattice_of(t, o);
                for (uint64_t k = 0; k < t->step.count; k++) {
                        uint64_t at = o->offset_bytes + lattice_offset(&l, k) * size;
                        ptrdiff_t wrong = oracle_difference(t->step.dtype, memory + at, expected + at, 1);
                        ck_assert_msg(wrong < 0, "round %d, %s %s, output %u, element %llu is %s, not %s",
                                round, op_name(t->step.op), dtype_name(t->step.dtype), i,
                                (unsigned long long)k, oracle_show(t->step.dtype, memory + at, 0),
                                oracle_show(t->step.dtype, expected + at, 0));
                        memcpy(expected + at, memory + at, size);
                }
        }
        ck_assert_msg(
                memcmp(memory, expected, MEMORY_BYTES) == 0, "round %d: a gap has been written to", round);
}

static void try_many(enum isa isa, int n_rounds) {
        struct backend *b = NULL;
        struct buffer buf;
        struct plan p;
        const struct memory *culprit;
        uint8_t *expected = malloc(MEMORY_BYTES);
        if (kernels_isa(isa) != isa)
                unit_skip("this processor has no %s", isa_name(isa));
        ck_assert_int_eq(host_backend_new(&b, isa), 0);
        ck_assert_int_eq(b->ops->thread_init(b), 0);
        buffer_init(&buf, b, MEMORY_BYTES, 1);
        plan_init(&p);
        int n_dense = 0;
        for (int round = 0; round < n_rounds; round++) {
                struct trial t;
                draw_trial(&t);
                if (!lay_out(&t))
                        continue;
                prepare(&t, buf.data, expected);
                plan_trial(&t, &buf, &p);
                n_dense += p.steps[0].n_dims == 0;
                ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_OK);
                expect(&t, buf.data, expected, round);
        }
        ck_assert_int_gt(n_dense, 0);
        ck_assert_int_lt(n_dense, n_rounds / 2);
        plan_deinit(&p);
        buffer_deinit(&buf, b);
        b->ops->free(b);
        free(expected);
}

#define N_ROUNDS (unit_scale() > 1 ? 50 : 150)

START_TEST(D1_D16_P10_strided_values_scalar) {
        try_many(ISA_SCALAR, N_ROUNDS);
}
END_TEST

START_TEST(D1_D16_P10_strided_values_avx2) {
        try_many(ISA_AVX2, N_ROUNDS);
}
END_TEST

START_TEST(D1_D16_P10_strided_values_avx512) {
        try_many(ISA_AVX512, N_ROUNDS);
}
END_TEST

#define N_MANY 1024

/* As many inputs and outputs as can be: the slots of the tile are small then. */
START_TEST(D1_a_full_world_of_strided_values) {
        struct backend *b = new_backend();
        struct buffer buf;
        struct plan p;
        const struct memory *culprit;
        const uint64_t count = 37;
        buffer_init(&buf, b, N_MANY * count * 2 * 8, 1);
        double *data = (double *)(void *)buf.data;
        for (size_t i = 0; i < N_MANY * count * 2; i++)
                data[i] = i % 2 ? -1 : (double)(i / 2 % count);
        plan_init(&p);
        struct step *s = plan_add_step(&p, &(struct step){ .kind = STEP_REDUCE,
                                                   .op = OP_SUM,
                                                   .dtype = DTYPE_F64,
                                                   .n_inputs = N_MANY,
                                                   .n_outputs = N_MANY,
                                                   .n_dims = 1,
                                                   .shape = { count },
                                                   .count = count });
        for (uint32_t i = 0; i < 2 * N_MANY; i++) {
                plan_inputs(&p, s)[i] = (struct operand){ .memory = buf.chore.memory,
                        .offset_bytes = i % N_MANY * count * 2 * 8 };
                plan_strides(&p, s, i)[0] = 2;
        }
        plan_simplify_step(&p);
        plan_freeze(&p, 64);
        ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_OK);
        for (size_t i = 0; i < N_MANY * count * 2; i++)
                ck_assert_double_eq(data[i], i % 2 ? -1 : N_MANY * (double)(i / 2 % count));
        plan_deinit(&p);
        buffer_deinit(&buf, b);
        b->ops->free(b);
}
END_TEST

START_TEST(P16_a_hole_under_a_strided_run_names_its_owner) {
        struct backend *b = new_backend();
        struct buffer buf;
        struct plan p;
        const struct memory *culprit = NULL;
        require_guard(b);
        buffer_init(&buf, b, 64 * PAGE, 77);
        int fd = buf.chore.fd;
        plan_init(&p);
        struct step *s = plan_add_step(&p, &(struct step){ .kind = STEP_REDUCE,
                                                   .op = OP_SUM,
                                                   .dtype = DTYPE_F32,
                                                   .n_inputs = 1,
                                                   .n_outputs = 1,
                                                   .n_dims = 1,
                                                   .shape = { 30 * PAGE / 4 },
                                                   .count = 30 * PAGE / 4 });
        for (uint32_t i = 0; i < 2; i++) {
                plan_inputs(&p, s)[i] = (struct operand){ .memory = buf.chore.memory };
                plan_strides(&p, s, i)[0] = 2;
        }
        plan_simplify_step(&p);
        plan_freeze(&p, 1 << 20);
        ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_OK);
        punch(fd, 20 * PAGE, PAGE);
        ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_BAD_FD);
        ck_assert_ptr_eq(culprit, buf.chore.memory);
        plan_deinit(&p);
        buffer_deinit(&buf, b);
        b->ops->free(b);
}
END_TEST

UNIT_MAIN("host-strided", 60, D1_D16_P10_strided_values_scalar, D1_D16_P10_strided_values_avx2,
        D1_D16_P10_strided_values_avx512, D1_a_full_world_of_strided_values,
        P16_a_hole_under_a_strided_run_names_its_owner)
