/* Runs: from launch to the end, whatever the end is. flight.h draws the way; this file decides when a run
 * goes on, and what has become of it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/flight.h"
#include "backends/cuda/nccl-cliques.h"
#include "base/clock.h"

/* A stream that has been let go, or whose run has failed, is through in no time, or the device is lost. */
#define DRAIN_LIMIT_NS (10 * NS_PER_S)

void flight_fail(struct flight *f, enum status status, const char *why, ...) {
        f->has_failed = true;
        if (f->run->status != STATUS_OK)
                return;
        f->run->status = status;
        va_list args;
        va_start(args, why);
        vsnprintf(f->run->why, sizeof(f->run->why), why, args);
        va_end(args);
}

int flight_lose(struct cuda *c, struct flight *f, int r) {
        if (r == 0)
                return 0;
        if (c->base.is_broken)
                flight_fail(f, STATUS_DEVICE_LOST, "%s; outputs undefined", c->base.broken_why);
        else
                flight_fail(f, STATUS_INTERNAL,
                        "the CUDA driver refused; the log has its words; outputs undefined");
        return -EIO;
}

struct cuda_device *flight_device(struct cuda *c, const struct flight *f, const struct step *s) {
        struct cuda_device *d = cuda_device_of(c, s->device);
        return d ? d : f->lead;
}

CUstream flight_stream(struct cuda *c, struct flight *f, struct cuda_device *d) {
        return cuda_lane_stream(c, f->lane, d);
}

/* --- begin --- */

static void for_each_memory(
        const struct run *run, void (*act)(void *data, struct cuda_memory *m), void *data) {
        const struct plan *plan = run->plan;
        for (uint32_t i = 0; i < plan->n_operands; i++)
                if (!plan->operands[i].scratch && plan->operands[i].memory)
                        act(data, cuda_memory_of(plan->operands[i].memory));
        for (uint32_t i = 0; i < run->n_signals; i++)
                if (run->signals[i].page)
                        act(data, cuda_memory_of(run->signals[i].page));
}

static void ref(void *data, struct cuda_memory *m) {
        (void)data;
        cuda_memory_ref(m);
}

static void unref(void *data, struct cuda_memory *m) {
        cuda_memory_unref(data, m);
}

/* That a signal with events has some is the import's doing. */
static bool signals_are_sound(const struct run *run) {
        for (uint32_t i = 0; i < run->n_signals; i++) {
                const struct signal *s = &run->signals[i];
                if (s->page &&
                        (!cuda_memory_of(s->page)->map ||
                                (s->slot + UINT64_C(1)) * sizeof(struct signal_words) > s->page->n_bytes))
                        return false;
        }
        return true;
}

static int begin(struct cuda *c, struct flight *f) {
        if (c->base.is_broken)
                flight_fail(f, STATUS_DEVICE_LOST, "%s", c->base.broken_why);
        else if (!signals_are_sound(f->run))
                flight_fail(f, STATUS_INTERNAL, "a signal outside its page");
        else if (!tenant_join(c, f))
                flight_fail(f, STATUS_INTERNAL, "tuttid-gpu is short of memory");
        else
                return flight_prepare(c, f);
        return -EIO;
}

static void end(struct cuda *c, struct flight *f) {
        struct run *run = f->run;
        if (signals_are_sound(run))
                flight_write_done(c, f);
        flight_give_back(c, f);
        tenant_leave(c, f);
        for_each_memory(run, unref, c);
        list_unlink(&f->link);
        c->bytes_under_way -= run->plan->moved_bytes;
        run->is_untouched = run->status != STATUS_OK && !f->is_begun;
        free(f);
        run->done_ns = clock_now_ns();
        run->is_over = true;
}

static void advance(struct cuda *c, struct flight *f);

int cuda_run_launch(struct backend *b, struct run *run) {
        struct cuda *c = cuda_of(b);
        struct flight *f = calloc(1, sizeof(*f));
        run->is_over = run->is_launched = false;
        run->status = STATUS_OK;
        run->why[0] = '\0';
        run->late_signal = run->culprit = 0;
        run->is_untouched = false;
        run->found = (struct findings){ .numerics = { .n = 0 } };
        run->started_ns = run->done_ns = clock_now_ns();
        if (!f) {
                run->status = STATUS_INTERNAL;
                run->is_untouched = true;
                snprintf(run->why, sizeof(run->why), "tuttid-gpu is short of memory");
                run->is_over = true;
                return -ENOMEM;
        }
        f->run = run;
        f->launched_ns = run->started_ns;
        list_init(&f->link);
        c->bytes_under_way += run->plan->moved_bytes;
        for_each_memory(run, ref, NULL);
        int r = begin(c, f);
        if (r < 0) {
                end(c, f);
                return r;
        }
        list_append(&c->runs, &f->link);
        advance(c, f);
        return 0;
}

