#include "lane-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

/* Behind all results that a client may have seen. */
static void lanes_lock(struct lanes *l) {
        CHECK(pthread_mutex_lock(&l->lock) == 0);
        (void)atomic_load_explicit(&l->n_results, memory_order_acquire);
}

static void lanes_unlock(struct lanes *l) {
        CHECK(pthread_mutex_unlock(&l->lock) == 0);
}

/* --- life --- */

static void lanes_on_async(uv_async_t *async) {
        struct lanes *l = async->data;
        doorbell_ring(&l->bell);
}

static int lanes_start(struct lanes *l, uint32_t n_assistants) {
        struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = LANE_WAKE };
        l->epoll = epoll_create1(EPOLL_CLOEXEC);
        l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (l->epoll < 0 || l->wake < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &event) < 0)
                return -errno;
        int r = assistants_start(&l->assistants, l->backend, n_assistants);
        if (r < 0)
                return r;
        r = pthread_create(&l->thread, NULL, lane_main, l);
        l->has_thread = r == 0;
        return -r;
}

int lanes_new(struct lanes **ret, uv_loop_t *loop, struct backend *backend, const struct doorbell *bell,
        const struct lanes_options *options) {
        struct lanes *l = calloc(1, sizeof(*l));
        if (!l)
                return -ENOMEM;
        l->backend = backend;
        l->bell = *bell;
        l->linger_ns = options->linger_ns;
        l->epoll = l->wake = -1;
        regret_init(&l->regret);
        pthread_mutex_init(&l->lock, NULL);
        pthread_mutex_init(&l->assistants.lock, NULL);
        pthread_cond_init(&l->assistants.wake, NULL);
        list_init(&l->open);
        list_init(&l->watched);
        list_init(&l->refused);
        l->runs = calloc(LANE_MAX_RUNS, sizeof(*l->runs));
        int r = l->runs ? uv_async_init(loop, &l->async, lanes_on_async) : -ENOMEM;
        if (r < 0) {
                lanes_free(l);
                return r;
        }
        l->async.data = l;
        r = lanes_start(l, options->n_assistants);
        if (r < 0) {
                lanes_stop(l);
                uv_run(loop, UV_RUN_NOWAIT);
                lanes_free(l);
                return r;
        }
        *ret = l;
        return 0;
}

/* Each write is news, and nobody has to read it. */
static void wake(const struct lanes *l) {
        static const uint64_t one = 1;
        (void)!write(l->wake, &one, sizeof(one));
}

void lanes_stop(struct lanes *l) {
        lanes_lock(l);
        l->is_stopping = true;
        lanes_unlock(l);
        if (l->has_thread) {
                wake(l);
                pthread_join(l->thread, NULL);
        }
        l->has_thread = false;
        assistants_stop(&l->assistants);
        uv_close((uv_handle_t *)&l->async, NULL);
}

void lanes_free(struct lanes *l) {
        if (!l)
                return;
        CHECK(l->n_lanes == 0);
        fd_close(&l->epoll);
        fd_close(&l->wake);
        pthread_mutex_destroy(&l->lock);
        pthread_mutex_destroy(&l->assistants.lock);
        pthread_cond_destroy(&l->assistants.wake);
        free(l->lanes);
        free(l->runs);
        free(l);
}

/* --- lanes --- */

/* A place for it, under which its bell is known. 0 or -ENOMEM. */
static int take_number(struct lanes *l, struct lane *lane) {
        uint32_t i = 0;
        while (i < l->capacity && l->lanes[i])
                i++;
        if (i == l->capacity) {
                uint32_t capacity = l->capacity ? 2 * l->capacity : 16;
                struct lane **lanes = realloc(l->lanes, capacity * sizeof(*lanes));
                if (!lanes)
                        return -ENOMEM;
                memset(lanes + l->capacity, 0, (capacity - l->capacity) * sizeof(*lanes));
                l->lanes = lanes;
                l->capacity = capacity;
        }
        l->lanes[i] = lane;
        lane->number = i;
        return 0;
}

