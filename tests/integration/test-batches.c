/* Collectives of thousands of entries: looked at in slices, planned away from the loop thread, given back in
 * slices; and what they say and do is what small ones say and do (P4 P5 P14 P21). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N_ENTRIES 5000
#define N_FLOATS  3 /* of each */

/* N_ENTRIES values of one buffer, one behind the other, each its own output. */
struct batch {
        struct floats floats;
        struct tutti_value values[N_ENTRIES];
        struct tutti_entry entries[N_ENTRIES];
};

static struct batch *batch_new(struct tutti *t) {
        struct batch *b = calloc(1, sizeof(*b));
        ck_assert_ptr_nonnull(b);
        floats_init(t, &b->floats, N_ENTRIES * N_FLOATS);
        for (uint32_t i = 0; i < N_ENTRIES; i++) {
                b->values[i] = TUTTI_VALUE(.buffer = b->floats.buffer, .dtype = TUTTI_F32,
                        .offset = i * N_FLOATS * sizeof(float), .n_dims = 1, .shape = { N_FLOATS });
                b->entries[i] = TUTTI_ENTRY(.input = &b->values[i], .output = &b->values[i]);
        }
        return b;
}

static void batch_fill(struct batch *b, float scale) {
        for (size_t i = 0; i < b->floats.n; i++)
                b->floats.data[i] = scale * (float)(i % 1000);
}

static void batch_expect(const struct batch *b, float scale) {
        for (size_t i = 0; i < b->floats.n; i++)
                ck_assert_msg(b->floats.data[i] == scale * (float)(i % 1000), "element %zu is %g", i,
                        (double)b->floats.data[i]);
}

static enum tutti_status batch_sum(struct tutti_group *g, const char *key, struct batch *b, uint32_t n) {
        return tutti_batch_reduce(g, key, TUTTI_SUM, b->entries, n);
}

/* --- right, again and again, beside a refused one --- */

static void many_rounds(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct batch *b = batch_new(me->t);
        for (int step = 0; step < 20; step++) {
                uint32_t n = step % 2 ? N_ENTRIES : N_ENTRIES / 5;
                batch_fill(b, (float)(me->rank + 1));
                expect_status(batch_sum(g, NULL, b, n), TUTTI_OK);
                if (n == N_ENTRIES)
                        batch_expect(b, 6);
                ck_assert_uint_eq(tutti_last_result()->n_contributors, 3);
        }
        free(b);
}

START_TEST(D6_batches_of_thousands_are_right) {
        replicas_run(3, many_rounds);
}
END_TEST

/* --- one odd entry among them --- */

static void one_odd_entry(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct batch *b = batch_new(me->t);
        batch_fill(b, (float)(me->rank + 1));
        if (me->rank == 1)
                b->values[4321].shape[0] = N_FLOATS - 1;
        const struct tutti_error_info *e = expect_error(batch_sum(g, "odd", b, N_ENTRIES));
        ck_assert_int_eq(e->status, TUTTI_MISMATCH);
        ck_assert_int_eq(e->field, TUTTI_FIELD_SHAPE);
        ck_assert_int_eq(e->entry, 4321);
        expect_in(e->text, "f32[3]");
        expect_in(e->text, "f32[2]");
        batch_expect(b, (float)(me->rank + 1)); /* nothing was written */
        b->values[4321].shape[0] = N_FLOATS;
        expect_status(batch_sum(g, "odd", b, N_ENTRIES), TUTTI_OK);
        batch_expect(b, 6);
        free(b);
}

START_TEST(B11_one_odd_entry_among_thousands_is_named) {
        replicas_run(3, one_odd_entry);
}
END_TEST

/* --- refused by the plan --- */

