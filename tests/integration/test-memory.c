/* Clients' memory: what is taken, what is refused, what is taken back (O1, P16, E1 E2 E5, F6 F7). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

static int make_memfd(size_t n_bytes, unsigned int flags) {
        int fd = memfd_create("test", MFD_CLOEXEC | flags);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

static int n_descriptors_of(pid_t pid) {
        char path[64];
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        DIR *dir = opendir(path);
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
                n += e->d_name[0] != '.';
        closedir(dir);
        return n;
}

/* Whether tuttid says that it cannot guard clients' memory: then there is nothing to test about that. */
static bool is_unguarded(struct host *h) {
        struct tutti *t;
        struct tutti_answer *a;
        bool is = false;
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                is |= a->rows[i].type == TUTTI_ROW_FALLBACK &&
                      (strstr(a->rows[i].fallback.what, "guard") || strstr(a->rows[i].fallback.why, "guard"));
        tutti_answer_free(a);
        tutti_close(t);
        return is;
}

/* --- O1: what can be taken --- */

/* Closes the descriptor. */
static void expect_bad_fd(struct tutti *t, int fd, const char *what) {
        struct tutti_buffer *b = NULL;
        ck_assert_int_ge(fd, 0);
        enum tutti_status status = tutti_buffer_from_fd(t, fd, 4096, TUTTI_INOUT, &b);
        ck_assert_msg(status == TUTTI_BAD_FD, "%s: %s %s", what, tutti_status_name(status), tutti_error());
        ck_assert_ptr_null(b);
        ck_assert_int_eq(tutti_error_info()->status, TUTTI_BAD_FD);
        expect_in(tutti_error(), "memfd");
        close(fd);
}

static int make_file(const char *directory) {
        char path[128];
        snprintf(path, sizeof(path), "%s/tutti-test-XXXXXX", directory);
        int fd = mkostemp(path, O_CLOEXEC);
        ck_assert_msg(fd >= 0, "%s: %m", path);
        unlink(path);
        ck_assert_int_eq(ftruncate(fd, 4096), 0);
        return fd;
}

static int open_again(int fd, int flags) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, flags | O_CLOEXEC);
        close(fd);
        return again;
}

static int sealed(unsigned int seals) {
        int fd = make_memfd(4096, MFD_ALLOW_SEALING);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
}

static void offer_all_kinds(struct replica *me) {
        int pipes[2], sockets[2];
        struct tutti *t = replica_open(me);
        struct tutti_buffer *b;
        ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        expect_bad_fd(t, make_file(unit_directory()), "a regular file");
        expect_bad_fd(t, make_file("/dev/shm"), "a file in /dev/shm");
        expect_bad_fd(t, open("/", O_RDONLY | O_CLOEXEC), "a directory");
        expect_bad_fd(t, open("/dev/zero", O_RDWR | O_CLOEXEC), "a device");
        expect_bad_fd(t, pipes[0], "a pipe");
        expect_bad_fd(t, sockets[0], "a socket");
        expect_bad_fd(t, eventfd(0, EFD_CLOEXEC), "an eventfd");
        expect_bad_fd(t, make_memfd(4096, 0), "a memfd that takes no seals");
        expect_bad_fd(
                t, open_again(make_memfd(4096, MFD_ALLOW_SEALING), O_RDONLY), "a memfd opened read-only");
        expect_bad_fd(t, open_again(make_memfd(4096, MFD_ALLOW_SEALING), O_PATH), "a memfd opened as a path");
        expect_bad_fd(t, sealed(F_SEAL_WRITE), "a memfd sealed against writing");
        expect_bad_fd(t, sealed(F_SEAL_FUTURE_WRITE), "a memfd sealed against future writing");
        close(pipes[1]);
        close(sockets[1]);
        /* The connection is as good as before. */
        int fd = sealed(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        expect_status(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &b), TUTTI_OK);
        ck_assert_uint_eq(tutti_buffer_bytes(b), 4096);
        close(fd);
        expect_status(tutti_barrier(join(me), NULL), TUTTI_OK);
}

