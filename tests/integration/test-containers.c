/* Containers that share the socket's directory and nothing else, and hosts that deny (O5, F1 F3 F4 F9, G6 G8,
 * P19 P20). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "container.h"
#include "meeting.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define MFD_NOEXEC_SEAL_FLAG 8u

/* A search for leaks stops its own process by ptrace, which is denied here: none in this program, nor in what
 * it starts. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
        return 1;
}

static void search_for_no_leaks(void) {
        char options[512];
        const char *before = getenv("ASAN_OPTIONS");
        snprintf(options, sizeof(options), "%s%sdetect_leaks=0", before ? before : "", before ? ":" : "");
        ck_assert_int_eq(setenv("ASAN_OPTIONS", options, 1), 0);
}

/* --- what is done in all of them: a representative part --- */

#define N_FLOATS 300000

static void expect_mismatch(struct replica *me, struct tutti_group *g, struct floats *f) {
        struct tutti_value v = f->value;
        v.shape[0] = 100 + me->rank;
        expect_status(tutti_all_reduce(g, "odd", TUTTI_SUM, &v, &v), TUTTI_MISMATCH);
        floats_meet(g, "odd", f, 1, (float)me->n); /* the group can go on */
}

/* Reduces, broadcasts, meets, disagrees, times out; rank 1 ends as the test says. */
static void do_a_bit_of_everything(struct replica *me) {
        struct floats f;
        struct tutti_group *g =
                replica_join_group(me, &TUTTI_JOIN(.group = "train", .on_death = TUTTI_SHRINK));
        floats_init(me->t, &f, N_FLOATS);
        for (int i = 0; i < 20; i++)
                floats_meet(g, NULL, &f, (float)(me->rank + 1), (float)(me->n * (me->n + 1) / 2));
        floats_fill(&f, (float)(me->rank + 7));
        expect_status(tutti_broadcast(g, "b", 0, &f.value), TUTTI_OK);
        floats_expect(&f, 7);
        expect_mismatch(me, g, &f);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        replica_say(me, "done");
        if (me->rank == 1) {
                replica_hear(me, "never"); /* it is killed */
                return;
        }
        floats_meet(g, "after", &f, 5, 5); /* alone, since the other is dead */
        tutti_group_free(g);
}

/* Runs that in two replicas, of which one dies in the middle of a wait. */
static void run_a_bit_of_everything(struct host *h, void (*body)(struct replica *me)) {
        struct replica *r[2];
        replicas_spawn(h, 2, body, NULL, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "done", 20);
        host_expect_pending(h, 1);
        replica_signal(r[1], SIGKILL);
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        ck_assert_int_eq(replica_end(r[1], 10), 128 + SIGKILL);
        host_expect_counters_zero(h);
}

static void be_in_container(struct replica *me) {
        container_run(me, do_a_bit_of_everything);
}

START_TEST(O5_G6_two_containers_share_the_socket_and_nothing_else) {
        container_need();
        search_for_no_leaks();
        struct host *h = host_start(NULL);
        run_a_bit_of_everything(h, be_in_container);
        host_stop(h);
}
END_TEST

/* --- a pid that tuttid cannot see --- */

/* A tuttid in a pid namespace of its own: to it, nobody outside has a number. */
static struct host *start_in_pid_namespace(void) {
        char path[256];
        snprintf(path, sizeof(path), "%s/tuttid", unit_directory());
        FILE *f = fopen(path, "we");
        ck_assert_ptr_nonnull(f);
        fprintf(f,
                "#!/bin/sh\nexec unshare --user --map-current-user --pid --fork --kill-child '%s' \"$@\"\n",
                program_tuttid());
        fclose(f);
        ck_assert_int_eq(chmod(path, 0755), 0);
        setenv("TUTTI_DAEMON", path, 1);
        return host_start(NULL);
}

static void wait_for_the_dead(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        replica_say(me, "joined");
        if (me->rank == 1) {
                replica_hear(me, "never");
                return;
        }
        double begin = seconds_now();
        expect_status(tutti_barrier(g, "x"), TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->loss, TUTTI_DIED);
        expect_in(tutti_error(), "pid not visible");
        replica_say(me, "lost after %.0f ms", (seconds_now() - begin) * 1e3);
}

static void expect_unknown_pids(const char *socket) {
        const char *const argv[] = { program_tuttictl(), "groups", "--socket", socket, NULL };
        struct program p;
        program_run(argv, 10, &p);
        ck_assert_msg(p.code == 0, "%s", p.err);
        expect_in(p.out, "pid ?");
        program_deinit(&p);
}

