#include "lib/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/available.h"
#include "base/fd.h"
#include "base/pages.h"
#include "base/text.h"
#include "lib/device.h"
#include "lib/object.h"
#include "lib/pages.h"
#include "lib/reconnect.h"

static uint64_t round_up_to(uint64_t n, uint64_t page_bytes) {
        return (n + page_bytes - 1) / page_bytes * page_bytes;
}

/* --- birth and end --- */

static enum status cannot_make(uint64_t n_bytes, int r, struct error *err) {
        if (r == -EMFILE || r == -ENFILE)
                return refuse(err, STATUS_LIMIT, FIELD_DESCRIPTOR,
                        "no descriptor is left for a memfd: %s. Raise RLIMIT_NOFILE", strerror(-r));
        uint64_t available = memory_available_bytes();
        refuse(err, STATUS_NO_MEMORY, FIELD_SIZE,
                "%llu bytes are needed, about %llu are available to this process (%s)",
                (unsigned long long)n_bytes, (unsigned long long)available, strerror(-r));
        err->used = n_bytes;
        err->limit = available;
        return STATUS_NO_MEMORY;
}

static struct region *region_new(struct tutti *t, uint64_t n_bytes) {
        struct region *r = calloc(1, sizeof(*r));
        if (!r)
                return NULL;
        list_init(&r->node);
        list_init(&r->registration);
        r->t = t;
        r->fd = -1;
        r->size_bytes = n_bytes;
        r->page_bytes = ordinary_page_bytes();
        space_init(&r->space, n_bytes);
        call_init(&r->registering, CALL_PLAIN);
        pthread_mutex_lock(&t->lock);
        r->id = t->next_region++;
        pthread_mutex_unlock(&t->lock);
        return r;
}

/* Whoever brings regions to a new tuttid must not find it any more. */
static void region_forget(struct region *r) {
        pthread_mutex_lock(&r->t->lock);
        list_unlink(&r->registration);
        call_drop(r->t, &r->registering);
        pthread_mutex_unlock(&r->t->lock);
}

void region_free(struct region *r) {
        region_forget(r);
        list_unlink(&r->node);
        call_deinit(&r->registering);
        device_memory_free(r->device, r->data);
        if (r->data) /* whole pages, or the pool's are not unmapped */
                munmap(r->data, round_up_to(r->size_bytes, r->page_bytes));
        fd_close(&r->fd);
        free(r);
}

static struct region_ask ask_of(const struct region *r, int fd, enum access access) {
        return (struct region_ask){ .reg = { .size_bytes = r->size_bytes,
                                            .access = access,
                                            .kind = BUFFER_KIND_MEMFD,
                                            .device = "",
                                            .stands_for = "",
                                            .why = r->why,
                                            .pages = r->pages },
                .fd = fd };
}

/* It can be brought to another tuttid for as long as its descriptor is there. Under `sending`, numbered. */
static void region_remember(struct region *r, int fd) {
        struct tutti *t = r->t;
        if (!reconnect_is_on(t))
                return;
        if (r->fd < 0 && fd >= 0)
                r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        pthread_mutex_lock(&t->lock);
        list_append(&t->registrations, &r->registration);
        r->sent_in = t->reconnect->n_ends - r->registering.is_held;
        pthread_mutex_unlock(&t->lock);
}

static enum status send_register(
        struct tutti *t, struct region *r, const struct region_ask *ask, struct error *err) {
        struct request request = { .type = REQUEST_REGISTER, .reg = ask->reg };
        request.reg.buffer = r->id;
        request.reg.n_descriptors = ask->fd >= 0;
        r->access = ask->reg.access;
        if (ask->made) {
                r->registering.type = CALL_MADE;
                r->registering.made_device = ask->made;
        }
        pthread_mutex_lock(&t->sending);
        enum status status = send_number(t, &request, &r->registering, err);
        if (status == STATUS_OK) {
                region_remember(r, ask->fd);
                if (send_may_go(t, &r->registering)) {
                        bool fits = send_packet(t, &request, ask->fd);
                        CHECK(fits); /* its strings are short */
                }
        }
        pthread_mutex_unlock(&t->sending);
        return status;
}

static int map_ours(struct region *r) {
        int e = pages_make_memfd(r->pages, r->size_bytes, &r->fd);
        if (e < 0)
                return e;
        r->data = pages_map(r->pages, r->fd, r->size_bytes);
        return r->data ? 0 : -errno;
}

/* fallocate first: so it is this process's memory group that pays, and running short is an error and not a
 * SIGBUS. */
static int back(struct region *r, uint64_t to) {
        const struct backing b = { .pages = r->pages, .fd = r->fd, .data = r->data };
        int e = pages_fill(&b, r->filled_bytes, to);
        if (e == 0)
                r->filled_bytes = to;
        return e;
}

/* Nothing is left to fill, and nobody else will be sent it. */
static void drop_fd_if_full(struct region *r) {
        if (r->filled_bytes == r->size_bytes && !reconnect_is_on(r->t))
                fd_close(&r->fd);
}

/* Where pages may be wanting, tuttid is told when they are there. */
static int region_raise(struct region *r, const struct region_plan *plan) {
        int e = map_ours(r);
        if (e == 0 && r->pages != PAGES_UNSPECIFIED)
                e = back(r, round_up_to(plan->first_bytes, r->page_bytes));
        return e;
}

