/* Memory that is short at any call harms nobody but who asked; and in steady work nothing is asked for. */
#include <errno.h>
#include "failing.h"
#include "room.h"
#include "unit.h"

/* No assertion of Check while calls fail or are counted: it asks for memory itself. */

static bool submit(
        struct room *room, const struct group *g, uint32_t rank, struct key key, uint32_t n_entries) {
        struct half *half = rendezvous_half_new(room->r, n_entries);
        if (!half)
                return false;
        half->session = g->members[rank].session;
        half->membership = g->members[rank].id;
        half->epoch = g->epoch;
        half->key = key;
        half->signature =
                (struct signature){ .kind = KIND_BATCH_REDUCE, .op = OP_SUM, .n_entries = n_entries };
        for (uint32_t i = 0; i < n_entries; i++)
                half->entries[i] =
                        (struct entry){ .dtype = DTYPE_F32, .destination = DESTINATION_ALL, .n_dims = 1 };
        /* "m...": a mismatch; "t...": a deadline */
        if (key.n_bytes && key.bytes[0] == 'm' && rank == 0)
                half->signature.op = OP_MAX;
        half->has_timeout = key.n_bytes && key.bytes[0] == 't';
        half->timeout_ns = 1;
        return room_submit_half(room, half) == STATUS_OK;
}

static struct key named(const char *name) {
        struct key key = { .n_bytes = (uint8_t)strlen(name) };
        memcpy(key.bytes, name, key.n_bytes);
        return key;
}

/* --- steady work --- */

/* Two named ones that cross, one numbered, one batch; each with another name or number than before. Whether
 * all were sealed. */
static bool work(struct room *room, const struct group *g, int step) {
        char a[24], b[24];
        snprintf(a, sizeof(a), "grad/%d", step);
        snprintf(b, sizeof(b), "loss/%d", step);
        bool is_right = true;
        for (uint32_t rank = 0; rank < 4; rank++) {
                is_right &= submit(room, g, rank, named(rank % 2 ? a : b), rank % 2);
                is_right &= submit(room, g, rank, named(rank % 2 ? b : a), !(rank % 2));
                is_right &= submit(room, g, rank, key_sequence((uint64_t)step), 3);
                is_right &= submit(room, g, rank, named("batch"), 300);
                room_wait(room, 1000);
        }
        struct meeting *m;
        int n = 0;
        for (; (m = room_take(&room->out.sealed)); n++)
                room_finish(room, m);
        return is_right && n == 2 + 2;
}

START_TEST(after_warm_up_10000_collectives_ask_for_no_memory) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        bool is_right = true;
        for (int step = 0; step < 100; step++)
                is_right &= work(&room, g, step);
        failing_at(1);
        for (int step = 100; step < 2600; step++)
                is_right &= work(&room, g, step);
        bool has_asked = failing_has_failed();
        failing_at(0);
        ck_assert(is_right && !has_asked);
        ck_assert_uint_eq(g->next_number, 2600 * 4 + 1);
        room_close(&room);
}
END_TEST

/* --- short at the n-th call --- */

struct tally {
        int n_taken, n_told; /* halves */
        bool is_wrong;
};

static void run_sealed(struct room *room) {
        struct meeting *m;
        while ((m = room_take(&room->out.sealed))) {
                rendezvous_done(room->r, m, STATUS_OK, NULL, room->now_ns);
                list_append(&room->out.ended, &m->outcome_link);
        }
}

static void end_all(struct room *room, struct tally *tally) {
        struct meeting *m;
        while ((m = room_take(&room->out.ended))) {
                tally->n_told += (int)m->n_halves;
                tally->is_wrong |= m->state != MEETING_ENDED || (m->error && m->error->status != m->status);
                room_release(room, m);
        }
}

