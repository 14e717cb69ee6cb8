#include "engine-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"

/* Below this much reading and writing a second worker costs more in waking than it brings. */
#define SLICE_MIN_BYTES (512u << 10)
/* Of one area: what a task keeps for the next plan that it runs. */

void engine_lock(struct engine *e) {
        CHECK(pthread_mutex_lock(&e->lock) == 0);
}

static void device_wake(struct device *d, uint32_t n) {
        for (; n > 0; n--)
                pthread_cond_signal(&d->wake);
}

void engine_unlock(struct engine *e) {
        uint32_t n[MAX_CPU_DEVICES] = { 0 };
        bool has_to_wake = e->has_to_wake;
        for (uint32_t i = 0; has_to_wake && i < e->n_devices; i++) {
                n[i] = e->devices[i].n_to_wake;
                e->devices[i].n_to_wake = 0;
        }
        e->has_to_wake = false;
        CHECK(pthread_mutex_unlock(&e->lock) == 0);
        for (uint32_t i = 0; has_to_wake && i < e->n_devices; i++)
                device_wake(&e->devices[i], n[i]);
}

void engine_wake(struct engine *e) {
        for (uint32_t i = 0; e->has_to_wake && i < e->n_devices; i++) {
                device_wake(&e->devices[i], e->devices[i].n_to_wake);
                e->devices[i].n_to_wake = 0;
        }
        e->has_to_wake = false;
}

/* --- life --- */

static void engine_on_async(uv_async_t *async) {
        struct engine *e = async->data;
        doorbell_ring(&e->bell);
}

static int device_start(struct device *d, struct engine *e, uint32_t n_workers) {
        d->engine = e;
        queues_init(&d->ready);
        pthread_cond_init(&d->wake, NULL);
        d->workers = calloc(n_workers, sizeof(*d->workers));
        if (!d->workers)
                return -ENOMEM;
        for (uint32_t i = 0; i < n_workers; i++) {
                d->workers[i].device = d;
                d->workers[i].schedstat_fd = -1;
                int r = pthread_create(&d->workers[i].thread, NULL, worker_main, &d->workers[i]);
                if (r != 0)
                        return -r;
                engine_lock(e);
                d->n_workers++;
                engine_unlock(e);
        }
        return 0;
}

static int engine_add_to_crew(struct engine *e, struct crew *crew) {
        struct crew_thread *t = &crew->threads[crew->n];
        t->engine = e;
        t->crew = crew;
        engine_lock(e); /* it counts before it looks for work: it must be seen to have some */
        int r = pthread_create(&t->thread, NULL, crew_main, t);
        if (r == 0)
                crew->n++;
        engine_unlock(e);
        return -r;
}

static int engine_start_threads(struct engine *e, const struct config *config) {
        long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
        uint32_t n_workers = config->n_workers ? config->n_workers
                                               : (n_cores > MAX_WORKERS ? MAX_WORKERS : (uint32_t)n_cores);
        e->devices = calloc(config->n_cpu_devices, sizeof(*e->devices));
        if (!e->devices)
                return -ENOMEM;
        for (uint32_t i = 0; i < config->n_cpu_devices; i++) {
                uint32_t share = n_workers / config->n_cpu_devices + (i < n_workers % config->n_cpu_devices);
                e->n_devices++;
                int r = device_start(&e->devices[i], e, share ? share : 1);
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; i < N_MEMORY_THREADS; i++) {
                int r = engine_add_to_crew(e, &e->memory);
                if (r < 0)
                        return r;
        }
        return engine_add_to_crew(e, &e->closers);
}

static void crew_init(struct crew *crew) {
        pthread_cond_init(&crew->wake, NULL);
        list_init(&crew->queue);
}

