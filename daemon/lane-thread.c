/* The thread that watches roads and runs what was started on them.
 *
 * It looks at a road for as long as something happens there, ten looks and yields longer, or lane.linger
 * where the next collective usually comes so soon, but not where yields are regretted; and sleeps when it
 * looks at none: on the bells, one for each lane. "I look no more, was there anything?" stands against "I
 * have started something, do you look?" of the clients: both are sequentially consistent, so that one of the
 * two sees the other. */
#include "lane-internal.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include "base/clock.h"
#include "base/log.h"

#define IDLE_LOOKS    10
#define BLOCKED_NS    (100 * NS_PER_MS)
#define LOOKS_A_RING  16 /* at the bells of roads that nobody looks at */
#define RINGS_AT_ONCE 64

/* --- is it a collective? --- */

static const struct lane_start *start_of(const struct lane_road *road, uint32_t place) {
        return &road->places[place].lane->start;
}

static bool is_set(const struct lane_road *road, const struct lane_set *set) {
        for (uint32_t i = 0; i < road->n_places; i++)
                if (set->numbers[i] != start_of(road, i)->prepared)
                        return false;
        return true;
}

/* NULL: it is for rendezvous to say what is wrong. */
static const struct lane_set *find_set(const struct lane_road *road) {
        const struct lane_start *first = start_of(road, 0);
        for (uint32_t i = 0; i < road->n_places; i++) {
                const struct lane_start *s = start_of(road, i);
                if (!s->has_key || s->epoch != road->epoch || s->request == 0 ||
                        !key_is_equal(&s->key, &first->key))
                        return NULL;
        }
        list_for_each (it, &road->sets) {
                const struct lane_set *set = list_entry(it, struct lane_set, link);
                if (is_set(road, set))
                        return set;
        }
        return NULL;
}

/* --- into which slot; under the lock --- */

/* Each member holds it from here on, so that it may give it back as soon as its page says `done`. */
static bool take_slot(const struct lane_road *road, const struct lane_set *set, uint32_t *ret) {
        *ret = 0;
        if (!set->slots)
                return true;
        for (uint32_t i = 0; i < road->n_places; i++)
                slots_hear(set->slots, set->users[i]);
        if (!slots_take(set->slots, ret))
                return false;
        for (uint32_t i = 0; i < road->n_places; i++)
                rankset_add(&set->slots->all[*ret].holders, set->users[i]->rank);
        return true;
}

void lane_end_slot(const struct lane_run *run) {
        struct slots *slots = run->set->slots;
        if (slots && run->status == STATUS_OK)
                slots_end(slots, run->slot, run->done_ns);
        else if (slots)
                slots_void(slots, run->slot, run->done_ns);
}

/* --- running; without the lock --- */

static void set_pages(const struct lane_run *run, enum page_state state) {
        for (uint32_t i = 0; i < run->road->n_places; i++)
                page_set(run->road->places[i].lane->page, run->requests[i], run->number, state);
}

static void write_boards(const struct lane_run *run) {
        for (uint32_t i = 0; i < run->road->n_places; i++) {
                const struct lane_place *p = &run->road->places[i];
                struct lane_board *board = p->lane->board;
                atomic_store_explicit(
                        &board->wait_ns, run->sealed_ns - run->arrived_ns[i], memory_order_relaxed);
                atomic_store_explicit(&board->run_ns, run->done_ns - run->sealed_ns, memory_order_relaxed);
                atomic_store_explicit(&board->done_ns, run->done_ns, memory_order_relaxed);
                atomic_store_explicit(&board->slot, run->slot, memory_order_relaxed);
                atomic_store_explicit(
                        &board->last_rank, run->road->places[run->last_place].rank, memory_order_relaxed);
        }
}

static void run_set(struct lanes *l, struct lane_run *run) {
        struct lane_outcome outcome;
        uint64_t begun_ns = l->now_ns;
        set_pages(run, PAGE_BEGUN);
        if (run->set->slots)
                plan_move_slot(run->set->plan, run->set->slots->stride_bytes * run->slot);
        run->status = assistants_run(&l->assistants, run->set->plan, &outcome);
        run->done_ns = clock_now_ns();
        run->blocked_ns = run->done_ns - begun_ns >= BLOCKED_NS ? run->done_ns - begun_ns : 0;
        run->culprit_session = outcome.culprit ? outcome.culprit->session : 0;
        run->culprit_buffer = outcome.culprit ? outcome.culprit->buffer : 0;
        run->is_assisted = outcome.is_assisted;
        if (run->status != STATUS_OK)
                return;
        write_boards(run);
        atomic_fetch_add_explicit(&l->n_results, 1, memory_order_release);
        set_pages(run, PAGE_DONE);
}

