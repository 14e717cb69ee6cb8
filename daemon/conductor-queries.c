/* Questions of people and exporters, answered a slice at a time.
 *
 * The rows of a question go out in as few packets as they fit into. A turn writes a bounded number of them,
 * whoever asks: what is left goes on in the next turn, or when its reader has taken what was sent. Meanwhile
 * the session is not read; who asks again and again waits for himself alone. */
#include "conductor-rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"

static struct reply writer_reply(const struct row_writer *w, uint32_t n, bool is_last) {
        return (struct reply){ .request = w->request,
                .status = STATUS_OK,
                .more = !is_last,
                .type = REPLY_ROWS,
                .rows = { .rows = w->rows, .n_rows = n } };
}

/* false: they do not fit into a packet. */
static bool writer_send_all(struct row_writer *w, bool is_last) {
        const struct reply reply = writer_reply(w, w->n_rows, is_last);
        if (!conductor_reply_if_it_fits(w->conductor, w->session, &reply))
                return false;
        w->n_rows = 0;
        return true;
}

static void writer_send_some(struct row_writer *w) {
        uint32_t n = codec_rows_that_fit(w->rows, w->n_rows, &w->conductor->scratch);
        const struct reply reply = writer_reply(w, n, false);
        conductor_reply(w->conductor, w->session, &reply);
        memmove(w->rows, w->rows + n, (w->n_rows - n) * sizeof(*w->rows));
        w->n_rows -= n;
}

/* Sends what is there in as many parts as it takes; the last one, also an empty one, ends the answer. */
static void writer_flush(struct row_writer *w, bool is_last) {
        while ((w->n_rows > 0 || is_last) && !writer_send_all(w, is_last))
                writer_send_some(w);
        arena_reset(&w->arena);
}

/* A slice may write a few rows more than it was left with: they are taken from what is saved. */
static void conductor_take_row(struct conductor *c) {
        c->n_rows_left -= c->n_rows_left > 0;
        c->n_rows_saved -= c->n_rows_saved > 0;
}

struct row *writer_add(struct row_writer *w, enum row_type type, size_t bytes) {
        if (w->n_rows == MAX_ROWS_A_PACKET || w->arena.size_bytes - w->arena.used_bytes < bytes + 64)
                writer_flush(w, false);
        conductor_take_row(w->conductor);
        w->conductor->work += ROW_WORK;
        struct row *row = &w->rows[w->n_rows++];
        *row = (struct row){ .type = type };
        return row;
}

void writer_pass(struct row_writer *w) {
        conductor_take_row(w->conductor);
        w->conductor->work += ROW_WORK;
}

bool writer_is_tired(const struct row_writer *w) {
        return w->conductor->n_rows_left == 0;
}

/* --- the parts of answers --- */

static bool query_names(const struct query *q, const char *job, const char *group) {
        return (q->job[0] == '\0' || strcmp(q->job, job) == 0) &&
               (q->group[0] == '\0' || strcmp(q->group, group) == 0);
}

static bool query_wants(const struct session *s, const struct query *q, const struct group *g) {
        return viewer_sees(&s->viewer, g->uid, g->secret) && query_names(q, g->job, g->name);
}

/* Calls `write` for each live group that the question is about. Groups stand in the order of their ids. */
static bool write_each(struct row_writer *w, struct query *q,
        bool (*write)(struct row_writer *, struct query *, const struct group *)) {
        const struct rendezvous *r = w->conductor->house.rendezvous;
        for (const struct group *g = rendezvous_next_group(r, NULL); g; g = rendezvous_next_group(r, g)) {
                if (g->id <= q->group_id || !query_wants(w->session, q, g))
                        continue;
                if (writer_is_tired(w) || !write(w, q, g))
                        return false;
                q->group_id = g->id;
                q->rank = 0;
        }
        return true;
}

static bool write_groups(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_group);
}

static bool write_groups_pending(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_pending);
}

static bool write_groups_results(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_results);
}

static bool write_groups_members(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_members);
}

static bool write_groups_kinds(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_kinds);
}

static bool write_groups_classes(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_classes);
}

static bool write_groups_fallbacks(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_fallbacks);
}

static bool write_groups_lateness(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_lateness);
}

static bool write_groups_histograms(struct row_writer *w, struct query *q) {
        return write_each(w, q, write_histograms);
}

