/* What the people who run the host read: bounded whatever clients do (A10), who and what it is about in every
 * line, and in fields where the journal reads it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/admin.h>
#include "container.h"
#include "manager.h"
#include "meeting.h"
#include "raw.h"
#include "unit.h"

#define LINES_A_MINUTE 20

static const char *const all_levels[] = { "--log-level", "info", NULL };

static int count_in(const char *text, const char *part) {
        int n = 0;
        for (; (text = strstr(text, part)); text++)
                n++;
        return n;
}

/* --- one who does not come --- */

static _Noreturn void be_rank_1(const char *socket) {
        struct tutti *t;
        struct tutti_group *g;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (tutti_open(socket, &t) == TUTTI_OK &&
                tutti_join(t, &TUTTI_JOIN(.job = "test", .group = "train", .rank = 1, .world_size = 2), &g) ==
                        TUTTI_OK)
                for (;;)
                        pause();
        _exit(1);
}

/* Rank 1, which never submits, is waited for in vain, and killed. Its pid. */
static pid_t lack_rank_1(const char *socket) {
        struct tutti *t;
        struct tutti_group *g;
        struct floats f;
        struct tutti_work *w;
        struct tutti_answer *answer;
        pid_t pid = fork();
        if (pid == 0)
                be_rank_1(socket);
        expect_status(tutti_open(socket, &t), TUTTI_OK);
        expect_status(
                tutti_join(t, &TUTTI_JOIN(.job = "test", .group = "train", .rank = 0, .world_size = 2), &g),
                TUTTI_OK);
        floats_init(t, &f, 100);
        expect_work(floats_start(g, "grad/7", &f, 0.05), TUTTI_TIMEOUT);
        w = floats_start(g, "grad/8", &f, 20);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &answer), TUTTI_OK);
        tutti_answer_free(answer); /* which comes after the submission */
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        expect_work(w, TUTTI_REPLICA_LOST);
        floats_deinit(&f);
        tutti_close(t);
        return pid;
}

/* --- floods --- */

#define N_FLOOD 300

static void flood_with_garbage(struct host *h, int n) {
        for (int i = 0; i < n; i++) {
                struct raw *r = raw_connect(host_socket(h));
                raw_send_bytes(r, "\xff\xff", 2, NULL, 0);
                struct reply reply;
                while (raw_take(r, &reply))
                        ;
                raw_close(r);
        }
}

static void flood_with_mismatches(struct host *h, struct raw *const *r, const struct raw_member *m, int n) {
        char key[32];
        for (int i = 0; i < n; i++) {
                snprintf(key, sizeof(key), "differ/%d", i);
                uint64_t a = raw_submit(r[0], &m[0], key, 1, 16), b = raw_submit(r[1], &m[1], key, 1, 17);
                raw_expect(r[0], a, STATUS_MISMATCH);
                raw_expect(r[1], b, STATUS_MISMATCH);
        }
}

static void join_two(struct host *h, struct raw **r, struct raw_member *m) {
        uint64_t joins[2];
        for (uint32_t rank = 0; rank < 2; rank++) {
                const struct request join = raw_join_request("pair", rank, 2);
                r[rank] = raw_open(host_socket(h));
                joins[rank] = raw_send(r[rank], &join);
        }
        for (uint32_t rank = 0; rank < 2; rank++) {
                m[rank] = raw_joined(r[rank], joins[rank]);
                raw_buffer(r[rank], 1, raw_memfd(4096), 4096);
        }
}

static void flood_with_groups(struct host *h, int n) {
        char name[32];
        struct raw *r = raw_open(host_socket(h));
        for (int i = 0; i < n; i++) {
                snprintf(name, sizeof(name), "group%d", i);
                raw_join(r, name, 0, 1);
        }
        raw_close(r); /* and all of them are lost */
        host_expect_sessions(h, 0);
}

/* Not more than a minute's lines of a condition, and then one that says how many there would have been. */
static void expect_bounded(struct host *h, const char *part, const char *more) {
        const char *log = host_log(h);
        int n_more = count_in(log, more);
        ck_assert_msg(n_more == 1, "\"%s\" stands %d times in\n%s", more, n_more, log);
        ck_assert_int_eq(count_in(log, part), LINES_A_MINUTE + 1); /* the last is an example */
}

