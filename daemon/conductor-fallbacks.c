/* What collectives asked for and did not get: noted when they have run, and told to who asks. */
#include "conductor-log.h"
#include "conductor-rows.h"

_Static_assert(
        sizeof(((struct plan *)0)->fallback) <= FALLBACK_WHY_BYTES, "a plan's reason is kept as it is");

void conductor_note_fallback(struct conductor *c, const struct meeting *m, const struct plan *plan) {
        const struct fallback_run run = { .why = plan->fallback,
                .algorithm = plan->algorithm,
                .kind = m->halves[rankset_next(&m->have, 0)]->signature.kind,
                .key = &m->key,
                .done_ns = m->done_ns };
        if (stats_add_fallback(c->house.stats, m->group, &run))
                conductor_log_fallback(m->group, &run);
}

bool write_fallbacks(struct row_writer *w, struct query *q, const struct group *g) {
        const struct fallbacks *all = stats_fallbacks(w->conductor->house.stats, g);
        uint64_t now_ns = w->conductor->now_ns;
        for (uint32_t i = 0; all && i < all->n; i++) {
                const struct fallback *f = &all->all[i];
                writer_add(w, ROW_GROUP_FALLBACK, 0)->group_fallback =
                        (struct row_group_fallback){ .job = g->job,
                                .group = g->name,
                                .uid = g->uid,
                                .why = f->why,
                                .algorithm = f->algorithm,
                                .n = f->n,
                                .last_age_ns = now_ns > f->last_ns ? now_ns - f->last_ns : 0,
                                .kind = f->kind,
                                .key = f->key };
        }
        return true;
}
