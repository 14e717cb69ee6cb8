/* tuttid as a guest of its host: paths, starting, idling (G1 G2 G4 G5 G7, H3, J1 J2, P22 P24). */
#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "meeting.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

/* --- G1: paths that fit no address --- */

/* A path of so many bytes in the test's directory. */
static void make_path(char *buf, size_t n_bytes) {
        int used = sprintf(buf, "%s/", unit_directory());
        memset(buf + used, 'p', n_bytes - (size_t)used);
        buf[n_bytes] = '\0';
        ck_assert_uint_eq(strlen(buf), n_bytes);
}

START_TEST(G1_a_path_of_108_bytes_is_refused_by_both_sides) {
        char path[128];
        struct program p;
        struct tutti *t;
        make_path(path, 108);
        program_run((const char *[]){ program_tuttid(), "--socket", path, NULL }, 10, &p);
        ck_assert_int_eq(p.code, 2);
        expect_in(p.err, path);
        expect_in(p.err, "108");
        expect_in(p.err, "107");
        program_deinit(&p);
        expect_status(tutti_open(path, &t), TUTTI_LIMIT);
        expect_in(tutti_error(), path);
        expect_in(tutti_error(), "108");
        expect_in(tutti_error(), "107");
        setenv("TUTTI_SOCKET", path, 1);
        expect_status(tutti_open(NULL, &t), TUTTI_LIMIT);
        expect_in(tutti_error(), path);
        ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

static void wait_until_served(const char *path) {
        double limit = seconds_now() + 5 * unit_scale();
        struct tutti *t;
        while (tutti_open(path, &t) != TUTTI_OK) {
                ck_assert_msg(seconds_now() < limit, "%s", tutti_error());
                seconds_sleep(0.005);
        }
        tutti_close(t);
}

START_TEST(G1_a_path_of_107_bytes_is_served) {
        char path[128];
        make_path(path, 107);
        pid_t pid = program_spawn(
                (const char *[]){ program_tuttid(), "--socket", path, NULL }, STDERR_FILENO, STDERR_FILENO);
        wait_until_served(path);
        ck_assert_int_eq(kill(pid, SIGTERM), 0);
        ck_assert_int_eq(program_wait(pid, 5), 0);
}
END_TEST

/* --- G2, P24: starting --- */

#define START_LIMIT 2.0 /* s: ten times what is promised */

START_TEST(G2_P24_after_kill_9_it_serves_again_soon) {
        struct host *h = host_start(NULL);
        ck_assert_double_lt(host_start_seconds(h), START_LIMIT * unit_scale());
        for (int i = 0; i < 5; i++) {
                host_kill9(h);
                ck_assert_int_eq(access(host_socket(h), F_OK), 0); /* what it left is in nobody's way */
                host_start_again(h);
                ck_assert_double_lt(host_start_seconds(h), START_LIMIT * unit_scale());
        }
        host_stop(h);
}
END_TEST

static void expect_second_refused(struct host *h) {
        struct program p;
        char words[64];
        program_run((const char *[]){ program_tuttid(), "--socket", host_socket(h), NULL }, 10, &p);
        ck_assert_int_eq(p.code, 2);
        snprintf(words, sizeof(words), "already running, pid %d", host_pid(h));
        expect_in(p.err, words);
        expect_in(p.err, host_socket(h));
        program_deinit(&p);
}

START_TEST(G2_a_second_tuttid_on_the_same_path_gives_way) {
        struct host *h = host_start(NULL);
        expect_second_refused(h);
        host_expect_counters_zero(h); /* the first goes on */
        ck_assert_int_eq(unlink(host_socket(h)), 0);
        expect_second_refused(h); /* the lock is what counts */
        ck_assert_int_eq(access(host_socket(h), F_OK), -1);
        host_kill9(h);
        host_start_again(h);
        host_stop(h);
}
END_TEST

static void expect_start_refused(const char *path) {
        struct program p;
        program_run((const char *[]){ program_tuttid(), "--socket", path, NULL }, 10, &p);
        ck_assert_int_eq(p.code, 2);
        expect_in(p.err, path);
        program_deinit(&p);
}

START_TEST(G2_what_is_no_socket_stays_untouched) {
        char file[128], directory[128], target[128], link[128], text[16] = "";
        struct stat before, after;
        snprintf(file, sizeof(file), "%s/file", unit_directory());
        snprintf(directory, sizeof(directory), "%s/directory", unit_directory());
        snprintf(target, sizeof(target), "%s/target", unit_directory());
        snprintf(link, sizeof(link), "%s/link", unit_directory());
        FILE *f = fopen(file, "we");
        ck_assert_ptr_nonnull(f);
        fputs("precious", f);
        fclose(f);
        ck_assert_int_eq(mkdir(directory, 0700), 0);
        ck_assert_int_eq(symlink(target, link), 0);
        ck_assert_int_eq(stat(file, &before), 0);
        expect_start_refused(file);
        expect_start_refused(directory);
        expect_start_refused(link);
        ck_assert_int_eq(stat(file, &after), 0);
        ck_assert_uint_eq(after.st_ino, before.st_ino);
        ck_assert_int_eq(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
        f = fopen(file, "re");
        ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
        fclose(f);
        ck_assert_str_eq(text, "precious");
        ck_assert_int_eq(access(target, F_OK), -1);
        ck_assert_int_eq(stat(directory, &after), 0);
        ck_assert(S_ISDIR(after.st_mode));
}
END_TEST

/* --- G4: who may connect --- */

/* Any group but root's; false: this host knows none. */
static bool find_any_group(char name[64], gid_t *ret) {
        setgrent();
        const struct group *g;
        while ((g = getgrent()) && (g->gr_gid == 0 || g->gr_gid > 60000))
                ;
        if (g) {
                snprintf(name, 64, "%s", g->gr_name);
                *ret = g->gr_gid;
        }
        endgrent();
        return g != NULL;
}

#define STRANGER 54321

static void come_in_as_member(struct replica *me) {
        gid_t gid = *(const gid_t *)me->arg;
        ck_assert_int_eq(setgroups(1, &gid), 0);
        ck_assert(
                setresgid(STRANGER, STRANGER, STRANGER) == 0 && setresuid(STRANGER, STRANGER, STRANGER) == 0);
        replica_open(me);
}

static void stay_outside(struct replica *me) {
        struct tutti *t;
        char group[64], words[128];
        gid_t gid;
        ck_assert(find_any_group(group, &gid));
        ck_assert_int_eq(setgroups(0, NULL), 0);
        ck_assert(
                setresgid(STRANGER, STRANGER, STRANGER) == 0 && setresuid(STRANGER, STRANGER, STRANGER) == 0);
        expect_status(tutti_open(me->socket, &t), TUTTI_PERMISSION);
        expect_in(tutti_error(), me->socket);
        snprintf(words, sizeof(words), "belongs to group \"%s\"", group);
        expect_in(tutti_error(), words);
        expect_in(tutti_error(), gid == 0 ? "It is root's own" : "A user without a name on this host");
        ck_assert_ptr_null(strstr(tutti_error(), "usermod"));
}

/* Where nobody has given it to a group: no advice to join root's. */
static void stay_outside_of_root(struct replica *me) {
        struct tutti *t;
        ck_assert_int_eq(setgroups(0, NULL), 0);
        ck_assert(
                setresgid(STRANGER, STRANGER, STRANGER) == 0 && setresuid(STRANGER, STRANGER, STRANGER) == 0);
        expect_status(tutti_open(me->socket, &t), TUTTI_PERMISSION);
        expect_in(tutti_error(), "It is root's own");
        ck_assert_ptr_null(strstr(tutti_error(), "usermod"));
}

START_TEST(G4_a_socket_of_root_advises_nobody_to_join_its_group) {
        if (geteuid() != 0)
                unit_skip("a socket of root takes root");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0);
        struct host *h = host_start(NULL);
        ck_assert_int_eq(chmod(host_directory(h), 0755), 0);
        const struct replica_options outside = { .n = 1, .body = stay_outside_of_root };
        ck_assert_int_eq(replica_end(replica_spawn(h, &outside), 10), 0);
        host_stop(h);
}
END_TEST

START_TEST(G4_the_socket_is_for_its_group) {
        char group[64];
        gid_t gid;
        struct stat st;
        if (geteuid() != 0)
                unit_skip("giving a socket to a group takes root");
        if (!find_any_group(group, &gid))
                unit_skip("this host has no groups");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
        umask(077);                                         /* which decides nothing */
        struct host *h = host_start((const char *[]){ "--group", group, NULL });
        ck_assert_int_eq(chmod(host_directory(h), 0755), 0);
        ck_assert_int_eq(stat(host_socket(h), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0660);
        ck_assert_uint_eq(st.st_gid, gid);
        ck_assert_uint_eq(st.st_uid, 0);
        const struct replica_options inside = { .n = 1, .body = come_in_as_member, .arg = &gid },
                                     outside = { .n = 1, .body = stay_outside };
        ck_assert_int_eq(replica_end(replica_spawn(h, &inside), 10), 0);
        ck_assert_int_eq(replica_end(replica_spawn(h, &outside), 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(G4_a_group_that_is_not_there_is_said) {
        struct program p;
        char path[128];
        snprintf(path, sizeof(path), "%s/tuttid.sock", unit_directory());
        program_run((const char *[]){ program_tuttid(), "--socket", path, "--group", "no-such-group", NULL },
                10, &p);
        ck_assert_int_eq(p.code, 2);
        expect_in(p.err, "no-such-group");
        expect_in(p.err, "groupadd");
        program_deinit(&p);
        ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

/* --- G5: a socket that strangers can offer --- */

START_TEST(G5_no_socket_under_tmp_is_taken_by_itself) {
        struct tutti *t;
        char own[256];
        struct host *h = host_start(NULL);
        /* A tuttid serves right where TMPDIR and HOME point to, under every name that comes to mind. */
        snprintf(own, sizeof(own), "%s/tutti", host_directory(h));
        ck_assert_int_eq(symlink(host_directory(h), own), 0);
        setenv("TMPDIR", host_directory(h), 1);
        setenv("HOME", host_directory(h), 1);
        ck_assert_int_eq(chdir(host_directory(h)), 0);
        unsetenv("TUTTI_SOCKET");
        unsetenv("XDG_RUNTIME_DIR");
        if (access("/run/tutti/tuttid.sock", F_OK) == 0) {
                unlink(own);
                host_stop(h);
                unit_skip("a tuttid serves this host");
        }
        expect_status(tutti_open(NULL, &t), TUTTI_NO_DAEMON);
        expect_in(tutti_error(), "/run/tutti/tuttid.sock");
        setenv("XDG_RUNTIME_DIR", host_directory(h), 1); /* said by whoever logged us in: that counts */
        expect_status(tutti_open(NULL, &t), TUTTI_OK);
        tutti_close(t);
        unlink(own);
        host_stop(h);
}
END_TEST

/* --- G7: no abstract sockets --- */

/* The path that /proc/net/unix has for a socket; "" for one without. Whether it is there. */
static bool find_unix_socket(unsigned long inode, char *ret, size_t size) {
        char line[512];
        bool found = false;
        FILE *f = fopen("/proc/net/unix", "re");
        ck_assert_ptr_nonnull(f);
        while (!found && fgets(line, sizeof(line), f)) {
                unsigned long at;
                char path[256] = "";
                int n = sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %255s", &at, path);
                found = n >= 1 && at == inode;
                snprintf(ret, size, "%s", path);
        }
        fclose(f);
        return found;
}

/* How many Unix sockets the process has; none is abstract. */
static int count_unix_sockets(pid_t pid, const char *wanted, int *ret_wanted) {
        char path[64], target[64], name[256];
        unsigned long inode;
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        DIR *dir = opendir(path);
        ck_assert_ptr_nonnull(dir);
        *ret_wanted = 0;
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
                ssize_t used = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);
                target[used > 0 ? used : 0] = '\0';
                if (sscanf(target, "socket:[%lu]", &inode) != 1 ||
                        !find_unix_socket(inode, name, sizeof(name)))
                        continue;
                n++;
                *ret_wanted += strcmp(name, wanted) == 0;
                ck_assert_msg(name[0] != '@', "%d has the abstract socket %s", pid, name);
        }
        closedir(dir);
        return n;
}

START_TEST(G7_no_socket_is_abstract) {
        struct tutti *t;
        int n_named;
        struct host *h = host_start(NULL);
        int n_before = count_unix_sockets(getpid(), host_socket(h), &n_named);
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        ck_assert_int_eq(count_unix_sockets(getpid(), host_socket(h), &n_named), n_before + 1);
        /* Where it listens, and our connection; that by which it was seen to serve may take a moment to go.
         */
        for (int i = 0; i < 100; i++) {
                ck_assert_int_ge(count_unix_sockets(host_pid(h), host_socket(h), &n_named), 2);
                if (n_named == 2)
                        break;
                seconds_sleep(0.05);
        }
        ck_assert_int_eq(n_named, 2);
        tutti_close(t);
        host_stop(h);
}
END_TEST

/* --- J1: soon --- */

#define FIRST_RESULT_LIMIT 0.050 /* s: ten times what is promised; so are the others */
#define N_GROUPS           100
#define GROUPS_LIMIT       1.0
#define GROUP_BYTES        (64 << 10)
#define N_CONNECTS         11

static int compare_doubles(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

static double connect_and_reduce(struct replica *me) {
        struct floats f;
        double begin = seconds_now();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 1024);
        floats_meet(g, NULL, &f, 1, 2);
        double took = seconds_now() - begin;
        floats_deinit(&f);
        tutti_close(me->t);
        me->t = NULL;
        return took;
}

static void connect_again_and_again(struct replica *me) {
        double took[N_CONNECTS];
        for (int i = 0; i < N_CONNECTS; i++) {
                replica_say(me, "ready");
                replica_hear(me, "go");
                took[i] = connect_and_reduce(me);
        }
        qsort(took, N_CONNECTS, sizeof(*took), compare_doubles);
        printf("# J1: R%u from connect to the first result: p50 %.2f ms, most %.2f ms\n", me->rank,
                took[N_CONNECTS / 2] * 1e3, took[N_CONNECTS - 1] * 1e3);
        ck_assert_double_lt(took[N_CONNECTS / 2], FIRST_RESULT_LIMIT * unit_scale());
}

START_TEST(J1_the_first_result_is_there_soon_after_connecting) {
        struct replica *r[2];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, connect_again_and_again, NULL, r);
        for (int i = 0; i < N_CONNECTS; i++)
                for (int k = 0; k < 2; k++) {
                        replica_expect(r[k], "ready", 10);
                        if (k == 1) {
                                replica_tell(r[0], "go");
                                replica_tell(r[1], "go");
                        }
                }
        for (int k = 0; k < 2; k++)
                ck_assert_int_eq(replica_end(r[k], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void join_many_groups(struct replica *me) {
        struct tutti_group *groups[N_GROUPS];
        replica_open(me);
        replica_say(me, "ready");
        replica_hear(me, "go");
        double begin = seconds_now();
        for (int i = 0; i < N_GROUPS; i++) {
                char name[16];
                snprintf(name, sizeof(name), "g%d", i);
                groups[i] = replica_join_group(me, &TUTTI_JOIN(.group = name));
        }
        for (int i = 0; i < N_GROUPS; i++)
                expect_status(tutti_barrier(groups[i], NULL), TUTTI_OK);
        double took = seconds_now() - begin;
        printf("# J1: R%u in %d groups after %.1f ms\n", me->rank, N_GROUPS, took * 1e3);
        ck_assert_double_lt(took, GROUPS_LIMIT * unit_scale());
        replica_say(me, "joined");
        replica_hear(me, "end");
}

static long resident_bytes(pid_t pid) {
        char path[64];
        long pages = -1;
        snprintf(path, sizeof(path), "/proc/%d/statm", pid);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(fscanf(f, "%*d %ld", &pages), 1);
        fclose(f);
        return pages * sysconf(_SC_PAGESIZE);
}

START_TEST(J1_J2_a_hundred_groups_are_made_soon_and_are_small) {
        struct replica *r[2];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, join_many_groups, NULL, r);
        replica_expect(r[0], "ready", 10);
        replica_expect(r[1], "ready", 10);
        long before = resident_bytes(host_pid(h));
        replica_tell(r[0], "go");
        replica_tell(r[1], "go");
        replica_expect(r[0], "joined", 20);
        replica_expect(r[1], "joined", 20);
        long each = (resident_bytes(host_pid(h)) - before) / N_GROUPS;
        printf("# J2: %ld bytes a group\n", each);
        ck_assert_int_le(each, (long)(GROUP_BYTES * unit_scale())); /* sanitizers pad every block */
        replica_tell(r[0], "end");
        replica_tell(r[1], "end");
        for (int k = 0; k < 2; k++)
                ck_assert_int_eq(replica_end(r[k], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- P22, H3: idle means idle --- */

#define N_IDLE       8
#define IDLE_SECONDS 3
#define IDLE_LIMIT   0.01 /* of a core: ten times what is promised */
#define WAIT_LIMIT   0.1
#define MAX_WAKEUPS  (2 * IDLE_SECONDS)

struct usage {
        double seconds;
        unsigned long n_slices; /* how often a thread of it was put on a core */
};

static struct usage usage_of(pid_t pid) {
        struct usage all = { 0 };
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/task", pid);
        DIR *dir = opendir(path);
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
                char file[400];
                unsigned long long run_ns;
                unsigned long n_slices;
                if (e->d_name[0] == '.')
                        continue;
                snprintf(file, sizeof(file), "%s/%s/schedstat", path, e->d_name);
                FILE *f = fopen(file, "re");
                ck_assert_ptr_nonnull(f);
                ck_assert_int_eq(fscanf(f, "%llu %*u %lu", &run_ns, &n_slices), 2);
                fclose(f);
                all.seconds += (double)run_ns / 1e9;
                all.n_slices += n_slices;
        }
        closedir(dir);
        return all;
}

static void idle(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "idle"));
        floats_init(me->t, &f, 10000);
        for (int i = 0; i < 10; i++)
                floats_meet(g, NULL, &f, 1, N_IDLE);
        replica_say(me, "idle");
        replica_hear(me, "end");
}

static void expect_idle(const char *who, const struct usage *before, const struct usage *after) {
        double share = (after->seconds - before->seconds) / IDLE_SECONDS;
        unsigned long n_slices = after->n_slices - before->n_slices;
        if (share > 0 || n_slices > 0)
                printf("# P22: %s used %.3f %% of a core and woke up %lu times in %d s\n", who, share * 100,
                        n_slices, IDLE_SECONDS);
        ck_assert_double_gt(before->seconds, 0); /* it has worked before */
        ck_assert_double_le(share, IDLE_LIMIT);
        if (unit_scale() <= 1) /* the thread sanitizer has a thread of its own that ticks */
                ck_assert_uint_le(n_slices, MAX_WAKEUPS);
}

START_TEST(P22_H3_idle_tuttid_and_idle_clients_sleep) {
        struct replica *r[N_IDLE];
        struct usage before[N_IDLE + 1], after[N_IDLE + 1];
        struct host *h = host_start((const char *[]){ "--set", "time.stall-warn=200ms", NULL });
        replicas_spawn(h, N_IDLE, idle, NULL, r);
        for (int i = 0; i < N_IDLE; i++)
                replica_expect(r[i], "idle", 10);
        seconds_sleep(0.5); /* until the last stall watch is over */
        for (int i = 0; i <= N_IDLE; i++)
                before[i] = usage_of(i < N_IDLE ? r[i]->pid : host_pid(h));
        seconds_sleep(IDLE_SECONDS);
        for (int i = 0; i <= N_IDLE; i++)
                after[i] = usage_of(i < N_IDLE ? r[i]->pid : host_pid(h));
        for (int i = 0; i <= N_IDLE; i++)
                expect_idle(i < N_IDLE ? "a client" : "tuttid", &before[i], &after[i]);
        for (int i = 0; i < N_IDLE; i++)
                replica_tell(r[i], "end");
        for (int i = 0; i < N_IDLE; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

#define LATE_SECONDS 2

static void wait_for_a_late_one(struct replica *me) {
        struct floats f;
        struct timespec t[2];
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "late"));
        floats_init(me->t, &f, 10000);
        floats_meet(g, NULL, &f, 1, 3);
        if (me->rank == 2) {
                replica_hear(me, "go");
                floats_meet(g, NULL, &f, 1, 3);
                return;
        }
        replica_say(me, "waiting");
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[0]);
        floats_meet(g, NULL, &f, 1, 3);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[1]);
        double used = (double)(t[1].tv_sec - t[0].tv_sec) + (double)(t[1].tv_nsec - t[0].tv_nsec) / 1e9;
        printf("# P22: R%u used %.2f ms while it waited %d s\n", me->rank, used * 1e3, LATE_SECONDS);
        ck_assert_double_le(used / LATE_SECONDS, WAIT_LIMIT);
}

START_TEST(P22_H3_who_waits_sleeps) {
        struct replica *r[3];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, wait_for_a_late_one, NULL, r);
        replica_expect(r[0], "waiting", 10);
        replica_expect(r[1], "waiting", 10);
        host_expect_pending(h, 2);
        struct usage before = usage_of(host_pid(h));
        seconds_sleep(LATE_SECONDS);
        struct usage after = usage_of(host_pid(h));
        ck_assert_double_le((after.seconds - before.seconds) / LATE_SECONDS, IDLE_LIMIT);
        replica_tell(r[2], "go");
        for (int i = 0; i < 3; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("host-rules", 60, G1_a_path_of_108_bytes_is_refused_by_both_sides, G1_a_path_of_107_bytes_is_served,
        G2_P24_after_kill_9_it_serves_again_soon, G2_a_second_tuttid_on_the_same_path_gives_way,
        G2_what_is_no_socket_stays_untouched, G4_the_socket_is_for_its_group,
        G4_a_socket_of_root_advises_nobody_to_join_its_group, G4_a_group_that_is_not_there_is_said,
        G5_no_socket_under_tmp_is_taken_by_itself, G7_no_socket_is_abstract,
        J1_the_first_result_is_there_soon_after_connecting,
        J1_J2_a_hundred_groups_are_made_soon_and_are_small, P22_H3_idle_tuttid_and_idle_clients_sleep,
        P22_H3_who_waits_sleeps)
