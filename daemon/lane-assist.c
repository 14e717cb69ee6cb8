/* The assistants: threads that take chunks of what the lane's thread runs, where that is large enough.
 *
 * A stage has a share for each thread, a stretch of its chunks: the same one each time, so that what a thread
 * has written is still in the caches of its core. Whoever is through with its own, from the front, takes what
 * others have not begun, from the back. So nobody is waited for but who has entered and is in a chunk: the
 * door counts those, and is shut when no chunk is left.
 *
 *     door: OPEN | how many are inside. Opened by the lane's thread alone, while nobody is inside.
 *
 * An assistant that has helped yields for a moment, as the next run is often close; then it sleeps. On the
 * core of the lane's thread it is of no use: it goes to another one by what it may use of the CPUs, and does
 * not enter before it is there. */
#include "lane-internal.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"

/* Read and written by a run: below it, it is over before it is shared; of a thread's part, likewise. */
#define SHARED_MOVED_BYTES (1u << 20)
#define PART_MOVED_BYTES   (512u << 10)
/* From here on it takes longer than a thread needs to wake up on another core. */
#define WORTH_WAKING_BYTES (2u << 20)
/* A chunk: as little as can be waited for, as much as makes its taking cheap. */
#define CHUNK_MOVED_BYTES (128u << 10)
#define CHUNK_UNIT_BYTES  4096u
#define MOST_CHUNKS       64

/* Of a run, by one thread and by several, which is about as long: beyond it the engine is as fast, and turns
 * between users. */
#define MOST_MOVED_BYTES        (6u << 20)
#define MOST_MOVED_BYTES_SHARED (16u << 20)

#define LINGER_NS (NS_PER_MS / 10) /* after it has helped */
/* Until everybody has left: looks, for as long as a chunk takes; then yields; then memory stands still. */
#define CLOSE_LOOKS    4000
#define CLOSE_YIELDS   1000
#define CLOSE_SLEEP_US 100

#define DOOR_OPEN 0x80000000u

/* --- shares --- */

static uint64_t share_pack(uint64_t first, uint64_t end) {
        return first << 32 | end;
}

static bool take_front(struct lane_share *s, uint64_t *ret_chunk) {
        uint64_t left = atomic_load_explicit(&s->left, memory_order_relaxed);
        while (left >> 32 < (uint32_t)left) {
                if (!atomic_compare_exchange_weak_explicit(&s->left, &left, left + share_pack(1, 0),
                            memory_order_relaxed, memory_order_relaxed))
                        continue;
                *ret_chunk = left >> 32;
                return true;
        }
        return false;
}

static bool take_back(struct lane_share *s, uint64_t *ret_chunk) {
        uint64_t left = atomic_load_explicit(&s->left, memory_order_relaxed);
        while (left >> 32 < (uint32_t)left) {
                if (!atomic_compare_exchange_weak_explicit(
                            &s->left, &left, left - 1, memory_order_relaxed, memory_order_relaxed))
                        continue;
                *ret_chunk = (uint32_t)left - 1;
                return true;
        }
        return false;
}

static bool take_chunk(struct lane_assistants *a, uint32_t own, uint64_t *ret_chunk) {
        if (take_front(&a->shares[own], ret_chunk))
                return true;
        for (uint32_t i = 1; i <= a->n; i++)
                if (take_back(&a->shares[(own + i) % (a->n + 1)], ret_chunk))
                        return true;
        return false;
}

static void share_out(struct lane_assistants *a, const struct stage *stage) {
        CHECK(stage->end_chunk <= UINT32_MAX);
        uint64_t n = stage->end_chunk - stage->first_chunk, n_shares = a->n_sharing + 1;
        for (uint32_t i = 0; i <= a->n; i++) {
                uint64_t begin = i < n_shares ? n * i / n_shares : 0;
                uint64_t end = i < n_shares ? n * (i + 1) / n_shares : 0;
                atomic_store_explicit(&a->shares[i].left,
                        share_pack(stage->first_chunk + begin, stage->first_chunk + end),
                        memory_order_relaxed);
        }
}

/* The first failure is the run's; who is in a chunk goes on to its end. */
static void note_failure(struct lane_assistants *a, enum status status, const struct memory *culprit) {
        if (atomic_exchange_explicit(&a->has_failed, true, memory_order_relaxed))
                return;
        a->status = status;
        a->culprit = culprit;
}

/* How many it has run. */
static uint32_t run_chunks(struct lane_assistants *a, uint32_t own) {
        struct findings found = { 0 }; /* plans of the lane check nothing */
        uint32_t n = 0;
        uint64_t chunk;
        while (!atomic_load_explicit(&a->has_failed, memory_order_relaxed) && take_chunk(a, own, &chunk)) {
                const struct memory *culprit = NULL;
                enum status status = a->backend->ops->run_chunk(a->backend, a->plan, chunk, &found, &culprit);
                if (status != STATUS_OK)
                        note_failure(a, status, culprit);
                n++;
        }
        return n;
}

/* --- an assistant --- */

