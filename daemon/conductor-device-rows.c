/* Rows of GPUs and of memory that has to do with them, or has pages of its own kind. */
#include "conductor-rows.h"

#include <string.h>
#include "base/pages.h"

static const char *path_name(enum memory_path path) {
        switch (path) {
        case PATH_VMM_MADE: return "vmm-made";
        case PATH_VMM_FD: return "vmm-fd";
        case PATH_CUDA_IPC: return "cuda-ipc";
        case PATH_EVENTS: /* no buffer's */
        case PATH_MEMFD: break;
        }
        return "host-copy";
}

/* Best first. */
static void add_paths(uint32_t paths, struct text *t) {
        static const enum memory_path order[] = { PATH_VMM_MADE, PATH_VMM_FD, PATH_CUDA_IPC, PATH_MEMFD };
        for (size_t i = 0; i < ARRAY_SIZE(order); i++)
                if (paths & 1u << order[i])
                        text_add(t, "%s%s", t->used ? " " : "", path_name(order[i]));
}

/* How often it has been started anew stands here, because it is about all of them. */
static void describe_gpu(const struct workers *w, uint32_t k, struct text *t) {
        uint32_t n = workers_n_restarts(w);
        const struct gpu_device *d = workers_device(w, k);
        text_add(t, "%s%s%s", d->describe, d->ways[0] ? ", " : "", d->ways);
        if (n)
                text_add(t, "; tuttid-gpu started anew %u time%s", n, n == 1 ? "" : "s");
}

static enum stream_order best_order(const struct gpu_device *d) {
        if (d->has_timeline)
                return ORDER_TIMELINE;
        return d->has_events ? ORDER_EVENTS : ORDER_HOST;
}

static void write_gpu(struct row_writer *w, uint32_t k) {
        const struct workers *workers = w->conductor->house.workers;
        const struct gpu_device *d = workers_device(workers, k);
        const struct engine_device_stats s = workers_device_stats(workers, k);
        struct row *row = writer_add(w, ROW_DEVICE, 1024);
        char *text = arena_calloc(&w->arena, 4, 256),
             *uuid = arena_strndup(&w->arena, d->uuid, GPU_UUID_BYTES);
        const char *off = workers_why_off(workers);
        struct text describe, paths, why;
        CHECK(text && uuid); /* writer_add has made room */
        text_init(&describe, text + 256, 256);
        text_init(&paths, text + 512, 256);
        text_init(&why, text + 768, 256);
        describe_gpu(workers, k, &describe);
        add_paths(d->paths, &paths);
        text_add(&why, "%s", off[0] ? off : d->why);
        row->device = (struct row_device){ .name = device_name(DEVICE_GPU + k, text),
                .describe = describe.buf,
                .why = why.buf,
                .failing = why.buf[0] != '\0',
                .n_workers = 1,
                .n_tasks = s.n_tasks,
                .busy_ns = s.busy_ns,
                .uuid = uuid,
                .paths = paths.buf,
                .order = best_order(d) };
}

static void write_gpu_fallback(struct row_writer *w, const char *what, const char *why) {
        struct row *row = writer_add(w, ROW_FALLBACK, 1024);
        row->fallback = (struct row_fallback){ .what = arena_strndup(&w->arena, what, 64),
                .why = arena_strndup(&w->arena, why, 512) };
        CHECK(row->fallback.what && row->fallback.why);
}

bool write_gpus(struct row_writer *w, struct query *q) {
        const struct workers *workers = w->conductor->house.workers;
        const struct gpu_fallback *f;
        for (uint32_t k = 0; k < workers_n_devices(workers); k++)
                write_gpu(w, k);
        if (workers_n_devices(workers) == 0 && w->conductor->house.config->gpu_enabled != GPU_NO)
                write_gpu_fallback(w, "gpu",
                        workers_is_starting(workers) ? "the GPUs are still being tested"
                                                     : workers_why_off(workers));
        for (uint32_t i = 0; (f = workers_fallback(workers, i)); i++)
                write_gpu_fallback(w, f->what, f->why);
        return true;
}

static bool is_of_no_device(const struct buffer_description *d) {
        return d->path == PATH_MEMFD && d->stands_for[0] == '\0';
}

/* Where its client and tuttid say different things, tuttid has looked. */
static const char *pages_name(const struct buffer_description *d) {
        if (d->pool_page_bytes > 0)
                return "pool";
        return d->pages == PAGES_TRANSPARENT ? "transparent" : "ordinary";
}

static uint64_t page_bytes_of(const struct buffer_description *d) {
        if (d->pool_page_bytes > 0)
                return d->pool_page_bytes;
        return d->pages == PAGES_TRANSPARENT ? HUGE_PAGE_BYTES : ordinary_page_bytes();
}

static void write_buffer(struct row_writer *w, const struct buffer_description *d) {
        const struct session *s = session_find(w->conductor->house.sessions, d->session);
        struct row *row = writer_add(w, ROW_BUFFER, 512);
        char *name = arena_calloc(&w->arena, 1, DEVICE_NAME_BYTES);
        char *stands_for = arena_strndup(&w->arena, d->stands_for, 64),
             *why = arena_strndup(&w->arena, d->why, 200);
        CHECK(name && stands_for && why);
        uint32_t device =
                d->path == PATH_MEMFD ? workers_find(w->conductor->house.workers, stands_for) : d->device;
        row->buffer = (struct row_buffer){ .pid = s ? s->pid : 0,
                .uid = d->uid,
                .buffer = d->id,
                .size_bytes = d->n_bytes,
                .device = device == DEVICE_UNKNOWN ? stands_for : device_name(device, name),
                .path = is_of_no_device(d) ? pages_name(d) : path_name(d->path),
                .page_bytes = is_of_no_device(d) ? page_bytes_of(d) : 0,
                .why = why };
}

static bool sees_all(const struct row_writer *w, const struct query *q) {
        return w->session->viewer.sees_all && !q->has_user;
}

/* A line for all of them together: a job asks for many. */
bool write_shortage(struct row_writer *w, struct query *q) {
        struct buffer_shortage s;
        const uint32_t *uid = sees_all(w, q) ? NULL : &w->session->viewer.uid;
        if (!buffers_describe_short(w->conductor->house.buffers, uid, &s))
                return true;
        const struct session *first = session_find(w->conductor->house.sessions, s.first.session);
        struct row *row = writer_add(w, ROW_FALLBACK, 512);
        char *why = arena_calloc(&w->arena, 1, 512);
        CHECK(why); /* writer_add has made room */
        struct text t;
        text_init(&t, why, 512);
        text_add_bytes(&t, s.n_bytes);
        text_add(&t,
                " in %u region%s lie in none of the pool, though huge ones were asked for; the first, of pid "
                "%u, in %s ones: %s",
                s.n_buffers, s.n_buffers == 1 ? "" : "s", first ? first->pid : 0, pages_name(&s.first),
                s.first.why);
        row->fallback = (struct row_fallback){ .what = "huge-pages", .why = why };
        return true;
}

/* `q->told` is where it goes on. Those that it does not tell of are others', and cost time as well. */
bool write_buffers(struct row_writer *w, struct query *q) {
        struct conductor *c = w->conductor;
        struct buffer_description d;
        uint32_t n_passed = 0;
        while (!writer_is_tired(w)) {
                if (!buffers_tell(c->house.buffers, &q->told, &d))
                        return true;
                if (d.uid == w->session->viewer.uid || sees_all(w, q))
                        write_buffer(w, &d);
                else if (n_passed++ % LOOKS_A_ROW == 0)
                        writer_pass(w);
        }
        return false;
}
