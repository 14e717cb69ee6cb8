/* tuttid that is killed (P9, M2), and what killed clients leave in it: nothing (P20). */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define LIMIT 1.0 /* s from tuttid's death to DAEMON_LOST: ten times what is promised */

/* Shared by the test and its replicas. */
struct shared {
        _Atomic double heard[4], killed;
};

static struct shared *shared;

static void tell_all(struct replica *const *r, uint32_t n, const char *text) {
        for (uint32_t i = 0; i < n; i++)
                replica_tell(r[i], text);
}

static void expect_all(struct replica *const *r, uint32_t n, const char *text, double seconds) {
        for (uint32_t i = 0; i < n; i++)
                replica_expect(r[i], text, seconds);
}

/* --- P9: tuttid dies --- */

#define N_BIG ((size_t)16 << 20) /* floats: 64 MiB */

/* The connection is over, and says so whatever is asked of it. */
static void expect_lost(struct replica *me, struct tutti_group *g, struct floats *f) {
        struct tutti_buffer *b = NULL;
        struct tutti_group *other;
        expect_status(tutti_all_reduce(g, "later", TUTTI_SUM, &f->value, &f->value), TUTTI_DAEMON_LOST);
        ck_assert_int_eq(tutti_error_info()->status, TUTTI_DAEMON_LOST);
        expect_in(tutti_error(), "DAEMON_LOST");
        expect_status(tutti_dispatch(me->t), TUTTI_DAEMON_LOST);
        expect_status(tutti_leave(g), TUTTI_DAEMON_LOST);
        expect_status(tutti_busy(g, "why", 1), TUTTI_DAEMON_LOST);
        expect_status(tutti_join(me->t, &TUTTI_JOIN(.group = "g", .job = "j", .world_size = 1), &other),
                TUTTI_DAEMON_LOST);
        ck_assert_int_ne(tutti_buffer_alloc(me->t, 64 << 20, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_error_info()->status, TUTTI_DAEMON_LOST);
}

/* Every page of it can be read and written. */
static void expect_memory(struct floats *f, float value) {
        if (value >= 0)
                floats_expect(f, value);
        floats_fill(f, 9);
        floats_expect(f, 9);
}

static void meet_again(struct replica *me) {
        struct floats f;
        tutti_close(me->t);
        me->t = NULL;
        replica_hear(me, "again");
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        ck_assert_uint_eq(tutti_epoch(g), 1);
        floats_init(me->t, &f, 1000);
        floats_meet(g, NULL, &f, 1, 3);
        tutti_group_free(g);
        replica_say(me, "met");
        replica_hear(me, "end");
}

static void lose_tuttid_while_waiting(struct replica *me) {
        struct floats f;
        struct tutti_work *w = NULL;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 1 << 20);
        floats_meet(g, "before", &f, 1, 3);
        if (me->rank < 2)
                expect_status(tutti_all_reduce_start(g, "after", TUTTI_SUM, &f.value, &f.value, NULL, &w),
                        TUTTI_OK);
        replica_say(me, "waiting");
        if (me->rank < 2) {
                expect_work(w, TUTTI_DAEMON_LOST);
                atomic_store(&shared->heard[me->rank], seconds_now());
                expect_in(tutti_work_error(w)->text, "DAEMON_LOST");
                ck_assert_int_eq(tutti_work_test(w), TUTTI_DAEMON_LOST);
        } else {
                replica_hear(me, "it is dead");
        }
        expect_lost(me, g, &f);
        expect_memory(&f, 3);
        tutti_work_free(w);
        replica_say(me, "lost");
        meet_again(me);
}

static void kill_tuttid(struct host *h) {
        atomic_store(&shared->killed, seconds_now());
        host_kill9(h);
}

static void expect_heard_in_time(uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                ck_assert_double_lt(
                        atomic_load(&shared->heard[i]) - atomic_load(&shared->killed), LIMIT * unit_scale());
}

static void start_again(struct host *h, struct replica *const *r, uint32_t n) {
        host_start_again(h);
        tell_all(r, n, "again");
        expect_all(r, n, "met", 10);
        tell_all(r, n, "end");
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

START_TEST(P9_M2_when_tuttid_is_killed_clients_know_it_and_keep_their_memory) {
        struct replica *r[3];
        shared = memory_shared(sizeof(*shared));
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, lose_tuttid_while_waiting, NULL, r);
        expect_all(r, 3, "waiting", 10);
        kill_tuttid(h);
        replica_tell(r[2], "it is dead");
        expect_all(r, 3, "lost", 10);
        expect_heard_in_time(2);
        start_again(h, r, 3);
}
END_TEST

