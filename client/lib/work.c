#include "lib/work.h"

#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "lib/group.h"
#include "lib/object.h"
#include "lib/region.h"

/* --- life --- */

static struct tutti_work *take_spare(struct tutti *t) {
        struct list *node = list_take_first(&t->spare_works);
        struct tutti_work *w = node ? list_entry(node, struct tutti_work, node) : NULL;
        if (!w) {
                w = calloc(1, sizeof(*w));
                if (!w)
                        return NULL;
                list_init(&w->node);
                pthread_mutex_init(&w->landing, NULL);
                w->t = t;
        }
        list_append(&t->works, &w->node);
        return w;
}

struct tutti_work *work_new(struct tutti *t) {
        pthread_mutex_lock(&t->lock);
        struct tutti_work *w = take_spare(t);
        pthread_mutex_unlock(&t->lock);
        if (!w)
                return NULL;
        call_init(&w->call, CALL_WORK);
        w->is_detached = w->is_seen = false;
        w->prepare = w->started = 0;
        w->kept.group = NULL;
        w->n_uses = 0;
        w->has_done = false;
        w->n_extents = w->extents_expected = 0;
        w->order = (struct order_use){ 0 };
        w->staging.copied_bytes = w->copies.copied_bytes = 0;
        return w;
}

bool work_uses(struct tutti_work *w, struct tutti_buffer *b) {
        if (w->n_uses && w->uses[w->n_uses - 1] == b)
                return true;
        if (w->n_uses == w->capacity) {
                uint32_t capacity = w->capacity ? 2 * w->capacity : 4;
                struct tutti_buffer **uses = realloc(w->uses, capacity * sizeof(struct tutti_buffer *));
                if (!uses)
                        return false;
                w->uses = uses;
                w->capacity = capacity;
        }
        pthread_mutex_lock(&w->t->lock);
        buffer_use(b);
        pthread_mutex_unlock(&w->t->lock);
        w->uses[w->n_uses++] = b;
        return true;
}

void work_uses_object(struct tutti_work *w, struct tutti_object *o) {
        if (w->object == o)
                return;
        CHECK(!w->object);
        pthread_mutex_lock(&w->t->lock);
        object_use(o);
        pthread_mutex_unlock(&w->t->lock);
        w->object = o;
}

bool work_make_checksums(struct tutti_work *w, uint32_t n) {
        if (n <= w->checksums_capacity)
                return true;
        uint64_t *checksums = realloc(w->checksums, n * sizeof(*checksums));
        if (!checksums)
                return false;
        w->checksums = checksums;
        w->checksums_capacity = n;
        return true;
}

bool work_expect_extents(struct tutti_work *w, uint32_t n) {
        if (n > w->extents_capacity) {
                uint64_t *extents = realloc(w->extents, 2 * (size_t)n * sizeof(*extents));
                if (!extents)
                        return false;
                w->extents = extents;
                w->extents_capacity = n;
        }
        w->extents_expected = n;
        return true;
}

/* Of an answer that is complete: whether outputs have room for what it tells. NULL, or what is wrong. */
static const char *check_done(const struct tutti_work *w) {
        if (w->n_extents < w->extents_expected)
                return "less lengths than results";
        if (w->n_extents && (!staging_has_room(&w->staging, w->extents) ||
                                    !device_copies_have_room(&w->copies, w->extents)))
                return "a result that is longer than its output";
        if (w->object && w->done.slot >= w->object->n_slots)
                return "a slot that its result object does not have";
        return NULL;
}

const char *work_take_done(struct tutti_work *w, const struct msg_done *done, bool is_last) {
        if (done->n_extents > w->extents_expected - w->n_extents)
                return "more lengths than results";
        if (!is_last && done->n_extents == 0)
                return "a part of an answer that holds nothing";
        for (uint32_t i = 0; i < done->n_extents; i++) {
                w->extents[2 * w->n_extents] = done->extents[i];
                w->extents[2 * w->n_extents++ + 1] = done->firsts[i];
        }
        if (!w->has_done)
                w->done = *done;
        w->done.extents = w->done.firsts = NULL; /* gone with the packet */
        w->has_done = true;
        return is_last ? check_done(w) : NULL;
}

