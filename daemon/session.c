/* A session embeds two libuv handles (the socket's poll and the pidfd's), so it dies in two acts:
 * session_close takes it out of sight and closes the handles; the last close callback frees it.
 *
 * The kernel closes a dying process's descriptors a moment before its pidfd becomes readable. So EOF alone is
 * not the end: the session lingers for 50 ms, and is "disconnected" only if the process outlives that. */
#include "session-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "session-process.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; Debian 12's headers lack it */
#endif

#define OVERFLOW_UID        65534
#define LINGER_NS           (50 * NS_PER_MS)
#define DESCRIPTORS_CHARGED 2 /* socket and pidfd */

int sessions_new(struct sessions **ret, uv_loop_t *loop, struct quotas *quotas, const struct doorbell *bell) {
        struct sessions *s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->loop = loop;
        s->quotas = quotas;
        s->bell = *bell;
        list_init(&s->all);
        turns_init(&s->ready);
        heap_init(&s->lingering);
        *ret = s;
        return 0;
}

void sessions_free(struct sessions *s) {
        if (!s)
                return;
        CHECK(list_is_empty(&s->all));
        heap_deinit(&s->lingering);
        free(s);
}

/* --- events --- */

void session_mark(struct sessions *s, struct session *session, enum session_event event) {
        struct connection *c = connection_of(session);
        if (c->is_closing)
                return;
        session->events |= event;
        if (list_is_empty(&c->ready_link)) { /* who waits for its turn keeps its place */
                turns_put(&s->ready, session->uid, &c->ready_link);
                s->n_ready++;
        }
        doorbell_ring(&s->bell);
}

struct session *sessions_take_ready(struct sessions *s) {
        struct list *first = turns_take(&s->ready);
        if (!first)
                return NULL;
        s->n_ready--;
        return &list_entry(first, struct connection, ready_link)->session;
}

uint32_t sessions_n_ready(const struct sessions *s) {
        return s->n_ready;
}

unsigned int session_take_events(struct session *session) {
        unsigned int events = session->events;
        session->events = 0;
        return events;
}

static void connection_on_io(uv_poll_t *handle, int status, int events);

void connection_watch(struct connection *c) {
        int events = 0;
        bool is_read = !c->is_paused || (c->watched & UV_READABLE && !c->has_missed);
        if (is_read && !c->is_eof)
                events |= UV_READABLE;
        if (!list_is_empty(&c->outgoing))
                events |= UV_WRITABLE;
        if (!c->has_io || c->is_closing || events == c->watched)
                return;
        c->watched = events;
        if (events)
                uv_poll_start(&c->io, events, connection_on_io);
        else
                uv_poll_stop(&c->io);
}

static void connection_on_io(uv_poll_t *handle, int status, int events) {
        struct connection *c = handle->data;
        if (status < 0)
                c->watched = 0; /* libuv has stopped it */
        if (status < 0 ||
                events & UV_WRITABLE) /* a peer that is gone takes everything: nothing waits for it */
                connection_flush(c);
        if (status >= 0 && !(events & UV_READABLE))
                return;
        if (!c->is_paused) {
                session_mark(c->sessions, &c->session, SESSION_READABLE);
                return;
        }
        c->has_missed = true;
        connection_watch(c);
}

static void connection_on_death(uv_poll_t *handle, int status, int events) {
        struct connection *c = handle->data;
        uv_poll_stop(handle);
        session_mark(c->sessions, &c->session, SESSION_DEAD);
}

/* --- life --- */

static void connection_free(struct connection *c) {
        fd_close(&c->socket);
        fd_close(&c->pidfd);
        charge_release(&c->connection);
        charge_release(&c->descriptors);
        free(c);
}

static void connection_on_closed(uv_handle_t *handle) {
        struct connection *c = handle->data;
        if (--c->n_open_handles == 0)
                connection_free(c);
}

static int connection_watch_death(struct connection *c) {
        int r = uv_poll_init(c->sessions->loop, &c->death, c->pidfd);
        if (r < 0)
                return r;
        c->death.data = c;
        c->has_death = true;
        c->n_open_handles++;
        return uv_poll_start(&c->death, UV_READABLE, connection_on_death);
}

static int connection_watch_io(struct connection *c) {
        int r = uv_poll_init(c->sessions->loop, &c->io, c->socket);
        if (r < 0)
                return r;
        c->io.data = c;
        c->has_io = true;
        c->n_open_handles++;
        c->watched = UV_READABLE;
        return uv_poll_start(&c->io, UV_READABLE, connection_on_io);
}

