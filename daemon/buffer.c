/* Buffers live in one table by (session, id), and on a list of their session's. A buffer that was
 * unregistered while leased leaves both and lives on by its leases alone; `n_leases` and `is_doomed` decide
 * when its release chore starts. The chore is embedded, so letting go never needs memory. */
#include "buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/table.h"
#include "base/text.h"

enum buffer_state { BUFFER_IMPORTING, BUFFER_READY, BUFFER_FAILED };

struct buffer {
        struct chore chore; /* first: a chore that comes back is its buffer */
        bool is_stranger;   /* only a descriptor to be closed */
        struct {
                uint64_t session, id;
        } key;
        uint64_t request, n_bytes, file;
        enum buffer_state state;
        enum status status; /* of BUFFER_FAILED */
        enum access access;
        uint32_t n_leases;
        bool is_doomed, is_listed;
        bool is_closing; /* its import failed, and its chore is out to close the descriptor */
        struct charge descriptor, bytes;
        struct holder *holder;
        struct list holder_link;
        struct story *story; /* NULL: nothing to tell */
        struct told told;
        UT_hash_handle hh;
};

/* Of host memory through which a device's is copied, or that has not the pages that were wished for: for
 * people. */
struct story {
        char stands_for[48], why[160];
};

/* What one session holds. */
struct holder {
        uint64_t session;
        struct list buffers;
        uint32_t n_ready, n_importing;
        uint64_t ready_bytes;
        UT_hash_handle hh;
};

struct buffers {
        struct quotas *quotas;
        struct buffer *by_id;
        struct holder *holders;
        uint32_t n_ready, n_importing;
        uint32_t n_short; /* of the ready ones: huge pages were asked for, and they have none of the pool */
        struct buffer *last; /* found: a batch names the same one again and again */
        struct list told; /* struct told: the ready ones that people are told of, and the places of readers */
};

int buffers_new(struct buffers **ret, struct quotas *quotas) {
        struct buffers *b = calloc(1, sizeof(*b));
        if (!b)
                return -ENOMEM;
        b->quotas = quotas;
        list_init(&b->told);
        *ret = b;
        return 0;
}

void buffers_free(struct buffers *b) {
        if (!b)
                return;
        CHECK(!b->by_id && !b->holders && list_is_empty(&b->told));
        free(b);
}

static struct buffer *buffers_find(struct buffers *b, uint64_t session, uint64_t id) {
        struct {
                uint64_t session, id;
        } key = { session, id };
        struct buffer *found = b->last;
        if (found && found->key.session == session && found->key.id == id)
                return found;
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): it loses its way in uthash */
        HASH_FIND(hh, b->by_id, &key, sizeof(key), found);
        if (found)
                b->last = found;
        return found;
}

static struct holder *buffers_find_holder(const struct buffers *b, uint64_t session) {
        struct holder *h;
        HASH_FIND(hh, b->holders, &session, sizeof(session), h);
        return h;
}

static struct holder *buffers_holder(struct buffers *b, uint64_t session) {
        struct holder *h = buffers_find_holder(b, session);
        if (h)
                return h;
        h = calloc(1, sizeof(*h));
        if (!h)
                return NULL;
        h->session = session;
        list_init(&h->buffers);
        bool is_in = true;
        TABLE_ADD(b->holders, h, session, is_in);
        if (!is_in) {
                free(h);
                return NULL;
        }
        return h;
}

static void holder_drop_if_empty(struct buffers *b, struct holder *h) {
        if (!list_is_empty(&h->buffers))
                return;
        HASH_DEL(b->holders, h);
        free(h);
}

static void buffer_free(struct buffer *buf) {
        charge_release(&buf->descriptor);
        charge_release(&buf->bytes);
        free(buf->story);
        free(buf);
}

/* As its client says. */
static bool buffer_is_short(const struct buffer *buf) {
        return buf->chore.pages == PAGES_TRANSPARENT || buf->chore.pages == PAGES_ORDINARY;
}

