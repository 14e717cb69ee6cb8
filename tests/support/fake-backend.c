#include "fake-backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/fd.h"

#define MAX_ORDER 4096

struct fake_backend {
        struct backend backend; /* first */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool is_held;
        uint32_t n_waiting, n_tickets, n_at_once;
        uint32_t fail_chunk, fail_import;
        enum status import_status;
        const struct memory *culprit;
        struct fake_counts counts;
        uint64_t order[MAX_ORDER];
        uint32_t n_order;
};

static struct fake_backend *fake_of(struct backend *b) {
        return (struct fake_backend *)(void *)b;
}

static void fake_free(struct backend *b) {
        fake_backend_free(fake_of(b));
}

static void fake_describe(const struct backend *b, char *buf, size_t size) {
        snprintf(buf, size, "fake");
}

static const char *fake_fallback(const struct backend *b) {
        return NULL;
}

static int fake_thread_init(struct backend *b) {
        struct fake_backend *f = fake_of(b);
        pthread_mutex_lock(&f->lock);
        f->counts.n_threads++;
        pthread_mutex_unlock(&f->lock);
        return 0;
}

static void fake_import(struct backend *b, struct chore *c) {
        struct fake_backend *f = fake_of(b);
        pthread_mutex_lock(&f->lock);
        f->counts.n_imports++;
        bool fails = f->fail_import > 0 && --f->fail_import == 0;
        if (!fails)
                f->counts.n_alive++;
        pthread_mutex_unlock(&f->lock);
        c->status = fails ? f->import_status : STATUS_OK;
        snprintf(c->why, sizeof(c->why), "%s", fails ? "the fake was told to fail" : "");
        c->memory = fails ? NULL : calloc(1, sizeof(*c->memory));
        if (c->memory) {
                c->memory->session = c->session;
                c->memory->buffer = c->buffer;
                c->memory->n_bytes = c->n_bytes;
        }
}

/* Fails like an import. What it makes is memory in name only: no chunk of this backend touches any. */
static void fake_make(struct backend *b, struct chore *c) {
        struct fake_backend *f = fake_of(b);
        pthread_mutex_lock(&f->lock);
        bool fails = f->fail_import > 0 && --f->fail_import == 0;
        c->status = fails ? f->import_status : STATUS_OK;
        c->memory = fails ? NULL : calloc(1, sizeof(*c->memory));
        f->counts.n_alive += c->memory != NULL;
        pthread_mutex_unlock(&f->lock);
        c->fd = fails ? -1 : memfd_create("fake", MFD_CLOEXEC);
        c->read_fd = fails ? -1 : memfd_create("fake", MFD_CLOEXEC);
        if (!fails && (!c->memory || c->fd < 0 || c->read_fd < 0))
                abort();
        if (c->memory)
                c->memory->n_bytes = c->n_bytes;
}

static void fake_release(struct backend *b, struct chore *c);

static void fake_unmake(struct backend *b, struct chore *c) {
        fake_release(b, c);
        fd_close(&c->read_fd);
}

static void fake_release(struct backend *b, struct chore *c) {
        struct fake_backend *f = fake_of(b);
        pthread_mutex_lock(&f->lock);
        f->counts.n_releases++;
        f->counts.n_alive -= c->memory != NULL;
        pthread_mutex_unlock(&f->lock);
        fd_close(&c->fd);
        free(c->memory);
        c->memory = NULL;
}

/* What it finds: the chunk's number, as an element of rank 1. */
static enum status fake_run_chunk(struct backend *b, const struct plan *plan, uint64_t chunk,
        struct findings *found, const struct memory **ret_culprit) {
        struct fake_backend *f = fake_of(b);
        if (plan->steps[0].check_numerics)
                findings_add(found, &(struct findings){ .numerics = { .n = 1, .rank = 1, .index = chunk } });
        pthread_mutex_lock(&f->lock);
        if (f->n_order < MAX_ORDER)
                f->order[f->n_order++] = plan->has_joins ? chunk : plan->steps[0].count;
        f->counts.n_chunks++;
        if (++f->n_at_once > f->counts.n_at_once_most)
                f->counts.n_at_once_most = f->n_at_once;
        bool fails = f->fail_chunk > 0 && --f->fail_chunk == 0;
        if (f->is_held) {
                f->n_waiting++;
                pthread_cond_broadcast(&f->changed);
                while (f->is_held && f->n_tickets == 0)
                        pthread_cond_wait(&f->changed, &f->lock);
                if (f->n_tickets > 0)
                        f->n_tickets--;
                f->n_waiting--;
                pthread_cond_broadcast(&f->changed);
        }
        f->n_at_once--;
        pthread_mutex_unlock(&f->lock);
        if (fails)
                *ret_culprit = f->culprit;
        return fails ? STATUS_BAD_FD : STATUS_OK;
}

