/* Halves that cannot be taken, by themselves or beside the others: everybody hears of it, and the group goes
 * on (A7, P4, P14). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "meeting.h"

#define AT_ONCE 0.5 /* s, after the last half; the promise is 50 ms */

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = 20));
}

static enum tutti_status sum(struct tutti_group *g, const char *key, const struct tutti_value *v) {
        return tutti_all_reduce(g, key, TUTTI_SUM, v, v);
}

/* The group still works: the same key, by everybody, without reconnecting. */
static void expect_to_go_on(struct replica *me, struct tutti_group *g, const char *key) {
        struct floats f;
        floats_init(me->t, &f, 100);
        floats_meet(g, key, &f, 1, (float)me->n);
        floats_deinit(&f);
}

static void expect_at_once(void) {
        ck_assert_msg(board_age() < AT_ONCE * unit_scale(), "heard of it after %g s", board_age());
}

/* --- P4: one half is refused --- */

/* What rank 1 does wrong. */
struct wrong {
        const char *what;
        enum tutti_status (*submit)(struct tutti_group *g, const char *key, struct floats *f);
        enum tutti_status status;
        enum tutti_field field;
};

static enum tutti_status beyond_the_buffer(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.offset = 4 * sizeof(float);
        return sum(g, key, &v);
}

static enum tutti_status not_aligned(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.offset = 2;
        v.shape[0] = 1;
        return sum(g, key, &v);
}

/* offset + bytes wraps around 64 bits */
static enum tutti_status beyond_all_bounds(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.offset = SIZE_MAX - 7;
        v.shape[0] = 10;
        return sum(g, key, &v);
}

static enum tutti_status more_than_can_be_counted(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.n_dims = 3;
        v.shape[0] = v.shape[1] = v.shape[2] = 1ull << 30;
        return sum(g, key, &v);
}

static enum tutti_status order_of_complex_numbers(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.dtype = TUTTI_C64;
        v.shape[0] = 5;
        return tutti_all_reduce(g, key, TUTTI_MIN, &v, &v);
}

static enum tutti_status unknown_dtype(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.dtype = (enum tutti_dtype)99;
        return sum(g, key, &v);
}

static enum tutti_status too_many_dims(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.n_dims = TUTTI_MAX_DIMS + 1;
        return sum(g, key, &v);
}

static enum tutti_status too_many_entries(struct tutti_group *g, const char *key, struct floats *f) {
        const uint32_t n = 70000;
        struct tutti_entry *entries = calloc(n, sizeof(*entries));
        ck_assert_ptr_nonnull(entries);
        for (uint32_t i = 0; i < n; i++)
                entries[i] = TUTTI_ENTRY(.input = &f->value, .output = &f->value);
        enum tutti_status status = tutti_batch_reduce(g, key, TUTTI_SUM, entries, n);
        free(entries);
        return status;
}

static enum tutti_status no_entries(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_batch_reduce(g, key, TUTTI_SUM, NULL, 0);
}

static enum tutti_status no_value(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_all_reduce(g, key, TUTTI_SUM, &f->value, NULL);
}

static enum tutti_status no_buffer(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.buffer = NULL;
        return sum(g, key, &v);
}

static enum tutti_status no_such_root(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_broadcast(g, key, 7, &f->value);
}

static enum tutti_status no_such_destination(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_reduce(g, key, TUTTI_SUM, &f->value, &f->value,
                &(struct tutti_destinations){ .where = TUTTI_TO_RANK, .rank = 3 });
}

static enum tutti_status bits_of_floats(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_all_reduce(g, key, TUTTI_BAND, &f->value, &f->value);
}

static enum tutti_status mean_of_integers(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.dtype = TUTTI_I32;
        return tutti_all_reduce(g, key, TUTTI_MEAN, &v, &v);
}

static enum tutti_status another_output_shape(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_value v = f->value;
        v.shape[0] = 9;
        return tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &v);
}

