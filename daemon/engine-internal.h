/* What the two files of the engine share: engine.c (life and batons, the loop thread's side),
 * engine-threads.c (what the threads do). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "base/turns.h"
#include "engine.h"

#define N_MEMORY_THREADS 2
#define MAX_CLOSERS      16 /* and the largest crew */
#define N_CONFINED       64

struct device;

struct worker {
        pthread_t thread;
        struct device *device;
        bool is_running; /* a slice, of: */
        uint32_t uid;
        uint64_t group;
        int schedstat_fd;                       /* this thread's; -1 where the kernel has none */
        uint64_t mark_ns, run_delay_ns, cpu_ns; /* when its clocks were read, and where they stood */
        _Atomic uint32_t answered; /* the last question of the engine that this worker has seen */
};

struct device {
        struct engine *engine;
        struct queues ready;      /* struct slice.queued */
        _Atomic uint32_t n_ready; /* of them */
        pthread_cond_t wake;
        uint32_t n_workers, n_idle;
        uint32_t n_to_wake; /* of the idle ones, when the lock is given up */
        struct worker *workers;
        uint64_t n_tasks, busy_ns;
};

struct crew_thread {
        pthread_t thread;
        struct engine *engine;
        struct crew *crew;
        bool is_running; /* a chore, of: */
        uint32_t uid;
        bool has_ended;
};

/* Threads that do the chores of one list. A user never occupies more than one of them: what it makes slow is
 * slow for itself alone. */
struct crew {
        struct list queue; /* struct chore */
        pthread_cond_t wake;
        struct crew_thread threads[MAX_CLOSERS];
        uint32_t n;
};

#define SCRATCH_KEPT_BYTES (256u << 10) /* of a task, for its next run */

struct engine {
        struct backend *backend;
        struct doorbell bell;
        uv_async_t async;
        pthread_mutex_t lock;
        bool is_stopping, is_shared;
        bool is_stopped;        /* threads that are stuck are all that is left */
        _Atomic uint32_t asked; /* questions for a sign of life so far */
        struct device *devices;
        uint32_t n_devices;
        bool has_to_wake; /* on some device */
        struct crew memory, closers;
        struct turns done_tasks; /* struct task.link, by user */
        struct list done_chores;
        _Atomic uint32_t n_done;       /* of both: whoever finds 0 need not take the lock */
        uint64_t confined[N_CONFINED]; /* group ids, a ring */
        uint32_t n_confined;
        uint32_t n_open;
        uint32_t n_running; /* tasks that are not done; under the lock */
};

void engine_lock(struct engine *e);
/* Then wakes whom there is work for: whoever is woken under the lock runs into it and sleeps once more. */
void engine_unlock(struct engine *e);
/* The same wakes, under the lock, by who gives it up by waiting. */
void engine_wake(struct engine *e);

/* Under the lock. */
void device_queue(struct device *d, struct slice *s);

/* engine.c. Under the lock: queues what the task's next phase has to do and wakes who shall do it; false when
 * there is no phase left. */
/* Not under the lock: giving much memory back takes its time. */
void task_drop_scratch(struct task *t, uint64_t larger_than_bytes);
bool task_start_phase(struct engine *e, struct task *t);
/* Under the lock: the baton goes back; whoever holds the lock has to ring when it has let go of it. */
void task_finish(struct engine *e, struct task *t);

/* Under the lock: whether one of the crew does a chore of this user; whether all of it do some. */
bool crew_works_for(const struct crew *crew, uint32_t uid);
bool crew_is_busy(const struct crew *crew);

void chore_run(struct backend *b, struct chore *c);

/* The threads' main functions: of struct worker, of struct crew_thread. They end when the engine is stopping
 * and nothing is left for them. */
void *worker_main(void *worker);
void *crew_main(void *crew_thread);
