#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "base/available.h"
#include "base/pages.h"
#include "base/text.h"
#include "lib/arguments.h"
#include "lib/device.h"
#include "lib/pages.h"

/* --- going --- */

/* One small empty region is kept, so that taking and freeing one buffer in turn makes no region each time;
 * none of huge pages, which others may want. */
static bool is_worth_keeping(const struct tutti *t, const struct region *r) {
        if (!r->is_ours || r->pages != PAGES_UNSPECIFIED || r->size_bytes > REGION_MIN_BYTES ||
                region_refusal(r))
                return false;
        list_for_each (it, &t->regions) {
                const struct region *other = list_entry(it, struct region, node);
                if (other != r && other->is_ours && space_is_empty(&other->space))
                        return false;
        }
        return true;
}

/* Under `lock`. */
static void region_give_back(struct region *r, struct block *block) {
        struct tutti *t = r->t;
        space_give_back(&r->space, block);
        if (space_is_empty(&r->space) && !is_worth_keeping(t, r)) {
                list_unlink(&r->node);
                list_append(&t->dead_regions, &r->node);
        }
}

/* Under `lock`. */
static void buffer_go(struct tutti_buffer *b) {
        recall_forget(b->t, b, NULL);
        region_give_back(b->region, &b->block);
        list_unlink(&b->node);
        list_unlink(&b->piece);
        free(b);
}

void buffer_use(struct tutti_buffer *b) {
        b->n_uses++;
}

void buffer_end_use(struct tutti_buffer *b) {
        if (--b->n_uses == 0 && b->is_freed)
                buffer_go(b);
}

const struct failure *buffer_refusal(const struct tutti_buffer *b) {
        return region_refusal(b->region);
}

void buffer_drop(struct tutti_buffer *b) {
        b->is_freed = true;
        if (b->n_uses == 0)
                buffer_go(b);
}

void tutti_buffer_free(struct tutti_buffer *b) {
        if (!b || fork_guard_is_child(b->t->guard))
                return;
        struct tutti *t = b->t;
        pthread_mutex_lock(&t->lock);
        buffer_drop(b);
        pthread_mutex_unlock(&t->lock);
        regions_reap(t);
}

void buffers_free(struct tutti *t) {
        list_for_each_safe (it, tmp, &t->buffers)
                free(list_entry(it, struct tutti_buffer, node));
}

/* --- memory of ours --- */

struct cut {
        uint64_t n_bytes, align_bytes;
        enum pages pages; /* of the region to cut it from */
        const char *why;  /* with pages: why not those before; NULL: "" */
};

static uint64_t round_up(uint64_t n, uint64_t to) {
        return (n + to - 1) / to * to;
}

/* Under `lock`. */
static void buffer_cut(struct tutti_buffer *b, struct region *r) {
        b->region = r;
        list_append(&b->t->buffers, &b->node);
}

static bool cut_from_what_is_there(struct tutti_buffer *b, const struct cut *cut) {
        struct tutti *t = b->t;
        bool is_cut = false;
        pthread_mutex_lock(&t->lock);
        for (struct list *it = t->regions.next; !is_cut && it != &t->regions; it = it->next) {
                struct region *r = list_entry(it, struct region, node);
                is_cut = r->is_ours && r->pages == cut->pages && !region_refusal(r) &&
                         space_take(&r->space, &b->block, cut->n_bytes, cut->align_bytes);
                if (is_cut)
                        buffer_cut(b, r);
        }
        pthread_mutex_unlock(&t->lock);
        return is_cut;
}

/* Grows with what is there, so that regions stay few, but not beyond a sixteenth of the host's memory more
 * than needed, because all of it counts against the user's quota. */
static uint64_t size_of_next(struct tutti *t, const struct cut *cut) {
        uint64_t total = 0, limit = memory_total_bytes() / 16;
        pthread_mutex_lock(&t->lock);
        list_for_each (it, &t->regions) {
                const struct region *r = list_entry(it, struct region, node);
                total += r->is_ours && r->pages == cut->pages ? r->size_bytes : 0;
        }
        pthread_mutex_unlock(&t->lock);
        uint64_t wished = REGION_GROWTH * total;
        if (wished > limit)
                wished = limit;
        if (wished < REGION_MIN_BYTES)
                wished = REGION_MIN_BYTES;
        return wished > cut->n_bytes ? wished : cut->n_bytes;
}

static enum status cut_from_new(struct tutti_buffer *b, const struct cut *cut, struct error *err) {
        struct tutti *t = b->t;
        struct region *r;
        const struct region_plan plan = { .n_bytes = size_of_next(t, cut),
                .pages = cut->pages,
                .first_bytes = cut->n_bytes,
                .why = cut->why ? cut->why : "" };
        enum status status = region_make(t, &plan, &r, err);
        if (status != STATUS_OK)
                return status;
        pthread_mutex_lock(&t->lock);
        CHECK(space_take(&r->space, &b->block, cut->n_bytes, cut->align_bytes));
        list_append(&t->regions, &r->node);
        buffer_cut(b, r);
        pthread_mutex_unlock(&t->lock);
        return STATUS_OK;
}