static const struct wrong wrongs[] = {
        { "beyond the buffer", beyond_the_buffer, TUTTI_INVALID, TUTTI_FIELD_OFFSET },
        { "beyond all bounds", beyond_all_bounds, TUTTI_INVALID, TUTTI_FIELD_OFFSET },
        { "not aligned", not_aligned, TUTTI_INVALID, TUTTI_FIELD_OFFSET },
        { "more than can be counted", more_than_can_be_counted, TUTTI_LIMIT, TUTTI_FIELD_SHAPE },
        { "order of complex numbers", order_of_complex_numbers, TUTTI_UNSUPPORTED, TUTTI_FIELD_OP },
        { "unknown dtype", unknown_dtype, TUTTI_UNSUPPORTED, TUTTI_FIELD_DTYPE },
        { "nine dimensions", too_many_dims, TUTTI_LIMIT, TUTTI_FIELD_SHAPE },
        { "70,000 entries", too_many_entries, TUTTI_LIMIT, TUTTI_FIELD_BATCH_LENGTH },
        { "no entries", no_entries, TUTTI_INVALID, TUTTI_FIELD_BATCH_LENGTH },
        { "no value", no_value, TUTTI_INVALID, TUTTI_FIELD_BUFFER },
        { "no buffer", no_buffer, TUTTI_INVALID, TUTTI_FIELD_BUFFER },
        { "no such root", no_such_root, TUTTI_INVALID, TUTTI_FIELD_ROOT },
        { "no such destination", no_such_destination, TUTTI_INVALID, TUTTI_FIELD_DESTINATIONS },
        { "bits of floats", bits_of_floats, TUTTI_UNSUPPORTED, TUTTI_FIELD_OP },
        { "mean of integers", mean_of_integers, TUTTI_UNSUPPORTED, TUTTI_FIELD_OP },
        { "another output shape", another_output_shape, TUTTI_INVALID, TUTTI_FIELD_SHAPE },
};
#define N_WRONGS (sizeof(wrongs) / sizeof(*wrongs))

static void expect_refusal(struct replica *me, const struct tutti_error_info *e, const struct wrong *wrong) {
        enum tutti_status wanted = me->rank == 1 ? wrong->status : TUTTI_PEER_REFUSED;
        ck_assert_msg(e->status == wanted, "%s: not %s: %s", wrong->what, tutti_status_name(wanted), e->text);
        ck_assert_msg(e->field == wrong->field, "%s: field %s: %s", wrong->what, e->field_name, e->text);
        ck_assert_msg(e->rank == 1, "%s: rank %d: %s", wrong->what, e->rank, e->text);
        expect_in(e->text, tutti_status_name(wrong->status));
        if (me->rank == 1)
                return;
        ck_assert_msg(e->cause == wrong->status, "%s: cause %s: %s", wrong->what, tutti_status_name(e->cause),
                e->text);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 1);
        expect_in(e->text, "R1 (pid ");
        expect_in(e->text, "test/train");
}

/* Who comes after the refusal hears of it, too. */
static void come_after_the_refusal(
        struct tutti_group *g, const char *key, struct floats *f, const struct wrong *wrong) {
        expect_status(tutti_barrier(g, "the others are here"), TUTTI_OK);
        expect_status(tutti_barrier(g, "refused"), TUTTI_OK);
        const struct tutti_error_info *e = expect_error(sum(g, key, &f->value));
        ck_assert_int_eq(e->status, TUTTI_EXPIRED);
        ck_assert_int_eq(e->cause, TUTTI_PEER_REFUSED);
        ck_assert_int_eq(e->field, wrong->field);
        ck_assert_int_eq(e->rank, 1);
}

/* Nobody else has come yet. */
static void be_wrong_first(struct replica *me, struct tutti_group *g, struct floats *f) {
        if (me->rank == 1)
                expect_refusal(me, expect_error(wrongs[0].submit(g, "first", f)), &wrongs[0]);
        expect_status(tutti_barrier(g, "refused"), TUTTI_OK);
        if (me->rank != 1) {
                const struct tutti_error_info *e = expect_error(sum(g, "first", &f->value));
                ck_assert_int_eq(e->status, TUTTI_EXPIRED);
                ck_assert_int_eq(e->cause, TUTTI_PEER_REFUSED);
                ck_assert_int_eq(e->rank, 1);
        }
        expect_to_go_on(me, g, "first");
}

/* By name and by number in turn. */
static void one_does_wrong(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        be_wrong_first(me, g, &f);
        for (size_t i = 0; i < N_WRONGS; i++) {
                const char *key = i % 2 ? "x" : NULL;
                floats_fill(&f, 6);
                if (me->rank == 1) {
                        come_last(g);
                        expect_refusal(me, expect_error(wrongs[i].submit(g, key, &f)), &wrongs[i]);
                } else if (me->rank == 0) {
                        const struct tutti_error_info *e = sum_early(g, key, &f.value, &f.value);
                        expect_at_once();
                        expect_refusal(me, e, &wrongs[i]);
                }
                if (me->rank == 2)
                        come_after_the_refusal(g, key, &f, &wrongs[i]);
                else
                        expect_status(tutti_barrier(g, "refused"), TUTTI_OK);
                floats_expect(&f, 6);
                expect_to_go_on(me, g, key);
        }
}

