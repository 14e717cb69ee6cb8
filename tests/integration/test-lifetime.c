/* Memory whose owner goes while it is used (E1, E12), and many collectives that stand still (A10). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "meeting.h"
#include "raw.h"
#include "replica.h"
#include "stage.h"
#include "unit.h"

/* --- E1: unregisters, closes, unmaps and exits while tuttid reads --- */

#define N_GOINGS       1000
#define N_GOINGS_SLOW  30                   /* where a sanitizer makes each of them long */
#define GOINGS_SECONDS 90.0                 /* a slow machine does as many as it can */
#define SHARED_FLOATS  ((uint64_t)16 << 20) /* 64 MiB */
#define SAMPLE         4093

struct going {
        const char *socket;
        int memory; /* the memfd of R0, the same each time */
        char group[32];
};

/* Only R1 receives, so that R0's memory stays as it is. */
static struct entry entry_to_r1(uint64_t input, uint64_t output) {
        struct entry e = raw_entry(input, SHARED_FLOATS);
        e.destination = DESTINATION_RANK;
        e.destination_rank = 1;
        e.output.buffer = output;
        return e;
}

/* R0. Nothing is waited for behind its half, which seals. */
static void come_and_go(struct replica *me) {
        const struct going *g = me->arg;
        const struct entry entry = entry_to_r1(1, 0);
        struct raw *r = raw_open(g->socket);
        struct raw_member m = raw_join(r, g->group, 0, 2);
        void *data = mmap(NULL, SHARED_FLOATS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, g->memory, 0);
        ck_assert_ptr_ne(data, MAP_FAILED);
        raw_buffer(r, 1, dup(g->memory), SHARED_FLOATS * 4);
        replica_say(me, "ready");
        replica_hear(me, "go");
        const struct request submit = raw_submit_request(&m, "sum", &entry);
        raw_send(r, &submit);
        raw_send(r, &(struct request){ .type = REQUEST_UNREGISTER, .buffer = 1 });
        close(g->memory);
        munmap(data, SHARED_FLOATS * 4);
        _exit(0);
}

struct stays {
        struct raw *raw;
        struct raw_member member;
        float *input, *output;
};

static float *stays_buffer(struct stays *s, uint64_t buffer, float value) {
        int fd = raw_memfd(SHARED_FLOATS * 4);
        float *data = mmap(NULL, SHARED_FLOATS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(data, MAP_FAILED);
        for (uint64_t i = 0; i < SHARED_FLOATS; i++)
                data[i] = value;
        raw_buffer(s->raw, buffer, fd, SHARED_FLOATS * 4);
        return data;
}

static void expect_sum(struct stays *s) {
        for (uint64_t i = 0; i < SHARED_FLOATS; i += SAMPLE) {
                ck_assert_float_eq(s->output[i], 3);
                s->output[i] = 0;
        }
}

static void go_once(struct host *h, struct stays *s, struct going *g, int i) {
        const struct entry entry = entry_to_r1(1, 2);
        snprintf(g->group, sizeof(g->group), "round %d", i);
        const struct request join = raw_join_request(g->group, 1, 2);
        struct replica *r0 = replica_spawn(
                h, &(struct replica_options){ .rank = 0, .n = 2, .body = come_and_go, .arg = g });
        s->member = raw_joined(s->raw, raw_send(s->raw, &join));
        replica_expect(r0, "ready", 10);
        const struct request submit = raw_submit_request(&s->member, "sum", &entry);
        uint64_t number = raw_send(s->raw, &submit);
        replica_tell(r0, "go");
        ck_assert_int_eq(replica_end(r0, 10), 0);
        const struct reply reply = raw_expect(s->raw, number, STATUS_OK);
        ck_assert_uint_eq(reply.done.contributors.words[0], 3);
        expect_sum(s);
        const struct request leave = { .type = REQUEST_LEAVE, .membership = s->member.membership };
        raw_await(s->raw, raw_send(s->raw, &leave));
}

START_TEST(E1_a_thousand_owners_go_while_their_memory_is_read) {
        struct host *h = host_start(NULL);
        struct stays s = { .raw = raw_open(host_socket(h)) };
        struct going g = { .socket = host_socket(h), .memory = raw_memfd(SHARED_FLOATS * 4) };
        float *data = mmap(NULL, SHARED_FLOATS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, g.memory, 0);
        ck_assert_ptr_ne(data, MAP_FAILED);
        for (uint64_t i = 0; i < SHARED_FLOATS; i++)
                data[i] = 2;
        munmap(data, SHARED_FLOATS * 4);
        s.input = stays_buffer(&s, 1, 1);
        s.output = stays_buffer(&s, 2, 0);
        int n = 0, n_wanted = unit_scale() > 1 ? N_GOINGS_SLOW : N_GOINGS;
        for (double end = seconds_now() + GOINGS_SECONDS; n < n_wanted && seconds_now() < end; n++)
                go_once(h, &s, &g, n);
        printf("# E1: %d of %d have gone\n", n, n_wanted);
        ck_assert_int_ge(n, n_wanted / 10);
        munmap(s.input, SHARED_FLOATS * 4);
        munmap(s.output, SHARED_FLOATS * 4);
        raw_close(s.raw);
        close(g.memory);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- E12 --- */

#define HELD_FLOATS ((uint64_t)64 << 20) /* 256 MiB */
#define E12_SECONDS 1.0

/* Its pages are in tuttid's tables too. */
static void hold_much(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "holds"));
        floats_init(me->t, &f, HELD_FLOATS);
        floats_meet(g, NULL, &f, 1, 1);
        replica_say(me, "holding");
        replica_hear(me, "end");
}