/* What buffer_cut has done. */
static void buffer_uncut(struct tutti_buffer *b) {
        struct tutti *t = b->t;
        pthread_mutex_lock(&t->lock);
        region_give_back(b->region, &b->block);
        list_unlink(&b->node);
        pthread_mutex_unlock(&t->lock);
        b->region = NULL;
}

/* On failure it is as it was. */
static enum status buffer_back(struct tutti_buffer *b, const struct cut *cut, struct error *err) {
        enum status status = STATUS_OK;
        if (!cut_from_what_is_there(b, cut))
                status = cut_from_new(b, cut, err);
        if (status != STATUS_OK)
                return status;
        status = region_fill(b->region, &b->block, err);
        if (status != STATUS_OK)
                buffer_uncut(b);
        return status;
}

/* From the first of the three ways that is open. */
static enum status buffer_back_huge(struct tutti_buffer *b, const struct cut *ask, struct error *err) {
        static const enum pages ways[] = { PAGES_POOL, PAGES_TRANSPARENT, PAGES_ORDINARY };
        char buf[sizeof(b->region->why)];
        struct text why;
        enum status status = STATUS_NO_MEMORY;
        text_init(&why, buf, sizeof(buf));
        for (size_t i = 0; i < ARRAY_SIZE(ways) && status == STATUS_NO_MEMORY; i++) {
                if (i > 0)
                        pages_explain(ways[i - 1], ask->n_bytes, &why);
                const struct cut cut = { .n_bytes = ask->n_bytes,
                        .align_bytes = ask->align_bytes,
                        .pages = ways[i],
                        .why = why.buf };
                status = buffer_back(b, &cut, err);
        }
        return status;
}

struct tutti_buffer *buffer_new(struct tutti *t, size_t n_bytes) {
        struct tutti_buffer *b = calloc(1, sizeof(*b));
        if (!b)
                return NULL;
        b->t = t;
        b->n_bytes = n_bytes;
        list_init(&b->node);
        list_init(&b->block.node);
        list_init(&b->piece);
        return b;
}

static enum status no_memory_for_handle(struct error *err) {
        return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "%zu bytes for a handle are needed",
                sizeof(struct tutti_buffer));
}

static bool wants_huge_pages(const struct tutti *t, enum tutti_pages pages) {
        return pages == TUTTI_PAGES_HUGE || (pages == TUTTI_PAGES_DEFAULT && t->wants_huge_pages);
}

enum status buffer_make(
        struct tutti *t, const struct tutti_alloc_args *args, struct tutti_buffer **ret, struct error *err) {
        struct tutti_buffer *b = buffer_new(t, args->n_bytes);
        if (!b)
                return no_memory_for_handle(err);
        const uint64_t page = ordinary_page_bytes();
        const struct cut cut = { .n_bytes = round_up(args->n_bytes ? args->n_bytes : 1, BUFFER_ALIGN),
                .align_bytes = args->n_bytes >= page ? page : BUFFER_ALIGN };
        pthread_mutex_lock(&t->growing);
        enum status status =
                wants_huge_pages(t, args->pages) ? buffer_back_huge(b, &cut, err) : buffer_back(b, &cut, err);
        pthread_mutex_unlock(&t->growing);
        regions_reap(t);
        if (status == STATUS_OK)
                *ret = b;
        else
                free(b);
        return status;
}

static enum tutti_status check_alloc(struct tutti *t, const struct tutti_alloc_args *args) {
        if (args->n_bytes > INT64_MAX / 2)
                return thread_say(STATUS_INVALID, FIELD_SIZE,
                        "%zu bytes are asked for; a buffer has less than 2^62", args->n_bytes);
        if (args->pages > TUTTI_PAGES_HUGE)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "%u are no pages; TUTTI_PAGES_DEFAULT, TUTTI_PAGES_ORDINARY and TUTTI_PAGES_HUGE are",
                        args->pages);
        return connection_check(t);
}

enum tutti_status tutti_buffer_alloc_with(
        struct tutti *t, const struct tutti_alloc_args *given, struct tutti_buffer **ret) {
        struct tutti_alloc_args args;
        struct error err;
        if (!t || !ret || !given || !arguments_copy(&ARGUMENTS(&args), given, given->struct_size))
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "a connection is needed, a place for the buffer, and arguments that begin with "
                        "TUTTI_ALLOC or tutti_alloc_args_init");
        enum tutti_status status = check_alloc(t, &args);
        if (status != TUTTI_OK)
                return status;
        return buffer_make(t, &args, ret, &err) == STATUS_OK ? TUTTI_OK : thread_fail(&err);
}

enum tutti_status tutti_buffer_alloc(struct tutti *t, size_t n_bytes, struct tutti_buffer **ret) {
        return tutti_buffer_alloc_with(t, &TUTTI_ALLOC(.n_bytes = n_bytes), ret);
}

