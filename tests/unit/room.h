/* A rendezvous with everything around it, and short words for what replicas do in it. Replica r of a group is
 * session 100 + r, pid 4700 + r, uid 1000; time begins at 1000 s. */
#pragma once

#include <check.h>
#include <stdarg.h>
#include <string.h>
#include "base/clock.h"
#include "rendezvous.h"

struct room {
        struct quotas *quotas;
        struct rendezvous *r;
        struct outcome out;
        struct error err; /* of the last call that failed */
        uint64_t now_ns, last_request;
};

static inline struct rendezvous_settings room_settings(void) {
        return (struct rendezvous_settings){ .default_timeout_ns = 600 * NS_PER_S,
                .join_timeout_ns = 60 * NS_PER_S,
                .stall_warn_ns = 5 * NS_PER_S,
                .busy_max_ns = 3600 * NS_PER_S };
}

static inline struct quota_limits room_limits(void) {
        return (struct quota_limits){ .pending = 65536, .groups = 1024, .memory_bytes = 1 << 30 };
}

static inline void room_open_with(
        struct room *room, const struct rendezvous_settings *settings, const struct quota_limits *limits) {
        *room = (struct room){ .now_ns = 1000 * NS_PER_S };
        ck_assert_int_eq(quotas_new(&room->quotas, limits), 0);
        ck_assert_int_eq(rendezvous_new(&room->r, settings, room->quotas), 0);
        outcome_init(&room->out);
}

static inline void room_open(struct room *room) {
        struct rendezvous_settings settings = room_settings();
        struct quota_limits limits = room_limits();
        room_open_with(room, &settings, &limits);
}

static inline void room_close(struct room *room) {
        ck_assert(outcome_is_empty(&room->out));
        rendezvous_free(room->r);
        ck_assert_uint_eq(quota_users(room->quotas), 0);
        quotas_free(room->quotas);
}

static inline void room_wait(struct room *room, uint64_t ns) {
        room->now_ns += ns;
        do
                rendezvous_expire(room->r, room->now_ns, &room->out);
        while (rendezvous_next_ns(room->r) <= room->now_ns);
}

/* --- joining --- */

static inline struct join room_ask(const char *group, uint32_t world_size, uint32_t rank) {
        return (struct join){ .session = 100 + rank,
                .uid = 1000,
                .pid = 4700 + rank,
                .ask = {
                        .job = "dp", .group = group, .secret = "", .world_size = world_size, .rank = rank } };
}

static inline enum status room_join(struct room *room, struct join join) {
        join.request = ++room->last_request;
        return rendezvous_join(room->r, &join, room->now_ns, &room->out, &room->err);
}

static inline struct group *room_take_group(struct list *list) {
        struct list *link = list_take_first(list);
        return link ? list_entry(link, struct group, outcome_link) : NULL;
}

/* A whole group of which every member asked for the same as `ask` (its rank and session aside). */
static inline struct group *room_form_like(struct room *room, struct join ask) {
        for (uint32_t rank = 0; rank < ask.ask.world_size; rank++) {
                ask.session = 100 + rank;
                ask.pid = 4700 + rank;
                ask.ask.rank = rank;
                ck_assert_int_eq(room_join(room, ask), STATUS_OK);
        }
        struct group *g = room_take_group(&room->out.formed);
        ck_assert_ptr_nonnull(g);
        return g;
}

static inline struct group *room_form(struct room *room, uint32_t world_size, enum on_death on_death) {
        struct join ask = room_ask("train", world_size, 0);
        ask.ask.on_death = on_death;
        return room_form_like(room, ask);
}

/* --- submitting --- */

static inline struct key room_key(const char *name) {
        struct key key;
        ck_assert(key_name(&key, name, strlen(name)));
        return key;
}

/* One reduce SUM of f32[4], for everybody. */
static inline struct half *room_half(
        struct room *room, const struct group *g, uint32_t rank, const char *key) {
        struct half *half = rendezvous_half_new(room->r, 1);
        ck_assert_ptr_nonnull(half);
        half->session = g->members[rank].session;
        half->request = ++room->last_request;
        half->membership = g->members[rank].id;
        half->epoch = g->epoch;
        half->key = room_key(key);
        half->signature = (struct signature){ .kind = KIND_REDUCE, .op = OP_SUM, .n_entries = 1 };
        half->entries[0] = (struct entry){
                .dtype = DTYPE_F32, .destination = DESTINATION_ALL, .n_dims = 1, .shape = { 4 }
        };
        return half;
}

