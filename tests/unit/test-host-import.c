/* Which descriptors the host backend takes, and what it makes of them. */
#include <errno.h>
#include <stdio.h>
#include "backends/host/kernels.h"
#include "base/fd.h"
#include "failing.h"
#include "host-memory.h"
#include "pool.h"

static void assert_refused(
        int fd, uint64_t n_bytes, enum access access, enum status status, const char *advice) {
        struct backend *b = new_backend();
        ck_assert_int_ge(fd, 0);
        struct chore c = import(b, fd, n_bytes, access);
        ck_assert_str_eq(status_name(c.status), status_name(status));
        ck_assert_ptr_null(c.memory);
        ck_assert_msg(strstr(c.why, advice), "\"%s\" does not say \"%s\"", c.why, advice);
        ck_assert_int_eq(c.fd, fd);
        release(b, &c);
        b->ops->free(b);
}

START_TEST(a_memfd_is_sealed_mapped_and_guarded) {
        static const enum access accesses[] = { ACCESS_IN, ACCESS_OUT, ACCESS_INOUT };
        struct backend *b = new_backend();
        require_guard(b);
        for (size_t i = 0; i < ARRAY_SIZE(accesses); i++) {
                int fd = make_filled_memfd(3 * PAGE);
                struct chore c = import(b, fd, 2 * PAGE + 1, accesses[i]);
                ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
                ck_assert_uint_eq(c.memory->session, 7);
                ck_assert_uint_eq(c.memory->buffer, 9);
                ck_assert_uint_eq(c.memory->n_bytes, 2 * PAGE + 1);
                ck_assert(c.memory->is_guarded);
                ck_assert(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
                release(b, &c);
        }
        b->ops->free(b);
}
END_TEST

START_TEST(O1_truncation_after_import_is_refused_by_the_kernel) {
        struct backend *b = new_backend();
        int fd = make_filled_memfd(2 * PAGE), mine = dup(fd);
        struct chore c = import(b, fd, 2 * PAGE, ACCESS_INOUT);
        ck_assert_int_eq(c.status, STATUS_OK);
        ck_assert_int_eq(ftruncate(mine, PAGE), -1);
        ck_assert_int_eq(errno, EPERM);
        release(b, &c);
        close(mine);
        b->ops->free(b);
}
END_TEST

START_TEST(O1_a_memfd_that_already_has_the_seal_is_taken) {
        struct backend *b = new_backend();
        int fd = make_filled_memfd(PAGE);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
        struct chore c = import(b, fd, PAGE, ACCESS_OUT);
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        release(b, &c);
        b->ops->free(b);
}
END_TEST

START_TEST(O1_a_regular_file_is_refused) {
        char path[512];
        snprintf(path, sizeof(path), "%s/file", unit_directory());
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_eq(ftruncate(fd, PAGE), 0);
        /* On a tmpfs it has seals, but takes none. */
        assert_refused(fd, PAGE, ACCESS_INOUT, STATUS_BAD_FD, "memfd_create(MFD_ALLOW_SEALING)");
}
END_TEST

START_TEST(O1_a_file_of_dev_shm_is_refused) {
        char path[] = "/dev/shm/tutti-test-XXXXXX";
        int fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0)
                unit_skip("no /dev/shm");
        unlink(path);
        ck_assert_int_eq(ftruncate(fd, PAGE), 0);
        assert_refused(fd, PAGE, ACCESS_INOUT, STATUS_BAD_FD, "/dev/shm");
}
END_TEST

START_TEST(O1_a_memfd_that_takes_no_seals_is_refused) {
        int fd = memfd_create("client", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(fd, PAGE), 0);
        assert_refused(fd, PAGE, ACCESS_IN, STATUS_BAD_FD, "memfd_create(MFD_ALLOW_SEALING)");
}
END_TEST

START_TEST(O1_a_memfd_opened_read_only_is_refused) {
        char path[64];
        int fd = make_filled_memfd(PAGE);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int read_only = open(path, O_RDONLY | O_CLOEXEC);
        close(fd);
        assert_refused(read_only, PAGE, ACCESS_IN, STATUS_BAD_FD, "not open for reading and writing");
}
END_TEST

