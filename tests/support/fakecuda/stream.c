/* Streams: queues of work, and the thread of a context that runs them.
 *
 *   fake_stream_add --> head .. tail of a stream --> thread: is the head ready? held back? not yet due?
 *                                                    of those that may go, one by the order asked for
 *                                                    --> run, without the lock --> done, everybody is told
 *
 * What waits (for a value in memory, an event, a hold) stays the head of its stream and stops that stream
 * alone, so that one thread is enough for a device. Where something outside of the process can end the wait,
 * the thread looks again every fifth of a millisecond.
 *
 * The NULL stream is the legacy one: its work waits for all earlier work of blocking streams, and theirs for
 * its. */
#include "fake.h"

#include <signal.h>
#include <stdlib.h>
#include "control.h"

/* --- which piece goes next --- */

static bool has_earlier(const struct fake_stream *s, uint64_t seq) {
        return s->head && s->head->seq < seq;
}

/* The rule of the legacy stream. */
static bool is_in_turn(const struct fake_work *w) {
        const struct fake_context *c = w->stream->context;
        if (w->stream->flags & CU_STREAM_NON_BLOCKING)
                return true;
        if (w->stream != c->null_stream)
                return !has_earlier(c->null_stream, w->seq);
        for (const struct fake_stream *s = c->streams; s; s = s->next)
                if (s != c->null_stream && !(s->flags & CU_STREAM_NON_BLOCKING) && has_earlier(s, w->seq))
                        return false;
        return true;
}

struct look {
        struct fake_stream *best;
        unsigned int n_ready, n_held;
        enum fake_patience patience;
};

/* Whether the head could run but for a hold. */
static bool could_run(struct fake_work *w, struct look *look) {
        if (!is_in_turn(w))
                return false;
        if ((w->stall && atomic_load(&w->stall->is_armed)) || w->not_before_ns > fake_now_ns()) {
                look->patience = FAKE_A_MOMENT;
                return false;
        }
        if (!w->is_ready || w->is_ready(w))
                return true;
        if (w->polls)
                look->patience = FAKE_A_MOMENT;
        return false;
}

static bool is_better(const struct look *look, const struct fake_work *w) {
        switch ((enum fakecuda_order)atomic_load(&fake.page->order)) {
        case FAKECUDA_OLDEST: return w->seq < look->best->head->seq;
        case FAKECUDA_NEWEST: return w->seq > look->best->head->seq;
        case FAKECUDA_RANDOM: return rand() % (int)look->n_ready == 0;
        }
        return false;
}

static void look_at(struct fake_stream *s, struct look *look) {
        if (!s->head || !could_run(s->head, look))
                return;
        if (fake_is_held(s->head->call)) {
                look->n_held++;
                look->patience = FAKE_A_MOMENT;
                return;
        }
        look->n_ready++;
        if (!look->best || is_better(look, s->head))
                look->best = s;
}

/* The other contexts of the process have their part in n_held. */
static void tell_held(struct fake_context *c, unsigned int n_held) {
        if (n_held == c->n_held)
                return;
        atomic_fetch_add(&fake.process->n_held, n_held - c->n_held);
        c->n_held = n_held;
}

/* --- the thread --- */

enum { N_EAGER = 200 }; /* looks in vain before it looks less often */