/* --- one road; under the lock --- */

static void ring(struct lanes *l) {
        CHECK(pthread_mutex_unlock(&l->lock) == 0);
        uv_async_send(&l->async);
        CHECK(pthread_mutex_lock(&l->lock) == 0);
}

static void refuse(struct lanes *l, struct lane_road *road) {
        road->is_refused = true;
        list_append(&l->refused, &road->refused_link);
        atomic_fetch_add_explicit(&l->n_news, 1, memory_order_release);
        road_unwatch(l, road);
        ring(l);
}

/* By an eighth, of gaps that count as a millisecond at most. */
static void learn_gap(struct lane_road *road, uint64_t sealed_ns) {
        uint64_t gap_ns = sealed_ns > road->last_ns ? sealed_ns - road->last_ns : 0;
        if (gap_ns > NS_PER_MS)
                gap_ns = NS_PER_MS;
        road->usual_ns += gap_ns / 8;
        road->usual_ns -= road->usual_ns / 8;
}

static bool is_patient(const struct lanes *l, const struct lane_road *road) {
        return regret_may_yield(&l->regret, l->now_ns) &&
               (road->n_idle < IDLE_LOOKS ||
                       (road->usual_ns < l->linger_ns && l->now_ns - road->last_ns < l->linger_ns));
}

/* All is there since some moment of the last yield. */
static void learn_lateness(struct lanes *l, const struct lane_road *road) {
        uint64_t off_until_ns = l->regret.off_until_ns;
        if (road->n_idle > 0)
                regret_note(&l->regret, l->yield_ns, l->now_ns);
        l->stats.n_regrets += l->regret.off_until_ns != off_until_ns;
}

/* Takes what was started into the record of its run. */
static void begin_run(struct lane_run *run, struct lane_road *road, const struct lane_set *set) {
        run->road = road;
        run->set = road->running = set;
        run->number = road->next_number++;
        run->key = start_of(road, 0)->key;
        run->last_place = 0;
        for (uint32_t i = 0; i < road->n_places; i++) {
                struct lane *lane = road->places[i].lane;
                run->requests[i] = lane->start.request;
                run->arrived_ns[i] = lane->start.seen_ns;
                if (lane->start.seen_ns >= run->arrived_ns[run->last_place])
                        run->last_place = i;
                atomic_fetch_add_explicit(&lane->n_runs, 1, memory_order_relaxed);
                lane_take(lane);
        }
        run->sealed_ns = run->arrived_ns[run->last_place];
        learn_gap(road, run->sealed_ns);
}

/* Runs that are not taken yet. */
static uint64_t n_waiting(const struct lanes *l) {
        return atomic_load_explicit(&l->n_put, memory_order_relaxed) -
               atomic_load_explicit(&l->n_taken, memory_order_acquire);
}

static void run_road(struct lanes *l, struct lane_road *road, const struct lane_set *set, uint32_t slot) {
        uint64_t n_put = atomic_load_explicit(&l->n_put, memory_order_relaxed);
        struct lane_run *run = &l->runs[n_put % LANE_MAX_RUNS];
        run->slot = slot;
        begin_run(run, road, set);
        CHECK(pthread_mutex_unlock(&l->lock) == 0);
        run_set(l, run);
        CHECK(pthread_mutex_lock(&l->lock) == 0);
        road->running = NULL;
        if (road->is_open)
                lane_end_slot(run);
        road->last_ns = l->now_ns = run->done_ns;
        bool is_urgent = !road->is_open || run->status != STATUS_OK;
        l->stats.n_runs++;
        atomic_fetch_add_explicit(&l->n_news, 1, memory_order_release);
        atomic_store_explicit(&l->n_put, n_put + 1, memory_order_release); /* from here on *run may change */
        if (is_urgent || n_waiting(l) == LANE_MAX_RUNS / 2)
                ring(l);
}

