/* The signals room: what is granted, what is written for halves that the worker did not end, when a page
 * goes. Its chores are done by hand, in the order that the test wants. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/memfd.h"
#include "failing.h"
#include "signals.h"
#include "unit.h"

#define PAGE_BYTES (SIGNAL_SLOTS * sizeof(struct signal_slot))

struct fixture {
        struct quotas *quotas;
        struct signals *signals;
        struct list chores;
        struct error err;
        struct signals_news news;
};

static const struct quota_limits limits = { .descriptors = 40, .mapped_bytes = 1 << 20 };

static void set_up(struct fixture *f) {
        *f = (struct fixture){ 0 };
        list_init(&f->chores);
        error_init(&f->err, STATUS_OK);
        ck_assert_int_eq(quotas_new(&f->quotas, &limits), 0);
        ck_assert_int_eq(signals_new(&f->signals, f->quotas), 0);
}

/* All must have been given back. */
static void tear_down(struct fixture *f) {
        ck_assert(list_is_empty(&f->chores));
        ck_assert_uint_eq(signals_count(f->signals), 0);
        ck_assert_uint_eq(quota_users(f->quotas), 0);
        signals_free(f->signals);
        quotas_free(f->quotas);
}

static enum status open_page(struct fixture *f, uint64_t session) {
        const struct signals_ask ask = {
                .session = session, .request = 9, .uid = 7, .order = ORDER_TIMELINE
        };
        return signals_open(f->signals, &ask, &f->chores, &f->err);
}

/* Does the next chore as a memory thread would, and hands it back. Whether there was one. Asserts nothing:
 * it runs where calls fail. */
static bool do_chore(struct fixture *f) {
        struct list *first = list_take_first(&f->chores);
        if (!first)
                return false;
        struct chore *c = list_entry(first, struct chore, link);
        CHECK(signals_own(c));
        c->think(c);
        f->news = (struct signals_news){ .fd = -1 };
        bool is_news = signals_chore_done(f->signals, c, &f->chores, &f->news);
        CHECK(is_news || f->news.fd == -1);
        return true;
}

static void do_chores(struct fixture *f) {
        while (do_chore(f))
                ;
}

/* As the client maps it. */
static struct signal_slot *map_page(int read_fd) {
        CLEANUP_FD int fd = memfd_open_anew(read_fd, O_RDWR);
        ck_assert_int_ge(fd, 0);
        void *at = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(at, MAP_FAILED);
        return at;
}

static struct signal_slot *make_page(struct fixture *f, uint64_t session) {
        ck_assert_int_eq(open_page(f, session), STATUS_OK);
        ck_assert(do_chore(f));
        ck_assert_int_eq(f->news.status, STATUS_OK);
        ck_assert_uint_eq(f->news.session, session);
        ck_assert_uint_eq(f->news.request, 9);
        return map_page(f->news.fd);
}

static void end_session(struct fixture *f, uint64_t session, struct signal_slot *slots) {
        munmap(slots, PAGE_BYTES);
        signals_end_session(f->signals, session, &f->chores);
        do_chores(f);
}

START_TEST(nothing_is_offered_until_somebody_offers_it) {
        struct fixture f;
        set_up(&f);
        ck_assert_int_eq(signals_offered(f.signals), ORDER_HOST);
        ck_assert_str_eq(signals_why(f.signals), "this tuttid has no GPU");
        signals_offer(f.signals, ORDER_TIMELINE, "");
        ck_assert_int_eq(signals_offered(f.signals), ORDER_TIMELINE);
        tear_down(&f);
}
END_TEST