static bool enter(struct lane_assistants *a) {
        uint32_t door = atomic_load_explicit(&a->door, memory_order_relaxed);
        while (door & DOOR_OPEN)
                if (atomic_compare_exchange_weak_explicit(
                            &a->door, &door, door + 1, memory_order_acquire, memory_order_relaxed))
                        return true;
        return false;
}

/* Behind it nothing is left to be taken. */
static void leave(struct lane_assistants *a) {
        atomic_fetch_and_explicit(&a->door, ~DOOR_OPEN, memory_order_relaxed);
        atomic_fetch_sub_explicit(&a->door, 1, memory_order_release);
}

/* Whether it is on another core than the lane's thread. If not, it goes to one, if it may use any: by its
 * affinity, since the kernel sees no reason to part two threads that yield. What somebody else has set since
 * the last time is from then on what it may use. */
static bool is_apart(struct lane_assistant *t) {
        int cpu = sched_getcpu(), of_lane = atomic_load_explicit(&t->all->cpu_of_lane, memory_order_relaxed);
        cpu_set_t now;
        if (cpu != of_lane || cpu < 0)
                return true;
        if (sched_getaffinity(0, sizeof(now), &now) < 0)
                return false;
        if (!CPU_EQUAL(&now, &t->chosen))
                t->allowed = now;
        now = t->allowed;
        CPU_CLR((size_t)of_lane, &now);
        if (CPU_COUNT(&now) == 0 || sched_setaffinity(0, sizeof(now), &now) < 0)
                return false;
        t->chosen = now;
        return sched_getcpu() != of_lane;
}

/* Looks for runs to help with until there has been none for a while. */
static void look_for_runs(struct lane_assistant *t) {
        struct lane_assistants *a = t->all;
        uint64_t last_ns = clock_now_ns();
        while (!atomic_load_explicit(&a->is_stopping, memory_order_relaxed)) {
                if (is_apart(t) && enter(a)) {
                        uint32_t n = run_chunks(a, 1 + t->index);
                        atomic_fetch_add_explicit(&a->n_taken, n, memory_order_relaxed);
                        leave(a);
                        last_ns = clock_now_ns();
                } else if (clock_now_ns() - last_ns > LINGER_NS) {
                        return;
                }
                sched_yield();
        }
}

static void *assistant_main(void *data) {
        struct lane_assistant *t = data;
        struct lane_assistants *a = t->all;
        int r = a->backend->ops->thread_init(a->backend);
        if (r < 0)
                log_error("a thread of the lane cannot be set up: %s", strerror(-r));
        CHECK(r >= 0);
        CHECK(pthread_mutex_lock(&a->lock) == 0);
        while (!atomic_load_explicit(&a->is_stopping, memory_order_relaxed)) {
                if (a->n_to_wake == 0) {
                        pthread_cond_wait(&a->wake, &a->lock);
                        continue;
                }
                a->n_to_wake--;
                CHECK(pthread_mutex_unlock(&a->lock) == 0);
                look_for_runs(t);
                CHECK(pthread_mutex_lock(&a->lock) == 0);
                atomic_fetch_sub_explicit(&a->n_awake, 1, memory_order_relaxed);
        }
        CHECK(pthread_mutex_unlock(&a->lock) == 0);
        return NULL;
}

/* --- the lane's thread --- */

static void wake(struct lane_assistants *a, uint32_t n_wanted) {
        CHECK(pthread_mutex_lock(&a->lock) == 0);
        uint32_t n_awake = atomic_load_explicit(&a->n_awake, memory_order_relaxed);
        uint32_t n = n_wanted > n_awake ? n_wanted - n_awake : 0;
        a->n_to_wake += n;
        atomic_fetch_add_explicit(&a->n_awake, n, memory_order_relaxed);
        CHECK(pthread_mutex_unlock(&a->lock) == 0);
        for (; n > 0; n--)
                pthread_cond_signal(&a->wake);
}

/* How many are to help with what is run next: those that are awake, or as many as its size is good for where
 * they are worth waking: where it takes long enough, or the next one will be here soon. */
static uint32_t choose_helpers(const struct lane_assistants *a, const struct plan *plan) {
        uint64_t now_ns = clock_now_ns(), n = plan->moved_bytes / PART_MOVED_BYTES - 1;
        if (!regret_may_yield(&a->regret, now_ns))
                return 0;
        if (n > a->n)
                n = a->n;
        uint32_t n_awake = atomic_load_explicit(&a->n_awake, memory_order_relaxed);
        bool is_worth_it = plan->moved_bytes >= WORTH_WAKING_BYTES || now_ns - a->last_ns < LINGER_NS;
        return n_awake < n && !is_worth_it ? n_awake : (uint32_t)n;
}

/* Whoever wakes up finds it open. */
static void open_door(struct lane_assistants *a) {
        atomic_store_explicit(&a->cpu_of_lane, sched_getcpu(), memory_order_relaxed);
        atomic_store_explicit(&a->door, DOOR_OPEN, memory_order_release);
        if (atomic_load_explicit(&a->n_awake, memory_order_relaxed) < a->n_sharing)
                wake(a, a->n_sharing);
}