START_TEST(O1_P16_what_cannot_be_sealed_is_refused) {
        struct host *h = host_start(NULL);
        int n_before = n_descriptors_of(host_pid(h));
        run_replicas(h, 1, offer_all_kinds, NULL);
        host_expect_counters_zero(h);
        double limit = seconds_now() + 2 * unit_scale();
        while (n_descriptors_of(host_pid(h)) > n_before) {
                ck_assert_msg(seconds_now() < limit, "tuttid still has %d descriptors, at first it had %d",
                        n_descriptors_of(host_pid(h)), n_before);
                seconds_sleep(0.01);
        }
        host_stop(h);
}
END_TEST

static void try_to_shrink(struct replica *me) {
        struct tutti_buffer *b, *other;
        struct tutti *t = replica_open(me);
        int fd = make_memfd(1 << 20, MFD_ALLOW_SEALING);
        expect_status(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &b), TUTTI_OK);
        ck_assert_int_eq(ftruncate(fd, 4096), -1);
        ck_assert_int_eq(errno, EPERM);
        ck_assert_int_ne(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK, 0);
        /* More than there is. */
        ck_assert_int_eq(tutti_buffer_from_fd(t, fd, (1 << 20) + 1, TUTTI_INOUT, &other), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_SIZE);
        tutti_buffer_free(b);
        close(fd);
}

START_TEST(O1_registered_memory_cannot_be_truncated) {
        struct host *h = host_start(NULL);
        run_replicas(h, 1, try_to_shrink, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- O1, P16: holes --- */

#define N_HOLES ((size_t)1 << 20) /* floats */

/* Floats in a memfd of the test's own. */
static int make_own_floats(struct tutti *t, struct floats *f, size_t n) {
        int fd = make_memfd(n * sizeof(float), MFD_ALLOW_SEALING);
        expect_status(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &f->buffer), TUTTI_OK);
        f->value = TUTTI_VALUE(.buffer = f->buffer, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
        f->data = tutti_buffer_data(f->buffer);
        f->n = n;
        floats_fill(f, 0);
        return fd;
}

static void punch(int fd, size_t at, size_t n_bytes) {
        ck_assert_int_eq(
                fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n_bytes), 0);
}

static void be_ejected(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        struct tutti_group *g = join(me);
        int fd = make_own_floats(me->t, &f, N_HOLES);
        floats_meet(g, "whole", &f, 1, 3);
        punch(fd, N_HOLES * sizeof(float) / 2, 8192);
        expect_status(tutti_all_reduce_start(g, "holed", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        ck_assert_msg(status == TUTTI_BAD_FD || status == TUTTI_DAEMON_LOST, "%s", tutti_work_error(w)->text);
        expect_in(tutti_work_error(w)->text, "BAD_FD");
        tutti_work_free(w);
        ck_assert_int_ne(tutti_barrier(g, "later"), TUTTI_OK);
        expect_in(tutti_error(), "BAD_FD"); /* why it was ejected */
        expect_status(tutti_dispatch(me->t), TUTTI_DAEMON_LOST);
        expect_in(tutti_error(), "BAD_FD");
        close(fd);
        replica_say(me, "ejected");
        replica_hear(me, "end");
}

static void lose_the_ejected(struct replica *me) {
        struct floats f;
        if (me->rank == 1) {
                be_ejected(me);
                return;
        }
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, N_HOLES);
        floats_meet(g, "whole", &f, 1, 3);
        expect_status(tutti_all_reduce(g, "holed", TUTTI_SUM, &f.value, &f.value), TUTTI_REPLICA_LOST);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->loss, TUTTI_EJECTED);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->outputs_undefined, 1);
        ck_assert_str_eq(e->key, "holed");
        expect_in(e->text, "R1");
        expect_in(e->text, "ejected");
        expect_in(e->text, "undefined");
        expect_status(tutti_barrier(g, NULL), TUTTI_REPLICA_LOST);
        tutti_group_free(g);
        replica_say(me, "lost");
        replica_hear(me, "end");
}