static int connect_bell(struct lanes *l, struct lane *lane) {
        lanes_lock(l);
        int r = take_number(l, lane);
        lanes_unlock(l);
        if (r < 0)
                return r;
        /* Each ring is news, and nobody has to read it. */
        struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = lane->number };
        if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, lane->bell, &event) == 0)
                return 0;
        r = -errno;
        lanes_lock(l);
        l->lanes[lane->number] = NULL;
        lanes_unlock(l);
        return r;
}

static void lane_unmake(struct lane *lane) {
        loan_unref(lane->page_loan);
        loan_unref(lane->slot_loan);
        fd_close(&lane->bell);
        free(lane);
}

int lane_new(struct lanes *l, const struct lane_ask *ask, struct lane **ret, int *ret_bell) {
        struct lane *lane = calloc(1, sizeof(*lane));
        if (!lane)
                return -ENOMEM;
        lane->session = ask->session;
        lane->page_loan = loan_ref(ask->page);
        lane->slot_loan = loan_ref(ask->slot);
        lane->page = page_slots(ask->page);
        lane->board = page_board(ask->page);
        lane->slot = loan_memory(ask->slot);
        list_init(&lane->places);
        lane->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        CLEANUP_FD int bell = lane->bell < 0 ? -1 : fcntl(lane->bell, F_DUPFD_CLOEXEC, 3);
        int r = bell < 0 ? -errno : connect_bell(l, lane);
        if (r < 0) {
                lane_unmake(lane);
                return r;
        }
        l->n_lanes++;
        *ret = lane;
        *ret_bell = fd_take(&bell);
        return 0;
}

/* What runs writes to its page, and counts down when it is taken. */
void lane_free(struct lanes *l, struct lane *lane) {
        CHECK(list_is_empty(&lane->places));
        lanes_lock(l);
        l->lanes[lane->number] = NULL;
        lane->is_orphan = atomic_load_explicit(&lane->n_runs, memory_order_relaxed) > 0;
        bool is_gone = !lane->is_orphan;
        lanes_unlock(l);
        epoll_ctl(l->epoll, EPOLL_CTL_DEL, lane->bell, NULL);
        l->n_lanes -= is_gone;
        if (is_gone)
                lane_unmake(lane);
}

/* Its last run has been taken. */
static void orphan_free(struct lanes *l, struct lane *lane) {
        l->n_lanes--;
        lane_unmake(lane);
}

/* --- slots --- */

static void lane_copy(struct lane *lane) {
        const struct lane_slot *slot = lane->slot;
        struct lane_start *s = &lane->start;
        uint64_t words[LANE_KEY_WORDS];
        *s = (struct lane_start){
                .session = lane->session,
                .request = atomic_load_explicit(&slot->request, memory_order_relaxed),
                .prepared = atomic_load_explicit(&slot->prepared, memory_order_relaxed),
                .membership = atomic_load_explicit(&slot->membership, memory_order_relaxed),
                .epoch = atomic_load_explicit(&slot->epoch, memory_order_relaxed),
        };
        uint64_t n_bytes = atomic_load_explicit(&slot->key_bytes, memory_order_relaxed);
        s->has_timeout = atomic_load_explicit(&slot->has_timeout, memory_order_relaxed) != 0;
        s->timeout_ns = atomic_load_explicit(&slot->timeout_ns, memory_order_relaxed);
        if (n_bytes == 0) {
                s->has_key = true;
                s->key = key_sequence(atomic_load_explicit(&slot->key[0], memory_order_relaxed));
                return;
        }
        for (size_t i = 0; i < LANE_KEY_WORDS && i * sizeof(uint64_t) < n_bytes; i++)
                words[i] = atomic_load_explicit(&slot->key[i], memory_order_relaxed);
        s->has_key = n_bytes <= MAX_KEY_BYTES && key_name(&s->key, (const char *)words, n_bytes);
}