static void stick_by(const struct fake_fault *fault) {
        fake_stick(fault->code ? (CUresult)fault->code : CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void pop(struct fake_stream *s) {
        struct fake_work *w = s->head;
        s->head = w->next;
        if (!s->head)
                s->tail = &s->head;
        s->n_done++;
        if (w->free)
                w->free(w);
        free(w);
}

static void run(struct fake_stream *s) {
        struct fake_work *w = s->head;
        s->is_running = true;
        pthread_mutex_unlock(&fake.lock);
        if (w->sticky)
                stick_by(w->sticky);
        else if (w->run)
                w->run(w);
        pthread_mutex_lock(&fake.lock);
        s->is_running = false;
        pop(s);
        pthread_cond_broadcast(&fake.changed);
}

static void unlink_stream(struct fake_stream *s) {
        struct fake_stream **at = &s->context->streams;
        while (*at != s)
                at = &(*at)->next;
        *at = s->next;
        free(s);
}

static void sweep(struct fake_context *c) {
        for (struct fake_stream *s = c->streams, *next; s; s = next) {
                next = s->next;
                if (s->is_destroyed && !s->head)
                        unlink_stream(s);
        }
}

static void *serve(void *argument) {
        struct fake_context *c = argument;
        unsigned int n_idle = 0;
        pthread_mutex_lock(&fake.lock);
        while (!c->is_ending) {
                struct look look = { .patience = FAKE_UNTIL_CHANGED };
                for (struct fake_stream *s = c->streams; s && !atomic_load(&fake.sticky); s = s->next)
                        look_at(s, &look);
                tell_held(c, look.n_held);
                n_idle = look.best ? 0 : n_idle + 1;
                if (!look.best)
                        fake_wait(look.patience == FAKE_A_MOMENT && n_idle > N_EAGER ? FAKE_A_WHILE
                                                                                     : look.patience);
                else if (fake_takes_allowance(look.best->head->call))
                        run(look.best);
                sweep(c);
        }
        tell_held(c, 0);
        pthread_mutex_unlock(&fake.lock);
        return NULL;
}

static struct fake_stream *new_stream(struct fake_context *c, unsigned int flags, int priority) {
        struct fake_stream *s = fake_handle_new(FAKE_STREAM, sizeof(*s));
        if (!s)
                return NULL;
        s->context = c;
        s->flags = flags;
        s->priority = priority;
        s->tail = &s->head;
        s->next = c->streams;
        c->streams = s;
        return s;
}

CUresult fake_streams_begin(struct fake_context *context) {
        context->is_ending = false;
        context->null_stream = new_stream(context, CU_STREAM_DEFAULT, 0);
        if (!context->null_stream)
                return CUDA_ERROR_OUT_OF_MEMORY;
        static const int bad[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP };
        sigset_t all, old;
        fake_guard_begin();
        sigfillset(&all);
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
                sigdelset(&all, bad[i]);          /* guard.c catches some of them */
        pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the threads of the program */
        int r = pthread_create(&context->thread, NULL, serve, context);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (r == 0)
                return CUDA_SUCCESS;
        fake_handle_retire(&context->null_stream->handle);
        unlink_stream(context->null_stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

void fake_streams_end(struct fake_context *context) {
        context->is_ending = true;
        pthread_cond_broadcast(&fake.changed);
        pthread_mutex_unlock(&fake.lock);
        pthread_join(context->thread, NULL);
        pthread_mutex_lock(&fake.lock);
        while (context->streams) {
                struct fake_stream *s = context->streams;
                while (s->head)
                        pop(s);
                if (!s->is_destroyed)
                        fake_handle_retire(&s->handle);
                unlink_stream(s);
        }
        pthread_cond_broadcast(&fake.changed);
}

/* --- what the other parts use --- */

struct fake_stream *fake_stream_find(CUstream stream) {
        if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
                return fake_current()->null_stream;
        return fake_handle_find(FAKE_STREAM, stream);
}

CUresult fake_stream_add(struct fake_stream *stream, struct fake_work *work, enum fake_call call) {
        work->stream = stream;
        work->next = NULL;
        work->seq = ++fake.next_seq;
        work->call = call;
        work->stall = fake_verdict.stall;
        work->sticky = fake_verdict.sticky;
        if (fake_verdict.slow_ms)
                work->not_before_ns = fake_now_ns() + fake_verdict.slow_ms * INT64_C(1000000);
        *stream->tail = work;
        stream->tail = &work->next;
        stream->n_added++;
        pthread_cond_broadcast(&fake.changed);
        return CUDA_SUCCESS;
}

CUresult fake_stream_drain(struct fake_stream *stream) {
        uintptr_t id = stream->handle.id;
        uint64_t until = stream->n_added;
        while (!atomic_load(&fake.sticky)) {
                stream = fake_handle_find(FAKE_STREAM, (const void *)id); /* it may be destroyed meanwhile */
                if (!stream || stream->n_done >= until)
                        break;
                fake_wait(FAKE_UNTIL_CHANGED);
        }
        return (CUresult)atomic_load(&fake.sticky);
}

/* --- the driver's functions --- */

static CUresult create(unsigned int flags, int priority, CUstream *ret) {
        if (!ret || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
                return CUDA_ERROR_INVALID_VALUE;
        priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
        struct fake_stream *s = new_stream(fake_current(), flags, priority);
        if (!s)
                return CUDA_ERROR_OUT_OF_MEMORY;
        *ret = (CUstream)s->handle.id;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream *ret, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuStreamCreate, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r : fake_leave(create(flags, 0, ret));
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority) {
        CUresult r = fake_enter(CALL_cuStreamCreateWithPriority, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r : fake_leave(create(flags, priority, ret));
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
        CUresult r = fake_enter(CALL_cuStreamDestroy, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_stream *s = stream ? fake_stream_find(stream) : NULL;
        if (!s || s == s->context->null_stream)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        s->is_destroyed = true; /* what it has still runs */
        fake_handle_retire(&s->handle);
        pthread_cond_broadcast(&fake.changed);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
        CUresult r = fake_enter(CALL_cuStreamSynchronize, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_stream *s = fake_stream_find(stream);
        return fake_leave(s ? fake_stream_drain(s) : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuStreamQuery(CUstream stream) {
        CUresult r = fake_enter(CALL_cuStreamQuery, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_stream *s = fake_stream_find(stream);
        return fake_leave(!s ? CUDA_ERROR_INVALID_HANDLE : s->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *ret) {
        CUresult r = fake_enter(CALL_cuStreamGetCtx, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_stream *s = fake_stream_find(stream);
        if (s)
                *ret = fake_context_handle(s->context);
        return fake_leave(s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuStreamGetPriority(CUstream stream, int *ret) {
        CUresult r = fake_enter(CALL_cuStreamGetPriority, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_stream *s = fake_stream_find(stream);
        if (s)
                *ret = s->priority;
        return fake_leave(s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuStreamGetFlags(CUstream stream, unsigned int *ret) {
        CUresult r = fake_enter(CALL_cuStreamGetFlags, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_stream *s = fake_stream_find(stream);
        if (s)
                *ret = s->flags;
        return fake_leave(s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuCtxSynchronize(void) {
        CUresult r = fake_enter(CALL_cuCtxSynchronize, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_context *c = fake_current();
        uint64_t until = fake.next_seq;
        bool is_busy = true;
        while (is_busy && !atomic_load(&fake.sticky)) {
                is_busy = false;
                for (const struct fake_stream *s = c->streams; s; s = s->next)
                        is_busy |= s->head && s->head->seq <= until;
                if (is_busy)
                        fake_wait(FAKE_UNTIL_CHANGED);
        }
        return fake_leave((CUresult)atomic_load(&fake.sticky));
}

/* --- host functions --- */

struct host_work {
        struct fake_work work;
        CUhostFn function;
        void *data;
};

static void run_host_function(struct fake_work *work) {
        struct host_work *w = (struct host_work *)work;
        fake_is_in_host_function = true;
        w->function(w->data);
        fake_is_in_host_function = false;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
        CUresult r = fake_enter(CALL_cuLaunchHostFunc, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_stream *s = fake_stream_find(stream);
        if (!s || !function)
                return fake_leave(s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
        struct host_work *w = calloc(1, sizeof(*w));
        if (!w)
                return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        *w = (struct host_work){ .work.run = run_host_function, .function = function, .data = data };
        return fake_leave(fake_stream_add(s, &w->work, CALL_cuLaunchHostFunc));
}
