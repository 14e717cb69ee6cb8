#include "raw-lane.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/memfd.h"
#include "meeting.h"
#include "unit.h"

static int take_fd(struct raw *r) {
        ck_assert_uint_eq(r->packet.n_fds, 1);
        return fd_take(&r->packet.fds[0]);
}

static void map_page(struct raw *r, struct raw_lane *l) {
        int fd = take_fd(r);
        void *at = mmap(NULL, STATUS_MEMFD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(at, MAP_FAILED);
        close(fd);
        l->page = at;
        l->board = (const void *)(l->page + STATUS_PAGE_SLOTS);
}

struct raw *raw_open_lane(const char *socket, struct raw_lane *ret) {
        struct raw *r = raw_connect(socket);
        struct reply reply;
        raw_expect(r, raw_hello(r), STATUS_OK);
        map_page(r, ret);
        uint64_t request = raw_send(r, &(struct request){ .type = REQUEST_OPEN_LANE });
        do
                ck_assert(raw_take(r, &reply));
        while (reply.request != request);
        ck_assert_int_eq(reply.status, STATUS_OK);
        ck_assert(reply.more && reply.type == REPLY_LANE);
        int fd = take_fd(r);
        ret->slot_fd = memfd_open_anew(fd, O_RDWR);
        ck_assert_int_ge(ret->slot_fd, 0);
        close(fd);
        ret->slot = mmap(NULL, LANE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ret->slot_fd, 0);
        ck_assert_ptr_ne(ret->slot, MAP_FAILED);
        reply = raw_expect(r, request, STATUS_OK);
        ck_assert_int_eq(reply.type, REPLY_LANE);
        ret->bell = take_fd(r);
        return r;
}

void raw_lane_close(struct raw_lane *l) {
        munmap(l->slot, LANE_PAGE_BYTES);
        munmap((void *)(uintptr_t)l->page, STATUS_MEMFD_BYTES);
        fd_close(&l->slot_fd);
        fd_close(&l->bell);
}

uint64_t raw_lane_write(
        struct raw *r, struct raw_lane *l, const struct raw_member *m, const char *key, uint64_t number) {
        struct lane_slot *slot = l->slot;
        uint64_t words[LANE_KEY_WORDS] = { 0 };
        uint64_t request = r->next_request++;
        memcpy(words, key, strlen(key));
        slot->request = request;
        slot->prepared = number;
        slot->membership = m->membership;
        slot->epoch = m->epoch;
        slot->key_bytes = strlen(key);
        for (size_t i = 0; i < LANE_KEY_WORDS; i++)
                slot->key[i] = words[i];
        slot->start++;
        return request;
}

void raw_lane_ring_bell(struct raw_lane *l) {
        static const uint64_t one = 1;
        ck_assert_int_eq(write(l->bell, &one, sizeof(one)), sizeof(one));
}

uint64_t raw_lane_start(
        struct raw *r, struct raw_lane *l, const struct raw_member *m, const char *key, uint64_t number) {
        uint64_t request = raw_lane_write(r, l, m, key, number);
        if (!l->board->is_watched)
                raw_lane_ring_bell(l);
        return request;
}

void raw_lane_ring(struct raw *r, uint64_t request) {
        raw_send(r, &(struct request){ .request = request, .type = REQUEST_RING });
}

/* --- what tuttid writes --- */

enum page_state raw_lane_state(const struct raw_lane *l, uint64_t request) {
        const struct page_slot *slot = &l->page[request % STATUS_PAGE_SLOTS];
        return slot->request == request ? (enum page_state)slot->state : PAGE_FREE;
}

#define until(condition, ...)                                                                                \
        do {                                                                                                 \
                double limit_ = seconds_now() + 2 * unit_scale();                                            \
                while (!(condition)) {                                                                       \
                        ck_assert_msg(seconds_now() < limit_, __VA_ARGS__);                                  \
                        sched_yield();                                                                       \
                }                                                                                            \
        } while (0)

uint64_t raw_lane_expect_done(const struct raw_lane *l, uint64_t request) {
        until(raw_lane_state(l, request) == PAGE_DONE, "request %llu is not done: state %d",
                (unsigned long long)request, raw_lane_state(l, request));
        return l->page[request % STATUS_PAGE_SLOTS].collective;
}

void raw_lane_expect_passed(const struct raw_lane *l) {
        until(l->board->passed == l->slot->start, "start %llu is not passed on, but %llu",
                (unsigned long long)l->slot->start, (unsigned long long)l->board->passed);
}

void raw_lane_expect_open(const struct raw_lane *l, bool is_open) {
        until(l->board->is_open == is_open, "the lane is %sopen", is_open ? "not " : "");
}
