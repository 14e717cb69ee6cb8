#include "fake.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .next_handle = 0x7a0000, .page_fd = -1, .slot = -1 };
__thread bool fake_is_in_host_function;
__thread struct fake_verdict fake_verdict;

static __thread struct {
        struct fake_context *items[16];
        int n;
} stack;

int64_t fake_now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* --- calls --- */

static CUresult check_state(enum fake_call call, enum fake_needs needs) {
        if (fake_is_in_host_function)
                return CUDA_ERROR_NOT_PERMITTED;
        if (needs == FAKE_NOTHING)
                return CUDA_SUCCESS;
        if (fake.is_gone)
                return CUDA_ERROR_DEINITIALIZED;
        if (fake.is_forked || (!fake.is_init && call != CALL_cuInit))
                return CUDA_ERROR_NOT_INITIALIZED;
        return (CUresult)atomic_load(&fake.sticky);
}

CUresult fake_enter(enum fake_call call, enum fake_needs needs) {
        if (fake.process && !fake.is_forked)
                atomic_fetch_add(&fake.process->calls[call], 1);
        CUresult r = check_state(call, needs);
        if (r != CUDA_SUCCESS)
                return r;
        fake_verdict = fake_judge(call);
        if (fake_verdict.result != CUDA_SUCCESS)
                return fake_verdict.result;
        if (!fake.is_forked)
                pthread_mutex_lock(&fake.lock);
        r = check_state(call, needs); /* it may have changed before the lock was had */
        if (r == CUDA_SUCCESS && needs == FAKE_CONTEXT)
                r = fake_check_context();
        return r == CUDA_SUCCESS ? r : fake_leave(r);
}

CUresult fake_leave(CUresult result) {
        if (!fake.is_forked)
                pthread_mutex_unlock(&fake.lock);
        return result;
}

void fake_stick_locked(CUresult error) {
        atomic_store(&fake.sticky, (int)error);
        pthread_cond_broadcast(&fake.changed);
}

void fake_stick(CUresult error) {
        pthread_mutex_lock(&fake.lock); /* or who is just about to wait would miss it */
        fake_stick_locked(error);
        pthread_mutex_unlock(&fake.lock);
}

void fake_wait(enum fake_patience patience) {
        if (patience == FAKE_UNTIL_CHANGED) {
                pthread_cond_wait(&fake.changed, &fake.lock);
                return;
        }
        int64_t at = fake_now_ns() + (patience == FAKE_A_MOMENT ? 200000 : 2000000);
        struct timespec until = { .tv_sec = at / 1000000000, .tv_nsec = at % 1000000000 };
        pthread_cond_timedwait(&fake.changed, &fake.lock, &until);
}

/* --- handles --- */

void *fake_handle_new(enum fake_kind kind, size_t n_bytes) {
        struct fake_handle *h = calloc(1, n_bytes);
        if (!h)
                return NULL;
        h->kind = kind;
        h->id = fake.next_handle;
        fake.next_handle += 16;
        HASH_ADD(hh, fake.handles, id, sizeof(h->id), h);
        return h;
}

void *fake_handle_find(enum fake_kind kind, const void *handle) {
        struct fake_handle *h;
        uintptr_t id = (uintptr_t)handle;
        HASH_FIND(hh, fake.handles, &id, sizeof(id), h);
        return h && h->kind == kind ? h : NULL;
}

void fake_handle_retire(struct fake_handle *handle) {
        HASH_DELETE(hh, fake.handles, handle);
}

/* --- contexts --- */

CUcontext fake_context_handle(const struct fake_context *context) {
        return context ? (CUcontext)(uintptr_t)(0x7c0001 + 16 * context->device) : NULL;
}

struct fake_context *fake_context_find(CUcontext context) {
        for (int i = 0; i < fake.n_devices; i++)
                if (fake_context_handle(&fake.contexts[i]) == context)
                        return fake.contexts[i].n_users ? &fake.contexts[i] : NULL;
        return NULL;
}