/* --- held --- */

static uint32_t count_waiting(const struct cuda *c) {
        uint32_t n = 0;
        list_for_each (it, &c->runs)
                n += list_entry(it, struct flight, link)->is_waiting;
        return n;
}

static bool must_be_ready(struct cuda *c, const struct flight *f) {
        return f->n_sets > 0 || f->has_stand_ins || !flight_can_wait(c, f) ||
               count_waiting(c) >= MAX_WAITING || !tenant_may_wait_on_device(c, f);
}

/* One of its group that was launched before it is not in the streams yet. To wait there for a client before
 * that one would be to wait for ever: the client's stream may come to this one behind it. */
static bool is_behind(struct cuda *c, const struct flight *f) {
        list_for_each (it, &c->runs) {
                const struct flight *other = list_entry(it, struct flight, link);
                if (other == f)
                        return false;
                if (other->run->group == f->run->group && other->phase < FLIGHT_FED)
                        return true;
        }
        return false;
}

static void time_out(struct flight *f, uint32_t late) {
        flight_fail(f, STATUS_TIMEOUT, "the client's stream did not signal; nothing was written");
        f->run->late_signal = late;
}

/* Whether all cliques are there; one that cannot be made fails the run. */
static bool has_cliques(struct cuda *c, struct flight *f) {
        for (uint32_t i = 0; i < f->n_sets; i++) {
                const char *why;
                enum clique_state state = clique_find(c, f->sets[i], &why);
                if (state == CLIQUE_FAILED)
                        flight_fail(f, STATUS_ABORTED, "%s; nothing was written", why);
                if (state != CLIQUE_READY)
                        return false;
                f->n_aborts[i] = clique_n_aborts(c, f->sets[i]);
        }
        return true;
}

/* Whether it may be put into streams now. */
static bool may_go(struct cuda *c, struct flight *f) {
        uint32_t late = 0;
        if (flight_is_stale(c, f)) {
                flight_fail(f, STATUS_DEVICE_LOST,
                        "tuttid-gpu was started anew while it was on its way; nothing was written");
                return false;
        }
        bool is_ready = flight_is_ready(c, f, &late);
        if (!is_ready && (must_be_ready(c, f) || is_behind(c, f))) {
                if (clock_now_ns() - f->launched_ns > f->run->limit_ns)
                        time_out(f, late);
                return false;
        }
        if (!has_cliques(c, f) || (is_ready && !tenant_has_turn(c, f)))
                return false;
        if (!f->lane)
                f->lane = cuda_lane_take(c, f->run->group);
        tenant_found_lane(c, f);
        f->is_waiting = !is_ready;
        return f->lane != NULL;
}

/* --- fed --- */

static bool is_drained(struct cuda *c, struct flight *f) {
        for (uint32_t i = 0; f->lane && i < c->n_devices; i++) {
                if (!f->lane->streams[i] || !(f->devices & UINT64_C(1) << i))
                        continue;
                CUresult r = cuda_enter(c, &c->devices[i]) < 0 ? CUDA_ERROR_NOT_READY
                                                               : c->driver.cuStreamQuery(f->lane->streams[i]);
                if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
                        cuda_note(c, r, "cuStreamQuery");
                if (r != CUDA_SUCCESS)
                        return false;
        }
        return true;
}

/* What has failed half-way lets go of everything only when no stream has anything of it. */
static bool is_through(struct cuda *c, struct flight *f) {
        if (f->has_failed)
                return is_drained(c, f);
        if (cuda_enter(c, f->lead) < 0)
                return false;
        CUresult r = c->driver.cuEventQuery(f->events[f->lead->index]);
        if (r == CUDA_ERROR_NOT_READY)
                return false;
        return flight_lose(c, f, cuda_check(c, r, "cuEventQuery")) == 0;
}

static void let_go(struct cuda *c, struct flight *f, uint32_t late) {
        f->run->late_signal = late;
        f->let_go_ns = clock_now_ns();
        flight_let_go(c, f);
}

static void watch_signals(struct cuda *c, struct flight *f) {
        uint32_t late;
        if (!f->is_waiting || f->is_let_go)
                return;
        if (flight_is_ready(c, f, &late)) {
                tenant_works(c, f);
                return;
        }
        if (f->has_failed || clock_now_ns() - f->launched_ns > f->run->limit_ns)
                let_go(c, f, late);
}