/* Not where the thread is asleep: then its client rings, who must not be told before that it is watched. */
static void watch_started(struct lanes *l, const struct lane *lane) {
        for (struct lane_place *p = lane_next_place(lane, NULL); p && !l->is_asleep;
                p = lane_next_place(lane, p))
                if (p->membership == lane->start.membership && p->road->is_open && !p->road->is_refused &&
                        !p->road->is_watched)
                        road_watch(l, p->road);
}

bool lane_look(struct lanes *l, struct lane_place *p, uint64_t now_ns) {
        struct lane *lane = p->lane;
        uint64_t start = atomic_load(&lane->slot->start);
        if (start == lane->taken)
                return false;
        if (start != lane->seen) {
                lane->seen = start;
                lane_copy(lane);
                lane->start.seen_ns = now_ns;
                if (lane->start.membership != p->membership)
                        watch_started(l, lane);
        }
        return lane->start.membership == p->membership;
}

void lane_take(struct lane *lane) {
        lane->taken = lane->seen;
}

void lane_pass(struct lane *lane) {
        lane_take(lane);
        atomic_store(&lane->board->passed, lane->taken);
}

bool lane_take_start(struct lanes *l, struct lane *lane, struct lane_start *ret) {
        struct lane_place any = { .lane = lane };
        lanes_lock(l);
        (void)lane_look(l, &any, clock_now_ns());
        bool is_new = lane->seen != lane->taken;
        if (is_new) {
                *ret = lane->start;
                lane_pass(lane);
                l->stats.n_passed++;
        }
        lanes_unlock(l);
        return is_new;
}

const _Atomic uint64_t *lane_words(const struct lane *lane) {
        return lane->slot->given_back;
}

struct lane_place *lane_next_place(const struct lane *lane, const struct lane_place *after) {
        struct list *next = after ? after->link.next : lane->places.next;
        return next == &lane->places ? NULL : list_entry(next, struct lane_place, link);
}

/* --- roads --- */

void lane_road_init(struct lane_road *road) {
        list_init(&road->sets);
        list_init(&road->link);
        list_init(&road->refused_link);
}

void lane_road_add(struct lanes *l, struct lane_road *road, const struct lane_place *place) {
        CHECK(road->n_places < LANE_MAX_RANKS);
        struct lane_place *p = &road->places[road->n_places++];
        *p = *place;
        p->road = road;
        list_init(&p->link);
        lanes_lock(l);
        list_append(&p->lane->places, &p->link);
        lanes_unlock(l);
}

void lane_road_deinit(struct lanes *l, struct lane_road *road) {
        CHECK(!road->is_open);
        lanes_lock(l);
        for (uint32_t i = 0; i < road->n_places; i++)
                list_unlink(&road->places[i].link);
        lanes_unlock(l);
}

void road_watch(struct lanes *l, struct lane_road *road) {
        road->is_watched = true;
        road->n_idle = 0;
        list_unlink(&road->link);
        list_append(&l->watched, &road->link);
        for (uint32_t i = 0; i < road->n_places; i++)
                if (road->places[i].lane->n_watched++ == 0)
                        atomic_store(&road->places[i].lane->board->is_watched, 1);
}

void road_unwatch(struct lanes *l, struct lane_road *road) {
        road->is_watched = false;
        list_unlink(&road->link);
        list_append(&l->open, &road->link);
        for (uint32_t i = 0; i < road->n_places; i++)
                if (--road->places[i].lane->n_watched == 0)
                        atomic_store(&road->places[i].lane->board->is_watched, 0);
}

/* Who has rung while it was closed was not heard. */
static void wake_for_started(struct lanes *l, struct lane_road *road) {
        for (uint32_t i = 0; i < road->n_places && !road->is_started; i++)
                road->is_started = lane_look(l, &road->places[i], clock_now_ns());
        if (road->is_started)
                wake(l);
}

