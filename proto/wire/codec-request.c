/* Requests: decoded by tuttid, encoded by the library. */
#include "wire/codec.h"

#include <errno.h>
#include <string.h>
#include "wire/codec-pb.h"

/* --- the other requests --- */

static struct msg_start start_in(const Tutti__V1__Start *m) {
        struct msg_start ret = { .prepared = m->prepared,
                .membership = m->membership,
                .epoch = m->epoch,
                .has_timeout = m->has_timeout,
                .timeout_ns = m->timeout_ns };
        if (m->signal)
                ret.signal = (struct msg_signal){ m->signal->slot, m->signal->value };
        ret.has_key = key_in(m->key, &ret.key);
        return ret;
}

struct start_box {
        Tutti__V1__Start message;
        Tutti__V1__Key key;
        Tutti__V1__Signal signal;
};

static void start_out(const struct msg_start *s, struct start_box *box) {
        Tutti__V1__Start *m = &box->message;
        tutti__v1__start__init(m);
        m->prepared = s->prepared;
        m->membership = s->membership;
        m->epoch = s->epoch;
        m->has_timeout = s->has_timeout;
        m->timeout_ns = s->timeout_ns;
        if (s->has_key) {
                key_out(&s->key, &box->key);
                m->key = &box->key;
        }
        if (s->signal.value)
                m->signal = signal_out(&s->signal, &box->signal);
}

static struct msg_hello hello_in(const Tutti__V1__Hello *m) {
        return (struct msg_hello){ .min_version = m->min_version,
                .max_version = m->max_version,
                .client = string_in(m->client),
                .process = string_in(m->process),
                .n_descriptors = m->n_descriptors,
                .secret = string_in(m->secret),
                .may_be_handed_over = m->hand_over };
}

static void hello_out(const struct msg_hello *h, Tutti__V1__Hello *m) {
        tutti__v1__hello__init(m);
        m->min_version = h->min_version;
        m->max_version = h->max_version;
        m->client = string_out(h->client);
        m->process = string_out(h->process);
        m->n_descriptors = h->n_descriptors;
        m->secret = string_out(h->secret);
        m->hand_over = h->may_be_handed_over;
}

static struct msg_register register_in(const Tutti__V1__Register *m) {
        return (struct msg_register){ .buffer = m->buffer,
                .size_bytes = m->size_bytes,
                .access = known_or((int)m->access, ACCESS_INOUT + 1, ACCESS_INOUT + 1),
                .kind = known_or((int)m->kind, BUFFER_KIND_CUDA_IPC + 1, BUFFER_KIND_CUDA_IPC + 1),
                .n_descriptors = m->n_descriptors,
                .device = string_in(m->device),
                .handle = m->handle.data,
                .n_handle_bytes = m->handle.len,
                .handle_offset_bytes = m->handle_offset_bytes,
                .stands_for = string_in(m->stands_for),
                .why = string_in(m->why),
                .pages = known_or((int)m->pages, PAGES_ORDINARY + 1, PAGES_UNSPECIFIED) };
}

static void register_out(const struct msg_register *r, Tutti__V1__Register *m) {
        tutti__v1__register__init(m);
        m->buffer = r->buffer;
        m->size_bytes = r->size_bytes;
        m->access = (Tutti__V1__Access)r->access;
        m->kind = (Tutti__V1__BufferKind)r->kind;
        m->n_descriptors = r->n_descriptors;
        m->device = string_out(r->device);
        m->handle = (ProtobufCBinaryData){ r->n_handle_bytes, (uint8_t *)r->handle };
        m->handle_offset_bytes = r->handle_offset_bytes;
        m->stands_for = string_out(r->stands_for);
        m->why = string_out(r->why);
        m->pages = (Tutti__V1__PageKind)r->pages;
}

static struct msg_abort abort_in(const Tutti__V1__Abort *m) {
        struct msg_abort r = { .membership = m->membership, .reason = string_in(m->reason) };
        r.has_key = key_in(m->key, &r.key);
        return r;
}

static void abort_out(const struct msg_abort *a, Tutti__V1__Abort *m, Tutti__V1__Key *key) {
        tutti__v1__abort__init(m);
        m->membership = a->membership;
        m->reason = string_out(a->reason);
        if (a->has_key) {
                key_out(&a->key, key);
                m->key = key;
        }
}

static struct msg_busy busy_in(const Tutti__V1__Busy *m) {
        return (struct msg_busy){
                .membership = m->membership, .why = string_in(m->why), .duration_ns = m->duration_ns
        };
}