static void end_uses(struct tutti_work *w) {
        for (uint32_t i = 0; i < w->n_uses; i++)
                buffer_end_use(w->uses[i]);
        w->n_uses = 0;
}

/* Under `lock`. */
static void let_go_of_object(struct tutti_work *w) {
        if (w->object)
                object_end_use(take_pointer(w->object));
}

static void make_spare(struct tutti_work *w) {
        end_uses(w);
        let_go_of_object(w);
        staging_end(&w->staging, w->t);
        device_copies_end(&w->copies);
        call_deinit(&w->call);
        failure_unref(take_pointer(w->refusal));
        list_unlink(&w->node);
        list_append(&w->t->spare_works, &w->node);
}

void work_drop(struct tutti_work *w) {
        struct tutti *t = w->t;
        pthread_mutex_lock(&t->lock);
        make_spare(w);
        pthread_mutex_unlock(&t->lock);
}

/* It may still stand among the calls that wait for an answer. */
static void work_free_memory(struct tutti_work *w) {
        call_drop(w->t, &w->call);
        let_go_of_object(w);
        call_deinit(&w->call);
        failure_unref(w->refusal);
        list_unlink(&w->node);
        kept_deinit(&w->kept);
        free(w->uses);
        free(w->checksums);
        free(w->extents);
        free(w->staging.values);
        free(w->copies.list);
        pthread_mutex_destroy(&w->landing);
        free(w);
}

void works_free(struct tutti *t) {
        list_for_each_safe (it, tmp, &t->works)
                work_free_memory(list_entry(it, struct tutti_work, node));
        list_for_each_safe (it, tmp, &t->spare_works)
                work_free_memory(list_entry(it, struct tutti_work, node));
}

/* --- the end --- */

/* The library knows better than tuttid why it refused. What tuttid may know beside it is another end: a debt,
 * a lost replica. */
static void prefer_own_refusal(struct tutti_work *w) {
        enum status own = w->refusal ? w->refusal->error.status : STATUS_OK;
        if (!w->refusal || (w->call.status != own && w->call.status != STATUS_OK))
                return;
        failure_unref(w->call.failure);
        w->call.status = own;
        w->call.failure = take_pointer(w->refusal);
}

/* tuttid refuses a buffer whose registration failed, and said why when it did. */
static void explain_buffer(struct tutti_work *w) {
        struct failure *f = w->call.failure;
        if (!f || f->error.field != FIELD_BUFFER)
                return;
        for (uint32_t i = 0; i < w->n_uses; i++) {
                const struct failure *why = buffer_refusal(w->uses[i]);
                if (!why || why->error.status != w->call.status)
                        continue;
                struct error e = f->error;
                error_set_detail(&e, "the memory could not be registered: %s", why->error.detail);
                e.used = why->error.used;
                e.limit = why->error.limit;
                struct failure *explained = failure_new(&e);
                if (!explained)
                        return;
                failure_unref(f);
                w->call.failure = explained;
                return;
        }
}

/* Nobody knows which slot the result is in, so nobody will give it back. Under `lock`. */
static void give_back_unseen(const struct tutti_work *w) {
        if (w->object && w->call.status == STATUS_OK && !w->is_seen)
                object_give_back(w->object, w->done.slot);
}

/* It is known to be done, but not from a whole answer: from a status page, or from the lane. */
static void lose_what_is_not_known(struct tutti_work *w) {
        struct error e;
        const char *why = w->call.status == STATUS_OK ? check_done(w) : NULL;
        if (!why)
                return;
        refuse(&e, STATUS_OUTPUT_LOST, FIELD_SHAPE, "it told %s", why);
        e.outputs_undefined = true;
        if (w->call.group)
                group_sign(w->call.group, &e);
        w->call.status = STATUS_OUTPUT_LOST;
        w->call.failure = failure_new(&e);
}

/* What the lane does not tell is as it was in the last answer. */
static void note_start(struct tutti *t, const struct tutti_work *w) {
        remember_done(t, w->started, &w->done);
        waiting_learn(&t->lane.waiting, w->done.wait_ns);
}