static uint64_t pool_page_bytes(const struct buffer *buf) {
        return buf->chore.memory && buf->chore.path == PATH_MEMFD ? buf->chore.memory->pool_page_bytes : 0;
}

/* What there is to tell, though its memory is the host's and ordinary. */
static bool buffer_has_something_to_tell(const struct buffer *buf) {
        return buf->chore.path != PATH_MEMFD || buf->story || pool_page_bytes(buf) > 0;
}

/* The numbers of its holder and of all, by the state it is in. */
static void buffer_count(struct buffers *b, struct buffer *buf) {
        switch (buf->state) {
        case BUFFER_IMPORTING:
                b->n_importing++;
                buf->holder->n_importing++;
                break;
        case BUFFER_READY:
                b->n_ready++;
                b->n_short += buffer_is_short(buf);
                buf->holder->n_ready++;
                buf->holder->ready_bytes += buf->n_bytes;
                if (buffer_has_something_to_tell(buf))
                        list_append(&b->told, &buf->told.link);
                break;
        case BUFFER_FAILED: break;
        }
}

static void buffer_uncount(struct buffers *b, struct buffer *buf) {
        switch (buf->state) {
        case BUFFER_IMPORTING:
                b->n_importing--;
                buf->holder->n_importing--;
                break;
        case BUFFER_READY:
                b->n_ready--;
                b->n_short -= buffer_is_short(buf);
                buf->holder->n_ready--;
                buf->holder->ready_bytes -= buf->n_bytes;
                list_unlink(&buf->told.link);
                break;
        case BUFFER_FAILED: break;
        }
}

static void buffer_set_state(struct buffers *b, struct buffer *buf, enum buffer_state state) {
        if (buf->is_listed)
                buffer_uncount(b, buf);
        buf->state = state;
        if (buf->is_listed)
                buffer_count(b, buf);
}

/* Out of sight: its id names nothing any more. */
static void buffer_unlist(struct buffers *b, struct buffer *buf) {
        if (!buf->is_listed)
                return;
        buf->is_listed = false;
        if (b->last == buf)
                b->last = NULL;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it loses its way in uthash */
        HASH_DEL(b->by_id, buf);
        list_unlink(&buf->holder_link);
        buffer_uncount(b, buf);
        holder_drop_if_empty(b, buf->holder);
        buf->holder = NULL;
}

static bool buffer_list(struct buffers *b, struct buffer *buf) {
        buf->holder = buffers_holder(b, buf->key.session);
        if (!buf->holder)
                return false;
        bool is_in = true;
        TABLE_ADD(b->by_id, buf, key, is_in);
        if (!is_in) {
                holder_drop_if_empty(b, buf->holder);
                return false;
        }
        list_append(&buf->holder->buffers, &buf->holder_link);
        buf->is_listed = true;
        buffer_count(b, buf);
        return true;
}

/* The descriptor of device memory is a stranger's: when nothing else is left of it, it goes to the closers.
 */
static void buffer_start_chore(struct buffer *buf, enum chore_kind kind, struct list *chores) {
        bool is_only_fd = kind == CHORE_RELEASE && buf->chore.path != PATH_MEMFD && !buf->chore.memory;
        buf->chore.kind = is_only_fd ? CHORE_CLOSE : kind;
        list_append(chores, &buf->chore.link);
}

/* The memory goes as soon as nothing holds it: no id, no lease, no import under way. */
static void buffer_go_if_done(struct buffer *buf, struct list *chores) {
        if (!buf->is_doomed || buf->n_leases > 0 || buf->state == BUFFER_IMPORTING || buf->is_closing)
                return;
        if (buf->state == BUFFER_READY)
                buffer_start_chore(buf, CHORE_RELEASE, chores);
        else
                buffer_free(buf);
}

static void buffer_doom(struct buffers *b, struct buffer *buf, struct list *chores) {
        buffer_unlist(b, buf);
        buf->is_doomed = true;
        buffer_go_if_done(buf, chores);
}