static void busy_out(const struct msg_busy *b, Tutti__V1__Busy *m) {
        tutti__v1__busy__init(m);
        m->membership = b->membership;
        m->why = string_out(b->why);
        m->duration_ns = b->duration_ns;
}

static int query_in(const Tutti__V1__Query *m, struct arena *arena, struct msg_query *ret) {
        *ret = (struct msg_query){ .what = known_or((int)m->what, WHAT_PLAN + 1, WHAT_PLAN + 1),
                .job = string_in(m->job),
                .group = string_in(m->group),
                .has_user = m->has_user,
                .user = m->user,
                .has_shape = m->shape != NULL,
                .world_size = m->world_size,
                .devices = string_in(m->devices),
                .epoch = m->epoch,
                .ended_members = m->ended_members };
        return m->shape ? submit_in(m->shape, arena, &ret->shape) : 0;
}

struct query_box {
        Tutti__V1__Query message;
        struct submit_box shape;
};
static bool query_out(const struct msg_query *q, struct arena *scratch, struct query_box *box) {
        Tutti__V1__Query *m = &box->message;
        tutti__v1__query__init(m);
        m->what = (Tutti__V1__What)q->what;
        m->job = string_out(q->job);
        m->group = string_out(q->group);
        m->has_user = q->has_user;
        m->user = q->user;
        m->world_size = q->world_size;
        m->devices = string_out(q->devices);
        m->epoch = q->epoch;
        m->ended_members = q->ended_members;
        m->shape = q->has_shape ? &box->shape.message : NULL;
        return !q->has_shape || submit_out(&q->shape, scratch, &box->shape);
}

/* --- requests --- */

/* Every body of tutti.proto; what this version does not do is known by its type alone. */
static int body_in(const Tutti__V1__Request *m, struct arena *arena, struct request *ret) {
        /* Body numbers of the contract are those of enum request_type, plus one. */
        _Static_assert((int)REQUEST_HELLO + 1 == TUTTI__V1__REQUEST__BODY_HELLO, "first body");
        _Static_assert((int)REQUEST_RING + 1 == TUTTI__V1__REQUEST__BODY_RING, "last body");
        ret->type = m->body_case == TUTTI__V1__REQUEST__BODY__NOT_SET ? REQUEST_NONE
                                                                      : (enum request_type)(m->body_case - 1);
        switch (ret->type) {
        case REQUEST_HELLO: ret->hello = hello_in(m->hello); break;
        case REQUEST_JOIN: ret->join = join_in(m->join); break;
        case REQUEST_LEAVE: ret->membership = m->leave->membership; break;
        case REQUEST_REGISTER: ret->reg = register_in(m->register_); break;
        case REQUEST_UNREGISTER: ret->buffer = m->unregister->buffer; break;
        case REQUEST_SUBMIT: return submit_in(m->submit, arena, &ret->submit);
        case REQUEST_ABORT: ret->abort = abort_in(m->abort); break;
        case REQUEST_BUSY: ret->busy = busy_in(m->busy); break;
        case REQUEST_REJOIN:
                ret->reform = (struct msg_reform){ m->rejoin->membership, m->rejoin->timeout_ns };
                break;
        case REQUEST_SHRINK:
                ret->reform = (struct msg_reform){ m->shrink->membership, m->shrink->timeout_ns };
                break;
        case REQUEST_MAKE_RESULT: ret->make_result = make_result_in(m->make_result); break;
        case REQUEST_RELEASE_RESULT: ret->release_result = release_result_in(m->release_result); break;
        case REQUEST_QUERY: return query_in(m->query, arena, &ret->query);
        case REQUEST_CONTROL: ret->control = control_in(m->control); break;
        case REQUEST_PAGES: return pages_in(m->pages, arena, &ret->pages);
        case REQUEST_OPEN_SIGNALS:
                ret->open_signals = (struct msg_open_signals){ order_in((int)m->open_signals->order),
                        string_in(m->open_signals->device) };
                break;
        case REQUEST_START: ret->start = start_in(m->start); break;
        case REQUEST_UNPREPARE: ret->prepared = m->unprepare->prepared; break;
        case REQUEST_NONE:
        case REQUEST_PREPARE:
        case REQUEST_OPEN_LANE:
        case REQUEST_RING:
        case REQUEST_GOODBYE: break;
        }
        return 0;
}

int codec_decode_request(const void *bytes, size_t n_bytes, struct arena *arena, struct request *ret) {
        ProtobufCMessage *m;
        int r = pb_unpack(&tutti__v1__request__descriptor, bytes, n_bytes, arena, &m);
        if (r < 0)
                return r;
        const Tutti__V1__Request *request = (const Tutti__V1__Request *)m;
        *ret = (struct request){ .request = request->request };
        return body_in(request, arena, ret);
}

