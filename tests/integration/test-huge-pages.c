/* Memory in huge pages: from the pool where it has them, in others and told where not, guarded like any (F6).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"
#include "pool.h"
#include "program.h"
#include "replica.h"
#include "smaps.h"
#include "unit.h"

#define MIB         ((size_t)1 << 20)
#define NOT_IN_POOL ", free: 0 of "

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

static void ask_for_huge(struct tutti *t, size_t n_bytes, struct tutti_buffer **ret) {
        expect_status(
                tutti_buffer_alloc_with(t, &TUTTI_ALLOC(.n_bytes = n_bytes, .pages = TUTTI_PAGES_HUGE), ret),
                TUTTI_OK);
}

static void huge_floats(struct tutti *t, struct floats *f, size_t n) {
        ask_for_huge(t, n * sizeof(float), &f->buffer);
        f->value = TUTTI_VALUE(.buffer = f->buffer, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
        f->data = tutti_buffer_data(f->buffer);
        f->n = n;
        floats_expect(f, 0);
}

/* --- what tuttid tells --- */

struct told {
        uint32_t n_fallbacks, n_rows;
        uint64_t n_bytes, page_bytes;
        char why[512], path[32];
};

/* Of all clients together; of the rows the last one's. */
static struct told ask_tuttid(struct host *h) {
        struct told told = { 0 };
        struct tutti *t;
        struct tutti_answer *a;
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                const struct tutti_row *row = &a->rows[i];
                if (row->type == TUTTI_ROW_FALLBACK && strcmp(row->fallback.what, "huge-pages") == 0) {
                        told.n_fallbacks++;
                        snprintf(told.why, sizeof(told.why), "%s", row->fallback.why);
                }
                if (row->type == TUTTI_ROW_BUFFER && !*row->buffer.device) {
                        told.n_rows++;
                        told.n_bytes += row->buffer.size_bytes;
                        told.page_bytes = row->buffer.page_bytes;
                        snprintf(told.path, sizeof(told.path), "%s", row->buffer.path);
                }
        }
        tutti_answer_free(a);
        tutti_close(t);
        return told;
}

static uint32_t count_in(const char *text, const char *part) {
        uint32_t n = 0;
        for (; (text = strstr(text, part)); text += strlen(part))
                n++;
        return n;
}

static uint32_t count_warnings(struct host *h) {
        return count_in(host_log(h), "asked for huge pages and has");
}

static bool is_unguarded(struct host *h) {
        struct program p;
        const char *argv[] = { program_tuttictl(), "status", "--socket", host_socket(h), NULL };
        program_run(argv, 10, &p);
        bool is = strstr(p.out, "unguarded") != NULL;
        program_deinit(&p);
        return is;
}

/* Within two seconds: tuttid unmaps what is freed beside its loop. */
static void expect_pool_free(uint64_t n) {
        double limit = seconds_now() + 2 * unit_scale();
        while (pool_free() != n) {
                ck_assert_msg(seconds_now() < limit, "%llu pages are free, not %llu",
                        (unsigned long long)pool_free(), (unsigned long long)n);
                seconds_sleep(0.002);
        }
}

/* --- an empty pool --- */

