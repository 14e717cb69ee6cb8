#include "lib/lane.h"

#include <sched.h>
#include <stdlib.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "lib/connection.h"
#include "lib/reconnect.h"
#include "lib/work.h"

/* A deadline below this is tuttid's to watch from the first moment on. */
#define SHORT_TIMEOUT_NS (20 * NS_PER_MS)

void lane_init(struct tutti *t) {
        const char *wish = secure_getenv("TUTTI_LANE");
        t->lane.is_off = wish && strcmp(wish, "0") == 0;
        t->lane.bell = -1;
        waiting_init(&t->lane.waiting, WAITING_BUDGET_NS);
}

/* --- asking for it --- */

void lane_ask(struct tutti *t) {
        if (t->lane.is_off || t->lane.is_asked || !t->board)
                return;
        struct request request = { .type = REQUEST_OPEN_LANE };
        struct error err;
        call_init(&t->opening_lane, CALL_LANE);
        t->lane.is_asked = true;
        if (send_number(t, &request, &t->opening_lane, &err) != STATUS_OK)
                return;
        if (send_may_go(t, &t->opening_lane)) {
                bool is_sent = send_packet(t, &request, -1);
                CHECK(is_sent);
        }
}

/* It comes open for reading: whoever writes opens it anew, and where that is not possible (no /proc) there is
 * no lane. */
static struct lane_slot *map_slot(int read_fd) {
        struct stat st;
        CLEANUP_FD int fd = memfd_open_anew(read_fd, O_RDWR);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < LANE_PAGE_BYTES)
                return NULL;
        void *at = mmap(NULL, LANE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
                return NULL;
        madvise(at, LANE_PAGE_BYTES, MADV_DONTFORK);
        return at;
}

const char *lane_take(struct tutti *t, const struct reply *reply, struct packet *packet) {
        if (reply->type != REPLY_LANE || (packet->n_fds != 1 && !packet->is_short) ||
                reply->lane.n_descriptors != 1 || reply->lane.n_slots == 0)
                return "no lane in the answer to a request for one";
        if (packet->n_fds == 0) /* no descriptor is left here: packets serve */
                return NULL;
        CLEANUP_FD int fd = fd_take(&packet->fds[0]);
        if (!reply->more) {
                fd_close(&t->lane.bell);
                t->lane.bell = fd_take(&fd);
                return NULL;
        }
        if (t->lane.slot)
                return "a second lane";
        t->lane.slot = map_slot(fd);
        return NULL;
}

/* A forked child does not have the page; something else may be there. */
static void drop(struct tutti *t) {
        struct lane *lane = &t->lane;
        if (lane->slot && !fork_guard_is_child(t->guard))
                munmap(lane->slot, LANE_PAGE_BYTES);
        lane->slot = NULL;
        fd_close(&lane->bell);
}

void lane_let_go(struct tutti *t) {
        if (t->lane.is_asked && !t->opening_lane.is_ended)
                call_drop(t, &t->opening_lane);
        drop(t);
        t->lane.is_asked = false;
        t->lane.call = NULL;
        t->lane.n_starts = 0;
}

void lane_free(struct tutti *t) {
        if (t->lane.is_asked)
                call_deinit(&t->opening_lane);
        drop(t);
}

/* --- starting --- */

static void write_slot(struct lane_slot *slot, uint64_t request, const struct msg_start *start) {
        uint64_t words[LANE_KEY_WORDS] = { start->key.sequence };
        memcpy(words, start->key.bytes, start->key.n_bytes);
        atomic_store_explicit(&slot->request, request, memory_order_relaxed);
        atomic_store_explicit(&slot->prepared, start->prepared, memory_order_relaxed);
        atomic_store_explicit(&slot->membership, start->membership, memory_order_relaxed);
        atomic_store_explicit(&slot->epoch, start->epoch, memory_order_relaxed);
        atomic_store_explicit(&slot->key_bytes, start->key.n_bytes, memory_order_relaxed);
        atomic_store_explicit(&slot->has_timeout, start->has_timeout, memory_order_relaxed);
        atomic_store_explicit(&slot->timeout_ns, start->timeout_ns, memory_order_relaxed);
        size_t n = start->key.n_bytes ? (start->key.n_bytes + 7u) / 8 : 1;
        for (size_t i = 0; i < n; i++)
                atomic_store_explicit(&slot->key[i], words[i], memory_order_relaxed);
}

