/* Replies: encoded by tuttid, decoded by the library. */
#include "wire/codec.h"

#include <errno.h>
#include <string.h>
#include "wire/codec-pb.h"

/* What a Reply takes beside its rows, rounded up. */
#define REPLY_HEAD_BYTES 256

/* --- errors --- */

struct error_box {
        Tutti__V1__Error message;
        Tutti__V1__Key key;
        uint8_t have[MAX_WORLD / 8], missing[MAX_WORLD / 8];
        Tutti__V1__Class classes[MAX_ERROR_CLASSES];
        Tutti__V1__Class *class_list[MAX_ERROR_CLASSES];
        uint8_t class_ranks[MAX_ERROR_CLASSES][MAX_WORLD / 8];
        struct reports_box reports;
};

static void classes_out(const struct error *e, struct error_box *box) {
        size_t n = e->n_classes < MAX_ERROR_CLASSES ? e->n_classes : MAX_ERROR_CLASSES;
        for (size_t i = 0; i < n; i++) {
                Tutti__V1__Class *m = &box->classes[i];
                tutti__v1__class__init(m);
                m->ranks = ranks_out(&e->classes[i].ranks, box->class_ranks[i]);
                m->value = string_out(e->classes[i].value);
                box->class_list[i] = m;
        }
        box->message.n_classes = n;
        box->message.classes = box->class_list;
}

static void error_out(const struct error *e, struct error_box *box) {
        Tutti__V1__Error *m = &box->message;
        tutti__v1__error__init(m);
        m->cause = (Tutti__V1__Status)e->cause;
        m->field = (Tutti__V1__Field)e->field;
        m->loss = (Tutti__V1__Loss)e->loss;
        m->outputs_undefined = e->outputs_undefined;
        m->kind = (Tutti__V1__Kind)e->kind;
        m->job = string_out(e->job);
        m->group = string_out(e->group);
        if (e->has_key) {
                key_out(&e->key, &box->key);
                m->key = &box->key;
        }
        m->epoch = e->epoch;
        m->entry = e->entry;
        m->rank = e->rank;
        m->world_size = e->world_size;
        m->have = ranks_out(&e->have, box->have);
        m->missing = ranks_out(&e->missing, box->missing);
        classes_out(e, box);
        reports_out(e->replicas, e->n_replicas, &box->reports);
        m->n_replicas = box->reports.n;
        m->replicas = box->reports.list;
        m->age_ns = e->age_ns;
        m->used = e->used;
        m->limit = e->limit;
        m->detail = string_out(e->detail);
}

static bool classes_in(const Tutti__V1__Error *m, struct error *ret) {
        ret->n_classes = m->n_classes < MAX_ERROR_CLASSES ? (uint32_t)m->n_classes : MAX_ERROR_CLASSES;
        for (uint32_t i = 0; i < ret->n_classes; i++) {
                if (!ranks_in(&m->classes[i]->ranks, &ret->classes[i].ranks))
                        return false;
                text_copy(ret->classes[i].value, sizeof(ret->classes[i].value), m->classes[i]->value);
        }
        return true;
}

static bool error_in(const Tutti__V1__Error *m, enum status status, struct error *ret) {
        error_init(ret, status);
        ret->cause = status_in((int)m->cause);
        ret->field = field_in((int)m->field);
        ret->loss = loss_in((int)m->loss);
        ret->outputs_undefined = m->outputs_undefined;
        ret->kind = kind_in((int)m->kind);
        text_copy(ret->job, sizeof(ret->job), m->job);
        text_copy(ret->group, sizeof(ret->group), m->group);
        ret->has_key = key_in(m->key, &ret->key);
        ret->epoch = m->epoch;
        ret->entry = m->entry;
        ret->rank = m->rank;
        ret->world_size = m->world_size;
        ret->n_replicas = reports_in(m->replicas, m->n_replicas, ret->replicas);
        ret->age_ns = m->age_ns;
        ret->used = m->used;
        ret->limit = m->limit;
        text_copy(ret->detail, sizeof(ret->detail), m->detail);
        return ranks_in(&m->have, &ret->have) && ranks_in(&m->missing, &ret->missing) && classes_in(m, ret);
}

/* --- bodies --- */

static void welcome_out(const struct msg_welcome *w, Tutti__V1__Welcome *m) {
        tutti__v1__welcome__init(m);
        m->version = w->version;
        m->server = string_out(w->server);
        m->session = w->session;
        m->pid = w->pid;
        m->n_descriptors = w->n_descriptors;
        m->status_slots = w->status_slots;
        m->default_timeout_ns = w->default_timeout_ns;
        m->max_world = w->max_world;
        m->max_entries = w->max_entries;
        m->max_packet_bytes = w->max_packet_bytes;
}

