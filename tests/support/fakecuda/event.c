/* Events. An event is two counters, of records asked for and of records done; an interprocess one has them in
 * a memfd that other processes map. Whoever waits for an event waits for the record that was the last when he
 * asked. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct counters {
        _Atomic uint64_t n_recorded, n_done;
        _Atomic bool is_gone; /* who made it has let go of it */
};

struct fake_event {
        struct fake_handle handle;
        const struct fake_context *context;
        unsigned int flags;
        unsigned int n_refs; /* the handle, and work that names it */
        struct counters *counters;
        struct counters own;
        int fd; /* of an interprocess event that was made here; else -1 */
        int64_t done_at_ns;
};

/* 64 bytes that travel between processes. */
struct event_ticket {
        uint32_t magic;
        int32_t pid, fd;
        uint32_t physical;
        uint64_t inode;
};
enum { TICKET_MAGIC = 0x45764e74 };
_Static_assert(sizeof(struct event_ticket) <= sizeof(CUipcEventHandle), "it has to fit");

static void unref(struct fake_event *e) {
        if (--e->n_refs)
                return;
        if (e->counters != &e->own)
                munmap(e->counters, sizeof(*e->counters));
        if (e->fd >= 0)
                close(e->fd);
        free(e);
}

static struct fake_event *find_event(CUevent event) {
        return fake_handle_find(FAKE_EVENT, event);
}

/* For use: after the one that made it has destroyed it, a real driver may do anything. */
static struct fake_event *find_living_event(CUevent event) {
        struct fake_event *e = find_event(event);
        return e && !atomic_load(&e->counters->is_gone) ? e : NULL;
}

static bool is_done(const struct fake_event *e, uint64_t record) {
        return atomic_load(&e->counters->n_done) >= record;
}

static uint64_t last_record(const struct fake_event *e) {
        return atomic_load(&e->counters->n_recorded);
}

static bool is_shared(const struct fake_event *e) {
        return e->counters != &e->own;
}

static struct fake_event *new_event(unsigned int flags) {
        struct fake_event *e = fake_handle_new(FAKE_EVENT, sizeof(*e));
        if (!e)
                return NULL;
        e->context = fake_current();
        e->flags = flags;
        e->counters = &e->own;
        e->fd = -1;
        e->n_refs = 1;
        return e;
}

