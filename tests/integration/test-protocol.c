/* What the wire promises beyond collectives, said by a raw client to the real tuttid: the status page, and
 * what is refused for now. */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "host.h"
#include "raw.h"
#include "unit.h"

#define N_FLOATS (16u << 20) /* 64 MiB: long enough to be seen under way */

static void *map(int fd, size_t n_bytes, int protection) {
        void *at = mmap(NULL, n_bytes, protection, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(at, MAP_FAILED);
        return at;
}

/* A greeted client that keeps its status page. */
static struct raw *open_with_page(const char *socket, const struct page_slot **ret_page) {
        struct raw *r = raw_connect(socket);
        const struct reply welcome = raw_expect(r, raw_hello(r), STATUS_OK);
        ck_assert_int_eq(welcome.type, REPLY_WELCOME);
        ck_assert_uint_eq(welcome.welcome.status_slots, STATUS_PAGE_SLOTS);
        ck_assert_uint_eq(r->packet.n_fds, 1);
        *ret_page = map(r->packet.fds[0], STATUS_PAGE_SLOTS * sizeof(**ret_page), PROT_READ);
        return r;
}

/* Memory that tuttid and the test see, one 1.0 after the other. */
static float *shared_ones(struct raw *r, uint64_t buffer) {
        int fd = raw_memfd(N_FLOATS * sizeof(float));
        float *p = map(fd, N_FLOATS * sizeof(float), PROT_READ | PROT_WRITE);
        for (uint32_t i = 0; i < N_FLOATS; i++)
                p[i] = 1.0f;
        raw_buffer(r, buffer, fd, N_FLOATS * sizeof(float));
        return p;
}

/* Until the slot says done: a store into the output is never seen before the slot says begun. Whether begun
 * was seen. */
static bool watch_page(const struct page_slot *slot, uint64_t request, const float *output) {
        uint64_t until_ns = clock_now_ns() + (uint64_t)(unit_scale() * 20e9);
        bool was_begun = false;
        for (;;) {
                float first = atomic_load_explicit((const _Atomic float *)output, memory_order_acquire);
                uint32_t state = atomic_load_explicit(&slot->request, memory_order_acquire) == request
                                         ? atomic_load_explicit(&slot->state, memory_order_acquire)
                                         : PAGE_FREE;
                ck_assert_msg(first == 1.0f || state != PAGE_FREE,
                        "a result was stored before its slot said begun");
                was_begun |= state == PAGE_BEGUN;
                if (state == PAGE_DONE)
                        return was_begun;
                ck_assert_uint_lt(clock_now_ns(), until_ns);
        }
}

START_TEST(P9_the_page_says_begun_before_the_first_store_and_done_before_the_reply) {
        struct host *h = host_start(NULL);
        const struct page_slot *page_a, *page_b;
        struct raw *a = open_with_page(host_socket(h), &page_a), *b = open_with_page(host_socket(h), &page_b);
        struct request join = raw_join_request("page", 0, 2);
        uint64_t request = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "page", 1, 2), ma = raw_joined(a, request);
        float *x = shared_ones(a, 1), *y = shared_ones(b, 1);

        uint64_t ra = raw_submit(a, &ma, "sum", 1, N_FLOATS), rb = raw_submit(b, &mb, "sum", 1, N_FLOATS);
        const struct page_slot *slot_a = &page_a[ra % STATUS_PAGE_SLOTS],
                               *slot_b = &page_b[rb % STATUS_PAGE_SLOTS];
        ck_assert(watch_page(slot_a, ra, x));
        ck_assert_float_eq(x[0], 2.0f);
        ck_assert_float_eq(x[N_FLOATS - 1], 2.0f);
        const struct reply done = raw_expect(b, rb, STATUS_OK);
        ck_assert_uint_eq(slot_b->request, rb);
        ck_assert_uint_eq(slot_b->state, PAGE_DONE); /* read after the reply: it was there before */
        ck_assert_uint_eq(slot_b->collective, done.done.collective);
        ck_assert_float_eq(y[N_FLOATS - 1], 2.0f);
        raw_expect(a, ra, STATUS_OK);
        ck_assert_uint_eq(slot_a->collective, done.done.collective);
        munmap(x, N_FLOATS * sizeof(float));
        munmap(y, N_FLOATS * sizeof(float));
        munmap((void *)(uintptr_t)page_a, STATUS_PAGE_BYTES);
        munmap((void *)(uintptr_t)page_b, STATUS_PAGE_BYTES);
        raw_close(a);
        raw_close(b);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* A collective that ends unsealed has not begun; its failure stands in the page before anybody is told. */
START_TEST(P9_what_is_refused_has_not_begun) {
        struct host *h = host_start(NULL);
        const struct page_slot *page;
        struct raw *a = open_with_page(host_socket(h), &page), *b = raw_open(host_socket(h));
        struct request join = raw_join_request("page", 0, 2);
        uint64_t request = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "page", 1, 2), ma = raw_joined(a, request);
        raw_buffer(a, 1, raw_memfd(4096), 4096);
        raw_buffer(b, 1, raw_memfd(4096), 4096);
        uint64_t ra = raw_submit(a, &ma, "unequal", 1, 8);
        raw_expect(b, raw_submit(b, &mb, "unequal", 1, 9), STATUS_MISMATCH);
        const struct page_slot *slot = &page[ra % STATUS_PAGE_SLOTS];
        ck_assert_uint_eq(slot->request, ra);
        ck_assert_uint_eq(slot->state, PAGE_FAILED);
        ck_assert_uint_eq(slot->status, STATUS_MISMATCH);
        ck_assert_uint_eq(slot->collective, 0);
        raw_expect(a, ra, STATUS_MISMATCH);
        raw_close(a);
        raw_close(b);
        host_stop(h);
}
END_TEST

