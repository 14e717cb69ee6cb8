/* What reaches tuttid of the options of a call and of those of its membership. */
#include <stdlib.h>
#include <string.h>
#include "lib-server.h"
#include "lib/options.h"

#define MAX_SEEN 16

struct record {
        struct msg_submit seen[MAX_SEEN];
        int n;
};

static void script_record(struct server *s) {
        struct record *record = s->arg;
        struct request r;
        server_greet_and_join(s);
        while (server_take_any(s, &r)) {
                if (r.type != REQUEST_SUBMIT) {
                        server_ok(s, r.request);
                        continue;
                }
                CHECK(record->n < MAX_SEEN);
                record->seen[record->n++] = r.submit; /* of its pointers nobody asks */
                server_done(s, r.request, 0);
        }
}

static struct tutti_group *join_with(struct tutti *t, const struct tutti_options *base) {
        struct tutti_group *g;
        ck_assert_int_eq(
                tutti_join(t,
                        &TUTTI_JOIN(.group = "g", .job = "j", .rank = 0, .world_size = 1, .options = base),
                        &g),
                TUTTI_OK);
        return g;
}

static void barrier(struct tutti_group *g, const struct tutti_options *options) {
        struct tutti_work *w;
        ck_assert_int_eq(tutti_barrier_start(g, NULL, options, &w), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
}

START_TEST(TC7_every_option_of_a_call_reaches_tuttid) {
        struct record record = { 0 };
        struct server *s = server_start(script_record, &record);
        struct tutti *t = client_open(s);
        struct tutti_group *g = join_with(t, NULL);
        barrier(g, NULL);
        barrier(g, &TUTTI_OPTIONS(.algorithm = "one_device", .device = "CPU:3", .implementation = TUTTI_NCCL,
                           .reproducible = 1, .num_packs = 2, .agg_small_grads_max_group = 3,
                           .agg_small_grads_max_bytes = 4, .bytes_per_pack = 5, .priority = -6));
        barrier(g, &TUTTI_OPTIONS(.algorithm = "sorcery"));
        barrier(g, &TUTTI_OPTIONS(.algorithm = "auto", .implementation = 77));
        const struct options none = { 0 }, *o = &record.seen[0].signature.options;
        ck_assert_mem_eq(o, &none, sizeof(none));
        o = &record.seen[1].signature.options;
        ck_assert_int_eq(o->algorithm, ALGORITHM_ONE_DEVICE);
        ck_assert_int_eq(o->has_place, true);
        ck_assert_uint_eq(o->place, 3);
        ck_assert_int_eq(o->implementation, IMPLEMENTATION_NCCL);
        ck_assert_int_eq(o->reproducible, true);
        ck_assert_uint_eq(o->packing.num_packs, 2);
        ck_assert_uint_eq(o->packing.small_group, 3);
        ck_assert_uint_eq(o->packing.small_bytes, 4);
        ck_assert_uint_eq(o->packing.bytes_per_pack, 5);
        ck_assert_int_eq(o->priority, -6);
        ck_assert_int_eq(record.seen[2].signature.options.algorithm, N_ALGORITHM);
        ck_assert_int_eq(record.seen[3].signature.options.algorithm, ALGORITHM_UNSPECIFIED);
        ck_assert_int_eq(record.seen[3].signature.options.implementation, IMPLEMENTATION_NCCL + 1);
        tutti_close(t);
        server_end(s);
}
END_TEST

START_TEST(a_call_goes_before_its_membership_and_may_reset_it) {
        struct record record = { 0 };
        struct server *s = server_start(script_record, &record);
        struct tutti *t = client_open(s);
        char algorithm[] = "hierarchical_copy";
        struct tutti_options base = TUTTI_OPTIONS(.timeout = 2, .algorithm = algorithm, .num_packs = 8,
                .implementation = TUTTI_RING, .priority = 1, .check_numerics = 1);
        struct tutti_group *g = join_with(t, &base);
        memset(algorithm, 'x', sizeof(algorithm) - 1); /* it was looked at during the join alone */
        barrier(g, NULL);
        barrier(g, &TUTTI_OPTIONS(.timeout = 1, .algorithm = "one_device", .bytes_per_pack = 9,
                           .implementation = TUTTI_NCCL, .priority = 3));
        barrier(g, &TUTTI_OPTIONS(.reset = TUTTI_RESET_ALGORITHM | TUTTI_RESET_TIMEOUT, .priority = 2));
        barrier(g, &TUTTI_OPTIONS(.device = "CPU:1", .implementation = TUTTI_AUTO));
        barrier(g, &TUTTI_OPTIONS(.reset = TUTTI_RESET_ALL, .num_packs = 1));

        const struct msg_submit *m = &record.seen[0];
        ck_assert_uint_eq(m->timeout_ns, 2000000000);
        ck_assert_int_eq(m->signature.options.algorithm, ALGORITHM_HIERARCHICAL_COPY);
        ck_assert_uint_eq(m->signature.options.packing.num_packs, 8);
        ck_assert_int_eq(m->signature.options.implementation, IMPLEMENTATION_RING);
        ck_assert_int_eq(m->signature.options.check_numerics, true);

        m = &record.seen[1];
        ck_assert_uint_eq(m->timeout_ns, 1000000000);
        ck_assert_int_eq(m->signature.options.algorithm, ALGORITHM_ONE_DEVICE);
        ck_assert_uint_eq(m->signature.options.packing.num_packs, 0); /* packing is one field */
        ck_assert_uint_eq(m->signature.options.packing.bytes_per_pack, 9);
        ck_assert_int_eq(m->signature.options.implementation, IMPLEMENTATION_NCCL);
        ck_assert_int_eq(m->signature.options.priority, 3);

        m = &record.seen[2];
        ck_assert_int_eq(m->has_timeout, false);
        ck_assert_int_eq(m->signature.options.algorithm, ALGORITHM_UNSPECIFIED);
        ck_assert_uint_eq(m->signature.options.packing.num_packs, 8);
        ck_assert_int_eq(m->signature.options.priority, 2);

        m = &record.seen[3];
        ck_assert_int_eq(m->signature.options.algorithm, ALGORITHM_UNSPECIFIED); /* a field with device */
        ck_assert_uint_eq(m->signature.options.place, 1);
        ck_assert_int_eq(m->signature.options.implementation, IMPLEMENTATION_RING); /* AUTO is the default */

        const struct options one_pack = { .packing.num_packs = 1 };
        ck_assert_mem_eq(&record.seen[4].signature.options, &one_pack, sizeof(one_pack));
        tutti_close(t);
        server_end(s);
}
END_TEST

START_TEST(options_of_a_join_that_are_none_are_refused) {
        struct record record = { 0 };
        struct server *s = server_start(script_record, &record);
        struct tutti *t = client_open(s);
        struct tutti_options base = { .timeout = 1 };
        struct tutti_group *g;
        ck_assert_int_eq(
                tutti_join(t,
                        &TUTTI_JOIN(.group = "g", .job = "j", .rank = 0, .world_size = 1, .options = &base),
                        &g),
                TUTTI_INVALID);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "begin them with TUTTI_OPTIONS"));
        g = join_with(t, NULL);
        tutti_close(t);
        server_end(s);
}
END_TEST

UNIT_MAIN("lib-options", 30, TC7_every_option_of_a_call_reaches_tuttid,
        a_call_goes_before_its_membership_and_may_reset_it, options_of_a_join_that_are_none_are_refused)