enum status region_make(
        struct tutti *t, const struct region_plan *plan, struct region **ret, struct error *err) {
        struct region *r = region_new(t, round_up_to(plan->n_bytes, pages_bytes(plan->pages)));
        if (!r)
                return cannot_make(sizeof(*r), -ENOMEM, err);
        r->is_ours = true;
        r->pages = plan->pages;
        r->page_bytes = pages_bytes(plan->pages);
        text_copy(r->why, sizeof(r->why), plan->why);
        int e = region_raise(r, plan);
        const struct region_ask ask = ask_of(r, r->fd, ACCESS_INOUT);
        enum status status = e < 0 ? cannot_make(plan->n_bytes, e, err) : send_register(t, r, &ask, err);
        if (status != STATUS_OK) {
                region_free(r);
                return status;
        }
        drop_fd_if_full(r);
        *ret = r;
        return STATUS_OK;
}

/* Sends it and waits. On failure the region is gone, or will be reaped. */
static enum status register_and_wait(
        struct tutti *t, struct region *r, const struct region_ask *ask, struct error *err) {
        enum status status = send_register(t, r, ask, err);
        if (status != STATUS_OK) {
                region_free(r);
                return status;
        }
        pthread_mutex_lock(&t->lock);
        connection_wait(t, &r->registering, WAIT_FOREVER);
        status = r->registering.status;
        if (status != STATUS_OK) {
                if (r->registering.failure)
                        *err = r->registering.failure->error;
                else
                        error_init(err, status);
                list_append(&t->dead_regions, &r->node);
        }
        pthread_mutex_unlock(&t->lock);
        return status;
}

enum status region_register(
        struct tutti *t, const struct region_ask *ask, struct region **ret, struct error *err) {
        struct region *r = region_new(t, ask->reg.size_bytes);
        if (!r)
                return cannot_make(sizeof(*r), -ENOMEM, err);
        enum status status = register_and_wait(t, r, ask, err);
        if (status == STATUS_OK)
                *ret = r;
        return status;
}

enum status region_adopt(struct tutti *t, int fd, uint64_t n_bytes, enum access access, struct region **ret,
        struct error *err) {
        const struct region like = { .size_bytes = n_bytes };
        const struct region_ask ask = ask_of(&like, fd, access);
        return region_register(t, &ask, ret, err);
}

void region_bury(struct tutti *t, struct region *r) {
        pthread_mutex_lock(&t->lock);
        list_append(&t->dead_regions, &r->node);
        pthread_mutex_unlock(&t->lock);
}

/* --- backing with memory --- */

enum status region_fill(struct region *r, const struct block *block, struct error *err) {
        uint64_t end = block->offset_bytes + block->n_bytes, to = round_up_to(end, r->page_bytes);
        if (to > r->filled_bytes) {
                int e = back(r, to);
                if (e < 0)
                        return cannot_make(block->n_bytes, e, err);
                drop_fd_if_full(r);
        }
        if (block->offset_bytes < r->dirty_bytes) {
                uint64_t used_end = end < r->dirty_bytes ? end : r->dirty_bytes;
                memset(r->data + block->offset_bytes, 0, used_end - block->offset_bytes);
        }
        if (end > r->dirty_bytes)
                r->dirty_bytes = end;
        return STATUS_OK;
}

enum status region_make_stage(
        struct tutti *t, const struct region_stage *stage, struct region **ret, struct error *err) {
        struct region *r = region_new(t, round_up_to(stage->n_bytes, ordinary_page_bytes()));
        if (!r)
                return cannot_make(sizeof(*r), -ENOMEM, err);
        int e = map_ours(r);
        if (e == 0)
                e = back(r, r->size_bytes);
        if (e < 0) {
                region_free(r);
                return cannot_make(stage->n_bytes, e, err);
        }
        struct region_ask ask = ask_of(r, r->fd, stage->access);
        ask.reg.stands_for = stage->stands_for;
        ask.reg.why = stage->why;
        enum status status = register_and_wait(t, r, &ask, err);
        if (status != STATUS_OK)
                return status;
        drop_fd_if_full(r);
        *ret = r;
        return STATUS_OK;
}

bool region_is_ours(struct tutti *t, uint64_t id) {
        bool is_ours = false;
        pthread_mutex_lock(&t->lock);
        list_for_each (it, &t->regions) {
                const struct region *r = list_entry(it, struct region, node);
                if (r->id == id)
                        is_ours = r->is_ours;
        }
        pthread_mutex_unlock(&t->lock);
        return is_ours;
}

/* --- the dead --- */

static struct region *take_dead(struct tutti *t) {
        pthread_mutex_lock(&t->lock);
        struct list *node = list_take_first(&t->dead_regions);
        struct region *r = node ? list_entry(node, struct region, node) : NULL;
        if (r) {
                call_drop(t, &r->registering);
                list_unlink(&r->registration);
        }
        pthread_mutex_unlock(&t->lock);
        return r;
}

/* Where the connection is lost, there is nobody to tell. */
void regions_reap(struct tutti *t) {
        struct region *r;
        objects_reap(t);
        while ((r = take_dead(t))) {
                struct error err;
                forget_buffer(t, r->id);
                struct request request = { .type = REQUEST_UNREGISTER, .buffer = r->id };
                (void)!send_request(t, &request, NULL, -1, &err);
                region_free(r);
        }
}

void regions_free(struct tutti *t) {
        list_for_each_safe (it, tmp, &t->regions)
                region_free(list_entry(it, struct region, node));
        list_for_each_safe (it, tmp, &t->dead_regions)
                region_free(list_entry(it, struct region, node));
}
