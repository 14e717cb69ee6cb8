/* Sparse values of a client that changes them, or takes their memory away, while tuttid works with them (P16,
 * P17): nobody's output holds an index that names no row, and tuttid goes on. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "slices.h"

#define N_ROWS     3000
#define DENSE_ROWS 50
#define N_ROUNDS   60

static _Atomic bool is_over;

/* Indices that name rows and such that name none come and go. */
static void *change_indices(void *data) {
        const struct slices *s = data;
        for (uint64_t i = 0; !is_over; i = (i + 7) % N_ROWS) {
                _Atomic int64_t *at = (_Atomic int64_t *)s->indices.data + i;
                *at = (i & 1) ? -1 : INT64_MAX;
                *at = (int64_t)(i * 13 % DENSE_ROWS);
        }
        return NULL;
}

static void expect_rows_of_the_dense_value(const struct slices *out, uint64_t n, int coalesce) {
        for (uint64_t i = 0; i < n; i++) {
                int64_t index = slices_index(out, i);
                ck_assert(index >= 0 && index < DENSE_ROWS);
                ck_assert(!coalesce || i == 0 || slices_index(out, i - 1) < index);
        }
}

/* Refused or done, and nothing between. */
static void meet_once(
        struct tutti_group *g, const struct slices *in, const struct slices *out, int coalesce) {
        const struct tutti_options options = TUTTI_OPTIONS(.coalesce = coalesce);
        struct tutti_work *w;
        uint64_t n = 0;
        expect_status(
                tutti_all_reduce_start(g, NULL, TUTTI_SUM, &in->value, &out->value, &options, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        if (status == TUTTI_OK) {
                expect_status(tutti_work_extent(w, 0, &n, NULL), TUTTI_OK);
                ck_assert_uint_le(n, coalesce ? DENSE_ROWS : 2 * N_ROWS);
                expect_rows_of_the_dense_value(out, n, coalesce);
        } else {
                expect_work(w, TUTTI_INVALID);
                ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_INDICES);
                ck_assert_int_eq(tutti_work_error(w)->rank, 1);
        }
        tutti_work_free(w);
}

static void meet_while_they_change(struct replica *me) {
        const struct slices_shape shape = { TUTTI_F32, TUTTI_I64, N_ROWS, 2, DENSE_ROWS },
                                  room = { TUTTI_F32, TUTTI_I64, 2 * N_ROWS, 2, DENSE_ROWS };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        pthread_t thread;
        slices_init(me->t, &in, &shape);
        slices_init(me->t, &out, &room);
        for (uint64_t i = 0; i < N_ROWS; i++)
                slices_set_index(&in, i, (int64_t)(i % DENSE_ROWS));
        if (me->rank == 1)
                ck_assert_int_eq(pthread_create(&thread, NULL, change_indices, &in), 0);
        for (int i = 0; i < N_ROUNDS; i++)
                meet_once(g, &in, &out, i & 1);
        is_over = true;
        if (me->rank == 1)
                ck_assert_int_eq(pthread_join(thread, NULL), 0);
        expect_status(tutti_barrier(g, "end"), TUTTI_OK);
}

START_TEST(P17_indices_that_change_are_those_that_were_looked_at) {
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "cpu.chunk=4096", NULL });
        run_replicas(h, 2, meet_while_they_change, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- holes --- */

/* Indices in a memfd of the test's own, of which the middle is a hole. */
static int punch_indices(struct tutti *t, struct slices *s) {
        const size_t n_bytes = N_ROWS * sizeof(int64_t);
        int fd = memfd_create("indices", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        expect_status(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &s->index_value.buffer), TUTTI_OK);
        memset(tutti_buffer_data(s->index_value.buffer), 0, n_bytes);
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096), 0);
        return fd;
}

static void bring_a_hole(struct replica *me) {
        const struct slices_shape shape = { TUTTI_F32, TUTTI_I64, N_ROWS, 1, DENSE_ROWS },
                                  room = { TUTTI_F32, TUTTI_I64, 2 * N_ROWS, 1, DENSE_ROWS };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        slices_init(me->t, &in, &shape);
        slices_init(me->t, &out, &room);
        int fd = me->rank == 1 ? punch_indices(me->t, &in) : -1;
        memset(out.indices.data, 0x55, out.k * sizeof(int64_t));
        enum tutti_status status = tutti_all_reduce(g, "holed", TUTTI_SUM, &in.value, &out.value);
        if (me->rank == 1) {
                ck_assert_msg(status == TUTTI_BAD_FD || status == TUTTI_DAEMON_LOST, "%s", tutti_error());
                expect_in(tutti_error(), "BAD_FD");
                close(fd);
                return;
        }
        expect_status(status, TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->loss, TUTTI_EJECTED);
        ck_assert_int_eq(tutti_error_info()->rank, 1);
        for (uint64_t i = 0; i < out.k * sizeof(int64_t); i++) /* it was found before anything was written */
                ck_assert_uint_eq(((uint8_t *)out.indices.data)[i], 0x55);
}

static bool is_unguarded(struct host *h) {
        struct tutti *t;
        struct tutti_answer *a;
        bool is = false;
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                is |= a->rows[i].type == TUTTI_ROW_FALLBACK && strstr(a->rows[i].fallback.what, "guard");
        tutti_answer_free(a);
        tutti_close(t);
        return is;
}

static void meet_whole(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct floats f;
        floats_init(me->t, &f, 10);
        floats_meet(g, NULL, &f, 1, (float)me->n);
}

START_TEST(P16_a_hole_where_indices_should_be_costs_its_owner_the_connection) {
        board_init();
        struct host *h = host_start(NULL);
        if (is_unguarded(h)) {
                host_stop(h);
                unit_skip("this host denies userfaultfd");
        }
        run_replicas(h, 2, bring_a_hole, NULL);
        run_replicas(h, 2, meet_whole, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("sparse-hostile", 120, P17_indices_that_change_are_those_that_were_looked_at,
        P16_a_hole_where_indices_should_be_costs_its_owner_the_connection)