/* The body of a request, whichever it is. */
union body_box {
        Tutti__V1__Hello hello;
        struct join_box join;
        Tutti__V1__Leave leave;
        Tutti__V1__Register reg;
        Tutti__V1__Unregister unregister;
        struct submit_box submit;
        struct {
                Tutti__V1__Abort message;
                Tutti__V1__Key key;
        } abort;
        Tutti__V1__Busy busy;
        Tutti__V1__Rejoin rejoin;
        Tutti__V1__Shrink shrink;
        Tutti__V1__Prepare prepare;
        struct start_box start;
        Tutti__V1__Unprepare unprepare;
        Tutti__V1__OpenLane open_lane;
        struct {
                Tutti__V1__MakeResult message;
                Tutti__V1__Key key;
        } make_result;
        Tutti__V1__ReleaseResult release_result;
        Tutti__V1__Pages pages;
        struct query_box query;
        Tutti__V1__Control control;
        Tutti__V1__Goodbye goodbye;
        Tutti__V1__OpenSignals open_signals;
        Tutti__V1__Ring ring;
};

/* Fills the box; every member of it begins with its message, so that the box is the body. */
static bool body_out(const struct request *r, struct arena *scratch, union body_box *box) {
        switch (r->type) {
        case REQUEST_NONE: return true;
        case REQUEST_HELLO: hello_out(&r->hello, &box->hello); return true;
        case REQUEST_JOIN: join_out(&r->join, &box->join); return true;
        case REQUEST_LEAVE:
                tutti__v1__leave__init(&box->leave);
                box->leave.membership = r->membership;
                return true;
        case REQUEST_REGISTER: register_out(&r->reg, &box->reg); return true;
        case REQUEST_UNREGISTER:
                tutti__v1__unregister__init(&box->unregister);
                box->unregister.buffer = r->buffer;
                return true;
        case REQUEST_SUBMIT: return submit_out(&r->submit, scratch, &box->submit);
        case REQUEST_ABORT: abort_out(&r->abort, &box->abort.message, &box->abort.key); return true;
        case REQUEST_BUSY: busy_out(&r->busy, &box->busy); return true;
        case REQUEST_REJOIN:
                tutti__v1__rejoin__init(&box->rejoin);
                box->rejoin.membership = r->reform.membership;
                box->rejoin.timeout_ns = r->reform.timeout_ns;
                return true;
        case REQUEST_SHRINK:
                tutti__v1__shrink__init(&box->shrink);
                box->shrink.membership = r->reform.membership;
                box->shrink.timeout_ns = r->reform.timeout_ns;
                return true;
        case REQUEST_PREPARE: tutti__v1__prepare__init(&box->prepare); return true;
        case REQUEST_START: start_out(&r->start, &box->start); return true;
        case REQUEST_UNPREPARE:
                tutti__v1__unprepare__init(&box->unprepare);
                box->unprepare.prepared = r->prepared;
                return true;
        case REQUEST_OPEN_LANE: tutti__v1__open_lane__init(&box->open_lane); return true;
        case REQUEST_MAKE_RESULT:
                make_result_out(&r->make_result, &box->make_result.message, &box->make_result.key);
                return true;
        case REQUEST_RELEASE_RESULT:
                release_result_out(&r->release_result, &box->release_result);
                return true;
        case REQUEST_PAGES: return pages_out(&r->pages, scratch, &box->pages);
        case REQUEST_QUERY: return query_out(&r->query, scratch, &box->query);
        case REQUEST_CONTROL: control_out(&r->control, &box->control); return true;
        case REQUEST_GOODBYE: tutti__v1__goodbye__init(&box->goodbye); return true;
        case REQUEST_OPEN_SIGNALS: open_signals_out(&r->open_signals, &box->open_signals); return true;
        case REQUEST_RING: tutti__v1__ring__init(&box->ring); return true;
        }
        return false;
}

int codec_encode_request(const struct request *request, struct arena *scratch, void *buf, size_t *ret_bytes) {
        Tutti__V1__Request m = TUTTI__V1__REQUEST__INIT;
        union body_box box;
        size_t used_before = scratch->used_bytes;
        int r = -EMSGSIZE;
        if (body_out(request, scratch, &box)) {
                m.request = request->request;
                if (request->type != REQUEST_NONE) {
                        m.body_case = (Tutti__V1__Request__BodyCase)(request->type + 1);
                        m.hello = &box.hello;
                }
                r = pb_pack(&m.base, buf, ret_bytes);
        }
        scratch->used_bytes = used_before;
        return r;
}