/* Of one connection: two sizes that share a region, one that needs its own. */
static void work_without_a_pool(struct replica *me) {
        struct floats small, other, large;
        struct tutti_group *g = join(me);
        huge_floats(me->t, &small, 1000);
        huge_floats(me->t, &other, 300000);
        huge_floats(me->t, &large, 8 * MIB);
        expect_in(tutti_buffer_fallback(large.buffer), NOT_IN_POOL);
        expect_in(tutti_buffer_fallback(small.buffer), "pages needed of the pool: 1" NOT_IN_POOL);
        ck_assert(tutti_buffer_page_bytes(small.buffer) == 4096 ||
                  tutti_buffer_page_bytes(small.buffer) == POOL_PAGE_BYTES);
        floats_meet(g, NULL, &small, 1, 2);
        floats_meet(g, NULL, &other, 2, 4);
        floats_meet(g, NULL, &large, 3, 6);
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(F6_with_an_empty_pool_there_are_other_pages_and_one_warning) {
        struct replica *r[2];
        pool_take(0);
        struct host *h = host_start(NULL);
        ck_assert_uint_eq(ask_tuttid(h).n_fallbacks, 0);
        replicas_spawn(h, 2, work_without_a_pool, NULL, r);
        replicas_expect(r, 2, "done", 30);
        const struct told told = ask_tuttid(h);
        ck_assert_uint_eq(told.n_fallbacks, 1);
        expect_in(told.why, "in 4 regions lie in none of the pool, though huge ones were asked for; ");
        expect_in(told.why, NOT_IN_POOL);
        ck_assert_uint_eq(told.n_rows, 4);
        ck_assert_str_ne(told.path, "pool");
        ck_assert_uint_eq(count_warnings(h), 2); /* of two connections */
        expect_in(host_log(h), "R0");
        for (int i = 0; i < 2; i++) {
                char who[64];
                snprintf(who, sizeof(who), "pid %d (", (int)r[i]->pid);
                ck_assert_uint_eq(count_in(host_log(h), who), 1);
        }
        replicas_tell(r, 2, "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        ck_assert_uint_eq(ask_tuttid(h).n_fallbacks, 0); /* nobody is short of any */
        host_stop(h);
        pool_give_back();
}
END_TEST

static void work_in_ordinary_pages(struct replica *me) {
        struct floats f;
        ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
        struct tutti_group *g = join(me);
        huge_floats(me->t, &f, MIB);
        ck_assert_uint_eq(tutti_buffer_page_bytes(f.buffer), 4096);
        expect_in(tutti_buffer_fallback(f.buffer), NOT_IN_POOL);
        expect_in(tutti_buffer_fallback(f.buffer), "no transparent ones (PR_SET_THP_DISABLE)");
        floats_meet(g, NULL, &f, 1, 2);
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(F6_where_nothing_is_huge_the_pages_are_ordinary_and_that_is_told) {
        struct replica *r[2];
        pool_take(0);
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, work_in_ordinary_pages, NULL, r);
        replicas_expect(r, 2, "done", 30);
        const struct told told = ask_tuttid(h);
        ck_assert_uint_eq(told.n_fallbacks, 1);
        expect_in(told.why, "in ordinary ones: ");
        expect_in(told.why, "PR_SET_THP_DISABLE");
        ck_assert_str_eq(told.path, "ordinary");
        ck_assert_uint_eq(told.page_bytes, 4096);
        ck_assert_uint_eq(count_warnings(h), 2);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
        pool_give_back();
}
END_TEST

/* Both sides have them mapped as what they are, also those that come when tuttid watches already. */
static void work_in_transparent_pages(struct replica *me) {
        struct floats f, later;
        struct tutti_group *g = join(me);
        huge_floats(me->t, &f, MIB);
        if (tutti_buffer_page_bytes(f.buffer) != POOL_PAGE_BYTES) {
                replica_say(me, "none");
                return;
        }
        floats_meet(g, NULL, &f, 1, 2);
        huge_floats(me->t, &later, 2 * MIB);
        ck_assert_uint_eq(tutti_buffer_page_bytes(later.buffer), POOL_PAGE_BYTES);
        ck_assert_uint_ge(smaps_bytes(getpid(), "ShmemPmdMapped:"), 12 * MIB);
        floats_meet(g, NULL, &later, 3, 6);
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(F6_transparent_pages_are_huge_on_both_sides) {
        struct replica *r[2];
        pool_take(0);
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, work_in_transparent_pages, NULL, r);
        if (strcmp(replica_listen(r[0], 30), "none") == 0) {
                replicas_end(h, r, 2);
                pool_give_back();
                unit_skip("this kernel makes no transparent huge pages of shared memory");
        }
        replica_expect(r[1], "done", 30);
        const struct told told = ask_tuttid(h);
        ck_assert_str_eq(told.path, "transparent");
        ck_assert_uint_eq(told.page_bytes, POOL_PAGE_BYTES);
        ck_assert_uint_eq(told.n_rows, 2); /* both stand in one memfd */
        expect_in(told.why, "in transparent ones: ");
        ck_assert_uint_ge(smaps_bytes(host_pid(h), "ShmemPmdMapped:"), 2 * 12 * MIB);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
        pool_give_back();
}
END_TEST

/* --- a pool that has enough --- */

#define N_ODD ((size_t)700001)

static void fill_odd(float *at, size_t n, uint32_t rank) {
        uint32_t x = 12345 + 77 * rank;
        for (size_t i = 0; i < n; i++) {
                x = x * 1664525 + 1013904223;
                at[i] = (float)(int32_t)x * 1e-7f;
        }
}

/* The same sums by memory of the pool and by ordinary memory, to the bit. */
static void compare_sums(struct tutti_group *g, const struct tutti_value *in[2],
        const struct tutti_value *out[2], const void *sums[2]) {
        for (int i = 0; i < 2; i++)
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, in[i], out[i]), TUTTI_OK);
        ck_assert_mem_eq(sums[0], sums[1], N_ODD * sizeof(float));
}

