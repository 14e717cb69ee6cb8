/* The result room: who is attached, who holds which slot, what is charged, when the memory goes. Its chores
 * are done by hand, in the order that the test wants. */
#include <stdlib.h>
#include <string.h>
#include "failing.h"
#include "result.h"
#include "unit.h"

#define WORLD 3
#define GROUP 5

struct fixture {
        struct quotas *quotas;
        struct results *results;
        struct list chores;
        struct error err;
        uint64_t now_ns;
};

static const struct quota_limits limits = { .descriptors = 10, .result_bytes = 1 << 20 };

static void set_up(struct fixture *f) {
        *f = (struct fixture){ 0 };
        list_init(&f->chores);
        ck_assert_int_eq(quotas_new(&f->quotas, &limits), 0);
        ck_assert_int_eq(results_new(&f->results, f->quotas), 0);
}

/* All must have been given back. */
static void tear_down(struct fixture *f) {
        ck_assert(list_is_empty(&f->chores));
        ck_assert_uint_eq(results_count(f->results), 0);
        ck_assert_uint_eq(quota_users(f->quotas), 0);
        results_free(f->results);
        quotas_free(f->quotas);
}

static struct msg_make_result sums(void) {
        return (struct msg_make_result){
                .has_key = true, .key = { .n_bytes = 4, .bytes = "sums" }, .size_bytes = 5000, .device = ""
        };
}

/* Rank r is membership 100 + r of session 10 + r. */
static enum status ask(struct fixture *f, uint32_t rank, const struct msg_make_result *make) {
        const struct result_ask a = { .session = 10 + rank,
                .request = 1000 + rank,
                .membership = 100 + rank,
                .group = GROUP,
                .uid = 7,
                .rank = rank,
                .world_size = WORLD,
                .n_devices = 2,
                .make = make };
        error_init(&f->err, STATUS_OK);
        return result_attach(f->results, &a, &f->chores, &f->err);
}

static struct chore *take_chore(struct fixture *f, enum chore_kind kind) {
        struct list *first = list_take_first(&f->chores);
        ck_assert_ptr_nonnull(first);
        struct chore *c = list_entry(first, struct chore, link);
        ck_assert_int_eq(c->kind, kind);
        return c;
}

/* Does one chore as an engine would, and hands it back. */
static void do_chore(struct fixture *f, enum chore_kind kind, enum status status) {
        struct chore *c = take_chore(f, kind);
        if (kind == CHORE_MAKE) {
                c->status = status;
                c->memory = status == STATUS_OK ? calloc(1, sizeof(*c->memory)) : NULL;
                c->fd = status == STATUS_OK ? 76 : -1;
                c->read_fd = status == STATUS_OK ? 77 : -1;
                strcpy(c->why, status == STATUS_OK ? "" : "as told");
        } else {
                free(c->memory);
                c->memory = NULL;
                c->fd = status == STATUS_OK ? -1 : c->fd; /* else somebody has it */
        }
        result_chore_done(f->results, c, f->now_ns, &f->chores);
}

static struct msg_result expect_answer(struct fixture *f, uint32_t rank, enum status status) {
        struct result_answer a;
        ck_assert(results_take_answer(f->results, &f->chores, &a));
        ck_assert_uint_eq(a.session, 10 + rank);
        ck_assert_uint_eq(a.request, 1000 + rank);
        ck_assert_int_eq(a.status, status);
        ck_assert_int_eq(a.fd, status == STATUS_OK ? 77 : -1);
        ck_assert_str_eq(a.why, status == STATUS_OK ? "" : "as told");
        return a.result;
}

static void expect_no_answer(struct fixture *f) {
        struct result_answer a;
        ck_assert(!results_take_answer(f->results, &f->chores, &a));
}

/* All ranks are attached; its id. */
static uint64_t make_for_all(struct fixture *f) {
        const struct msg_make_result make = sums();
        uint64_t id = 0;
        for (uint32_t rank = 0; rank < WORLD; rank++)
                ck_assert_int_eq(ask(f, rank, &make), STATUS_OK);
        do_chore(f, CHORE_MAKE, STATUS_OK);
        for (uint32_t rank = 0; rank < WORLD; rank++)
                id = expect_answer(f, rank, STATUS_OK).result;
        expect_no_answer(f);
        return id;
}

