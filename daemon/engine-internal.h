/* What the two files of the engine share: engine.c (life and batons, the loop thread's side),
 * engine-threads.c (what the threads do). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "engine.h"

#define N_MEMORY_THREADS 2
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

struct memory_thread {
        pthread_t thread;
        struct engine *engine;
        bool is_running;
        uint32_t uid;
};

struct engine {
        struct backend *backend;
        struct doorbell bell;
        uv_async_t async;
        pthread_mutex_t lock;
        bool is_stopping, is_shared;
        struct device *devices;
        uint32_t n_devices;
        struct list chores, closes;
        pthread_cond_t memory_wake, closer_wake;
        struct memory_thread memory_threads[N_MEMORY_THREADS];
        uint32_t n_memory_threads;
        pthread_t closer;
        bool has_closer, closer_is_done;
        struct list done_tasks, done_chores;
        uint64_t confined[N_CONFINED]; /* group ids, a ring */
        uint32_t n_confined;
        uint32_t n_open;
};

void engine_lock(struct engine *e);
void engine_unlock(struct engine *e);

/* Under the lock. */
void device_queue(struct device *d, struct slice *s);

/* The threads' main functions: of struct worker, struct memory_thread, struct engine. They end when the
 * engine is stopping and nothing is left. */
void *worker_main(void *worker);
void *memory_main(void *memory_thread);
void *closer_main(void *engine);