START_TEST(a_page_is_zero_and_its_size_is_sealed) {
        struct fixture f;
        set_up(&f);
        struct signal_slot *slots = make_page(&f, 1);
        for (uint32_t i = 0; i < SIGNAL_SLOTS; i++)
                ck_assert(atomic_load(&slots[i].ready) == 0 && atomic_load(&slots[i].done) == 0);
        int seals = fcntl(f.news.fd, F_GET_SEALS);
        ck_assert_int_eq(seals & ~0x20 /* NOEXEC_SEAL's */, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        ck_assert_int_lt(ftruncate(f.news.fd, 0), 0);
        end_session(&f, 1, slots);
        tear_down(&f);
}
END_TEST

START_TEST(one_page_for_each_connection_and_it_is_charged) {
        struct fixture f;
        set_up(&f);
        struct signal_slot *slots = make_page(&f, 1);
        uint64_t one = quota_used(f.quotas, 7, QUOTA_MAPPED_BYTES);
        ck_assert_uint_ge(one, PAGE_BYTES);
        ck_assert_int_eq(open_page(&f, 1), STATUS_INVALID);
        struct signal_slot *others[16];
        uint64_t n = 0;
        while (one * (n + 2) <= limits.mapped_bytes) {
                others[n] = make_page(&f, 2 + n);
                n++;
        }
        ck_assert_uint_gt(n, 1);
        ck_assert_int_eq(open_page(&f, 100), STATUS_QUOTA);
        end_session(&f, 1, slots);
        for (uint64_t i = 0; i < n; i++)
                end_session(&f, 2 + i, others[i]);
        tear_down(&f);
}
END_TEST

/* The chore that goes to the GPU worker next, with what it is to be. */
static struct chore *take_worker_chore(struct fixture *f, enum chore_kind kind) {
        struct list *first = list_take_first(&f->chores);
        ck_assert_ptr_nonnull(first);
        struct chore *c = list_entry(first, struct chore, link);
        ck_assert_int_eq(c->kind, kind);
        ck_assert_int_eq(c->path, PATH_EVENTS);
        ck_assert(signals_own(c));
        return c;
}

/* A page with events is granted when the worker has made them, and they go before it. */
START_TEST(a_page_with_events_goes_to_the_worker_and_comes_back_from_there) {
        struct fixture f;
        struct signal_page *page;
        const struct msg_signal last = { SIGNAL_EVENTS - 1, 1 }, beyond = { SIGNAL_EVENTS, 1 };
        struct memory there = { .path = PATH_EVENTS, .remote = 5 };
        const struct signals_ask ask = {
                .session = 1, .request = 9, .uid = 7, .order = ORDER_EVENTS, .device = DEVICE_GPU + 1
        };
        set_up(&f);
        ck_assert_int_eq(signals_open(f.signals, &ask, &f.chores, &f.err), STATUS_OK);
        ck_assert(do_chore(&f));
        ck_assert_uint_eq(f.news.request, 0); /* nothing yet */
        struct chore *c = take_worker_chore(&f, CHORE_IMPORT);
        ck_assert_uint_eq(c->device, DEVICE_GPU + 1);
        ck_assert_uint_eq(c->n_bytes, SIGNAL_EVENT_BYTES);
        c->memory = &there;
        c->status = STATUS_OK;
        ck_assert(signals_chore_done(f.signals, c, &f.chores, &f.news));
        ck_assert_int_eq(f.news.order, ORDER_EVENTS);
        ck_assert_int_eq(f.news.status, STATUS_OK);
        /* Not all slots of a page have events. */
        ck_assert_int_eq(signals_use(f.signals, 1, &beyond, &page, &f.err), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_OPTIONS);
        ck_assert_int_eq(signals_use(f.signals, 1, &last, &page, &f.err), STATUS_OK);
        signals_end_use(f.signals, page, &f.chores);
        signals_end_session(f.signals, 1, &f.chores);
        c = take_worker_chore(&f, CHORE_RELEASE);
        c->memory = NULL;
        ck_assert(!signals_chore_done(f.signals, c, &f.chores, &f.news));
        do_chores(&f);
        ck_assert(f.news.is_gone);
        tear_down(&f);
}
END_TEST

START_TEST(events_that_cannot_be_made_are_said_and_leave_nothing) {
        struct fixture f;
        const struct signals_ask ask = { .session = 1, .request = 9, .uid = 7, .order = ORDER_EVENTS };
        set_up(&f);
        ck_assert_int_eq(signals_open(f.signals, &ask, &f.chores, &f.err), STATUS_OK);
        ck_assert(do_chore(&f));
        struct chore *c = take_worker_chore(&f, CHORE_IMPORT);
        c->status = STATUS_UNSUPPORTED;
        snprintf(c->why, sizeof(c->why), "none to be had");
        ck_assert(signals_chore_done(f.signals, c, &f.chores, &f.news));
        ck_assert_int_eq(f.news.status, STATUS_UNSUPPORTED);
        ck_assert_str_eq(f.news.why, "none to be had");
        do_chores(&f);
        struct signal_slot *slots = make_page(&f, 1); /* another attempt is free */
        end_session(&f, 1, slots);
        tear_down(&f);
}
END_TEST

START_TEST(a_half_names_a_page_that_is_there_and_a_slot_of_it) {
        struct fixture f;
        struct signal_page *page;
        const struct msg_signal last = { SIGNAL_SLOTS - 1, 1 }, beyond = { SIGNAL_SLOTS, 1 };
        set_up(&f);
        ck_assert_int_eq(signals_use(f.signals, 1, &last, &page, &f.err), STATUS_INVALID);
        ck_assert_int_eq(open_page(&f, 1), STATUS_OK);
        ck_assert_int_eq(signals_use(f.signals, 1, &last, &page, &f.err), STATUS_INVALID);
        do_chores(&f);
        struct signal_slot *slots = map_page(f.news.fd);
        ck_assert_int_eq(signals_use(f.signals, 1, &beyond, &page, &f.err), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_OPTIONS);
        ck_assert_int_eq(signals_use(f.signals, 1, &last, &page, &f.err), STATUS_OK);
        ck_assert_uint_eq(signal_page_memory(page)->n_bytes, PAGE_BYTES);
        struct stat worker, client;
        ck_assert_int_eq(fstat(signal_page_fd(page), &worker) | fstat(f.news.fd, &client), 0);
        ck_assert_uint_eq(worker.st_ino, client.st_ino);
        signals_end_session(f.signals, 1, &f.chores);
        ck_assert(!do_chore(&f)); /* the half still has it */
        munmap(slots, PAGE_BYTES);
        signals_end_use(f.signals, page, &f.chores);
        do_chores(&f);
        ck_assert(f.news.is_gone);
        ck_assert_int_eq(f.news.fd, -1);
        tear_down(&f);
}
END_TEST

static void say_done(struct fixture *f, uint32_t slot, uint64_t value) {
        signals_set_done(f->signals, 1, &(struct msg_signal){ slot, value }, &f->chores);
}

START_TEST(what_the_worker_did_not_end_is_written_here) {
        struct fixture f;
        set_up(&f);
        say_done(&f, 0, 1); /* there is no page: harmless */
        struct signal_slot *slots = make_page(&f, 1);
        say_done(&f, 3, 0); /* no signal */
        say_done(&f, SIGNAL_SLOTS, 1);
        ck_assert(!do_chore(&f));
        say_done(&f, 3, 5);
        ck_assert(do_chore(&f));
        ck_assert_uint_eq(atomic_load(&slots[3].done), 5);
        ck_assert_uint_eq(atomic_load(&slots[3].ready), 0);
        ck_assert_uint_eq(atomic_load(&slots[2].done), 0);
        end_session(&f, 1, slots);
        tear_down(&f);
}
END_TEST

START_TEST(what_comes_while_a_chore_is_out_is_written_by_the_next) {
        struct fixture f;
        set_up(&f);
        struct signal_slot *slots = make_page(&f, 1);
        for (uint32_t i = 0; i < SIGNAL_SLOTS; i++)
                say_done(&f, i, i + 1);
        struct chore *out = list_entry(list_take_first(&f.chores), struct chore, link);
        ck_assert(list_is_empty(&f.chores));
        out->think(out);
        ck_assert_uint_eq(atomic_load(&slots[0].done), 1); /* the rest waits for the next */
        ck_assert_uint_eq(atomic_load(&slots[1].done), 0);
        ck_assert(!signals_chore_done(f.signals, out, &f.chores, &f.news));
        do_chores(&f);
        for (uint32_t i = 0; i < SIGNAL_SLOTS; i++)
                ck_assert_uint_eq(atomic_load(&slots[i].done), i + 1);
        end_session(&f, 1, slots);
        tear_down(&f);
}
END_TEST

START_TEST(done_never_goes_back) {
        struct fixture f;
        set_up(&f);
        struct signal_slot *slots = make_page(&f, 1);
        atomic_store(&slots[1].done, 10);
        say_done(&f, 1, 9);
        do_chores(&f);
        ck_assert_uint_eq(atomic_load(&slots[1].done), 10);
        end_session(&f, 1, slots);
        tear_down(&f);
}
END_TEST

START_TEST(O3_a_client_that_punches_its_page_harms_nobody) {
        struct fixture f;
        set_up(&f);
        struct signal_slot *slots = make_page(&f, 1);
        int fd = memfd_open_anew(f.news.fd, O_RDWR);
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE_BYTES), 0);
        close(fd);
        say_done(&f, 4000, 2);
        do_chores(&f);
        ck_assert_uint_eq(atomic_load(&slots[4000].done), 2);
        end_session(&f, 1, slots);
        tear_down(&f);
}
END_TEST