static enum status session_check_peer(int socket, struct ucred *ret, struct error *err) {
        socklen_t n = sizeof(*ret);
        if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, ret, &n) < 0)
                return error_set(err, STATUS_INTERNAL, FIELD_UNSPECIFIED,
                        "the peer's credentials cannot be read: %s", strerror(errno));
        if (ret->uid == OVERFLOW_UID)
                return error_set(err, STATUS_PERMISSION, FIELD_UNSPECIFIED,
                        "uid 65534 stands for every user of a foreign user namespace; connect as a user whom "
                        "this host knows");
        return STATUS_OK;
}

static int peer_pidfd(int socket) {
        int fd;
        socklen_t n = sizeof(fd);
        if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &n) < 0)
                return -1;
        return fd;
}

static enum status session_charge(struct connection *c, struct error *err) {
        enum status status =
                quota_charge(c->sessions->quotas, &c->connection, c->session.uid, QUOTA_CONNECTIONS, 1, err);
        if (status != STATUS_OK)
                return status;
        return quota_charge(c->sessions->quotas, &c->descriptors, c->session.uid, QUOTA_DESCRIPTORS,
                DESCRIPTORS_CHARGED, err);
}

static struct connection *connection_new(struct sessions *s, const struct ucred *peer) {
        struct connection *c = calloc(1, sizeof(*c));
        if (!c)
                return NULL;
        c->sessions = s;
        c->socket = c->pidfd = -1;
        c->session.id = ++s->last_id;
        c->session.uid = c->session.viewer.uid = peer->uid;
        c->session.pid = peer->pid > 0 ? (uint32_t)peer->pid : 0;
        list_init(&c->outgoing);
        list_init(&c->ready_link);
        list_init(&c->all_link);
        list_init(&c->session.eject_link);
        list_init(&c->session.prepared);
        alarm_init(&c->linger);
        return c;
}

/* Takes the first parcel out. */
static bool connection_enter(struct sessions *s, struct connection *c) {
        bool is_in = true;
        if (heap_reserve(&s->lingering, s->n + 1) < 0)
                return false;
        TABLE_ADD(s->by_id, c, session.id, is_in);
        if (!is_in)
                return false;
        list_append(&s->all, &c->all_link);
        s->n++;
        return connection_watch_io(c) >= 0 && (c->pidfd < 0 || connection_watch_death(c) >= 0);
}

