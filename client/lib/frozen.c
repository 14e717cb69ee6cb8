#include "lib/frozen.h"

#include <stdlib.h>
#include <string.h>
#include "lib/object.h"
#include "lib/region.h"

/* --- what may be prepared --- */

static enum status refuse_each_time(struct error *err, const char *what) {
        return refuse(err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                "what is prepared is looked at once, and %s; use the plain call", what);
}

static enum status check_place(
        const struct tutti_work *w, const struct half_options *options, struct error *err) {
        if (options->options.check_inputs)
                return refuse_each_time(err, "check_inputs has to look at the inputs each time");
        if (w->staging.piece)
                return refuse_each_time(err, "values in plain memory are copied each time");
        for (uint32_t i = 0; i < w->n_uses; i++)
                if (device_of(w->uses[i]))
                        return refuse_each_time(err, "values in device memory follow a stream each time");
        return options->has_stream ? refuse_each_time(err, "a stream is followed each time") : STATUS_OK;
}

static enum status check_entries(const struct tutti_prepared *p, struct error *err) {
        for (uint32_t i = 0; i < p->half.n_entries; i++)
                if (p->entries[i].layout != LAYOUT_DENSE)
                        return refuse_each_time(err, "sparse values have other lengths each time");
        return STATUS_OK;
}

/* --- life --- */

static void free_memory(struct tutti_prepared *p) {
        if (!p)
                return;
        free(p->entries);
        free(p->uses);
        free(p);
}

static struct tutti_prepared *allocate(const struct half *h, const struct tutti_work *w) {
        struct tutti_prepared *p = calloc(1, sizeof(*p));
        if (!p)
                return NULL;
        p->entries = calloc(h->n_entries ? h->n_entries : 1, sizeof(*p->entries));
        p->uses = calloc(w->n_uses ? w->n_uses : 1, sizeof(struct tutti_buffer *));
        if (p->entries && p->uses)
                return p;
        free_memory(p);
        return NULL;
}

static void hold(struct tutti_prepared *p, const struct tutti_work *w) {
        struct tutti *t = w->t;
        pthread_mutex_lock(&t->lock);
        for (p->n_uses = 0; p->n_uses < w->n_uses; p->n_uses++) {
                p->uses[p->n_uses] = w->uses[p->n_uses];
                buffer_use(p->uses[p->n_uses]);
        }
        p->object = w->object;
        if (p->object)
                object_use(p->object);
        list_append(&p->half.g->prepared, &p->node);
        pthread_mutex_unlock(&t->lock);
}

/* The checked half of *w. */
static enum status freeze(const struct half *h, const struct half_options *options,
        struct tutti_prepared **ret, struct error *err) {
        enum status status = check_place(h->work, options, err);
        if (status != STATUS_OK)
                return status;
        struct tutti_prepared *p = allocate(h, h->work);
        if (!p)
                return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                        "%u entries to be kept do not fit into memory", h->n_entries);
        for (uint32_t i = 0; i < h->n_entries; i++)
                half_entry(h, i, &p->entries[i]);
        p->half = *h;
        p->half.entries = NULL;
        p->half.options = NULL;
        p->half.work = NULL;
        p->options = *options;
        status = check_entries(p, err);
        if (status != STATUS_OK) {
                free_memory(p);
                return status;
        }
        hold(p, h->work);
        *ret = p;
        return STATUS_OK;
}

enum tutti_status frozen_make(struct half *h, struct tutti_prepared **ret) {
        if (!h->g || !ret)
                return thread_say(STATUS_INVALID, FIELD_MEMBERSHIP,
                        "to prepare a collective takes a group, and a place for what is prepared");
        enum tutti_status answer = group_check(h->g);
        if (answer != TUTTI_OK)
                return answer;
        struct error err;
        struct half_options options;
        struct entry only;
        h->work = work_new(h->g->t);
        if (!h->work)
                return thread_say(STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "a handle does not fit into memory");
        enum status status = half_check(h, &options, &only, &err);
        if (status == STATUS_OK)
                status = freeze(h, &options, ret, &err);
        work_drop(h->work);
        if (status == STATUS_OK)
                return TUTTI_OK;
        group_sign(h->g, &err);
        err.kind = h->kind;
        return thread_fail(&err);
}

/* Under `lock`. */
static void let_go(struct tutti_prepared *p) {
        list_unlink(&p->node);
        for (uint32_t i = 0; i < p->n_uses; i++)
                buffer_end_use(p->uses[i]);
        if (p->object)
                object_end_use(p->object);
}

void tutti_prepared_free(struct tutti_prepared *p) {
        struct tutti *t = p ? p->half.g->t : NULL;
        if (!p || fork_guard_is_child(t->guard))
                return;
        pthread_mutex_lock(&t->lock);
        let_go(p);
        pthread_mutex_unlock(&t->lock);
        free_memory(p);
        regions_reap(t);
}

void frozen_end_all(struct tutti_group *g) {
        struct list *first;
        pthread_mutex_lock(&g->t->lock);
        while ((first = g->prepared.next) != &g->prepared) {
                struct tutti_prepared *p = list_entry(first, struct tutti_prepared, node);
                let_go(p);
                free_memory(p);
        }
        pthread_mutex_unlock(&g->t->lock);
        regions_reap(g->t);
}

void frozen_free_all(struct tutti_group *g) {
        list_for_each_safe (it, tmp, &g->prepared) {
                struct tutti_prepared *p = list_entry(it, struct tutti_prepared, node);
                if (p->object)
                        object_end_use(p->object);
                free_memory(p);
        }
        list_init(&g->prepared);
}

/* --- submitting --- */

enum status frozen_use(const struct tutti_prepared *p, struct tutti_work *w, struct half_options *ret_options,
        struct entry *ret_only, struct error *err) {
        for (uint32_t i = 0; i < p->n_uses; i++)
                if (!work_uses(w, p->uses[i]))
                        return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                                "the list of the buffers in use does not fit into memory");
        if (p->object)
                work_uses_object(w, p->object);
        *ret_options = p->options;
        if (p->half.n_entries == 1)
                *ret_only = p->entries[0];
        return STATUS_OK;
}

struct sip frozen_print(struct tutti_prepared *p, const struct msg_submit *m) {
        if (p->printed != m->membership) {
                p->print = print_of_half(m, p->entries);
                p->printed = m->membership;
        }
        return p->print;
}
