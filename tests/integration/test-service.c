/* tuttid under a service manager: readiness, signs of life, sockets that outlive it, reloading (G13, M3, P22,
 * P24). */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "manager.h"
#include "meeting.h"
#include "program.h"
#include "unit.h"

#define READY_LIMIT 2.0 /* s from start to READY=1: ten times what is promised */

static void expect_served(const char *path) {
        struct tutti *t;
        expect_status(tutti_open(path, &t), TUTTI_OK);
        tutti_close(t);
}

START_TEST(G13_P24_ready_is_told_when_it_serves_also_after_kill9) {
        struct manager *m = manager_new();
        for (int i = 0; i < 3; i++) {
                manager_start(m, &(struct manager_start){ 0 });
                const char *text = manager_expect(m, "READY=1", READY_LIMIT);
                expect_in(text, "STATUS=Serving");
                expect_in(text, manager_socket(m));
                expect_served(manager_socket(m));
                ck_assert_int_eq(manager_end(m, SIGKILL), 128 + SIGKILL);
        }
        manager_free(m);
}
END_TEST

/* Who cannot start is never ready, and hides nothing. */
START_TEST(G13_what_cannot_start_is_never_ready_and_says_why) {
        char path[160];
        struct manager *m = manager_new();
        snprintf(path, sizeof(path), "%s/none/tuttid.sock", unit_directory());
        manager_start(m, &(struct manager_start){ .args = (const char *[]){ "--socket", path, NULL } });
        ck_assert_int_eq(manager_wait(m), 2);
        ck_assert_uint_eq(manager_count(m, "READY=1", 0.2), 0);
        expect_in(manager_log(m), "error: cannot open the lock ");
        expect_in(manager_log(m), "/none/tuttid.lock: No such file or directory");
        manager_free(m);
}
END_TEST

START_TEST(stopping_is_told_with_why) {
        struct manager *m = manager_new();
        manager_start(m, &(struct manager_start){ 0 });
        manager_expect(m, "READY=1", READY_LIMIT);
        kill(manager_pid(m), SIGTERM);
        expect_in(manager_expect(m, "STOPPING=1", 2), "STATUS=Ending: SIGTERM");
        ck_assert_int_eq(manager_wait(m), 0);
        manager_free(m);
}
END_TEST