static struct buffer *buffer_new(uint64_t session, uint64_t id, uint32_t uid, int fd) {
        struct buffer *buf = calloc(1, sizeof(*buf));
        if (!buf)
                return NULL;
        list_init(&buf->chore.link);
        list_init(&buf->holder_link);
        list_init(&buf->told.link);
        buf->told.buffer = buf;
        buf->key.session = buf->chore.session = session;
        buf->key.id = buf->chore.buffer = id;
        buf->chore.uid = uid;
        buf->chore.fd = fd;
        return buf;
}

enum status buffer_close_stranger(
        struct buffers *b, uint64_t session, uint32_t uid, int fd, struct list *chores, struct error *err) {
        struct buffer *buf = buffer_new(session, 0, uid, fd);
        if (!buf) {
                /* Rather a slow close here than a descriptor for ever. */
                fd_close(&fd);
                return error_set(err, STATUS_NO_MEMORY, FIELD_DESCRIPTOR, "tuttid is short of memory");
        }
        buf->is_stranger = true;
        enum status status =
                quota_charge_reserve(b->quotas, &buf->descriptor, uid, QUOTA_DESCRIPTORS, 1, err);
        buffer_start_chore(buf, CHORE_CLOSE, chores);
        return status;
}

/* Equal for what is surely the same device memory; descriptors of one allocation may well differ. */
static uint64_t identify_device_memory(const struct buffer_ask *ask) {
        static uint64_t last;
        struct statx st;
        uint64_t hash = UINT64_C(14695981039346656037) ^ ask->reg->handle_offset_bytes;
        if (ask->path == PATH_CUDA_IPC) {
                for (size_t i = 0; i < ask->reg->n_handle_bytes; i++)
                        hash = (hash ^ ask->reg->handle[i]) * UINT64_C(1099511628211);
                return hash | UINT64_C(1) << 63;
        }
        /* Of a file of whatever kind: a server that is far or dead is not asked. */
        if (ask->fd >= 0 &&
                statx(ask->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_TYPE, &st) == 0 &&
                S_ISREG(st.stx_mode))
                return st.stx_ino ^ (uint64_t)st.stx_dev_minor << 40 ^ (uint64_t)st.stx_dev_major << 56;
        return ++last | UINT64_C(3) << 62;
}

/* What may be known of the descriptor without touching the memory behind it. */
static enum status buffer_check_fd(const struct buffer_ask *ask, uint64_t *ret_file, struct error *err) {
        struct stat st;
        if (ask->path != PATH_MEMFD) {
                *ret_file = identify_device_memory(ask);
                return STATUS_OK;
        }
        if (ask->fd < 0)
                return error_set(err, STATUS_BAD_FD, FIELD_DESCRIPTOR,
                        "no descriptor came with the registration of buffer %llu",
                        (unsigned long long)ask->reg->buffer);
        if (fcntl(ask->fd, F_GET_SEALS) < 0 || fstat(ask->fd, &st) < 0)
                return error_set(err, STATUS_BAD_FD, FIELD_DESCRIPTOR,
                        "the descriptor of buffer %llu is not a memfd; make it with "
                        "memfd_create(MFD_ALLOW_SEALING) or tutti_buffer_alloc",
                        (unsigned long long)ask->reg->buffer);
        *ret_file = (uint64_t)st.st_ino ^ (uint64_t)st.st_dev << 40;
        return STATUS_OK;
}

static enum status buffer_check_ask(const struct buffer_ask *ask, struct error *err) {
        const struct msg_register *r = ask->reg;
        if (r->buffer == 0)
                return error_set(err, STATUS_INVALID, FIELD_BUFFER, "buffer id 0 is reserved");
        if (ask->refused)
                return error_set(err, ask->refused->status, ask->refused->field, "%s", ask->refused->detail);
        if (r->kind != BUFFER_KIND_MEMFD && ask->path == PATH_MEMFD)
                return error_set(err, STATUS_UNSUPPORTED, FIELD_BUFFER,
                        "this tuttid takes memfds only; it has no GPU backend");
        if (r->device[0] != '\0' && ask->path == PATH_MEMFD)
                return error_set(err, STATUS_UNSUPPORTED, FIELD_BUFFER,
                        "device \"%s\": this tuttid takes host memory only", r->device);
        switch (r->access) {
        case ACCESS_IN:
        case ACCESS_OUT:
        case ACCESS_INOUT: return STATUS_OK;
        case ACCESS_UNSPECIFIED: break;
        }
        return error_set(err, STATUS_INVALID, FIELD_ACCESS, "say whether the buffer is in, out or inout");
}

