/* Memory that tuttid makes for clients: whole, zero, writable by us, and by nobody else whatever he tries. */
#include <errno.h>
#include <stdio.h>
#include "failing.h"
#include "host-memory.h"

static struct chore make(struct backend *b, uint64_t n_bytes) {
        struct chore c = { .kind = CHORE_MAKE, .fd = -1, .n_bytes = n_bytes };
        b->ops->make(b, &c);
        return c;
}

static void unmake(struct backend *b, struct chore *c) {
        c->kind = CHORE_UNMAKE;
        b->ops->unmake(b, c);
        ck_assert_ptr_null(c->memory);
        ck_assert_int_eq(c->read_fd, -1);
}

/* ... and nobody else has it. */
static void unmake_all(struct backend *b, struct chore *c) {
        unmake(b, c);
        ck_assert_int_eq(c->fd, -1);
}

START_TEST(P18_who_has_a_descriptor_or_a_mapping_of_it_is_noticed) {
        struct backend *b = new_backend();
        struct chore c = make(b, PAGE);
        char path[64];
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        int theirs = dup(c.read_fd);
        unmake(b, &c);
        ck_assert_int_ge(c.fd, 0);
        void *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, theirs, 0);
        ck_assert_ptr_ne(map, MAP_FAILED);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", theirs);
        int again = open(path, O_RDWR | O_CLOEXEC);
        close(theirs);
        unmake(b, &c);
        ck_assert_int_ge(c.fd, 0);
        munmap(map, PAGE);
        if (again >= 0) {
                unmake(b, &c);
                ck_assert_int_ge(c.fd, 0);
                close(again);
        }
        unmake_all(b, &c);
        b->ops->free(b);
}
END_TEST

START_TEST(P17_it_is_there_zero_and_ours_to_write) {
        struct backend *b = new_backend();
        struct chore c = make(b, 3 * PAGE);
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        ck_assert_uint_eq(c.memory->n_bytes, 3 * PAGE);
        ck_assert_uint_eq(count_pages(c.fd), 3);
        uint8_t *map = host_memory_of(c.memory)->map;
        for (size_t i = 0; i < 3 * PAGE; i++)
                ck_assert_uint_eq(map[i], 0);
        map[5] = 7;
        uint8_t seen = 0;
        ck_assert_int_eq(pread(c.fd, &seen, 1, 5), 1);
        ck_assert_uint_eq(seen, 7);
        unmake_all(b, &c);
        b->ops->free(b);
}
END_TEST

/* Every way that there is, by a descriptor that is open for writing. */
START_TEST(P17_nobody_else_can_write_punch_or_resize_it) {
        struct backend *b = new_backend();
        struct chore c = make(b, 2 * PAGE);
        char path[64];
        ck_assert_int_eq(c.status, STATUS_OK);
        ck_assert_int_eq(pwrite(c.read_fd, "x", 1, 0), -1);
        ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, c.read_fd, 0), MAP_FAILED);
        ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, c.fd, 0), MAP_FAILED);
        void *map = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, c.fd, 0);
        ck_assert_ptr_ne(map, MAP_FAILED);
        ck_assert_int_eq(mprotect(map, PAGE, PROT_READ | PROT_WRITE), -1);
        ck_assert_int_eq(errno, EACCES);
        ck_assert_int_eq(madvise(map, PAGE, MADV_REMOVE), -1);
        munmap(map, 2 * PAGE);
        ck_assert_int_eq(pwrite(c.fd, "x", 1, 0), -1);
        ck_assert_int_eq(fallocate(c.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), -1);
        ck_assert_int_eq(fallocate(c.fd, 0, 2 * PAGE, PAGE), -1);
        ck_assert_int_eq(ftruncate(c.fd, PAGE), -1);
        ck_assert_int_eq(ftruncate(c.fd, 3 * PAGE), -1);
        ck_assert_int_eq(fcntl(c.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", c.fd);
        int again = open(path, O_RDWR | O_CLOEXEC);
        if (again >= 0) { /* the seals belong to the file, not to the descriptor */
                ck_assert_int_eq(pwrite(again, "x", 1, 0), -1);
                ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
                close(again);
        }
        ck_assert_int_eq(open(path, O_RDWR | O_TRUNC | O_CLOEXEC), -1);
        ck_assert_uint_eq(count_pages(c.fd), 2);
        unmake_all(b, &c);
        b->ops->free(b);
}
END_TEST

START_TEST(what_the_host_does_not_have_is_refused_with_figures) {
        struct backend *b = new_backend();
        struct chore c = make(b, UINT64_C(1) << 46);
        ck_assert_int_eq(c.status, STATUS_NO_MEMORY);
        ck_assert_int_eq(c.fd, -1);
        ck_assert_ptr_null(c.memory);
        ck_assert_ptr_nonnull(strstr(c.why, "needs 70368744177664 bytes, about"));
        b->ops->free(b);
}
END_TEST

START_TEST(whatever_fails_nothing_is_left) {
        struct backend *b = new_backend();
        const unsigned int calls = FAILING_MEMORY | FAILING_MMAP | FAILING_MEMFD | FAILING_FCNTL;
        unsigned int n = 1;
        for (;; n++) {
                int n_before = unit_count_descriptors();
                failing_call_at(calls, n);
                struct chore c = make(b, PAGE);
                bool has_failed = failing_has_failed();
                failing_call_at(0, 0);
                if (!has_failed) {
                        ck_assert_int_eq(c.status, STATUS_OK);
                        unmake_all(b, &c);
                        break;
                }
                ck_assert_int_ne(c.status, STATUS_OK);
                ck_assert_int_eq(c.fd, -1);
                ck_assert_ptr_null(c.memory);
                ck_assert_str_ne(c.why, "");
                ck_assert_int_eq(unit_count_descriptors(), n_before);
        }
        ck_assert_uint_gt(n, 4); /* the struct, the memfd, the map, the seals */
        b->ops->free(b);
}
END_TEST

UNIT_MAIN("host-make", 20, P18_who_has_a_descriptor_or_a_mapping_of_it_is_noticed,
        P17_it_is_there_zero_and_ours_to_write, P17_nobody_else_can_write_punch_or_resize_it,
        what_the_host_does_not_have_is_refused_with_figures, whatever_fails_nothing_is_left)