/* Who is late for a chunk has lost its core in it: where that is regretted nobody is called for a while. */
static void close_door(struct lane_assistants *a) {
        uint64_t began_ns = clock_now_ns();
        atomic_fetch_and_explicit(&a->door, ~DOOR_OPEN, memory_order_relaxed);
        for (uint32_t n = 0; atomic_load_explicit(&a->door, memory_order_acquire) != 0; n++)
                if (n >= CLOSE_LOOKS + CLOSE_YIELDS)
                        usleep(CLOSE_SLEEP_US);
                else if (n >= CLOSE_LOOKS)
                        sched_yield();
        uint64_t now_ns = clock_now_ns();
        if (atomic_load_explicit(&a->n_taken, memory_order_relaxed) > 0)
                regret_note(&a->regret, now_ns - began_ns, now_ns);
}

static enum status run_shared(struct lane_assistants *a, const struct plan *plan, struct lane_outcome *ret) {
        struct stage stage;
        uint32_t cursor = 0;
        a->plan = plan;
        a->status = STATUS_OK;
        a->culprit = NULL;
        atomic_store_explicit(&a->has_failed, false, memory_order_relaxed);
        atomic_store_explicit(&a->n_taken, 0, memory_order_relaxed);
        while (a->status == STATUS_OK && plan_next_stage(plan, &cursor, &stage)) {
                a->n_sharing = choose_helpers(a, plan);
                share_out(a, &stage);
                if (a->n_sharing)
                        open_door(a);
                (void)run_chunks(a, 0);
                if (a->n_sharing)
                        close_door(a);
        }
        a->last_ns = clock_now_ns();
        ret->culprit = a->culprit;
        ret->is_assisted = atomic_load_explicit(&a->n_taken, memory_order_relaxed) > 0;
        return a->status;
}

static enum status run_alone(struct lane_assistants *a, const struct plan *plan, struct lane_outcome *ret) {
        struct findings found = { 0 };
        struct stage stage;
        uint32_t cursor = 0;
        *ret = (struct lane_outcome){ 0 };
        while (plan_next_stage(plan, &cursor, &stage))
                for (uint64_t chunk = stage.first_chunk; chunk < stage.end_chunk; chunk++) {
                        enum status status =
                                a->backend->ops->run_chunk(a->backend, plan, chunk, &found, &ret->culprit);
                        if (status != STATUS_OK)
                                return status;
                }
        return STATUS_OK;
}

enum status assistants_run(struct lane_assistants *a, const struct plan *plan, struct lane_outcome *ret) {
        bool is_shared = a->n > 0 && plan->moved_bytes >= SHARED_MOVED_BYTES;
        return is_shared ? run_shared(a, plan, ret) : run_alone(a, plan, ret);
}

/* --- life; the loop thread --- */

uint32_t lanes_most_assistants(uint32_t n_workers) {
        cpu_set_t allowed;
        if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
                return 0;
        uint32_t n = (uint32_t)CPU_COUNT(&allowed);
        if (n_workers && n_workers < n)
                n = n_workers;
        return n - 1 < LANE_MAX_ASSISTANTS ? n - 1 : LANE_MAX_ASSISTANTS;
}

uint64_t lanes_most_moved_bytes(const struct lanes *l) {
        return l->assistants.n > 0 ? MOST_MOVED_BYTES_SHARED : MOST_MOVED_BYTES;
}

uint64_t lanes_chunk_bytes(const struct lanes *l, const struct plan *plan) {
        if (l->assistants.n == 0 || plan->moved_bytes < SHARED_MOVED_BYTES)
                return plan->chunk_bytes;
        uint64_t n = plan->moved_bytes / CHUNK_MOVED_BYTES;
        uint64_t bytes = plan->total_bytes / (n < MOST_CHUNKS ? n : MOST_CHUNKS);
        bytes = (bytes + CHUNK_UNIT_BYTES - 1) / CHUNK_UNIT_BYTES * CHUNK_UNIT_BYTES;
        return bytes > 0 && bytes < plan->chunk_bytes ? bytes : plan->chunk_bytes;
}

int assistants_start(struct lane_assistants *a, struct backend *backend, uint32_t n) {
        CHECK(n <= LANE_MAX_ASSISTANTS);
        a->backend = backend;
        regret_init(&a->regret);
        atomic_store(&a->cpu_of_lane, -1);
        for (uint32_t i = 0; i < n; i++) {
                struct lane_assistant *t = &a->threads[i];
                t->all = a;
                t->index = i;
                if (sched_getaffinity(0, sizeof(t->allowed), &t->allowed) < 0)
                        return -errno;
                t->chosen = t->allowed;
                int r = pthread_create(&t->thread, NULL, assistant_main, t);
                if (r != 0)
                        return -r;
                a->n++;
        }
        return 0;
}

void assistants_stop(struct lane_assistants *a) {
        CHECK(pthread_mutex_lock(&a->lock) == 0);
        atomic_store_explicit(&a->is_stopping, true, memory_order_relaxed);
        CHECK(pthread_mutex_unlock(&a->lock) == 0);
        pthread_cond_broadcast(&a->wake);
        for (; a->n > 0; a->n--)
                pthread_join(a->threads[a->n - 1].thread, NULL);
}