enum status session_open(struct sessions *s, int socket, struct session **ret, struct error *err) {
        struct ucred peer;
        enum status status = session_check_peer(socket, &peer, err);
        if (status != STATUS_OK)
                return status;
        struct connection *c = connection_new(s, &peer);
        if (!c)
                return error_set(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
        status = session_charge(c, err);
        if (status != STATUS_OK) {
                connection_free(c);
                return status;
        }
        c->pidfd = peer_pidfd(socket);
        c->socket = socket;
        if (!connection_enter(s, c)) {
                c->socket = -1; /* stays the caller's */
                session_close(s, &c->session);
                return error_set(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
        }
        *ret = &c->session;
        return STATUS_OK;
}

int session_take_socket(struct session *session) {
        return fd_take(&connection_of(session)->socket);
}

uint32_t session_peer_uid(int socket) {
        struct ucred peer = { .uid = OVERFLOW_UID };
        socklen_t n = sizeof(peer);
        return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 ? peer.uid : OVERFLOW_UID;
}

void session_close(struct sessions *s, struct session *session) {
        struct connection *c = connection_of(session);
        if (c->is_closing)
                return;
        c->is_closing = true;
        if (!list_is_empty(&c->ready_link))
                s->n_ready--;
        list_unlink(&c->ready_link);
        list_unlink(&session->eject_link);
        heap_set(&s->lingering, &c->linger, ALARM_NEVER);
        if (!list_is_empty(&c->all_link)) {
                list_unlink(&c->all_link);
                HASH_DEL(s->by_id, c);
                s->n--;
        }
        loan_unref(take_pointer(c->page));
        struct list *first;
        while ((first = list_take_first(&c->outgoing)))
                outgoing_free(list_entry(first, struct outgoing, link));
        if (c->n_open_handles == 0) {
                connection_free(c);
                return;
        }
        if (c->has_io)
                uv_close((uv_handle_t *)&c->io, connection_on_closed);
        if (c->has_death)
                uv_close((uv_handle_t *)&c->death, connection_on_closed);
}

struct session *session_find(const struct sessions *s, uint64_t id) {
        struct connection *c;
        HASH_FIND(hh, s->by_id, &id, sizeof(id), c);
        return c ? &c->session : NULL;
}

struct session *sessions_next(const struct sessions *s, const struct session *after) {
        const struct list *at = after ? &connection_of(after)->all_link : &s->all;
        return at->next == &s->all ? NULL : &list_entry(at->next, struct connection, all_link)->session;
}

uint32_t sessions_count(const struct sessions *s) {
        return s->n;
}

/* --- packets --- */

static void connection_linger(struct connection *c, uint64_t now_ns) {
        c->is_eof = true;
        connection_watch(c);
        bool is_explained = c->pidfd < 0 || c->session.is_leaving;
        if (c->linger.at_ns == ALARM_NEVER)
                heap_set(&c->sessions->lingering, &c->linger, is_explained ? now_ns : now_ns + LINGER_NS);
}

int session_receive(
        struct sessions *s, struct session *session, void *buf, struct packet *ret, uint64_t now_ns) {
        struct connection *c = connection_of(session);
        ret->n_fds = 0;
        if (c->is_paused || c->is_eof || c->is_closing)
                return -EAGAIN;
        int r = channel_receive(c->socket, buf, ret);
        if (r == 0 || (r < 0 && r != -EAGAIN && r != -EMSGSIZE))
                connection_linger(c, now_ns);
        return r;
}

void session_pause(struct session *session) {
        struct connection *c = connection_of(session);
        c->is_paused = true;
        connection_watch(c);
}

void session_resume(struct sessions *s, struct session *session) {
        struct connection *c = connection_of(session);
        bool has_missed = c->has_missed;
        c->is_paused = c->has_missed = false;
        connection_watch(c);
        if (has_missed)
                session_mark(s, session, SESSION_READABLE);
}

/* --- status page --- */

enum status session_make_page(struct session *session, struct loans *loans, int *ret_fd, struct error *err) {
        return page_make(loans, session->uid, &connection_of(session)->page, ret_fd, err);
}

struct loan *session_page(const struct session *session) {
        return connection_of(session)->page;
}

void session_set_page(struct session *session, uint64_t request, uint64_t collective, enum page_state state) {
        const struct loan *page = connection_of(session)->page;
        if (page)
                page_set(page_slots(page), request, collective, state);
}

void session_fail_page(struct session *session, const struct page_end *end) {
        const struct loan *page = connection_of(session)->page;
        if (page)
                page_fail(page_slots(page), end);
}

/* --- the process behind it --- */

bool session_take_pidfd(struct sessions *s, struct session *session, int fd) {
        struct connection *c = connection_of(session);
        if (c->pidfd >= 0 || session->pid == 0 || process_of_pidfd(fd) != session->pid)
                return false;
        c->pidfd = fd;
        if (connection_watch_death(c) < 0)
                log_about(LOG_LEVEL_WARNING, LOG_PID(session->pid),
                        "pid %u cannot be watched; the end of its connection will tell", session->pid);
        return true;
}

bool session_has_pidfd(const struct session *session) {
        return connection_of(session)->pidfd >= 0;
}

bool session_is_dead(const struct session *session) {
        struct pollfd p = { .fd = connection_of(session)->pidfd, .events = POLLIN };
        return p.fd >= 0 && poll(&p, 1, 0) == 1 && p.revents & POLLIN;
}

enum process_state session_probe(const struct session *session) {
        if (session_is_dead(session))
                return PROCESS_DEAD;
        if (session->pid == 0)
                return session_has_pidfd(session) ? PROCESS_ALIVE : PROCESS_UNKNOWN;
        switch (process_state_letter(session->pid)) {
        case '\0': return PROCESS_UNKNOWN;
        case 'T':
        case 't': return PROCESS_STOPPED;
        case 'Z':
        case 'X': return PROCESS_DEAD;
        default: return PROCESS_ALIVE;
        }
}

/* --- time --- */

uint64_t sessions_next_ns(const struct sessions *s) {
        return heap_next_ns(&s->lingering);
}

void sessions_expire(struct sessions *s, uint64_t now_ns) {
        struct alarm *a;
        while ((a = heap_take_due(&s->lingering, now_ns))) {
                struct connection *c = list_entry(a, struct connection, linger);
                session_mark(s, &c->session, session_is_dead(&c->session) ? SESSION_DEAD : SESSION_HUNG_UP);
        }
}