static void watch_library(struct cuda *c, struct flight *f) {
        bool is_late = clock_now_ns() - f->fed_ns > c->options.library_limit_ns;
        for (uint32_t i = 0; !f->has_failed && i < f->n_sets; i++) {
                if (is_late)
                        clique_abort(c, f->sets[i], "a collective does not end");
                if (clique_n_aborts(c, f->sets[i]) == f->n_aborts[i])
                        continue;
                flight_fail(f, STATUS_ABORTED, "NCCL: %s; outputs undefined",
                        is_late ? "it did not end in time" : "its communicators were aborted");
                f->let_go_ns = clock_now_ns();
        }
}

static void watch_device(struct cuda *c, struct flight *f) {
        if (f->has_failed && !f->let_go_ns)
                f->let_go_ns = clock_now_ns();
        if (f->let_go_ns && clock_now_ns() - f->let_go_ns > DRAIN_LIMIT_NS)
                cuda_break(c, "a GPU does not go on");
}

static void go(struct cuda *c, struct flight *f) {
        if (f->has_failed || flight_copy_out(f))
                end(c, f);
}

static void conclude(struct cuda *c, struct flight *f) {
        if (!f->has_failed && f->is_waiting && atomic_load(&flight_gate(f)->latched))
                flight_fail(f, STATUS_TIMEOUT, "the client's stream did not signal; nothing was written");
        if (!f->has_failed)
                flight_read_results(c, f);
        f->phase = FLIGHT_GOING;
        go(c, f);
}

/* --- on and on --- */

static void come(struct cuda *c, struct flight *f) {
        if (f->phase == FLIGHT_HELD) {
                f->run->started_ns = clock_now_ns();
                if (!f->is_waiting)
                        tenant_works(c, f);
                f->phase = FLIGHT_COMING;
        }
        if (flight_copy_in(f) && !f->has_failed) {
                for (uint32_t i = 0; i < f->n_sets;
                        i++) /* what was aborted meanwhile was none of its doing */
                        f->n_aborts[i] = clique_n_aborts(c, f->sets[i]);
                f->fed_ns = clock_now_ns();
                f->phase = FLIGHT_FEEDING;
        }
}

static void feed(struct cuda *c, struct flight *f) {
        f->phase = flight_feed(c, f) == FED_PAUSED ? FLIGHT_FEEDING : FLIGHT_FED;
}

static void advance(struct cuda *c, struct flight *f) {
        if (f->phase == FLIGHT_COMING || (f->phase == FLIGHT_HELD && may_go(c, f)))
                come(c, f);
        if (f->phase == FLIGHT_FEEDING && !f->has_failed)
                feed(c, f);
        if (f->phase < FLIGHT_FEEDING) { /* no stream has anything of it */
                if (f->has_failed)
                        end(c, f);
                return;
        }
        if (f->phase == FLIGHT_GOING) {
                go(c, f);
                return;
        }
        watch_signals(c, f);
        watch_library(c, f);
        watch_device(c, f);
        if ((f->phase == FLIGHT_FED || f->has_failed) && is_through(c, f))
                conclude(c, f);
}

/* The process is at its end: nothing of it will be written any more. */
static void lose_all(struct cuda *c) {
        list_for_each_safe (it, tmp, &c->runs) {
                struct flight *f = list_entry(it, struct flight, link);
                flight_fail(f, STATUS_DEVICE_LOST, "%s; outputs undefined", c->base.broken_why);
                f->run->status = STATUS_DEVICE_LOST;
                end(c, f);
        }
}

void cuda_run_poll(struct backend *b) {
        struct cuda *c = cuda_of(b);
        cliques_poll(c);
        list_for_each_safe (it, tmp, &c->runs)
                if (!c->base.is_broken)
                        advance(c, list_entry(it, struct flight, link));
        c->n_polls++; /* what has ended meanwhile is not judged, however late it is looked at */
        list_for_each (it, &c->runs)
                if (!c->base.is_broken)
                        flight_watch_hang(c, list_entry(it, struct flight, link));
        if (c->base.is_broken)
                lose_all(c);
}

void cuda_runs_close(struct cuda *c) {
        if (!c->devices)
                return;
        list_for_each_safe (it, tmp, &c->runs) {
                struct flight *f = list_entry(it, struct flight, link);
                flight_fail(f, STATUS_DEVICE_LOST, "tuttid-gpu ends");
                end(c, f);
        }
}
