/* One packet of a session: what it asks for, checked in the order of the corridor, and answered or handed to
 * rendezvous. */
#include "conductor-internal.h"
#include "conductor-log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"

static void conductor_welcome(struct conductor *c, struct session *s, const struct request *r) {
        CLEANUP_FD int page = -1;
        error_init(&c->error, STATUS_OK);
        enum status status = session_make_page(s, c->house.loans, &page, &c->error);
        if (status != STATUS_OK) {
                conductor_reply_status(c, s, r->request, status, &c->error);
                conductor_eject(c, s, status, "its status page cannot be made");
                return;
        }
        s->is_greeted = true;
        text_copy(s->process, sizeof(s->process), r->hello.process);
        s->viewer.is_admin = config_is_admin(c->house.config, s->uid);
        s->viewer.sees_all = s->viewer.is_admin || config_is_observer(c->house.config, s->uid);
        viewer_show(&s->viewer, r->hello.secret);
        const struct reply reply = { .request = r->request,
                .status = STATUS_OK,
                .type = REPLY_WELCOME,
                .welcome = {
                        .version = PROTOCOL_MAX < r->hello.max_version ? PROTOCOL_MAX : r->hello.max_version,
                        .server = "tuttid " TUTTI_VERSION,
                        .session = s->id,
                        .pid = (uint32_t)getpid(),
                        .n_descriptors = 1,
                        .status_slots = STATUS_PAGE_SLOTS,
                        .default_timeout_ns = c->house.config->default_timeout_ns,
                        .max_world = MAX_WORLD,
                        .max_entries = MAX_ENTRIES,
                        .max_packet_bytes = MAX_PACKET_BYTES } };
        conductor_reply_fd(c, s, &reply, page);
}

static void conductor_handle_hello(
        struct conductor *c, struct session *s, const struct request *r, struct packet *packet) {
        if (s->is_greeted) {
                conductor_eject(c, s, STATUS_INVALID, "it said hello twice");
                return;
        }
        if (r->hello.min_version > PROTOCOL_MAX || r->hello.max_version < PROTOCOL_MIN) {
                conductor_eject(c, s, STATUS_VERSION,
                        "%.40s speaks protocol %u to %u, tuttid %s speaks %u to %u; upgrade %s",
                        r->hello.client, r->hello.min_version, r->hello.max_version, TUTTI_VERSION,
                        PROTOCOL_MIN, PROTOCOL_MAX,
                        r->hello.min_version > PROTOCOL_MAX ? "tuttid" : "libtutti");
                return;
        }
        s->may_be_handed_over = r->hello.may_be_handed_over;
        if (packet->n_fds > 0 && session_take_pidfd(c->house.sessions, s, packet->fds[0]))
                packet->fds[0] = -1;
        if (packet->is_short && !session_has_pidfd(s)) { /* its death would be known by EOF alone (P5) */
                conductor_eject(c, s, STATUS_LIMIT,
                        "tuttid had no descriptor left for its pidfd; raise tuttid's LimitNOFILE");
                return;
        }
        conductor_welcome(c, s, r);
}