static void drain(struct room *room, struct tally *tally) {
        struct list *link;
        struct group *g;
        run_sealed(room);
        end_all(room, tally);
        while (room_take_group(&room->out.formed))
                ;
        while ((link = list_take_first(&room->out.answered)))
                rendezvous_reform_free(room->r, list_entry(link, struct reform, outcome_link));
        while ((g = room_take_group(&room->out.unformed)))
                rendezvous_forget(room->r, g);
        while ((link = list_take_first(&room->out.struck))) {
                rendezvous_half_free(room->r, list_entry(link, struct half, pool_link));
                tally->n_told++;
        }
        while ((g = room_take_group(&room->out.over)))
                rendezvous_forget(room->r, g);
        while ((link = list_take_first(&room->out.ejected))) {
                uint64_t session = list_entry(link, struct member, outcome_link)->session;
                rendezvous_lose(room->r, session, LOSS_EJECTED, "", room->now_ns, &room->out);
        }
        if (!outcome_is_empty(&room->out))
                drain(room, tally);
}

static void try_join(struct room *room, struct join ask, struct tally *tally) {
        enum status status = room_join(room, ask);
        tally->is_wrong |= status != STATUS_OK && status != STATUS_NO_MEMORY && status != STATUS_BUSY;
        drain(room, tally);
}

static struct group *try_form(
        struct room *room, const char *name, enum on_death on_death, struct tally *tally) {
        struct group *g = NULL;
        for (uint32_t i = 0; i < 6; i++) { /* the rank that memory failed once is tried again */
                struct join ask = room_ask(name, 3, i % 3);
                ask.ask.on_death = on_death;
                try_join(room, ask, tally);
        }
        while ((g = rendezvous_next_group(room->r, g)))
                if (strcmp(g->name, name) == 0)
                        return g;
        return NULL;
}

static void try_submit(
        struct room *room, const struct group *g, uint32_t rank, const char *key, struct tally *tally) {
        tally->n_taken += submit(room, g, rank, named(key), 1);
}

static void try_refuse(struct room *room, const struct group *g, uint32_t rank, const char *key) {
        struct half *half = rendezvous_half_new(room->r, 1);
        if (!half)
                return;
        half->session = g->members[rank].session;
        half->membership = g->members[rank].id;
        half->epoch = g->epoch;
        half->key = named(key);
        error_init(&room->err, STATUS_BAD_FD);
        (void)!rendezvous_refuse(room->r, half, room->now_ns, &room->out, &room->err);
        rendezvous_half_free(room->r, half);
}

static void try_rounds(struct room *room, struct group *g, struct tally *tally) {
        static const char *const keys[] = { "k", "mismatch", "other" };
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                for (uint32_t rank = 0; rank < 3; rank++) {
                        try_submit(room, g, rank, keys[i], tally);
                        drain(room, tally);
                }
        try_submit(room, g, 0, "timeout", tally);
        room_wait(room, 1);
        drain(room, tally);
        try_submit(room, g, 1, "waits", tally);
        try_refuse(room, g, 2, "waits");
        drain(room, tally);
        try_submit(room, g, 0, "waits for R2", tally);
        try_submit(room, g, 1, "waits for R2", tally);
}

/* Calls of all who are alive, and a newcomer for the rank of the dead; what memory fails is tried again. */
static void try_reform(struct room *room, const struct group *g, struct tally *tally) {
        uint32_t n = rankset_count(&g->alive);
        for (uint32_t i = 0; i < 2 * n; i++) {
                const struct member *m = &g->members[i % n];
                const struct reform_ask ask = { .session = m->session,
                        .membership = m->id,
                        .kind = i % 3 ? REFORM_REJOIN : REFORM_SHRINK,
                        .timeout_ns = 1 };
                enum status status = rendezvous_reform(room->r, &ask, room->now_ns, &room->out, &room->err);
                tally->is_wrong |= status != STATUS_OK && status != STATUS_NO_MEMORY &&
                                   status != STATUS_ALREADY_PENDING && status != STATUS_REPLICA_LOST;
                struct join join = room_ask(g->name, 3, 2);
                join.session = 200 + i;
                join.ask.on_death = g->on_death;
                join.ask.join_timeout_ns = 5;
                try_join(room, join, tally);
                if (i == n)
                        room_wait(room, 1);
                drain(room, tally);
        }
        room_wait(room, 5);
        drain(room, tally);
}