static void meet_anew(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, N_HOLES);
        floats_meet(g, NULL, &f, 1, (float)me->n);
}

START_TEST(O1_P16_a_hole_costs_its_owner_the_connection_and_nobody_else) {
        struct replica *r[3];
        struct host_counters c;
        struct host *h = host_start(NULL);
        pid_t pid = host_pid(h);
        if (is_unguarded(h)) {
                host_stop(h);
                unit_skip("this host denies userfaultfd");
        }
        replicas_spawn(h, 3, lose_the_ejected, NULL, r);
        replica_expect(r[0], "lost", 10);
        replica_expect(r[2], "lost", 10);
        replica_expect(r[1], "ejected", 10);
        expect_in(host_log(h), "is ejected: BAD_FD");
        run_replicas(h, 3, meet_anew, NULL);
        for (int i = 0; i < 3; i++) {
                replica_tell(r[i], "end");
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        }
        host_expect_counters_zero(h);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_ejected, 1);
        ck_assert_int_eq(host_pid(h), pid);
        host_stop(h);
}
END_TEST

#define N_PUNCHED ((size_t)4 << 20) /* floats: 16 MiB */
#define N_ROUNDS  10

/* Holes appear while tuttid reads and writes. */
static void punch_while_it_runs(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        enum tutti_status status = TUTTI_PENDING;
        struct tutti_group *g = join(me);
        int fd = make_own_floats(me->t, &f, N_PUNCHED);
        expect_status(tutti_barrier(g, "ready"), TUTTI_OK);
        expect_status(tutti_all_reduce_start(g, "x", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
        for (size_t at = 0; status == TUTTI_PENDING; at += 65536) {
                punch(fd, at % (N_PUNCHED * sizeof(float)), 65536);
                status = tutti_work_test(w);
        }
        ck_assert_msg(status == TUTTI_OK || status == TUTTI_BAD_FD || status == TUTTI_DAEMON_LOST, "%s",
                tutti_work_error(w)->text);
        tutti_work_free(w);
        close(fd);
}

static void reduce_with_a_puncher(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        if (me->rank == 1) {
                punch_while_it_runs(me);
                return;
        }
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, N_PUNCHED);
        floats_fill(&f, 1);
        expect_status(tutti_barrier(g, "ready"), TUTTI_OK);
        expect_status(tutti_all_reduce_start(g, "x", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
        if (tutti_work_wait(w, -1) != TUTTI_OK) {
                const struct tutti_error_info *e = tutti_work_error(w);
                ck_assert_msg(e->status == TUTTI_REPLICA_LOST, "%s", e->text);
                ck_assert_int_eq(e->loss, TUTTI_EJECTED);
                ck_assert_int_eq(e->outputs_undefined, 1);
        }
        tutti_work_free(w);
}

START_TEST(O1_P16_holes_in_the_middle_of_a_run_do_not_end_tuttid) {
        struct host *h = host_start(NULL);
        if (is_unguarded(h)) {
                host_stop(h);
                unit_skip("this host denies userfaultfd");
        }
        for (int i = 0; i < N_ROUNDS; i++)
                run_replicas(h, 2, reduce_with_a_puncher, NULL);
        run_replicas(h, 2, meet_anew, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- access and bounds --- */

static void expect_refused_value(struct tutti_group *g, const struct tutti_value *in,
        const struct tutti_value *out, enum tutti_field field) {
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, in, out), TUTTI_INVALID);
        ck_assert_msg(tutti_error_info()->field == field, "%s", tutti_error());
}

static void respect_access(struct replica *me) {
        struct tutti_buffer *in, *out;
        struct tutti_group *g = join(me);
        int fds[2] = { make_memfd(4096, MFD_ALLOW_SEALING), make_memfd(4096, MFD_ALLOW_SEALING) };
        for (size_t i = 0; i < 1024; i++)
                ck_assert_int_eq(pwrite(fds[0], &(float){ 2 }, 4, (off_t)i * 4), 4);
        ck_assert_int_eq(pwrite(fds[1], (char[4096]){ 1 }, 4096, 0), 4096);
        expect_status(tutti_buffer_from_fd(me->t, fds[0], 0, TUTTI_IN, &in), TUTTI_OK);
        expect_status(tutti_buffer_from_fd(me->t, fds[1], 0, TUTTI_OUT, &out), TUTTI_OK);
        struct tutti_value from =
                TUTTI_VALUE(.buffer = in, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 1024 });
        struct tutti_value to = from;
        to.buffer = out;
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &from, &to), TUTTI_OK);
        for (size_t i = 0; i < 1024; i++)
                ck_assert_float_eq(((const float *)tutti_buffer_data(out))[i], 4);
        expect_refused_value(g, &from, &from, TUTTI_FIELD_ACCESS);
        expect_refused_value(g, &to, &to, TUTTI_FIELD_ACCESS);
        from.shape[0] = to.shape[0] = 1025;
        expect_refused_value(g, &from, &to, TUTTI_FIELD_OFFSET);
        from.shape[0] = to.shape[0] = UINT64_MAX / 2;
        expect_refused_value(g, &from, &to, TUTTI_FIELD_OFFSET);
        from.shape[0] = to.shape[0] = 1;
        from.offset = 2;
        expect_refused_value(g, &from, &to, TUTTI_FIELD_OFFSET);
        from.offset = 4092;
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &from, &to), TUTTI_OK);
        close(fds[0]);
        close(fds[1]);
}