static bool all_have_started(struct lanes *l, struct lane_road *road) {
        bool have_all = true;
        for (uint32_t i = 0; i < road->n_places; i++)
                have_all &= lane_look(l, &road->places[i], l->now_ns);
        return have_all;
}

/* Whether something happened. */
static bool look_at(struct lanes *l, struct lane_road *road) {
        if (!all_have_started(l, road)) {
                road->n_idle++;
                if (is_patient(l, road))
                        return false;
                road_unwatch(l, road);
                if (!all_have_started(l, road)) /* since they could know that nobody looks */
                        return false;
                road_watch(l, road);
        }
        learn_lateness(l, road);
        road->n_idle = 0;
        if (n_waiting(l) == LANE_MAX_RUNS) { /* the loop thread is behind: it is waited for */
                ring(l);
                return false;
        }
        uint32_t slot;
        const struct lane_set *set = find_set(road);
        if (set && take_slot(road, set, &slot))
                run_road(l, road, set, slot);
        else
                refuse(l, road);
        return true;
}

/* --- all of them; under the lock --- */

/* Each in turn. Whether something happened on any. */
static bool look_at_all(struct lanes *l) {
        bool is_any = false;
        size_t n = list_length(&l->watched);
        for (; n > 0 && !list_is_empty(&l->watched); n--) {
                struct list *first = list_take_first(&l->watched);
                list_append(&l->watched, first);
                is_any |= look_at(l, list_entry(first, struct lane_road, link));
        }
        return is_any;
}

static void hear_wake(struct lanes *l) {
        list_for_each_safe (it, tmp, &l->open) {
                struct lane_road *road = list_entry(it, struct lane_road, link);
                if (road->is_started && !road->is_refused)
                        road_watch(l, road);
                road->is_started = false;
        }
}

static void hear(struct lanes *l, uint64_t number) {
        if (number == LANE_WAKE)
                hear_wake(l);
        const struct lane *lane = number < l->capacity ? l->lanes[number] : NULL;
        if (!lane)
                return;
        l->stats.n_rings++;
        list_for_each (it, &lane->places) {
                struct lane_road *road = list_entry(it, struct lane_place, link)->road;
                if (road->is_open && !road->is_refused && !road->is_watched)
                        road_watch(l, road);
        }
}

/* Gives the lock up while it sleeps. */
static void hear_bells(struct lanes *l, int timeout_ms) {
        struct epoll_event events[RINGS_AT_ONCE];
        l->is_asleep = timeout_ms != 0;
        CHECK(pthread_mutex_unlock(&l->lock) == 0);
        int n = epoll_wait(l->epoll, events, RINGS_AT_ONCE, timeout_ms);
        CHECK(n >= 0 || errno == EINTR);
        CHECK(pthread_mutex_lock(&l->lock) == 0);
        l->is_asleep = false;
        if (timeout_ms != 0)
                l->now_ns = clock_now_ns();
        for (int i = 0; i < n; i++)
                hear(l, events[i].data.u64);
}

static void yield(struct lanes *l) {
        CHECK(pthread_mutex_unlock(&l->lock) == 0);
        sched_yield();
        uint64_t now_ns = clock_now_ns();
        l->yield_ns = now_ns - l->now_ns; /* and the looks before it */
        l->now_ns = now_ns;
        CHECK(pthread_mutex_lock(&l->lock) == 0);
}

void *lane_main(void *data) {
        struct lanes *l = data;
        int r = l->backend->ops->thread_init(l->backend);
        if (r < 0)
                log_error("the thread of the lane cannot be set up: %s", strerror(-r));
        CHECK(r >= 0);
        CHECK(pthread_mutex_lock(&l->lock) == 0);
        l->now_ns = clock_now_ns();
        for (uint32_t n_looks = 0; !l->is_stopping; n_looks++) {
                if (list_is_empty(&l->watched))
                        hear_bells(l, -1);
                else if (n_looks % LOOKS_A_RING == 0)
                        hear_bells(l, 0);
                if (!look_at_all(l) && !list_is_empty(&l->watched))
                        yield(l);
        }
        CHECK(pthread_mutex_unlock(&l->lock) == 0);
        return NULL;
}