static void compare_all_sums(struct replica *me, struct tutti_group *g) {
        struct floats huge[2], ordinary[2];
        for (int i = 0; i < 2; i++) {
                huge_floats(me->t, &huge[i], N_ODD);
                floats_init(me->t, &ordinary[i], N_ODD);
        }
        fill_odd(huge[0].data, N_ODD, me->rank);
        memcpy(ordinary[0].data, huge[0].data, N_ODD * sizeof(float));
        const struct tutti_value *in[2] = { &huge[0].value, &ordinary[0].value },
                                 *out[2] = { &huge[1].value, &ordinary[1].value };
        const void *sums[2] = { huge[1].data, ordinary[1].data };
        compare_sums(g, in, out, sums);
        /* Every third element, on the way in and on the way out. */
        struct tutti_value strided[2][2];
        for (int i = 0; i < 2; i++)
                for (int k = 0; k < 2; k++) {
                        strided[i][k] = *(i == 0 ? in[k] : out[k]);
                        strided[i][k].shape[0] = N_ODD / 3;
                        strided[i][k].has_strides = 1;
                        strided[i][k].strides[0] = 3;
                }
        compare_sums(g, (const struct tutti_value *[]){ &strided[0][0], &strided[0][1] },
                (const struct tutti_value *[]){ &strided[1][0], &strided[1][1] }, sums);
        sums[0] = huge[0].data;
        sums[1] = ordinary[0].data;
        compare_sums(g, in, in, sums); /* in place */
        for (int i = 0; i < 2; i++) {
                ck_assert_uint_eq(tutti_buffer_page_bytes(huge[i].buffer), POOL_PAGE_BYTES);
                ck_assert_uint_eq(tutti_buffer_page_bytes(ordinary[i].buffer), 4096);
                ck_assert_str_eq(tutti_buffer_fallback(huge[i].buffer), "");
                ck_assert_str_eq(tutti_buffer_fallback(ordinary[i].buffer), "");
        }
}

static void work_in_the_pool(struct replica *me) {
        struct tutti_group *g = join(me);
        compare_all_sums(me, g);
        replica_say(me, "done");
        replica_hear(me, "end");
}

#define N_POOL 16

START_TEST(F6_pages_of_the_pool_give_the_same_bits_and_go_back_to_it) {
        struct replica *r[2];
        struct host_counters c;
        pool_take(N_POOL);
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, work_in_the_pool, NULL, r);
        replicas_expect(r, 2, "done", 30);
        /* Two buffers of 2.8 MB stand in three pages, of each replica. */
        expect_pool_free(N_POOL - 2 * 3);
        ck_assert_uint_ge(smaps_bytes_of_pool(host_pid(h)), 2 * 3 * POOL_PAGE_BYTES);
        const struct told told = ask_tuttid(h);
        ck_assert_uint_eq(told.n_fallbacks, 0);
        ck_assert_str_eq(told.path, "pool");
        ck_assert_uint_eq(told.page_bytes, POOL_PAGE_BYTES);
        ck_assert_uint_eq(count_warnings(h), 0);
        host_counters(h, &c);
        ck_assert_uint_gt(c.mapped_bytes, told.n_bytes); /* ordinary ones are there as well */
        replicas_tell(r, 2, "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        expect_pool_free(N_POOL);
        host_stop(h);
        pool_give_back();
}
END_TEST