void work_end(struct tutti *t, struct call *call) {
        struct tutti_work *w = work_of(call);
        if (w->prepare)
                remember_end(t, w->prepare, w->call.status == STATUS_OK && w->done.is_kept);
        if (w->started && w->call.status == STATUS_OK)
                note_start(t, w);
        prefer_own_refusal(w);
        explain_buffer(w);
        kept_note_end(w);
        lose_what_is_not_known(w);
        if (w->object && w->call.status == STATUS_OK)
                object_hold(w->object, &w->done);
        end_uses(w);
        if (w->is_detached) {
                give_back_unseen(w);
                make_spare(w);
        }
}

/* --- waiting --- */

uint64_t ns_of_seconds(double seconds) {
        return seconds < 1e10 ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
}

uint64_t deadline_in(double seconds) {
        uint64_t ns = seconds < 0 ? UINT64_MAX : ns_of_seconds(seconds);
        uint64_t now = clock_now_ns(), at;
        return __builtin_add_overflow(now, ns, &at) ? WAIT_FOREVER : at;
}

/* Copying home failed: the result is there, and not where it is wanted. */
static void crash(struct tutti_work *w, struct error *err) {
        err->outputs_undefined = true;
        w->call.status = err->status;
        w->call.failure = failure_new(err);
}

/* Outputs of staged device memory. Under `landing`. */
static void land_copies(struct tutti_work *w) {
        struct error err;
        device_copies_settle(&w->copies, w->extents);
        enum status status = device_copies_finish(&w->copies, &err);
        pthread_mutex_lock(&w->t->lock);
        if (status != STATUS_OK)
                crash(w, &err);
        device_copies_end(&w->copies);
        pthread_mutex_unlock(&w->t->lock);
}

/* It has ended with OK, as this thread has seen: plain outputs come home, once, and the piece is free.
 * Whoever sees the end meanwhile waits for that. What became of it. */
static enum status work_land(struct tutti_work *w) {
        struct tutti *t = w->t;
        pthread_mutex_lock(&w->landing);
        if (w->copies.n)
                land_copies(w);
        if (w->staging.piece) {
                staging_settle(&w->staging, w->extents);
                staging_finish(&w->staging);
                pthread_mutex_lock(&t->lock);
                staging_end(&w->staging, t);
                pthread_mutex_unlock(&t->lock);
        }
        enum status status = w->call.status;
        pthread_mutex_unlock(&w->landing);
        return status;
}

/* Under `lock`. */
static enum status status_of_wait(struct tutti_work *w, enum wait_end end) {
        switch (end) {
        case WAIT_ENDED: w->is_seen = true; return w->call.status;
        case WAIT_CANCELLED: return STATUS_CANCELLED;
        case WAIT_TIME:
        case WAIT_GOES_ON: break;
        }
        return STATUS_PENDING;
}

enum status work_wait(struct tutti_work *w, uint64_t deadline_ns) {
        struct tutti *t = w->t;
        pthread_mutex_lock(&t->lock);
        lane_wait(t, &w->call);
        enum status status = status_of_wait(w, connection_wait(t, &w->call, deadline_ns));
        bool are_dead = regions_are_dead(t) || w->staging.piece || w->copies.n;
        pthread_mutex_unlock(&t->lock);
        if (status == STATUS_OK)
                status = work_land(w);
        if (are_dead)
                regions_reap(t);
        return status;
}

enum tutti_status tutti_work_wait(struct tutti_work *w, double seconds) {
        if (!w || seconds != seconds)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "%s",
                        w ? "the limit of the wait is not a number" : "there is no work to wait for");
        if (seconds == 0)
                return tutti_work_test(w);
        if (fork_guard_is_child(w->t->guard))
                return thread_say_forked();
        return (enum tutti_status)work_wait(w, deadline_in(seconds));
}

enum tutti_status tutti_work_test(struct tutti_work *w) {
        if (!w)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "there is no work to test");
        struct tutti *t = w->t;
        if (fork_guard_is_child(t->guard))
                return thread_say_forked();
        pthread_mutex_lock(&t->lock);
        if (!w->call.is_ended)
                connection_take_in(t);
        enum status status = status_of_wait(w, w->call.is_ended ? WAIT_ENDED : WAIT_TIME);
        pthread_mutex_unlock(&t->lock);
        reconnect_go_on(t);
        if (status == STATUS_OK)
                status = work_land(w);
        regions_reap(t);
        return (enum tutti_status)status;
}