/* Fails like an import. */
static struct memory *fake_make_scratch(struct backend *b, uint32_t device, uint64_t n_bytes) {
        struct fake_backend *f = fake_of(b);
        pthread_mutex_lock(&f->lock);
        bool fails = f->fail_import > 0 && --f->fail_import == 0;
        struct memory *m = fails ? NULL : calloc(1, sizeof(*m));
        f->counts.n_alive += m != NULL;
        f->counts.n_scratch += m != NULL;
        pthread_mutex_unlock(&f->lock);
        if (m)
                *m = (struct memory){ .n_bytes = n_bytes, .device = device };
        return m;
}

static void fake_free_scratch(struct backend *b, struct memory *memory) {
        struct fake_backend *f = fake_of(b);
        pthread_mutex_lock(&f->lock);
        f->counts.n_alive--;
        pthread_mutex_unlock(&f->lock);
        free(memory);
}

static const struct backend_ops fake_ops = {
        .name = "fake",
        .free = fake_free,
        .describe = fake_describe,
        .thread_init = fake_thread_init,
        .import = fake_import,
        .release = fake_release,
        .make = fake_make,
        .unmake = fake_unmake,
        .make_scratch = fake_make_scratch,
        .free_scratch = fake_free_scratch,
        .run_chunk = fake_run_chunk,
        .fallback = fake_fallback,
};

struct fake_backend *fake_backend_new(void) {
        struct fake_backend *f = calloc(1, sizeof(*f));
        if (!f)
                abort();
        f->backend.ops = &fake_ops;
        pthread_mutex_init(&f->lock, NULL);
        pthread_cond_init(&f->changed, NULL);
        return f;
}

void fake_backend_free(struct fake_backend *f) {
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->changed);
        free(f);
}

struct backend *fake_backend_ops(struct fake_backend *f) {
        return &f->backend;
}

void fake_hold(struct fake_backend *f, bool is_held) {
        pthread_mutex_lock(&f->lock);
        f->is_held = is_held;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
}

void fake_wait_held(struct fake_backend *f, uint32_t n) {
        pthread_mutex_lock(&f->lock);
        while (f->n_waiting < n)
                pthread_cond_wait(&f->changed, &f->lock);
        pthread_mutex_unlock(&f->lock);
}

void fake_release_one(struct fake_backend *f) {
        pthread_mutex_lock(&f->lock);
        while (f->n_waiting == 0)
                pthread_cond_wait(&f->changed, &f->lock);
        f->n_tickets++;
        pthread_cond_broadcast(&f->changed);
        while (f->n_tickets > 0)
                pthread_cond_wait(&f->changed, &f->lock);
        pthread_mutex_unlock(&f->lock);
}

void fake_fail_chunk(struct fake_backend *f, uint32_t n, const struct memory *culprit) {
        pthread_mutex_lock(&f->lock);
        f->fail_chunk = n;
        f->culprit = culprit;
        pthread_mutex_unlock(&f->lock);
}

void fake_fail_import(struct fake_backend *f, uint32_t n, enum status status) {
        pthread_mutex_lock(&f->lock);
        f->fail_import = n;
        f->import_status = status;
        pthread_mutex_unlock(&f->lock);
}

struct fake_counts fake_counts(struct fake_backend *f) {
        pthread_mutex_lock(&f->lock);
        struct fake_counts counts = f->counts;
        pthread_mutex_unlock(&f->lock);
        return counts;
}

uint32_t fake_order(struct fake_backend *f, uint64_t *names, uint32_t n) {
        pthread_mutex_lock(&f->lock);
        for (uint32_t i = 0; i < f->n_order && i < n; i++)
                names[i] = f->order[i];
        uint32_t n_order = f->n_order;
        pthread_mutex_unlock(&f->lock);
        return n_order;
}