START_TEST(A10_floods_of_several_conditions_are_bounded_each) {
        struct raw *r[2];
        struct raw_member m[2];
        struct host *h = host_start(all_levels);
        flood_with_garbage(h, N_FLOOD);
        join_two(h, r, m);
        flood_with_mismatches(h, r, m, N_FLOOD);
        raw_close(r[0]);
        raw_close(r[1]);
        lack_rank_1(host_socket(h)); /* another way to end: another condition */
        expect_in(host_log(h), "notice: TIMEOUT: ");
        expect_in(host_log(h), "notice: REPLICA_LOST: ");
        host_expect_sessions(h, 0);
        flood_with_groups(h, N_FLOOD);
        ck_assert_int_eq(count_in(host_log(h), "more of these"), 0); /* the minute is not over */
        host_end(h);
        expect_bounded(h, " is ejected: ", "280 more of these were not written: pid ");
        expect_bounded(h, ": MISMATCH", "280 more of these were not written: MISMATCH");
        expect_bounded(h, " are together (epoch ", "282 more of these were not written: test/group");
        expect_bounded(h, " is lost: ", "283 more of these were not written: test/group");
        ck_assert_int_le(count_in(host_log(h), "\n"), 5 * (LINES_A_MINUTE + 1) + 8);
        host_stop(h);
}
END_TEST

/* Nothing happens any more meanwhile: it is said all the same, when the minute is over. */
START_TEST(A10_what_was_not_written_is_said_within_a_minute) {
        struct host *h = host_start(NULL);
        double begin = seconds_now();
        flood_with_garbage(h, 50);
        double until = begin + 70 * unit_scale();
        while (!strstr(host_log(h), "30 more of these were not written: pid ") && seconds_now() < until)
                seconds_sleep(0.2);
        expect_in(host_log(h), "30 more of these were not written: pid ");
        ck_assert_double_ge(seconds_now() - begin, 60);
        flood_with_garbage(h, 50); /* and that line was the first of the next minute */
        ck_assert_int_eq(count_in(host_log(h), " is ejected: "), 2 * LINES_A_MINUTE + 1 - 1);
        host_stop(h);
}
END_TEST

/* --- whom a line is about --- */

/* The line in which `part` stands; the caller frees. */
static char *line_with(const char *log, const char *part) {
        const char *at = strstr(log, part);
        ck_assert_msg(at != NULL, "no \"%s\" in\n%s", part, log);
        while (at > log && at[-1] != '\n')
                at--;
        return strndup(at, strcspn(at, "\n"));
}

static void expect_line(const char *log, const char *part, const char *const *all) {
        char *line = line_with(log, part);
        for (; *all; all++)
                expect_in(line, *all);
        free(line);
}

START_TEST(A1_C1_lines_name_group_key_rank_and_pid) {
        char who[32];
        struct host *h = host_start(NULL);
        snprintf(who, sizeof(who), "pid %d", lack_rank_1(host_socket(h)));
        host_expect_sessions(h, 0);
        expect_line(host_log(h), "TIMEOUT",
                (const char *[]){ "notice: ", "test/train", "\"grad/7\"", "R1", who, NULL });
        expect_line(host_log(h), " is lost: died", (const char *[]){ "test/train: R1 (", who, "uid ", NULL });
        host_stop(h);
}
END_TEST

/* --- stalls --- */

#define RUN_FLOATS ((uint64_t)16 << 20) /* takes one worker several times a stall's 10 ms */

static const char *const stall_soon[] = { "--set", "time.stall-warn=10ms", "--set", "cpu.workers=1", NULL };

