/* Connections from one tuttid to the next, by way of the service manager
 * (docs/adr/0012-connections-outlive-tuttid.md).
 *
 * What tuttid holds of a session ends here as with any end of it: memberships, buffers, the status page. Only
 * the socket stays. Its client is told so by the last packet, and brings everything back as after a restart
 * (P9), but on the connection that it has. So nothing of a session's state has to be known to two versions.
 */
#include "conductor-log.h"

#include <sys/socket.h>
#include "base/log.h"

/* A session that has ended, and its socket. */
struct leaver {
        uint64_t session;
        uint32_t uid;
        bool is_greeted;
};

/* Those who go next; all at once, since the manager takes few messages. */
struct departure {
        int sockets[SERVICE_MAX_CONNECTIONS];
        struct leaver leavers[SERVICE_MAX_CONNECTIONS]; /* of the same numbers */
        uint32_t n, n_gone;
        bool is_possible;
};

/* Whoever leaves replies unread stays: they would have to come before its last packet. */
static bool may_leave(const struct departure *d, const struct session *s) {
        bool has_agreed = s->is_greeted ? s->may_be_handed_over : s->is_kept;
        return d->is_possible && has_agreed && !s->is_leaving && s->eject_why[0] == '\0' &&
               !session_is_behind(s);
}

/* Who has not greeted this tuttid has been told by the one before, or is about to read it. */
static bool is_told(struct conductor *c, const struct departure *d, uint32_t i) {
        static const struct reply last = { .status = STATUS_OK, .type = REPLY_HAND_OVER };
        size_t n_bytes;
        if (!d->leavers[i].is_greeted)
                return true;
        return codec_encode_reply(&last, &c->scratch, c->out, &n_bytes) == 0 &&
               channel_send(d->sockets[i], c->out, n_bytes, NULL, 0) == 0;
}

/* The manager has them first: what it does not take ends, and its client hears nothing else. */
static void depart(struct conductor *c, struct departure *d) {
        if (d->n == 0)
                return;
        d->is_possible = d->is_possible && service_keep_connections(c->house.service, d->sockets, d->n);
        for (uint32_t i = 0; i < d->n; i++) {
                const struct leaver *l = &d->leavers[i];
                if (d->is_possible && is_told(c, d, i)) {
                        conductor_close_socket(c, l->session, l->uid, d->sockets[i]);
                        d->n_gone++;
                } else {
                        conductor_hang_up(c, l->session, l->uid, d->sockets[i]);
                }
        }
        d->n = 0;
}

static void leave(struct conductor *c, struct departure *d, struct session *s) {
        if (d->n == SERVICE_MAX_CONNECTIONS)
                depart(c, d);
        const struct leaver leaver = { s->id, s->uid, s->is_greeted };
        d->leavers[d->n] = leaver;
        d->sockets[d->n++] = conductor_end_without_socket(c, s, LOSS_DISCONNECTED, "tuttid is ending");
}

static void end_or_leave(struct conductor *c, struct departure *d, uint64_t id) {
        struct session *s = session_find(c->house.sessions, id);
        if (!s) /* ejected by what was settled */
                return;
        if (may_leave(d, s))
                leave(c, d, s);
        else
                conductor_end_session(c, s, LOSS_DISCONNECTED, "tuttid is ending");
        conductor_settle(c);
}

void conductor_end_all(struct conductor *c, uint64_t now_ns) {
        struct departure d = { .is_possible = c->house.service && service_is_managed(c->house.service) &&
                                              conductor_is_idle(c) };
        struct session *s;
        c->now_ns = now_ns;
        c->is_over = true;
        while ((s = sessions_next(c->house.sessions, NULL))) {
                uint64_t id = s->id;
                conductor_forget_roads(c, s); /* what it is told of these comes before its last packet */
                conductor_settle(c);
                end_or_leave(c, &d, id);
        }
        depart(c, &d);
        if (d.n_gone > 0)
                log_notice("%u connection%s to the next tuttid", d.n_gone, d.n_gone == 1 ? " goes" : "s go");
        conductor_give_back(c, UINT32_MAX);
        conductor_settle(c);
}

/* --- taking them in --- */

/* Its process has ended meanwhile, and a child that it had forked holds the socket: neither end would ever be
 * seen. Of a process that lives there is a pidfd, but for old kernels. */
static bool is_orphan(const struct session *s) {
        if (s->pid == 0 || session_has_pidfd(s))
                return false;
        enum process_state state = session_probe(s);
        return state == PROCESS_DEAD || state == PROCESS_UNKNOWN;
}

/* By the same door as others. One that does not get in is not told why: its client will try that door itself.
 */
static bool take_in(struct conductor *c, int socket) {
        struct session *s;
        error_init(&c->error, STATUS_OK);
        if (session_open(c->house.sessions, socket, &s, &c->error) != STATUS_OK) {
                uint32_t uid = session_peer_uid(socket);
                conductor_log_turned_away(&c->error, uid);
                conductor_hang_up(c, 0, uid, socket);
                return false;
        }
        s->is_kept = true;
        if (!is_orphan(s))
                return true;
        conductor_end_session(c, s, LOSS_DIED, "");
        return false;
}

void conductor_take_kept(struct conductor *c, uint64_t now_ns) {
        uint32_t n = 0;
        int socket;
        c->now_ns = now_ns;
        while ((socket = service_take_connection(c->house.service)) >= 0)
                n += take_in(c, socket);
        conductor_note_users(c);
        conductor_settle(c);
        if (n > 0)
                log_notice("%u connection%s of the tuttid before", n, n == 1 ? "" : "s");
}