START_TEST(P4_a_refused_half_is_told_to_the_others_at_once) {
        replicas_run(3, one_does_wrong);
}
END_TEST

static int make_memfd(size_t n_bytes) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)n_bytes), 0);
        return fd;
}

/* What may only be read is not written, and the other way round. */
static void register_for_less(struct replica *me) {
        struct floats f;
        struct tutti_buffer *in, *out;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        int fd = make_memfd(4096), other = make_memfd(4096);
        expect_status(tutti_buffer_from_fd(me->t, fd, 0, TUTTI_IN, &in), TUTTI_OK);
        expect_status(tutti_buffer_from_fd(me->t, other, 0, TUTTI_OUT, &out), TUTTI_OK);
        close(fd);
        close(other);
        struct tutti_value from_in = f.value, to_out = f.value;
        from_in.buffer = in;
        to_out.buffer = out;
        const struct wrong wrong = { "access", NULL, TUTTI_INVALID, TUTTI_FIELD_ACCESS };
        if (me->rank == 1) {
                come_last(g);
                expect_refusal(
                        me, expect_error(tutti_all_reduce(g, "x", TUTTI_SUM, &f.value, &from_in)), &wrong);
                come_last(g);
                expect_refusal(
                        me, expect_error(tutti_all_reduce(g, "y", TUTTI_SUM, &to_out, &f.value)), &wrong);
        } else {
                expect_refusal(me, sum_early(g, "x", &f.value, &f.value), &wrong);
                expect_refusal(me, sum_early(g, "y", &f.value, &f.value), &wrong);
        }
        for (int i = 0; i < 10; i++)
                ((float *)tutti_buffer_data(in))[i] = (float)i;
        expect_status(tutti_all_reduce(g, "x", TUTTI_SUM, &from_in, &to_out), TUTTI_OK);
        for (int i = 0; i < 10; i++)
                ck_assert_float_eq(((const float *)tutti_buffer_data(out))[i], 2.0F * (float)i);
}

START_TEST(P4_what_is_registered_for_reading_is_not_written) {
        replicas_run(2, register_for_less);
}
END_TEST

/* Foreign descriptors get no buffer at all. */
static void register_foreign_memory(struct replica *me) {
        struct tutti_buffer *b = NULL;
        char path[128];
        int ends[2];
        replica_open(me);
        snprintf(path, sizeof(path), "/proc/self/exe");
        int file = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(file, 0);
        expect_status(tutti_buffer_from_fd(me->t, file, 4096, TUTTI_IN, &b), TUTTI_BAD_FD);
        close(file);
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        ck_assert_int_ne(tutti_buffer_from_fd(me->t, ends[0], 0, TUTTI_IN, &b), TUTTI_OK);
        close(ends[0]);
        close(ends[1]);
        expect_status(tutti_buffer_from_fd(me->t, 987, 0, TUTTI_IN, &b), TUTTI_BAD_FD);
        int sealed = make_memfd(4096);
        ck_assert_int_eq(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE), 0);
        expect_status(tutti_buffer_from_fd(me->t, sealed, 0, TUTTI_INOUT, &b), TUTTI_BAD_FD);
        close(sealed);
        ck_assert_ptr_null(b);
        expect_to_go_on(me, join(me), "x");
}

START_TEST(P4_what_is_no_memfd_is_refused_by_name) {
        replicas_run(2, register_foreign_memory);
}
END_TEST

/* A buffer of another connection is nobody's here. */
static void use_memory_of_another_connection(struct replica *me) {
        struct tutti *other;
        struct floats f, strange;
        struct tutti_group *g = join(me);
        expect_status(tutti_open(me->socket, &other), TUTTI_OK);
        floats_init(me->t, &f, 10);
        floats_init(other, &strange, 10);
        const struct wrong wrong = { "strange buffer", NULL, TUTTI_INVALID, TUTTI_FIELD_BUFFER };
        if (me->rank == 1) {
                come_last(g);
                expect_refusal(me, expect_error(sum(g, "x", &strange.value)), &wrong);
        } else {
                expect_refusal(me, sum_early(g, "x", &f.value, &f.value), &wrong);
        }
        tutti_close(other);
        expect_to_go_on(me, g, "x");
}

