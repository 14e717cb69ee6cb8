#include "rows.h"

#include <stdlib.h>
#include <string.h>

const struct tutti_row *rows_next(
        const struct tutti_answer *a, enum tutti_row_type type, const struct tutti_row *after) {
        if (!a)
                return NULL;
        for (const struct tutti_row *row = after ? after + 1 : a->rows; row < a->rows + a->n_rows; row++)
                if (row->type == type)
                        return row;
        return NULL;
}

const char *row_job(const struct tutti_row *row) {
        switch (row->type) {
        case TUTTI_ROW_GROUP: return row->group.job;
        case TUTTI_ROW_MEMBER: return row->member.job;
        case TUTTI_ROW_PENDING: return row->pending.job;
        case TUTTI_ROW_STATS: return row->stats.job;
        case TUTTI_ROW_RECORD: return row->record.job;
        case TUTTI_ROW_RESULT: return row->result.job;
        case TUTTI_ROW_HISTOGRAM: return row->histogram.job;
        case TUTTI_ROW_CLASS: return row->size_class.job;
        case TUTTI_ROW_GROUP_FALLBACK: return row->group_fallback.job;
        case TUTTI_ROW_NONE:
        case TUTTI_ROW_DAEMON:
        case TUTTI_ROW_DEVICE:
        case TUTTI_ROW_PLAN:
        case TUTTI_ROW_FALLBACK:
        case TUTTI_ROW_BUFFER:
        case TUTTI_ROW_DUMP:
        case TUTTI_ROW_LOSSES:
        case TUTTI_ROW_QUOTA: return "";
        }
        return "";
}

const char *row_group(const struct tutti_row *row) {
        switch (row->type) {
        case TUTTI_ROW_GROUP: return row->group.group;
        case TUTTI_ROW_MEMBER: return row->member.group;
        case TUTTI_ROW_PENDING: return row->pending.group;
        case TUTTI_ROW_STATS: return row->stats.group;
        case TUTTI_ROW_RECORD: return row->record.group;
        case TUTTI_ROW_RESULT: return row->result.group;
        case TUTTI_ROW_HISTOGRAM: return row->histogram.group;
        case TUTTI_ROW_CLASS: return row->size_class.group;
        case TUTTI_ROW_GROUP_FALLBACK: return row->group_fallback.group;
        case TUTTI_ROW_NONE:
        case TUTTI_ROW_DAEMON:
        case TUTTI_ROW_DEVICE:
        case TUTTI_ROW_PLAN:
        case TUTTI_ROW_FALLBACK:
        case TUTTI_ROW_BUFFER:
        case TUTTI_ROW_DUMP:
        case TUTTI_ROW_LOSSES:
        case TUTTI_ROW_QUOTA: return "";
        }
        return "";
}

static bool is_of(const struct tutti_row *row, const char *job, const char *group) {
        return strcmp(row_job(row), job) == 0 && strcmp(row_group(row), group) == 0;
}

const struct tutti_row *rows_next_of(const struct tutti_answer *a, enum tutti_row_type type, const char *job,
        const char *group, const struct tutti_row *after) {
        do
                after = rows_next(a, type, after);
        while (after && !is_of(after, job, group));
        return after;
}

const struct tutti_row *rows_next_member(
        const struct tutti_answer *a, const struct tutti_row_group *g, const struct tutti_row *after) {
        uint64_t ended_epoch = g->ended ? g->epoch : 0;

        do
                after = rows_next_of(a, TUTTI_ROW_MEMBER, g->job, g->group, after);
        while (after && after->member.ended_epoch != ended_epoch);
        return after;
}

static bool is_life(const struct tutti_row_group *g, const struct tutti_row_dump *about) {
        if (about->ended)
                return g->ended && g->epoch == about->last_epoch;
        return !g->ended;
}

