/* One mutex, three kinds of threads, two lists of what is done.
 *
 * The lock is held for list operations only, never over a chunk, a map or a close. Nor is the bell rung under
 * it: the loop thread, woken, takes the core of whoever has woken it, wants the lock, and would have to sleep
 * until that one finds a core again. Workers of a device sleep
 * on its condition variable; a task is cut into as many slices as there are workers worth waking for it, and
 * a slice that steps back in the line is simply appended again: the chunk counter in it is all the state a
 * run has. */
#include "engine-internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define BLOCKED_LIMIT_NS (100 * NS_PER_MS)
#define MARK_STALE_NS    (10 * NS_PER_MS)

/* --- device workers --- */

static bool group_is_confined(const struct engine *e, uint64_t group) {
        for (uint32_t i = 0; i < N_CONFINED; i++)
                if (e->confined[i] == group)
                        return true;
        return false;
}

/* While others are there, a user leaves one worker to them. */
static bool user_may_run(uint32_t user, const void *device) {
        const struct device *d = device;
        uint32_t n = 0;
        for (uint32_t i = 0; i < d->n_workers; i++)
                n += d->workers[i].is_running && d->workers[i].uid % N_QUEUES == user;
        return n < (d->engine->is_shared && d->n_workers > 1 ? d->n_workers - 1 : d->n_workers);
}

static bool slice_may_run(const struct queued *node, const void *device) {
        const struct slice *s = list_entry(node, const struct slice, queued);
        const struct device *d = device;
        if (!group_is_confined(d->engine, s->task->group))
                return true;
        for (uint32_t i = 0; i < d->n_workers; i++)
                if (d->workers[i].is_running && d->workers[i].group == s->task->group)
                        return false;
        return true;
}

static struct slice *device_pick(struct device *d) {
        const struct queue_rule rule = { user_may_run, slice_may_run, d };
        struct queued *node = queues_take(&d->ready, &rule);
        if (!node)
                return NULL;
        d->n_ready--;
        return list_entry(node, struct slice, queued);
}

void device_queue(struct device *d, struct slice *s) {
        queues_put(&d->ready, s->task->uid, &s->queued, s->task->priority);
        d->n_ready++;
}

/* Gives the sign of life that was asked for. */
static void worker_answer(struct worker *w) {
        uint32_t asked = atomic_load_explicit(&w->device->engine->asked, memory_order_relaxed);
        atomic_store_explicit(&w->answered, asked, memory_order_relaxed);
}

/* How long this thread was runnable and did not run, ever. */
static uint64_t worker_run_delay_ns(const struct worker *w) {
        char buf[64];
        unsigned long long on_cpu, delay;
        ssize_t n = w->schedstat_fd < 0 ? -1 : pread(w->schedstat_fd, buf, sizeof(buf) - 1, 0);
        if (n <= 0)
                return 0;
        buf[n] = '\0';
        return sscanf(buf, "%llu %llu", &on_cpu, &delay) == 2 ? delay : 0;
}

/* Notes where the thread's clocks stand, unless that was done just now: asking costs as much as a small
 * chunk. What they have counted since then is taken from a chunk's blocked time, so it must not be much. */
static void worker_mark(struct worker *w, uint64_t now_ns) {
        if (now_ns - w->mark_ns <= MARK_STALE_NS)
                return;
        w->mark_ns = now_ns;
        w->run_delay_ns = worker_run_delay_ns(w);
        w->cpu_ns = clock_thread_cpu_ns();
}

/* The part of `wall_ns` that was neither computing nor waiting for a core: somebody made our memory stand
 * still. */
static uint64_t worker_blocked_ns(const struct worker *w, uint64_t wall_ns) {
        uint64_t busy = clock_thread_cpu_ns() - w->cpu_ns + (worker_run_delay_ns(w) - w->run_delay_ns);
        return wall_ns > busy ? wall_ns - busy : 0;
}

static void task_fail(struct task *t, enum status status, const struct memory *culprit) {
        if (t->status != STATUS_OK)
                return;
        t->status = status;
        t->culprit_session = culprit ? culprit->session : 0;
        t->culprit_buffer = culprit ? culprit->buffer : 0;
}

/* Under the lock. */
static void task_blocked(struct engine *e, struct task *t, uint64_t blocked_ns) {
        if (blocked_ns > t->blocked_ns)
                t->blocked_ns = blocked_ns;
        if (!group_is_confined(e, t->group))
                e->confined[e->n_confined++ % N_CONFINED] = t->group;
}

/* Runs chunks until the slice is through, fails, or should step back. */
static void worker_run_slice(struct worker *w, struct slice *s) {
        struct device *d = w->device;
        struct engine *e = d->engine;
        uint64_t begun_ns = clock_now_ns();
        uint64_t now_ns = begun_ns, blocked_ns = 0;
        worker_mark(w, begun_ns);
        const struct memory *culprit = NULL;
        struct findings found = { 0 };
        enum status status = STATUS_OK;
        do {
                status = e->backend->ops->run_chunk(
                        e->backend, &s->task->plan, s->next_chunk++, &found, &culprit);
                worker_answer(w);
                uint64_t then_ns = clock_now_ns();
                if (then_ns - now_ns >= BLOCKED_LIMIT_NS) {
                        uint64_t blocked = worker_blocked_ns(w, then_ns - now_ns);
                        if (blocked >= BLOCKED_LIMIT_NS)
                                blocked_ns = blocked;
                }
                worker_mark(w, then_ns);
                now_ns = then_ns;
        } while (status == STATUS_OK && s->next_chunk < s->end_chunk &&
                 atomic_load_explicit(&d->n_ready, memory_order_relaxed) == 0);

        engine_lock(e);
        d->busy_ns += now_ns - begun_ns;
        findings_add(&s->task->found, &found);
        if (blocked_ns)
                task_blocked(e, s->task, blocked_ns);
        if (status != STATUS_OK) {
                task_fail(s->task, status, culprit);
                s->next_chunk = s->end_chunk;
        }
}

