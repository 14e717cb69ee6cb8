/* What the two files of the lane share: lane.c (the loop thread's side), lane-thread.c. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "base/regret.h"
#include "lane.h"

struct lane {
        uint64_t session;
        struct lane_slot *slot; /* the client's to write */
        struct page_slot *page;
        struct lane_board *board;
        int bell;
        uint32_t number;    /* in lanes.lanes */
        struct list places; /* struct lane_place.link; changed by the loop thread, under the lock */
        /* Under the lock. */
        uint64_t seen, taken; /* starts that were copied; that are somebody's */
        uint64_t seen_ns;
        struct lane_start start;    /* the one that was seen last */
        uint32_t n_open, n_watched; /* of its roads */
        uint32_t n_runs;            /* that are not taken yet */
        bool is_orphan;             /* its session has gone */
};

struct lanes {
        struct backend *backend;
        struct doorbell bell;
        uv_async_t async;
        pthread_t thread;
        bool has_thread;
        int epoll, stop;
        pthread_mutex_t lock;
        bool is_stopping, is_asleep; /* asleep: on the bells; it looks at no road */
        /* By the number that its bell has in the epoll; NULL: free. A bell that rings late for one that is
         * gone rings for its successor, which harms nobody. */
        struct lane **lanes;
        uint32_t capacity;
        struct list open, watched; /* struct lane_road.link: nobody looks at it, or the thread does */
        struct list refused;       /* struct lane_road.refused_link */
        struct lane_run *runs;     /* [LANE_MAX_RUNS], a ring */
        uint64_t n_put, n_taken;
        uint32_t n_lanes;
        struct lanes_stats stats;
        /* The thread's own: how its yields went, and how long the last one took. */
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
bool lane_look(struct lanes *l, struct lane_place *p);
/* Under the lock: from now on somebody's; whose it is not the lane's, it is answered by a packet. */
void lane_take(struct lane *lane);
void lane_pass(struct lane *lane);

/* Under the lock. */
void road_watch(struct lanes *l, struct lane_road *road);
void road_unwatch(struct lanes *l, struct lane_road *road);

/* The thread's main function, of struct lanes. */
void *lane_main(void *lanes);