static struct msg_welcome welcome_in(const Tutti__V1__Welcome *m) {
        return (struct msg_welcome){ .version = m->version,
                .server = string_in(m->server),
                .session = m->session,
                .pid = m->pid,
                .n_descriptors = m->n_descriptors,
                .status_slots = m->status_slots,
                .default_timeout_ns = m->default_timeout_ns,
                .max_world = m->max_world,
                .max_entries = m->max_entries,
                .max_packet_bytes = m->max_packet_bytes };
}

struct joined_box {
        Tutti__V1__Joined message;
        uint8_t members[MAX_WORLD / 8];
};

static void joined_out(const struct msg_joined *j, struct joined_box *box) {
        Tutti__V1__Joined *m = &box->message;
        tutti__v1__joined__init(m);
        m->membership = j->membership;
        m->epoch = j->epoch;
        m->rank = j->rank;
        m->world_size = j->world_size;
        m->members = ranks_out(&j->members, box->members);
}

static int joined_in(const Tutti__V1__Joined *m, struct msg_joined *ret) {
        *ret = (struct msg_joined){
                .membership = m->membership, .epoch = m->epoch, .rank = m->rank, .world_size = m->world_size
        };
        return ranks_in(&m->members, &ret->members) ? 0 : -EPROTO;
}

/* NULL where nothing was found. */
static Tutti__V1__Finding *finding_out(const struct finding *f, Tutti__V1__Finding *m) {
        tutti__v1__finding__init(m);
        m->n = f->n;
        m->rank = f->rank;
        m->entry = f->entry;
        m->index = f->index;
        return f->n ? m : NULL;
}

static struct finding finding_in(const Tutti__V1__Finding *m) {
        if (!m || m->n == 0)
                return (struct finding){ 0 };
        return (struct finding){ .n = m->n, .rank = m->rank, .entry = m->entry, .index = m->index };
}

struct done_box {
        Tutti__V1__Done message;
        Tutti__V1__Finding numerics, overflow;
        uint8_t contributors[MAX_WORLD / 8];
};

static void done_out(const struct msg_done *d, struct done_box *box) {
        Tutti__V1__Done *m = &box->message;
        tutti__v1__done__init(m);
        m->collective = d->collective;
        m->contributors = ranks_out(&d->contributors, box->contributors);
        m->n_contributors = d->n_contributors;
        m->op = (Tutti__V1__Op)d->op;
        m->wait_ns = d->wait_ns;
        m->run_ns = d->run_ns;
        m->last_rank = d->last_rank;
        m->numerics = finding_out(&d->found.numerics, &box->numerics);
        m->overflow = finding_out(&d->found.overflow, &box->overflow);
        m->result = d->result;
        m->slot = d->slot;
        m->kept = d->is_kept;
        m->n_extents = m->n_firsts = d->n_extents;
        m->extents = (uint64_t *)d->extents;
        m->firsts = (uint64_t *)d->firsts;
}

static int done_in(const Tutti__V1__Done *m, struct msg_done *ret) {
        if (m->n_extents != m->n_firsts || m->n_extents > UINT32_MAX)
                return -EPROTO;
        *ret = (struct msg_done){ .collective = m->collective,
                .n_contributors = m->n_contributors,
                .op = op_in((int)m->op),
                .wait_ns = m->wait_ns,
                .run_ns = m->run_ns,
                .last_rank = m->last_rank,
                .found = { finding_in(m->numerics), finding_in(m->overflow) },
                .result = m->result,
                .slot = m->slot,
                .is_kept = m->kept,
                .n_extents = (uint32_t)m->n_extents,
                .extents = m->extents,
                .firsts = m->firsts };
        return ranks_in(&m->contributors, &ret->contributors) ? 0 : -EPROTO;
}

static void result_out(const struct msg_result *r, Tutti__V1__Result *m) {
        tutti__v1__result__init(m);
        m->result = r->result;
        m->n_descriptors = r->n_descriptors;
        m->size_bytes = r->size_bytes;
        m->n_slots = r->n_slots;
        m->stride_bytes = r->stride_bytes;
        m->device_bytes = r->device_bytes;
}

static struct msg_result result_in(const Tutti__V1__Result *m) {
        return (struct msg_result){ .result = m->result,
                .n_descriptors = m->n_descriptors,
                .size_bytes = m->size_bytes,
                .n_slots = m->n_slots,
                .stride_bytes = m->stride_bytes,
                .device_bytes = m->device_bytes };
}

static void registered_out(const struct msg_registered *r, Tutti__V1__Registered *m) {
        tutti__v1__registered__init(m);
        m->n_descriptors = r->n_descriptors;
        m->size_bytes = r->size_bytes;
}