/* --- memory of the caller --- */

static enum status check_fd(int fd, size_t *n_bytes, struct error *err) {
        struct stat st;
        if (fstat(fd, &st) < 0)
                return refuse(err, STATUS_BAD_FD, FIELD_DESCRIPTOR, "%d is not an open descriptor", fd);
        if (fcntl(fd, F_GET_SEALS) < 0)
                return refuse(err, STATUS_BAD_FD, FIELD_DESCRIPTOR, "descriptor %d is not a memfd", fd);
        if (*n_bytes > (uint64_t)st.st_size) {
                refuse(err, STATUS_INVALID, FIELD_SIZE, "%zu bytes asked for, and the memfd has %lld",
                        *n_bytes, (long long)st.st_size);
                return STATUS_INVALID;
        }
        if (*n_bytes == 0)
                *n_bytes = (size_t)st.st_size;
        if (*n_bytes == 0)
                return refuse(err, STATUS_INVALID, FIELD_SIZE, "the memfd is empty");
        return STATUS_OK;
}

enum status access_of(enum tutti_access access, enum access *ret, struct error *err) {
        switch (access) {
        case TUTTI_INOUT: *ret = ACCESS_INOUT; return STATUS_OK;
        case TUTTI_IN: *ret = ACCESS_IN; return STATUS_OK;
        case TUTTI_OUT: *ret = ACCESS_OUT; return STATUS_OK;
        }
        return refuse(err, STATUS_INVALID, FIELD_ACCESS,
                "%d is no access; TUTTI_INOUT, TUTTI_IN and TUTTI_OUT are", (int)access);
}

/* What tuttid only writes, the caller only reads. */
static enum status map_adopted(struct region *r, int fd, enum access access, struct error *err) {
        int protection = access == ACCESS_OUT ? PROT_READ : PROT_READ | PROT_WRITE;
        void *data = mmap(NULL, r->size_bytes, protection, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
                return refuse(err, STATUS_NO_MEMORY, FIELD_SIZE, "%llu bytes could not be mapped: %m",
                        (unsigned long long)r->size_bytes);
        r->data = data;
        uint64_t pool_page = fd_pool_page_bytes(fd);
        if (pool_page > 0)
                r->page_bytes = pool_page;
        return STATUS_OK;
}

void buffer_take_region(struct tutti_buffer *b, struct region *r) {
        pthread_mutex_lock(&b->t->lock);
        list_append(&b->t->regions, &r->node);
        CHECK(space_take(&r->space, &b->block, b->n_bytes, 1));
        buffer_cut(b, r);
        pthread_mutex_unlock(&b->t->lock);
}

/* `b` gets the whole of it. */
static enum status buffer_adopt(struct tutti_buffer *b, int fd, enum access access, struct error *err) {
        struct tutti *t = b->t;
        struct region *r;
        enum status status = region_adopt(t, fd, b->n_bytes, access, &r, err);
        if (status != STATUS_OK)
                return status;
        status = map_adopted(r, fd, access, err);
        if (status == STATUS_OK)
                buffer_take_region(b, r);
        else
                region_bury(t, r);
        return status;
}

enum tutti_status tutti_buffer_from_fd(
        struct tutti *t, int fd, size_t n_bytes, enum tutti_access access, struct tutti_buffer **ret) {
        struct error err;
        enum access wire_access = ACCESS_UNSPECIFIED;
        if (!t || !ret)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "tutti_buffer_from_fd needs a connection and a place for the buffer");
        enum tutti_status checked = connection_check(t);
        if (checked != TUTTI_OK)
                return checked;
        if (access_of(access, &wire_access, &err) != STATUS_OK || check_fd(fd, &n_bytes, &err) != STATUS_OK)
                return thread_fail(&err);
        struct tutti_buffer *b = buffer_new(t, n_bytes);
        if (!b) {
                (void)!no_memory_for_handle(&err);
                return thread_fail(&err);
        }
        enum status status = buffer_adopt(b, fd, wire_access, &err);
        regions_reap(t);
        if (status != STATUS_OK) {
                free(b);
                return thread_fail(&err);
        }
        *ret = b;
        return TUTTI_OK;
}

/* --- looking --- */

void *tutti_buffer_data(const struct tutti_buffer *b) {
        if (b && b->region->device)
                return (void *)(uintptr_t)b->region->device->pointer; /* NOLINT(performance-no-int-to-ptr) */
        return b ? b->region->data + b->block.offset_bytes : NULL;
}

size_t tutti_buffer_bytes(const struct tutti_buffer *b) {
        return b ? b->n_bytes : 0;
}

size_t tutti_buffer_page_bytes(const struct tutti_buffer *b) {
        return b && !b->region->device ? b->region->page_bytes : 0;
}

const char *tutti_buffer_fallback(const struct tutti_buffer *b) {
        return b ? b->region->why : "";
}