static enum status release(struct fixture *f, uint32_t rank, uint64_t id, uint32_t slot, bool detach) {
        const struct msg_release_result m = {
                .result = id, .membership = 100 + rank, .slot = slot, .detach = detach
        };
        error_init(&f->err, STATUS_OK);
        return result_release(f->results, 10 + rank, &m, &f->chores, &f->err);
}

static void end_all(struct fixture *f) {
        for (uint32_t rank = 0; rank < WORLD; rank++)
                results_end_session(f->results, 10 + rank, &f->chores);
}

static struct result_user user_of(uint32_t rank) {
        return (struct result_user){ .session = 10 + rank, .membership = 100 + rank, .rank = rank };
}

static struct result *first_of(const struct fixture *f) {
        return results_next(f->results, GROUP, NULL);
}

/* --- making --- */

START_TEST(the_first_has_it_made_and_the_others_attach) {
        struct fixture f;
        set_up(&f);
        const struct msg_make_result make = sums();
        ck_assert_int_eq(ask(&f, 1, &make), STATUS_OK);
        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK);
        expect_no_answer(&f);
        struct chore *c = list_entry(f.chores.next, struct chore, link);
        ck_assert_uint_eq(c->n_bytes, 2 * 8192); /* two slots of whole pages */
        ck_assert_uint_eq(c->uid, 7);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        const struct msg_result a = expect_answer(&f, 0, STATUS_OK), b = expect_answer(&f, 1, STATUS_OK);
        ck_assert_uint_eq(a.result, b.result);
        ck_assert_uint_eq(a.size_bytes, 5000);
        ck_assert_uint_eq(a.stride_bytes, 8192);
        ck_assert_uint_eq(a.n_slots, 2);
        ck_assert_int_eq(ask(&f, 2, &make), STATUS_OK); /* it is there: told at once */
        ck_assert_uint_eq(expect_answer(&f, 2, STATUS_OK).result, a.result);
        ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_RESULT_BYTES), 2 * 8192);
        ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_DESCRIPTORS), 4); /* its own, and one for each */
        ck_assert_int_eq(ask(&f, 2, &make), STATUS_INVALID);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(who_differs_is_told_both_values) {
        struct fixture f;
        set_up(&f);
        make_for_all(&f);
        results_end_session(f.results, 12, &f.chores);
        struct msg_make_result bytes = sums(), slots = sums(), device = sums();
        bytes.size_bytes = 5001;
        slots.n_slots = 3;
        device.device = "CPU:1";
        const struct msg_make_result *const wrong[] = { &bytes, &slots, &device };
        const char *const words[] = { "5001 bytes x 2 slots on CPU:0", "5000 bytes x 3 slots on CPU:0",
                "5000 bytes x 2 slots on CPU:1" };
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                ck_assert_int_eq(ask(&f, 2, wrong[i]), STATUS_MISMATCH);
                ck_assert_uint_eq(f.err.n_classes, 2);
                ck_assert_str_eq(f.err.classes[0].value, "5000 bytes x 2 slots on CPU:0");
                ck_assert_uint_eq(f.err.classes[0].ranks.words[0], 3);
                ck_assert_str_eq(f.err.classes[1].value, words[i]);
                ck_assert_uint_eq(f.err.classes[1].ranks.words[0], 4);
        }
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

static void expect_refused(struct fixture *f, const struct msg_make_result *make, enum status status) {
        ck_assert_int_eq(ask(f, 0, make), status);
        ck_assert(list_is_empty(&f->chores));
        ck_assert_uint_eq(quota_users(f->quotas), 0);
        ck_assert_uint_eq(results_count(f->results), 0);
        expect_no_answer(f);
}