START_TEST(E5_P17_access_and_bounds_of_buffers_are_respected) {
        struct host *h = host_start(NULL);
        run_replicas(h, 2, respect_access, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- E1, E2: memory that goes away --- */

/* It is leased until the end; the handle and the process may go before. */
static void free_at_once(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, N_PUNCHED);
        floats_fill(&f, 1);
        if (me->rank == 1)
                replica_hear(me, "go");
        expect_status(tutti_all_reduce_start(g, "x", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
        if (me->rank == 0) {
                floats_deinit(&f);
                replica_say(me, "freed");
        }
        expect_work(w, TUTTI_OK);
        if (me->rank == 1)
                floats_expect(&f, 2);
        tutti_work_free(w);
}

START_TEST(E1_a_buffer_that_is_freed_while_it_is_used_goes_when_that_ends) {
        struct replica *r[2];
        struct host *h = host_start(NULL);
        for (int i = 0; i < N_ROUNDS; i++) {
                replicas_spawn(h, 2, free_at_once, NULL, r);
                replica_expect(r[0], "freed", 10);
                replica_tell(r[1], "go");
                ck_assert_int_eq(replica_end(r[0], 10), 0);
                ck_assert_int_eq(replica_end(r[1], 10), 0);
                host_expect_counters_zero(h);
        }
        host_stop(h);
}
END_TEST

#define GIBIBYTE ((size_t)1 << 30)

static void register_much(struct replica *me) {
        struct tutti_buffer *b;
        struct tutti *t = replica_open(me);
        int fd = make_memfd(GIBIBYTE, MFD_ALLOW_SEALING); /* all hole: nobody pays for it */
        expect_status(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &b), TUTTI_OK);
        replica_say(me, "registered");
        replica_hear(me, "never");
}

START_TEST(E2_E12_the_memory_of_the_killed_is_given_back) {
        struct replica *r;
        struct host_counters c;
        struct host *h = host_start(NULL);
        for (int i = 0; i < 3; i++) {
                replicas_spawn(h, 1, register_much, NULL, &r);
                replica_expect(r, "registered", 10);
                host_counters(h, &c);
                ck_assert_uint_eq(c.mapped_bytes, GIBIBYTE);
                ck_assert_uint_eq(c.n_buffers, 1);
                replica_kill9(r);
                double begin = seconds_now();
                host_expect_counters_zero(h);
                ck_assert_double_lt(seconds_now() - begin, 1 * unit_scale());
        }
        host_stop(h);
}
END_TEST

/* --- F6, P16: more than there is --- */

static void ask_for_too_much(struct replica *me) {
        struct tutti_buffer *b = NULL;
        struct floats f;
        struct tutti_group *g = join(me);
        expect_status(tutti_buffer_alloc(me->t, (size_t)1 << 50, &b), TUTTI_NO_MEMORY);
        ck_assert_ptr_null(b);
        expect_in(tutti_error(), "NO_MEMORY");
        expect_in(tutti_error(), "1125899906842624"); /* needed */
        expect_in(tutti_error(), "available");
        expect_status(tutti_buffer_alloc(me->t, SIZE_MAX, &b), TUTTI_INVALID); /* no address for it */
        expect_status(tutti_buffer_alloc(me->t, SIZE_MAX - 4095, &b), TUTTI_INVALID);
        floats_init(me->t, &f, 1000);
        floats_meet(g, NULL, &f, 1, 1);
}

START_TEST(F6_P16_more_memory_than_there_is_is_an_error_with_numbers) {
        struct host *h = host_start(NULL);
        run_replicas(h, 1, ask_for_too_much, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- F7: many tensors, few descriptors --- */

#define N_TENSORS       5000
#define MAX_DESCRIPTORS 8 /* of one client, on each side */

static void reduce_many_tensors(struct replica *me) {
        static struct tutti_value values[N_TENSORS];
        static struct tutti_entry entries[N_TENSORS];
        int n_before = unit_count_descriptors();
        struct tutti_group *g = join(me);
        for (uint32_t i = 0; i < N_TENSORS; i++) {
                struct tutti_buffer *b;
                size_t n = 1 + i * 37 % 3000;
                expect_status(tutti_buffer_alloc(me->t, n * sizeof(float), &b), TUTTI_OK);
                values[i] = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
                for (size_t k = 0; k < n; k++)
                        ((float *)tutti_buffer_data(b))[k] = (float)(i + k * (me->rank + 1));
        }
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, entries, N_TENSORS), TUTTI_OK);
        for (uint32_t i = 0; i < N_TENSORS; i++)
                for (size_t k = 0; k < values[i].shape[0]; k++)
                        ck_assert_float_eq(
                                ((float *)tutti_buffer_data(values[i].buffer))[k], (float)(2 * i + k * 3));
        ck_assert_int_le(unit_count_descriptors() - n_before, MAX_DESCRIPTORS);
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(F7_five_thousand_tensors_take_few_descriptors) {
        struct replica *r[2];
        struct host *h = host_start(NULL);
        int n_before = n_descriptors_of(host_pid(h));
        replicas_spawn(h, 2, reduce_many_tensors, NULL, r);
        replica_expect(r[0], "done", 20);
        replica_expect(r[1], "done", 20);
        int n = n_descriptors_of(host_pid(h)) - n_before;
        printf("# F7: %d descriptors of tuttid for two clients\n", n);
        ck_assert_int_le(n, 2 * MAX_DESCRIPTORS);
        for (int i = 0; i < 2; i++) {
                replica_tell(r[i], "end");
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        }
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("memory", 60, O1_P16_what_cannot_be_sealed_is_refused, O1_registered_memory_cannot_be_truncated,
        O1_P16_a_hole_costs_its_owner_the_connection_and_nobody_else,
        O1_P16_holes_in_the_middle_of_a_run_do_not_end_tuttid,
        E5_P17_access_and_bounds_of_buffers_are_respected,
        E1_a_buffer_that_is_freed_while_it_is_used_goes_when_that_ends,
        E2_E12_the_memory_of_the_killed_is_given_back,
        F6_P16_more_memory_than_there_is_is_an_error_with_numbers,
        F7_five_thousand_tensors_take_few_descriptors)
