/* Clients that mean harm to result objects: they write what they may only read, name what is not theirs, take
 * more than there is, and go at the worst moment. Beside them an honest group meets (P17 P18 P19 P20 P21). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "meeting.h"
#include "raw.h"
#include "stage.h"
#include "unit.h"

#define PAGE       4096
#define SLOT_BYTES 4000

static struct request make_request(const struct raw_member *m, const char *name, uint64_t n_bytes) {
        return (struct request){ .type = REQUEST_MAKE_RESULT,
                .make_result = { .membership = m->membership,
                        .has_key = true,
                        .key = raw_key(name),
                        .size_bytes = n_bytes,
                        .device = "" } };
}

/* Its id; its descriptor, where it is wanted. */
static uint64_t make(struct raw *r, const struct raw_member *m, const char *name, int *ret_fd) {
        const struct request request = make_request(m, name, SLOT_BYTES);
        const struct reply reply = raw_expect(r, raw_send(r, &request), STATUS_OK);
        ck_assert_int_eq(reply.type, REPLY_RESULT);
        ck_assert_uint_eq(r->packet.n_fds, 1);
        if (ret_fd)
                *ret_fd = fd_take(&r->packet.fds[0]);
        return reply.result.result;
}

static uint64_t release(
        struct raw *r, const struct raw_member *m, uint64_t result, uint32_t slot, bool detach) {
        return raw_send(r, &(struct request){ .type = REQUEST_RELEASE_RESULT,
                                   .release_result = { result, m->membership, slot, detach } });
}

static uint64_t submit(struct raw *r, const struct raw_member *m, const char *key, struct place output) {
        struct entry e = raw_entry(1, 8);
        e.output = output;
        const struct request request = raw_submit_request(m, key, &e);
        return raw_send(r, &request);
}

/* --- P17: what they get they can only read --- */

static void try_all_ways_to_write(int fd) {
        char path[64];
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_int_eq(st.st_size, 2 * PAGE);
        ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
        void *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(map, MAP_FAILED);
        ck_assert_int_eq(mprotect(map, PAGE, PROT_READ | PROT_WRITE), -1);
        ck_assert_int_eq(madvise(map, PAGE, MADV_REMOVE), -1);
        munmap(map, PAGE);
        ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), -1);
        ck_assert_int_eq(ftruncate(fd, PAGE), -1);
        ck_assert_int_eq(ftruncate(fd, 4 * PAGE), -1);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR | O_CLOEXEC); /* root may open it, and can write as little */
        if (again >= 0) {
                ck_assert_int_eq(pwrite(again, "x", 1, 0), -1);
                ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
                close(again);
        }
}