START_TEST(signs_of_life_come_while_the_loop_turns_and_stop_with_it) {
        struct manager *m = manager_new();
        manager_start(m, &(struct manager_start){ .watchdog_ms = 400 });
        manager_expect(m, "READY=1", READY_LIMIT);
        for (int i = 0; i < 5; i++) /* not later than the manager wants them */
                manager_expect(m, "WATCHDOG=1", 0.4 * 10);
        kill(manager_pid(m), SIGSTOP);
        manager_count(m, "WATCHDOG=1", 0.2); /* what was under way */
        ck_assert_uint_eq(manager_count(m, "WATCHDOG=1", 0.8), 0);
        kill(manager_pid(m), SIGCONT);
        manager_expect(m, "WATCHDOG=1", 4);
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
END_TEST

START_TEST(P22_nobody_who_wants_signs_of_life_gets_none) {
        struct manager *m = manager_new();
        manager_start(m, &(struct manager_start){ 0 });
        manager_expect(m, "READY=1", READY_LIMIT);
        ck_assert_uint_eq(manager_count(m, "", 1), 0);
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
END_TEST

/* --- M3 --- */

#define N_CONNECTORS 4
#define N_CONNECTS   250 /* each */

struct connects {
        _Atomic uint32_t n_done, n_refused, n_failed;
        _Atomic bool is_swapped;
};

static _Noreturn void connect_on(struct connects *c, const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        for (int i = 0; i < N_CONNECTS || !atomic_load(&c->is_swapped); i++) {
                int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
                if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                        atomic_fetch_add(errno == ECONNREFUSED ? &c->n_refused : &c->n_failed, 1);
                atomic_fetch_add(&c->n_done, 1);
                close(fd);
                usleep(1000);
        }
        _exit(0);
}

static void wait_for_connects(struct connects *c, uint32_t n) {
        double limit = seconds_now() + 20 * unit_scale();
        while (atomic_load(&c->n_done) < n) {
                ck_assert_double_lt(seconds_now(), limit);
                seconds_sleep(0.001);
        }
}

/* A thousand connects or more, and `swap` when a fifth of a thousand is done. */
static void connect_during(struct manager *m, void (*swap)(struct manager *m)) {
        struct connects *c =
                mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(c, MAP_FAILED);
        pid_t pids[N_CONNECTORS];
        for (int i = 0; i < N_CONNECTORS; i++)
                if ((pids[i] = fork()) == 0)
                        connect_on(c, manager_socket(m));
        wait_for_connects(c, N_CONNECTORS * N_CONNECTS / 5);
        uint32_t n_before = atomic_load(&c->n_done);
        swap(m);
        ck_assert_uint_gt(atomic_load(&c->n_done), n_before); /* it was during it */
        atomic_store(&c->is_swapped, true);
        for (int i = 0; i < N_CONNECTORS; i++)
                ck_assert_int_eq(program_wait(pids[i], 30), 0);
        ck_assert_uint_ge(atomic_load(&c->n_done), N_CONNECTORS * N_CONNECTS);
        ck_assert_uint_eq(atomic_load(&c->n_refused), 0);
        ck_assert_uint_eq(atomic_load(&c->n_failed), 0);
        munmap(c, sizeof(*c));
}

static int passed_on;

static void restart(struct manager *m) {
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        seconds_sleep(0.05);
        manager_start(m, &(struct manager_start){ .passed_on = passed_on });
        manager_expect(m, "READY=1", READY_LIMIT);
}

static void crash(struct manager *m) {
        ck_assert_int_eq(manager_end(m, SIGKILL), 128 + SIGKILL);
        manager_start(m, &(struct manager_start){ .passed_on = passed_on });
        manager_expect(m, "READY=1", READY_LIMIT);
}

START_TEST(M3_a_thousand_connects_during_restarts_of_an_activated_socket_none_refused) {
        struct manager *m = manager_new();
        passed_on = manager_listen(m);
        manager_start(m, &(struct manager_start){ .passed_on = passed_on });
        manager_expect(m, "READY=1", READY_LIMIT);
        ck_assert_int_eq(manager_kept(m), -1); /* the socket unit keeps it */
        connect_during(m, restart);
        connect_during(m, crash);
        expect_served(manager_socket(m));
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        close(passed_on);
        manager_free(m);
}
END_TEST

START_TEST(M3_its_own_socket_goes_to_the_fd_store_and_comes_back) {
        struct stat before, after;
        struct manager *m = manager_new();
        manager_start(m, &(struct manager_start){ 0 });
        expect_in(manager_expect(m, "FDSTORE=1", READY_LIMIT), "FDNAME=tuttid");
        manager_expect(m, "READY=1", READY_LIMIT);
        passed_on = manager_kept(m);
        ck_assert_int_ge(passed_on, 0);
        ck_assert_int_eq(stat(manager_socket(m), &before), 0);
        connect_during(m, restart);
        ck_assert_int_eq(manager_kept(m), passed_on);
        ck_assert_int_eq(stat(manager_socket(m), &after), 0);
        ck_assert_uint_eq(before.st_ino, after.st_ino);
        expect_served(manager_socket(m));
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
END_TEST

START_TEST(G13_M3_who_connects_while_nobody_serves_is_served_by_the_next) {
        struct manager *m = manager_new();
        passed_on = manager_listen(m);
        pid_t pid = fork();
        if (pid == 0) {
                struct tutti *t;
                _exit(tutti_open(manager_socket(m), &t) != TUTTI_OK);
        }
        seconds_sleep(0.1);
        manager_start(m, &(struct manager_start){ .passed_on = passed_on });
        ck_assert_int_eq(program_wait(pid, 10), 0);
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        close(passed_on);
        manager_free(m);
}
END_TEST

START_TEST(M3_a_socket_for_another_path_is_refused_with_both) {
        char other[128];
        struct manager *m = manager_new();
        passed_on = manager_listen(m);
        snprintf(other, sizeof(other), "%s/other.sock", unit_directory());
        manager_start(m, &(struct manager_start){ .passed_on = passed_on,
                                 .args = (const char *[]){ "--socket", other, NULL } });
        ck_assert_int_eq(manager_wait(m), 2);
        expect_in(manager_log(m), other);
        expect_in(manager_log(m), manager_socket(m));
        close(passed_on);
        manager_free(m);
}
END_TEST

/* --- starting --- */

/* The socket is there, and nobody takes what comes: the door of a service that is still starting. */
START_TEST(G13_who_connects_during_the_start_waits_for_its_deadline_and_is_told) {
        struct manager *m = manager_new();
        passed_on = manager_listen(m);
        board_init();
        pid_t pid = fork();
        if (pid == 0) {
                struct tutti *t;
                enum tutti_status status = tutti_open(manager_socket(m), &t);
                snprintf(board->texts[0], sizeof(board->texts[0]), "%s", tutti_error());
                _exit(status != TUTTI_NO_DAEMON);
        }
        double begun = seconds_now();
        ck_assert_int_eq(program_wait(pid, 100), 0);
        ck_assert_double_ge(seconds_now() - begun, 9); /* its deadline is 10 s */
        expect_in(board->texts[0], manager_socket(m));
        expect_in(board->texts[0], "has not answered for 10 s");
        close(passed_on);
        manager_free(m);
}
END_TEST

START_TEST(G13_who_cannot_start_tells_no_readiness_and_says_why) {
        struct manager *m = manager_new();
        FILE *file = fopen(manager_socket(m), "w"); /* something else is at its path */
        ck_assert_ptr_nonnull(file);
        fclose(file);
        manager_start(m, &(struct manager_start){ 0 });
        ck_assert_int_eq(manager_wait(m), 2);
        ck_assert_uint_eq(manager_count(m, "READY=1", 0.2), 0);
        expect_in(manager_log(m), manager_socket(m));
        ck_assert_int_eq(unlink(manager_socket(m)), 0);
        manager_free(m);
}
END_TEST

/* --- SIGHUP --- */

static void write_config(const char *text) {
        char path[128];
        snprintf(path, sizeof(path), "%s/tuttid.conf", unit_directory());
        FILE *f = fopen(path, "w");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_ge(fputs(text, f), 0);
        ck_assert_int_eq(fclose(f), 0);
}

static struct manager *start_with_config(const char *text) {
        char path[128];
        struct manager *m = manager_new();
        snprintf(path, sizeof(path), "%s/tuttid.conf", unit_directory());
        write_config(text);
        manager_start(m, &(struct manager_start){ .args = (const char *[]){ "--config", path, "--set",
                                                          "time.busy-max=3s", NULL } });
        manager_expect(m, "READY=1", READY_LIMIT);
        return m;
}

static void reload(struct manager *m, const char *text) {
        write_config(text);
        ck_assert_int_eq(kill(manager_pid(m), SIGHUP), 0);
        expect_in(manager_expect(m, "RELOADING=1", 2), "MONOTONIC_USEC=");
        manager_expect(m, "READY=1", 2);
}

/* What was closed a moment ago may still count. */
static struct tutti *open_soon(struct manager *m) {
        struct tutti *t;
        for (int i = 0; i < 500; i++) {
                enum tutti_status status = tutti_open(manager_socket(m), &t);
                if (status == TUTTI_OK)
                        return t;
                expect_status(status, TUTTI_QUOTA);
                usleep(10000);
        }
        ck_abort_msg("the connections that were closed still count after 5 s: %s", tutti_error());
        return NULL;
}

/* The limit that tuttid names to who is over it with `n` connections. */
static void expect_connections(struct manager *m, uint32_t n) {
        struct tutti *t[8], *extra;
        ck_assert_uint_le(n, 8);
        for (uint32_t i = 0; i < n; i++)
                t[i] = open_soon(m);
        expect_status(tutti_open(manager_socket(m), &extra), TUTTI_QUOTA);
        for (uint32_t i = 0; i < n; i++)
                tutti_close(t[i]);
}

START_TEST(a_reload_takes_what_may_change_and_says_what_needs_a_restart) {
        struct manager *m = start_with_config("[quota]\nconnections = 3\n");
        expect_connections(m, 3);
        reload(m, "[quota]\nconnections = 5\n[cpu]\nworkers = 7\n[time]\nstall-warn = 9 s\nbusy-max = 4 s\n");
        expect_connections(m, 5);
        expect_in(manager_log(m), "reloaded: time.stall-warn, quota.connections\n"); /* options win as ever */
        expect_in(manager_log(m), "not reloaded: cpu.workers; restart tuttid");
        reload(m, "[quota]\nconnections = 2\n[daemon]\nlog-level = error\n");
        expect_connections(m, 2);
        ck_assert_ptr_null(strstr(manager_log(m), "daemon.log-level")); /* a notice, which is off by now */
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
END_TEST

START_TEST(a_reload_of_a_bad_file_changes_nothing_and_says_where_it_is_bad) {
        struct manager *m = start_with_config("[quota]\nconnections = 3\n");
        reload(m, "[quota]\nconnections = 5\n\ngroups = many\n");
        expect_in(manager_log(m), "not reloaded, everything stays as it was");
        expect_in(manager_log(m), "tuttid.conf:4: quota.groups = many");
        expect_connections(m, 3);
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
END_TEST

/* The environment stands between file and options at every reload. */
START_TEST(a_reload_keeps_the_order_of_file_environment_and_options) {
        setenv("TUTTID_QUOTA_CONNECTIONS", "4", 1);
        setenv("TUTTID_TIME_BUSY_MAX", "2s", 1);
        struct manager *m = start_with_config("[quota]\nconnections = 2\n");
        expect_connections(m, 4);
        reload(m, "[quota]\nconnections = 6\n[time]\nstall-warn = 9 s\nbusy-max = 4 s\n");
        expect_in(manager_log(m), "reloaded: time.stall-warn\n");
        expect_connections(m, 4);
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
END_TEST

/* Also by a tuttid that is confined: it still reads who is in the host's files. */
START_TEST(O6_a_reload_looks_users_up) {
        struct manager *m = start_with_config("[daemon]\nadmins = 7\nobservers = 7\n");
        reload(m, "[daemon]\nadmins = root 4711\nobservers = 7\n");
        expect_in(manager_log(m), "reloaded: daemon.admins\n");
        reload(m, "[daemon]\nadmins = root 4711\nobservers = 4712, root\n");
        expect_in(manager_log(m), "reloaded: daemon.observers\n");
        reload(m, "[daemon]\n\nadmins = root, no-such-user\n");
        expect_in(manager_log(m), "not reloaded, everything stays as it was: ");
        expect_in(manager_log(m),
                "tuttid.conf:3: daemon.admins = root, no-such-user: this host has no user \"no-such-user\"");
        reload(m, "[daemon]\nobservers = no-such-user\n");
        expect_in(manager_log(m),
                "tuttid.conf:2: daemon.observers = no-such-user: this host has no user \"no-such-user\"");
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
END_TEST

UNIT_MAIN("service", 60, G13_P24_ready_is_told_when_it_serves_also_after_kill9,
        G13_what_cannot_start_is_never_ready_and_says_why, stopping_is_told_with_why,
        signs_of_life_come_while_the_loop_turns_and_stop_with_it,
        P22_nobody_who_wants_signs_of_life_gets_none,
        M3_a_thousand_connects_during_restarts_of_an_activated_socket_none_refused,
        M3_its_own_socket_goes_to_the_fd_store_and_comes_back,
        G13_M3_who_connects_while_nobody_serves_is_served_by_the_next,
        M3_a_socket_for_another_path_is_refused_with_both,
        G13_who_connects_during_the_start_waits_for_its_deadline_and_is_told,
        G13_who_cannot_start_tells_no_readiness_and_says_why,
        a_reload_takes_what_may_change_and_says_what_needs_a_restart,
        a_reload_of_a_bad_file_changes_nothing_and_says_where_it_is_bad,
        a_reload_keeps_the_order_of_file_environment_and_options, O6_a_reload_looks_users_up)