START_TEST(G6_who_has_no_pid_here_is_shown_so_and_its_death_is_seen) {
        struct replica *r[2];
        container_need();
        if (access("/usr/bin/unshare", X_OK) < 0)
                unit_skip("there is no unshare here");
        struct host *h = start_in_pid_namespace();
        replicas_spawn(h, 2, wait_for_the_dead, NULL, r);
        replica_expect(r[0], "joined", 10);
        replica_expect(r[1], "joined", 10);
        expect_unknown_pids(host_socket(h));
        host_expect_pending(h, 1);
        double begin = seconds_now();
        replica_kill9(r[1]);
        expect_in(replica_listen(r[0], 5), "lost after");
        ck_assert_double_lt(seconds_now() - begin, 1.0 * unit_scale()); /* ten times what is promised */
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        host_kill9(h);
        host_stop(h);
}
END_TEST

/* --- /dev/shm --- */

static void expect_shm_empty(void) {
        DIR *dir = opendir("/dev/shm");
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
                ck_assert_msg(e->d_name[0] == '.', "/dev/shm has %s", e->d_name);
        closedir(dir);
}

#define LARGE_FLOATS ((size_t)64 << 20) /* 256 MiB */

static void reduce_much(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, LARGE_FLOATS);
        floats_meet(g, NULL, &f, (float)me->rank + 1, 3);
        expect_shm_empty();
        replica_say(me, "done");
        replica_hear(me, "end");
}

/* Of memory that can be had now. */
static size_t available_bytes(void) {
        char line[128];
        unsigned long long kib = 0;
        FILE *f = fopen("/proc/meminfo", "re");
        ck_assert_ptr_nonnull(f);
        while (!kib && fgets(line, sizeof(line), f))
                if (sscanf(line, "MemAvailable: %llu", &kib) != 1)
                        kib = 0;
        fclose(f);
        return (size_t)kib << 10;
}

START_TEST(F1_P20_a_small_dev_shm_is_nothing_to_us) {
        struct replica *r[2];
        container_need();
        if (available_bytes() < 6 * LARGE_FLOATS * sizeof(float) / 2)
                unit_skip("it takes 768 MiB");
        container_own_shm(1 << 20);
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, reduce_much, NULL, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "done", 60);
        expect_shm_empty();
        for (int i = 0; i < 2; i++) {
                replica_tell(r[i], "end");
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        }
        host_stop(h);
        expect_shm_empty();
}
END_TEST

static void sweep_shm(void) {
        char path[512];
        DIR *dir = opendir("/dev/shm");
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
                snprintf(path, sizeof(path), "/dev/shm/%s", e->d_name);
                if (e->d_name[0] != '.')
                        unlink(path);
        }
        closedir(dir);
}

static void reduce_until_swept(struct replica *me) {
        struct floats f;
        atomic_int *is_swept = me->arg;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, (size_t)4 << 20);
        replica_say(me, "running");
        for (;;) {
                floats_meet(g, NULL, &f, (float)me->rank + 1, 3);
                if (me->rank == 0)
                        floats_fill(&f, atomic_load(is_swept) ? 1 : 0); /* both stop after the same one */
                expect_status(tutti_broadcast(g, NULL, 0, &f.value), TUTTI_OK);
                if (f.data[0] == 1)
                        break;
        }
}

START_TEST(F4_who_empties_dev_shm_harms_nobody) {
        struct replica *r[2];
        container_need();
        container_own_shm(1 << 20);
        atomic_int *is_swept = memory_shared(sizeof(*is_swept));
        int fd = open("/dev/shm/somebody's", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, reduce_until_swept, is_swept, r);
        replica_expect(r[0], "running", 10);
        replica_expect(r[1], "running", 10);
        for (int i = 0; i < 20; i++) {
                sweep_shm();
                seconds_sleep(0.01);
        }
        expect_shm_empty();
        atomic_store(is_swept, 1);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- two daemons --- */

static void meet_here(struct replica *me) {
        struct floats f;
        float mine = *(const float *)me->arg;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 1000);
        for (int i = 0; i < 500; i++)
                floats_meet(g, "same", &f, mine, 2 * mine);
}