/* How its members were at its end. */
static bool write_ended_members(struct row_writer *w, struct query *q, const struct recording *rec) {
        struct row_member member;
        while (q->ended_members) {
                if (writer_is_tired(w))
                        return false;
                if (!recording_next_member(rec, &q->member_cursor, w->conductor->now_ns, &member))
                        break;
                writer_add(w, ROW_MEMBER, 0)->member = member;
        }
        return true;
}

/* In the order in which they ended: `q->group_id` is the number of the last that is written. */
static bool write_ended_groups(struct row_writer *w, struct query *q) {
        struct recorder *r = w->conductor->house.recorder;
        struct row_group group;
        struct recording *at = NULL;
        while ((at = recorder_next_ended(r, &w->session->viewer, at, w->conductor->now_ns, &group))) {
                if (recording_number(at) <= q->group_id || !query_names(q, group.job, group.group))
                        continue;
                if (writer_is_tired(w))
                        return false;
                if (q->recording != recording_number(at)) {
                        writer_add(w, ROW_GROUP, 0)->group = group;
                        q->recording = recording_number(at);
                        q->member_cursor = 0;
                }
                if (!write_ended_members(w, q, at))
                        return false;
                q->group_id = recording_number(at);
        }
        return true;
}

static void write_quota_of(struct row_writer *w, uint32_t uid) {
        const struct quotas *quotas = w->conductor->house.quotas;
        for (int i = 0; i < N_QUOTA; i++)
                writer_add(w, ROW_QUOTA, 0)->quota = (struct row_quota){ .uid = uid,
                        .name = quota_name((enum quota)i),
                        .used = quota_used(quotas, uid, (enum quota)i),
                        .limit = quota_limit(quotas, uid, (enum quota)i),
                        .n_refused = quota_refused(quotas, uid, (enum quota)i) };
        writer_add(w, ROW_LOSSES, 0)->losses = (struct row_losses){ .uid = uid,
                .n_died = quota_losses(quotas, uid, LOSS_DIED),
                .n_disconnected = quota_losses(quotas, uid, LOSS_DISCONNECTED),
                .n_ejected = quota_losses(quotas, uid, LOSS_EJECTED) };
}

/* Whom it is about comes first; who sees all, and named nobody, hears of the others too. */
static bool write_quota(struct row_writer *w, struct query *q) {
        uint32_t uids[MAX_LISTED_USERS];
        uint32_t n = quota_list_users(w->conductor->house.quotas, uids, MAX_LISTED_USERS);
        write_quota_of(w, w->session->viewer.uid);
        if (!w->session->viewer.sees_all || q->has_user)
                return true;
        for (uint32_t i = 0; i < n && i < MAX_LISTED_USERS; i++)
                if (uids[i] != w->session->uid)
                        write_quota_of(w, uids[i]);
        return true;
}

/* Those from `number` up to where it goes on are gone. What came after the question is not missed. */
static void note_missed(struct query *q, uint64_t number, uint64_t goes_on) {
        uint64_t end = goes_on < q->end ? goes_on : q->end;
        if (number >= end)
                return;
        q->n_missed += end - number;
        q->n_missed_here += end - number;
}

static bool next_record(struct query *q, struct recording *rec, struct row_record *ret) {
        uint64_t number = q->at.number;
        if (!recording_next(rec, &q->at, q->asked_ns, ret))
                return false;
        note_missed(q, number, q->at.number - 1);
        return true;
}

/* A recording that has gone meanwhile ends its dump. What began after the question is no part of the answer:
 * all ages count back from one moment, so that the records of one dump can be laid beside each other. */
static bool write_dump(struct row_writer *w, struct query *q) {
        struct recording *rec = recorder_find_group(w->conductor->house.recorder, q->recording);
        struct row_record record;
        if (!rec) {
                note_missed(q, q->at.number, q->end);
                return true;
        }
        while (!writer_is_tired(w) && next_record(q, rec, &record)) {
                if (record.age_ns == 0)
                        continue;
                record.missed = q->n_missed_here;
                q->n_missed_here = 0;
                write_record(w, &record);
        }
        return !writer_is_tired(w);
}

static bool write_dump_end(struct row_writer *w, struct query *q) {
        q->dump.missed = q->n_missed;
        writer_add(w, ROW_DUMP, 0)->dump = q->dump;
        return true;
}

#define MAX_PARTS 10