START_TEST(what_cannot_be_is_refused_and_costs_nothing) {
        struct fixture f;
        set_up(&f);
        struct msg_make_result m = sums();
        m.has_key = false;
        expect_refused(&f, &m, STATUS_INVALID);
        m = sums();
        m.key.n_bytes = 64;
        memset(m.key.bytes, 'x', 64);
        expect_refused(&f, &m, STATUS_INVALID);
        m = sums();
        m.key.bytes[1] = '\n';
        expect_refused(&f, &m, STATUS_INVALID);
        m = sums();
        m.key = key_sequence(4);
        expect_refused(&f, &m, STATUS_INVALID);
        m = sums();
        m.size_bytes = 0;
        expect_refused(&f, &m, STATUS_INVALID);
        m.size_bytes = UINT64_MAX;
        expect_refused(&f, &m, STATUS_LIMIT);
        m.size_bytes = MAX_RESULT_BYTES;
        m.n_slots = MAX_RESULT_SLOTS;
        expect_refused(&f, &m, STATUS_QUOTA);
        m = sums();
        m.n_slots = MAX_RESULT_SLOTS + 1;
        expect_refused(&f, &m, STATUS_LIMIT);
        m = sums();
        m.device = "CPU:2";
        expect_refused(&f, &m, STATUS_INVALID);
        ck_assert_ptr_nonnull(strstr(f.err.detail, "CPU:0 to CPU:1"));
        m.device = "GPU:0";
        expect_refused(&f, &m, STATUS_INVALID);
        m = sums();
        m.size_bytes = (1 << 19) + 1;
        expect_refused(&f, &m, STATUS_QUOTA);
        ck_assert_str_eq(f.err.detail, "result-bytes");
        tear_down(&f);
}
END_TEST

START_TEST(P18_descriptors_of_attachments_are_charged) {
        struct fixture f;
        struct charge others = { 0 };
        set_up(&f);
        ck_assert_int_eq(quota_charge(f.quotas, &others, 7, QUOTA_DESCRIPTORS, 8, NULL), STATUS_OK);
        const struct msg_make_result make = sums();
        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK);
        ck_assert_int_eq(ask(&f, 1, &make), STATUS_QUOTA);
        charge_release(&others);
        ck_assert_int_eq(quota_charge(f.quotas, &others, 7, QUOTA_DESCRIPTORS, 8, NULL), STATUS_OK);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        expect_answer(&f, 0, STATUS_OK);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK); /* the second, without room for who asks */
        charge_release(&others);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(a_making_that_fails_is_told_to_all_and_can_be_tried_again) {
        struct fixture f;
        set_up(&f);
        const struct msg_make_result make = sums();
        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK);
        ck_assert_int_eq(ask(&f, 1, &make), STATUS_OK);
        do_chore(&f, CHORE_MAKE, STATUS_NO_MEMORY);
        ck_assert_int_eq(ask(&f, 2, &make), STATUS_OK); /* a new one, though the old is not all told */
        expect_answer(&f, 0, STATUS_NO_MEMORY);
        expect_answer(&f, 1, STATUS_NO_MEMORY);
        expect_no_answer(&f);
        ck_assert_uint_eq(results_count(f.results), 1);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        expect_answer(&f, 2, STATUS_OK);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(who_asked_and_went_is_not_told) {
        struct fixture f;
        set_up(&f);
        const struct msg_make_result make = sums();
        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK);
        results_end_session(f.results, 10, &f.chores);
        ck_assert_int_eq(ask(&f, 1, &make), STATUS_OK);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        expect_answer(&f, 1, STATUS_OK);
        expect_no_answer(&f);
        results_end_session(f.results, 11, &f.chores);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);

        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK); /* nobody is left when it is made */
        results_end_session(f.results, 10, &f.chores);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK);
        results_end_session(f.results, 10, &f.chores);
        do_chore(&f, CHORE_MAKE, STATUS_NO_MEMORY);
        expect_no_answer(&f);
        tear_down(&f);
}
END_TEST