/* A member submits what it has failed to register, alone or as one entry of a batch: the others, who wait,
 * hear of it at once. */
static void refuse_the_others(
        struct raw *r[2], const struct raw_member m[2], uint32_t n, enum status status) {
        const struct entry good[2] = { raw_entry(1, 4), raw_entry(1, 4) },
                           bad[2] = { good[0], raw_entry(9, 4) };
        struct request submit = raw_submit_request(&m[0], "x", good);
        if (n > 1)
                submit.submit.signature.kind = KIND_BATCH_REDUCE;
        submit.submit.signature.n_entries = submit.submit.n_part_entries = n;
        uint64_t waits = raw_send(r[0], &submit);
        raw_settle(r[0]);
        submit.submit.membership = m[1].membership;
        submit.submit.entries = n > 1 ? bad : &bad[1];
        uint64_t before_ns = clock_now_ns();
        raw_expect(r[1], raw_send(r[1], &submit), status);
        const struct reply reply = raw_expect(r[0], waits, STATUS_PEER_REFUSED);
        ck_assert_double_lt((double)(clock_now_ns() - before_ns) / 1e9, 0.5 * unit_scale());
        ck_assert_int_eq(reply.error->cause, status);
        ck_assert_int_eq(reply.error->field, FIELD_BUFFER);
        ck_assert_int_eq(reply.error->rank, 1);
        ck_assert_int_eq(reply.error->entry, n > 1 ? 1 : -1);
}

static int bad_memfd(void) {
        int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, 4096), 0);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
        return fd;
}

