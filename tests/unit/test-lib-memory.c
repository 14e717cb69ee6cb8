/* Buffers: few descriptors, always zero at first, gone when nobody uses them any more. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/pages.h"
#include "failing.h"
#include "lib-server.h"
#include "lib/region.h"
#include "lib/work.h"
#include "pool.h"

/* What the server saw of registrations. */
struct seen {
        uint32_t n_registered, n_unregistered, n_wrong;
        uint64_t n_bytes;
        uint64_t last_unregistered;
        uint32_t n_of[PAGES_ORDINARY + 1]; /* by what is said of their pages */
        char why[200];                     /* of the last */
};

static void check_register(struct server *s, const struct request *r, struct seen *seen) {
        struct stat st;
        seen->n_registered++;
        seen->n_bytes += r->reg.size_bytes;
        seen->n_of[r->reg.pages]++;
        snprintf(seen->why, sizeof(seen->why), "%s", r->reg.why);
        seen->n_wrong +=
                r->reg.kind != BUFFER_KIND_MEMFD || r->reg.n_descriptors != 1 || s->packet.n_fds != 1;
        int seals = fcntl(s->packet.fds[0], F_GET_SEALS);
        seen->n_wrong += (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW);
        seen->n_wrong += (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
        seen->n_wrong += fstat(s->packet.fds[0], &st) != 0 || (uint64_t)st.st_size != r->reg.size_bytes;
}

static void script_memory(struct server *s) {
        struct seen *seen = s->arg;
        struct request r;
        server_greet(s);
        while (server_take_any(s, &r)) {
                if (r.type == REQUEST_REGISTER)
                        check_register(s, &r, seen);
                if (r.type == REQUEST_UNREGISTER) {
                        seen->n_unregistered++;
                        seen->last_unregistered = r.buffer;
                }
                server_ok(s, r.request);
        }
}

static bool is_zero(const struct tutti_buffer *b) {
        const uint8_t *bytes = tutti_buffer_data(b);
        for (size_t i = 0; i < tutti_buffer_bytes(b); i++)
                if (bytes[i])
                        return false;
        return true;
}

START_TEST(a_buffer_is_zero_aligned_and_sealed) {
        static const size_t sizes[] = { 0, 1, 63, 64, 100, 4095, 4096, 5000, 1 << 20, 40 << 20 };
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *b[10];
        for (int i = 0; i < 10; i++) {
                ck_assert_int_eq(tutti_buffer_alloc(t, sizes[i], &b[i]), TUTTI_OK);
                ck_assert_uint_eq(tutti_buffer_bytes(b[i]), sizes[i]);
                ck_assert_uint_eq((uintptr_t)tutti_buffer_data(b[i]) % (sizes[i] < 4096 ? 64 : 4096), 0);
                ck_assert(is_zero(b[i]));
                memset(tutti_buffer_data(b[i]), i + 1, sizes[i]);
        }
        for (int i = 0; i < 10; i++) { /* nobody's bytes are anybody else's */
                const uint8_t *bytes = tutti_buffer_data(b[i]);
                ck_assert(!sizes[i] || (bytes[0] == i + 1 && bytes[sizes[i] - 1] == i + 1));
        }
        ck_assert_int_eq(tutti_buffer_alloc(t, SIZE_MAX, &b[0]), TUTTI_INVALID);
        tutti_close(t);
        server_end(s);
        ck_assert_uint_eq(seen.n_registered, 2);
        ck_assert_uint_eq(seen.n_wrong, 0);
}
END_TEST

START_TEST(five_thousand_tensors_need_few_descriptors_F7) {
        static struct tutti_buffer *b[5000];
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        int n_before = unit_count_descriptors();
        struct tutti *t = client_open(s);
        for (int i = 0; i < 5000; i++) {
                ck_assert_int_eq(tutti_buffer_alloc(t, 4096 + (size_t)(i % 7) * 1000, &b[i]), TUTTI_OK);
                *(int *)tutti_buffer_data(b[i]) = i;
        }
        /* The server's connection is one of them. */
        ck_assert_int_le(unit_count_descriptors() - n_before, 8);
        for (int i = 0; i < 5000; i++)
                ck_assert_int_eq(*(int *)tutti_buffer_data(b[i]), i);
        tutti_close(t);
        server_end(s);
        ck_assert_uint_le(seen.n_registered, 4);
}
END_TEST

START_TEST(freed_memory_is_used_again_and_zero_again) {
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *a, *b, *c;
        ck_assert_int_eq(tutti_buffer_alloc(t, 10000, &a), TUTTI_OK);
        ck_assert_int_eq(tutti_buffer_alloc(t, 10000, &b), TUTTI_OK);
        void *was_at = tutti_buffer_data(a);
        memset(tutti_buffer_data(a), 0xee, 10000);
        memset(tutti_buffer_data(b), 0xdd, 10000);
        tutti_buffer_free(a);
        ck_assert_int_eq(tutti_buffer_alloc(t, 9000, &c), TUTTI_OK);
        ck_assert_ptr_eq(tutti_buffer_data(c), was_at);
        ck_assert(is_zero(c));
        ck_assert_int_eq(((uint8_t *)tutti_buffer_data(b))[9999], 0xdd);
        tutti_buffer_free(NULL);
        tutti_close(t);
        server_end(s);
}
END_TEST

START_TEST(a_region_goes_with_its_last_buffer_but_one_small_one_stays) {
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *b;
        for (int i = 0; i < 10; i++) {
                ck_assert_int_eq(tutti_buffer_alloc(t, 1000, &b), TUTTI_OK);
                tutti_buffer_free(b);
        }
        struct tutti_buffer *big;
        ck_assert_int_eq(tutti_buffer_alloc(t, 100 << 20, &big), TUTTI_OK);
        uint64_t id = big->region->id;
        int n = unit_count_descriptors();
        tutti_buffer_free(big);
        ck_assert_int_le(unit_count_descriptors(), n);
        ck_assert_int_eq(tutti_buffer_alloc(t, 1000, &b), TUTTI_OK);
        tutti_close(t);
        server_end(s);
        ck_assert_uint_eq(seen.n_registered, 2);
        ck_assert_uint_eq(seen.n_unregistered, 1);
        ck_assert_uint_eq(seen.last_unregistered, id);
}
END_TEST

/* --- buffers in use --- */

static void script_in_use(struct server *s) {
        server_greet_and_join(s);
        server_ok(s, server_take(s, REQUEST_REGISTER).request);
        uint64_t reduce = server_take(s, REQUEST_SUBMIT).request;
        struct request r = server_take(s, REQUEST_BUSY); /* and no unregistration before it */
        server_done(s, reduce, 0);
        server_ok(s, r.request);
        r = server_take(s, REQUEST_UNREGISTER);
        ck_assert_uint_eq(r.buffer, 1);
        server_serve(s);
}

START_TEST(a_buffer_freed_while_in_use_goes_when_the_work_ends) {
        struct server *s = server_start(script_in_use, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_buffer *b;
        struct tutti_work *w;
        ck_assert_int_eq(tutti_buffer_alloc(t, 20 << 20, &b), TUTTI_OK); /* a region of its own */
        char *bytes = tutti_buffer_data(b);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_U8, .n_dims = 1, .shape = { 64 });
        ck_assert_int_eq(tutti_all_reduce_start(g, "k", TUTTI_SUM, &v, &v, NULL, &w), TUTTI_OK);
        tutti_buffer_free(b);
        tutti_work_free(w); /* detached: goes on to its end unseen */
        bytes[63] = 1;      /* still mapped */
        ck_assert(!list_is_empty(&t->regions));
        ck_assert_int_eq(tutti_busy(g, "the test's sign", 1), TUTTI_OK);
        ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
        ck_assert(list_is_empty(&t->regions) && list_is_empty(&t->dead_regions));
        ck_assert(list_is_empty(&t->works));
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_no_quota(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        server_refuse(s, r.request, STATUS_QUOTA, FIELD_SIZE, "mapped bytes");
        r = server_take(s, REQUEST_SUBMIT);
        server_refuse(s, r.request, STATUS_QUOTA, FIELD_BUFFER, "buffer 1 could not be registered");
        server_serve(s);
}

START_TEST(a_failed_registration_explains_the_collective_that_meets_it) {
        struct server *s = server_start(script_no_quota, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_buffer *b, *c;
        ck_assert_int_eq(tutti_buffer_alloc(t, 4096, &b), TUTTI_OK);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_U8, .n_dims = 1, .shape = { 64 });
        ck_assert_int_eq(tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v), TUTTI_QUOTA);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "could not be registered: mapped bytes"));
        /* Nothing more is cut from what tuttid has not taken. */
        ck_assert_int_eq(tutti_buffer_alloc(t, 4096, &c), TUTTI_OK);
        ck_assert_ptr_ne(c->region, b->region);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- huge pages --- */