static enum status buffer_charge(
        struct buffers *b, struct buffer *buf, uint64_t granularity, struct error *err) {
        const uint64_t n_bytes = quota_whole_bytes(buf->n_bytes, granularity);
        enum status status =
                quota_charge(b->quotas, &buf->descriptor, buf->chore.uid, QUOTA_DESCRIPTORS, 1, err);
        if (status != STATUS_OK)
                return status;
        return quota_charge(b->quotas, &buf->bytes, buf->chore.uid, QUOTA_MAPPED_BYTES, n_bytes, err);
}

/* Refused: the id is kept with the reason, at the price of a descriptor, so that nobody fills us with them.
 */
static void buffer_keep_failed(
        struct buffers *b, struct buffer *buf, enum status status, const struct error *err) {
        charge_release(&buf->bytes);
        if (!buf->descriptor.user && quota_charge(b->quotas, &buf->descriptor, buf->chore.uid,
                                             QUOTA_DESCRIPTORS, 1, NULL) != STATUS_OK) {
                buffer_free(buf);
                return;
        }
        buf->state = BUFFER_FAILED;
        buf->status = status;
        snprintf(
                buf->chore.why, sizeof(buf->chore.why), "%.*s", (int)sizeof(buf->chore.why) - 1, err->detail);
        if (buf->key.id == 0 || !buffer_list(b, buf))
                buffer_free(buf);
}

static enum status fail_memory(struct error *err) {
        return error_set(err, STATUS_NO_MEMORY, FIELD_BUFFER, "tuttid is short of memory");
}

static bool buffer_describe_ask(struct buffer *buf, const struct buffer_ask *ask) {
        const struct msg_register *r = ask->reg;
        buf->chore.path = ask->path;
        buf->chore.device = ask->device;
        buf->chore.handle_offset_bytes = r->handle_offset_bytes;
        if (r->n_handle_bytes == sizeof(buf->chore.handle))
                memcpy(buf->chore.handle, r->handle, sizeof(buf->chore.handle));
        buf->chore.pages = ask->path == PATH_MEMFD ? r->pages : PAGES_UNSPECIFIED;
        bool stands_for = r->stands_for && r->stands_for[0] != '\0';
        if (!stands_for && !buffer_is_short(buf))
                return true;
        buf->story = calloc(1, sizeof(*buf->story));
        if (!buf->story)
                return false;
        text_copy(buf->story->stands_for, sizeof(buf->story->stands_for), stands_for ? r->stands_for : "");
        text_copy(buf->story->why, sizeof(buf->story->why), r->why ? r->why : "");
        return true;
}

enum status buffer_register(
        struct buffers *b, const struct buffer_ask *ask, struct list *chores, struct error *err) {
        uint64_t id = ask->reg->buffer;
        if (id != 0 && buffers_find(b, ask->session, id))
                return error_set(err, STATUS_LIMIT, FIELD_BUFFER,
                        "buffer id %llu is taken; ids are used once", (unsigned long long)id);
        struct buffer *buf = buffer_new(ask->session, id, ask->uid, -1);
        if (!buf)
                return fail_memory(err);
        buf->request = ask->request;
        buf->n_bytes = buf->chore.n_bytes = ask->reg->size_bytes;
        buf->access = buf->chore.access = ask->reg->access;
        enum status status = buffer_check_ask(ask, err);
        if (status == STATUS_OK && !buffer_describe_ask(buf, ask)) {
                buffer_free(buf);
                return fail_memory(err);
        }
        if (status == STATUS_OK)
                status = buffer_check_fd(ask, &buf->file, err);
        if (status == STATUS_OK)
                status = buffer_charge(b, buf, ask->granularity, err);
        if (status != STATUS_OK) {
                buffer_keep_failed(b, buf, status, err);
                return status;
        }
        if (!buffer_list(b, buf)) {
                buffer_free(buf);
                return fail_memory(err);
        }
        buf->chore.fd = ask->fd;
        buffer_start_chore(buf, CHORE_IMPORT, chores);
        return STATUS_OK;
}