/* Nothing else of this connection is unfinished, so that no key of it can be pending. */
static bool may_start(const struct tutti *t, const struct remembered *r, const struct msg_start *start) {
        const struct lane *lane = &t->lane;
        return lane->slot && lane->bell >= 0 && !t->is_lost && !lane->call && t->n_slots_used == 1 &&
               r->has_done && start->signal.value == 0 &&
               (!start->has_timeout || start->timeout_ns == 0 || start->timeout_ns >= SHORT_TIMEOUT_NS) &&
               atomic_load(&t->board->is_open) && waiting_may_yield(&lane->waiting, clock_now_ns());
}

bool lane_start(
        struct tutti *t, struct call *call, const struct remembered *r, const struct msg_start *start) {
        static const uint64_t one = 1;
        pthread_mutex_lock(&t->lock);
        bool may = may_start(t, r, start);
        if (may) {
                struct lane *lane = &t->lane;
                write_slot(lane->slot, call->request, start);
                atomic_store(&lane->slot->start, ++lane->n_starts);
                lane->call = call;
                lane->like = r->done;
                if (!atomic_load(&t->board->is_watched))
                        (void)!write(lane->bell, &one, sizeof(one));
        }
        pthread_mutex_unlock(&t->lock);
        return may;
}

/* --- its end --- */

enum lane_state { LANE_STARTED, LANE_DONE, LANE_PASSED };

/* Its state is looked at behind its request: whoever changes the slot's request clears the state first. And
 * the board behind the state: what was passed on ends in the page as well, and is told by a packet. */
static enum lane_state look(const struct tutti *t, const struct call *call) {
        const struct page_slot *slot = &t->page[call->request % STATUS_PAGE_SLOTS];
        uint32_t state = PAGE_FREE;
        if (atomic_load_explicit(&slot->request, memory_order_acquire) == call->request)
                state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == PAGE_FAILED || atomic_load(&t->board->passed) == t->lane.n_starts)
                return LANE_PASSED;
        return state == PAGE_DONE ? LANE_DONE : LANE_STARTED;
}

/* As the others before it, but for its number and its times. */
static void end(struct tutti *t, struct call *call) {
        const struct page_slot *slot = &t->page[call->request % STATUS_PAGE_SLOTS];
        struct tutti_work *w = work_of(call);
        w->done = t->lane.like;
        w->done.collective = atomic_load_explicit(&slot->collective, memory_order_relaxed);
        w->done.wait_ns = atomic_load_explicit(&t->board->wait_ns, memory_order_relaxed);
        w->done.run_ns = atomic_load_explicit(&t->board->run_ns, memory_order_relaxed);
        w->done.last_rank = (uint32_t)atomic_load_explicit(&t->board->last_rank, memory_order_relaxed);
        w->done.slot = (uint32_t)atomic_load_explicit(&t->board->slot, memory_order_relaxed);
        w->has_done = true;
        w->started = 0; /* nothing new is learnt from it */
        call_end(t, call, STATUS_OK, NULL);
}

/* From here on it is answered by a packet. */
static void ring(struct tutti *t, const struct call *call) {
        struct request request = { .request = call->request, .type = REQUEST_RING };
        t->lane.call = NULL;
        pthread_mutex_unlock(&t->lock);
        pthread_mutex_lock(&t->sending);
        if (send_may_go(t, call)) {
                bool is_sent = send_packet(t, &request, -1);
                CHECK(is_sent);
        }
        pthread_mutex_unlock(&t->sending);
        pthread_mutex_lock(&t->lock);
}

static void yield(struct tutti *t) {
        pthread_mutex_unlock(&t->lock);
        sched_yield();
        pthread_mutex_lock(&t->lock);
}

void lane_wait(struct tutti *t, struct call *call) {
        struct patience_left patience;
        patience_begin(&patience, &t->lane.waiting, clock_now_ns());
        while (t->lane.call == call && !call->is_ended) {
                enum lane_state state = look(t, call);
                if (state == LANE_DONE) {
                        waiting_learn_noticed(&t->lane.waiting, &patience,
                                atomic_load_explicit(&t->board->done_ns, memory_order_relaxed),
                                clock_now_ns());
                        end(t, call);
                }
                if (state != LANE_STARTED) {
                        t->lane.call = NULL;
                        return;
                }
                yield(t);
                if (t->lane.call == call && !call->is_ended && !patience_goes_on(&patience, clock_now_ns()) &&
                        look(t, call) == LANE_STARTED) {
                        ring(t, call);
                        return;
                }
        }
}