/* Whatever allocation fails, nothing is lost and nothing stays charged. */
START_TEST(short_of_memory_nothing_is_left) {
        struct fixture f;
        set_up(&f);
        const struct msg_make_result make = sums();
        unsigned int n = 1;
        for (bool has_failed = true; has_failed; n++) {
                failing_at(n);
                enum status status = ask(&f, 0, &make);
                has_failed = failing_has_failed();
                failing_at(0);
                if (!has_failed) {
                        ck_assert_int_eq(status, STATUS_OK);
                        break;
                }
                ck_assert_int_eq(status, STATUS_NO_MEMORY);
                ck_assert_uint_eq(quota_users(f.quotas), 0);
                ck_assert_uint_eq(results_count(f.results), 0);
        }
        ck_assert_uint_gt(n, 5);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

/* --- the memory --- */

START_TEST(P18_memory_that_somebody_has_stays_charged_and_is_looked_at_again) {
        struct fixture f;
        set_up(&f);
        make_for_all(&f);
        end_all(&f);
        ck_assert_uint_eq(results_next_ns(f.results), UINT64_MAX);
        f.now_ns = 1000;
        do_chore(&f, CHORE_UNMAKE, STATUS_BUSY);
        ck_assert_ptr_null(first_of(&f));
        for (uint64_t delay_ns = 10000000; delay_ns < UINT64_C(100000000000); delay_ns *= 2) {
                uint64_t most = UINT64_C(60000000000);
                ck_assert_uint_eq(results_next_ns(f.results), f.now_ns + (delay_ns < most ? delay_ns : most));
                ck_assert_uint_eq(quota_used(f.quotas, 7, QUOTA_RESULT_BYTES), 2 * 8192);
                results_expire(f.results, f.now_ns + 1, &f.chores);
                ck_assert(list_is_empty(&f.chores));
                f.now_ns = results_next_ns(f.results);
                results_expire(f.results, f.now_ns, &f.chores);
                ck_assert_uint_eq(results_next_ns(f.results), UINT64_MAX);
                do_chore(&f, CHORE_UNMAKE, STATUS_BUSY);
        }
        const struct msg_make_result make = sums(); /* its name is free meanwhile */
        ck_assert_int_eq(ask(&f, 0, &make), STATUS_OK);
        results_end_session(f.results, 10, &f.chores);
        do_chore(&f, CHORE_MAKE, STATUS_OK);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        results_expire(f.results, results_next_ns(f.results), &f.chores);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

/* --- slots --- */

static void run(struct result *r, uint32_t expected, uint32_t n_holders) {
        uint32_t slot = 99;
        ck_assert(result_take_slot(r, &slot));
        ck_assert_uint_eq(slot, expected);
        result_end_slot(r, slot, 1000);
        for (uint32_t rank = 0; rank < n_holders; rank++) {
                const struct result_user user = user_of(rank);
                result_hold(r, slot, &user);
        }
}

START_TEST(slots_go_in_turn_and_come_back_with_their_last_holder) {
        struct fixture f;
        uint32_t slot;
        set_up(&f);
        uint64_t id = make_for_all(&f);
        struct result *r = first_of(&f);
        for (uint32_t i = 0; i < 4; i++)
                run(r, i % 2, 0); /* nobody was left to hold it */
        run(r, 0, 3);
        run(r, 1, 1);
        ck_assert(!result_take_slot(r, &slot));
        for (uint32_t rank = 0; rank < WORLD; rank++) {
                ck_assert(!result_take_slot(r, &slot));
                ck_assert_int_eq(release(&f, rank, id, 0, false), STATUS_OK);
                ck_assert_int_eq(release(&f, rank, id, 0, false), STATUS_INVALID);
        }
        ck_assert(result_take_slot(r, &slot)); /* taken, and running: not free either */
        ck_assert_uint_eq(slot, 0);
        ck_assert(!result_take_slot(r, &slot));
        result_end_slot(r, 0, 2000);
        ck_assert_int_eq(release(&f, 0, id, 2, false), STATUS_INVALID);
        ck_assert_int_eq(release(&f, 0, id, UINT32_MAX, false), STATUS_INVALID);
        ck_assert_int_eq(release(&f, 0, id + 1, 0, false), STATUS_NOT_FOUND);
        ck_assert_uint_eq(result_slot_offset(r, 1), 8192);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(the_end_of_an_attachment_gives_back_what_it_holds) {
        struct fixture f;
        uint32_t slot;
        set_up(&f);
        uint64_t id = make_for_all(&f);
        struct result *r = first_of(&f);
        run(r, 0, 3);
        run(r, 1, 3);
        results_end_session(f.results, 10, &f.chores);          /* died */
        results_end_membership(f.results, 11, 4711, &f.chores); /* not its own */
        results_end_membership(f.results, 11, 101, &f.chores);  /* left */
        ck_assert(!result_take_slot(r, &slot));
        ck_assert_int_eq(release(&f, 2, id, 0, true), STATUS_OK); /* detached: the last */
        struct chore *c = list_entry(f.chores.next, struct chore, link);
        ck_assert_int_eq(c->kind, CHORE_UNMAKE);
        ck_assert_ptr_null(first_of(&f));
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(who_is_gone_when_the_run_ends_holds_nothing) {
        struct fixture f;
        uint32_t slot;
        set_up(&f);
        make_for_all(&f);
        struct result *r = first_of(&f);
        ck_assert(result_take_slot(r, &slot));
        results_end_session(f.results, 11, &f.chores);
        result_end_slot(r, slot, 1000);
        const struct result_user gone = user_of(1),
                                 replaced = { .session = 10, .membership = 999, .rank = 0 };
        result_hold(r, slot, &gone);
        result_hold(r, slot, &replaced);
        struct row_result row;
        struct row_holder holders[MAX_ROW_HOLDERS];
        result_fill_row(r, 1000, &row, holders);
        ck_assert_uint_eq(row.n_free, 2);
        ck_assert_uint_eq(row.n_holders, 0);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(A12_who_holds_what_and_for_how_long_is_told) {
        struct fixture f;
        struct rankset holders;
        struct row_holder rows[MAX_ROW_HOLDERS];
        struct row_result row;
        uint32_t slot;
        set_up(&f);
        uint64_t id = make_for_all(&f);
        struct result *r = first_of(&f);
        run(r, 0, 3);
        run(r, 1, 3);
        result_end_slot(r, 1, 3 * UINT64_C(1000000000));
        ck_assert_int_eq(release(&f, 0, id, 0, false), STATUS_OK);
        ck_assert_int_eq(release(&f, 1, id, 0, false), STATUS_OK);
        ck_assert_int_eq(release(&f, 0, id, 1, false), STATUS_OK);
        error_init(&f.err, STATUS_OK);
        ck_assert_int_eq(result_say_busy(r, 5 * UINT64_C(1000000000) + 1000, &holders, &f.err), STATUS_BUSY);
        ck_assert_ptr_nonnull(strstr(f.err.detail, "slot 0 is held by R2 for 5.0 s"));
        ck_assert_ptr_nonnull(strstr(f.err.detail, "slot 1 is held by R1 R2 for 2.0 s"));
        ck_assert_uint_eq(holders.words[0], 6);
        ck_assert_uint_eq(f.err.age_ns, 5 * UINT64_C(1000000000));
        result_fill_row(r, 5 * UINT64_C(1000000000) + 1000, &row, rows);
        ck_assert_str_eq(row.name, "sums");
        ck_assert_uint_eq(row.n_free, 0);
        ck_assert_uint_eq(row.n_attached, 3);
        ck_assert_uint_eq(row.n_holders, 2);
        ck_assert_uint_eq(rows[0].rank, 2);
        ck_assert_uint_eq(rows[0].n_slots, 2);
        ck_assert_uint_eq(rows[0].oldest_age_ns, 5 * UINT64_C(1000000000));
        ck_assert_uint_eq(rows[1].rank, 1);
        ck_assert_uint_eq(rows[1].n_slots, 1);
        ck_assert_int_eq(release(&f, 2, id, 0, false), STATUS_OK);
        ck_assert(result_take_slot(r, &slot));
        result_say_busy(r, 0, &holders, &f.err);
        ck_assert_ptr_nonnull(strstr(f.err.detail, "slot 0 is being written"));
        result_end_slot(r, slot, 0);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

/* --- halves --- */

static enum status use(struct fixture *f, uint32_t rank, struct place *p, uint64_t count) {
        const struct result_user user = user_of(rank);
        error_init(&f->err, STATUS_OK);
        return result_use(f->results, &user, p, count, 4, &f->err);
}

START_TEST(a_half_that_names_it_keeps_it) {
        struct fixture f;
        set_up(&f);
        uint64_t id = make_for_all(&f);
        struct place p = { .result = id, .offset_bytes = 4 };
        ck_assert_int_eq(use(&f, 0, &p, 1249), STATUS_OK);
        ck_assert_ptr_eq(p.object, first_of(&f));
        ck_assert_ptr_nonnull(p.memory);
        ck_assert_uint_eq(p.span.offset_bytes, 4);
        ck_assert_uint_eq(p.span.n_bytes, 4996);
        end_all(&f);
        ck_assert(list_is_empty(&f.chores)); /* nobody is attached, and it is needed */
        result_end_use(f.results, &p, &f.chores);
        ck_assert_ptr_null(p.object);
        result_end_use(f.results, &p, &f.chores);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

START_TEST(P19_only_who_is_attached_can_name_it_and_only_inside_a_slot) {
        struct fixture f;
        set_up(&f);
        uint64_t id = make_for_all(&f);
        struct place p = { .result = id, .offset_bytes = 4 };
        ck_assert_int_eq(use(&f, 0, &p, 1250), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_SIZE);
        ck_assert_int_eq(use(&f, 0, &p, UINT64_MAX), STATUS_INVALID);
        p.offset_bytes = 5000;
        ck_assert_int_eq(use(&f, 0, &p, 1), STATUS_INVALID);
        p.offset_bytes = UINT64_MAX - 3;
        ck_assert_int_eq(use(&f, 0, &p, 1), STATUS_INVALID);
        p.offset_bytes = 2;
        ck_assert_int_eq(use(&f, 0, &p, 1), STATUS_INVALID);
        ck_assert_int_eq(f.err.field, FIELD_OFFSET);
        p = (struct place){ .result = id + 1 };
        ck_assert_int_eq(use(&f, 0, &p, 1), STATUS_NOT_FOUND);
        p.result = id;
        results_end_session(f.results, 11, &f.chores);
        ck_assert_int_eq(use(&f, 1, &p, 1), STATUS_NOT_FOUND);
        ck_assert_int_eq(use(&f, WORLD, &p, 1), STATUS_NOT_FOUND);
        const struct result_user stranger = { .session = 99, .membership = 100, .rank = 0 };
        ck_assert_int_eq(result_use(f.results, &stranger, &p, 1, 4, &f.err), STATUS_NOT_FOUND);
        const struct msg_release_result m = { .result = id, .membership = 100, .detach = true };
        ck_assert_int_eq(result_release(f.results, 99, &m, &f.chores, &f.err), STATUS_NOT_FOUND);
        end_all(&f);
        do_chore(&f, CHORE_UNMAKE, STATUS_OK);
        tear_down(&f);
}
END_TEST

UNIT_MAIN("result", 10, the_first_has_it_made_and_the_others_attach, who_differs_is_told_both_values,
        what_cannot_be_is_refused_and_costs_nothing, P18_descriptors_of_attachments_are_charged,
        a_making_that_fails_is_told_to_all_and_can_be_tried_again, who_asked_and_went_is_not_told,
        short_of_memory_nothing_is_left, P18_memory_that_somebody_has_stays_charged_and_is_looked_at_again,
        slots_go_in_turn_and_come_back_with_their_last_holder,
        the_end_of_an_attachment_gives_back_what_it_holds, who_is_gone_when_the_run_ends_holds_nothing,
        A12_who_holds_what_and_for_how_long_is_told, a_half_that_names_it_keeps_it,
        P19_only_who_is_attached_can_name_it_and_only_inside_a_slot)
