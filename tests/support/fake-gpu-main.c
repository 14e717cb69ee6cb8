/* The double of backends/cuda behind the real gpu/gpu.c (fake-gpu.h). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "backends/host/host-private.h"
#include "base/clock.h"
#include "base/fd.h"
#include "fake-gpu.h"
#include "gpu/gpu.h"
#include "plan.h"

struct double_gpu {
        struct gpu_backend base; /* first */
        struct backend *host;
        struct list runs; /* struct run.link */
};

static struct fake_gpu *script;

/* Counts down to the one that is meant. */
static bool is_now(_Atomic uint32_t *n) {
        return *n > 0 && --*n == 0;
}

static struct double_gpu *of(struct backend *b) {
        return (struct double_gpu *)b;
}

static void hang_if_told(void) {
        while (is_now(&script->hang))
                for (;;)
                        pause();
}

/* --- memory --- */

static void make(struct backend *b, struct chore *c) {
        script->n_makes++;
        c->fd = memfd_create("device memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        c->n_bytes = (c->n_bytes + 0x1fffff) & ~UINT64_C(0x1fffff);
        c->access = ACCESS_INOUT;
        if (c->fd < 0 || fallocate(c->fd, 0, 0, (off_t)c->n_bytes) < 0) {
                c->status = STATUS_NO_MEMORY;
                return;
        }
        of(b)->host->ops->import(of(b)->host, c);
}

static void import(struct backend *b, struct chore *c) {
        script->n_imports++;
        hang_if_told();
        if (is_now(&script->crash_import))
                raise(SIGKILL);
        if (is_now(&script->fail_import)) {
                c->status = STATUS_INVALID;
                snprintf(c->why, sizeof(c->why), "it is smaller than it is said to be");
                return;
        }
        if (c->path == PATH_CUDA_IPC)
                c->fd = open((const char *)c->handle, O_RDWR | O_CLOEXEC);
        if (c->device >= DEVICE_GPU + of(b)->base.n_devices) {
                c->status = STATUS_NOT_FOUND;
                snprintf(c->why, sizeof(c->why), "there is no such device");
                return;
        }
        of(b)->host->ops->import(of(b)->host, c);
}

static void release(struct backend *b, struct chore *c) {
        script->n_releases++;
        of(b)->host->ops->release(of(b)->host, c);
}

/* --- runs --- */

static bool signals_are_ready(const struct run *r) {
        for (uint32_t i = 0; i < r->n_signals; i++) {
                if (!r->signals[i].page)
                        continue;
                _Atomic uint64_t *slot =
                        (void *)(host_memory_of(r->signals[i].page)->map + 16ull * r->signals[i].slot);
                if (*slot < r->signals[i].value)
                        return false;
        }
        return true;
}

static void say_done(const struct run *r) {
        for (uint32_t i = 0; i < r->n_signals; i++) {
                if (!r->signals[i].page)
                        continue;
                _Atomic uint64_t *slot =
                        (void *)(host_memory_of(r->signals[i].page)->map + 16ull * r->signals[i].slot);
                slot[1] = r->signals[i].value;
        }
}

static void end(struct run *r, enum status status, const char *why) {
        r->status = status;
        snprintf(r->why, sizeof(r->why), "%s", why);
        r->is_over = true;
        r->done_ns = clock_now_ns();
        list_unlink(&r->link);
}

static int launch(struct backend *b, struct run *r) {
        script->n_runs++;
        hang_if_told();
        if (is_now(&script->crash))
                raise(SIGKILL);
        r->started_ns = clock_now_ns();
        list_append(&of(b)->runs, &r->link);
        return 0;
}

static void run(struct backend *b, struct run *r) {
        const struct memory *culprit;
        enum status status = STATUS_OK;
        for (uint64_t chunk = 0; status == STATUS_OK && chunk < r->plan->n_chunks; chunk++)
                status = of(b)->host->ops->run_chunk(of(b)->host, r->plan, chunk, &r->found, &culprit);
        say_done(r);
        end(r, status == STATUS_OK ? STATUS_OK : STATUS_INTERNAL, "");
}

static void stick(struct double_gpu *g) {
        g->base.is_broken = true;
        snprintf(g->base.broken_why, sizeof(g->base.broken_why),
                "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered");
        while (!list_is_empty(&g->runs))
                end(list_entry(g->runs.next, struct run, link), STATUS_DEVICE_LOST, g->base.broken_why);
}

static void poll_runs(struct backend *b) {
        script->n_polls++;
        list_for_each_safe (it, next, &of(b)->runs) {
                struct run *r = list_entry(it, struct run, link);
                if (script->hold)
                        continue;
                if (is_now(&script->stick)) {
                        stick(of(b));
                        return;
                }
                if (signals_are_ready(r))
                        run(b, r);
                else if (r->limit_ns && clock_now_ns() - r->started_ns >= r->limit_ns)
                        end(r, STATUS_TIMEOUT, "a stream has not come so far");
        }
}

static void free_double(struct backend *b) {
        of(b)->host->ops->free(of(b)->host);
        free(b);
}

static void describe(const struct backend *b, char *buf, size_t size) {
        (void)b;
        snprintf(buf, size, "no GPU at all");
}

static const char *fallback(const struct backend *b) {
        (void)b;
        return NULL;
}

static const struct backend_ops ops = {
        .name = "fake-gpu",
        .free = free_double,
        .describe = describe,
        .import = import,
        .release = release,
        .make = make,
        .launch = launch,
        .poll = poll_runs,
        .fallback = fallback,
};

static void report(struct gpu_device *d, uint32_t k) {
        snprintf(d->uuid, sizeof(d->uuid), "GPU-fa4e0000-0000-0000-0000-%012u", k);
        snprintf(d->name, sizeof(d->name), "Fake GPU");
        snprintf(d->describe, sizeof(d->describe), "Fake GPU, memory of the host");
        if (script->hide_device && k + 1 == script->n_devices)
                snprintf(d->why, sizeof(d->why), "its self-test has failed: 3 of 4096 words are wrong");
        d->n_bytes = UINT64_C(1) << 30;
        d->paths = 1u << PATH_VMM_MADE | 1u << PATH_VMM_FD | 1u << PATH_MEMFD | 1u << PATH_CUDA_IPC;
        d->has_timeline = true;
}

static int make_double(struct gpu_backend **ret, const struct gpu_options *o, char *why, size_t why_bytes) {
        struct double_gpu *g = calloc(1, sizeof(*g));
        if (!g || host_backend_new(&g->host, ISA_AUTO) < 0 || g->host->ops->thread_init(g->host) < 0)
                return -ENOMEM;
        if (script->n_devices == 0) {
                snprintf(why, why_bytes,
                        "libcuda.so.1 cannot be opened: there is no NVIDIA driver on this host");
                return -ENOENT;
        }
        g->base.base.ops = &ops;
        list_init(&g->runs);
        g->base.n_devices = script->n_devices;
        for (uint32_t k = 0; k < g->base.n_devices; k++)
                report(&g->base.devices[k], k);
        g->base.n_fallbacks = o->takes_ipc ? 0 : 1;
        snprintf(g->base.fallbacks[0].what, sizeof(g->base.fallbacks[0].what), "cuda-ipc");
        snprintf(g->base.fallbacks[0].why, sizeof(g->base.fallbacks[0].why), "legacy handles are not taken");
        *ret = &g->base;
        return 0;
}

int main(void) {
        const char *path = getenv("FAKE_GPU");
        CLEANUP_FD int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        script = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*script), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (script == MAP_FAILED)
                return 3;
        script->n_starts++;
        script->pid = (uint32_t)getpid();
        if (script->crash_start > 0) {
                script->crash_start--;
                return 9;
        }
        signal(SIGPIPE, SIG_IGN);
        return gpu_serve(3, make_double);
}