const struct tutti_row_group *rows_find_life(const struct tutti_answer *groups, const char *job,
        const char *group, const struct tutti_row_dump *about) {
        const struct tutti_row_group *found = NULL;
        const struct tutti_row *row = NULL;

        while (about && (row = rows_next_of(groups, TUTTI_ROW_GROUP, job, group, row))) {
                if (is_life(&row->group, about))
                        return &row->group;
                if (!row->group.ended && row->group.epoch >= about->last_epoch)
                        found = &row->group;
        }
        return found;
}

bool rows_is_first_of(const struct tutti_answer *a, enum tutti_row_type type, const struct tutti_row *row) {
        return rows_next_of(a, type, row_job(row), row_group(row), NULL) == row;
}

const struct tutti_row_member *rows_latest_member(
        const struct tutti_answer *a, const char *job, const char *group) {
        const struct tutti_row_member *latest = NULL;
        const struct tutti_row *row = NULL;

        while ((row = rows_next_of(a, TUTTI_ROW_MEMBER, job, group, row)))
                if (row->member.n_joint && row->member.n_last &&
                        (!latest || row->member.lateness_p50_ns > latest->lateness_p50_ns))
                        latest = &row->member;
        return latest;
}

bool member_is_gone(const struct tutti_row_member *m) {
        return m->lost || m->lost_age_ns;
}

bool record_has_arrival(const struct tutti_row_record *r, uint32_t rank) {
        return rank < r->n_arrivals && r->arrival_ns[rank] != UINT64_MAX;
}

/* A collective of which everything arrived at once was sealed after 0 ns. */
bool record_is_sealed(const struct tutti_row_record *r) {
        return r->sealed_ns || r->status == TUTTI_OK;
}

bool quota_is_near(const struct tutti_row_quota *q) {
        return q->limit && q->used >= q->limit - q->limit / 10;
}

static bool is_full_name(const struct tutti_row_group *g, const char *name) {
        size_t n = strlen(g->job);

        return strncmp(name, g->job, n) == 0 && name[n] == '/' && strcmp(name + n + 1, g->group) == 0;
}

static bool is_same_group(const struct tutti_row_group *a, const struct tutti_row_group *b) {
        return strcmp(a->job, b->job) == 0 && strcmp(a->group, b->group) == 0;
}

/* "a/b/c" may be group c of job a/b, or b/c of a: the last slash divides. */
static const struct tutti_row_group *find_full(const struct tutti_answer *groups, const char *name) {
        const struct tutti_row_group *found = NULL;
        const struct tutti_row *row = NULL;

        while ((row = rows_next(groups, TUTTI_ROW_GROUP, row)))
                if (is_full_name(&row->group, name) &&
                        (!found || strlen(row->group.job) > strlen(found->job)))
                        found = &row->group;
        return found;
}

/* Those that have ended stand behind the one that is there, in the order of their ends. */
static const struct tutti_row_group *newest_life(
        const struct tutti_answer *groups, const struct tutti_row_group *g) {
        const struct tutti_row *row = NULL;

        while (g->ended && (row = rows_next_of(groups, TUTTI_ROW_GROUP, g->job, g->group, row)))
                if (row->group.ended && &row->group > g)
                        g = &row->group;
        return g;
}

enum name_match rows_match_name(
        const struct tutti_answer *groups, const char *name, const struct tutti_row_group **ret) {
        const struct tutti_row_group *found = find_full(groups, name);
        const struct tutti_row *row = NULL;

        while (!found && (row = rows_next(groups, TUTTI_ROW_GROUP, row)))
                if (strcmp(row->group.group, name) == 0)
                        found = &row->group;
        if (!found)
                return NAME_ABSENT;
        /* The same group may be listed twice: alive, and as the record of an earlier life. */
        while (row && (row = rows_next(groups, TUTTI_ROW_GROUP, row)))
                if (strcmp(row->group.group, name) == 0 && !is_same_group(&row->group, found))
                        return NAME_AMBIGUOUS;
        *ret = newest_life(groups, found);
        return NAME_FOUND;
}

uint64_t seconds_to_ns(double s) {
        return s > 0 ? (uint64_t)(s * 1e9 + 0.5) : 0;
}
