/* The turn and the corridor. Read conductor_turn first, then conductor_settle: every arrow of the house is
 * drawn in these two and in the calls that they make. */
#include "conductor-log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS_A_TURN  512
#define DRAIN_PACKETS 64 /* of a process that has ended, what it had still sent */

int conductor_new(struct conductor **ret, const struct house *house, uint64_t now_ns) {
        struct conductor *c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        c->house = *house;
        c->started_ns = c->now_ns = c->rows_ns = now_ns;
        c->n_rows_saved = ROWS_AT_ONCE;
        outcome_init(&c->outcome);
        list_init(&c->chores);
        list_init(&c->ejected);
        list_init(&c->tasks);
        list_init(&c->queries);
        turns_init(&c->ended);
        turns_init(&c->over);
        list_init(&c->returning);
        list_init(&c->forgotten);
        list_init(&c->dropped);
        arena_init(&c->request_arena, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        arena_init(&c->scratch, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        if (!c->request_arena.base || !c->scratch.base) {
                conductor_free(c);
                return -ENOMEM;
        }
        *ret = c;
        return 0;
}

void conductor_free(struct conductor *c) {
        if (!c)
                return;
        struct list *first;
        while ((first = list_take_first(&c->tasks)))
                engine_task_free(list_entry(first, struct task, link));
        free(c->request_arena.base);
        free(c->scratch.base);
        free(c);
}

/* --- answers --- */

static void conductor_send(struct conductor *c, struct session *s, size_t n_bytes, int fd) {
        int r = session_send(c->house.sessions, s, c->out, n_bytes, &fd, fd >= 0);
        if (r == -EDQUOT)
                conductor_eject(c, s, STATUS_QUOTA,
                        "the clients of uid %u do not read their replies: reply-bytes has %llu of %llu",
                        s->uid, (unsigned long long)quota_used(c->house.quotas, s->uid, QUOTA_REPLY_BYTES),
                        (unsigned long long)quota_limit(c->house.quotas, s->uid, QUOTA_REPLY_BYTES));
        else if (r < 0)
                conductor_eject(c, s, STATUS_LIMIT, "it does not read its replies (%s)", strerror(-r));
}

void conductor_reply_fd(struct conductor *c, struct session *s, const struct reply *reply, int fd) {
        size_t n_bytes;
        c->work += reply->error ? 2 * REPLY_WORK : REPLY_WORK;
        if (!s)
                return;
        int r = codec_encode_reply(reply, &c->scratch, c->out, &n_bytes);
        CHECK(r == 0);
        conductor_send(c, s, n_bytes, fd);
}

bool conductor_reply_if_it_fits(struct conductor *c, struct session *s, const struct reply *reply) {
        size_t n_bytes;
        if (!s)
                return true;
        if (codec_encode_reply(reply, &c->scratch, c->out, &n_bytes) < 0)
                return false;
        c->work += REPLY_WORK;
        conductor_send(c, s, n_bytes, -1);
        return true;
}

void conductor_reply(struct conductor *c, struct session *s, const struct reply *reply) {
        conductor_reply_fd(c, s, reply, -1);
}

void conductor_reply_status(struct conductor *c, struct session *s, uint64_t request, enum status status,
        const struct error *err) {
        conductor_reply(c, s,
                &(struct reply){
                        .request = request, .status = status, .error = status == STATUS_OK ? NULL : err });
}

enum status conductor_refuse_no_descriptor(struct error *err) {
        return error_set(
                err, STATUS_LIMIT, FIELD_DESCRIPTOR, "tuttid has no descriptor left; raise its LimitNOFILE");
}

/* --- sessions end --- */

void conductor_eject(struct conductor *c, struct session *s, enum status status, const char *format, ...) {
        if (s->eject_why[0] != '\0')
                return;
        va_list args;
        va_start(args, format);
        vsnprintf(s->eject_why, sizeof(s->eject_why), format, args);
        va_end(args);
        s->eject_status = status;
        list_append(&c->ejected, &s->eject_link);
}

/* While sessions of several users exist, none may hold all workers. */
void conductor_note_users(struct conductor *c) {
        uint32_t uids[2], n = 0;
        for (const struct session *s = sessions_next(c->house.sessions, NULL); s && n < 2;
                s = sessions_next(c->house.sessions, s))
                if (n == 0 || uids[0] != s->uid)
                        uids[n++] = s->uid;
        engine_set_shared(c->house.engine, n > 1);
        workers_set_shared(c->house.workers, n > 1);
}

void conductor_hang_up(struct conductor *c, uint64_t session, uint32_t uid, int socket) {
        shutdown(socket, SHUT_RDWR); /* from here on nothing more can come */
        conductor_close_socket(c, session, uid, socket);
}

void conductor_close_socket(struct conductor *c, uint64_t session, uint32_t uid, int socket) {
        if (!channel_holds_fds(socket)) {
                close(socket);
                return;
        }
        struct error ignored;
        error_init(&ignored, STATUS_OK);
        enum status status =
                buffer_close_stranger(c->house.buffers, session, uid, socket, &c->chores, &ignored);
        (void)status; /* a charge that fails closes it all the same */
}

int conductor_end_without_socket(struct conductor *c, struct session *s, enum loss loss, const char *why) {
        c->work += END_WORK;
        if (s->assembly) /* nothing in it is leased yet */
                rendezvous_half_free(c->house.rendezvous, s->assembly);
        if (s->held)
                conductor_drop_half(c, s->held);
        s->assembly = s->held = NULL;
        resume_free(s->resume);
        s->resume = NULL;
        conductor_drop_query(s);
        s->is_going = true; /* what ends here is not taught to the lane again */
        conductor_forget_roads(c, s);
        conductor_settle_outcome(c);
        conductor_unprepare_all(c, s);
        conductor_log_loss(c, s, loss, why);
        rendezvous_lose(c->house.rendezvous, s->id, loss, why, c->now_ns, &c->outcome);
        buffers_end_session(c->house.buffers, s->id, &c->chores);
        results_end_session(c->house.results, s->id, &c->chores);
        signals_end_session(c->house.signals, s->id, &c->chores);
        int socket = session_take_socket(s);
        conductor_end_lane(c, s);
        session_close(c->house.sessions, s);
        conductor_note_users(c);
        return socket;
}

void conductor_end_session(struct conductor *c, struct session *s, enum loss loss, const char *why) {
        uint64_t id = s->id;
        uint32_t uid = s->uid;
        conductor_hang_up(c, id, uid, conductor_end_without_socket(c, s, loss, why));
}

static void conductor_end_ejected(struct conductor *c, struct session *s) {
        struct error *err = &c->error;
        conductor_log_ejected(c, s);
        error_init(err, s->eject_status);
        error_set_detail(err, "%s", s->eject_why);
        if (s->eject_status == STATUS_REPLICA_LOST)
                err->loss = LOSS_EJECTED;
        stats_count_ejection(c->house.stats);
        size_t n_bytes;
        const struct reply last_words = { .status = s->eject_status, .error = err };
        if (codec_encode_reply(&last_words, &c->scratch, c->out, &n_bytes) == 0) {
                int r = session_send(c->house.sessions, s, c->out, n_bytes, NULL, 0);
                (void)r; /* it is leaving: what it cannot take is not kept for it */
        }
        conductor_end_session(c, s, LOSS_EJECTED, s->eject_why);
}

/* An import has ended: perhaps the last one that a half waits for. */
static void conductor_go_on_with_held(struct conductor *c, struct session *s) {
        if (!s->held || buffers_is_importing(c->house.buffers, s->id))
                return;
        session_resume(c->house.sessions, s);
        session_mark(c->house.sessions, s, SESSION_RESUMED);
}

/* A piece of memory work has ended. */
static void conductor_chore_done(struct conductor *c, struct chore *chore) {
        struct buffer_news news;
        if (signals_own(chore)) {
                conductor_signals_done(c, chore);
                return;
        }
        if (chore->kind == CHORE_THINK) {
                conductor_thought(c, chore);
                return;
        }
        if (result_owns(chore)) {
                result_chore_done(c->house.results, chore, c->now_ns, &c->chores);
                conductor_answer_results(c);
                return;
        }
        if (!buffer_chore_done(c->house.buffers, chore, &c->chores, &news))
                return;
        struct session *s = session_find(c->house.sessions, news.session);
        if (!s)
                return;
        if (news.status == STATUS_OK && news.is_device) {
                conductor_reply_registered(c, s, &news);
                conductor_go_on_with_held(c, s);
                return;
        }
        error_init(&c->error, news.status);
        c->error.field = news.status == STATUS_OK ? FIELD_UNSPECIFIED : FIELD_BUFFER;
        error_set_detail(&c->error, "%s", news.why);
        conductor_reply_status(c, s, news.request, news.status, &c->error);
        conductor_go_on_with_held(c, s);
}

/* --- the corridor --- */

/* What became of the requests that members brought from the tuttid before: in all pages before any reply, so
 * that each knows what the others may have been told, should this tuttid be killed here. */
static void conductor_set_resumed_pages(struct conductor *c, const struct group *g) {
        rankset_for_each (rank, &g->alive) {
                const struct resume *resume = g->members[rank].resume;
                struct session *s = session_find(c->house.sessions, g->members[rank].session);
                for (uint32_t i = 0; s && resume && i < resume->n; i++) {
                        const struct page_report *r = &resume->reports[i];
                        if (r->request == 0 || r->state == PAGE_FREE)
                                continue;
                        if (r->state == PAGE_DONE)
                                session_set_page(s, r->request, r->collective, PAGE_DONE);
                        else
                                session_fail_page(s,
                                        &(struct page_end){ r->request, r->collective, r->status, r->cause });
                }
        }
}

void conductor_formed(struct conductor *c, struct group *g) {
        conductor_log_formed(g);
        conductor_set_resumed_pages(c, g);
        rankset_for_each (rank, &g->alive) {
                const struct member *m = &g->members[rank];
                const struct reply reply = { .request = m->join_request,
                        .status = STATUS_OK,
                        .type = REPLY_JOINED,
                        .joined = { .membership = m->id,
                                .epoch = g->epoch,
                                .rank = (uint32_t)rank,
                                .world_size = g->world_size,
                                .members = g->formed } };
                conductor_reply(c, session_find(c->house.sessions, m->session), &reply);
        }
        rendezvous_drop_resumes(g);
}

static void conductor_unformed(struct conductor *c, struct group *g) {
        const struct error *why = rendezvous_group_failure(c->house.rendezvous, g);
        c->error = *why;
        conductor_probe(c, g, c->error.n_replicas, c->error.replicas);
        for (uint32_t rank = 0; rank < g->world_size; rank++) {
                const struct member *m = &g->members[rank];
                if (m->state == MEMBER_JOINING)
                        conductor_reply_status(c, session_find(c->house.sessions, m->session),
                                m->join_request, c->error.status, &c->error);
        }
        rendezvous_forget(c->house.rendezvous, g);
}

/* A newcomer or a caller of rejoin or shrink that has waited in vain. */
static void conductor_answered(struct conductor *c, struct reform *reform) {
        error_init(&c->error, reform->status);
        if (reform->error)
                c->error = *reform->error;
        conductor_probe(c, reform->group, c->error.n_replicas, c->error.replicas);
        conductor_reply_status(c, session_find(c->house.sessions, reform->session), reform->request,
                reform->status, &c->error);
        rendezvous_reform_free(c->house.rendezvous, reform);
}

static void conductor_report_stall(struct conductor *c, const struct group *g) {
        struct error *err = &c->error;
        const struct meeting *m = rendezvous_oldest(g);
        if (!m)
                return;
        error_init(err, STATUS_OK);
        err->missing = rankset_minus(&g->alive, &m->have);
        group_add_reports(g, &err->missing, c->now_ns, err);
        conductor_probe(c, g, err->n_replicas, err->replicas);
        conductor_log_stall(m, err, c->now_ns);
}

/* A half whose member is gone: nobody waits for it but, after a leave, another thread of the same process. */
static void conductor_struck(struct conductor *c, struct half *half) {
        struct session *s = session_find(c->house.sessions, half->session);
        if (s) {
                s->n_unfinished--;
                error_init(&c->error, STATUS_LEFT);
                c->error.has_key = true;
                c->error.key = half->key;
                c->error.kind = half->signature.kind;
                error_set_detail(&c->error, "this membership left while the collective was pending");
                conductor_reply_status(c, s, half->request, STATUS_LEFT, &c->error);
        }
        conductor_drop_half(c, half);
}

static void conductor_eject_member(struct conductor *c, const struct member *m) {
        struct session *s = session_find(c->house.sessions, m->session);
        if (s)
                conductor_eject(c, s, STATUS_LIMIT, "R%u of %s/%s: %s", m->rank, m->group->job,
                        m->group->name, m->why);
}

void conductor_settle_outcome(struct conductor *c) {
        struct outcome *o = &c->outcome;
        struct list *it;
        c->work += o->n_looked / LOOKS_A_WORK;
        o->n_looked = 0;
        while ((it = list_take_first(&o->struck)))
                conductor_struck(c, list_entry(it, struct half, pool_link));
        while ((it = list_take_first(&o->sealed)))
                conductor_run(c, list_entry(it, struct meeting, outcome_link));
        conductor_tell_ended(c);
        while ((it = list_take_first(&o->formed)))
                conductor_tell_formed(c, list_entry(it, struct group, outcome_link));
        while ((it = list_take_first(&o->unformed)))
                conductor_unformed(c, list_entry(it, struct group, outcome_link));
        while ((it = list_take_first(&o->answered)))
                conductor_answered(c, list_entry(it, struct reform, outcome_link));
        while ((it = list_take_first(&o->ejected)))
                conductor_eject_member(c, list_entry(it, struct member, outcome_link));
        while ((it = list_take_first(&o->stalled)))
                conductor_report_stall(c, list_entry(it, struct group, outcome_link));
        while ((it = list_take_first(&o->over)))
                turns_put(&c->over, list_entry(it, struct group, outcome_link)->uid, it);
        conductor_close_records(c);
}

void conductor_settle_before_packet(struct conductor *c) {
        c->has_packet = true; /* for which roads have been closed */
        conductor_settle_outcome(c);
        c->has_packet = false;
}

/* Until nothing follows from anything any more: telling can eject, ejecting can end collectives. */
void conductor_settle(struct conductor *c) {
        struct list *it;
        for (;;) {
                conductor_settle_outcome(c);
                it = list_take_first(&c->ejected);
                if (it)
                        conductor_end_ejected(c, list_entry(it, struct session, eject_link));
                else if (outcome_is_empty(&c->outcome))
                        break;
        }
        conductor_bury_halves(c);
        while ((it = list_take_first(&c->chores)))
                conductor_do(c, list_entry(it, struct chore, link));
}

/* --- the turn --- */

static void conductor_turn_away(struct conductor *c, int socket) {
        size_t n_bytes;
        const struct reply reply = { .status = c->error.status, .error = &c->error };
        if (codec_encode_reply(&reply, &c->scratch, c->out, &n_bytes) == 0) {
                int r = channel_send(socket, c->out, n_bytes, NULL, 0);
                (void)r; /* told as far as it listens */
        }
        conductor_hang_up(c, 0, session_peer_uid(socket), socket);
}

/* For whom there is no descriptor. false: it stays at the door. */
static bool conductor_turn_away_by_spare(struct conductor *c) {
        int socket = listener_accept_by_spare(c->house.listener, c->now_ns);
        if (socket < 0)
                return false;
        error_init(&c->error, STATUS_OK);
        conductor_refuse_no_descriptor(&c->error);
        log_warning("out of descriptors: a connection was turned away; raise LimitNOFILE");
        conductor_turn_away(c, socket);
        return true;
}

/* Those who are there already come first: who comes only to go again, over and over, must not make its user's
 * others wait behind hundreds of its connections. */
static void conductor_accept(struct conductor *c) {
        const int n_accepts = sessions_n_ready(c->house.sessions) < READY_A_TURN ? ACCEPTS_A_TURN : 1;
        for (int i = 0; i < n_accepts; i++) {
                struct session *s;
                int socket = listener_accept(c->house.listener, c->now_ns);
                if (socket == -EMFILE && conductor_turn_away_by_spare(c))
                        continue;
                if (socket < 0)
                        break;
                error_init(&c->error, STATUS_OK);
                if (session_open(c->house.sessions, socket, &s, &c->error) == STATUS_OK) {
                        conductor_note_users(c);
                } else {
                        conductor_log_turned_away(&c->error, session_peer_uid(socket));
                        conductor_turn_away(c, socket);
                }
        }
}

/* Packets until there are none, at most `limit`, and at most this much work. */
static void conductor_read(struct conductor *c, struct session *s, int limit, uint64_t work) {
        work += c->work;
        for (int i = 0; i < limit && c->work < work && s->eject_why[0] == '\0'; i++) {
                struct packet packet;
                int r = session_receive(c->house.sessions, s, c->in, &packet, c->now_ns);
                if (r == -EMSGSIZE)
                        conductor_eject(c, s, STATUS_LIMIT,
                                "a packet is longer than %d bytes or brings more than %d descriptors",
                                MAX_PACKET_BYTES, MAX_PACKET_FDS);
                if (r > 0)
                        conductor_handle_packet(c, s, &packet);
                conductor_close_strangers(c, s, &packet);
                if (r <= 0)
                        return;
                conductor_settle(c); /* what this packet gave back is there for the next one */
        }
}

static void conductor_serve(struct conductor *c, struct session *s) {
        c->work += PACKET_WORK;
        unsigned int events = session_take_events(s);
        if (events & SESSION_CAUGHT_UP)
                conductor_reader_is_back(c, s);
        if (events & SESSION_RESUMED)
                conductor_handle_held(c, s);
        if (events & (SESSION_READABLE | SESSION_RESUMED))
                conductor_read(c, s, PACKETS_A_TURN, SESSION_WORK);
        if (!(events & (SESSION_DEAD | SESSION_HUNG_UP)) || s->eject_why[0] != '\0')
                return;
        conductor_read(c, s, DRAIN_PACKETS,
                UINT32_MAX); /* what it said before it ended counts: a goodbye, a last half */
        if (s->eject_why[0] != '\0')
                return;
        if (!s->is_ending) { /* behind those who wait: what its peers had sent before it ended counts too */
                s->is_ending = true;
                session_mark(c->house.sessions, s, events & SESSION_DEAD ? SESSION_DEAD : SESSION_HUNG_UP);
                return;
        }
        conductor_end_session(c, s, events & SESSION_DEAD ? LOSS_DIED : LOSS_DISCONNECTED,
                events & SESSION_DEAD ? "" : "its connection ended, its process did not");
}

/* Of tasks a turn's share, beside what sessions have: thousands of small ones may be done at once, and no
 * fewer may be ended than can be begun. */
static bool conductor_pull_done(struct conductor *c) {
        bool is_any = conductor_pull_lane(c, RUNS_A_TURN);
        struct task *t;
        struct chore *chore;
        uint64_t end_of_share = c->work + TURN_WORK;
        c->is_more_done = false;
        while (c->work < end_of_share && (t = engine_take_done_task(c->house.engine))) {
                conductor_task_done(c, t);
                is_any = c->has_worked = true;
                c->is_more_done = c->work >= end_of_share;
        }
        while ((chore = engine_take_done_chore(c->house.engine))) {
                conductor_chore_done(c, chore);
                is_any = true;
        }
        while ((t = workers_take_launched_task(c->house.workers))) {
                conductor_launched(c, t);
                is_any = true;
        }
        while ((t = workers_take_done_task(c->house.workers))) {
                conductor_task_done(c, t);
                is_any = c->has_worked = true;
        }
        while ((chore = workers_take_done_chore(c->house.workers))) {
                if (conductor_chore_is_over(chore))
                        conductor_chore_done(c, chore);
                else
                        list_append(&c->chores, &chore->link);
                is_any = true;
        }
        conductor_settle(c);
        return is_any;
}

static bool conductor_pull_sessions(struct conductor *c) {
        bool is_any = false;
        struct session *s;
        while (c->work < TURN_WORK && (s = sessions_take_ready(c->house.sessions))) {
                conductor_serve(c, s);
                conductor_settle(c);
                is_any = true;
        }
        return is_any;
}

/* Until there is nothing left, or for as long as a turn may last. */
static void conductor_pull(struct conductor *c) {
        bool is_any;
        do {
                is_any = conductor_pull_sessions(c);
                is_any |= conductor_pull_done(c);
        } while (is_any && c->work < TURN_WORK);
}

bool conductor_turn(struct conductor *c, uint64_t now_ns) {
        c->now_ns = now_ns;
        c->work = c->told_work = c->n_closed = 0;
        c->is_more_done = false;
        if (sessions_next_ns(c->house.sessions) <= now_ns)
                sessions_expire(c->house.sessions, now_ns);
        if (loans_next_ns(c->house.loans) <= now_ns)
                loans_expire(c->house.loans, now_ns);
        if (listener_next_ns(c->house.listener) <= now_ns)
                listener_expire(c->house.listener, now_ns);
        conductor_allow_rows(c);
        c->has_worked = false;
        workers_turn(c->house.workers, now_ns);
        conductor_offer_signals(c);
        (void)conductor_pull_lane(c, RUNS_A_TURN); /* before anybody asks for it */
        conductor_settle(c);
        conductor_accept(c);
        do
                conductor_pull(c);
        while (conductor_go_on_answering(c) && c->work < TURN_WORK);
        if (rendezvous_next_ns(c->house.rendezvous) <= now_ns)
                rendezvous_expire(c->house.rendezvous, now_ns, &c->outcome);
        if (results_next_ns(c->house.results) <= now_ns)
                results_expire(c->house.results, now_ns, &c->chores);
        conductor_settle(c);
        conductor_give_back(c, c->is_draining ? UINT32_MAX : SLICE_ENTRIES);
        conductor_settle(c);
        return sessions_n_ready(c->house.sessions) > 0 || !list_is_empty(&c->over.waiting) ||
               !list_is_empty(&c->returning) || !list_is_empty(&c->forgotten) ||
               !list_is_empty(&c->dropped) || c->is_more_done || conductor_has_ended(c) ||
               rendezvous_next_ns(c->house.rendezvous) <= now_ns ||
               (c->house.lanes && lanes_n_news(c->house.lanes) >= RUNS_A_TURN) ||
               conductor_answers_next_ns(c) <= now_ns;
}

uint64_t conductor_next_ns(const struct conductor *c) {
        uint64_t a = rendezvous_next_ns(c->house.rendezvous), b = sessions_next_ns(c->house.sessions);
        if (b < a)
                a = b;
        b = loans_next_ns(c->house.loans);
        if (b < a)
                a = b;
        b = listener_next_ns(c->house.listener);
        if (b < a)
                a = b;
        b = conductor_answers_next_ns(c);
        if (b < a)
                a = b;
        b = results_next_ns(c->house.results);
        if (b < a)
                a = b;
        b = workers_next_ns(c->house.workers);
        return b < a ? b : a;
}

void conductor_reconfigured(struct conductor *c, uint64_t now_ns) {
        c->now_ns = now_ns;
        c->told_work = c->n_closed = 0;
        conductor_forget_all_roads(c);
        conductor_settle(c);
}

void conductor_drain(struct conductor *c, uint64_t now_ns) {
        c->is_draining = true;
        c->now_ns = now_ns;
        conductor_forget_all_roads(c);
        rendezvous_drain(c->house.rendezvous, now_ns, &c->outcome);
        conductor_settle(c);
}

bool conductor_is_idle(const struct conductor *c) {
        return c->n_running == 0 && engine_n_open(c->house.engine) == 0 &&
               workers_n_open(c->house.workers) == 0;
}
