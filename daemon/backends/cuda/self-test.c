/* Trust nobody who has not been tried: each device is given numbers, adds them up, and gives them back; each
 * way from one device to another carries a pattern there and back, by a copy and by a kernel. What is wrong,
 * or is not done in time, is off, and says why. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "backends/cuda/cuda-private.h"
#include "base/clock.h"

/* Beyond what any cache between them would hold back by accident of one line. */
#define N_WORDS    (UINT64_C(64) << 10)
#define TEST_BYTES (N_WORDS * 4)

/* Memory of a test: two arrays on each device, and one for us. */
struct bench {
        struct cuda *c;
        struct area *mine, *near[MAX_GPU_DEVICES];
        char why[GPU_TEXT_BYTES];
        bool is_late; /* something is under way that does not end: what it uses is lost */
};

static CUdeviceptr first(const struct area *a) {
        return a->at;
}

static CUdeviceptr second(const struct area *a) {
        return a->at + TEST_BYTES;
}

static uint32_t pattern(uint64_t i, uint32_t seed) {
        return (uint32_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 29) ^ seed * UINT32_C(0x85ebca6b);
}

static void fill(struct bench *t, uint32_t seed) {
        uint32_t *words = (uint32_t *)(void *)t->mine->host;
        for (uint64_t i = 0; i < N_WORDS; i++)
                words[i] = pattern(i, seed);
}

static bool is_as(struct bench *t, uint32_t factor, uint32_t seed) {
        const uint32_t *words = (const uint32_t *)(const void *)t->mine->host;
        for (uint64_t i = 0; i < N_WORDS; i++) {
                if (words[i] == pattern(i, seed) * factor)
                        continue;
                snprintf(t->why, sizeof(t->why), "word %llu of the pattern came back as 0x%08x, not 0x%08x",
                        (unsigned long long)i, words[i], pattern(i, seed) * factor);
                return false;
        }
        return true;
}

/* Waits for what is on the device's own stream. */
static bool finish(struct bench *t, struct cuda_device *d) {
        struct cuda *c = t->c;
        uint64_t limit = clock_now_ns() + c->options.test_limit_ns;
        CUresult r = CUDA_ERROR_NOT_READY;
        while (clock_now_ns() < limit) {
                r = cuda_enter(c, d) < 0 ? CUDA_ERROR_INVALID_CONTEXT : c->driver.cuStreamQuery(d->own);
                if (r != CUDA_ERROR_NOT_READY)
                        break;
                nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        }
        if (r == CUDA_SUCCESS)
                return true;
        if (r == CUDA_ERROR_NOT_READY) {
                t->is_late = true;
                snprintf(t->why, sizeof(t->why), "its test took more than %llu ms",
                        (unsigned long long)(c->options.test_limit_ns / NS_PER_MS));
        } else if (cuda_check(c, r, "self-test") < 0)
                snprintf(t->why, sizeof(t->why), "its test failed: %s", driver_error(&c->driver, r));
        return false;
}

/* After a failure: what had been begun still uses our memory. */
static void settle(struct bench *t, struct cuda_device *d) {
        char why[GPU_TEXT_BYTES];
        memcpy(why, t->why, sizeof(why));
        (void)(t->is_late || finish(t, d));
        memcpy(t->why, why, sizeof(why));
}

static bool copy(struct bench *t, struct cuda_device *d, CUdeviceptr to, CUdeviceptr from) {
        struct cuda *c = t->c;
        CUresult r = cuda_enter(c, d) < 0 ? CUDA_ERROR_INVALID_CONTEXT
                                          : c->driver.cuMemcpyAsync(to, from, TEST_BYTES, d->own);
        if (r == CUDA_SUCCESS)
                return true;
        if (cuda_check(c, r, "self-test") < 0)
                snprintf(t->why, sizeof(t->why), "a copy was refused: %s", driver_error(&c->driver, r));
        return false;
}

/* By a kernel on `d`: operands are n_inputs addresses, then where the sum goes. */
static bool add_up(struct bench *t, struct cuda_device *d, const uint64_t *operands, uint32_t n_inputs) {
        const struct cuda_step step = { .work = n_inputs == 1 ? CUDA_COPY : CUDA_REDUCE,
                .op = OP_SUM,
                .dtype = DTYPE_U32,
                .output_dtype = DTYPE_U32,
                .count = N_WORDS,
                .n_inputs = n_inputs,
                .n_outputs = 1,
                .operands = operands,
                .n_multiprocessors = d->n_multiprocessors };
        struct cuda_launch launches[CUDA_STEP_LAUNCHES];
        int n = cuda_step_prepare(&step, launches);
        for (int i = 0; i < n; i++)
                if (cuda_launch(t->c, d, d->own, &launches[i]) < 0)
                        n = -EIO;
        if (n <= 0)
                snprintf(t->why, sizeof(t->why), "a kernel could not be launched");
        return n > 0;
}