struct fake_context *fake_context_of_physical(int physical) {
        for (int i = 0; i < fake.n_devices; i++)
                if (fake.contexts[i].physical == physical)
                        return fake.contexts[i].n_users ? &fake.contexts[i] : NULL;
        return NULL;
}

struct fake_context *fake_current(void) {
        return stack.n ? stack.items[stack.n - 1] : NULL;
}

CUresult fake_check_context(void) {
        const struct fake_context *c = fake_current();
        if (!c)
                return CUDA_ERROR_INVALID_CONTEXT;
        return c->n_users ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
        CUresult r = fake_enter(CALL_cuCtxSetCurrent, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_context *c = fake_context_find(context);
        if (context && !c)
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        if (!context && stack.n)
                stack.n--;
        if (context && !stack.n)
                stack.n = 1;
        if (context)
                stack.items[stack.n - 1] = c;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ret) {
        CUresult r = fake_enter(CALL_cuCtxGetCurrent, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = fake_context_handle(fake_current());
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
        CUresult r = fake_enter(CALL_cuCtxPushCurrent, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_context *c = fake_context_find(context);
        if (!c)
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        if (stack.n == sizeof(stack.items) / sizeof(*stack.items))
                return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        stack.items[stack.n++] = c;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *ret) {
        CUresult r = fake_enter(CALL_cuCtxPopCurrent, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!stack.n)
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        stack.n--;
        if (ret)
                *ret = fake_context_handle(stack.items[stack.n]);
        return fake_leave(CUDA_SUCCESS);
}

/* --- begin and end of the process --- */

static void after_fork(void) {
        fake.is_forked = fake.is_init;
        if (fake.page_fd >= 0)
                close(fake.page_fd); /* or the parent would seem alive as long as the child is */
        fake.page_fd = -1;
}

static CUresult join_page(void) {
        const char *path = getenv("FAKECUDA_CONTROL");
        if (fake_page_map(path && *path ? path : NULL, &fake.page_fd, &fake.page) < 0)
                return CUDA_ERROR_OPERATING_SYSTEM;
        fake_faults_init();
        int slot = fake_page_join(fake.page, fake.page_fd);
        if (slot < 0)
                return CUDA_ERROR_OPERATING_SYSTEM;
        fake.slot = slot;
        fake.process = &fake.page->processes[slot];
        return CUDA_SUCCESS;
}

static CUresult init(void) {
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&fake.changed, &attributes);
        pthread_condattr_destroy(&attributes);
        pthread_atfork(NULL, NULL, after_fork);
        CUresult r = fake_devices_init();
        fake.is_init = r == CUDA_SUCCESS;
        return r;
}

CUresult CUDAAPI cuInit(unsigned int flags) {
        pthread_mutex_lock(&fake.lock);
        CUresult r =
                fake.process ? CUDA_SUCCESS : join_page(); /* first of all: faults can strike cuInit itself */
        pthread_mutex_unlock(&fake.lock);
        if (r == CUDA_SUCCESS)
                r = fake_enter(CALL_cuInit, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (flags)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        return fake_leave(fake.is_init ? CUDA_SUCCESS : init());
}

CUresult CUDAAPI cuDriverGetVersion(int *ret) {
        CUresult r = fake_enter(CALL_cuDriverGetVersion, FAKE_NOTHING);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = CUDA_VERSION;
        return fake_leave(CUDA_SUCCESS);
}

/* When the library is closed or the process ends: threads end and descriptors close, as tests count them. The
 * page stays mapped for threads that are late. */
__attribute__((destructor)) static void end(void) {
        if (!fake.process || fake.is_forked)
                return;
        pthread_mutex_lock(&fake.lock);
        fake.is_gone = true;
        for (int i = 0; i < fake.n_devices; i++)
                if (fake.contexts[i].n_users)
                        fake_context_end(&fake.contexts[i]);
        fake_modules_end(NULL);
        fake_vmm_end();
        fake_ranges_end();
        fake_guard_end();
        pthread_mutex_unlock(&fake.lock);
        if (fake.page_fd >= 0)
                close(fake.page_fd);
}