static void expect_held(struct host *h, uint64_t n_bytes) {
        struct host_counters c;
        host_counters(h, &c);
        ck_assert_uint_ge(c.mapped_bytes, n_bytes);
}

/* Within the limit only the honest ones' memory is left. */
static void expect_given_back(struct host *h, double since) {
        struct host_counters c;
        do {
                host_counters(h, &c);
                ck_assert_double_lt(seconds_now() - since, 10 * E12_SECONDS * unit_scale());
        } while (c.mapped_bytes >= HELD_FLOATS * 4);
}

START_TEST(E12_the_memory_of_the_killed_goes_beside_the_loop_and_the_name_is_free_at_once) {
        struct stage s;
        struct replica *r, *again;
        stage_set(&s, NULL);
        replicas_spawn(s.h, 1, hold_much, NULL, &r);
        replica_expect(r, "holding", 20);
        expect_held(s.h, HELD_FLOATS * 4);
        watch_begin();
        double killed = seconds_now();
        replica_kill9(r);
        replicas_spawn(s.h, 1, hold_much, NULL, &again); /* the same group, rank and amount */
        replica_expect(again, "holding", 20);
        watch_end(10 * 0.05);
        replica_kill9(again);
        expect_given_back(s.h, seconds_now());
        printf("# E12: killed, and there again after %.0f ms\n", (seconds_now() - killed) * 1e3);
        stage_clear(&s);
}
END_TEST

/* --- A10 --- */

#define N_STALLED      10000
#define N_WAITING      3 /* of four; each connection has room for 4,096 */
#define WARN_SECONDS   0.1
#define LINES_A_MINUTE 20

static int count_in(const char *text, const char *part) {
        int n = 0;
        for (; (text = strstr(text, part)); text++)
                n++;
        return n;
}

static void submit_and_wait(struct raw *const *r, const struct raw_member *m) {
        char key[32];
        for (int i = 0; i < N_STALLED; i++) {
                snprintf(key, sizeof(key), "k%d", i);
                raw_barrier(r[i % N_WAITING], &m[i % N_WAITING], key);
        }
        raw_await(r[0], raw_query(r[0], WHAT_QUOTA, "", ""));
}

START_TEST(A10_ten_thousand_stalled_collectives_are_few_lines) {
        struct raw *r[N_WAITING + 1];
        struct raw_member m[N_WAITING + 1];
        uint64_t joins[N_WAITING + 1];
        struct host *h = host_start((const char *[]){ "--set", "time.stall-warn=100 ms", NULL });
        for (uint32_t rank = 0; rank <= N_WAITING; rank++) {
                const struct request join = raw_join_request("crowd", rank, N_WAITING + 1);
                r[rank] = raw_open(host_socket(h));
                joins[rank] = raw_send(r[rank], &join);
        }
        for (uint32_t rank = 0; rank <= N_WAITING; rank++)
                m[rank] = raw_joined(r[rank], joins[rank]);
        double begin = seconds_now();
        ck_assert_int_eq(count_in(host_log(h), "STALLED"), 0);
        submit_and_wait(r, m);
        while (!strstr(host_log(h), "(10000 pending)"))
                ck_assert_double_lt(seconds_now() - begin, 10 * WARN_SECONDS * unit_scale() + 2);
        const char *log = host_log(h), *line = strstr(log, "STALLED");
        ck_assert_ptr_nonnull(line);
        expect_in(log, "test/crowd: STALLED: \"k0\" has waited ");
        expect_in(log, "here R0; missing R1 R2 R3 (R1 pid ");
        seconds_sleep((LINES_A_MINUTE + 10) * WARN_SECONDS); /* there would be more lines than that */
        ck_assert_int_le(count_in(host_log(h), "STALLED"), LINES_A_MINUTE);
        ck_assert_int_gt(count_in(host_log(h), "STALLED"), 1);
        for (uint32_t rank = 0; rank <= N_WAITING; rank++)
                raw_close(r[rank]);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("lifetime", 120, E1_a_thousand_owners_go_while_their_memory_is_read,
        E12_the_memory_of_the_killed_goes_beside_the_loop_and_the_name_is_free_at_once,
        A10_ten_thousand_stalled_collectives_are_few_lines)