static void overlapping_outputs(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct batch *b = batch_new(me->t);
        batch_fill(b, 1);
        if (me->rank == 0)
                b->values[3000].offset = b->values[3001].offset;
        const struct tutti_error_info *e = expect_error(batch_sum(g, "overlap", b, N_ENTRIES));
        ck_assert_int_eq(e->status, TUTTI_INVALID);
        ck_assert_int_eq(e->field, TUTTI_FIELD_OVERLAP);
        ck_assert_int_eq(e->rank, 0);
        batch_expect(b, 1);
        b->values[3000].offset = 3000 * N_FLOATS * sizeof(float);
        expect_status(batch_sum(g, "overlap", b, N_ENTRIES), TUTTI_OK);
        batch_expect(b, 3);
        free(b);
}

START_TEST(P14_an_overlap_among_thousands_is_refused_to_all) {
        replicas_run(3, overlapping_outputs);
}
END_TEST

/* --- a bad buffer in the last slice --- */

static void no_buffer_at_the_end(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct batch *b = batch_new(me->t);
        batch_fill(b, 1);
        if (me->rank == 2)
                b->entries[N_ENTRIES - 1].destinations =
                        (struct tutti_destinations){ .where = TUTTI_TO_RANK, .rank = 77 };
        const struct tutti_error_info *e = expect_error(batch_sum(g, "bad", b, N_ENTRIES));
        /* Who comes after the refusal hears of it as well. */
        enum tutti_status status = e->status == TUTTI_EXPIRED ? e->cause : e->status;
        ck_assert_int_eq(status, me->rank == 2 ? TUTTI_INVALID : TUTTI_PEER_REFUSED);
        ck_assert_int_eq(e->entry, N_ENTRIES - 1);
        batch_expect(b, 1);
        b->entries[N_ENTRIES - 1].destinations = (struct tutti_destinations){ .where = TUTTI_TO_ALL };
        expect_status(batch_sum(g, "good", b, N_ENTRIES), TUTTI_OK);
        batch_expect(b, 3);
        free(b);
}

START_TEST(P4_a_refusal_in_the_last_slice_reaches_the_peers) {
        replicas_run(3, no_buffer_at_the_end);
}
END_TEST

/* --- death while slices are under way --- */

static void die_or_go_on(struct replica *me) {
        struct tutti_group *g =
                replica_join_group(me, &TUTTI_JOIN(.group = "train", .on_death = TUTTI_SHRINK));
        struct batch *b = batch_new(me->t);
        struct tutti_work *w[8];
        int n = 0;
        char key[16];
        replica_say(me, "ready");
        replica_hear(me, "go");
        for (; n < 8; n++) {
                snprintf(key, sizeof(key), "k%d", n);
                expect_status(tutti_batch_reduce_start(g, key, TUTTI_MAX, b->entries, N_ENTRIES, NULL, &w[n]),
                        TUTTI_OK);
        }
        for (int i = 0; i < n; i++) {
                expect_work(w[i], TUTTI_OK);
                tutti_work_free(w[i]);
        }
        batch_fill(b, 1);
        expect_status(batch_sum(g, "last", b, N_ENTRIES), TUTTI_OK);
        batch_expect(b, 2);
        free(b);
}

START_TEST(C1_death_between_slices_leaves_nothing) {
        struct host *h = host_start(NULL);
        for (int round = 0; round < 10; round++) {
                struct replica *r[3];
                replicas_spawn(h, 3, die_or_go_on, NULL, r);
                replicas_expect(r, 3, "ready", 10);
                replicas_tell(r, 3, "go");
                usleep((useconds_t)round * 1500);
                replica_kill9(r[2]);
                ck_assert_int_eq(replica_end(r[0], 20), 0);
                ck_assert_int_eq(replica_end(r[1], 20), 0);
                host_expect_counters_zero(h);
        }
        host_stop(h);
}
END_TEST

UNIT_MAIN("batches", 60, D6_batches_of_thousands_are_right, B11_one_odd_entry_among_thousands_is_named,
        P14_an_overlap_among_thousands_is_refused_to_all, P4_a_refusal_in_the_last_slice_reaches_the_peers,
        C1_death_between_slices_leaves_nothing)