/* NULL ends them. */
static bool (*const parts[][MAX_PARTS])(struct row_writer *w, struct query *q) = {
        [WHAT_STATUS] = { write_daemon, write_devices, write_gpus, write_shortage, write_buffers,
                write_groups, write_groups_pending, write_groups_results, write_groups_fallbacks },
        [WHAT_GROUPS] = { write_groups, write_ended_groups, write_groups_members },
        [WHAT_STATS] = { write_daemon, write_groups_kinds, write_groups_classes, write_groups_members },
        [WHAT_DUMP] = { write_dump, write_dump_end },
        [WHAT_QUOTA] = { write_quota },
        [WHAT_HISTOGRAMS] = { write_groups_histograms, write_groups_lateness },
        [WHAT_PLAN] = { write_plan },
};

/* --- what cannot be answered --- */

static bool knows_group(const struct conductor *c, const struct session *s, const struct query *q) {
        struct row_group group;
        struct recording *at = NULL;
        for (const struct group *g = rendezvous_next_group(c->house.rendezvous, NULL); g;
                g = rendezvous_next_group(c->house.rendezvous, g))
                if (query_wants(s, q, g))
                        return true;
        while ((at = recorder_next_ended(c->house.recorder, &s->viewer, at, c->now_ns, &group)))
                if (query_names(q, group.job, group.group))
                        return true;
        return false;
}

static enum status refuse_unknown_group(const struct query *q, struct error *err) {
        char epoch[48] = "";
        if (q->epoch)
                snprintf(epoch, sizeof(epoch), "epoch %" PRIu64 " of ", q->epoch);
        return error_set(err, STATUS_NOT_FOUND, FIELD_GROUP,
                "no record of %sa group \"%s/%s\" of %s; `tuttictl groups` lists them", epoch, q->job,
                q->group, q->has_user ? "that user" : "yours");
}

static enum status query_check(
        const struct conductor *c, const struct session *s, const struct query *q, struct error *err) {
        if (s->viewer.uid != s->uid && !s->viewer.sees_all)
                return error_set(err, STATUS_PERMISSION, FIELD_UNSPECIFIED,
                        "uid %u sees its own alone; who sees others' stands in daemon.admins or "
                        "daemon.observers",
                        s->uid);
        if ((unsigned int)q->what >= ARRAY_SIZE(parts) || !parts[q->what][0])
                return error_set(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                        "tuttid %s cannot answer this question", TUTTI_VERSION);
        if (q->group[0] != '\0' && !knows_group(c, s, q))
                return refuse_unknown_group(q, err);
        if (q->what == WHAT_DUMP && !recorder_find(c->house.recorder, &s->viewer, q->job, q->group, q->epoch))
                return refuse_unknown_group(q, err);
        return STATUS_OK;
}

/* --- a slice --- */

static struct row_writer *writer_new(struct conductor *c, const struct query *q) {
        struct row_writer *w = malloc(sizeof(*w));
        if (!w)
                return NULL;
        w->conductor = c;
        w->session = session_find(c->house.sessions, q->session);
        w->request = q->request;
        w->n_rows = 0;
        arena_init(&w->arena, w->memory, sizeof(w->memory));
        return w;
}

