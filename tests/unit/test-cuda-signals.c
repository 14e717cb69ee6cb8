/* Order between clients' streams and ours: who signals is served in his order, who does not holds up nobody
 * else. The clients' side is played by storing into the page, as a stream of theirs would. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include "cuda-bench.h"

struct slot {
        _Atomic uint64_t ready, done;
};

#define N_SLOTS    16
#define SHORT_NS   (100 * NS_PER_MS)
#define MAX_GROUPS 40

/* A group that copies one buffer into another, with one signal. */
struct client {
        struct chore in, out;
        struct plan plan;
        struct signal signal;
        struct run run;
};

static struct chore make_page(struct bench *t) {
        return bench_memory(t, HOST, N_SLOTS * sizeof(struct slot));
}

static struct slot *slot_of(const struct chore *page, uint32_t i) {
        return (struct slot *)bench_data(page) + i;
}

static void client_init(struct bench *t, struct client *cl, const struct chore *page, uint32_t slot) {
        *cl = (struct client){ .in = bench_memory(t, 0, 4096), .out = bench_memory(t, 0, 4096) };
        const struct chore *operands[] = { &cl->in, &cl->out };
        memset(bench_data(&cl->in), 7, 4096);
        plan_init(&cl->plan);
        bench_add(&cl->plan, &(struct bench_step){ .operands = operands,
                                     .step = { .kind = STEP_COPY,
                                             .device = DEVICE_GPU,
                                             .dtype = DTYPE_U8,
                                             .n_inputs = 1,
                                             .n_outputs = 1,
                                             .count = 4096 } });
        bench_freeze(&cl->plan, 0);
        cl->signal = (struct signal){ .page = page->memory, .slot = slot, .value = 5 };
        cl->run =
                (struct run){ .plan = &cl->plan, .group = slot + 1, .signals = &cl->signal, .n_signals = 1 };
}

static void client_deinit(struct bench *t, struct client *cl) {
        plan_deinit(&cl->plan);
        bench_release(t, &cl->in);
        bench_release(t, &cl->out);
}

static int first_byte(const struct client *cl) {
        return *(const uint8_t *)bench_data(&cl->out);
}