int engine_new(struct engine **ret, uv_loop_t *loop, const struct config *config, struct backend *backend,
        const struct doorbell *bell) {
        struct engine *e = calloc(1, sizeof(*e));
        if (!e)
                return -ENOMEM;
        e->backend = backend;
        e->bell = *bell;
        pthread_mutex_init(&e->lock, NULL);
        crew_init(&e->memory);
        crew_init(&e->closers);
        turns_init(&e->done_tasks);
        list_init(&e->done_chores);
        int r = uv_async_init(loop, &e->async, engine_on_async);
        if (r < 0) {
                free(e);
                return r;
        }
        e->async.data = e;
        r = engine_start_threads(e, config);
        if (r < 0) {
                engine_stop(e);
                uv_run(loop, UV_RUN_NOWAIT);
                engine_free(e);
                return r;
        }
        *ret = e;
        return 0;
}

static bool crew_has_ended(const struct crew *crew) {
        for (uint32_t i = 0; i < crew->n; i++)
                if (!crew->threads[i].has_ended)
                        return false;
        return true;
}

static void crew_join(struct crew *crew) {
        for (uint32_t i = 0; i < crew->n; i++)
                pthread_join(crew->threads[i].thread, NULL);
        crew->n = 0;
}

/* A stranger's descriptor may keep a closer for ever: they are waited for shortly, and left to the end of the
 * process otherwise. */
static void engine_stop_closers(struct engine *e) {
        struct timespec until;
        clock_realtime_after(&until, NS_PER_S);
        engine_lock(e);
        while (!crew_has_ended(&e->closers))
                if (pthread_cond_timedwait(&e->closers.wake, &e->lock, &until) == ETIMEDOUT)
                        break;
        bool is_stuck = !crew_has_ended(&e->closers);
        e->is_stopped = true;
        engine_unlock(e);
        if (is_stuck) {
                log_warning("a descriptor of a client does not close; it is left to the kernel");
                return;
        }
        crew_join(&e->closers);
}

void engine_stop(struct engine *e) {
        engine_lock(e);
        e->is_stopping = true;
        for (uint32_t i = 0; i < e->n_devices; i++)
                pthread_cond_broadcast(&e->devices[i].wake);
        pthread_cond_broadcast(&e->memory.wake);
        pthread_cond_broadcast(&e->closers.wake);
        engine_unlock(e);
        for (uint32_t i = 0; i < e->n_devices; i++)
                for (uint32_t k = 0; k < e->devices[i].n_workers; k++)
                        pthread_join(e->devices[i].workers[k].thread, NULL);
        crew_join(&e->memory);
        engine_stop_closers(e);
        uv_close((uv_handle_t *)&e->async, NULL);
}

bool engine_is_stuck(const struct engine *e) {
        return e->closers.n > 0;
}

void engine_free(struct engine *e) {
        if (!e || engine_is_stuck(e)) /* a closer still looks at it */
                return;
        for (uint32_t i = 0; i < e->n_devices; i++) {
                pthread_cond_destroy(&e->devices[i].wake);
                free(e->devices[i].workers);
        }
        free(e->devices);
        pthread_cond_destroy(&e->memory.wake);
        pthread_cond_destroy(&e->closers.wake);
        pthread_mutex_destroy(&e->lock);
        free(e);
}

/* --- batons --- */

struct task *engine_task_new(void) {
        struct task *t = calloc(1, sizeof(*t));
        if (!t)
                return NULL;
        list_init(&t->link);
        plan_init(&t->plan);
        return t;
}

void task_drop_scratch(struct task *t, uint64_t larger_than_bytes) {
        for (uint32_t i = 0; i < MAX_SCRATCH; i++) {
                if (!t->scratch[i] || t->scratch[i]->n_bytes <= larger_than_bytes)
                        continue;
                t->scratch_of->ops->free_scratch(t->scratch_of, t->scratch[i]);
                t->scratch[i] = NULL;
        }
}

uint64_t engine_task_scratch_bytes(const struct task *t) {
        uint64_t n_bytes = 0;
        for (uint32_t i = 0; i < MAX_SCRATCH; i++)
                n_bytes += t->scratch[i] ? t->scratch[i]->n_bytes : 0;
        return n_bytes;
}

void engine_task_drop_scratch(struct task *t) {
        task_drop_scratch(t, 0);
}

