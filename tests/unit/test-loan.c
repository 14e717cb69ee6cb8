/* Pages that are lent: charged as long as anybody has them, and gone soon after. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "failing.h"
#include "loan.h"
#include "unit.h"
#include "wire/channel.h"

#define N_BYTES 8192

struct fixture {
        struct quotas *quotas;
        struct loans *loans;
        struct error err;
        int n_descriptors;
};

static const struct quota_limits limits = { .descriptors = 100, .memory_bytes = 100 * N_BYTES };

static void set_up(struct fixture *f) {
        *f = (struct fixture){ 0 };
        error_init(&f->err, STATUS_OK);
        ck_assert_int_eq(quotas_new(&f->quotas, &limits), 0);
        ck_assert_int_eq(loans_new(&f->loans, f->quotas), 0);
        f->n_descriptors = unit_count_descriptors();
}

static void tear_down(struct fixture *f) {
        loans_free(f->loans);
        ck_assert_uint_eq(quota_users(f->quotas), 0);
        quotas_free(f->quotas);
        ck_assert_int_eq(unit_count_descriptors(), f->n_descriptors);
}

static enum status try_lend(struct fixture *f, enum loan_access access, struct loan **ret, int *ret_fd) {
        const struct loan_ask ask = { .uid = 7, .access = access, .name = "test", .n_bytes = N_BYTES };
        return loan_make(f->loans, &ask, ret, ret_fd, &f->err);
}

static struct loan *lend(struct fixture *f, enum loan_access access, int *ret_fd) {
        struct loan *loan;
        ck_assert_int_eq(try_lend(f, access, &loan, ret_fd), STATUS_OK);
        return loan;
}

static uint64_t charged(const struct fixture *f) {
        return quota_used(f->quotas, 7, QUOTA_MEMORY_BYTES);
}

/* --- who has it --- */

START_TEST(P18_what_nobody_has_is_gone_at_the_next_look) {
        struct fixture f;
        int fd;
        set_up(&f);
        struct loan *loan = lend(&f, LOAN_READ, &fd);
        ck_assert_uint_ge(charged(&f), N_BYTES);
        ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_DESCRIPTORS), 1);
        ck_assert_uint_eq(loans_next_ns(f.loans), UINT64_MAX);
        close(fd);
        ck_assert_ptr_eq(loan_ref(loan), loan);
        loan_unref(loan);
        ck_assert_uint_eq(loans_next_ns(f.loans), UINT64_MAX); /* somebody still refers to it */
        loan_unref(loan);
        ck_assert_uint_eq(loans_n_lingering(f.loans), 1);
        ck_assert_uint_le(loans_next_ns(f.loans), 1); /* now */
        loans_expire(f.loans, 1);
        ck_assert_uint_eq(loans_n_lingering(f.loans), 0);
        ck_assert_uint_eq(charged(&f), 0);
        ck_assert_uint_eq(loans_next_ns(f.loans), UINT64_MAX);
        tear_down(&f);
}
END_TEST

/* Looks until it is gone or this time has passed; how often. */
static uint32_t look_until(struct fixture *f, uint64_t end_ns) {
        uint32_t n = 0;
        while (loans_next_ns(f->loans) <= end_ns) {
                loans_expire(f->loans, loans_next_ns(f->loans));
                n++;
        }
        return n;
}

/* A descriptor, a mapping, a copy that was sent to somebody who has not read it yet. */
START_TEST(P18_what_somebody_has_stays_charged_until_he_has_it_no_more) {
        struct fixture f;
        int fd, pair[2];
        set_up(&f);
        for (int access = LOAN_READ; access <= LOAN_WRITE; access++) {
                ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
                struct loan *loan = lend(&f, access, &fd);
                const void *map = mmap(NULL, N_BYTES, PROT_READ, MAP_SHARED, fd, 0);
                ck_assert_ptr_ne(map, MAP_FAILED);
                ck_assert_int_eq(channel_send(pair[0], "x", 1, &fd, 1), 0);
                loan_unref(loan);
                uint64_t used = charged(&f);
                ck_assert_uint_ge(used, N_BYTES);
                ck_assert_uint_gt(look_until(&f, NS_PER_S), 1);
                ck_assert_uint_eq(charged(&f), used);
                close(fd);
                look_until(&f, 100 * NS_PER_S);
                ck_assert_uint_eq(charged(&f), used);
                munmap((void *)(uintptr_t)map, N_BYTES);
                look_until(&f, 200 * NS_PER_S);
                ck_assert_uint_eq(charged(&f), used);
                ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_DESCRIPTORS), 1);
                close(pair[0]);
                close(pair[1]);
                look_until(&f, 300 * NS_PER_S);
                ck_assert_uint_eq(charged(&f), 0);
        }
        tear_down(&f);
}
END_TEST

