/* What tuttid takes for collectives it gives back: after thousands of all kinds and sizes it is as large as
 * before. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "meeting.h"
#include "replica.h"
#include "smaps.h"
#include "unit.h"

#define N_REPLICAS 3
#define SUM        6.0f /* of what the replicas bring: 1, 2, 3 */
/* More than the 4,096 collectives that the flight recorder keeps of a group: then it has all its memory. */
#define N_WARM     5000
#define N_OPS      10000
#define MAX_FLOATS ((size_t)256 << 10) /* 1 MiB */
/* Of pages that the heap takes and gives back as it likes; a leak of 64 bytes for each would be more. */
#define MAX_GROWN_BYTES ((uint64_t)512 << 10)

/* The same in all replicas. */
struct dice {
        uint64_t state;
};

static uint32_t throw_dice(struct dice *d, uint32_t n) {
        d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(d->state >> 33) % n;
}

/* Most are small. */
static size_t random_size(struct dice *d) {
        static const size_t most[] = { 16, 64, 256, 1024, 1024, 4096, 16384, MAX_FLOATS };
        size_t n = most[throw_dice(d, 8)];
        if (n == MAX_FLOATS && throw_dice(d, 4))
                n = 65536;
        return 1 + throw_dice(d, (uint32_t)n);
}

enum kind { ALL_REDUCE, IN_PLACE, REDUCE, BROADCAST, BATCH, BARRIER, PLAIN, N_KINDS };

struct op {
        enum kind kind;
        char key[32]; /* "": by number */
        size_t n, offset;
        uint32_t root, n_entries;
};

static void random_key(struct dice *d, struct op *op) {
        op->key[0] = '\0';
        switch (throw_dice(d, 3)) {
        case 0: break;
        case 1: snprintf(op->key, sizeof(op->key), "grad/%u", throw_dice(d, 50)); break;
        case 2: snprintf(op->key, sizeof(op->key), "once/%x", throw_dice(d, 1u << 30)); break;
        }
}

static struct op random_op(struct dice *d) {
        struct op op = { .kind = (enum kind)throw_dice(d, N_KINDS), .n = random_size(d) };
        op.offset = throw_dice(d, (uint32_t)(MAX_FLOATS - op.n + 1));
        op.root = throw_dice(d, N_REPLICAS);
        op.n_entries = 1 + throw_dice(d, 8);
        random_key(d, &op);
        return op;
}

/* What comes again as it was goes over the lane. */
#define N_FAMILIAR 12

static struct op familiar_op(uint32_t i) {
        struct dice d = { .state = 1000 + i };
        struct op op = random_op(&d);
        op.kind = i % 2 ? IN_PLACE : ALL_REDUCE;
        op.n = 1 + op.n % 2000;
        op.offset %= 1000;
        snprintf(op.key, sizeof(op.key), i % 3 ? "again/%u" : "", i);
        return op;
}

struct memory {
        struct tutti_group *g;
        struct floats in, out; /* `in` holds rank + 1 and is only read */
        float plain[1024];
        uint32_t rank;
};

static void expect_ends(const float *at, size_t n, float value) {
        ck_assert(at[0] == value);
        ck_assert(at[n - 1] == value);
}

static void fill(float *at, size_t n, float value) {
        for (size_t i = 0; i < n; i++)
                at[i] = value;
}

static void reduce_to_root(struct memory *m, const struct op *op, const char *key) {
        struct tutti_value in = floats_part(&m->in, op->offset, op->n),
                           out = floats_part(&m->out, op->offset, op->n);
        const struct tutti_destinations to = { .where = TUTTI_TO_RANK, .rank = op->root };
        expect_status(
                tutti_reduce(m->g, key, TUTTI_SUM, &in, m->rank == op->root ? &out : NULL, &to), TUTTI_OK);
        if (m->rank == op->root)
                expect_ends(m->out.data + op->offset, op->n, SUM);
}

static void reduce_batch(struct memory *m, const struct op *op, const char *key) {
        struct tutti_value in[8], out[8];
        struct tutti_entry entries[8];
        size_t n = 1 + op->n / 16;
        for (uint32_t i = 0; i < op->n_entries; i++) {
                in[i] = floats_part(&m->in, i * n, n);
                out[i] = floats_part(&m->out, i * n, n);
                entries[i] = TUTTI_ENTRY(.input = &in[i], .output = &out[i]);
        }
        expect_status(tutti_batch_reduce(m->g, key, TUTTI_SUM, entries, op->n_entries), TUTTI_OK);
        expect_ends(m->out.data, n * op->n_entries, SUM);
}

