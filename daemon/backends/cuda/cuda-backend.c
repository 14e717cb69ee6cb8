#include "backends/cuda/cuda-backend.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/cuda-private.h"
#include "backends/cuda/nccl-cliques.h"
#include "backends/guard.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/log.h"

/* --- what a call gave --- */

void cuda_break(struct cuda *c, const char *why) {
        if (c->base.is_broken)
                return;
        c->base.is_broken = true;
        snprintf(c->base.broken_why, sizeof(c->base.broken_why), "%s", why);
        log_error("GPU work ends: %s", why);
}

static int error_of(struct cuda *c, CUresult result, const char *call) {
        char why[GPU_TEXT_BYTES];
        if (c->base.is_broken)
                return -EIO; /* as every call now; the first said why */
        snprintf(why, sizeof(why), "%s: %s", call, driver_error(&c->driver, result));
        if (driver_is_broken_by(result))
                cuda_break(c, why);
        else
                log_warning("%s", why);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

int cuda_check(struct cuda *c, CUresult result, const char *call) {
        return result == CUDA_SUCCESS ? 0 : error_of(c, result, call);
}

void cuda_note(struct cuda *c, CUresult result, const char *call) {
        if (result != CUDA_SUCCESS)
                (void)error_of(c, result, call);
}

void cuda_add_fallback(struct cuda *c, const char *what, const char *why, ...) {
        struct gpu_fallback *f = &c->base.fallbacks[c->base.n_fallbacks];
        if (c->base.n_fallbacks == MAX_GPU_FALLBACKS)
                return;
        va_list args;
        va_start(args, why);
        vsnprintf(f->why, sizeof(f->why), why, args);
        va_end(args);
        snprintf(f->what, sizeof(f->what), "%s", what);
        for (uint32_t i = 0; i < c->base.n_fallbacks; i++)
                if (strcmp(c->base.fallbacks[i].what, f->what) == 0 &&
                        strcmp(c->base.fallbacks[i].why, f->why) == 0)
                        return; /* known */
        c->base.n_fallbacks++;
        log_warning("%s: %s", f->what, f->why);
}

int cuda_enter(struct cuda *c, const struct cuda_device *d) {
        if (c->current == d->context)
                return 0;
        int r = cuda_check(c, c->driver.cuCtxSetCurrent(d->context), "cuCtxSetCurrent");
        if (r == 0)
                c->current = d->context;
        return r;
}

struct cuda_device *cuda_device_of(struct cuda *c, uint32_t device) {
        if (device < DEVICE_GPU || device - DEVICE_GPU >= c->n_devices)
                return NULL;
        struct cuda_device *d = &c->devices[device - DEVICE_GPU];
        return c->base.devices[d->index].why[0] ? NULL : d;
}

/* --- the backend --- */

static void free_cuda(struct cuda *c) {
        cuda_runs_close(c);
        cliques_close(c);
        cuda_lanes_close(c);
        cuda_areas_close(c);
        cuda_devices_close(c);
        driver_close(&c->driver);
        cliques_unload(c);
        free(c);
}

DEFINE_CLEANUP(struct cuda, free_cuda)

static void cuda_free(struct backend *b) {
        if (b)
                free_cuda(cuda_of(b));
}

static void describe(const struct backend *b, char *buf, size_t size) {
        const struct cuda *c = (const struct cuda *)b;
        snprintf(buf, size, "%u GPU%s, CUDA driver %d.%d", c->n_devices, c->n_devices == 1 ? "" : "s",
                c->driver.version / 1000, c->driver.version % 1000 / 10);
}

static const char *fallback(const struct backend *b) {
        struct cuda *c = (struct cuda *)b;
        if (c->base.n_fallbacks == 0)
                return NULL;
        const struct gpu_fallback *f = &c->base.fallbacks[0];
        snprintf(c->fallback_line, sizeof(c->fallback_line), "%s: %s", f->what, f->why);
        return c->fallback_line;
}

static int thread_init(struct backend *b) {
        (void)b;
        return 0;
}

static const struct backend_ops cuda_ops = {
        .name = "cuda",
        .free = cuda_free,
        .describe = describe,
        .thread_init = thread_init,
        .import = cuda_import,
        .release = cuda_release,
        .make = cuda_make,
        .unmake = cuda_unmake,
        .launch = cuda_run_launch,
        .poll = cuda_run_poll,
        .fallback = fallback,
};

static void set_options(struct cuda *c, const struct gpu_options *o) {
        c->options = *o;
        if (c->options.test_limit_ns == 0)
                c->options.test_limit_ns = 3 * NS_PER_S;
        if (c->options.library_limit_ns == 0)
                c->options.library_limit_ns = 60 * NS_PER_S;
}

/* What the driver reads from the environment once, before cuInit; what somebody has set himself stays. */
static int set_environment(void) {
        /* GPU:k is what nvidia-smi calls k. */
        if (setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0) < 0)
                return -errno;
        /* A stream that waits for a client must not hold up another's; lanes.c counts on as many. */
        return setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) < 0 ? -errno : 0;
}

/* All that touches clients' memory is this thread. */
static int open_guard(char *why, size_t why_bytes) {
        int r = guard_install();
        if (r == 0)
                r = guard_thread_init();
        if (r < 0)
                snprintf(why, why_bytes, "tuttid-gpu cannot catch SIGBUS: %s", strerror(-r));
        return r;
}

int cuda_backend_new(struct gpu_backend **ret, const struct gpu_options *o, char *why, size_t why_bytes) {
        CLEANUP(free_cudap) struct cuda *c = calloc(1, sizeof(*c));
        if (!c) {
                snprintf(why, why_bytes, "tuttid-gpu is short of memory");
                return -ENOMEM;
        }
        c->base.base.ops = &cuda_ops;
        set_options(c, o);
        list_init(&c->idle_lanes);
        list_init(&c->busy_lanes);
        list_init(&c->areas);
        list_init(&c->openings);
        list_init(&c->runs);
        list_init(&c->tenants);
        int r = set_environment();
        if (r == 0)
                r = driver_open(&c->driver, o->cuda_path, why, why_bytes);
        if (r == 0)
                r = cuda_devices_open(c, why, why_bytes);
        if (r < 0)
                return r;
        r = open_guard(why, why_bytes);
        if (r < 0)
                return r;
        cuda_self_test(c);
        if (c->base.is_broken) {
                snprintf(why, why_bytes, "%s", c->base.broken_why);
                return -EIO;
        }
        cliques_open(c);
        *ret = &take_pointer(c)->base;
        return 0;
}