enum tutti_status tutti_work_cancel(struct tutti_work *w) {
        if (!w)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "there is no work to cancel");
        if (fork_guard_is_child(w->t->guard))
                return thread_say_forked();
        pthread_mutex_lock(&w->t->lock);
        call_cancel_waits(w->t, &w->call);
        pthread_mutex_unlock(&w->t->lock);
        return TUTTI_OK;
}

/* --- what is known of it --- */

const struct tutti_error_info *tutti_work_error(struct tutti_work *w) {
        if (!w || fork_guard_is_child(w->t->guard))
                return failure_info(NULL, w ? STATUS_FORKED : STATUS_INVALID);
        pthread_mutex_lock(&w->t->lock);
        enum status status = w->call.is_ended ? w->call.status : STATUS_OK;
        const struct failure *f = w->call.is_ended ? w->call.failure : NULL;
        pthread_mutex_unlock(&w->t->lock);
        return failure_info(f, status);
}

static struct tutti_finding show_finding(const struct finding *f) {
        return (struct tutti_finding){ .n = f->n, .rank = f->rank, .entry = f->entry, .index = f->index };
}

void work_show_result(const struct tutti_work *w, struct tutti_result *ret) {
        const struct msg_done *done = &w->done;
        *ret = (struct tutti_result){
                .collective = done->collective,
                .contributors = ranks_show(&done->contributors),
                .n_contributors = done->n_contributors,
                .op = (enum tutti_op)done->op,
                .wait = (double)done->wait_ns / 1e9,
                .run = (double)done->run_ns / 1e9,
                .last_rank = done->last_rank,
                .numerics = show_finding(&done->found.numerics),
                .overflow = show_finding(&done->found.overflow),
                .slot = done->slot,
                .extent = w->n_extents ? w->extents[0] : 0,
                .first = w->n_extents ? w->extents[1] : 0,
                .staged_bytes = w->staging.copied_bytes + w->copies.copied_bytes,
        };
}

enum tutti_status tutti_work_result(struct tutti_work *w, struct tutti_result *ret) {
        if (!w || !ret)
                return thread_say(
                        STATUS_INVALID, FIELD_UNSPECIFIED, "a work and a place for its result are needed");
        if (fork_guard_is_child(w->t->guard))
                return thread_say_forked();
        pthread_mutex_lock(&w->t->lock);
        enum status status = status_of_wait(w, w->call.is_ended ? WAIT_ENDED : WAIT_TIME);
        pthread_mutex_unlock(&w->t->lock);
        if (status == STATUS_OK)
                status = work_land(w);
        if (status == STATUS_OK)
                work_show_result(w, ret);
        return (enum tutti_status)status;
}

enum tutti_status tutti_work_extent(
        struct tutti_work *w, uint32_t entry, uint64_t *ret_total, uint64_t *ret_first) {
        if (!w)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "there is no work to ask for a length");
        if (fork_guard_is_child(w->t->guard))
                return thread_say_forked();
        pthread_mutex_lock(&w->t->lock);
        enum status status = status_of_wait(w, w->call.is_ended ? WAIT_ENDED : WAIT_TIME);
        uint32_t n = w->n_extents;
        pthread_mutex_unlock(&w->t->lock);
        if (status != STATUS_OK)
                return (enum tutti_status)status;
        if (entry >= n)
                return thread_say(STATUS_INVALID, FIELD_ENTRIES,
                        "entry %u: tuttid has told the lengths of %u results of this collective", entry, n);
        if (ret_total)
                *ret_total = w->extents[2 * entry];
        if (ret_first)
                *ret_first = w->extents[2 * entry + 1];
        return TUTTI_OK;
}

void tutti_work_free(struct tutti_work *w) {
        if (!w || fork_guard_is_child(w->t->guard))
                return;
        struct tutti *t = w->t;
        pthread_mutex_lock(&t->lock);
        if (w->call.is_ended) {
                give_back_unseen(w);
                make_spare(w);
        } else {
                w->is_detached = true;
        }
        bool are_dead = regions_are_dead(t);
        pthread_mutex_unlock(&t->lock);
        if (are_dead)
                regions_reap(t);
}