static void signals_out(const struct msg_signals *s, Tutti__V1__Signals *m) {
        tutti__v1__signals__init(m);
        m->order = (Tutti__V1__Order)s->order;
        m->n_descriptors = s->n_descriptors;
        m->n_slots = s->n_slots;
        m->why = string_out(s->why);
        m->n_events = s->n_events;
}

static struct msg_signals signals_in(const Tutti__V1__Signals *m) {
        return (struct msg_signals){ .order = order_in((int)m->order),
                .n_descriptors = m->n_descriptors,
                .n_slots = m->n_slots,
                .why = string_in(m->why),
                .n_events = m->n_events };
}

struct rows_box {
        Tutti__V1__Rows message;
        Tutti__V1__Row **list;
        struct row_box *boxes;
};

static bool rows_out(const struct row *rows, uint32_t n, struct arena *scratch, struct rows_box *box) {
        tutti__v1__rows__init(&box->message);
        box->list = arena_calloc(scratch, n, sizeof(*box->list));
        box->boxes = n > MAX_PART_ROWS ? NULL : arena_alloc(scratch, n * sizeof(*box->boxes));
        if (!box->list || !box->boxes)
                return false;
        for (uint32_t i = 0; i < n; i++) {
                row_out(&rows[i], &box->boxes[i]);
                box->list[i] = &box->boxes[i].message;
        }
        box->message.n_rows = n;
        box->message.rows = box->list;
        return true;
}

static int rows_in(const Tutti__V1__Rows *m, struct arena *arena, struct reply *ret) {
        struct row *rows = arena_calloc(arena, m->n_rows, sizeof(*rows));
        if (!rows)
                return -E2BIG;
        for (size_t i = 0; i < m->n_rows; i++) {
                int r = row_in(m->rows[i], arena, &rows[i]);
                if (r < 0)
                        return r;
        }
        ret->rows.rows = rows;
        ret->rows.n_rows = (uint32_t)m->n_rows;
        return 0;
}

uint32_t codec_rows_that_fit(const struct row *rows, uint32_t n, struct arena *scratch) {
        struct row_box box;
        size_t left = MAX_PACKET_BYTES - REPLY_HEAD_BYTES;
        uint32_t i = 0;
        for (; i < n && i < MAX_PART_ROWS; i++) {
                row_out(&rows[i], &box);
                size_t n_bytes = pb_element_bytes(&box.message.base);
                if (n_bytes > left)
                        break;
                left -= n_bytes;
        }
        return n && !i ? 1 : i;
}

/* --- replies --- */

static int body_in(const Tutti__V1__Reply *m, struct arena *arena, struct reply *ret) {
        switch (m->body_case) {
        case TUTTI__V1__REPLY__BODY_WELCOME:
                ret->type = REPLY_WELCOME;
                ret->welcome = welcome_in(m->welcome);
                return 0;
        case TUTTI__V1__REPLY__BODY_JOINED:
                ret->type = REPLY_JOINED;
                return joined_in(m->joined, &ret->joined);
        case TUTTI__V1__REPLY__BODY_DONE: ret->type = REPLY_DONE; return done_in(m->done, &ret->done);
        case TUTTI__V1__REPLY__BODY_ROWS: ret->type = REPLY_ROWS; return rows_in(m->rows, arena, ret);
        case TUTTI__V1__REPLY__BODY_RESULT:
                ret->type = REPLY_RESULT;
                ret->result = result_in(m->result);
                return 0;
        case TUTTI__V1__REPLY__BODY_REGISTERED:
                ret->type = REPLY_REGISTERED;
                ret->registered =
                        (struct msg_registered){ m->registered->n_descriptors, m->registered->size_bytes };
                return 0;
        case TUTTI__V1__REPLY__BODY_SIGNALS:
                ret->type = REPLY_SIGNALS;
                ret->signals = signals_in(m->signals);
                return 0;
        case TUTTI__V1__REPLY__BODY_LAUNCHED: ret->type = REPLY_LAUNCHED; return 0;
        case TUTTI__V1__REPLY__BODY_LANE:
                ret->type = REPLY_LANE;
                ret->lane = (struct msg_lane){ m->lane->n_descriptors, m->lane->n_slots };
                return 0;
        case TUTTI__V1__REPLY__BODY_HAND_OVER: ret->type = REPLY_HAND_OVER; return 0;
        case TUTTI__V1__REPLY__BODY_PREPARED:
        case TUTTI__V1__REPLY__BODY__NOT_SET:
        case _TUTTI__V1__REPLY__BODY__CASE_IS_INT_SIZE: break;
        }
        return 0;
}

