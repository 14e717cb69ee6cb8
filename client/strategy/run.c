/* A run: the caller's function in every replica, and an end that all of them see.
 *
 * The meetings of a run are numbered in each replica, under keys of the run's own. The last one is the run's:
 * a replica whose function has returned goes there. So whoever meets more or less often than the others
 * stands in another meeting than they (MISMATCH), and whoever fails tells it by the tag of its last one. A
 * meeting that has failed has failed for all, under the same number: the run is over for each of them, and
 * none of them waits for anybody any more. The next run has other keys. */
#include "strategy/strategy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct run {
        struct tutti_strategy *strategy;
        uint64_t number;
        tutti_replica_fn fn;
        void *userdata;
        atomic_uint n_failed;
};

struct tutti_context {
        struct run *run;
        uint32_t i;
        uint64_t n_meetings;
        int is_meeting;           /* a merge function may run */
        enum tutti_status over;   /* not OK: a meeting has failed, and with it the run */
        enum tutti_status status; /* of the function, then of the end */
        unsigned int order;       /* 1: the first of this process that failed */
        char why[201], text[2048];
        pthread_t thread;
};

static _Thread_local struct tutti_context *current;

enum tutti_status check_cross_replica(const char *instead) {
        if (!current)
                return TUTTI_OK;
        return say(TUTTI_INVALID,
                "called in replica context, by replica %u: that is for cross-replica context; use %s",
                tutti_context_replica_id(current), instead);
}

/* --- the meetings of a run --- */

static void write_key(char key[TUTTI_MAX_KEY_BYTES], const struct run *run, uint64_t meeting) {
        (void)snprintf(key, TUTTI_MAX_KEY_BYTES, "strategy/%llu/%llu", (unsigned long long)run->number,
                (unsigned long long)meeting);
}

enum tutti_status context_meet(struct tutti_context *c,
        enum tutti_status (*meet)(struct tutti_context *c, const char *key, void *arg), void *arg) {
        char key[TUTTI_MAX_KEY_BYTES];
        if (!c || c != current)
                return say(TUTTI_INVALID, "called outside of the replica that this context belongs to");
        if (c->is_meeting)
                return say(TUTTI_INVALID,
                        "called from a merge function: the replicas wait for it, so nobody would come");
        if (c->over != TUTTI_OK)
                return say(c->over, "a meeting of this run has failed before, and so has the run");
        write_key(key, c->run, c->n_meetings++);
        c->is_meeting = 1;
        enum tutti_status status = meet(c, key, arg);
        c->is_meeting = 0;
        c->over = status;
        return status;
}

static enum tutti_status meet_merge(struct tutti_context *c, const char *key, void *arg) {
        struct tutti_merge_args args = *(const struct tutti_merge_args *)arg;
        args.key = key;
        return say_last(tutti_merge_call(tutti_context_group(c), &args));
}

enum tutti_status tutti_context_merge_call(struct tutti_context *c, const struct tutti_merge_args *args) {
        if (!args || args->struct_size != sizeof(*args))
                return say(TUTTI_INVALID, "a merge_call needs arguments that begin with TUTTI_MERGE");
        return context_meet(c, meet_merge, (void *)(uintptr_t)args);
}

struct all_reduce {
        enum tutti_op op;
        const struct tutti_entry *entries;
        uint32_t n;
        const struct tutti_options *options;
};

static enum tutti_status meet_all_reduce(struct tutti_context *c, const char *key, void *arg) {
        const struct all_reduce *a = arg;
        struct tutti_work *w = NULL;
        if (!a->options) /* who waits at once is served sooner */
                return say_last(tutti_batch_reduce(tutti_context_group(c), key, a->op, a->entries, a->n));
        enum tutti_status status = tutti_batch_reduce_start(
                tutti_context_group(c), key, a->op, a->entries, a->n, a->options, &w);
        if (status != TUTTI_OK)
                return say_last(status);
        status = tutti_work_wait(w, -1);
        say_text(status, tutti_work_error(w)->text);
        tutti_work_free(w);
        return status;
}

enum tutti_status tutti_context_all_reduce(struct tutti_context *c, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options) {
        struct all_reduce a = { op, entries, n_entries, options };
        return context_meet(c, meet_all_reduce, &a);
}

/* --- the end --- */

static enum tutti_status nothing(struct tutti_merge *m, void *userdata) {
        (void)m;
        (void)userdata;
        return TUTTI_OK;
}

static void note_failure(struct tutti_context *c, enum tutti_status status) {
        c->status = status;
        c->order = atomic_fetch_add(&c->run->n_failed, 1) + 1;
        (void)snprintf(c->text, sizeof(c->text), "%s", tutti_strategy_error());
}