START_TEST(A7_a_failed_registration_reaches_the_peers_also_in_a_batch) {
        struct host *h = host_start((const char *[]){ "--set", "quota.mapped-bytes=1MiB", NULL });
        struct raw *r[2] = { raw_open(host_socket(h)), raw_open(host_socket(h)) };
        struct raw_member m[2];
        uint64_t joins[2];
        for (uint32_t i = 0; i < 2; i++) {
                const struct request join = raw_join_request("a7", i, 2);
                joins[i] = raw_send(r[i], &join);
        }
        for (uint32_t i = 0; i < 2; i++) {
                m[i] = raw_joined(r[i], joins[i]);
                raw_buffer(r[i], 1, raw_memfd(4096), 4096);
        }
        raw_expect(r[1], raw_register(r[1], 9, bad_memfd(), 4096), STATUS_BAD_FD);
        refuse_the_others(r, m, 1, STATUS_BAD_FD);
        refuse_the_others(r, m, 2, STATUS_BAD_FD);
        raw_expect(r[1], raw_send(r[1], &(struct request){ .type = REQUEST_UNREGISTER, .buffer = 9 }),
                STATUS_OK);
        raw_expect(r[1], raw_register(r[1], 9, raw_memfd(2 << 20), 2 << 20), STATUS_QUOTA);
        refuse_the_others(r, m, 1, STATUS_QUOTA);
        refuse_the_others(r, m, 2, STATUS_QUOTA);
        for (uint32_t i = 0; i < 2; i++) /* and the group goes on */
                joins[i] = raw_submit(r[i], &m[i], "x", 1, 4);
        for (uint32_t i = 0; i < 2; i++) {
                raw_expect(r[i], joins[i], STATUS_OK);
                raw_close(r[i]);
        }
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* Messages of later versions are understood and refused in peace: the connection and its group go on. */
START_TEST(P15_later_messages_answer_UNSUPPORTED) {
        struct host *h = host_start(NULL);
        struct raw *r = raw_open(host_socket(h));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        for (int type = REQUEST_PREPARE; type <= REQUEST_PAGES; type++) {
                if (type == REQUEST_MAKE_RESULT || type == REQUEST_RELEASE_RESULT || type == REQUEST_START ||
                        type == REQUEST_UNPREPARE || type == REQUEST_OPEN_LANE || type == REQUEST_PAGES)
                        continue; /* done in this one */
                const struct request later = { .type = (enum request_type)type };
                const struct reply reply = raw_expect(r, raw_send(r, &later), STATUS_UNSUPPORTED);
                ck_assert_ptr_nonnull(strstr(reply.error->detail, "does not do this yet"));
        }
        raw_expect(r, raw_barrier(r, &m, "still here"), STATUS_OK);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* A tuttid without a GPU keeps the order by the host, and says so; nobody's stream is promised anything. */
/* While tuttid still looks for GPUs it does not know yet. */
static struct reply ask_for_signals(struct raw *r) {
        const struct request ask = { .type = REQUEST_OPEN_SIGNALS,
                .open_signals = { ORDER_TIMELINE, "GPU-0" } };
        for (int i = 0; i < 300; i++) {
                const struct reply reply = raw_await(r, raw_send(r, &ask));
                if (reply.status != STATUS_BUSY)
                        return reply;
                usleep(100000);
        }
        ck_abort_msg("after 30 s the GPUs are still being tested");
        return (struct reply){ 0 };
}

START_TEST(signals_are_not_promised_where_nobody_would_keep_them) {
        struct host *h = host_start(NULL);
        struct raw *r = raw_open(host_socket(h));
        const struct reply reply = ask_for_signals(r);
        ck_assert_int_eq(reply.status, STATUS_OK);
        ck_assert_int_eq(reply.type, REPLY_SIGNALS);
        ck_assert_int_eq(reply.signals.order, ORDER_HOST);
        ck_assert_uint_eq(r->packet.n_fds, 0);
        ck_assert_ptr_nonnull(strstr(reply.signals.why, "no GPU"));
        struct raw_member m = raw_join(r, "train", 0, 1);
        raw_buffer(r, 1, raw_memfd(4096), 4096);
        const struct entry entry = raw_entry(1, 16);
        struct request submit = raw_submit_request(&m, "a", &entry);
        submit.submit.signal = (struct msg_signal){ 0, 1 };
        const struct reply refused = raw_expect(r, raw_send(r, &submit), STATUS_INVALID);
        ck_assert_int_eq(refused.error->field, FIELD_OPTIONS);
        ck_assert_ptr_nonnull(strstr(refused.error->detail, "device memory"));
        raw_expect(r, raw_submit(r, &m, "a", 1, 16), STATUS_OK); /* the group is unharmed */
        raw_close(r);
        host_stop(h);
}
END_TEST

UNIT_MAIN("protocol", 40, P9_the_page_says_begun_before_the_first_store_and_done_before_the_reply,
        P9_what_is_refused_has_not_begun, A7_a_failed_registration_reaches_the_peers_also_in_a_batch,
        P15_later_messages_answer_UNSUPPORTED, signals_are_not_promised_where_nobody_would_keep_them)