/* Out of the session that has gathered it, with what the join itself says. c->error where it is not OK. */
static enum status conductor_take_resume(
        struct conductor *c, struct session *s, const struct msg_join *ask, struct resume **ret) {
        struct resume *resume = s->resume;
        s->resume = NULL;
        *ret = NULL;
        if (ask->resume_epoch == 0) {
                resume_free(resume);
                return STATUS_OK;
        }
        if (ask->resume_epoch > INT64_MAX || ask->resume_number > INT64_MAX) {
                resume_free(resume);
                return error_set(&c->error, STATUS_INVALID, FIELD_MEMBERSHIP,
                        "no group has come to epoch %llu and collective %llu",
                        (unsigned long long)ask->resume_epoch, (unsigned long long)ask->resume_number);
        }
        if (resume && ask->world_size > 0 && resume->n > MAX_GROUP_REPORTS / ask->world_size) {
                resume_free(resume);
                return error_set(&c->error, STATUS_LIMIT, FIELD_MEMBERSHIP,
                        "each of %u members may tell of %u requests before a restart; this one tells of more",
                        ask->world_size, MAX_GROUP_REPORTS / ask->world_size);
        }
        if (!resume)
                resume = resume_new();
        if (!resume)
                return error_set(&c->error, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
        resume->epoch = ask->resume_epoch;
        resume->number = ask->resume_number;
        resume->members = ask->resume_members;
        resume->lost = ask->resume_lost;
        *ret = resume;
        return STATUS_OK;
}

/* What a client tells in advance of a membership that it will resume. */
static void conductor_handle_pages(struct conductor *c, struct session *s, const struct msg_pages *pages) {
        if (!s->resume)
                s->resume = resume_new();
        int r = s->resume ? resume_add(s->resume, pages) : -ENOMEM;
        c->work += pages->n_reports;
        if (r < 0) {
                conductor_eject(c, s, r == -E2BIG ? STATUS_LIMIT : STATUS_NO_MEMORY,
                        "what it tells of requests before a restart is more than %d or than memory holds",
                        MAX_REPORTS);
                return;
        }
        error_init(&c->error, STATUS_OK);
        charge_release(&s->resume->charge);
        if (quota_charge(c->house.quotas, &s->resume->charge, s->uid, QUOTA_MEMORY_BYTES,
                    resume_bytes(s->resume), &c->error) != STATUS_OK)
                conductor_eject(c, s, c->error.status, "what it tells of requests before a restart: %.100s",
                        c->error.detail);
}

static void conductor_handle_join(struct conductor *c, struct session *s, const struct request *r) {
        const struct recorder_name name = { s->uid, r->join.secret, r->join.job, r->join.group };
        struct join join = { .session = s->id,
                .request = r->request,
                .uid = s->uid,
                .pid = s->pid,
                .process = s->process,
                .last_epoch = recorder_last_epoch(c->house.recorder, &name),
                .makes_no_group = c->drained_by[0] != '\0',
                .ask = r->join };
        error_init(&c->error, STATUS_OK);
        viewer_show(&s->viewer, r->join.secret);
        enum status status = STATUS_OK;
        if (c->is_draining)
                status = error_set(&c->error, STATUS_DRAINING, FIELD_UNSPECIFIED,
                        "tuttid is being stopped and takes nothing new");
        else
                status = conductor_take_resume(c, s, &r->join, &join.resume);
        if (status == STATUS_OK)
                status = rendezvous_join(c->house.rendezvous, &join, c->now_ns, &c->outcome, &c->error);
        if (status == STATUS_OK)
                return;
        resume_free(join.resume);
        if (c->error.n_replicas)
                conductor_probe(c, rendezvous_find_group(c->house.rendezvous, &join), c->error.n_replicas,
                        c->error.replicas);
        conductor_reply_status(c, s, r->request, status, &c->error);
}

static void conductor_handle_reform(
        struct conductor *c, struct session *s, const struct request *r, enum reform_kind kind) {
        const struct reform_ask ask = { .session = s->id,
                .request = r->request,
                .membership = r->reform.membership,
                .kind = kind,
                .timeout_ns = r->reform.timeout_ns };
        enum status status = STATUS_OK;
        error_init(&c->error, STATUS_OK);
        if (c->is_draining)
                status = error_set(&c->error, STATUS_DRAINING, FIELD_UNSPECIFIED,
                        "tuttid is being stopped and takes nothing new");
        else
                status = rendezvous_reform(c->house.rendezvous, &ask, c->now_ns, &c->outcome, &c->error);
        if (status != STATUS_OK)
                conductor_reply_status(c, s, r->request, status, &c->error);
}

static void conductor_handle_register(
        struct conductor *c, struct session *s, const struct request *r, struct packet *packet) {
        struct buffer_ask ask = {
                .session = s->id, .request = r->request, .uid = s->uid, .reg = &r->reg, .fd = -1
        };
        if ((packet->n_fds != r->reg.n_descriptors && !packet->is_short) || r->reg.n_descriptors > 1) {
                conductor_eject(c, s, STATUS_BAD_FD, "a registration announces %u descriptors and brings %u",
                        r->reg.n_descriptors, packet->n_fds);
                return;
        }
        if (packet->n_fds == 1)
                ask.fd = packet->fds[0];
        struct error refused;
        conductor_find_device(c, &ask, &refused);
        if (packet->is_short) {
                error_init(&refused, STATUS_OK);
                conductor_refuse_no_descriptor(&refused);
                ask.refused = &refused;
        }
        error_init(&c->error, STATUS_OK);
        enum status status = buffer_register(c->house.buffers, &ask, &c->chores, &c->error);
        if (status == STATUS_OK && packet->n_fds == 1)
                packet->fds[0] = -1;
        if (status != STATUS_OK)
                conductor_reply_status(c, s, r->request, status, &c->error);
        else
                conductor_log_pages(c, s, &r->reg);
}

static void conductor_handle_goodbye(struct conductor *c, struct session *s) {
        /* All memberships leave in peace; the connection's own end follows by EOF. */
        s->is_leaving = true;
        results_end_session(c->house.results, s->id, &c->chores);
        rendezvous_leave_all(c->house.rendezvous, s->id, c->now_ns, &c->outcome);
}

/* Some answer for themselves, now or later; the rest are answered at once with a status alone. */
static void conductor_dispatch(
        struct conductor *c, struct session *s, const struct request *r, struct packet *packet) {
        struct rendezvous *rv = c->house.rendezvous;
        struct error *err = &c->error;
        enum status status = STATUS_OK;
        switch (r->type) {
        case REQUEST_HELLO: conductor_handle_hello(c, s, r, packet); return;
        case REQUEST_JOIN: conductor_handle_join(c, s, r); return;
        case REQUEST_REGISTER: conductor_handle_register(c, s, r, packet); return;
        case REQUEST_SUBMIT: conductor_handle_submit(c, s, r); return;
        case REQUEST_START: conductor_handle_start(c, s, r, 0); return;
        case REQUEST_REJOIN: conductor_handle_reform(c, s, r, REFORM_REJOIN); return;
        case REQUEST_SHRINK: conductor_handle_reform(c, s, r, REFORM_SHRINK); return;
        case REQUEST_QUERY: conductor_query(c, s, r->request, &r->query); return;
        case REQUEST_GOODBYE: conductor_handle_goodbye(c, s); return;
        case REQUEST_MAKE_RESULT: conductor_make_result(c, s, r); return;
        case REQUEST_PAGES: conductor_handle_pages(c, s, &r->pages); return;
        case REQUEST_OPEN_SIGNALS: conductor_open_signals(c, s, r); return;
        case REQUEST_CONTROL: status = conductor_control(c, s, &r->control); break;
        case REQUEST_RELEASE_RESULT: status = conductor_release_result(c, s, &r->release_result); break;
        case REQUEST_LEAVE:
                conductor_unprepare_results(c, s, r->membership, 0);
                results_end_membership(c->house.results, s->id, r->membership, &c->chores);
                status = rendezvous_leave(rv, s->id, r->membership, c->now_ns, &c->outcome, err);
                break;
        case REQUEST_ABORT:
                status = rendezvous_abort(rv, s->id, &r->abort, c->now_ns, &c->outcome, err);
                break;
        case REQUEST_BUSY: status = rendezvous_busy(rv, s->id, &r->busy, c->now_ns, &c->outcome, err); break;
        case REQUEST_UNREGISTER:
                error_init(err, STATUS_OK);
                status = buffer_unregister(c->house.buffers, s->id, r->buffer, &c->chores, err);
                break;
        case REQUEST_UNPREPARE: status = conductor_unprepare(c, s, r->prepared); break;
        case REQUEST_OPEN_LANE: conductor_open_lane(c, s, r); return;
        case REQUEST_RING: conductor_handle_ring(c, s, r); return;
        case REQUEST_PREPARE:
        case REQUEST_NONE:
                error_init(err, STATUS_OK);
                status = error_set(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                        "tuttid %s does not %s; join, leave, rejoin, shrink, register, submit, abort and "
                        "busy are what it does",
                        TUTTI_VERSION, r->type == REQUEST_NONE ? "know this request" : "do this yet");
                break;
        }
        conductor_reply_status(c, s, r->request, status, err);
}

/* A packet that rendezvous may hear of comes behind what was started before it, and finds all of its group
 * there. */
static void conductor_prepare_roads(struct conductor *c, struct session *s, enum request_type type) {
        switch (type) {
        case REQUEST_NONE:
        case REQUEST_HELLO:
        case REQUEST_QUERY:
        case REQUEST_PAGES:
        case REQUEST_OPEN_LANE:
        case REQUEST_OPEN_SIGNALS:
        case REQUEST_PREPARE: return;
        case REQUEST_LEAVE:
        case REQUEST_GOODBYE:
        case REQUEST_REJOIN:
        case REQUEST_SHRINK: conductor_forget_roads(c, s); return;
        case REQUEST_JOIN:
        case REQUEST_REGISTER:
        case REQUEST_UNREGISTER:
        case REQUEST_SUBMIT:
        case REQUEST_ABORT:
        case REQUEST_BUSY:
        case REQUEST_START:
        case REQUEST_UNPREPARE:
        case REQUEST_MAKE_RESULT:
        case REQUEST_RELEASE_RESULT:
        case REQUEST_CONTROL:
        case REQUEST_RING: conductor_leave_lane(c, s); return;
        }
}

static void conductor_handle(
        struct conductor *c, struct session *s, const struct request *r, struct packet *packet) {
        if (s->assembly && (r->type != REQUEST_SUBMIT || r->request != s->assembly->request)) {
                conductor_eject(c, s, STATUS_INVALID, "request %llu came between the parts of request %llu",
                        (unsigned long long)r->request, (unsigned long long)s->assembly->request);
                return;
        }
        conductor_prepare_roads(c, s, r->type);
        conductor_settle_before_packet(c);
        conductor_dispatch(c, s, r, packet);
}

void conductor_close_strangers(struct conductor *c, struct session *s, struct packet *packet) {
        for (uint32_t i = 0; i < packet->n_fds; i++) {
                if (packet->fds[i] < 0)
                        continue;
                struct error err;
                error_init(&err, STATUS_OK);
                if (buffer_close_stranger(c->house.buffers, s->id, s->uid, fd_take(&packet->fds[i]),
                            &c->chores, &err) != STATUS_OK)
                        conductor_eject(c, s, err.status,
                                "it sends descriptors that nobody asked for: %.100s", err.detail);
        }
}

/* What the client said to the tuttid before, until it has read that this is another one. Its descriptors are
 * nobody's. */
static void conductor_drop_packet(struct conductor *c, struct session *s) {
        if (++s->n_dropped > MAX_DROPPED)
                conductor_eject(c, s, STATUS_LIMIT,
                        "it was handed over by the tuttid before, and of %u packets none says hello",
                        MAX_DROPPED);
}

void conductor_handle_packet(struct conductor *c, struct session *s, struct packet *packet) {
        struct request request;
        c->work += PACKET_WORK;
        arena_reset(&c->request_arena);
        int r = codec_decode_request(c->in, packet->n_bytes, &c->request_arena, &request);
        bool is_hello = r == 0 && request.request != 0 && request.type == REQUEST_HELLO;
        if (s->is_kept && !s->is_greeted && !is_hello)
                conductor_drop_packet(c, s);
        else if (r < 0)
                conductor_eject(c, s, r == -E2BIG ? STATUS_LIMIT : STATUS_INVALID,
                        r == -E2BIG ? "a packet of %zu bytes unpacks to more than the protocol allows"
                                    : "a packet of %zu bytes is no request of the protocol",
                        packet->n_bytes);
        else if (request.request == 0)
                conductor_eject(c, s, STATUS_INVALID, "request number 0 is reserved");
        else if (!s->is_greeted && request.type != REQUEST_HELLO)
                conductor_eject(c, s, STATUS_INVALID, "its first request was not hello");
        else
                conductor_handle(c, s, &request, packet);
}