START_TEST(P4_a_buffer_of_another_connection_is_refused) {
        replicas_run(2, use_memory_of_another_connection);
}
END_TEST

/* --- A7: a registration is refused --- */

#define TOO_MUCH ((size_t)96 << 20)

static void meet_a_quota(struct replica *me, struct tutti_group *g, struct floats *small) {
        struct tutti_buffer *big;
        enum tutti_status status = tutti_buffer_alloc(me->t, TOO_MUCH, &big);
        struct tutti_value v = small->value;
        if (status == TUTTI_OK)
                v.buffer = big;
        else
                v.buffer = NULL;
        replica_say(me, "ready");
        replica_hear(me, "go");
        board_note_moment();
        expect_status(tutti_all_reduce(g, "x", TUTTI_SUM, &v, &v), TUTTI_QUOTA);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_uint_ge(e->used + TOO_MUCH, e->limit);
        ck_assert_uint_eq(e->limit, 64u << 20);
        expect_in(e->text, "mapped");
        tutti_buffer_free(big);
}

static void hear_of_a_refusal(struct tutti_group *g, struct floats *f) {
        expect_status(floats_sum(g, "x", f), TUTTI_PEER_REFUSED);
        double after = board_age();
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_double_lt(after, 0.5 * unit_scale());
        ck_assert_int_eq(e->cause, TUTTI_QUOTA);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->field, TUTTI_FIELD_BUFFER);
        expect_in(e->text, "R1");
        expect_in(e->text, "QUOTA");
}

static void register_too_much(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        floats_meet(g, "warm", &f, 1, 3);
        if (me->rank == 1) {
                meet_a_quota(me, g, &f);
        } else {
                replica_say(me, "ready");
                hear_of_a_refusal(g, &f);
        }
        floats_meet(g, "x", &f, 2, 6);
}

/* The others wait; or they come after the refusal: nobody waits for what cannot come. */
START_TEST(A7_a_refused_registration_reaches_the_others_at_once) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "quota.mapped-bytes=64MiB", NULL });
        replicas_spawn(h, 3, register_too_much, NULL, r);
        replicas_expect(r, 3, "ready", 10);
        host_expect_pending(h, 2);
        replica_tell(r[1], "go");
        replicas_end(h, r, 3);
}
END_TEST

/* --- P14: memory that replicas share --- */

static int common_fd = -1;

/* n floats of the common memory from `from` on. */
static struct tutti_value part(struct tutti_buffer *b, size_t from, size_t n) {
        return TUTTI_VALUE(.buffer = b, .offset = from * sizeof(float), .dtype = TUTTI_F32, .n_dims = 1,
                .shape = { n });
}

static void expect_overlap(enum tutti_status status, const char *one, const char *other) {
        const struct tutti_error_info *e = tutti_error_info();
        expect_status(status, TUTTI_INVALID);
        ck_assert_msg(e->field == TUTTI_FIELD_OVERLAP, "field %s: %s", e->field_name, e->text);
        expect_in(e->text, one);
        expect_in(e->text, other);
}

static void fill(struct tutti_buffer *b, size_t from, size_t n, float value) {
        for (size_t i = from; i < from + n; i++)
                ((float *)tutti_buffer_data(b))[i] = value;
}

static void expect_all(struct tutti_buffer *b, size_t from, size_t n, float value) {
        for (size_t i = from; i < from + n; i++)
                ck_assert_float_eq(((float *)tutti_buffer_data(b))[i], value);
}

/* Rank 2 has memory of its own, and hears of it too. */
static void outputs_overlap(struct replica *me, struct tutti_group *g, struct tutti_buffer *b) {
        struct floats f;
        floats_init(me->t, &f, 1000);
        struct tutti_value out = part(b, me->rank * 999, 1000);
        expect_overlap(
                tutti_all_reduce(g, "x", TUTTI_SUM, &f.value, me->rank == 2 ? &f.value : &out), "R0", "R1");
        /* By one element less they do not. */
        floats_fill(&f, 2);
        out = part(b, me->rank * 1000, 1000);
        expect_status(tutti_all_reduce(g, "x", TUTTI_SUM, &f.value, &out), TUTTI_OK);
        expect_all(b, me->rank * 1000, 1000, 6);
        expect_status(tutti_barrier(g, "read"), TUTTI_OK);
        floats_deinit(&f);
}