void lane_road_open(struct lanes *l, struct lane_road *road) {
        CHECK(!road->is_open && !road->running && road->n_places > 0);
        lanes_lock(l);
        road->is_open = true;
        list_append(&l->open, &road->link);
        for (uint32_t i = 0; i < road->n_places; i++)
                if (road->places[i].lane->n_open++ == 0)
                        atomic_store(&road->places[i].lane->board->is_open, 1);
        wake_for_started(l, road);
        lanes_unlock(l);
}

const struct lane_set *lane_road_close(
        struct lanes *l, struct lane_road *road, struct lane_start *ret_starts, uint32_t *ret_n) {
        *ret_n = 0;
        lanes_lock(l);
        CHECK(road->is_open);
        if (road->is_watched)
                road_unwatch(l, road);
        road->is_open = road->is_refused = road->is_started = false;
        list_unlink(&road->link);
        if (!list_is_empty(&road->refused_link))
                atomic_fetch_sub_explicit(&l->n_news, 1, memory_order_relaxed);
        list_unlink(&road->refused_link);
        for (uint32_t i = 0; i < road->n_places; i++) {
                struct lane *lane = road->places[i].lane;
                if (--lane->n_open == 0)
                        atomic_store(&lane->board->is_open, 0);
                if (!lane_look(l, &road->places[i], clock_now_ns()))
                        continue;
                ret_starts[(*ret_n)++] = lane->start;
                lane_pass(lane);
                l->stats.n_passed++;
        }
        const struct lane_set *running = road->running;
        lanes_unlock(l);
        return running;
}

/* --- news --- */

static void run_copy(struct lane_run *to, const struct lane_run *from) {
        uint32_t n = from->road->n_places;
        memcpy(to, from, offsetof(struct lane_run, requests));
        memcpy(to->requests, from->requests, n * sizeof(*to->requests));
        memcpy(to->arrived_ns, from->arrived_ns, n * sizeof(*to->arrived_ns));
}

bool lanes_take_run(struct lanes *l, struct lane_run *ret) {
        uint64_t n = atomic_load_explicit(&l->n_taken, memory_order_relaxed);
        if (n == atomic_load_explicit(&l->n_put, memory_order_acquire))
                return false;
        (void)atomic_load_explicit(&l->n_results, memory_order_acquire); /* as lanes_lock has it */
        run_copy(ret, &l->runs[n % LANE_MAX_RUNS]);
        atomic_store_explicit(&l->n_taken, n + 1, memory_order_release);
        atomic_fetch_sub_explicit(&l->n_news, 1, memory_order_relaxed);
        for (uint32_t i = 0; i < ret->road->n_places; i++) {
                struct lane *lane = ret->road->places[i].lane;
                uint32_t n_before = atomic_fetch_sub_explicit(&lane->n_runs, 1, memory_order_relaxed);
                if (n_before == 1 && lane->is_orphan)
                        orphan_free(l, lane);
        }
        return true;
}

struct lane_road *lanes_take_refused(struct lanes *l) {
        if (atomic_load_explicit(&l->n_news, memory_order_acquire) == 0)
                return NULL;
        lanes_lock(l);
        struct list *first = list_take_first(&l->refused);
        if (first)
                atomic_fetch_sub_explicit(&l->n_news, 1, memory_order_relaxed);
        lanes_unlock(l);
        return first ? list_entry(first, struct lane_road, refused_link) : NULL;
}

uint32_t lanes_n_news(const struct lanes *l) {
        return atomic_load_explicit(&l->n_news, memory_order_acquire);
}

void lanes_pause(struct lanes *l) {
        lanes_lock(l);
}

void lanes_go_on(struct lanes *l) {
        lanes_unlock(l);
}

struct lanes_stats lanes_stats(struct lanes *l) {
        lanes_lock(l);
        struct lanes_stats stats = l->stats;
        lanes_unlock(l);
        return stats;
}