/* The import has ended: ready, failed, or nobody wants it any more. */
static void buffer_imported(
        struct buffers *b, struct buffer *buf, struct list *chores, struct buffer_news *ret) {
        *ret = (struct buffer_news){ .session = buf->key.session,
                .request = buf->request,
                .buffer = buf->key.id,
                .status = buf->chore.status,
                .is_device = buf->chore.path != PATH_MEMFD,
                .made_fd = buf->chore.path == PATH_VMM_MADE ? buf->chore.fd : -1,
                .made_bytes = buf->chore.n_bytes };
        memcpy(ret->why, buf->chore.why, sizeof(ret->why));
        buffer_set_state(b, buf, buf->chore.status == STATUS_OK ? BUFFER_READY : BUFFER_FAILED);
        if (buf->state == BUFFER_FAILED) {
                buf->status = buf->chore.status;
                buf->is_closing = true;
                charge_release(&buf->bytes);
                buffer_start_chore(buf, CHORE_RELEASE, chores);
        }
        buffer_go_if_done(buf, chores);
}

bool buffer_chore_done(struct buffers *b, struct chore *chore, struct list *chores, struct buffer_news *ret) {
        struct buffer *buf = (struct buffer *)(void *)chore;
        if (chore->kind == CHORE_IMPORT) {
                buffer_imported(b, buf, chores, ret);
                return true;
        }
        if (chore->kind == CHORE_RELEASE &&
                chore->fd >= 0) { /* of device memory, of which nothing is left but that */
                buffer_start_chore(buf, CHORE_CLOSE, chores);
        } else if (buf->is_closing) {
                buf->is_closing = false;
                buffer_go_if_done(buf, chores);
        } else {
                buffer_free(buf);
        }
        return false;
}

enum status buffer_unregister(
        struct buffers *b, uint64_t session, uint64_t id, struct list *chores, struct error *err) {
        struct buffer *buf = buffers_find(b, session, id);
        if (!buf)
                return error_set(err, STATUS_NOT_FOUND, FIELD_BUFFER, "buffer %llu is not registered",
                        (unsigned long long)id);
        buffer_doom(b, buf, chores);
        return STATUS_OK;
}

void buffers_end_session(struct buffers *b, uint64_t session, struct list *chores) {
        struct holder *h;
        while ((h = buffers_find_holder(b, session)))
                buffer_doom(b, list_entry(h->buffers.next, struct buffer, holder_link), chores);
}

bool buffers_is_importing(const struct buffers *b, uint64_t session) {
        const struct holder *h = b->n_importing ? buffers_find_holder(b, session) : NULL;
        return h && h->n_importing > 0;
}

static enum status buffer_check_use(const struct buffer *buf, enum buffer_use use, struct error *err) {
        if (buf->state == BUFFER_FAILED)
                return error_set(err, buf->status, FIELD_BUFFER,
                        "buffer %llu was refused when it was registered: %s", (unsigned long long)buf->key.id,
                        buf->chore.why);
        if (use == BUFFER_WRITE && buf->access == ACCESS_IN)
                return error_set(err, STATUS_INVALID, FIELD_ACCESS,
                        "buffer %llu is registered for input only and is named as an output",
                        (unsigned long long)buf->key.id);
        if (use == BUFFER_READ && buf->access == ACCESS_OUT)
                return error_set(err, STATUS_INVALID, FIELD_ACCESS,
                        "buffer %llu is registered for output only and is named as an input",
                        (unsigned long long)buf->key.id);
        return STATUS_OK;
}