/* Zero at first, also where somebody has written before; apart from ordinary memory. */
static void take_and_free(struct replica *me) {
        struct tutti_buffer *a, *b, *ordinary;
        struct tutti *t = replica_open(me);
        for (int i = 0; i < 20; i++) {
                ask_for_huge(t, 3 * MIB, &a);
                ask_for_huge(t, 100 + (size_t)i, &b);
                expect_status(tutti_buffer_alloc(t, 100, &ordinary), TUTTI_OK);
                ck_assert_uint_eq(tutti_buffer_page_bytes(a), POOL_PAGE_BYTES);
                ck_assert_uint_eq(tutti_buffer_page_bytes(ordinary), 4096);
                const uint8_t *bytes = tutti_buffer_data(a);
                for (size_t k = 0; k < 3 * MIB; k++)
                        ck_assert_uint_eq(bytes[k], 0);
                memset(tutti_buffer_data(a), 0xee, 3 * MIB);
                tutti_buffer_free(i % 2 ? a : b);
                tutti_buffer_free(i % 2 ? b : a);
                tutti_buffer_free(ordinary);
        }
        expect_pool_free(N_POOL);
}

START_TEST(F6_what_is_freed_goes_back_to_the_pool_and_comes_back_zero) {
        pool_take(N_POOL);
        struct host *h = host_start(NULL);
        run_replicas(h, 1, take_and_free, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
        pool_give_back();
}
END_TEST

/* --- a pool that has some --- */

static void take_what_is_there(struct replica *me) {
        struct tutti_buffer *large, *fits, *more;
        struct tutti *t = replica_open(me);
        ask_for_huge(t, 10 * MIB, &large);
        expect_in(tutti_buffer_fallback(large), "pages needed of the pool: 5, free: 4 of");
        expect_pool_free(4); /* nothing of it was kept */
        ask_for_huge(t, 6 * MIB, &fits);
        ck_assert_str_eq(tutti_buffer_fallback(fits), "");
        ck_assert_uint_eq(tutti_buffer_page_bytes(fits), POOL_PAGE_BYTES);
        expect_pool_free(1);
        /* In the region that is there, of which no more than one page can be had. */
        ask_for_huge(t, 4 * MIB, &more);
        ck_assert_str_ne(tutti_buffer_fallback(more), "");
        expect_pool_free(1);
        memset(tutti_buffer_data(more), 1, 4 * MIB);
        tutti_buffer_free(more);
        ask_for_huge(t, 2 * MIB, &more);
        ck_assert_str_eq(tutti_buffer_fallback(more), "");
        expect_pool_free(0);
        tutti_buffer_free(fits);
        tutti_buffer_free(more);
        expect_pool_free(4);
}

START_TEST(F6_a_pool_too_short_for_it_is_left_alone) {
        pool_take(4);
        struct host *h = host_start(NULL);
        run_replicas(h, 1, take_what_is_there, NULL);
        ck_assert_uint_eq(count_warnings(h), 1);
        host_expect_counters_zero(h);
        host_stop(h);
        pool_give_back();
}
END_TEST

/* --- a memfd of the caller --- */

#define N_HOLES ((size_t)1 << 20) /* floats: two pages */

static int make_own_floats(struct tutti *t, struct floats *f) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21u << 26);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)(N_HOLES * sizeof(float))), 0);
        expect_status(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &f->buffer), TUTTI_OK);
        ck_assert_uint_eq(tutti_buffer_page_bytes(f->buffer), POOL_PAGE_BYTES);
        f->value = TUTTI_VALUE(.buffer = f->buffer, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N_HOLES });
        f->data = tutti_buffer_data(f->buffer);
        f->n = N_HOLES;
        return fd;
}

static void be_ejected(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        struct tutti_group *g = join(me);
        int fd = make_own_floats(me->t, &f);
        ck_assert_int_ne(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK, 0);
        floats_meet(g, "whole", &f, 1, 3);
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)POOL_PAGE_BYTES,
                                 (off_t)POOL_PAGE_BYTES),
                0);
        expect_status(tutti_all_reduce_start(g, "holed", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        ck_assert_msg(status == TUTTI_BAD_FD || status == TUTTI_DAEMON_LOST, "%s", tutti_work_error(w)->text);
        expect_in(tutti_work_error(w)->text, "BAD_FD");
        tutti_work_free(w);
        ck_assert_int_ne(tutti_barrier(g, "later"), TUTTI_OK);
        expect_in(tutti_error(), "BAD_FD"); /* why it was ejected */
        close(fd);
}

static void lose_the_ejected(struct replica *me) {
        struct floats f;
        if (me->rank == 1) {
                be_ejected(me);
                return;
        }
        struct tutti_group *g = join(me);
        huge_floats(me->t, &f, N_HOLES);
        floats_meet(g, "whole", &f, 1, 3);
        expect_status(tutti_all_reduce(g, "holed", TUTTI_SUM, &f.value, &f.value), TUTTI_REPLICA_LOST);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->loss, TUTTI_EJECTED);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->outputs_undefined, 1);
}

