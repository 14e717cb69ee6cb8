/* Processes that have no descriptor left, on either side: the call that needed one is refused, with the
 * number, and everything else goes on (P7). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "descriptors.h"
#include "objects.h"

#define N 1000

/* --- in a client --- */

/* Each descriptor in turn is the one that is wanting. */
START_TEST(P7_a_connection_that_cannot_be_opened_says_why) {
        struct host *h = host_start(NULL);
        struct tutti *t;
        enum tutti_status status = TUTTI_LIMIT;
        bool is_page = false;
        for (unsigned int n = 0; n < 10 && status != TUTTI_OK; n++) {
                descriptors_run_out(getpid(), n);
                status = tutti_open(host_socket(h), &t);
                descriptors_are_back(getpid());
                if (status != TUTTI_OK)
                        expect_status(status, TUTTI_LIMIT);
                is_page |= strstr(tutti_error(), "the status page could not be received: this process has no "
                                                 "descriptor left (RLIMIT_NOFILE = ") != NULL;
        }
        expect_status(status, TUTTI_OK);
        ck_assert(is_page);
        tutti_close(t);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void make_at_the_limit(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_object_args args = TUTTI_OBJECT(.name = "sums", .n_bytes = N * sizeof(float));
        struct tutti_object *o;
        struct floats f;
        floats_init(me->t, &f, N);
        if (me->rank == 1) {
                descriptors_run_out(getpid(), 0);
                expect_status(tutti_object_make(g, &args, &o), TUTTI_LIMIT);
                expect_in(tutti_error(), "this process has no descriptor left");
        }
        floats_meet(g, NULL, &f, (float)me->rank, 1);
        if (me->rank == 1)
                descriptors_are_back(getpid());
        o = object_make(g, "sums", N);
        floats_fill(&f, (float)(me->rank + 1));
        expect_slot(o, sum_into(g, NULL, &f, o), 0, N, 3);
        tutti_object_free(o);
}

START_TEST(P7_an_object_that_cannot_be_received_is_refused_and_the_group_goes_on) {
        replicas_run(2, make_at_the_limit);
}
END_TEST

/* What comes again would go by the lane. */
static void meet_at_the_limit(struct replica *me) {
        const unsigned int *n_left = me->arg;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, N);
        descriptors_run_out(getpid(), *n_left);
        for (int i = 0; i < 50; i++)
                floats_meet(g, "again", &f, (float)(me->rank + 1), 3);
        descriptors_are_back(getpid());
        floats_meet(g, "again", &f, (float)(me->rank + 1), 3);
}

START_TEST(P7_without_descriptors_for_a_lane_packets_serve) {
        struct host *h = host_start(NULL);
        for (unsigned int n_left = 0; n_left < 3; n_left++)
                run_replicas(h, 2, meet_at_the_limit, &n_left);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- in tuttid --- */

static void register_at_its_limit(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f, another;
        floats_init(me->t, &f, N);
        floats_meet(g, NULL, &f, (float)me->rank, 1);
        replica_say(me, "ready");
        replica_hear(me, "go");
        if (me->rank == 1) {
                floats_init(me->t, &another, 16 << 20); /* not in the memory of the first */
                const struct tutti_value part = floats_part(&another, 0, N);
                expect_status(tutti_all_reduce(g, "another", TUTTI_SUM, &part, &part), TUTTI_LIMIT);
                expect_in(tutti_error(), "tuttid has no descriptor left; raise its LimitNOFILE");
        } else {
                expect_status(floats_sum(g, "another", &f), TUTTI_PEER_REFUSED);
        }
        floats_meet(g, NULL, &f, (float)me->rank, 1);
        replica_say(me, "met");
        replica_hear(me, "end");
}

START_TEST(P7_memory_that_tuttid_cannot_receive_is_refused_and_the_group_goes_on) {
        struct replica *r[2];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, register_at_its_limit, NULL, r);
        replicas_expect(r, 2, "ready", 10);
        seconds_sleep(0.2 * unit_scale()); /* what is being closed has gone */
        descriptors_run_out(host_pid(h), 0);
        replicas_tell(r, 2, "go");
        replicas_expect(r, 2, "met", 10);
        descriptors_are_back(host_pid(h));
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("descriptors", 60, P7_a_connection_that_cannot_be_opened_says_why,
        P7_an_object_that_cannot_be_received_is_refused_and_the_group_goes_on,
        P7_without_descriptors_for_a_lane_packets_serve,
        P7_memory_that_tuttid_cannot_receive_is_refused_and_the_group_goes_on)