static enum status refuse_memory(struct error *err) {
        return error_set(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
}

/* Whether the answer is complete. */
static bool query_write(struct query *q, struct row_writer *w) {
        while (parts[q->what][q->part]) {
                if (writer_is_tired(w) || !parts[q->what][q->part](w, q)) {
                        writer_flush(w, false);
                        return false;
                }
                q->part++;
                q->group_id = 0;
                q->rank = 0;
        }
        writer_flush(w, true);
        return true;
}

/* Whether it has ended. */
static bool query_slice(struct conductor *c, struct session *s, struct query *q) {
        CLEANUP_FREE struct row_writer *w = writer_new(c, q);
        if (w)
                return query_write(q, w);
        struct error err;
        error_init(&err, STATUS_OK);
        conductor_reply_status(c, s, q->request, refuse_memory(&err), &err);
        return true;
}

#define ROW_NS      (NS_PER_MS / ROWS_A_MS)
#define PATIENCE_NS NS_PER_MS /* of answers, with those who work */

void conductor_allow_rows(struct conductor *c) {
        uint64_t n = c->n_rows_saved + (c->now_ns - c->rows_ns) / ROW_NS;
        c->rows_ns = c->now_ns - (c->now_ns - c->rows_ns) % ROW_NS;
        c->n_rows_saved = n < ROWS_AT_ONCE ? (uint32_t)n : ROWS_AT_ONCE;
        c->n_rows_left = c->n_rows_saved < ROWS_A_TURN ? c->n_rows_saved : ROWS_A_TURN;
}

uint64_t conductor_answers_next_ns(const struct conductor *c) {
        if (list_is_empty(&c->queries))
                return ALARM_NEVER;
        if (c->n_rows_saved == 0)
                return c->rows_ns + ROWS_A_TURN * ROW_NS;
        return c->has_worked ? c->answered_ns + PATIENCE_NS : c->now_ns;
}

bool conductor_go_on_answering(struct conductor *c) {
        bool is_any_ended = false;
        struct list *it;
        if (c->has_worked && c->now_ns - c->answered_ns < PATIENCE_NS)
                return false;
        c->answered_ns = c->now_ns;
        while (c->n_rows_left > 0 && (it = list_take_first(&c->queries))) {
                struct query *q = list_entry(it, struct query, link);
                struct session *s = session_find(c->house.sessions, q->session);
                conductor_take_row(c); /* an answer without rows costs something too */
                c->work += PACKET_WORK;
                if (query_slice(c, s, q)) {
                        conductor_drop_query(s);
                        session_resume(c->house.sessions, s);
                        is_any_ended = true;
                } else if (!session_is_behind(s)) {
                        list_append(&c->queries, &q->link);
                } /* else it goes on when its reader has taken what there is */
        }
        return is_any_ended;
}

/* The first that waits begins to be patient. */
static void conductor_answer_soon(struct conductor *c, struct query *q) {
        if (list_is_empty(&c->queries))
                c->answered_ns = c->now_ns;
        list_append(&c->queries, &q->link);
}

void conductor_reader_is_back(struct conductor *c, struct session *s) {
        if (s->query && list_is_empty(&s->query->link))
                conductor_answer_soon(c, s->query);
}

void conductor_drop_query(struct session *s) {
        if (!s->query)
                return;
        list_unlink(&s->query->link);
        list_unlink(&s->query->told.link);
        free(s->query->plan);
        free(s->query);
        s->query = NULL;
}

/* --- a question --- */

static struct query *query_new(
        const struct session *s, uint64_t request, const struct msg_query *ask, uint64_t now_ns) {
        struct query *q = calloc(1, sizeof(*q));
        if (!q)
                return NULL;
        list_init(&q->link);
        list_init(&q->told.link);
        q->session = s->id;
        q->request = request;
        q->what = ask->what;
        q->has_user = ask->has_user;
        q->epoch = ask->what == WHAT_DUMP ? ask->epoch : RECORDER_NEWEST;
        q->ended_members = ask->ended_members;
        q->asked_ns = now_ns;
        snprintf(q->job, sizeof(q->job), "%s", ask->job);
        snprintf(q->group, sizeof(q->group), "%s", ask->group);
        return q;
}

/* The recording is there. */
static void begin_dump(const struct conductor *c, const struct session *s, struct query *q) {
        const struct recording *rec =
                recorder_find(c->house.recorder, &s->viewer, q->job, q->group, q->epoch);
        q->recording = recording_group(rec);
        q->dump = recording_describe(rec);
        q->at = recording_begin(rec);
        q->end = recording_end(rec);
}

void conductor_query(struct conductor *c, struct session *s, uint64_t request, const struct msg_query *ask) {
        struct error err;
        error_init(&err, STATUS_OK);
        s->viewer.uid = ask->has_user ? ask->user : s->uid; /* one question at a time */
        CLEANUP_FREE struct query *q = query_new(s, request, ask, c->now_ns);
        enum status status = q ? query_check(c, s, q, &err) : refuse_memory(&err);
        if (status == STATUS_OK && ask->what == WHAT_PLAN)
                status = plan_text_make(c, ask, &q->plan, &err);
        if (status == STATUS_OK && ask->what == WHAT_DUMP)
                begin_dump(c, s, q);
        if (status != STATUS_OK) {
                conductor_reply_status(c, s, request, status, &err);
                return;
        }
        session_pause(s);
        s->query = take_pointer(q);
        conductor_answer_soon(c, s->query);
}