START_TEST(a_session_that_ends_early_leaves_nothing) {
        struct fixture f;
        set_up(&f);
        ck_assert_int_eq(open_page(&f, 1), STATUS_OK);
        signals_end_session(f.signals, 1, &f.chores);
        do_chores(&f);
        tear_down(&f);
        set_up(&f);
        struct signal_slot *slots = make_page(&f, 1);
        say_done(&f, 1, 1);
        end_session(&f, 1, slots);
        tear_down(&f);
}
END_TEST

START_TEST(P18_a_page_that_its_client_still_has_is_handed_on_with_its_charges) {
        struct fixture f;
        set_up(&f);
        struct signal_slot *slots = make_page(&f, 1);
        uint64_t used = quota_used(f.quotas, 7, QUOTA_MAPPED_BYTES);
        ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_DESCRIPTORS), 2); /* ours, and the one that is sent */
        signals_end_session(f.signals, 1, &f.chores);
        do_chores(&f);
        ck_assert(f.news.is_gone);
        ck_assert_int_ge(f.news.fd, 0);
        ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_MAPPED_BYTES), used);
        ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_DESCRIPTORS), 1); /* the one that is open */
        munmap(slots, PAGE_BYTES);
        ck_assert(!memfd_is_had(f.news.fd));
        close(f.news.fd);
        charge_release(&f.news.descriptors);
        charge_release(&f.news.bytes);
        tear_down(&f);
}
END_TEST

