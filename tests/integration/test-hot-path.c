/* After warm-up a submission makes no heap call in tuttid, and its loop takes no lock but that of the lists
 * behind which the workers stand, and that of the lane. Seen from outside: a preloaded library counts
 * (counting.h). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "counting.h"
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N_RANKS   3
#define N_VALUES  4
#define A_ROUND   8    /* collectives */
#define N_WARM    6400 /* more than the flight recorder keeps */
#define N_COUNTED 2000

/* --- what is submitted --- */

struct values {
        struct tutti_buffer *buffer;
        struct tutti_value all[N_VALUES];
        struct tutti_entry entries[N_VALUES];
};

static void values_init(struct tutti *t, struct values *v) {
        static const size_t counts[N_VALUES] = { 1, 100, 3000, 50000 };
        size_t offset = 0;
        expect_status(tutti_buffer_alloc(t, 1 << 20, &v->buffer), TUTTI_OK);
        for (int i = 0; i < N_VALUES; i++) {
                v->all[i] = TUTTI_VALUE(.buffer = v->buffer, .offset = offset, .dtype = TUTTI_F32,
                        .n_dims = 1, .shape = { counts[i] });
                v->entries[i] = TUTTI_ENTRY(.input = &v->all[i], .output = &v->all[i]);
                offset += counts[i] * sizeof(float);
        }
}

static void end_work(struct tutti_work *w) {
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
}

/* A_ROUND collectives of all kinds, with names and by number, one by one and at once. */
static void go_round(struct tutti_group *g, struct values *v, unsigned int number) {
        struct tutti_work *w[4];
        char name[32];
        struct tutti_value *value = &v->all[number % N_VALUES];
        snprintf(name, sizeof(name), "grad/%u", number % 100);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, value, value), TUTTI_OK);
        expect_status(tutti_all_reduce(g, name, TUTTI_MEAN, value, value), TUTTI_OK);
        expect_status(tutti_broadcast(g, NULL, number % N_RANKS, value), TUTTI_OK);
        expect_status(tutti_barrier(g, name), TUTTI_OK);
        expect_status(tutti_batch_reduce_start(g, "batch", TUTTI_MEAN, v->entries, N_VALUES, NULL, &w[0]),
                TUTTI_OK);
        expect_status(tutti_barrier_start(g, NULL, NULL, &w[1]), TUTTI_OK);
        end_work(w[0]);
        end_work(w[1]);
        expect_status(
                tutti_all_reduce_start(g, "x", TUTTI_MAX, &v->all[0], &v->all[0], NULL, &w[2]), TUTTI_OK);
        expect_status(tutti_all_reduce_start(g, "y", TUTTI_MAX, &v->all[1], &v->all[1],
                              &TUTTI_OPTIONS(.timeout = 100), &w[3]),
                TUTTI_OK);
        end_work(w[3]);
        end_work(w[2]);
}

static void warm_up_and_go_on(struct replica *me) {
        struct values v;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        unsigned int number = 0;
        values_init(me->t, &v);
        while (number * A_ROUND < N_WARM)
                go_round(g, &v, number++);
        replica_say(me, "warm");
        replica_hear(me, "go");
        while (number * A_ROUND < N_WARM + N_COUNTED)
                go_round(g, &v, number++);
        replica_say(me, "done");
        replica_hear(me, "end");
}

/* --- what is counted --- */

static struct counting *start_counting(void) {
        char path[128];
        snprintf(path, sizeof(path), "%s/counting", unit_directory());
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, sizeof(struct counting)), 0);
        struct counting *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(c, MAP_FAILED);
        close(fd);
        setenv(COUNTING_VARIABLE, path, 1);
        setenv("LD_PRELOAD", BUILT_COUNTING, 1);
        return c;
}

/* Where in tuttid that is, for `addr2line -e tuttid`. */
static void print_callers(const struct counting *c, pid_t pid) {
        char path[64], line[512];
        unsigned long begin = 0;
        snprintf(path, sizeof(path), "/proc/%d/maps", pid);
        FILE *f = fopen(path, "re");
        if (f && fgets(line, sizeof(line), f))
                begin = strtoul(line, NULL, 16);
        if (f)
                fclose(f);
        for (int i = 0; i < 4; i++)
                printf("# a late heap call from 0x%llx (tuttid + 0x%llx)\n",
                        (unsigned long long)c->last_callers[i],
                        (unsigned long long)c->last_callers[i] - begin);
}

static uint32_t n_mutexes_taken(const struct counting *before, const struct counting *after) {
        uint32_t n = 0;
        for (int i = 0; i < COUNTING_MUTEXES; i++)
                n += after->mutexes[i].n > before->mutexes[i].n;
        return n;
}

START_TEST(after_warm_up_a_submission_makes_no_heap_call_and_takes_two_locks) {
        struct replica *r[N_RANKS];
        struct counting before, after, *c = start_counting();
        struct host *h = host_start(NULL);
        unsetenv("LD_PRELOAD");
        ck_assert_uint_gt(c->n_heap_calls, 10); /* it counts */
        replicas_spawn(h, N_RANKS, warm_up_and_go_on, NULL, r);
        for (int i = 0; i < N_RANKS; i++)
                replica_expect(r[i], "warm", 60);
        seconds_sleep(0.05); /* the last reply is out before the loop has come to rest */
        memcpy(&before, c, sizeof(before));
        for (int i = 0; i < N_RANKS; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < N_RANKS; i++)
                replica_expect(r[i], "done", 60);
        seconds_sleep(0.05);
        memcpy(&after, c, sizeof(after));
        if (after.n_heap_calls != before.n_heap_calls)
                print_callers(c, host_pid(h));
        ck_assert_uint_eq(after.n_heap_calls - before.n_heap_calls, 0);
        ck_assert_uint_eq(n_mutexes_taken(&before, &after), 2);
        ck_assert_uint_eq(after.n_mutexes_lost, before.n_mutexes_lost);
        ck_assert_uint_gt(after.n_locks_elsewhere, before.n_locks_elsewhere); /* the workers' side of it */
        for (int i = 0; i < N_RANKS; i++) {
                replica_tell(r[i], "end");
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        }
        host_expect_counters_zero(h);
        host_stop(h);
        munmap(c, sizeof(*c));
}
END_TEST

UNIT_MAIN("hot-path", 60, after_warm_up_a_submission_makes_no_heap_call_and_takes_two_locks)