/* Ever more rarely: 10 ms, 20 ms, ... 10 s. */
START_TEST(P22_what_lingers_is_looked_at_ever_more_rarely) {
        struct fixture f;
        int fd;
        set_up(&f);
        loan_unref(lend(&f, LOAN_READ, &fd));
        ck_assert_uint_eq(look_until(&f, NS_PER_S), 7); /* at 0, 10, 30, 70, 150, 310, 630 ms */
        uint32_t n = look_until(&f, 1000 * NS_PER_S);
        ck_assert_uint_ge(n, 99);
        ck_assert_uint_le(n, 105);
        close(fd);
        look_until(&f, 1010 * NS_PER_S);
        ck_assert_uint_eq(loans_n_lingering(f.loans), 0);
        tear_down(&f);
}
END_TEST

START_TEST(P21_one_turn_looks_at_no_more_than_64) {
        struct fixture f;
        set_up(&f);
        for (int i = 0; i < 90; i++) {
                int fd;
                struct loan *loan = lend(&f, LOAN_READ, &fd);
                close(fd);
                loan_unref(loan);
        }
        loans_expire(f.loans, 5);
        ck_assert_uint_eq(loans_n_lingering(f.loans), 90 - 64);
        ck_assert_uint_le(loans_next_ns(f.loans), 5); /* at once, in the next turn */
        loans_expire(f.loans, 5);
        ck_assert_uint_eq(loans_n_lingering(f.loans), 0);
        tear_down(&f);
}
END_TEST

/* --- what may be done with it --- */

START_TEST(P17_who_reads_cannot_write_whatever_he_opens) {
        struct fixture f;
        int fd;
        set_up(&f);
        struct loan *loan = lend(&f, LOAN_READ, &fd);
        uint32_t *ours = loan_memory(loan);
        const uint32_t *his = mmap(NULL, N_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(his, MAP_FAILED);
        *ours = 77;
        ck_assert_uint_eq(*his, 77);
        CLEANUP_FD int writable = memfd_open_anew(fd, O_RDWR);
        ck_assert_int_ge(writable, 0);
        ck_assert_ptr_eq(mmap(NULL, N_BYTES, PROT_WRITE, MAP_SHARED, writable, 0), MAP_FAILED);
        ck_assert_int_lt(write(writable, "x", 1), 0);
        ck_assert_int_lt(fallocate(writable, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
        ck_assert_int_lt(ftruncate(writable, 0), 0);
        munmap((void *)(uintptr_t)his, N_BYTES);
        fd_close(&writable);
        close(fd);
        loan_unref(loan);
        tear_down(&f);
}
END_TEST

START_TEST(P17_who_writes_cannot_resize_nor_seal) {
        struct fixture f;
        int fd;
        set_up(&f);
        struct loan *loan = lend(&f, LOAN_WRITE, &fd);
        const uint32_t *ours = loan_memory(loan);
        ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        CLEANUP_FD int writable = memfd_open_anew(fd, O_RDWR);
        ck_assert_int_ge(writable, 0);
        uint32_t *his = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, writable, 0);
        ck_assert_ptr_ne(his, MAP_FAILED);
        *his = 78;
        ck_assert_uint_eq(*ours, 78);
        ck_assert_int_lt(ftruncate(writable, 0), 0);
        ck_assert_int_lt(ftruncate(writable, 2 * N_BYTES), 0);
        ck_assert_int_lt(fcntl(writable, F_ADD_SEALS, F_SEAL_WRITE), 0);
        munmap(his, N_BYTES);
        fd_close(&writable);
        close(fd);
        loan_unref(loan);
        tear_down(&f);
}
END_TEST

/* --- limits and failures --- */

START_TEST(P18_a_user_at_its_limit_is_told_which_and_gets_nothing) {
        struct fixture f;
        struct loan *loan, *loans[100];
        int fd = -1;
        uint32_t n = 0;
        set_up(&f);
        while (try_lend(&f, LOAN_READ, &loan, &fd) == STATUS_OK) {
                loans[n++] = loan;
                close(fd);
        }
        ck_assert_int_eq(f.err.status, STATUS_QUOTA);
        ck_assert_ptr_nonnull(strstr(f.err.detail, "memory-bytes"));
        ck_assert_uint_eq(f.err.limit, limits.memory_bytes);
        ck_assert_uint_ge(n, 90);
        ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_DESCRIPTORS), n);
        for (uint32_t i = 0; i < n; i++)
                loan_unref(loans[i]);
        ck_assert_int_eq(try_lend(&f, LOAN_READ, &loan, &fd), STATUS_QUOTA); /* what lingers counts */
        loans_expire(f.loans, 1);
        ck_assert_int_eq(try_lend(&f, LOAN_READ, &loan, &fd), STATUS_OK);
        close(fd);
        loan_unref(loan);
        tear_down(&f);
}
END_TEST