static inline enum status room_submit_half(struct room *room, struct half *half) {
        enum status status = rendezvous_submit(room->r, half, room->now_ns, &room->out, &room->err);
        if (status != STATUS_OK)
                rendezvous_half_free(room->r, half);
        return status;
}

static inline enum status room_submit(
        struct room *room, const struct group *g, uint32_t rank, const char *key) {
        return room_submit_half(room, room_half(room, g, rank, key));
}

static inline enum status room_submit_root(
        struct room *room, const struct group *g, uint32_t rank, const char *key, uint32_t root) {
        struct half *half = room_half(room, g, rank, key);
        half->signature.kind = KIND_BROADCAST;
        half->signature.op = OP_UNSPECIFIED;
        half->signature.root = root;
        return room_submit_half(room, half);
}

/* What a merge function that runs on `elected` will make. */
static inline enum status room_submit_merge(
        struct room *room, const struct group *g, uint32_t rank, const char *key, uint32_t elected) {
        struct half *half = room_half(room, g, rank, key);
        half->signature.kind = KIND_MERGE_RESULT;
        half->signature.op = OP_UNSPECIFIED;
        half->signature.root = elected;
        return room_submit_half(room, half);
}

static inline enum status room_submit_timeout(
        struct room *room, const struct group *g, uint32_t rank, const char *key, uint64_t timeout_ns) {
        struct half *half = room_half(room, g, rank, key);
        half->has_timeout = true;
        half->timeout_ns = timeout_ns;
        return room_submit_half(room, half);
}

static inline enum status room_refuse(
        struct room *room, const struct group *g, uint32_t rank, const char *key) {
        struct half *half = room_half(room, g, rank, key);
        error_init(&room->err, STATUS_BAD_FD);
        error_set(&room->err, STATUS_BAD_FD, FIELD_BUFFER, "opened read-only");
        enum status status = rendezvous_refuse(room->r, half, room->now_ns, &room->out, &room->err);
        rendezvous_half_free(room->r, half);
        return status;
}

/* --- what was decided --- */

static inline struct meeting *room_take(struct list *list) {
        struct list *link = list_take_first(list);
        return link ? list_entry(link, struct meeting, outcome_link) : NULL;
}

static inline void room_release(struct room *room, struct meeting *m) {
        rendezvous_release(room->r, m, &room->out);
}

static inline void room_finish(struct room *room, struct meeting *m) {
        rendezvous_done(room->r, m, STATUS_OK, NULL, room->now_ns);
        room_release(room, m);
}

/* All ranks of `g` submit `key`, and it is run to its end. */
static inline void room_round(struct room *room, const struct group *g, const char *key) {
        rankset_for_each (rank, &g->alive) {
                ck_assert_int_eq(room_submit(room, g, (uint32_t)rank, key), STATUS_OK);
        }
        struct meeting *m = room_take(&room->out.sealed);
        ck_assert_ptr_nonnull(m);
        room_finish(room, m);
}

/* The next ended meeting must have ended so; the caller releases it. */
static inline struct meeting *room_ended(struct room *room, enum status status) {
        struct meeting *m = room_take(&room->out.ended);
        ck_assert_ptr_nonnull(m);
        ck_assert_str_eq(status_name(m->status), status_name(status));
        ck_assert_int_eq(m->state, MEETING_ENDED);
        ck_assert_ptr_nonnull(m->error);
        ck_assert_int_eq(m->error->status, status);
        return m;
}

static inline void room_end_is(struct room *room, enum status status) {
        room_release(room, room_ended(room, status));
}

static inline enum status room_leave(struct room *room, const struct group *g, uint32_t rank) {
        const struct member *m = &g->members[rank];
        return rendezvous_leave(room->r, m->session, m->id, room->now_ns, &room->out, &room->err);
}

static inline void room_lose(struct room *room, const struct group *g, uint32_t rank) {
        rendezvous_lose(room->r, g->members[rank].session, LOSS_DIED, "", room->now_ns, &room->out);
}

static inline void room_free_struck(struct room *room) {
        struct list *link = list_take_first(&room->out.struck);
        ck_assert_ptr_nonnull(link);
        rendezvous_half_free(room->r, list_entry(link, struct half, pool_link));
}

static inline void room_over(struct room *room) {
        struct group *g = room_take_group(&room->out.over);
        ck_assert_ptr_nonnull(g);
        rendezvous_forget(room->r, g);
}

/* The sentences of an error hold `words`. */
static inline void room_says(const struct error *err, const char *words) {
        char text[ERROR_TEXT_BYTES];
        error_print(err, text, sizeof(text));
        ck_assert_msg(strstr(text, words), "\"%s\" does not say \"%s\"", text, words);
}