static bool share_counters(struct fake_event *e, int fd) {
        void *at = mmap(NULL, sizeof(*e->counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
                return false;
        e->counters = at;
        return true;
}

static void discard(struct fake_event *e) {
        fake_handle_retire(&e->handle);
        unref(e);
}

static CUresult create(unsigned int flags, CUevent *ret) {
        struct fake_event *e = new_event(flags);
        if (!e)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (flags & CU_EVENT_INTERPROCESS) {
                e->fd = memfd_create("fakecuda-event", MFD_CLOEXEC);
                if (e->fd < 0 || ftruncate(e->fd, FAKE_PAGE) < 0 || !share_counters(e, e->fd)) {
                        discard(e);
                        return CUDA_ERROR_OUT_OF_MEMORY;
                }
        }
        *ret = (CUevent)e->handle.id;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent *ret, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuEventCreate, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        if (!ret || (flags & ~known) ||
                ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        return fake_leave(create(flags, ret));
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
        CUresult r = fake_enter(CALL_cuEventDestroy, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_event *e = find_event(event);
        if (!e)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        if (e->fd >= 0)
                atomic_store(&e->counters->is_gone, true);
        discard(e);
        return fake_leave(CUDA_SUCCESS);
}

void fake_events_end(const struct fake_context *context) {
        struct fake_handle *h, *next;
        HASH_ITER (hh, fake.handles, h, next) {
                if (h->kind == FAKE_EVENT && ((struct fake_event *)h)->context == context)
                        discard((struct fake_event *)h);
        }
}

/* --- in streams --- */

struct event_work {
        struct fake_work work;
        struct fake_event *event;
        uint64_t record;
};

static void free_event_work(struct fake_work *work) {
        unref(((struct event_work *)work)->event);
}

static void run_record(struct fake_work *work) {
        struct event_work *w = (struct event_work *)work;
        uint64_t done = atomic_load(&w->event->counters->n_done);
        w->event->done_at_ns = fake_now_ns();
        while (done < w->record &&
                !atomic_compare_exchange_weak(&w->event->counters->n_done, &done, w->record))
                ;
}

static bool is_wait_over(struct fake_work *work) {
        struct event_work *w = (struct event_work *)work;
        return is_done(w->event, w->record);
}

static struct event_work *new_event_work(struct fake_event *e) {
        struct event_work *w = calloc(1, sizeof(*w));
        if (!w)
                return NULL;
        w->work.free = free_event_work;
        w->event = e;
        e->n_refs++;
        return w;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
        CUresult r = fake_enter(CALL_cuEventRecord, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_event *e = find_living_event(event);
        struct fake_stream *s = fake_stream_find(stream);
        if (!e || !s || e->context != s->context)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        struct event_work *w = new_event_work(e);
        if (!w)
                return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        w->work.run = run_record;
        w->record = atomic_fetch_add(&e->counters->n_recorded, 1) + 1;
        return fake_leave(fake_stream_add(s, &w->work, CALL_cuEventRecord));
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuStreamWaitEvent, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_event *e = find_living_event(event);
        struct fake_stream *s = fake_stream_find(stream);
        if (!e || !s)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        if (flags)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        struct event_work *w = new_event_work(e);
        if (!w)
                return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        w->work.is_ready = is_wait_over;
        w->work.polls = is_shared(e);
        w->record = last_record(e);
        return fake_leave(fake_stream_add(s, &w->work, CALL_cuStreamWaitEvent));
}

/* --- on the host --- */

CUresult CUDAAPI cuEventQuery(CUevent event) {
        CUresult r = fake_enter(CALL_cuEventQuery, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_event *e = find_living_event(event);
        if (!e)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        return fake_leave(is_done(e, last_record(e)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
        CUresult r = fake_enter(CALL_cuEventSynchronize, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_event *e = find_event(event);
        if (!e)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        uint64_t record = last_record(e);
        e->n_refs++;
        while (!is_done(e, record) && !atomic_load(&fake.sticky) && !fake.is_gone)
                fake_wait(is_shared(e) ? FAKE_A_MOMENT : FAKE_UNTIL_CHANGED);
        unref(e);
        return fake_leave((CUresult)atomic_load(&fake.sticky));
}

CUresult CUDAAPI cuEventElapsedTime(float *ret, CUevent from, CUevent to) {
        CUresult r = fake_enter(CALL_cuEventElapsedTime, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_event *a = find_event(from), *b = find_event(to);
        if (!ret || !a || !b || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) || !last_record(a) ||
                !last_record(b))
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        if (!is_done(a, last_record(a)) || !is_done(b, last_record(b)))
                return fake_leave(CUDA_ERROR_NOT_READY);
        *ret = (float)(b->done_at_ns - a->done_at_ns) / 1e6f;
        return fake_leave(CUDA_SUCCESS);
}

/* --- between processes --- */

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle *ret, CUevent event) {
        CUresult r = fake_enter(CALL_cuIpcGetEventHandle, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_event *e = find_event(event);
        struct stat status;
        if (!ret || !e || e->fd < 0 || fstat(e->fd, &status) < 0)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        if (!fake.has_ipc)
                return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
        struct event_ticket t = { .magic = TICKET_MAGIC,
                .pid = getpid(),
                .fd = e->fd,
                .physical = (uint32_t)e->context->physical,
                .inode = status.st_ino };
        memset(ret, 0, sizeof(*ret));
        memcpy(ret, &t, sizeof(t));
        return fake_leave(CUDA_SUCCESS);
}

static CUresult open_event(const struct event_ticket *t, CUevent *ret) {
        char path[64];
        struct stat status;
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->pid, t->fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return CUDA_ERROR_INVALID_HANDLE;
        bool is_it = fstat(fd, &status) == 0 && status.st_ino == t->inode;
        struct fake_event *e = is_it ? new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS) : NULL;
        bool is_shared_now = e && share_counters(e, fd);
        close(fd);
        if (!is_it)
                return CUDA_ERROR_INVALID_HANDLE;
        if (!is_shared_now) {
                if (e)
                        discard(e);
                return CUDA_ERROR_MAP_FAILED;
        }
        *ret = (CUevent)e->handle.id;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle handle) {
        CUresult r = fake_enter(CALL_cuIpcOpenEventHandle, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct event_ticket t;
        memcpy(&t, &handle, sizeof(t));
        if (!ret || t.magic != TICKET_MAGIC || !fake.has_ipc)
                return fake_leave(ret && fake.has_ipc ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED);
        if (t.pid == getpid())
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        return fake_leave(open_event(&t, ret));
}
