#include "meeting.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_SECONDS 2

/* --- values --- */

void floats_init(struct tutti *t, struct floats *f, size_t n) {
        expect_status(tutti_buffer_alloc(t, n * sizeof(float), &f->buffer), TUTTI_OK);
        f->value = TUTTI_VALUE(.buffer = f->buffer, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
        f->data = tutti_buffer_data(f->buffer);
        f->n = n;
        floats_fill(f, 0);
}

void floats_deinit(struct floats *f) {
        tutti_buffer_free(f->buffer);
        *f = (struct floats){ .n = 0 };
}

void floats_fill(struct floats *f, float value) {
        for (size_t i = 0; i < f->n; i++)
                f->data[i] = value;
}

void floats_expect(const struct floats *f, float value) {
        for (size_t i = 0; i < f->n; i++)
                ck_assert_msg(f->data[i] == value, "element %zu is %g, not %g", i, (double)f->data[i],
                        (double)value);
}

struct tutti_value floats_part(const struct floats *f, size_t offset, uint64_t n) {
        return TUTTI_VALUE(.buffer = f->buffer, .offset = offset * sizeof(float), .dtype = TUTTI_F32,
                .n_dims = 1, .shape = { n });
}

void floats_expect_part(const struct floats *f, size_t offset, size_t n, float value) {
        for (size_t i = 0; i < n; i++)
                ck_assert(f->data[offset + i] == value);
}

float floats_sum_of_ranks(uint32_t n, float first) {
        uint32_t of_ranks = n * (n - 1) / 2;
        return (float)n * first + (float)of_ranks;
}

void floats_meet(struct tutti_group *g, const char *key, struct floats *f, float mine, float all) {
        floats_fill(f, mine);
        expect_status(tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &f->value), TUTTI_OK);
        floats_expect(f, all);
}

enum tutti_status floats_sum(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &f->value);
}

struct tutti_work *floats_start(struct tutti_group *g, const char *key, struct floats *f, double timeout) {
        struct tutti_options options = TUTTI_OPTIONS(.timeout = timeout);
        struct tutti_work *w;
        expect_status(
                tutti_all_reduce_start(g, key, TUTTI_SUM, &f->value, &f->value, &options, &w), TUTTI_OK);
        return w;
}

void array_init(struct tutti *t, struct array *a, enum tutti_dtype dtype, size_t n) {
        expect_status(tutti_buffer_alloc(t, n * tutti_dtype_bytes(dtype) + 1, &a->buffer), TUTTI_OK);
        a->value = TUTTI_VALUE(.buffer = a->buffer, .dtype = dtype, .n_dims = 1, .shape = { n });
        a->data = tutti_buffer_data(a->buffer);
        a->n = n;
}

void array_deinit(struct array *a) {
        tutti_buffer_free(a->buffer);
}

/* --- what must be --- */

void expect_in(const char *text, const char *part) {
        ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

uint64_t ranks_mask(const struct tutti_ranks *ranks) {
        for (size_t i = 1; i < sizeof(ranks->words) / sizeof(*ranks->words); i++)
                ck_assert_uint_eq(ranks->words[i], 0);
        return ranks->words[0];
}

void host_expect_pending(struct host *h, uint64_t n) {
        double limit = seconds_now() + SETTLE_SECONDS * unit_scale();
        struct host_counters c;
        for (;;) {
                host_counters(h, &c);
                if (c.n_pending == n)
                        return;
                if (seconds_now() > limit)
                        ck_abort_msg("%llu pending, not %llu\n%s", (unsigned long long)c.n_pending,
                                (unsigned long long)n, host_log(h));
                seconds_sleep(0.005);
        }
}

/* --- several replicas --- */

void replicas_tell(struct replica *const *r, uint32_t n, const char *text) {
        for (uint32_t i = 0; i < n; i++)
                replica_tell(r[i], text);
}

void replicas_expect(struct replica *const *r, uint32_t n, const char *text, double seconds) {
        for (uint32_t i = 0; i < n; i++)
                replica_expect(r[i], text, seconds);
}

void replicas_end(struct host *h, struct replica *const *r, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

void replicas_run(uint32_t n, void (*body)(struct replica *me)) {
        board_init();
        struct host *h = host_start(NULL);
        run_replicas(h, n, body, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}

struct board *board;

void board_init(void) {
        board = memory_shared(sizeof(*board));
}

void board_note_pid(const struct replica *me) {
        ck_assert_uint_lt(me->rank, sizeof(board->pids) / sizeof(*board->pids));
        board->pids[me->rank] = (uint32_t)getpid();
}

void board_note_moment(void) {
        board->moment = seconds_now();
}

double board_age(void) {
        return seconds_now() - board->moment;
}

/* --- halves in a known order --- */

#define BARRIER "the others are here"

const struct tutti_error_info *sum_early(struct tutti_group *g, const char *key,
        const struct tutti_value *input, const struct tutti_value *output) {
        struct tutti_work *w; /* goes with the connection, so that its error stays */
        expect_status(tutti_all_reduce_start(g, key, TUTTI_SUM, input, output, NULL, &w), TUTTI_OK);
        expect_status(tutti_barrier(g, BARRIER), TUTTI_OK);
        ck_assert_int_ne(tutti_work_wait(w, -1), TUTTI_OK);
        return tutti_work_error(w);
}

void come_last(struct tutti_group *g) {
        expect_status(tutti_barrier(g, BARRIER), TUTTI_OK);
        board_note_moment();
}

const struct tutti_error_info *expect_error(enum tutti_status status) {
        ck_assert_int_ne(status, TUTTI_OK);
        ck_assert_int_eq(tutti_error_info()->status, status);
        return tutti_error_info();
}

/* --- time and memory --- */

double seconds_now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void seconds_sleep(double seconds) {
        struct timespec t = { .tv_sec = (time_t)seconds };
        t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
        nanosleep(&t, NULL);
}

void *memory_shared(size_t n_bytes) {
        void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        return p;
}

/* --- joining --- */

struct tutti_group *join_train(struct replica *me, enum tutti_on_death on_death) {
        board_note_pid(me);
        return replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .default_timeout = 20, .on_death = on_death));
}

enum tutti_status try_join(struct tutti *t, const struct tutti_join_args *args) {
        struct tutti_group *g = NULL;
        enum tutti_status status = tutti_join(t, args, &g);
        if (status != TUTTI_OK)
                ck_assert_ptr_null(g);
        return status;
}

void expect_text_of(const struct tutti_error_info *e, const char *format, uint32_t number) {
        char text[64];
        snprintf(text, sizeof(text), format, number);
        expect_in(e->text, text);
}