START_TEST(O1_a_memfd_sealed_against_writing_is_refused) {
        static const int seals[] = { F_SEAL_WRITE, F_SEAL_FUTURE_WRITE };
        for (size_t i = 0; i < ARRAY_SIZE(seals); i++) {
                int fd = make_filled_memfd(PAGE);
                ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
                assert_refused(fd, PAGE, ACCESS_IN, STATUS_BAD_FD, "sealed against writing");
        }
}
END_TEST

START_TEST(O1_a_memfd_shorter_than_said_is_refused) {
        assert_refused(make_filled_memfd(PAGE), PAGE + 1, ACCESS_INOUT, STATUS_INVALID, "enlarge it");
        assert_refused(make_filled_memfd(PAGE), UINT64_MAX, ACCESS_INOUT, STATUS_INVALID, "has 4096 bytes");
}
END_TEST

START_TEST(O1_what_is_no_memory_is_refused) {
        int pipes[2];
        ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
        assert_refused(pipes[0], PAGE, ACCESS_IN, STATUS_BAD_FD, "not a memfd");
        close(pipes[1]);
        assert_refused(open("/dev/zero", O_RDWR | O_CLOEXEC), PAGE, ACCESS_IN, STATUS_BAD_FD, "not a memfd");
        assert_refused(open("/", O_PATH | O_CLOEXEC), PAGE, ACCESS_IN, STATUS_BAD_FD, "not a memfd");
}
END_TEST

/* --- pages of the pool --- */

static int make_pool_memfd(uint64_t n_bytes) {
        int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21u << 26);
        if (fd < 0)
                unit_skip("this kernel has no pool of 2 MiB pages");
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

/* One element from there to another buffer. */
static enum status copy_from(struct backend *b, struct buffer *from, uint64_t offset, struct buffer *to,
        const struct memory **ret_culprit) {
        struct plan p;
        const struct step step = {
                .kind = STEP_COPY, .dtype = DTYPE_F32, .count = 1, .n_inputs = 1, .n_outputs = 1
        };
        const struct spot places[] = { { from, offset }, { to, 0 } };
        plan_init(&p);
        add_step(&p, &step, places);
        plan_freeze(&p, 1 << 20);
        enum status status = run_plan(b, &p, ret_culprit);
        plan_deinit(&p);
        return status;
}

/* A hole is one page of the pool, anywhere in which the fault may be. */
START_TEST(F6_P16_a_hole_in_pages_of_the_pool_is_its_owners_fault) {
        const struct memory *culprit = NULL;
        struct backend *b = new_backend();
        struct buffer to, holed = { 0 };
        require_guard(b);
        pool_take(1);
        int fd = make_pool_memfd(2 * POOL_PAGE_BYTES);
        ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)POOL_PAGE_BYTES), 0);
        holed.chore = import(b, fd, POOL_PAGE_BYTES + 4096, ACCESS_INOUT);
        ck_assert_msg(holed.chore.status == STATUS_OK, "%s", holed.chore.why);
        ck_assert(holed.chore.memory->is_guarded);
        ck_assert_uint_eq(holed.chore.memory->pool_page_bytes, POOL_PAGE_BYTES);
        ck_assert_uint_eq(host_memory_of(holed.chore.memory)->n_map_bytes, 2 * POOL_PAGE_BYTES);
        ck_assert(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
        buffer_init(&to, b, PAGE, 8);
        ck_assert_int_eq(copy_from(b, &holed, POOL_PAGE_BYTES - 4, &to, &culprit), STATUS_OK);
        ck_assert_int_eq(copy_from(b, &holed, POOL_PAGE_BYTES + 4092, &to, &culprit), STATUS_BAD_FD);
        ck_assert_ptr_eq(culprit, holed.chore.memory);
        punch(fd, 0, POOL_PAGE_BYTES);
        ck_assert_uint_eq(pool_free(), 1);
        ck_assert_int_eq(copy_from(b, &holed, POOL_PAGE_BYTES - 4, &to, &culprit), STATUS_BAD_FD);
        ck_assert_uint_eq(pool_free(), 1); /* tuttid has taken none */
        ck_assert_uint_eq(count_pages(fd), 0);
        buffer_deinit(&to, b);
        release(b, &holed.chore);
        b->ops->free(b);
        pool_give_back();
}
END_TEST