void engine_task_free(struct task *t) {
        if (!t)
                return;
        task_drop_scratch(t, 0);
        plan_deinit(&t->plan);
        free((void *)t->signals);
        free(t);
}

/* --- tasks --- */

/* 0 or -ENOMEM. */
static int task_bring_scratch(struct task *t, struct backend *backend) {
        t->scratch_of = backend;
        for (uint32_t i = 0; i < t->plan.n_scratch; i++) {
                struct scratch *wanted = &t->plan.scratch[i];
                struct memory **kept = &t->scratch[i];
                if (*kept && (*kept)->n_bytes < wanted->n_bytes) {
                        backend->ops->free_scratch(backend, *kept);
                        *kept = NULL;
                }
                if (!*kept)
                        *kept = backend->ops->make_scratch(backend, wanted->device, wanted->n_bytes);
                if (!*kept)
                        return -ENOMEM;
                wanted->memory = *kept;
        }
        return 0;
}

static uint32_t n_slices_of(const struct task *t, const struct stage *stage, uint32_t n_workers) {
        uint64_t worth = t->plan.moved_bytes / SLICE_MIN_BYTES,
                 n_chunks = stage->end_chunk - stage->first_chunk;
        uint64_t n = worth < n_workers ? worth : n_workers;
        if (n > n_chunks)
                n = n_chunks;
        return n ? (uint32_t)n : 1;
}

static void task_start_stage(struct engine *e, struct task *t, const struct stage *stage) {
        uint32_t device = stage->device % e->n_devices;
        struct device *d = &e->devices[device];
        uint32_t n = n_slices_of(t, stage, d->n_workers);
        uint64_t n_chunks = stage->end_chunk - stage->first_chunk;
        CHECK(t->n_slices + n <= ARRAY_SIZE(t->slices));
        for (uint32_t i = 0; i < n; i++) {
                struct slice *s = &t->slices[t->n_slices++];
                s->task = t;
                s->device = device;
                s->next_chunk = stage->first_chunk + n_chunks * i / n;
                s->end_chunk = stage->first_chunk + n_chunks * (i + 1) / n;
                device_queue(d, s);
        }
        d->n_to_wake += n < d->n_idle ? n : d->n_idle;
        e->has_to_wake = true;
}

bool task_start_phase(struct engine *e, struct task *t) {
        struct stage stage;
        uint32_t cursor = t->next_stage;
        if (!plan_next_stage(&t->plan, &cursor, &stage))
                return false;
        t->n_slices = 0;
        const uint32_t phase = stage.phase;
        do {
                task_start_stage(e, t, &stage);
                t->next_stage = cursor;
        } while (plan_next_stage(&t->plan, &cursor, &stage) && stage.phase == phase);
        t->n_open = t->n_slices;
        return true;
}

void task_finish(struct engine *e, struct task *t) {
        t->done_ns = clock_now_ns();
        turns_put(&e->done_tasks, t->uid, &t->link);
        atomic_fetch_add_explicit(&e->n_done, 1, memory_order_release);
        e->n_running--;
        /* Workers of any device may have waited for a later phase of this one before they could end. */
        for (uint32_t i = 0; e->is_stopping && i < e->n_devices; i++)
                pthread_cond_broadcast(&e->devices[i].wake);
}

void engine_start(struct engine *e, struct task *t) {
        t->status = STATUS_OK;
        t->started_ns = t->done_ns = t->blocked_ns = 0;
        t->culprit_session = t->culprit_buffer = 0;
        t->found = (struct findings){ 0 };
        t->next_stage = 0;
        e->n_open++;
        if (task_bring_scratch(t, e->backend) < 0)
                t->status = STATUS_NO_MEMORY;
        engine_lock(e);
        e->n_running++;
        bool is_over = t->status != STATUS_OK || !task_start_phase(e, t);
        if (is_over)
                task_finish(e, t);
        engine_unlock(e);
        if (is_over)
                uv_async_send(&e->async);
}