START_TEST(P18_one_that_cannot_be_made_leaves_nothing) {
        struct fixture f;
        struct loan *loan;
        uint32_t n_failures = 0;
        enum status status = STATUS_NO_MEMORY;
        int fd = -1;
        set_up(&f);
        for (uint32_t n = 1; status != STATUS_OK; n++) {
                failing_call_at(FAILING_MEMORY | FAILING_MMAP | FAILING_MEMFD | FAILING_FCNTL, n);
                status = try_lend(&f, LOAN_WRITE, &loan, &fd);
                failing_at(0);
                ck_assert(status == STATUS_OK || status == STATUS_NO_MEMORY || status == STATUS_LIMIT);
                if (status == STATUS_OK)
                        break;
                ck_assert_uint_eq(quota_users(f.quotas), 0);
                ck_assert_int_eq(unit_count_descriptors(), f.n_descriptors);
                ck_assert_uint_eq(loans_n_lingering(f.loans), 0);
                n_failures++;
        }
        ck_assert_uint_ge(n_failures, 5); /* itself, its user, the heap, memfd, mapping, seals */
        close(fd);
        loan_unref(loan);
        tear_down(&f);
}
END_TEST

START_TEST(P18_what_was_made_elsewhere_lingers_with_its_charges) {
        struct fixture f;
        struct charge descriptor = { 0 }, memory = { 0 };
        set_up(&f);
        for (int round = 0; round < 2; round++) {
                bool is_short = round == 1;
                int fd = memfd_new("test", 0), his = memfd_open_anew(fd, O_RDONLY);
                ck_assert(fd >= 0 && his >= 0);
                ck_assert_int_eq(
                        quota_charge(f.quotas, &descriptor, 7, QUOTA_DESCRIPTORS, 1, &f.err), STATUS_OK);
                ck_assert_int_eq(
                        quota_charge(f.quotas, &memory, 7, QUOTA_MEMORY_BYTES, N_BYTES, &f.err), STATUS_OK);
                failing_at(is_short);
                loan_keep(f.loans, fd, &descriptor, &memory);
                failing_at(0);
                ck_assert_uint_eq(loans_n_lingering(f.loans), !is_short);
                look_until(&f, NS_PER_S);
                ck_assert_uint_eq(charged(&f), is_short ? 0 : N_BYTES);
                close(his);
                look_until(&f, 100 * NS_PER_S);
                ck_assert_uint_eq(charged(&f), 0);
        }
        loan_keep(f.loans, -1, &descriptor, &memory); /* nobody has it */
        ck_assert_uint_eq(loans_n_lingering(f.loans), 0);
        tear_down(&f);
}
END_TEST

UNIT_MAIN("loan", 10, P18_what_nobody_has_is_gone_at_the_next_look,
        P18_what_somebody_has_stays_charged_until_he_has_it_no_more,
        P22_what_lingers_is_looked_at_ever_more_rarely, P21_one_turn_looks_at_no_more_than_64,
        P17_who_reads_cannot_write_whatever_he_opens, P17_who_writes_cannot_resize_nor_seal,
        P18_a_user_at_its_limit_is_told_which_and_gets_nothing, P18_one_that_cannot_be_made_leaves_nothing,
        P18_what_was_made_elsewhere_lingers_with_its_charges)