static void output_overlaps_an_input_of_another(
        struct replica *me, struct tutti_group *g, struct tutti_buffer *b) {
        /* 0 reads [0,1000) and writes [4000,5000), 1 reads [2000,3000) and writes the last of 0's input. */
        struct tutti_value in = part(b, me->rank * 2000, 1000);
        struct tutti_value out = part(b, me->rank == 1 ? 999 : 4000 + me->rank * 2000, 1000);
        expect_overlap(tutti_all_reduce(g, "x", TUTTI_SUM, &in, &out), "R1", "R0");
}

static void output_overlaps_its_own_input(struct replica *me, struct tutti_group *g, struct tutti_buffer *b) {
        struct tutti_value in = part(b, me->rank * 4000, 1000);
        struct tutti_value out = part(b, me->rank * 4000 + (me->rank == 2 ? 1 : 0), 1000);
        expect_overlap(tutti_all_reduce(g, "x", TUTTI_SUM, &in, &out), "R2", "R2");
}

static void inputs_are_the_same(struct replica *me, struct tutti_group *g, struct tutti_buffer *b) {
        struct tutti_value in = part(b, 0, 1000), out = part(b, 1000 + me->rank * 1000, 1000);
        if (me->rank == 0)
                fill(b, 0, 1000, 5);
        expect_status(tutti_barrier(g, "filled"), TUTTI_OK);
        expect_status(tutti_all_reduce(g, "x", TUTTI_SUM, &in, &out), TUTTI_OK);
        expect_all(b, 1000 + me->rank * 1000, 1000, 15);
        expect_all(b, 0, 1000, 5);
        expect_status(tutti_barrier(g, "read"), TUTTI_OK);
}

static void in_place_side_by_side(struct replica *me, struct tutti_group *g, struct tutti_buffer *b) {
        struct tutti_value v = part(b, me->rank * 1000, 1000);
        fill(b, me->rank * 1000, 1000, (float)me->rank);
        expect_status(sum(g, "x", &v), TUTTI_OK);
        expect_all(b, me->rank * 1000, 1000, 3);
        expect_status(tutti_barrier(g, "read"), TUTTI_OK);
        /* All in one place is in place for one alone. */
        v = part(b, 0, 1000);
        expect_overlap(sum(g, "x", &v), "R0", "R1");
        expect_status(tutti_barrier(g, "read"), TUTTI_OK);
        expect_all(b, me->rank * 1000, 1000, 3);
}

/* Two entries of one replica write the same place. */
static void entries_overlap(struct replica *me, struct tutti_group *g, struct tutti_buffer *b) {
        struct tutti_value one = part(b, me->rank * 4000, 100), other = part(b, me->rank * 4000 + 99, 100);
        struct tutti_value apart = part(b, me->rank * 4000 + 100, 100);
        struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &one, .output = &one),
                TUTTI_ENTRY(.input = me->rank == 1 ? &other : &apart,
                        .output = me->rank == 1 ? &other : &apart) };
        enum tutti_status status = tutti_batch_reduce(g, "x", TUTTI_SUM, entries, 2);
        expect_overlap(status, "R1", "R1");
        expect_in(tutti_error(), "entry 1");
}

static void share_memory(struct replica *me) {
        struct tutti_buffer *b;
        struct tutti_group *g = join(me);
        expect_status(tutti_buffer_from_fd(me->t, common_fd, 0, TUTTI_INOUT, &b), TUTTI_OK);
        outputs_overlap(me, g, b);
        output_overlaps_an_input_of_another(me, g, b);
        output_overlaps_its_own_input(me, g, b);
        inputs_are_the_same(me, g, b);
        in_place_side_by_side(me, g, b);
        entries_overlap(me, g, b);
        expect_to_go_on(me, g, "x");
}

START_TEST(P14_outputs_in_shared_memory_overlap_nothing_and_both_ranks_are_named) {
        common_fd = make_memfd(16384 * sizeof(float));
        replicas_run(3, share_memory);
        close(common_fd);
}
END_TEST

UNIT_MAIN("refusal", 20, P4_a_refused_half_is_told_to_the_others_at_once,
        P4_what_is_registered_for_reading_is_not_written, P4_what_is_no_memfd_is_refused_by_name,
        P4_a_buffer_of_another_connection_is_refused, A7_a_refused_registration_reaches_the_others_at_once,
        P14_outputs_in_shared_memory_overlap_nothing_and_both_ranks_are_named)