/* A closer that is stuck shall not keep the descriptors of other users. */
static void engine_close(struct engine *e, struct chore *c) {
        engine_lock(e);
        list_append(&e->closers.queue, &c->link);
        bool is_short = e->closers.n < MAX_CLOSERS && crew_is_busy(&e->closers) &&
                        !crew_works_for(&e->closers, c->uid);
        engine_unlock(e);
        if (is_short && engine_add_to_crew(e, &e->closers) < 0)
                log_warning("a thread that closes descriptors cannot be started: they wait");
        pthread_cond_signal(&e->closers.wake);
}

void engine_do(struct engine *e, struct chore *c) {
        if (c->kind != CHORE_CLOSE)
                e->n_open++;
        if (e->is_stopped) {
                chore_run(e->backend, c);
                list_append(&e->done_chores, &c->link);
                atomic_fetch_add_explicit(&e->n_done, 1, memory_order_release);
                return;
        }
        if (c->kind == CHORE_CLOSE) {
                engine_close(e, c);
                return;
        }
        engine_lock(e);
        list_append(&e->memory.queue, &c->link);
        engine_unlock(e);
        pthread_cond_signal(&e->memory.wake);
}

/* Mostly nothing is done, and whoever has the lock may wait for a core. */
static bool engine_has_done(struct engine *e) {
        return atomic_load_explicit(&e->n_done, memory_order_acquire) > 0;
}

struct task *engine_take_done_task(struct engine *e) {
        if (!engine_has_done(e))
                return NULL;
        engine_lock(e);
        struct list *first = turns_take(&e->done_tasks);
        if (first)
                atomic_fetch_sub_explicit(&e->n_done, 1, memory_order_relaxed);
        engine_unlock(e);
        if (!first)
                return NULL;
        e->n_open--;
        struct task *t = list_entry(first, struct task, link);
        task_drop_scratch(t, SCRATCH_KEPT_BYTES);
        return t;
}

struct chore *engine_take_done_chore(struct engine *e) {
        if (!engine_has_done(e))
                return NULL;
        engine_lock(e);
        struct list *first = list_take_first(&e->done_chores);
        if (first)
                atomic_fetch_sub_explicit(&e->n_done, 1, memory_order_relaxed);
        engine_unlock(e);
        if (!first)
                return NULL;
        struct chore *c = list_entry(first, struct chore, link);
        if (c->kind != CHORE_CLOSE)
                e->n_open--;
        return c;
}

void engine_set_shared(struct engine *e, bool is_shared) {
        if (e->is_shared == is_shared)
                return;
        engine_lock(e);
        e->is_shared = is_shared;
        for (uint32_t i = 0; i < e->n_devices; i++)
                pthread_cond_broadcast(&e->devices[i].wake);
        engine_unlock(e);
}

void engine_ask_workers(struct engine *e) {
        engine_lock(e);
        atomic_fetch_add_explicit(&e->asked, 1, memory_order_relaxed);
        for (uint32_t i = 0; i < e->n_devices; i++)
                pthread_cond_broadcast(&e->devices[i].wake);
        engine_unlock(e);
}

static bool device_has_answered(const struct device *d, uint32_t asked) {
        for (uint32_t i = 0; i < d->n_workers; i++)
                if (atomic_load_explicit(&d->workers[i].answered, memory_order_relaxed) != asked)
                        return false;
        return true;
}

bool engine_workers_have_answered(struct engine *e) {
        uint32_t asked = atomic_load_explicit(&e->asked, memory_order_relaxed);
        for (uint32_t i = 0; i < e->n_devices; i++)
                if (!device_has_answered(&e->devices[i], asked))
                        return false;
        return true;
}

uint32_t engine_n_devices(const struct engine *e) {
        return e->n_devices;
}

struct engine_device_stats engine_device_stats(struct engine *e, uint32_t device) {
        const struct device *d = &e->devices[device];
        engine_lock(e);
        struct engine_device_stats s = {
                .n_workers = d->n_workers, .n_tasks = d->n_tasks, .busy_ns = d->busy_ns
        };
        engine_unlock(e);
        return s;
}

uint32_t engine_n_open(const struct engine *e) {
        return e->n_open;
}