START_TEST(every_call_may_fail) {
        bool has_failed = true;
        for (unsigned int n = 1; has_failed; n++) {
                struct fixture f;
                set_up(&f);
                failing_call_at(FAILING_MEMORY | FAILING_MMAP | FAILING_MEMFD | FAILING_FCNTL, n);
                enum status status = open_page(&f, 1);
                if (status == STATUS_OK && do_chore(&f))
                        status = f.news.status;
                has_failed = failing_has_failed();
                failing_at(0);
                ck_assert_int_eq(status != STATUS_OK, has_failed);
                signals_end_session(f.signals, 1, &f.chores);
                do_chores(&f);
                tear_down(&f);
        }
}
END_TEST

UNIT_MAIN("signals", 30, P18_a_page_that_its_client_still_has_is_handed_on_with_its_charges,
        a_page_with_events_goes_to_the_worker_and_comes_back_from_there,
        events_that_cannot_be_made_are_said_and_leave_nothing, nothing_is_offered_until_somebody_offers_it,
        a_page_is_zero_and_its_size_is_sealed, one_page_for_each_connection_and_it_is_charged,
        a_half_names_a_page_that_is_there_and_a_slot_of_it, what_the_worker_did_not_end_is_written_here,
        what_comes_while_a_chore_is_out_is_written_by_the_next, done_never_goes_back,
        O3_a_client_that_punches_its_page_harms_nobody, a_session_that_ends_early_leaves_nothing,
        every_call_may_fail)