/* Whether this kernel makes them of shared memory is not for this test: what is told must be what is there.
 */
static void check_ways(struct seen *seen, const struct tutti_buffer *b) {
        bool is_transparent = tutti_buffer_page_bytes(b) == HUGE_PAGE_BYTES;
        ck_assert_uint_eq(seen->n_of[PAGES_POOL], 0);
        ck_assert_uint_eq(seen->n_of[PAGES_TRANSPARENT], is_transparent);
        ck_assert_uint_eq(seen->n_of[PAGES_ORDINARY], !is_transparent);
        ck_assert_str_eq(seen->why, tutti_buffer_fallback(b));
}

START_TEST(huge_pages_come_from_regions_of_their_own_and_what_they_are_is_said_F6) {
        pool_take(0);
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *ordinary, *a, *b, *c;
        struct tutti_alloc_args args;
        tutti_alloc_args_init(&args);
        ck_assert_uint_eq(args.struct_size, sizeof(args));
        args.n_bytes = 5 << 20;
        args.pages = TUTTI_PAGES_HUGE;
        ck_assert_int_eq(tutti_buffer_alloc(t, 1000, &ordinary), TUTTI_OK);
        ck_assert_int_eq(tutti_buffer_alloc_with(t, &args, &a), TUTTI_OK);
        args.n_bytes = 100;
        ck_assert_int_eq(tutti_buffer_alloc_with(t, &args, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_buffer_alloc(t, 1000, &c), TUTTI_OK);
        ck_assert_ptr_eq(a->region, b->region);
        ck_assert_ptr_eq(ordinary->region, c->region);
        ck_assert_ptr_ne(ordinary->region, a->region);
        ck_assert(is_zero(a));
        ck_assert_uint_eq((uintptr_t)tutti_buffer_data(a) % 4096, 0);
        ck_assert_ptr_nonnull(strstr(tutti_buffer_fallback(a), "pages needed of the pool: 3, free: 0 of"));
        ck_assert_str_eq(tutti_buffer_fallback(ordinary), "");
        ck_assert_uint_eq(tutti_buffer_page_bytes(ordinary), 4096);
        ck_assert_uint_eq(tutti_buffer_page_bytes(NULL), 0);
        ck_assert_str_eq(tutti_buffer_fallback(NULL), "");
        tutti_close(t);
        server_end(s);
        ck_assert_uint_eq(seen.n_wrong, 0);
        ck_assert_uint_eq(seen.n_registered, 2);
        pool_give_back();
}
END_TEST

START_TEST(what_became_of_a_wish_for_huge_pages_is_told_to_tuttid_F6) {
        pool_take(0);
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *b;
        ck_assert_int_eq(
                tutti_buffer_alloc_with(t, &TUTTI_ALLOC(.n_bytes = 1, .pages = TUTTI_PAGES_HUGE), &b),
                TUTTI_OK);
        struct tutti_buffer copy = *b;
        struct region region = *b->region;
        copy.region = &region;
        tutti_close(t);
        server_end(s);
        check_ways(&seen, &copy);
        pool_give_back();
}
END_TEST

START_TEST(more_in_huge_pages_than_there_is_is_NO_MEMORY_too_F6) {
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *b = NULL;
        size_t needed = (size_t)1 << 50;
        ck_assert_int_eq(
                tutti_buffer_alloc_with(t, &TUTTI_ALLOC(.n_bytes = needed, .pages = TUTTI_PAGES_HUGE), &b),
                TUTTI_NO_MEMORY);
        ck_assert_ptr_null(b);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "bytes are needed"));
        ck_assert_int_eq(tutti_buffer_alloc_with(t, &TUTTI_ALLOC(.n_bytes = SIZE_MAX), &b), TUTTI_INVALID);
        ck_assert_int_eq(tutti_buffer_alloc_with(t, &TUTTI_ALLOC(.pages = 3), &b), TUTTI_INVALID);
        ck_assert_int_eq(tutti_buffer_alloc_with(t, NULL, &b), TUTTI_INVALID);
        ck_assert_int_eq(tutti_buffer_alloc_with(t, &(struct tutti_alloc_args){ 0 }, &b), TUTTI_INVALID);
        tutti_close(t);
        server_end(s);
        ck_assert_uint_eq(seen.n_registered, 0);
}
END_TEST