/* Everything that asks for memory, in two groups that end each in its own way. */
static void play(struct room *room, struct tally *tally) {
        struct group *g = try_form(room, "shrinks", ON_DEATH_SHRINK, tally);
        if (g)
                try_rounds(room, g, tally);
        rendezvous_lose(room->r, 102, LOSS_DIED, "", room->now_ns, &room->out);
        drain(room, tally);
        g = try_form(room, "fails", ON_DEATH_FAIL, tally);
        if (g)
                try_rounds(room, g, tally);
        rendezvous_lose(room->r, 102, LOSS_DIED, "", room->now_ns, &room->out);
        drain(room, tally);
        if (g && g->state == GROUP_FAILED)
                try_reform(room, g, tally);
        for (uint64_t session = 100; session < 210; session++) {
                rendezvous_lose(room->r, session, LOSS_DIED, "", room->now_ns, &room->out);
                drain(room, tally);
        }
}

/* Whether memory was short somewhere. */
static bool play_short_at(unsigned int n) {
        struct room room = { .now_ns = NS_PER_S };
        struct tally tally = { 0 };
        struct quota_limits limits = room_limits();
        struct rendezvous_settings settings = room_settings();
        failing_at(n);
        int r = quotas_new(&room.quotas, &limits);
        if (r == 0 && (r = rendezvous_new(&room.r, &settings, room.quotas)) == 0) {
                outcome_init(&room.out);
                play(&room, &tally);
        }
        bool was_short = failing_has_failed();
        failing_at(0);
        ck_assert(r == 0 || (r == -ENOMEM && was_short));
        ck_assert_msg(!tally.is_wrong, "at call %u", n);
        ck_assert_msg(tally.n_taken == tally.n_told, "at call %u: %d halves were taken, %d told", n,
                tally.n_taken, tally.n_told);
        if (room.r) {
                ck_assert_uint_eq(rendezvous_n_groups(room.r), 0);
                ck_assert_uint_eq(rendezvous_next_ns(room.r), ALARM_NEVER);
                ck_assert_uint_eq(quota_users(room.quotas), 0);
        }
        rendezvous_free(room.r);
        quotas_free(room.quotas);
        return was_short;
}

START_TEST(memory_short_at_any_call_leaves_nothing_and_harms_nobody_else) {
        unsigned int n = 1;
        while (play_short_at(n))
                n++;
        ck_assert_uint_gt(n, 30); /* it asks that often at least */
}
END_TEST

START_TEST(a_half_without_memory_for_its_meeting_is_a_refusal) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        struct half *half = room_half(&room, g, 0, "k");
        failing_at(1);
        enum status status = room_submit_half(&room, half);
        failing_at(0);
        ck_assert_int_eq(status, STATUS_NO_MEMORY);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_EXPIRED);
        ck_assert_int_eq(room.err.cause, STATUS_PEER_REFUSED);
        room_round(&room, g, "k");
        room_close(&room);
}
END_TEST

START_TEST(P18_errors_that_wait_to_be_told_are_bounded_for_each_user) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        for (uint64_t i = 0; i < 5000; i++) {
                struct half *half = room_half(&room, g, 0, "x");
                half->key = key_sequence(i);
                ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
        }
        struct join ask = room_ask("other", 2, 0);
        ask.uid = 2000;
        struct group *other = room_form_like(&room, ask);
        ck_assert_int_eq(room_submit_half(&room, room_half(&room, other, 0, "y")), STATUS_OK);
        room_lose(&room, g, 1);
        room_lose(&room, other, 1);
        struct meeting *m;
        int n_with = 0, n_without = 0;
        while ((m = room_take(&room.out.ended))) {
                ck_assert_int_eq(m->status, STATUS_REPLICA_LOST);
                if (m->group == other) { /* of another user: it has not been used up for him */
                        ck_assert_ptr_nonnull(m->error);
                        ck_assert_int_eq(m->error->rank, 1);
                        room_release(&room, m);
                        continue;
                }
                *(m->error ? &n_with : &n_without) += 1;
                room_release(&room, m);
        }
        ck_assert_int_eq(n_with, 4096);
        ck_assert_int_eq(n_without, 904);
        room_close(&room);
}
END_TEST

UNIT_MAIN("rendezvous-memory", 30, after_warm_up_10000_collectives_ask_for_no_memory,
        memory_short_at_any_call_leaves_nothing_and_harms_nobody_else,
        a_half_without_memory_for_its_meeting_is_a_refusal,
        P18_errors_that_wait_to_be_told_are_bounded_for_each_user)