static void meet_anew(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        huge_floats(me->t, &f, N_HOLES);
        floats_meet(g, NULL, &f, 1, (float)me->n);
}

START_TEST(F6_P16_a_hole_in_huge_pages_costs_its_owner_the_connection_and_nobody_else) {
        struct host_counters c;
        pool_take(N_POOL);
        struct host *h = host_start(NULL);
        pid_t pid = host_pid(h);
        if (is_unguarded(h)) {
                host_stop(h);
                pool_give_back();
                unit_skip("this host denies userfaultfd");
        }
        run_replicas(h, 3, lose_the_ejected, NULL);
        expect_in(host_log(h), "is ejected: BAD_FD");
        run_replicas(h, 3, meet_anew, NULL);
        host_expect_counters_zero(h);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_ejected, 1);
        ck_assert_int_eq(host_pid(h), pid);
        expect_pool_free(N_POOL);
        host_stop(h);
        pool_give_back();
}
END_TEST

/* Mapping it reserves what is not there, for its owner alone: tuttid takes nothing. */
static void bring_what_is_not_there(struct replica *me) {
        struct tutti_buffer *b = NULL;
        struct tutti *t = replica_open(me);
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21u << 26);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)(8 * MIB)), 0);
        expect_status(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &b), TUTTI_NO_MEMORY);
        ck_assert_ptr_null(b);
        /* In bytes that are no whole pages. */
        expect_status(tutti_buffer_from_fd(t, fd, 3 * MIB + 5, TUTTI_INOUT, &b), TUTTI_OK);
        expect_pool_free(0);
        *(char *)tutti_buffer_data(b) = 1;
        tutti_buffer_free(b);
        close(fd);
}

START_TEST(F6_a_memfd_of_more_pages_than_the_pool_has_is_NO_MEMORY) {
        pool_take(2);
        struct host *h = host_start(NULL);
        run_replicas(h, 1, bring_what_is_not_there, NULL);
        host_expect_counters_zero(h);
        expect_pool_free(2);
        host_stop(h);
        pool_give_back();
}
END_TEST

/* --- what is not said --- */

static void ask_by_environment(struct replica *me) {
        static const struct {
                const char *value;
                enum tutti_pages pages;
                bool is_huge;
        } cases[] = {
                { "yes", TUTTI_PAGES_DEFAULT, true },
                { "yes", TUTTI_PAGES_ORDINARY, false },
                { "no", TUTTI_PAGES_DEFAULT, false },
                { "no", TUTTI_PAGES_HUGE, true },
                { "", TUTTI_PAGES_DEFAULT, false },
        };
        struct tutti_buffer *b;
        struct tutti *t;
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                setenv("TUTTI_HUGE_PAGES", cases[i].value, 1);
                expect_status(tutti_open(me->socket, &t), TUTTI_OK);
                expect_status(tutti_buffer_alloc_with(
                                      t, &TUTTI_ALLOC(.n_bytes = 4096, .pages = cases[i].pages), &b),
                        TUTTI_OK);
                ck_assert_uint_eq(tutti_buffer_page_bytes(b), cases[i].is_huge ? POOL_PAGE_BYTES : 4096);
                tutti_close(t);
        }
        setenv("TUTTI_HUGE_PAGES", "yes", 1);
        expect_status(tutti_open(me->socket, &t), TUTTI_OK);
        expect_status(tutti_buffer_alloc(t, 4096, &b), TUTTI_OK);
        ck_assert_uint_eq(tutti_buffer_page_bytes(b), POOL_PAGE_BYTES);
        expect_status(tutti_buffer_alloc_with(t, &TUTTI_ALLOC(.n_bytes = 1, .pages = 7), &b), TUTTI_INVALID);
        tutti_close(t);
        setenv("TUTTI_HUGE_PAGES", "maybe", 1);
        expect_status(tutti_open(me->socket, &t), TUTTI_INVALID);
        expect_in(tutti_error(), "TUTTI_HUGE_PAGES is \"maybe\"; it is yes or no");
}

