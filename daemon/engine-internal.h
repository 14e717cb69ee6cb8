/* What the two files of the engine share: engine.c (life and batons, the loop thread's side),
 * engine-threads.c (what the threads do). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "engine.h"

#define N_MEMORY_THREADS 2
#define MAX_CLOSERS      16
#define N_CONFINED       64

struct device;

struct worker {
        pthread_t thread;
        struct device *device;
        bool is_running; /* a slice, of: */
        uint32_t uid;
        uint64_t group;
        int schedstat_fd; /* this thread's; -1 where the kernel has none */
        uint64_t run_delay_ns, run_delay_read_ns;
};

struct device {
        struct engine *engine;
        struct list ready; /* struct slice */
        _Atomic uint32_t n_ready;
        pthread_cond_t wake;
        uint32_t n_workers, n_idle;
        struct worker *workers;
        uint64_t n_tasks, busy_ns;
};

/* Does chores: memory work, or closing. */
struct memory_thread {
        pthread_t thread;
        struct engine *engine;
        bool is_running; /* a chore, of: */
        uint32_t uid;
        bool has_ended;
};

struct engine {
        struct backend *backend;
        struct doorbell bell;
        uv_async_t async;
        pthread_mutex_t lock;
        bool is_stopping, is_shared;
        bool is_stopped; /* threads that are stuck are all that is left */
        struct device *devices;
        uint32_t n_devices;
        struct list chores, closes;
        pthread_cond_t memory_wake, closer_wake;
        struct memory_thread memory_threads[N_MEMORY_THREADS];
        uint32_t n_memory_threads;
        struct memory_thread closers[MAX_CLOSERS];
        uint32_t n_closers;
        struct list done_tasks, done_chores;
        uint64_t confined[N_CONFINED]; /* group ids, a ring */
        uint32_t n_confined;
        uint32_t n_open;
};

void engine_lock(struct engine *e);
void engine_unlock(struct engine *e);

/* Under the lock. */
void device_queue(struct device *d, struct slice *s);

/* Under the lock: whether a closer does one of this user's chores; whether all closers do some. */
bool engine_closes_for(const struct engine *e, uint32_t uid);
bool engine_closers_are_busy(const struct engine *e);

void chore_run(struct backend *b, struct chore *c);

/* The threads' main functions: of struct worker, struct memory_thread, and that again. They end when the
 * engine is stopping and nothing is left. */
void *worker_main(void *worker);
void *memory_main(void *memory_thread);
void *closer_main(void *memory_thread);
