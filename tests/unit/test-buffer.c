/* The buffer room: ids, leases, charges. Its chores are done by hand here, in the order that the test wants.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "buffer.h"
#include "failing.h"
#include "unit.h"

#define MANY 20000 /* going through all for each of them would take many microseconds a time */

struct fixture {
        struct quotas *quotas;
        struct buffers *buffers;
        struct list chores;
        struct error err;
};

static const struct quota_limits limits = { .connections = 4,
        .descriptors = 4,
        .mapped_bytes = 1 << 20,
        .pending = 4,
        .groups = 4,
        .recorder_bytes = 1 << 20 };

static void set_up(struct fixture *f) {
        *f = (struct fixture){ 0 };
        list_init(&f->chores);
        error_init(&f->err, STATUS_OK);
        ck_assert_int_eq(quotas_new(&f->quotas, &limits), 0);
        ck_assert_int_eq(buffers_new(&f->buffers, f->quotas), 0);
}

/* All must have been given back. */
static void tear_down(struct fixture *f) {
        ck_assert(list_is_empty(&f->chores));
        ck_assert_uint_eq(quota_users(f->quotas), 0);
        buffers_free(f->buffers);
        quotas_free(f->quotas);
}

static int make_memfd(size_t n_bytes) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

static enum status ask(
        struct fixture *f, uint64_t session, uint64_t id, uint64_t n_bytes, enum access access, int fd) {
        const struct msg_register reg = { .buffer = id,
                .size_bytes = n_bytes,
                .access = access,
                .kind = BUFFER_KIND_MEMFD,
                .n_descriptors = 1,
                .device = "" };
        const struct buffer_ask a = {
                .session = session, .request = 100 + id, .uid = 1000, .reg = &reg, .fd = fd
        };
        error_init(&f->err, STATUS_OK);
        enum status status = buffer_register(f->buffers, &a, &f->chores, &f->err);
        if (status != STATUS_OK && fd >= 0) /* stays the caller's */
                ck_assert_int_eq(close(fd), 0);
        return status;
}

static struct chore *take_chore(struct fixture *f, enum chore_kind kind) {
        struct list *first = list_take_first(&f->chores);
        ck_assert_ptr_nonnull(first);
        struct chore *c = list_entry(first, struct chore, link);
        ck_assert_int_eq(c->kind, kind);
        return c;
}

/* Does one chore as an engine would, and hands it back. */
static struct buffer_news do_chore(struct fixture *f, enum chore_kind kind, enum status status) {
        struct buffer_news news = { 0 };
        struct chore *c = take_chore(f, kind);
        if (kind != CHORE_IMPORT)
                fd_close(&c->fd);
        if (kind == CHORE_IMPORT) {
                c->status = status;
                c->memory = status == STATUS_OK ? calloc(1, sizeof(*c->memory)) : NULL;
                strcpy(c->why, status == STATUS_OK ? "" : "as told");
        } else if (kind == CHORE_RELEASE) {
                free(c->memory);
        }
        ck_assert_int_eq(buffer_chore_done(f->buffers, c, &f->chores, &news), kind == CHORE_IMPORT);
        return news;
}

static void make_ready(
        struct fixture *f, uint64_t session, uint64_t id, uint64_t n_bytes, enum access access) {
        ck_assert_int_eq(ask(f, session, id, n_bytes, access, make_memfd(n_bytes)), STATUS_OK);
        const struct buffer_news news = do_chore(f, CHORE_IMPORT, STATUS_OK);
        ck_assert_int_eq(news.status, STATUS_OK);
        ck_assert_uint_eq(news.session, session);
        ck_assert_uint_eq(news.request, 100 + id);
}

static enum status lease(struct fixture *f, struct place *p, enum buffer_use use, uint64_t count) {
        error_init(&f->err, STATUS_OK);
        return buffer_lease(f->buffers, 1, p, use, count, 4, &f->err);
}