/* --- running short --- */

START_TEST(running_short_is_NO_MEMORY_with_needed_and_available_bytes_F6) {
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *b = NULL;
        size_t needed = (size_t)1 << 50;
        ck_assert_int_eq(tutti_buffer_alloc(t, needed, &b), TUTTI_NO_MEMORY);
        ck_assert_ptr_null(b);
        ck_assert_uint_eq(tutti_error_info()->used, needed);
        ck_assert_uint_gt(tutti_error_info()->limit, 1 << 20);
        ck_assert_uint_lt(tutti_error_info()->limit, needed);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "1125899906842624 bytes are needed"));
        ck_assert_int_eq(tutti_buffer_alloc(t, 4096, &b), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_serve(struct server *s) {
        server_greet(s);
        server_serve(s);
}

/* A way that fails is followed by the next, so most failures are none in the end. */
START_TEST(F6_every_call_that_fails_on_the_way_to_huge_pages_leaves_nothing_behind) {
        struct server *s = server_start(script_serve, NULL);
        struct tutti *t = client_open(s);
        unsigned int n = 1;
        for (bool has_failed = true; has_failed; n++) {
                struct tutti_buffer *b = NULL;
                int n_before = unit_count_descriptors();
                failing_call_at(FAILING_MEMORY | FAILING_MMAP | FAILING_MEMFD | FAILING_FCNTL, n);
                enum tutti_status status = tutti_buffer_alloc_with(
                        t, &TUTTI_ALLOC(.n_bytes = 20 << 20, .pages = TUTTI_PAGES_HUGE), &b);
                has_failed = failing_has_failed();
                failing_call_at(0, 0);
                ck_assert_msg(status == TUTTI_OK ||
                                      (has_failed && (status == TUTTI_NO_MEMORY || status == TUTTI_LIMIT)),
                        "call %u: %s", n, tutti_status_name(status));
                ck_assert(status != TUTTI_OK || is_zero(b));
                tutti_buffer_free(b);
                ck_assert(list_is_empty(&t->buffers));
                ck_assert_int_le(unit_count_descriptors(), n_before);
        }
        ck_assert_uint_ge(n, 6);
        tutti_close(t);
        server_end(s);
}
END_TEST

START_TEST(every_call_that_fails_on_the_way_leaves_nothing_behind) {
        struct server *s = server_start(script_serve, NULL);
        struct tutti *t = client_open(s);
        unsigned int n = 1;
        for (bool has_failed = true; has_failed; n++) {
                struct tutti_buffer *b = NULL;
                int n_before = unit_count_descriptors();
                failing_call_at(FAILING_MEMORY | FAILING_MMAP | FAILING_MEMFD | FAILING_FCNTL, n);
                enum tutti_status status = tutti_buffer_alloc(t, 20 << 20, &b);
                has_failed = failing_has_failed();
                failing_call_at(0, 0);
                ck_assert_msg(
                        has_failed ? status == TUTTI_NO_MEMORY || status == TUTTI_LIMIT : status == TUTTI_OK,
                        "call %u: %s", n, tutti_status_name(status));
                ck_assert_msg(!has_failed || *tutti_error(), "call %u has no text", n);
                tutti_buffer_free(b);
                ck_assert(list_is_empty(&t->buffers));
                ck_assert_int_le(unit_count_descriptors(), n_before);
        }
        ck_assert_uint_ge(n, 6);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- the caller's own memory --- */

static void script_adopt(struct server *s) {
        server_greet(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.access, ACCESS_INOUT);
        ck_assert_uint_eq(r.reg.size_bytes, 10000);
        server_ok(s, r.request);
        r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.access, ACCESS_OUT);
        ck_assert_uint_eq(r.reg.size_bytes, 300);
        server_ok(s, r.request);
        r = server_take(s, REQUEST_REGISTER);
        server_refuse(s, r.request, STATUS_BAD_FD, FIELD_DESCRIPTOR, "sealed against writing");
        uint64_t id = r.reg.buffer;
        r = server_take(s, REQUEST_UNREGISTER);
        ck_assert_uint_eq(r.buffer, id);
        server_serve(s);
}

START_TEST(a_memfd_of_the_caller_is_registered_and_mapped_by_access) {
        struct server *s = server_start(script_adopt, NULL);
        struct tutti *t = client_open(s);
        struct tutti_buffer *whole, *part, *none = NULL;
        int fd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(fd, 10000), 0);
        ck_assert_int_eq(pwrite(fd, "x", 1, 299), 1);
        ck_assert_int_eq(tutti_buffer_from_fd(t, fd, 0, TUTTI_INOUT, &whole), TUTTI_OK);
        ck_assert_uint_eq(tutti_buffer_bytes(whole), 10000);
        ck_assert_int_eq(tutti_buffer_from_fd(t, fd, 300, TUTTI_OUT, &part), TUTTI_OK);
        ck_assert_int_eq(((char *)tutti_buffer_data(part))[299], 'x');
        ((char *)tutti_buffer_data(whole))[299] = 'y';
        ck_assert_int_eq(((char *)tutti_buffer_data(part))[299], 'y');
        ck_assert_int_eq(pread(fd, tutti_buffer_data(part), 1, 0), -1); /* mapped to be read alone */

        ck_assert_int_eq(tutti_buffer_from_fd(t, fd, 0, TUTTI_IN, &none), TUTTI_BAD_FD);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "sealed against writing"));
        ck_assert_int_eq(tutti_buffer_from_fd(t, fd, 10001, TUTTI_IN, &none), TUTTI_INVALID);
        ck_assert_int_eq(tutti_buffer_from_fd(t, -1, 0, TUTTI_IN, &none), TUTTI_BAD_FD);
        ck_assert_int_eq(tutti_buffer_from_fd(t, fd, 0, (enum tutti_access)7, &none), TUTTI_INVALID);
        ck_assert_ptr_null(none);
        close(fd);
        ((char *)tutti_buffer_data(whole))[9999] = 1;
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- older kernels --- */

