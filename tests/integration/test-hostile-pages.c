/* Pages of tuttid's that a client keeps when it is gone: they stay charged to it, and go when it lets go. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"
#include "host.h"
#include "meeting.h"
#include "raw-lane.h"
#include "raw.h"
#include "unit.h"

#define MANY 64

/* Greeted, gone, and the descriptor of its status page kept. */
static enum status come_and_go(struct host *h, int *ret_page) {
        struct raw *r = raw_connect(host_socket(h));
        const struct reply reply = raw_await(r, raw_hello(r));
        enum status status = reply.status;
        if (status == STATUS_OK) {
                ck_assert_uint_eq(r->packet.n_fds, 1);
                *ret_page = fd_take(&r->packet.fds[0]);
        } else {
                ck_assert_int_eq(status, STATUS_QUOTA);
                ck_assert_str_eq(reply.error->detail, "memory-bytes");
                ck_assert_uint_eq(reply.error->limit, 4 << 20);
                raw_expect_ejected(r, STATUS_QUOTA);
        }
        raw_close(r);
        return status;
}

/* What lingers is looked at in turn, less often the longer it does. */
static void expect_below(struct raw *r, uint64_t n_bytes) {
        double limit = seconds_now() + 5 * unit_scale();
        uint64_t now;
        while ((now = raw_used(r, "memory-bytes")) >= n_bytes)
                ck_assert_msg(seconds_now() < limit, "%llu bytes, not below %llu", (unsigned long long)now,
                        (unsigned long long)n_bytes);
}

START_TEST(P18_status_pages_that_somebody_keeps_stay_charged) {
        struct host *h = host_start((const char *[]){ "--set", "quota.memory-bytes=4MiB", NULL });
        struct raw *there = raw_open(host_socket(h));
        uint64_t memory = raw_used(there, "memory-bytes");
        int pages[MANY];
        uint32_t n = 0;
        while (n < MANY && come_and_go(h, &pages[n]) == STATUS_OK)
                n++;
        ck_assert_uint_lt(n, (4 << 20) / STATUS_MEMFD_BYTES);
        ck_assert_uint_ge(n, 24);
        raw_expect_used(there, "connections", 1);
        raw_expect_used(there, "descriptors", 3 + n);
        ck_assert_uint_ge(raw_used(there, "memory-bytes"), memory + n * STATUS_MEMFD_BYTES);
        ck_assert_uint_gt(memory + (n + 1) * STATUS_MEMFD_BYTES, 3 << 20); /* the limit was near */
        raw_buffer(there, 1, raw_memfd(4096), 4096);                       /* who is there goes on */
        for (uint32_t i = 0; i < n; i++)
                close(pages[i]);
        raw_expect_used(there, "descriptors", 4);
        expect_below(there, memory + STATUS_MEMFD_BYTES);
        raw_close(there);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* Its slot, by a mapping alone. */
START_TEST(P18_the_page_of_a_lane_that_somebody_keeps_stays_charged) {
        struct host *h = host_start(NULL);
        struct raw *there = raw_open(host_socket(h));
        uint64_t memory = raw_used(there, "memory-bytes"), descriptors = raw_used(there, "descriptors");
        struct raw_lane lanes[8];
        for (uint32_t i = 0; i < 8; i++) {
                struct raw *r = raw_open_lane(host_socket(h), &lanes[i]);
                fd_close(&lanes[i].slot_fd);
                raw_close(r);
        }
        raw_expect_used(there, "connections", 1);
        raw_expect_used(there, "descriptors", descriptors + 2 * 8); /* two pages each */
        ck_assert_uint_ge(
                raw_used(there, "memory-bytes"), memory + 8 * (STATUS_MEMFD_BYTES + LANE_PAGE_BYTES));
        for (uint32_t i = 0; i < 8; i++)
                raw_lane_close(&lanes[i]);
        raw_expect_used(there, "descriptors", descriptors);
        raw_close(there);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* What nobody keeps costs nobody anything, however often it comes and goes. */
START_TEST(P18_who_keeps_nothing_may_come_as_often_as_it_likes) {
        struct host *h = host_start((const char *[]){ "--set", "quota.memory-bytes=4MiB", NULL });
        struct raw *there = raw_open(host_socket(h));
        for (int i = 0; i < 300; i++) {
                int page;
                ck_assert_int_eq(come_and_go(h, &page), STATUS_OK);
                close(page);
                if (i % 16 == 15) /* who says no goodbye is waited for, for 50 ms */
                        raw_expect_used(there, "descriptors", 3);
        }
        raw_close(there);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("hostile-pages", 60, P18_status_pages_that_somebody_keeps_stay_charged,
        P18_the_page_of_a_lane_that_somebody_keeps_stays_charged,
        P18_who_keeps_nothing_may_come_as_often_as_it_likes)