/* What runs is older than what waits, and lacks nobody. */
START_TEST(A10_a_stall_names_what_waits_and_not_what_runs) {
        struct raw *r[2];
        struct raw_member m[2];
        uint64_t runs[2];
        struct host *h = host_start(stall_soon);
        join_two(h, r, m);
        for (uint32_t rank = 0; rank < 2; rank++)
                raw_buffer(r[rank], 2, raw_memfd(RUN_FLOATS * 4), RUN_FLOATS * 4);
        for (uint32_t rank = 0; rank < 2; rank++)
                runs[rank] = raw_submit(r[rank], &m[rank], "runs", 2, RUN_FLOATS);
        uint64_t waits = raw_barrier(r[0], &m[0], "waits");
        for (uint32_t rank = 0; rank < 2; rank++)
                raw_expect(r[rank], runs[rank], STATUS_OK);
        double until = seconds_now() + 5 * unit_scale();
        while (!strstr(host_log(h), "STALLED: \"waits\" has waited "))
                ck_assert_double_lt(seconds_now(), until);
        expect_in(host_log(h), "here R0; missing R1 (R1 pid ");
        ck_assert_int_eq(count_in(host_log(h), "missing nobody"), 0);
        raw_expect(r[1], raw_barrier(r[1], &m[1], "waits"), STATUS_OK);
        raw_expect(r[0], waits, STATUS_OK);
        for (uint32_t rank = 0; rank < 2; rank++)
                raw_close(r[rank]);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- the journal --- */

/* A journal of this test's own, where tuttid looks for that of the host. */
static int be_the_journal(void) {
        static const struct sockaddr_un address = { .sun_family = AF_UNIX,
                .sun_path = "/run/systemd/journal/socket" };
        container_need();
        container_own_shm(1 << 20);
        ck_assert_msg(mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k") == 0, "/run: %m");
        ck_assert(mkdir("/run/systemd", 0755) == 0 && mkdir("/run/systemd/journal", 0755) == 0);
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ck_assert_msg(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0, "%m");
        return fd;
}

/* The next record in which `part` stands; others are passed over. Good until the next call. */
static const char *record_with(int journal, const char *part) {
        static char record[8192];
        struct pollfd p = { .fd = journal, .events = POLLIN };
        while (poll(&p, 1, (int)(5000 * unit_scale())) > 0) {
                ssize_t n = recv(journal, record + 1, sizeof(record) - 2, 0);
                ck_assert_int_gt(n, 0);
                record[0] = '\n'; /* so that "\nFIELD=value\n" finds each */
                record[n + 1] = '\0';
                if (strstr(record, part))
                        return record;
        }
        ck_abort_msg("the journal got nothing with \"%s\"", part);
}

/* Nothing on stderr, but what the checker of leaks says of itself where a thread ends beside it. */
static void expect_silence(struct manager *m) {
        const char *log = manager_log(m);
        for (const char *line = log; *line; line = strchr(line, '\n') + 1)
                ck_assert_msg(strncmp(line, "==", 2) == 0 &&
                                      strstr(line, "==Unable to get registers from thread") &&
                                      strchr(line, '\n'),
                        "stderr: %s", log);
}

START_TEST(the_journal_gets_fields) {
        char pid[64];
        int journal = be_the_journal();
        struct manager *m = manager_new();
        manager_start(m, &(struct manager_start){ .is_journal = true, .args = all_levels });
        const char *record = record_with(journal, " serves ");
        expect_in(record, "\nMESSAGE=tuttid ");
        expect_in(record, "\nPRIORITY=6\nSYSLOG_IDENTIFIER=tuttid\n");
        ck_assert_ptr_null(strstr(record, "TUTTI_"));
        manager_expect(m, "READY=1", 2);
        snprintf(pid, sizeof(pid), "\nTUTTI_RANK=1\nTUTTI_PID=%d\n", lack_rank_1(manager_socket(m)));
        record = record_with(journal, "MESSAGE=TIMEOUT");
        expect_in(record, "\nPRIORITY=5\n");
        expect_in(record, "\nTUTTI_GROUP=test/train\nTUTTI_KEY=\"grad/7\"\n");
        expect_in(record, pid);
        record = record_with(journal, " is lost: died");
        expect_in(record, "\nTUTTI_GROUP=test/train\n");
        expect_in(record, pid);
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        record_with(journal, "MESSAGE=ending: SIGTERM\n");
        expect_silence(m); /* nothing twice */
        manager_free(m);
        close(journal);
}
END_TEST

/* $JOURNAL_STREAM is right, and there is no socket: the lines go where the journal reads them. */
START_TEST(without_a_socket_the_journal_reads_stderr) {
        int journal = be_the_journal();
        close(journal);
        struct manager *m = manager_new();
        manager_start(m, &(struct manager_start){ .is_journal = true, .args = all_levels });
        manager_expect(m, "READY=1", 2);
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        expect_in(manager_log(m), "<6>tuttid ");
        expect_in(manager_log(m), "<6>ending: SIGTERM\n");
        manager_free(m);
}
END_TEST

/* A journal that does not read: nobody waits for it. */
START_TEST(a_journal_that_stands_still_delays_nobody) {
        int journal = be_the_journal();
        struct manager *m = manager_new();
        manager_start(m, &(struct manager_start){ .is_journal = true, .args = all_levels });
        manager_expect(m, "READY=1", 2);
        for (int i = 0; i < 30; i++) { /* a socket's queue is some ten datagrams long */
                char name[32];
                snprintf(name, sizeof(name), "group%d", i);
                struct raw *r = raw_open(manager_socket(m));
                raw_join(r, name, 0, 1);
                raw_close(r);
        }
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        expect_silence(m);
        manager_free(m);
        close(journal);
}
END_TEST

UNIT_MAIN("logs", 120, A10_floods_of_several_conditions_are_bounded_each,
        A10_what_was_not_written_is_said_within_a_minute, A1_C1_lines_name_group_key_rank_and_pid,
        A10_a_stall_names_what_waits_and_not_what_runs, the_journal_gets_fields,
        without_a_socket_the_journal_reads_stderr, a_journal_that_stands_still_delays_nobody)