static void reduce_plain(struct memory *m, const struct op *op, const char *key) {
        size_t n = 1 + op->n % 1024;
        fill(m->plain, n, (float)m->rank + 1);
        const struct tutti_value v =
                TUTTI_VALUE(.memory = m->plain, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
        expect_status(tutti_all_reduce(m->g, key, TUTTI_SUM, &v, &v), TUTTI_OK);
        expect_ends(m->plain, n, SUM);
}

static void do_op(struct memory *m, const struct op *op) {
        struct tutti_value in = floats_part(&m->in, op->offset, op->n),
                           out = floats_part(&m->out, op->offset, op->n);
        const char *key = op->key[0] ? op->key : NULL;
        float *at = m->out.data + op->offset;
        switch (op->kind) {
        case ALL_REDUCE:
                expect_status(tutti_all_reduce(m->g, key, TUTTI_SUM, &in, &out), TUTTI_OK);
                expect_ends(at, op->n, SUM);
                return;
        case IN_PLACE:
                fill(at, op->n, (float)m->rank + 1);
                expect_status(tutti_all_reduce(m->g, key, TUTTI_SUM, &out, &out), TUTTI_OK);
                expect_ends(at, op->n, SUM);
                return;
        case REDUCE: reduce_to_root(m, op, key); return;
        case BROADCAST:
                fill(at, op->n, (float)m->rank);
                expect_status(tutti_broadcast(m->g, key, op->root, &out), TUTTI_OK);
                expect_ends(at, op->n, (float)op->root);
                return;
        case BATCH: reduce_batch(m, op, key); return;
        case BARRIER: expect_status(tutti_barrier(m->g, key), TUTTI_OK); return;
        case PLAIN: reduce_plain(m, op, key); return;
        case N_KINDS: break;
        }
        ck_abort_msg("no kind");
}

static void do_ops(struct memory *m, struct dice *d, uint32_t n) {
        uint32_t n_again = 0;
        struct op op = { 0 };
        for (uint32_t i = 0; i < n; i++) {
                if (n_again > 0) {
                        n_again--;
                } else if (throw_dice(d, 8)) {
                        op = random_op(d);
                } else {
                        op = familiar_op(throw_dice(d, N_FAMILIAR));
                        n_again = throw_dice(d, 40);
                }
                do_op(m, &op);
        }
}

static void work(struct replica *me) {
        struct memory m = { .rank = me->rank };
        struct dice d = { .state = 42 };
        m.g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &m.in, MAX_FLOATS);
        floats_init(me->t, &m.out, MAX_FLOATS);
        floats_fill(&m.in, (float)me->rank + 1);
        do_ops(&m, &d, N_WARM);
        replica_say(me, "warm");
        replica_hear(me, "go on");
        do_ops(&m, &d, N_OPS);
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(F5_tuttids_own_memory_is_flat_over_ten_thousand_operations_of_random_sizes) {
        struct replica *r[N_REPLICAS];
        struct host_counters c;
        if (unit_scale() > 1)
                unit_skip("a sanitizer keeps memory that was given back");
        struct host *h = host_start(NULL);
        replicas_spawn(h, N_REPLICAS, work, NULL, r);
        replicas_expect(r, N_REPLICAS, "warm", 60);
        uint64_t before = smaps_bytes(host_pid(h), "Anonymous:");
        replicas_tell(r, N_REPLICAS, "go on");
        replicas_expect(r, N_REPLICAS, "done", 90);
        uint64_t after = smaps_bytes(host_pid(h), "Anonymous:");
        host_counters(h, &c);
        printf("# %llu KiB before, %llu KiB after; %llu of %llu collectives ran on the lane\n",
                (unsigned long long)(before >> 10), (unsigned long long)(after >> 10),
                (unsigned long long)c.n_on_lane, (unsigned long long)c.n_collectives);
        ck_assert_uint_eq(c.n_collectives, N_WARM + N_OPS);
        /* How many of those the lane runs depends on who else wants the cores. */
        ck_assert_uint_gt(c.n_on_lane + c.n_passed, 0);
        ck_assert_uint_lt(c.n_on_lane, c.n_collectives);
        ck_assert_uint_le(after, before + MAX_GROWN_BYTES);
        replicas_tell(r, N_REPLICAS, "end");
        replicas_end(h, r, N_REPLICAS);
}
END_TEST

UNIT_MAIN("steady", 170, F5_tuttids_own_memory_is_flat_over_ten_thousand_operations_of_random_sizes)