int codec_decode_reply(const void *bytes, size_t n_bytes, struct arena *arena, struct reply *ret) {
        ProtobufCMessage *message;
        int r = pb_unpack(&tutti__v1__reply__descriptor, bytes, n_bytes, arena, &message);
        if (r < 0)
                return r;
        const Tutti__V1__Reply *m = (const Tutti__V1__Reply *)message;
        *ret = (struct reply){ .request = m->request, .status = status_in((int)m->status), .more = m->more };
        if (m->error && ret->status != STATUS_OK) {
                struct error *e = arena_alloc(arena, sizeof(*e));
                if (!e)
                        return -E2BIG;
                if (!error_in(m->error, ret->status, e))
                        return -EPROTO;
                ret->error = e;
        }
        return body_in(m, arena, ret);
}

/* The body of a reply, whichever it is. */
union body_box {
        Tutti__V1__Welcome welcome;
        struct joined_box joined;
        struct done_box done;
        Tutti__V1__Result result;
        Tutti__V1__Registered registered;
        Tutti__V1__Signals signals;
        Tutti__V1__Launched launched;
        Tutti__V1__Lane lane;
        Tutti__V1__HandOver hand_over;
        struct rows_box rows;
};

/* Fills the box and points the message to it. */
static bool body_out(const struct reply *r, struct arena *scratch, union body_box *box, Tutti__V1__Reply *m) {
        switch (r->type) {
        case REPLY_NONE: break;
        case REPLY_WELCOME:
                welcome_out(&r->welcome, &box->welcome);
                m->body_case = TUTTI__V1__REPLY__BODY_WELCOME;
                m->welcome = &box->welcome;
                break;
        case REPLY_JOINED:
                joined_out(&r->joined, &box->joined);
                m->body_case = TUTTI__V1__REPLY__BODY_JOINED;
                m->joined = &box->joined.message;
                break;
        case REPLY_DONE:
                done_out(&r->done, &box->done);
                m->body_case = TUTTI__V1__REPLY__BODY_DONE;
                m->done = &box->done.message;
                break;
        case REPLY_RESULT:
                result_out(&r->result, &box->result);
                m->body_case = TUTTI__V1__REPLY__BODY_RESULT;
                m->result = &box->result;
                break;
        case REPLY_REGISTERED:
                registered_out(&r->registered, &box->registered);
                m->body_case = TUTTI__V1__REPLY__BODY_REGISTERED;
                m->registered = &box->registered;
                break;
        case REPLY_SIGNALS:
                signals_out(&r->signals, &box->signals);
                m->body_case = TUTTI__V1__REPLY__BODY_SIGNALS;
                m->signals = &box->signals;
                break;
        case REPLY_LAUNCHED:
                tutti__v1__launched__init(&box->launched);
                m->body_case = TUTTI__V1__REPLY__BODY_LAUNCHED;
                m->launched = &box->launched;
                break;
        case REPLY_LANE:
                tutti__v1__lane__init(&box->lane);
                box->lane.n_descriptors = r->lane.n_descriptors;
                box->lane.n_slots = r->lane.n_slots;
                m->body_case = TUTTI__V1__REPLY__BODY_LANE;
                m->lane = &box->lane;
                break;
        case REPLY_HAND_OVER:
                tutti__v1__hand_over__init(&box->hand_over);
                m->body_case = TUTTI__V1__REPLY__BODY_HAND_OVER;
                m->hand_over = &box->hand_over;
                break;
        case REPLY_ROWS:
                m->body_case = TUTTI__V1__REPLY__BODY_ROWS;
                m->rows = &box->rows.message;
                return rows_out(r->rows.rows, r->rows.n_rows, scratch, &box->rows);
        }
        return true;
}

static bool reply_out(
        const struct reply *reply, struct arena *scratch, union body_box *box, Tutti__V1__Reply *m) {
        m->request = reply->request;
        m->status = (Tutti__V1__Status)reply->status;
        m->more = reply->more;
        if (reply->error && reply->status != STATUS_OK) {
                struct error_box *error = arena_alloc(scratch, sizeof(*error));
                if (!error)
                        return false;
                error_out(reply->error, error);
                m->error = &error->message;
        }
        return body_out(reply, scratch, box, m);
}

int codec_encode_reply(const struct reply *reply, struct arena *scratch, void *buf, size_t *ret_bytes) {
        Tutti__V1__Reply m = TUTTI__V1__REPLY__INIT;
        union body_box box;
        size_t used_before = scratch->used_bytes;
        int r = reply_out(reply, scratch, &box, &m) ? pb_pack(&m.base, buf, ret_bytes) : -EMSGSIZE;
        scratch->used_bytes = used_before;
        return r;
}
