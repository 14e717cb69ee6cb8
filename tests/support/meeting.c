#include "meeting.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

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

void floats_meet(struct tutti_group *g, const char *key, struct floats *f, float mine, float all) {
        floats_fill(f, mine);
        expect_status(tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &f->value), TUTTI_OK);
        floats_expect(f, all);
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