enum status buffer_lease(struct buffers *b, uint64_t session, struct place *place, enum buffer_use use,
        uint64_t extent, uint64_t element_bytes, struct error *err) {
        struct buffer *buf = buffers_find(b, session, place->buffer);
        if (!buf || buf->state == BUFFER_IMPORTING)
                return error_set(err, STATUS_NOT_FOUND, FIELD_BUFFER, "buffer %llu is not registered",
                        (unsigned long long)place->buffer);
        enum status status = buffer_check_use(buf, use, err);
        if (status != STATUS_OK)
                return status;
        if (place->offset_bytes % element_bytes != 0)
                return error_set(err, STATUS_INVALID, FIELD_OFFSET,
                        "offset %llu is not a multiple of the element's %llu bytes",
                        (unsigned long long)place->offset_bytes, (unsigned long long)element_bytes);
        if (!span_make(place->offset_bytes, extent, element_bytes, buf->n_bytes, &place->span))
                return error_set(err, STATUS_INVALID, FIELD_SIZE,
                        "%llu elements of %llu bytes from offset %llu on do not fit into buffer %llu of %llu "
                        "bytes",
                        (unsigned long long)extent, (unsigned long long)element_bytes,
                        (unsigned long long)place->offset_bytes, (unsigned long long)place->buffer,
                        (unsigned long long)buf->n_bytes);
        place->lease = buf;
        place->memory = buf->chore.memory;
        place->file = buf->file;
        buf->n_leases++;
        return STATUS_OK;
}

void buffer_unlease(struct buffers *b, struct place *place, struct list *chores) {
        struct buffer *buf = place->lease;
        if (!buf)
                return;
        place->lease = NULL;
        place->memory = NULL;
        buf->n_leases--;
        buffer_go_if_done(buf, chores);
}

static struct buffer_description describe(const struct buffer *buf) {
        return (struct buffer_description){ .session = buf->key.session,
                .id = buf->key.id,
                .n_bytes = buf->n_bytes,
                .uid = buf->chore.uid,
                .path = buf->chore.path,
                .device = buf->chore.device,
                .stands_for = buf->story ? buf->story->stands_for : "",
                .why = buf->story ? buf->story->why : "",
                .pages = buf->chore.pages,
                .pool_page_bytes = pool_page_bytes(buf) };
}

bool buffers_tell(struct buffers *b, struct told *at, struct buffer_description *ret) {
        struct list *next = list_is_empty(&at->link) ? b->told.next : at->link.next;
        while (next != &b->told && !list_entry(next, struct told, link)->buffer) /* another reader */
                next = next->next;
        list_unlink(&at->link);
        if (next == &b->told)
                return false;
        list_append(next->next, &at->link); /* before that one */
        *ret = describe(list_entry(next, struct told, link)->buffer);
        return true;
}

bool buffers_describe_short(const struct buffers *b, const uint32_t *uid, struct buffer_shortage *ret) {
        *ret = (struct buffer_shortage){ 0 };
        if (b->n_short == 0)
                return false;
        list_for_each (it, &b->told) { /* each of them has a story */
                const struct buffer *buf = list_entry(it, struct told, link)->buffer;
                if (!buf || !buffer_is_short(buf) || (uid && *uid != buf->chore.uid))
                        continue;
                if (ret->n_buffers++ == 0)
                        ret->first = describe(buf);
                ret->n_bytes += buf->n_bytes;
        }
        return ret->n_buffers > 0;
}

uint32_t buffers_count(const struct buffers *b) {
        return b->n_ready;
}

uint32_t buffers_count_session(const struct buffers *b, uint64_t session, uint64_t *ret_bytes) {
        const struct holder *h = buffers_find_holder(b, session);
        *ret_bytes = h ? h->ready_bytes : 0;
        return h ? h->n_ready : 0;
}