/* How the function has ended, for all to hear. */
static void end_run(struct tutti_context *c) {
        char tag[320] = "the end of the run";
        if (c->over != TUTTI_OK)
                return;
        if (c->status != TUTTI_OK)
                (void)snprintf(tag, sizeof(tag), "the end of the run, for it failed with %s%s%s",
                        tutti_status_name(c->status), c->why[0] ? ": " : "", c->why);
        enum tutti_status status = context_meet(c, meet_merge, &TUTTI_MERGE(.tag = tag, .fn = nothing));
        if (status != TUTTI_OK && c->status == TUTTI_OK)
                note_failure(c, status);
}

/* A function that takes no notice of a meeting that failed has failed with it. */
static void *replica_main(void *arg) {
        struct tutti_context *c = arg, *outer = current;
        current = c;
        enum tutti_status status = c->status;
        if (status == TUTTI_OK) {
                say_text(TUTTI_INVALID, "");
                status = c->run->fn(c, c->run->userdata);
        }
        if (status == TUTTI_OK)
                status = c->over;
        if (status != TUTTI_OK) {
                if (c->over == TUTTI_OK)
                        say(status, "replica %u failed%s%s", tutti_context_replica_id(c),
                                c->why[0] ? ": " : "", c->why);
                note_failure(c, status);
        }
        end_run(c);
        current = outer;
        return NULL;
}

/* The first that failed has the cause; the others may have failed because it did. */
static enum tutti_status judge(const struct tutti_context *contexts, uint32_t n) {
        const struct tutti_context *first = NULL;
        for (uint32_t i = 0; i < n; i++)
                if (contexts[i].status != TUTTI_OK && (!first || contexts[i].order < first->order))
                        first = &contexts[i];
        return first ? say_text(first->status, first->text) : TUTTI_OK;
}

/* --- replicas without a thread: the others must not wait for them --- */

static const char no_thread[] = "there is no thread for it";

/* One of them goes straight to the end of the run, on this thread. */
static void end_here(struct tutti_context *c) {
        c->status = TUTTI_NO_MEMORY;
        (void)snprintf(c->why, sizeof(c->why), "%s", no_thread);
        replica_main(c);
}

/* The first meeting of all is another than this one, which nobody waits for here. */
static void end_unseen(struct tutti_context *c) {
        char key[TUTTI_MAX_KEY_BYTES];
        struct tutti_work *w = NULL;
        write_key(key, c->run, 0);
        say(TUTTI_NO_MEMORY, "replica %u failed: %s", tutti_context_replica_id(c), no_thread);
        note_failure(c, TUTTI_NO_MEMORY);
        if (tutti_barrier_start(tutti_context_group(c), key, NULL, &w) == TUTTI_OK)
                tutti_work_free(w);
}

static void run_all(struct tutti_context *contexts, uint32_t n) {
        uint32_t n_threads = 0;
        while (n_threads < n &&
                pthread_create(&contexts[n_threads].thread, NULL, replica_main, &contexts[n_threads]) == 0)
                n_threads++;
        for (uint32_t i = n_threads + 1; i < n; i++)
                end_unseen(&contexts[i]);
        if (n_threads < n)
                end_here(&contexts[n_threads]);
        for (uint32_t i = 0; i < n_threads; i++)
                pthread_join(contexts[i].thread, NULL);
}

enum tutti_status tutti_strategy_run(struct tutti_strategy *s, tutti_replica_fn fn, void *userdata) {
        enum tutti_status status = check_cross_replica("the function's own calls: runs do not nest");
        if (status != TUTTI_OK)
                return status;
        if (!fn)
                return say(TUTTI_INVALID, "a run needs a function");
        struct tutti_context *contexts = calloc(s->n_local, sizeof(*contexts));
        if (!contexts)
                return say(TUTTI_NO_MEMORY, "no memory for a run of %u replicas", s->n_local);
        struct run run = { .strategy = s, .number = s->n_runs++, .fn = fn, .userdata = userdata };
        for (uint32_t i = 0; i < s->n_local; i++)
                contexts[i] = (struct tutti_context){ .run = &run, .i = i };
        run_all(contexts, s->n_local);
        status = judge(contexts, s->n_local);
        free(contexts);
        return status;
}

/* --- looking --- */

enum tutti_status tutti_context_fail(struct tutti_context *c, enum tutti_status status, const char *why) {
        (void)snprintf(c->why, sizeof(c->why), "%s", why ? why : "");
        return status;
}

struct tutti_strategy *tutti_context_strategy(const struct tutti_context *c) {
        return c->run->strategy;
}

uint32_t tutti_context_replica_id(const struct tutti_context *c) {
        return tutti_rank(tutti_context_group(c));
}

uint32_t tutti_context_local_id(const struct tutti_context *c) {
        return c->i;
}

uint32_t tutti_context_num_replicas(const struct tutti_context *c) {
        return c->run->strategy->world_size;
}

struct tutti_group *tutti_context_group(const struct tutti_context *c) {
        return c->run->strategy->groups[c->i];
}