/* A page of the pool is not tuttid's memory; without one there is a SIGBUS like any. */
START_TEST(F6_P16_unguarded_a_hole_takes_a_page_of_the_pool_or_is_survived) {
        const struct memory *culprit = NULL;
        struct backend *b = new_backend();
        struct buffer to, holed = { 0 };
        fd_close(&host_backend_of(b)->userfaultfd);
        pool_take(1);
        holed.chore = import(b, make_pool_memfd(2 * POOL_PAGE_BYTES), 2 * POOL_PAGE_BYTES, ACCESS_IN);
        ck_assert_msg(holed.chore.status == STATUS_OK, "%s", holed.chore.why);
        ck_assert(!holed.chore.memory->is_guarded);
        ck_assert_uint_eq(pool_free(), 1);
        buffer_init(&to, b, PAGE, 8);
        memset(to.data, 5, PAGE);
        ck_assert_int_eq(copy_from(b, &holed, 8, &to, &culprit), STATUS_OK);
        ck_assert_uint_eq(to.data[0], 0);
        ck_assert_uint_eq(pool_free(), 0);
        ck_assert_int_eq(copy_from(b, &holed, POOL_PAGE_BYTES, &to, &culprit), STATUS_BAD_FD);
        ck_assert_ptr_eq(culprit, holed.chore.memory);
        buffer_deinit(&to, b);
        release(b, &holed.chore);
        b->ops->free(b);
        pool_give_back();
}
END_TEST

/* Reserving for its mapping would be taking them from the client. */
START_TEST(F6_mapping_pages_of_the_pool_takes_none_of_it) {
        struct backend *b = new_backend();
        pool_take(2);
        struct chore c = import(b, make_pool_memfd(64 * POOL_PAGE_BYTES), 64 * POOL_PAGE_BYTES, ACCESS_IN);
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        ck_assert_uint_eq(pool_free(), 2);
        release(b, &c);
        b->ops->free(b);
        pool_give_back();
}
END_TEST

START_TEST(F6_transparent_pages_are_mapped_where_they_count) {
        struct backend *b = new_backend();
        for (uint64_t n = POOL_PAGE_BYTES; n < POOL_PAGE_BYTES + 3 * PAGE; n += PAGE) {
                struct chore c = { .kind = CHORE_IMPORT,
                        .fd = make_filled_memfd(n),
                        .n_bytes = n,
                        .access = ACCESS_INOUT,
                        .pages = PAGES_TRANSPARENT };
                b->ops->import(b, &c);
                ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
                uint8_t *map = host_memory_of(c.memory)->map;
                ck_assert_uint_eq((uintptr_t)map % POOL_PAGE_BYTES, 0);
                map[n - 1] = 1;
                release(b, &c);
        }
        b->ops->free(b);
}
END_TEST

START_TEST(no_bytes_are_a_buffer_too) {
        struct backend *b = new_backend();
        struct chore c = import(b, make_memfd(0), 0, ACCESS_INOUT);
        ck_assert_int_eq(c.status, STATUS_OK);
        ck_assert_uint_eq(c.memory->n_bytes, 0);
        release(b, &c);
        b->ops->free(b);
}
END_TEST

START_TEST(memory_that_cannot_be_mapped_is_refused) {
        /* A file may be larger than any address space. */
        assert_refused(make_memfd(INT64_MAX - PAGE + 1), INT64_MAX - PAGE + 1, ACCESS_IN, STATUS_NO_MEMORY,
                "mapping");
}
END_TEST

START_TEST(every_failing_call_of_an_import_is_a_status) {
        struct backend *b = new_backend();
        unsigned int n_failures = 0;
        for (unsigned int n = 1;; n++) {
                struct chore c = { .kind = CHORE_IMPORT, .fd = make_filled_memfd(PAGE), .n_bytes = PAGE };
                failing_call_at(FAILING_ALL, n);
                b->ops->import(b, &c);
                failing_call_at(FAILING_ALL, 0);
                bool has_failed = failing_has_failed();
                ck_assert_int_eq(c.status == STATUS_OK, !has_failed);
                ck_assert_int_eq(c.memory != NULL, !has_failed);
                ck_assert_int_eq(c.why[0] != '\0', has_failed);
                release(b, &c);
                if (!has_failed)
                        break;
                n_failures++;
        }
        ck_assert_uint_ge(n_failures, 4);
        b->ops->free(b);
}
END_TEST