START_TEST(F3_two_daemons_with_the_same_names_are_two_worlds) {
        static float values[2] = { 3, 50 };
        struct host *h[2];
        struct replica *r[2][2];
        for (int i = 0; i < 2; i++)
                h[i] = host_start(NULL);
        for (int i = 0; i < 2; i++)
                replicas_spawn(h[i], 2, meet_here, &values[i], r[i]);
        for (int i = 0; i < 4; i++)
                ck_assert_int_eq(replica_end(r[i / 2][i % 2], 20), 0);
        for (int i = 0; i < 2; i++) {
                host_expect_counters_zero(h[i]);
                host_stop(h[i]);
        }
}
END_TEST

/* --- hosts that deny --- */

static const struct denied_call looking_into_others[] = {
        { .call = SYS_ptrace, .error = EPERM },
        { .call = SYS_process_vm_readv, .error = EPERM },
        { .call = SYS_process_vm_writev, .error = EPERM },
        { .call = SYS_pidfd_getfd, .error = EPERM },
};

/* A hexadecimal number of /proc/PID/status. */
static unsigned long long status_of(pid_t pid, const char *name) {
        char path[64], line[256], format[64];
        unsigned long long value = ~0ULL;
        snprintf(path, sizeof(path), "/proc/%d/status", pid);
        snprintf(format, sizeof(format), "%s: %%llx", name);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (value == ~0ULL && fgets(line, sizeof(line), f))
                if (sscanf(line, format, &value) != 1)
                        value = ~0ULL;
        fclose(f);
        return value;
}

START_TEST(G8_without_capabilities_and_without_looking_into_others_all_works) {
        char byte = 0;
        struct iovec v = { .iov_base = &byte, .iov_len = 1 };
        search_for_no_leaks();
        drop_capabilities();
        deny_calls(looking_into_others, sizeof(looking_into_others) / sizeof(*looking_into_others));
        ck_assert_int_eq(process_vm_readv(getpid(), &v, 1, &v, 1, 0), -1);
        ck_assert_int_eq(ptrace(PTRACE_TRACEME, 0, 0, 0), -1);
        struct host *h = host_start(NULL);
        ck_assert_uint_eq(status_of(host_pid(h), "CapEff"), 0);
        ck_assert_uint_eq(status_of(host_pid(h), "CapPrm"), 0);
        ck_assert_uint_eq(status_of(host_pid(h), "Seccomp"), 2);
        run_a_bit_of_everything(h, do_a_bit_of_everything);
        host_stop(h);
}
END_TEST

START_TEST(F9_where_noexec_seal_is_unknown_the_right_to_seal_stays) {
        const struct denied_call old_kernel = {
                .call = SYS_memfd_create, .error = EINVAL, .index = 1, .flag = MFD_NOEXEC_SEAL_FLAG
        };
        deny_calls(&old_kernel, 1);
        ck_assert_int_eq(memfd_create("test", MFD_NOEXEC_SEAL_FLAG), -1);
        struct host *h = host_start(NULL);
        run_a_bit_of_everything(h, do_a_bit_of_everything); /* memory that takes no seal would be BAD_FD */
        host_stop(h);
}
END_TEST

/* Nothing of ours asks for a place of memory; where even the question is denied, nothing is missed. */
START_TEST(F10_where_memory_policies_are_denied_all_works) {
        static const struct denied_call policies[] = {
                { .call = SYS_set_mempolicy, .error = EPERM },
                { .call = SYS_get_mempolicy, .error = EPERM },
                { .call = SYS_mbind, .error = EPERM },
        };
        deny_calls(policies, sizeof(policies) / sizeof(*policies));
        ck_assert_int_eq((int)syscall(SYS_set_mempolicy, 0, NULL, 0), -1);
        ck_assert_int_eq(errno, EPERM);
        struct host *h = host_start(NULL);
        run_a_bit_of_everything(h, do_a_bit_of_everything);
        host_stop(h);
}
END_TEST

UNIT_MAIN("containers", 120, O5_G6_two_containers_share_the_socket_and_nothing_else,
        G6_who_has_no_pid_here_is_shown_so_and_its_death_is_seen, F1_P20_a_small_dev_shm_is_nothing_to_us,
        F4_who_empties_dev_shm_harms_nobody, F3_two_daemons_with_the_same_names_are_two_worlds,
        G8_without_capabilities_and_without_looking_into_others_all_works,
        F9_where_noexec_seal_is_unknown_the_right_to_seal_stays,
        F10_where_memory_policies_are_denied_all_works)