START_TEST(P17_a_member_cannot_write_what_it_reads_nor_hand_it_in_as_a_buffer) {
        struct stage s;
        int fd = -1;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        uint64_t id = make(r, &m, "sums", &fd);
        try_all_ways_to_write(fd);
        raw_expect(r, raw_register(r, 2, fd, PAGE), STATUS_BAD_FD);
        raw_buffer(r, 1, raw_memfd(PAGE), PAGE);
        raw_expect(r, submit(r, &m, "a", (struct place){ .result = id }), STATUS_OK);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* --- P19: what is not theirs --- */

START_TEST(P19_other_groups_and_memberships_are_not_reached_by_id) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct raw_member first = raw_join(a, "first", 0, 1), second = raw_join(b, "second", 0, 1);
        uint64_t id = make(a, &first, "sums", NULL), other = make(b, &second, "sums", NULL);
        ck_assert_uint_ne(id, other);
        raw_buffer(a, 1, raw_memfd(PAGE), PAGE);
        raw_buffer(b, 1, raw_memfd(PAGE), PAGE);
        raw_expect(a, submit(a, &first, "a", (struct place){ .result = id }), STATUS_OK);
        raw_expect(b, submit(b, &second, "foreign", (struct place){ .result = id }), STATUS_NOT_FOUND);
        raw_expect(b, submit(b, &second, "none", (struct place){ .result = 4711 }), STATUS_NOT_FOUND);
        for (int detach = 0; detach < 2; detach++) {
                raw_expect(b, release(b, &second, id, 0, detach), STATUS_NOT_FOUND);
                raw_expect(b, release(b, &first, id, 0, detach), STATUS_NOT_FOUND);
                raw_expect(a, release(a, &second, other, 0, detach), STATUS_NOT_FOUND);
        }
        const struct request as_other = make_request(&first, "sums", SLOT_BYTES);
        raw_expect(b, raw_send(b, &as_other), STATUS_NOT_FOUND);
        raw_expect(b, release(b, &second, other, 0, false), STATUS_INVALID); /* its own, not held */
        raw_expect(a, release(a, &first, id, 0, false), STATUS_OK);          /* it was, all the time */
        raw_expect(a, release(a, &first, id, 0, false), STATUS_INVALID);
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

START_TEST(P4_places_that_cannot_be_are_refused) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        uint64_t id = make(r, &m, "sums", NULL);
        raw_buffer(r, 1, raw_memfd(PAGE), PAGE);
        const struct place wrong[] = {
                { .result = id, .offset_bytes = SLOT_BYTES - 28 },
                { .result = id, .offset_bytes = PAGE }, /* the next slot */
                { .result = id, .offset_bytes = 2 },
                { .result = id, .offset_bytes = UINT64_MAX - 3 },
                { .result = id, .buffer = 1 },
        };
        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
                raw_expect(r, submit(r, &m, "a", wrong[i]), STATUS_INVALID);
        struct entry e = raw_entry(1, 8);
        e.input = (struct place){ .result = id };
        struct request request = raw_submit_request(&m, "a", &e);
        raw_expect(r, raw_send(r, &request), STATUS_INVALID);
        e = raw_entry(1, 8);
        e.output = (struct place){ .result = id };
        for (int to = DESTINATION_RANK; to <= DESTINATION_SAME; to++) {
                e.destination = (enum destination)to;
                e.destination_device = DEVICE_UNKNOWN;
                request = raw_submit_request(&m, "a", &e);
                raw_expect(r, raw_send(r, &request), STATUS_INVALID);
        }
        raw_expect(r, submit(r, &m, "a", (struct place){ .result = id, .offset_bytes = SLOT_BYTES - 32 }),
                STATUS_OK);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* --- P18: more than there is --- */

START_TEST(P18_bytes_slots_and_descriptors_of_result_objects_are_limited) {
        struct stage s;
        char name[16];
        stage_set(&s, (const char *[]){ "--set", "quota.result-bytes=1 MiB", NULL });
        struct raw *r = raw_open(host_socket(s.h));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        struct request request = make_request(&m, "large", UINT64_MAX);
        raw_expect(r, raw_send(r, &request), STATUS_LIMIT);
        request = make_request(&m, "large", UINT64_C(1) << 46);
        raw_expect(r, raw_send(r, &request), STATUS_QUOTA);
        request = make_request(&m, "large", 1);
        request.make_result.n_slots = UINT32_MAX;
        raw_expect(r, raw_send(r, &request), STATUS_LIMIT);
        for (int i = 0; i < 128; i++) { /* two pages each */
                snprintf(name, sizeof(name), "o%d", i);
                make(r, &m, name, NULL);
        }
        request = make_request(&m, "one more", 1);
        const struct reply reply = raw_expect(r, raw_send(r, &request), STATUS_QUOTA);
        ck_assert_uint_eq(reply.error->used, 1 << 20);
        ck_assert_uint_eq(reply.error->limit, 1 << 20);
        ck_assert_str_eq(reply.error->detail, "result-bytes");
        ck_assert_uint_eq(raw_used(r, "result-bytes"), 1 << 20);
        ck_assert_uint_ge(raw_used(r, "descriptors"), 256);
        stage_expect_progress();
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* Detached, but not let go: the memory is there, and so is the charge. */
START_TEST(P18_who_keeps_the_memory_keeps_the_charge) {
        struct stage s;
        int fd = -1;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        uint64_t id = make(r, &m, "sums", &fd);
        raw_expect(r, release(r, &m, id, 0, true), STATUS_OK);
        seconds_sleep(0.2);
        ck_assert_uint_eq(raw_used(r, "result-bytes"), 2 * PAGE);
        void *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(map, MAP_FAILED);
        close(fd);
        raw_close(r); /* nor does the end of the session change it */
        r = raw_open(host_socket(s.h));
        seconds_sleep(0.2);
        ck_assert_uint_eq(raw_used(r, "result-bytes"), 2 * PAGE);
        munmap(map, PAGE);
        double limit = seconds_now() + 5 * unit_scale();
        while (raw_used(r, "result-bytes") > 0) {
                ck_assert(seconds_now() < limit);
                seconds_sleep(0.01);
        }
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* A peer that reads nothing: its replies wait, with their descriptors and what these keep alive. */
START_TEST(P21_who_reads_nothing_delays_nobody_and_is_charged) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        const struct request one = make_request(&m, "sums", 1);
        watch_begin();
        for (uint64_t i = 1; i <= 20000; i++) {
                struct request request = one;
                raw_try_send(r, &request, NULL, 0);
                request = (struct request){ .type = REQUEST_RELEASE_RESULT,
                        .release_result = { i, m.membership, 0, true } };
                raw_try_send(r, &request, NULL, 0);
        }
        watch_end(1);
        struct raw *other = raw_open(host_socket(s.h));
        ck_assert_uint_gt(raw_used(other, "result-bytes"), 0);
        raw_close(other);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* --- P20: gone at the worst moment --- */

/* Asks, submits, releases, and is gone `n` packets later. */
static void come_and_go(struct host *h, int round, int n) {
        char group[32];
        snprintf(group, sizeof(group), "g%d-%d", round, n);
        struct raw *r = raw_open(host_socket(h));
        struct raw_member m = raw_join(r, group, 0, 1);
        uint64_t guess = (uint64_t)(round * 5 + n); /* objects made so far, if all were */
        raw_buffer(r, 1, raw_memfd(PAGE), PAGE);
        const struct request object = make_request(&m, "sums", SLOT_BYTES);
        if (n > 0)
                raw_send(r, &object);
        for (int i = 1; i < n; i++) {
                submit(r, &m, i % 2 ? "a" : "b", (struct place){ .result = guess });
                release(r, &m, guess, (uint32_t)i % 3, i % 4 == 3);
        }
        raw_close(r);
}

START_TEST(P20_nothing_is_left_of_those_who_go_in_between) {
        struct stage s;
        stage_set(&s, NULL);
        for (int round = 0; round < 30; round++)
                for (int n = 0; n < 6; n++)
                        come_and_go(s.h, round, n);
        stage_clear(&s);
}
END_TEST

UNIT_MAIN("hostile-results", 60, P17_a_member_cannot_write_what_it_reads_nor_hand_it_in_as_a_buffer,
        P19_other_groups_and_memberships_are_not_reached_by_id, P4_places_that_cannot_be_are_refused,
        P18_bytes_slots_and_descriptors_of_result_objects_are_limited,
        P18_who_keeps_the_memory_keeps_the_charge, P21_who_reads_nothing_delays_nobody_and_is_charged,
        P20_nothing_is_left_of_those_who_go_in_between)