START_TEST(F6_an_operator_asks_by_the_environment) {
        pool_take(2);
        struct host *h = host_start(NULL);
        run_replicas(h, 1, ask_by_environment, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
        pool_give_back();
}
END_TEST

/* --- another tuttid --- */

static void go_on_with_another(struct replica *me) {
        struct floats pool, other;
        replica_open_again(me, 30);
        struct tutti_group *g = join(me);
        huge_floats(me->t, &pool, MIB);
        huge_floats(me->t, &other, 4 * MIB);
        floats_meet(g, NULL, &pool, 1, 2);
        replica_say(me, "met");
        replica_hear(me, "go on");
        floats_meet(g, NULL, &pool, 3, 6);
        floats_meet(g, NULL, &other, 5, 10);
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(F6_another_tuttid_is_told_the_same) {
        struct replica *r[2];
        pool_take(4);
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, go_on_with_another, NULL, r);
        replicas_expect(r, 2, "met", 30);
        host_kill9(h);
        host_start_again(h);
        replicas_tell(r, 2, "go on");
        replicas_expect(r, 2, "done", 30);
        const struct told told = ask_tuttid(h);
        ck_assert_uint_eq(told.n_rows, 4);
        ck_assert_uint_eq(told.n_fallbacks, 1);
        expect_in(told.why, "pages needed of the pool: 8");
        ck_assert_uint_ge(smaps_bytes_of_pool(host_pid(h)), 2 * 2 * POOL_PAGE_BYTES);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
        pool_give_back();
}
END_TEST

/* --- for people --- */

static void hold_both(struct replica *me) {
        struct floats pool, other;
        join(me);
        huge_floats(me->t, &pool, MIB / 2);
        huge_floats(me->t, &other, 4 * MIB);
        expect_status(tutti_dispatch(me->t), TUTTI_OK);
        replica_say(me, "done");
        replica_hear(me, "end");
}

static void ask_tuttictl(struct host *h, const char *command, struct program *ret) {
        const char *argv[] = { program_tuttictl(), command, "--socket", host_socket(h), NULL };
        program_run(argv, 10, ret);
        ck_assert_str_eq(ret->err, "");
}

START_TEST(F6_tuttictl_shows_pages_and_what_they_are_instead_of) {
        struct program p;
        struct replica *r[1];
        pool_take(1);
        struct host *h = host_start(NULL);
        replicas_spawn(h, 1, hold_both, NULL, r);
        replicas_expect(r, 1, "done", 30);
        ask_tuttictl(h, "status", &p);
        expect_in(p.out, "huge-pages: ");
        expect_in(p.out, "in 1 region lie in none of the pool, though");
        ck_assert_ptr_null(strstr(p.out, "memory ")); /* that is of devices */
        program_deinit(&p);
        ask_tuttictl(h, "buffers", &p);
        expect_in(p.out, "2 MiB  pool");
        expect_in(p.out, "pages needed of the pool: 8");
        program_deinit(&p);
        replicas_tell(r, 1, "end");
        replicas_end(h, r, 1);
        pool_give_back();
}
END_TEST

UNIT_MAIN("huge-pages", 90, F6_with_an_empty_pool_there_are_other_pages_and_one_warning,
        F6_where_nothing_is_huge_the_pages_are_ordinary_and_that_is_told,
        F6_transparent_pages_are_huge_on_both_sides,
        F6_pages_of_the_pool_give_the_same_bits_and_go_back_to_it,
        F6_what_is_freed_goes_back_to_the_pool_and_comes_back_zero, F6_a_pool_too_short_for_it_is_left_alone,
        F6_P16_a_hole_in_huge_pages_costs_its_owner_the_connection_and_nobody_else,
        F6_a_memfd_of_more_pages_than_the_pool_has_is_NO_MEMORY, F6_an_operator_asks_by_the_environment,
        F6_another_tuttid_is_told_the_same, F6_tuttictl_shows_pages_and_what_they_are_instead_of)