static bool test_device(struct bench *t, struct cuda_device *d) {
        const struct area *a = t->near[d->index];
        const uint64_t operands[] = { first(a), second(a), first(a) };
        fill(t, d->index + 1);
        if (!copy(t, d, first(a), t->mine->at) || !copy(t, d, second(a), t->mine->at) ||
                !add_up(t, d, operands, 2) || !finish(t, d))
                return false;
        memset(t->mine->host, 0, TEST_BYTES);
        return copy(t, d, t->mine->at, first(a)) && finish(t, d) && is_as(t, 2, d->index + 1);
}

/* `d` fetches from `other` by a copy and gives it back by a kernel, which reads here and writes there. */
static bool test_way(struct bench *t, struct cuda_device *d, struct cuda_device *other) {
        const struct area *here = t->near[d->index], *there = t->near[other->index];
        uint32_t seed = d->index * MAX_GPU_DEVICES + other->index + 1000;
        const uint64_t back[] = { first(here), second(there) }, again[] = { second(there), second(here) };
        fill(t, seed);
        if (!copy(t, other, first(there), t->mine->at) || !finish(t, other))
                return false;
        memset(t->mine->host, 0, TEST_BYTES);
        return copy(t, d, first(here), first(there)) && add_up(t, d, back, 1) && finish(t, d) &&
               copy(t, other, first(there), second(there)) && finish(t, other) &&
               copy(t, other, t->mine->at, first(there)) && finish(t, other) && is_as(t, 1, seed) &&
               add_up(t, d, again, 1) && copy(t, d, t->mine->at, second(here)) && finish(t, d) &&
               is_as(t, 1, seed);
}

static void prepare(struct bench *t) {
        struct cuda *c = t->c;
        t->mine = cuda_area_take(c, ON_HOST, TEST_BYTES);
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct cuda_device *d = &c->devices[i];
                if (!cuda_device_of(c, DEVICE_GPU + i))
                        continue;
                t->near[i] = t->mine ? cuda_area_take(c, i, 2 * TEST_BYTES) : NULL;
                if (!t->near[i])
                        cuda_device_turn_off(c, d, "no memory can be had on it");
        }
}

static void clean_up(struct bench *t) {
        for (uint32_t i = 0; i < t->c->n_devices; i++)
                cuda_area_give(t->c, t->near[i]);
        cuda_area_give(t->c, t->mine);
}

/* What is late may still write to our memory, and nothing can be put behind it: both are given up. */
static void start_afresh(struct bench *t) {
        struct cuda *c = t->c;
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct cuda_device *d = cuda_device_of(c, DEVICE_GPU + i);
                free(t->near[i]);
                t->near[i] = NULL;
                if (d && (cuda_enter(c, d) < 0 ||
                                 cuda_check(c, c->driver.cuStreamCreate(&d->own, CU_STREAM_NON_BLOCKING),
                                         "cuStreamCreate") < 0))
                        cuda_device_turn_off(c, d, "no stream can be had on it");
        }
        free(t->mine);
        t->is_late = false;
        prepare(t);
}

static void test_ways(struct bench *t, struct cuda_device *d) {
        struct cuda *c = t->c;
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct cuda_device *other = &c->devices[i];
                char what[WAY_BYTES];
                if (other == d || !(d->reach & UINT64_C(1) << i) || test_way(t, d, other))
                        continue;
                settle(t, d);
                settle(t, other);
                cuda_print_way(d, other, what);
                cuda_add_fallback(c, what, "off: %s", t->why);
                /* A way that fails in one direction is trusted in none. */
                d->reach &= ~(UINT64_C(1) << i);
                other->reach &= ~(UINT64_C(1) << d->index);
                if (t->is_late)
                        start_afresh(t);
        }
}

void cuda_self_test(struct cuda *c) {
        struct bench t = { .c = c };
        prepare(&t);
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct cuda_device *d = cuda_device_of(c, DEVICE_GPU + i);
                if (!d || test_device(&t, d))
                        continue;
                settle(&t, d);
                cuda_device_turn_off(c, d, t.why);
                if (t.is_late)
                        start_afresh(&t);
        }
        for (uint32_t i = 0; i < c->n_devices; i++)
                if (cuda_device_of(c, DEVICE_GPU + i))
                        test_ways(&t, &c->devices[i]);
        clean_up(&t);
        cuda_devices_report_ways(c);
}