/* The same while it computes: in place, so what stands in the buffer is anybody's guess, but it is there. */
static void lose_tuttid_while_it_runs(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, N_BIG);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        expect_status(tutti_all_reduce_start(g, "big", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
        replica_say(me, "submitted");
        expect_work(w, TUTTI_DAEMON_LOST);
        atomic_store(&shared->heard[me->rank], seconds_now());
        expect_memory(&f, -1);
        tutti_work_free(w);
        floats_deinit(&f);
        replica_say(me, "lost");
        meet_again(me);
}

START_TEST(P9_tuttid_killed_in_the_middle_of_a_reduction) {
        struct replica *r[3];
        shared = memory_shared(sizeof(*shared));
        struct host *h = host_start((const char *[]){ "--isa", "scalar", "--workers", "1", NULL });
        replicas_spawn(h, 3, lose_tuttid_while_it_runs, NULL, r);
        expect_all(r, 3, "submitted", 10);
        kill_tuttid(h);
        expect_all(r, 3, "lost", 10);
        expect_heard_in_time(3);
        start_again(h, r, 3);
}
END_TEST

/* --- P20: clients are killed at any point --- */

#define N_KILLS 500

static int n_entries(const char *path, const char *pattern) {
        int n = 0;
        DIR *dir = opendir(path);
        ck_assert_msg(dir != NULL, "%s: %m", path);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
                n += e->d_name[0] != '.' && (!pattern || strstr(e->d_name, pattern));
        closedir(dir);
        return n;
}

static int n_descriptors_of(pid_t pid) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        return n_entries(path, NULL);
}

/* Mappings of memory files: clients' buffers and status pages. */
static int n_mappings_of(pid_t pid) {
        char path[64], line[512];
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/maps", pid);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (fgets(line, sizeof(line), f))
                n += strstr(line, "/memfd:") != NULL;
        fclose(f);
        return n;
}

/* NULL: the other one is leaving, or has just died. */
static struct tutti_group *join_pair(struct replica *me) {
        struct tutti_group *g;
        char group[32];
        snprintf(group, sizeof(group), "pair %u", *(const uint32_t *)me->arg);
        enum tutti_status status = tutti_join(replica_open(me),
                &TUTTI_JOIN(.group = group, .job = "test", .rank = (int32_t)me->rank, .world_size = 2), &g);
        ck_assert_msg(status == TUTTI_OK || status == TUTTI_BUSY || status == TUTTI_REPLICA_LOST, "%s",
                tutti_error());
        return status == TUTTI_OK ? g : NULL;
}

static void work_in_pair(struct tutti_group *g, struct floats *f) {
        struct tutti_work *w;
        for (int i = 0; i < 20; i++)
                if (tutti_all_reduce(g, NULL, TUTTI_SUM, &f->value, &f->value) != TUTTI_OK)
                        return;
        if (tutti_barrier_start(g, "pending", NULL, &w) == TUTTI_OK)
                tutti_work_free(w);
}

/* Everything a client can make tuttid hold, again and again, until it is killed. */
static void use_everything(struct replica *me) {
        struct tutti_buffer *b;
        struct floats f;
        int memfd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(memfd, 1 << 20), 0);
        for (;;) {
                struct tutti_group *g = join_pair(me);
                floats_init(me->t, &f, 50000);
                expect_status(tutti_buffer_from_fd(me->t, memfd, 0, TUTTI_INOUT, &b), TUTTI_OK);
                if (g)
                        work_in_pair(g, &f);
                tutti_buffer_free(b);
                floats_deinit(&f);
                tutti_close(me->t);
                me->t = NULL;
        }
}

static void kill_a_pair(struct host *h, uint32_t number) {
        struct replica *r[2];
        replicas_spawn(h, 2, use_everything, &number, r);
        for (int i = 0; i < 2; i++) {
                seconds_sleep((double)(rand() % 12000) / 1e6);
                replica_kill9(r[i]);
        }
}

/* Counters sink to zero first; what they do not count must have gone with them. */
static void expect_as_before(pid_t pid, int n_descriptors, int n_mappings) {
        double limit = seconds_now() + 2 * unit_scale();
        while (n_descriptors_of(pid) > n_descriptors || n_mappings_of(pid) > n_mappings) {
                if (seconds_now() > limit)
                        ck_abort_msg("tuttid has %d descriptors and %d mappings; before they were %d and %d",
                                n_descriptors_of(pid), n_mappings_of(pid), n_descriptors, n_mappings);
                seconds_sleep(0.01);
        }
}

START_TEST(P20_five_hundred_killed_clients_leave_nothing) {
        srand(20);
        struct host *h = host_start(NULL);
        kill_a_pair(h, 0);
        host_expect_counters_zero(h);
        int n_descriptors = n_descriptors_of(host_pid(h)), n_mappings = n_mappings_of(host_pid(h));
        int n_names = n_entries("/dev/shm", "tutti"), n_files = n_entries(unit_directory(), NULL);
        for (uint32_t i = 1; i <= N_KILLS / 2; i++)
                kill_a_pair(h, i);
        host_expect_counters_zero(h);
        expect_as_before(host_pid(h), n_descriptors, n_mappings);
        ck_assert_int_eq(n_entries("/dev/shm", "tutti"), n_names);
        ck_assert_int_eq(n_entries(unit_directory(), NULL), n_files);
        host_stop(h);
}
END_TEST

UNIT_MAIN("daemon-death", 60, P9_M2_when_tuttid_is_killed_clients_know_it_and_keep_their_memory,
        P9_tuttid_killed_in_the_middle_of_a_reduction, P20_five_hundred_killed_clients_leave_nothing)