/* Under the lock: the slice is through for now. Whether with it the task is done. */
static bool worker_put_slice(struct worker *w, struct slice *s) {
        struct engine *e = w->device->engine;
        struct task *t = s->task;
        w->is_running = false;
        if (s->next_chunk < s->end_chunk && t->status == STATUS_OK) {
                device_queue(w->device, s);
                return false;
        }
        if (--t->n_open > 0)
                return false;
        if (t->status == STATUS_OK && findings_forbid(&t->found))
                t->status = STATUS_INVALID;
        if (t->status == STATUS_OK && task_start_phase(e, t))
                return false;
        w->device->n_tasks++;
        engine_unlock(e);
        task_drop_scratch(t, SCRATCH_KEPT_BYTES);
        engine_lock(e);
        task_finish(e, t);
        return true;
}

static void engine_ring(struct engine *e) {
        engine_unlock(e);
        uv_async_send(&e->async);
        engine_lock(e);
}

void *worker_main(void *data) {
        struct worker *w = data;
        struct device *d = w->device;
        struct engine *e = d->engine;
        w->schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
        int r = e->backend->ops->thread_init(e->backend);
        if (r < 0)
                log_error("a worker cannot be set up: %s", strerror(-r));
        CHECK(r >= 0);
        engine_lock(e);
        for (;;) {
                worker_answer(w);
                struct slice *s = device_pick(d);
                if (!s) {
                        if (e->is_stopping && e->n_running == 0)
                                break;
                        engine_wake(e);
                        d->n_idle++;
                        pthread_cond_wait(&d->wake, &e->lock);
                        d->n_idle--;
                        continue;
                }
                w->is_running = true;
                w->uid = s->task->uid;
                w->group = s->task->group;
                if (s->task->started_ns == 0)
                        s->task->started_ns = clock_now_ns();
                engine_unlock(e);
                worker_run_slice(w, s); /* comes back with the lock */
                if (worker_put_slice(w, s))
                        engine_ring(e);
        }
        engine_unlock(e);
        fd_close(&w->schedstat_fd);
        return NULL;
}

/* --- crews --- */

bool crew_works_for(const struct crew *crew, uint32_t uid) {
        for (uint32_t i = 0; i < crew->n; i++)
                if (crew->threads[i].is_running && crew->threads[i].uid == uid)
                        return true;
        return false;
}

bool crew_is_busy(const struct crew *crew) {
        for (uint32_t i = 0; i < crew->n; i++)
                if (!crew->threads[i].is_running)
                        return false;
        return true;
}

static struct chore *crew_pick(const struct crew *crew) {
        list_for_each (it, &crew->queue) {
                struct chore *c = list_entry(it, struct chore, link);
                if (!crew_works_for(crew, c->uid)) {
                        list_unlink(&c->link);
                        return c;
                }
        }
        return NULL;
}

void chore_run(struct backend *b, struct chore *c) {
        switch (c->kind) {
        case CHORE_IMPORT: b->ops->import(b, c); break;
        case CHORE_MAKE: b->ops->make(b, c); break;
        case CHORE_UNMAKE: b->ops->unmake(b, c); break;
        case CHORE_RELEASE: b->ops->release(b, c); break;
        case CHORE_CLOSE: fd_close(&c->fd); break;
        case CHORE_THINK: c->think(c); break;
        }
}

/* Under the lock. A closer that was stuck must not ring when the bell is gone: it rings, if at all, before
 * anybody can take it down. */
static void crew_chore_done(struct crew *crew, struct engine *e, struct chore *c) {
        list_append(&e->done_chores, &c->link);
        atomic_fetch_add_explicit(&e->n_done, 1, memory_order_release);
        if (crew != &e->closers)
                engine_ring(e);
        else if (!e->is_stopped)
                uv_async_send(&e->async);
}

void *crew_main(void *data) {
        struct crew_thread *t = data;
        struct engine *e = t->engine;
        engine_lock(e);
        for (;;) {
                struct chore *c = crew_pick(t->crew);
                if (!c) {
                        /* What is left is of users for whom another thread works: that one goes on with it.
                         */
                        if (e->is_stopping)
                                break;
                        pthread_cond_wait(&t->crew->wake, &e->lock);
                        continue;
                }
                t->is_running = true;
                t->uid = c->uid;
                engine_unlock(e);
                chore_run(e->backend, c);
                engine_lock(e);
                t->is_running = false;
                crew_chore_done(t->crew, e, c);
                /* A chore of the same user may have been passed over for this one. */
                pthread_cond_broadcast(&t->crew->wake);
        }
        t->has_ended = true;
        pthread_cond_broadcast(&t->crew->wake);
        engine_unlock(e);
        return NULL;
}