#define NOEXEC_SEAL 0x0008U

/* memfd_create with NOEXEC_SEAL is EINVAL, as on kernels that do not know it. */
static void forget_noexec_seal(void) {
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
                BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NOEXEC_SEAL, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 22 /* EINVAL */),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
                unit_skip("no seccomp here");
}

START_TEST(a_kernel_without_NOEXEC_SEAL_still_gets_a_memfd_that_can_be_sealed_F9) {
        struct seen seen = { 0 };
        struct server *s = server_start(script_memory, &seen);
        struct tutti *t = client_open(s);
        struct tutti_buffer *b;
        forget_noexec_seal();
        ck_assert_int_eq(memfd_create("x", MFD_CLOEXEC | NOEXEC_SEAL), -1);
        ck_assert_int_eq(tutti_buffer_alloc(t, 4096, &b), TUTTI_OK);
        tutti_close(t);
        server_end(s);
        ck_assert_uint_eq(seen.n_registered, 1);
        ck_assert_uint_eq(seen.n_wrong, 0);
}
END_TEST

UNIT_MAIN("lib-memory", 60, a_buffer_is_zero_aligned_and_sealed,
        five_thousand_tensors_need_few_descriptors_F7, freed_memory_is_used_again_and_zero_again,
        a_region_goes_with_its_last_buffer_but_one_small_one_stays,
        a_buffer_freed_while_in_use_goes_when_the_work_ends,
        a_failed_registration_explains_the_collective_that_meets_it,
        huge_pages_come_from_regions_of_their_own_and_what_they_are_is_said_F6,
        what_became_of_a_wish_for_huge_pages_is_told_to_tuttid_F6,
        more_in_huge_pages_than_there_is_is_NO_MEMORY_too_F6,
        running_short_is_NO_MEMORY_with_needed_and_available_bytes_F6,
        F6_every_call_that_fails_on_the_way_to_huge_pages_leaves_nothing_behind,
        every_call_that_fails_on_the_way_leaves_nothing_behind,
        a_memfd_of_the_caller_is_registered_and_mapped_by_access,
        a_kernel_without_NOEXEC_SEAL_still_gets_a_memfd_that_can_be_sealed_F9)
