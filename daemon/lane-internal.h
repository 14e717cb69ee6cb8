/* What the files of the lane share: lane.c (the loop thread's side), lane-thread.c (what is run),
 * lane-assist.c (how large runs are shared). */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "base/regret.h"
#include "lane.h"

struct lane {
        uint64_t session;
        struct lane_slot *slot; /* the client's to write */
        struct page_slot *page;
        struct loan *slot_loan, *page_loan; /* where they lie */
        struct lane_board *board;
        int bell;
        uint32_t number;    /* in lanes.lanes */
        struct list places; /* struct lane_place.link; changed by the loop thread, under the lock */
        /* Under the lock. */
        uint64_t seen, taken;       /* starts that were copied; that are somebody's */
        struct lane_start start;    /* the one that was seen last */
        uint32_t n_open, n_watched; /* of its roads */
        /* The loop thread's. */
        bool is_orphan;          /* its session has gone */
        _Atomic uint32_t n_runs; /* that are not taken yet; the thread adds, while a road of it is open */
};

#define CACHE_LINE_BYTES 64

/* Chunks that nobody has taken: the first << 32 | the end. */
struct lane_share {
        _Atomic uint64_t left;
        uint8_t apart[CACHE_LINE_BYTES - sizeof(uint64_t)];
};

struct lane_assistant {
        pthread_t thread;
        struct lane_assistants *all;
        uint32_t index;
        cpu_set_t allowed, chosen; /* of the CPUs: by others; by itself, to be apart from the lane's thread */
};

/* The threads that help with large runs. From all zero, with lock and wake initialised. */
struct lane_assistants {
        struct backend *backend;
        uint32_t n;
        struct lane_assistant threads[LANE_MAX_ASSISTANTS];
        /* The lane's thread's. */
        uint32_t n_sharing;   /* of them, with the stage that is run */
        uint64_t last_ns;     /* when the last run ended that was large enough */
        struct regret regret; /* of having waited for them */
        /* What is run: the lane's thread's while the door is shut and nobody is inside. */
        const struct plan *plan;
        enum status status; /* of whoever has made has_failed true */
        const struct memory *culprit;
        _Atomic bool has_failed;
        _Atomic uint32_t n_taken; /* chunks, by assistants */
        uint8_t apart[CACHE_LINE_BYTES];
        _Atomic uint32_t door;
        _Atomic int cpu_of_lane;                           /* where its thread has begun its last large run */
        struct lane_share shares[LANE_MAX_ASSISTANTS + 1]; /* its thread's, then the assistants' */
        pthread_mutex_t lock;
        pthread_cond_t wake;
        uint32_t n_to_wake;       /* under the lock */
        _Atomic uint32_t n_awake; /* changed under the lock; with those that are to wake up */
        _Atomic bool is_stopping;
};

struct lanes {
        struct backend *backend;
        struct doorbell bell;
        uv_async_t async;
        pthread_t thread;
        bool has_thread;
        struct lane_assistants assistants;
        int epoll;
        int wake; /* ours alone. Who has a bell could make a write to it block: only clients write to bells */
        pthread_mutex_t lock;
        bool is_stopping, is_asleep; /* asleep: on the bells; it looks at no road */
        /* By the number that its bell has in the epoll; NULL: free. A bell that rings late for one that is
         * gone rings for its successor, which harms nobody. */
        struct lane **lanes;
        uint32_t capacity;
        struct list open, watched; /* struct lane_road.link: nobody looks at it, or the thread does */
        struct list refused;       /* struct lane_road.refused_link */
        /* A ring: the thread puts, the loop thread takes, neither under the lock. */
        struct lane_run *runs; /* [LANE_MAX_RUNS] */
        _Atomic uint64_t n_put, n_taken;
        uint32_t n_lanes;
        struct lanes_stats stats;
        uint64_t linger_ns; /* the longest wait for what usually comes soon */
        /* The thread's own: when it looked at the clock last, how its yields went, how long the last took. */
        uint64_t now_ns;
        struct regret regret;
        uint64_t yield_ns;
        /* Runs whose results are there, counted before any page says so. What a client asks for when it has
         * seen its page stands behind them by way of the client; here, too, it does by way of this word. */
        _Atomic uint64_t n_results;
        _Atomic uint32_t n_news; /* runs and refused roads: whoever finds 0 need not take the lock */
};

/* Under the lock. Copies what was started since the last look; whether it is of this place and nobody's. What
 * is of another place was perhaps started without a ring, since this one is watched: its road is from now on.
 */
bool lane_look(struct lanes *l, struct lane_place *p, uint64_t now_ns);
/* Under the lock: from now on somebody's; whose it is not the lane's, it is answered by a packet. */
void lane_take(struct lane *lane);
void lane_pass(struct lane *lane);

/* Under the lock. */
void road_watch(struct lanes *l, struct lane_road *road);
void road_unwatch(struct lanes *l, struct lane_road *road);

/* The number of `wake` in the epoll. */
#define LANE_WAKE UINT64_MAX

struct lane_outcome {
        const struct memory *culprit;
        bool is_assisted;
};
/* By the lane's thread: runs a plan, with assistants where it is large enough. OK, or BAD_FD with the
 * culprit. */
enum status assistants_run(
        struct lane_assistants *a, const struct plan *plan, struct lane_outcome *ret) MUST_USE;
/* 0 or negative errno: those that were started are to be stopped. */
int assistants_start(struct lane_assistants *a, struct backend *backend, uint32_t n) MUST_USE;
/* When the lane's thread has ended. */
void assistants_stop(struct lane_assistants *a);

/* The thread's main function, of struct lanes. */
void *lane_main(void *lanes);