START_TEST(a_backend_without_memory_is_an_error) {
        struct backend *b = NULL;
        failing_at(1);
        ck_assert_int_eq(host_backend_new(&b, ISA_AUTO), -ENOMEM);
        failing_at(0);
        ck_assert_ptr_null(b);
}
END_TEST

/* Whether this process has a page table entry for it, so that touching it is no fault. */
static bool is_mapped(const void *page) {
        uint64_t entry = 0;
        int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)page / PAGE * sizeof(entry))),
                sizeof(entry));
        close(fd);
        return entry >> 63;
}

START_TEST(existing_pages_are_mapped_by_the_import) {
        static const enum access accesses[] = { ACCESS_IN, ACCESS_OUT };
        struct backend *b = new_backend();
        require_guard(b);
        for (size_t i = 0; i < ARRAY_SIZE(accesses); i++) {
                int fd = make_filled_memfd(8 * PAGE);
                punch(fd, 6 * PAGE, PAGE);
                struct chore c = import(b, fd, 8 * PAGE, accesses[i]);
                ck_assert_int_eq(c.status, STATUS_OK);
                for (uint32_t page = 0; page < 6; page++)
                        ck_assert(is_mapped(host_memory_of(c.memory)->map + page * PAGE));
                ck_assert(!is_mapped(host_memory_of(c.memory)->map + 6 * PAGE));
                ck_assert_uint_eq(count_pages(fd), 7);
                release(b, &c);
        }
        b->ops->free(b);
}
END_TEST

START_TEST(it_describes_itself) {
        char text[128], expected[128];
        for (enum isa isa = ISA_SCALAR; isa <= kernels_isa(ISA_AUTO); isa++) {
                struct backend *b = NULL;
                ck_assert_int_eq(host_backend_new(&b, isa), 0);
                ck_assert_str_eq(b->ops->name, "host");
                b->ops->describe(b, text, sizeof(text));
                snprintf(expected, sizeof(expected), "%s, %s", isa_name(isa),
                        b->ops->fallback(b) ? "unguarded" : "guarded by userfaultfd");
                ck_assert_str_eq(text, expected);
                b->ops->free(b);
        }
}
END_TEST

START_TEST(freeing_nothing_is_harmless) {
        struct backend *b = new_backend();
        struct chore c = { .kind = CHORE_RELEASE, .fd = -1 };
        b->ops->release(b, &c);
        ck_assert_int_eq(c.fd, -1);
        b->ops->free(b);
}
END_TEST

UNIT_MAIN("host-import", 20, a_memfd_is_sealed_mapped_and_guarded,
        O1_truncation_after_import_is_refused_by_the_kernel, O1_a_memfd_that_already_has_the_seal_is_taken,
        O1_a_regular_file_is_refused, O1_a_file_of_dev_shm_is_refused,
        O1_a_memfd_that_takes_no_seals_is_refused, O1_a_memfd_opened_read_only_is_refused,
        O1_a_memfd_sealed_against_writing_is_refused, O1_a_memfd_shorter_than_said_is_refused,
        O1_what_is_no_memory_is_refused, F6_P16_a_hole_in_pages_of_the_pool_is_its_owners_fault,
        F6_P16_unguarded_a_hole_takes_a_page_of_the_pool_or_is_survived,
        F6_mapping_pages_of_the_pool_takes_none_of_it, F6_transparent_pages_are_mapped_where_they_count,
        no_bytes_are_a_buffer_too, memory_that_cannot_be_mapped_is_refused,
        every_failing_call_of_an_import_is_a_status, a_backend_without_memory_is_an_error,
        existing_pages_are_mapped_by_the_import, it_describes_itself, freeing_nothing_is_harmless)