START_TEST(a_buffer_is_imported_leased_and_released) {
        struct fixture f;
        uint64_t bytes;
        set_up(&f);
        ck_assert_int_eq(ask(&f, 1, 5, 4096, ACCESS_INOUT, make_memfd(4096)), STATUS_OK);
        ck_assert(buffers_is_importing(f.buffers, 1));
        ck_assert(!buffers_is_importing(f.buffers, 2));
        struct place p = { .buffer = 5, .offset_bytes = 8 };
        ck_assert_int_eq(lease(&f, &p, BUFFER_READ, 10), STATUS_NOT_FOUND);
        do_chore(&f, CHORE_IMPORT, STATUS_OK);
        ck_assert(!buffers_is_importing(f.buffers, 1));
        ck_assert_uint_eq(buffers_count(f.buffers), 1);
        ck_assert_uint_eq(buffers_count_session(f.buffers, 1, &bytes), 1);
        ck_assert_uint_eq(bytes, 4096);
        ck_assert_uint_eq(quota_used(f.quotas, 1000, QUOTA_MAPPED_BYTES), 4096);
        ck_assert_int_eq(lease(&f, &p, BUFFER_READ, 10), STATUS_OK);
        ck_assert_uint_eq(p.span.offset_bytes, 8);
        ck_assert_uint_eq(p.span.n_bytes, 40);
        ck_assert_ptr_nonnull(p.memory);
        ck_assert_uint_ne(p.file, 0);
        ck_assert_int_eq(buffer_unregister(f.buffers, 1, 5, &f.chores, &f.err), STATUS_OK);
        ck_assert(list_is_empty(&f.chores)); /* leased: it stays */
        ck_assert_uint_eq(quota_used(f.quotas, 1000, QUOTA_MAPPED_BYTES), 4096);
        buffer_unlease(f.buffers, &p, &f.chores);
        buffer_unlease(f.buffers, &p, &f.chores); /* harmless */
        do_chore(&f, CHORE_RELEASE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(O1_a_descriptor_that_is_no_memfd_is_BAD_FD_and_the_id_stays_failed) {
        struct fixture f;
        set_up(&f);
        int ends[2];
        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(ask(&f, 1, 5, 4096, ACCESS_IN, ends[1]), STATUS_BAD_FD);
        ck_assert_int_eq(f.err.field, FIELD_DESCRIPTOR);
        close(ends[0]);
        struct place p = { .buffer = 5 };
        ck_assert_int_eq(lease(&f, &p, BUFFER_READ, 1), STATUS_BAD_FD);
        ck_assert_ptr_nonnull(strstr(f.err.detail, "refused when it was registered"));
        ck_assert_int_eq(ask(&f, 1, 6, 4096, ACCESS_IN, -1), STATUS_BAD_FD);
        buffers_end_session(f.buffers, 1, &f.chores);
        tear_down(&f);
}
END_TEST

START_TEST(a_failed_import_keeps_its_status_for_submissions) {
        struct fixture f;
        set_up(&f);
        ck_assert_int_eq(ask(&f, 1, 5, 4096, ACCESS_IN, make_memfd(4096)), STATUS_OK);
        const struct buffer_news news = do_chore(&f, CHORE_IMPORT, STATUS_INVALID);
        ck_assert_int_eq(news.status, STATUS_INVALID);
        ck_assert_str_eq(news.why, "as told");
        do_chore(&f, CHORE_RELEASE, STATUS_OK); /* closes the descriptor */
        struct place p = { .buffer = 5 };
        ck_assert_int_eq(lease(&f, &p, BUFFER_READ, 1), STATUS_INVALID);
        ck_assert_uint_eq(quota_used(f.quotas, 1000, QUOTA_MAPPED_BYTES), 0);
        ck_assert_uint_eq(buffers_count(f.buffers), 0);
        ck_assert_int_eq(buffer_unregister(f.buffers, 1, 5, &f.chores, &f.err), STATUS_OK);
        ck_assert_int_eq(lease(&f, &p, BUFFER_READ, 1), STATUS_NOT_FOUND);
        tear_down(&f);
}
END_TEST

START_TEST(E5_a_place_must_lie_inside_and_keep_to_its_access) {
        struct fixture f;
        set_up(&f);
        make_ready(&f, 1, 1, 4096, ACCESS_IN);
        make_ready(&f, 1, 2, 4096, ACCESS_OUT);
        struct place in = { .buffer = 1 }, out = { .buffer = 2 };
        ck_assert_int_eq(lease(&f, &in, BUFFER_WRITE, 1), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_ACCESS);
        ck_assert_int_eq(lease(&f, &out, BUFFER_READ, 1), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_ACCESS);
        ck_assert_int_eq(lease(&f, &in, BUFFER_READ, 1025), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_SIZE);
        in.offset_bytes = 4;
        ck_assert_int_eq(lease(&f, &in, BUFFER_READ, 1024), STATUS_INVALID);
        in.offset_bytes = 6;
        ck_assert_int_eq(lease(&f, &in, BUFFER_READ, 1), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_OFFSET);
        in.offset_bytes = UINT64_MAX - 3;
        ck_assert_int_eq(lease(&f, &in, BUFFER_READ, 1), STATUS_INVALID);
        in.offset_bytes = 4096;
        ck_assert_int_eq(lease(&f, &in, BUFFER_READ, 0), STATUS_OK);
        buffer_unlease(f.buffers, &in, &f.chores);
        struct place other = { .buffer = 1 };
        ck_assert_int_eq(buffer_lease(f.buffers, 2, &other, BUFFER_READ, 1, 4, &f.err),
                STATUS_NOT_FOUND); /* another session's */
        buffers_end_session(f.buffers, 1, &f.chores);
        do_chore(&f, CHORE_RELEASE, STATUS_OK);
        do_chore(&f, CHORE_RELEASE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(E2_a_session_that_ends_gives_all_back_also_what_is_still_being_imported) {
        struct fixture f;
        set_up(&f);
        make_ready(&f, 1, 1, 4096, ACCESS_IN);
        ck_assert_int_eq(ask(&f, 1, 2, 4096, ACCESS_IN, make_memfd(4096)), STATUS_OK);
        struct chore *import = take_chore(&f, CHORE_IMPORT);
        struct place p = { .buffer = 1 };
        ck_assert_int_eq(lease(&f, &p, BUFFER_READ, 1), STATUS_OK);
        buffers_end_session(f.buffers, 1, &f.chores);
        ck_assert(list_is_empty(&f.chores)); /* one leased, one on its way */
        ck_assert_uint_eq(buffers_count(f.buffers), 0);
        import->status = STATUS_OK;
        import->memory = calloc(1, sizeof(*import->memory));
        struct buffer_news news;
        ck_assert(buffer_chore_done(f.buffers, import, &f.chores, &news));
        do_chore(&f, CHORE_RELEASE, STATUS_OK);
        buffer_unlease(f.buffers, &p, &f.chores);
        do_chore(&f, CHORE_RELEASE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(an_id_is_used_once_and_zero_never) {
        struct fixture f;
        set_up(&f);
        make_ready(&f, 1, 1, 4096, ACCESS_IN);
        ck_assert_int_eq(ask(&f, 1, 1, 8192, ACCESS_IN, make_memfd(8192)), STATUS_LIMIT);
        struct place p = { .buffer = 1 };
        ck_assert_int_eq(lease(&f, &p, BUFFER_READ, 1), STATUS_OK); /* the first is unharmed */
        buffer_unlease(f.buffers, &p, &f.chores);
        ck_assert_int_eq(ask(&f, 1, 0, 4096, ACCESS_IN, make_memfd(4096)), STATUS_INVALID);
        ck_assert_int_eq(ask(&f, 1, 3, 4096, ACCESS_UNSPECIFIED, make_memfd(4096)), STATUS_INVALID);
        buffers_end_session(f.buffers, 1, &f.chores);
        do_chore(&f, CHORE_RELEASE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(P18_bytes_and_descriptors_are_charged_and_limits_named) {
        struct fixture f;
        set_up(&f);
        ck_assert_int_eq(ask(&f, 1, 1, 2 << 20, ACCESS_IN, make_memfd(2 << 20)), STATUS_QUOTA);
        ck_assert_uint_eq(f.err.limit, 1 << 20);
        make_ready(&f, 1, 2, 4096, ACCESS_IN);
        make_ready(&f, 1, 3, 4096, ACCESS_IN);
        make_ready(&f, 1, 4, 4096, ACCESS_IN);
        ck_assert_int_eq(ask(&f, 1, 5, 4096, ACCESS_IN, make_memfd(4096)), STATUS_QUOTA);
        ck_assert_uint_eq(f.err.used, 4);
        for (int i = 0; i <= QUOTA_MIN_RESERVE; i++)
                ck_assert_int_eq(buffer_close_stranger(f.buffers, 1, 1000, make_memfd(1), &f.chores, &f.err),
                        i < QUOTA_MIN_RESERVE ? STATUS_OK : STATUS_QUOTA);
        for (int i = 0; i <= QUOTA_MIN_RESERVE; i++)
                do_chore(&f, CHORE_CLOSE, STATUS_OK); /* the refused one is closed all the same */
        buffers_end_session(f.buffers, 1, &f.chores);
        for (int i = 0; i < 3; i++)
                do_chore(&f, CHORE_RELEASE, STATUS_OK);
        tear_down(&f);
}
END_TEST

/* What is remembered of a refused registration costs a descriptor; at the limit it is forgotten. */
START_TEST(P18_refused_registrations_are_charged_too) {
        struct fixture f;
        set_up(&f);
        for (uint64_t id = 1; id <= 100; id++) {
                ck_assert_int_eq(ask(&f, 1, id, 4096, ACCESS_IN, -1), STATUS_BAD_FD);
                ck_assert_uint_eq(quota_used(f.quotas, 1000, QUOTA_DESCRIPTORS), id < 4 ? id : 4);
        }
        struct place remembered = { .buffer = 4 }, forgotten = { .buffer = 5 };
        ck_assert_int_eq(lease(&f, &remembered, BUFFER_READ, 1), STATUS_BAD_FD);
        ck_assert_int_eq(lease(&f, &forgotten, BUFFER_READ, 1), STATUS_NOT_FOUND);
        ck_assert_int_eq(buffer_unregister(f.buffers, 1, 1, &f.chores, &f.err), STATUS_OK);
        ck_assert_uint_eq(quota_used(f.quotas, 1000, QUOTA_DESCRIPTORS), 3);
        buffers_end_session(f.buffers, 1, &f.chores);
        tear_down(&f);
}
END_TEST

START_TEST(a_failed_import_can_be_unregistered_before_its_descriptor_is_closed) {
        struct fixture f;
        set_up(&f);
        ck_assert_int_eq(ask(&f, 1, 5, 4096, ACCESS_IN, make_memfd(4096)), STATUS_OK);
        do_chore(&f, CHORE_IMPORT, STATUS_BAD_FD);
        struct chore *closing = take_chore(&f, CHORE_RELEASE);
        buffers_end_session(f.buffers, 1, &f.chores);
        ck_assert(list_is_empty(&f.chores));
        fd_close(&closing->fd);
        struct buffer_news news;
        ck_assert(!buffer_chore_done(f.buffers, closing, &f.chores, &news));
        tear_down(&f);
}
END_TEST

/* Every allocation of a registration fails once: the answer is NO_MEMORY, nothing leaks, no charge stays. */
START_TEST(memory_that_is_short_at_any_point_costs_nothing) {
        for (unsigned int n = 1;; n++) {
                struct fixture f;
                set_up(&f);
                int fd = make_memfd(4096);
                failing_at(n);
                enum status status = ask(&f, 1, 1, 4096, ACCESS_IN, fd);
                bool failed = failing_has_failed();
                failing_at(0);
                if (!failed)
                        ck_assert_int_eq(status, STATUS_OK);
                else
                        ck_assert(status == STATUS_NO_MEMORY || status == STATUS_OK);
                while (!list_is_empty(&f.chores))
                        do_chore(&f, list_entry(f.chores.next, struct chore, link)->kind, STATUS_OK);
                buffers_end_session(f.buffers, 1, &f.chores);
                while (!list_is_empty(&f.chores))
                        do_chore(&f, list_entry(f.chores.next, struct chore, link)->kind, STATUS_OK);
                tear_down(&f);
                if (!failed)
                        break;
        }
}
END_TEST

/* A region for which huge pages were asked, of user 1000 + session. */
static void make_ready_with_pages(struct fixture *f, uint64_t session, enum pages pages, const char *why) {
        const struct msg_register reg = { .buffer = 1,
                .size_bytes = 4096,
                .access = ACCESS_INOUT,
                .kind = BUFFER_KIND_MEMFD,
                .n_descriptors = 1,
                .device = "",
                .stands_for = "",
                .why = why,
                .pages = pages };
        const struct buffer_ask a = {
                .session = session, .uid = 1000 + (uint32_t)session, .reg = &reg, .fd = make_memfd(4096)
        };
        ck_assert_int_eq(buffer_register(f->buffers, &a, &f->chores, &f->err), STATUS_OK);
        ck_assert_int_eq(list_entry(f->chores.next, struct chore, link)->pages, pages);
        fd_close(&list_entry(f->chores.next, struct chore, link)->fd); /* many may be made */
        do_chore(f, CHORE_IMPORT, STATUS_OK);
}

START_TEST(F6_who_is_short_of_huge_pages_is_known_by_user) {
        struct fixture f;
        struct buffer_shortage s;
        struct buffer_description d;
        const uint32_t users[] = { 1001, 1002, 1003, 1004 };
        set_up(&f);
        ck_assert(!buffers_describe_short(f.buffers, NULL, &s));
        make_ready_with_pages(&f, 1, PAGES_POOL, "");
        make_ready_with_pages(&f, 2, PAGES_TRANSPARENT, "none\nfree");
        make_ready_with_pages(&f, 3, PAGES_ORDINARY, "none at all");
        make_ready_with_pages(&f, 4, PAGES_UNSPECIFIED, "");
        ck_assert(buffers_describe_short(f.buffers, NULL, &s));
        ck_assert_uint_eq(s.n_buffers, 2);
        ck_assert_uint_eq(s.n_bytes, 8192);
        ck_assert(!buffers_describe_short(f.buffers, &users[0], &s));
        ck_assert(!buffers_describe_short(f.buffers, &users[3], &s));
        ck_assert(buffers_describe_short(f.buffers, &users[2], &s));
        ck_assert_uint_eq(s.n_buffers, 1);
        ck_assert_uint_eq(s.first.session, 3);
        ck_assert_int_eq(s.first.pages, PAGES_ORDINARY);
        ck_assert_str_eq(s.first.why, "none at all");
        struct told at = { 0 };
        list_init(&at.link);
        ck_assert(buffers_tell(f.buffers, &at, &d));
        ck_assert_str_eq(d.why, "none?free"); /* it forges no line */
        ck_assert(buffers_tell(f.buffers, &at, &d));
        ck_assert(!buffers_tell(f.buffers, &at, &d));
        for (uint64_t session = 1; session <= 4; session++) {
                buffers_end_session(f.buffers, session, &f.chores);
                do_chore(&f, CHORE_RELEASE, STATUS_OK);
        }
        ck_assert(!buffers_describe_short(f.buffers, NULL, &s));
        tear_down(&f);
}
END_TEST

static void end_session(struct fixture *f, uint64_t session) {
        buffers_end_session(f->buffers, session, &f->chores);
        while (!list_is_empty(&f->chores))
                do_chore(f, CHORE_RELEASE, STATUS_OK);
}

static uint64_t tell(struct fixture *f, struct told *at) {
        struct buffer_description d;
        return buffers_tell(f->buffers, at, &d) ? d.session : 0;
}

START_TEST(a_reader_goes_on_where_he_was_whoever_comes_and_goes) {
        struct fixture f;
        struct told a = { 0 }, b = { 0 };
        set_up(&f);
        list_init(&a.link);
        list_init(&b.link);
        ck_assert_uint_eq(tell(&f, &a), 0);
        for (uint64_t session = 1; session <= 5; session++)
                make_ready_with_pages(&f, session, PAGES_ORDINARY, "");
        ck_assert_uint_eq(tell(&f, &a), 1);
        ck_assert_uint_eq(tell(&f, &a), 2);
        ck_assert_uint_eq(tell(&f, &b), 1);
        end_session(&f, 2); /* told last */
        end_session(&f, 3); /* the next */
        ck_assert_uint_eq(tell(&f, &a), 4);
        ck_assert_uint_eq(tell(&f, &b), 4);
        make_ready_with_pages(&f, 6, PAGES_ORDINARY, "");
        ck_assert_uint_eq(tell(&f, &b), 5);
        list_unlink(&b.link); /* he has heard enough */
        ck_assert_uint_eq(tell(&f, &a), 5);
        ck_assert_uint_eq(tell(&f, &a), 6);
        end_session(&f, 6);
        ck_assert_uint_eq(tell(&f, &a), 0);
        end_session(&f, 1);
        end_session(&f, 4);
        end_session(&f, 5);
        tear_down(&f);
}
END_TEST

static double seconds(void) {
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Told one at a time, in so much time for each. */
static double seconds_a_buffer(struct fixture *f, uint32_t n) {
        struct told at = { 0 };
        list_init(&at.link);
        double begin = seconds();
        for (uint32_t i = 0; i < n; i++)
                ck_assert_uint_ne(tell(f, &at), 0);
        ck_assert_uint_eq(tell(f, &at), 0);
        return (seconds() - begin) / n;
}

START_TEST(P21_what_one_costs_to_tell_does_not_grow_with_their_number) {
        struct fixture f;
        set_up(&f);
        for (uint64_t session = 1; session <= MANY; session++)
                make_ready_with_pages(&f, session, PAGES_ORDINARY, "");
        ck_assert_double_lt(seconds_a_buffer(&f, MANY), 2e-6 * unit_scale());
        for (uint64_t session = 1; session <= MANY; session++)
                end_session(&f, session);
        tear_down(&f);
}
END_TEST

UNIT_MAIN("buffer", 10, a_buffer_is_imported_leased_and_released,
        O1_a_descriptor_that_is_no_memfd_is_BAD_FD_and_the_id_stays_failed,
        a_failed_import_keeps_its_status_for_submissions,
        a_failed_import_can_be_unregistered_before_its_descriptor_is_closed,
        E5_a_place_must_lie_inside_and_keep_to_its_access,
        E2_a_session_that_ends_gives_all_back_also_what_is_still_being_imported,
        an_id_is_used_once_and_zero_never, P18_bytes_and_descriptors_are_charged_and_limits_named,
        P18_refused_registrations_are_charged_too, a_reader_goes_on_where_he_was_whoever_comes_and_goes,
        P21_what_one_costs_to_tell_does_not_grow_with_their_number,
        F6_who_is_short_of_huge_pages_is_known_by_user, memory_that_is_short_at_any_point_costs_nothing)