START_TEST(a_run_begins_when_the_client_is_ready_and_says_when_it_is_done) {
        struct bench t;
        struct client cl;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore page = make_page(&t);
        client_init(&t, &cl, &page, 3);
        bench_launch(&t, &cl.run);
        ck_assert(!bench_wait(&t, &cl.run, 0.1));
        ck_assert_int_eq(first_byte(&cl), 0);
        ck_assert_uint_eq(slot_of(&page, 3)->done, 0);
        atomic_store(&slot_of(&page, 3)->ready, 5);
        ck_assert(bench_wait(&t, &cl.run, 10));
        ck_assert_int_eq(cl.run.status, STATUS_OK);
        ck_assert_int_eq(first_byte(&cl), 7);
        ck_assert_uint_eq(slot_of(&page, 3)->done, 5);
        ck_assert_uint_eq(slot_of(&page, 2)->done, 0);
        ck_assert_uint_gt(fakecuda_calls(t.fake, NULL, "cuStreamWaitValue64"), 0);
        client_deinit(&t, &cl);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

/* `done` comes behind the outputs, however the device orders what it may order. */
START_TEST(done_waits_for_the_outputs) {
        struct bench t;
        struct client cl;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore page = make_page(&t);
        client_init(&t, &cl, &page, 0);
        atomic_store(&slot_of(&page, 0)->ready, 5);
        fakecuda_hold(t.fake, NULL, "cuLaunchKernel");
        bench_launch(&t, &cl.run);
        ck_assert(fakecuda_wait_held(t.fake, NULL, 1, 10));
        ck_assert(!bench_wait(&t, &cl.run, 0.05));
        ck_assert_uint_eq(slot_of(&page, 0)->done, 0);
        fakecuda_release(t.fake);
        ck_assert(bench_wait(&t, &cl.run, 10));
        ck_assert_uint_eq(slot_of(&page, 0)->done, 5);
        client_deinit(&t, &cl);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

START_TEST(who_never_signals_times_out_and_holds_up_nobody) {
        struct bench t;
        struct client silent, other;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore page = make_page(&t);
        client_init(&t, &silent, &page, 0);
        client_init(&t, &other, &page, 1);
        silent.run.limit_ns = SHORT_NS;
        bench_launch(&t, &silent.run);
        bench_launch(&t, &other.run);
        atomic_store(&slot_of(&page, 1)->ready, 5);
        ck_assert(bench_wait(&t, &other.run, 10));
        ck_assert_int_eq(other.run.status, STATUS_OK);
        ck_assert_int_eq(first_byte(&other), 7);
        ck_assert(bench_wait(&t, &silent.run, 10));
        ck_assert_int_eq(silent.run.status, STATUS_TIMEOUT);
        ck_assert_uint_eq(silent.run.late_signal, 0);
        ck_assert_int_eq(first_byte(&silent), 0);
        ck_assert_uint_eq(slot_of(&page, 0)->done, 5);
        /* The same group goes on. */
        silent.signal.value = 6;
        atomic_store(&slot_of(&page, 0)->ready, 6);
        bench_launch(&t, &silent.run);
        ck_assert(bench_wait(&t, &silent.run, 10));
        ck_assert_int_eq(silent.run.status, STATUS_OK);
        ck_assert_int_eq(first_byte(&silent), 7);
        client_deinit(&t, &silent);
        client_deinit(&t, &other);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

/* More than there are streams: the host holds the rest, and one who signals is served all the same. */
START_TEST(forty_silent_groups_hold_up_nobody) {
        struct bench t;
        struct client silent[MAX_GROUPS], other;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore page = make_page(&t);
        for (uint32_t i = 0; i < MAX_GROUPS; i++) {
                client_init(&t, &silent[i], &page, 0);
                silent[i].run.group = 100 + i;
                silent[i].run.limit_ns = 500 * NS_PER_MS;
                bench_launch(&t, &silent[i].run);
        }
        client_init(&t, &other, &page, 1);
        atomic_store(&slot_of(&page, 1)->ready, 5);
        bench_launch(&t, &other.run);
        ck_assert(bench_wait(&t, &other.run, 10));
        ck_assert_int_eq(other.run.status, STATUS_OK);
        for (uint32_t i = 0; i < MAX_GROUPS; i++) {
                ck_assert(bench_wait(&t, &silent[i].run, 10));
                /* The first that is let go writes the slot that all wait for. */
                ck_assert(silent[i].run.status == STATUS_TIMEOUT || silent[i].run.status == STATUS_OK);
                client_deinit(&t, &silent[i]);
        }
        ck_assert_int_eq(silent[0].run.status, STATUS_TIMEOUT);
        client_deinit(&t, &other);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

START_TEST(a_signal_outside_its_page_is_refused) {
        struct bench t;
        struct client cl;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore page = make_page(&t);
        client_init(&t, &cl, &page, N_SLOTS);
        bench_launch(&t, &cl.run);
        ck_assert(bench_wait(&t, &cl.run, 1));
        ck_assert_int_eq(cl.run.status, STATUS_INTERNAL);
        ck_assert_int_eq(first_byte(&cl), 0);
        client_deinit(&t, &cl);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

/* Without streams that can wait, or a page that is registered, the host watches and writes the words. */
START_TEST(a_page_that_cannot_be_registered_is_watched_by_the_host) {
        struct bench t;
        struct client cl;
        bench_prepare(&t, "1");
        setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+=CUDA_ERROR_OUT_OF_MEMORY", 1);
        bench_open(&t);
        struct chore page = make_page(&t);
        client_init(&t, &cl, &page, 0);
        bench_launch(&t, &cl.run);
        ck_assert(!bench_wait(&t, &cl.run, 0.05));
        atomic_store(&slot_of(&page, 0)->ready, 5);
        ck_assert(bench_wait(&t, &cl.run, 10));
        ck_assert_int_eq(cl.run.status, STATUS_OK);
        ck_assert_int_eq(first_byte(&cl), 7);
        ck_assert_uint_eq(slot_of(&page, 0)->done, 5);
        ck_assert_uint_eq(fakecuda_calls(t.fake, NULL, "cuStreamWaitValue64"), 0);
        client_deinit(&t, &cl);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

START_TEST(a_run_that_fails_to_launch_says_done) {
        struct bench t;
        struct client cl;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore page = make_page(&t);
        client_init(&t, &cl, &page, 0);
        atomic_store(&slot_of(&page, 0)->ready, 5);
        fakecuda_strike(t.fake,
                &(struct fakecuda_strike){
                        .fault = FAKECUDA_FAILS, .call = "cuLaunchKernel", .code = 1 /* invalid value */ });
        bench_launch(&t, &cl.run);
        ck_assert(bench_wait(&t, &cl.run, 10));
        ck_assert_int_eq(cl.run.status, STATUS_INTERNAL);
        uint64_t limit = clock_now_ns() + 10 * NS_PER_S;
        while (atomic_load(&slot_of(&page, 0)->done) != 5 && clock_now_ns() < limit)
                ;
        ck_assert_uint_eq(slot_of(&page, 0)->done, 5);
        ck_assert(!t.b->is_broken);
        client_deinit(&t, &cl);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

UNIT_MAIN("cuda-signals", 60, a_run_begins_when_the_client_is_ready_and_says_when_it_is_done,
        done_waits_for_the_outputs, who_never_signals_times_out_and_holds_up_nobody,
        forty_silent_groups_hold_up_nobody, a_signal_outside_its_page_is_refused,
        a_page_that_cannot_be_registered_is_watched_by_the_host, a_run_that_fails_to_launch_says_done)
