/* What a session says: at once, or kept until its client reads. */
#include "session-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"

#define MAX_QUEUE_BYTES (8u << 20)
#define OUTGOING_BYTES  16384

static void outgoing_drop(struct outgoing *o) {
        struct parcel parcel;
        memcpy(&parcel, o->bytes + o->begin, sizeof(parcel));
        charge_release(&parcel.descriptor);
        fd_close(&parcel.fd);
        o->begin += sizeof(parcel) + parcel.n_bytes;
}

void outgoing_free(struct outgoing *o) {
        while (o->begin < o->end)
                outgoing_drop(o);
        charge_release(&o->memory);
        free(o);
}

/* In the tables, with both watches running. */
static int errno_of(enum status status) {
        if (status == STATUS_QUOTA)
                return -EDQUOT;
        return status == STATUS_OK ? 0 : -ENOMEM;
}

/* With room for `n_bytes` at least. */
static int outgoing_new(struct connection *c, size_t n_bytes, struct outgoing **ret) {
        size_t capacity = n_bytes > OUTGOING_BYTES ? n_bytes : OUTGOING_BYTES;
        struct outgoing *o = malloc(sizeof(*o) + capacity);
        if (!o)
                return -ENOMEM;
        *o = (struct outgoing){ .capacity = capacity };
        list_init(&o->link);
        int r = errno_of(quota_charge(c->sessions->quotas, &o->memory, c->session.uid, QUOTA_REPLY_BYTES,
                sizeof(*o) + capacity, NULL));
        if (r < 0) {
                free(o);
                return r;
        }
        list_append(&c->outgoing, &o->link);
        *ret = o;
        return 0;
}

/* The last one, or a new one where that has no room. */
static int outgoing_get(struct connection *c, size_t n_bytes, struct outgoing **ret) {
        if (!list_is_empty(&c->outgoing)) {
                *ret = list_entry(c->outgoing.prev, struct outgoing, link);
                if (n_bytes <= (*ret)->capacity - (*ret)->end)
                        return 0;
        }
        return outgoing_new(c, n_bytes, ret);
}

static int parcel_take_fd(struct parcel *parcel, struct connection *c, int fd) {
        int r = errno_of(quota_charge(
                c->sessions->quotas, &parcel->descriptor, c->session.uid, QUOTA_DESCRIPTORS, 1, NULL));
        if (r < 0)
                return r;
        parcel->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (parcel->fd >= 0)
                return 0;
        charge_release(&parcel->descriptor);
        return -ENOMEM;
}

static int connection_queue(
        struct connection *c, const void *bytes, size_t n_bytes, const int *fds, uint32_t n_fds) {
        struct parcel parcel = { .n_bytes = (uint32_t)n_bytes, .fd = -1 };
        struct outgoing *o;
        if (c->queued_bytes + n_bytes > MAX_QUEUE_BYTES)
                return -ENOBUFS;
        int r = n_fds > 0 ? parcel_take_fd(&parcel, c, fds[0]) : 0;
        if (r == 0)
                r = outgoing_get(c, sizeof(parcel) + n_bytes, &o);
        if (r < 0) {
                charge_release(&parcel.descriptor);
                fd_close(&parcel.fd);
                return r;
        }
        memcpy(o->bytes + o->end, &parcel, sizeof(parcel));
        memcpy(o->bytes + o->end + sizeof(parcel), bytes, n_bytes);
        o->end += sizeof(parcel) + n_bytes;
        c->queued_bytes += n_bytes;
        connection_watch(c);
        return 0;
}

/* Whether the packet is to be kept: the socket is full, or the kernel is short of memory. What a peer that is
 * gone does not get needs no keeping: its end comes by other ways. */
static bool must_wait(int r) {
        return r == -EAGAIN || r == -ENOBUFS || r == -ENOMEM;
}

/* Whether poll(2) would call the socket writable, which it does while no more than a quarter of it waits to
 * be read. Only then it gets descriptors: all that nobody has taken count as ours. */
static bool has_room_for_fd(const struct connection *c) {
        uint32_t info[SK_MEMINFO_VARS];
        socklen_t n = sizeof(info);
        return getsockopt(c->socket, SOL_SOCKET, SO_MEMINFO, info, &n) < 0 ||
               info[SK_MEMINFO_WMEM_ALLOC] <= info[SK_MEMINFO_SNDBUF] / 4;
}

/* As channel_send; -ETOOMANYREFS: clients have taken too few of the descriptors that were sent to them. */
static int connection_send(struct connection *c, const void *bytes, size_t n_bytes, int fd) {
        if (fd >= 0 && !has_room_for_fd(c))
                return -EAGAIN;
        return channel_send(c->socket, bytes, n_bytes, &fd, fd >= 0);
}

/* Sends the first parcel; whether it is gone. */
static bool connection_send_first(struct connection *c, struct outgoing *o) {
        struct parcel parcel;
        memcpy(&parcel, o->bytes + o->begin, sizeof(parcel));
        const uint8_t *bytes = o->bytes + o->begin + sizeof(parcel);
        int r = connection_send(c, bytes, parcel.n_bytes, parcel.fd);
        if (must_wait(r))
                return false;
        if (r == -ETOOMANYREFS)
                shutdown(c->socket, SHUT_RDWR); /* waiting for it would take the whole of a core */
        c->queued_bytes -= parcel.n_bytes;
        outgoing_drop(o);
        return true;
}

void connection_flush(struct connection *c) {
        while (!list_is_empty(&c->outgoing)) {
                struct outgoing *o = list_entry(c->outgoing.next, struct outgoing, link);
                while (o->begin < o->end)
                        if (!connection_send_first(c, o))
                                return;
                list_unlink(&o->link);
                outgoing_free(o);
        }
        connection_watch(c);
        session_mark(c->sessions, &c->session, SESSION_CAUGHT_UP);
}

bool session_is_behind(const struct session *session) {
        return !list_is_empty(&connection_of(session)->outgoing);
}

int session_send(struct sessions *s, struct session *session, const void *bytes, size_t n_bytes,
        const int *fds, uint32_t n_fds) {
        struct connection *c = connection_of(session);
        CHECK(n_fds <= 1);
        if (c->is_closing)
                return 0;
        if (list_is_empty(&c->outgoing)) {
                int r = connection_send(c, bytes, n_bytes, n_fds > 0 ? fds[0] : -1);
                if (!must_wait(r))
                        return r == -ETOOMANYREFS ? r : 0;
        }
        return connection_queue(c, bytes, n_bytes, fds, n_fds);
}
