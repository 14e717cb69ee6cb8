#include "group.h"

#include <string.h>

void group_describe(const struct group *g, struct error *err) {
        memcpy(err->job, g->job, sizeof(err->job));
        memcpy(err->group, g->name, sizeof(err->group));
        err->epoch = g->epoch;
        err->world_size = g->world_size;
}

static enum process_state process_state(const struct member *m) {
        switch (m->state) {
        case MEMBER_ABSENT: return PROCESS_ABSENT;
        case MEMBER_LOST: return m->loss == LOSS_DIED ? PROCESS_DEAD : PROCESS_UNKNOWN;
        case MEMBER_JOINING:
        case MEMBER_ALIVE:
        case MEMBER_LEFT: break;
        }
        return PROCESS_UNKNOWN;
}

static uint64_t age_ns(uint64_t now_ns, uint64_t then_ns) {
        return now_ns > then_ns ? now_ns - then_ns : 0;
}

void group_report(const struct group *g, uint32_t rank, uint64_t now_ns, struct replica_report *ret) {
        CHECK(rank < g->world_size);
        const struct member *m = &g->members[rank];
        *ret = (struct replica_report){ .rank = rank, .uid = g->uid, .state = process_state(m) };
        if (m->state == MEMBER_ABSENT)
                return;
        ret->pid = m->pid;
        memcpy(ret->busy, m->busy, sizeof(ret->busy));
        if (!m->has_last)
                return;
        ret->has_last = true;
        ret->last_key = m->last_key;
        ret->last_age_ns = age_ns(now_ns, m->last_ns);
}

struct rankset group_awaited(const struct group *g, enum reform_kind kind) {
        struct rankset awaited = kind == REFORM_SHRINK ? g->alive : rankset_first(g->world_size);
        rankset_for_each (rank, &awaited) {
                if (g->members[rank].reform)
                        rankset_remove(&awaited, (unsigned int)rank);
        }
        return awaited;
}

void group_add_reports(
        const struct group *g, const struct rankset *ranks, uint64_t now_ns, struct error *err) {
        rankset_for_each (rank, ranks) {
                if (err->n_replicas == MAX_ERROR_REPLICAS)
                        return;
                group_report(g, (uint32_t)rank, now_ns, &err->replicas[err->n_replicas++]);
        }
}
