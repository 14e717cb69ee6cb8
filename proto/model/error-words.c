#include "model/error-words.h"

#include <inttypes.h>
#include <string.h>

void say_plain(struct text *t, const char *s) {
        char plain[sizeof(((struct error *)0)->detail)];
        text_copy(plain, sizeof(plain), s);
        text_add(t, "%s", plain);
}

static void say_full_stop(struct text *t) {
        if (t->used == 0 || t->buf[t->used - 1] != '.')
                text_add(t, ".");
}

void say_detail_or(const struct error *e, const char *otherwise, struct text *t) {
        say_plain(t, e->detail[0] ? e->detail : otherwise);
        say_full_stop(t);
}

void say_more_detail(const struct error *e, struct text *t) {
        if (!e->detail[0])
                return;
        text_add(t, " ");
        say_detail_or(e, "", t);
}

bool error_is_of_collective(const struct error *e) {
        return e->has_key || e->kind != KIND_UNSPECIFIED;
}

/* "reduce \"grad/7\" in dp/train (epoch 3): ", as much of it as is known. */
static void say_subject(const struct error *e, struct text *t) {
        size_t start = t->used;
        if (error_is_of_collective(e))
                text_add(t, "%s", e->kind == KIND_UNSPECIFIED ? "collective" : kind_name(e->kind));
        if (e->has_key) {
                text_add(t, " ");
                key_print(&e->key, t);
        }
        if (e->group[0]) {
                text_add(t, "%s", t->used > start ? " in " : "");
                say_plain(t, e->job);
                text_add(t, "%s", e->job[0] ? "/" : "");
                say_plain(t, e->group);
                if (e->epoch)
                        text_add(t, " (epoch %" PRIu64 ")", e->epoch);
        }
        if (t->used > start)
                text_add(t, ": ");
}

void say_head(const struct error *e, struct text *t) {
        text_add(t, "%s: ", status_name(e->status));
        say_subject(e, t);
}

void say_entry(const struct error *e, struct text *t) {
        if (e->entry >= 0 && e->kind != KIND_REDUCE && e->kind != KIND_BROADCAST)
                text_add(t, " of entry %" PRId32, e->entry);
}

const struct replica_report *error_find_report(const struct error *e, int64_t rank) {
        for (uint32_t i = 0; i < e->n_replicas && i < MAX_ERROR_REPLICAS; i++)
                if (e->replicas[i].rank == rank)
                        return &e->replicas[i];
        return NULL;
}

static void say_pid(const struct replica_report *r, struct text *t) {
        if (r->pid)
                text_add(t, "pid %" PRIu32, r->pid);
        else
                text_add(t, "pid not visible");
        text_add(t, ", uid %" PRIu32, r->uid);
}

void say_replica(const struct error *e, int64_t rank, struct text *t) {
        const struct replica_report *r = error_find_report(e, rank);
        if (rank < 0)
                text_add(t, "a replica");
        else if (!r)
                text_add(t, "R%" PRId64, rank);
        else {
                text_add(t, "R%" PRId64 " (", rank);
                say_pid(r, t);
                text_add(t, ")");
        }
}

void say_last(const struct replica_report *r, struct text *t) {
        if (!r->has_last) {
                text_add(t, "has finished nothing yet");
                return;
        }
        text_add(t, "last finished ");
        key_print(&r->last_key, t);
        text_add(t, " ");
        text_add_duration(t, r->last_age_ns);
        text_add(t, " ago");
}

static void say_state(enum process_state state, struct text *t) {
        if (state == PROCESS_STOPPED)
                text_add(t, "alive, stopped");
        else
                text_add(t, "%s%s", state == PROCESS_UNKNOWN ? "state " : "", process_state_name(state));
}

void say_report(const struct replica_report *r, struct text *t) {
        text_add(t, "R%" PRIu32 " (", r->rank);
        if (r->state == PROCESS_ABSENT) {
                text_add(t, "never joined)");
                return;
        }
        say_pid(r, t);
        text_add(t, ", ");
        say_state(r->state, t);
        text_add(t, "; ");
        say_last(r, t);
        if (r->busy[0]) {
                text_add(t, "; busy: ");
                text_add_quoted(t, r->busy, strnlen(r->busy, sizeof(r->busy)));
        }
        text_add(t, ")");
}

void say_missing(const struct error *e, struct text *t) {
        struct rankset rest = e->missing;
        const char *gap = "";
        for (uint32_t i = 0; i < e->n_replicas && i < MAX_ERROR_REPLICAS; i++) {
                const struct replica_report *r = &e->replicas[i];
                if (!rankset_has(&rest, r->rank))
                        continue;
                rankset_remove(&rest, r->rank);
                text_add(t, "%s", gap);
                say_report(r, t);
                gap = ", ";
        }
        if (*gap && rankset_is_empty(&rest))
                return;
        text_add(t, "%s", *gap ? " and " : "");
        rankset_print(&rest, t);
}

void say_presence(const struct error *e, struct text *t) {
        text_add(t, "Here: ");
        rankset_print(&e->have, t);
        text_add(t, "; missing: ");
        say_missing(e, t);
        text_add(t, ".");
}

void say_complaint(const struct error *e, struct text *t) {
        if (e->field != FIELD_UNSPECIFIED) {
                text_add(t, "%s", field_name(e->field));
                say_entry(e, t);
                text_add(t, ": ");
        }
        say_detail_or(e, "refused", t);
}

static bool is_plural(enum field field) {
        return field == FIELD_DESTINATIONS || field == FIELD_OPTIONS || field == FIELD_STRIDES ||
               field == FIELD_ENTRIES;
}

void say_difference(const struct error *e, struct text *t) {
        text_add(t, "%s", e->field == FIELD_UNSPECIFIED ? "something" : field_name(e->field));
        say_entry(e, t);
        text_add(t, is_plural(e->field) ? " differ." : " differs.");
        for (uint32_t i = 0; i < e->n_classes && i < MAX_ERROR_CLASSES; i++) {
                text_add(t, "%s", i ? "; " : " ");
                rankset_print(&e->classes[i].ranks, t);
                text_add(t, ": ");
                say_plain(t, e->classes[i].value);
        }
        if (e->n_classes)
                text_add(t, ".");
}

void say_known_difference(const struct error *e, struct text *t) {
        if (!e->n_classes)
                return;
        text_add(t, " Known by then: ");
        say_difference(e, t);
}

void say_ago(const struct error *e, struct text *t) {
        if (!e->age_ns)
                return;
        text_add(t, " ");
        text_add_duration(t, e->age_ns);
        text_add(t, " ago");
}

/* What holds now, of a collective; "" where it is not about one. */
static const char *outcome(const struct error *e) {
        if (e->outputs_undefined)
                return "It had begun: its outputs are undefined, fill them anew before you use them.";
        if (!error_is_of_collective(e))
                return "";
        if (e->kind == KIND_BARRIER)
                return "Nobody passed the barrier; the group can go on.";
        if (e->kind == KIND_BROADCAST)
                return "Nothing was broadcast; the group can go on.";
        if (e->kind == KIND_MERGE_CALL || e->kind == KIND_MERGE_RESULT)
                return "Nothing was merged; the group can go on.";
        return "Nothing was reduced; the group can go on.";
}

void say_end(const struct error *e, const char *advice, struct text *t) {
        const char *now = outcome(e);
        text_add(t, "\n%s%s%s", now, *now && *advice ? " " : "", advice);
}
