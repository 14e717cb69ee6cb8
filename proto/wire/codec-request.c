/* Requests: decoded by tuttid, encoded by the library. */
#include "wire/codec.h"

#include <errno.h>
#include <string.h>
#include "wire/codec-pb.h"

/* What a Request takes beside the entries of a submission: every field at its longest, rounded up. */
#define SUBMIT_HEAD_BYTES 768

/* --- entries --- */

static void place_in(const Tutti__V1__Place *m, struct place *ret) {
        if (!m)
                return;
        ret->buffer = m->buffer;
        ret->offset_bytes = m->offset_bytes;
        ret->n_strides = m->n_strides <= MAX_DIMS ? (uint32_t)m->n_strides : MAX_DIMS + 1;
        for (size_t i = 0; i < m->n_strides && i < MAX_DIMS; i++)
                ret->strides[i] = m->strides[i];
        ret->result = m->result;
}

/* What cannot be a destination stays DESTINATION_UNSPECIFIED, which is refused. */
static void destinations_in(const Tutti__V1__Destinations *m, struct entry *ret) {
        if (!m)
                return;
        switch (m->where_case) {
        case TUTTI__V1__DESTINATIONS__WHERE_ALL:
                if (m->all)
                        ret->destination = DESTINATION_ALL;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_RANK:
                ret->destination = DESTINATION_RANK;
                ret->destination_rank = m->rank;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_RANKS:
                if (ranks_in(&m->ranks, &ret->destination_ranks))
                        ret->destination = DESTINATION_RANKS;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_DEVICE:
                ret->destination = DESTINATION_DEVICE;
                ret->destination_device = device_parse(m->device);
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_SAME:
                if (m->same)
                        ret->destination = DESTINATION_SAME;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE__NOT_SET:
        case _TUTTI__V1__DESTINATIONS__WHERE__CASE_IS_INT_SIZE: return;
        }
}

/* `ret` is cleared. */
static void entry_in(const Tutti__V1__Entry *m, struct entry *ret) {
        ret->dtype = dtype_in((int)m->dtype);
        ret->output_dtype = dtype_in((int)m->output_dtype);
        ret->layout = m->sparse ? LAYOUT_SPARSE : LAYOUT_DENSE;
        ret->n_dims = m->n_shape <= MAX_DIMS ? (uint32_t)m->n_shape : MAX_DIMS + 1;
        for (size_t i = 0; i < m->n_shape && i < MAX_DIMS; i++)
                ret->shape[i] = m->shape[i];
        place_in(m->input, &ret->input);
        place_in(m->output, &ret->output);
        destinations_in(m->destinations, ret);
        ret->input_checksum = m->input_checksum;
        ret->output_extent = m->output_extent;
}

/* An entry's message with everything it refers to. */
struct entry_box {
        Tutti__V1__Entry message;
        Tutti__V1__Place input, output;
        Tutti__V1__Destinations destinations;
        uint8_t ranks[MAX_WORLD / 8];
        char device[DEVICE_NAME_BYTES];
};

static Tutti__V1__Place *place_out(const struct place *p, Tutti__V1__Place *m) {
        static uint64_t too_many[MAX_DIMS + 1];
        if (!place_is_there(p) && !p->offset_bytes && !p->n_strides)
                return NULL;
        tutti__v1__place__init(m);
        m->buffer = p->buffer;
        m->offset_bytes = p->offset_bytes;
        m->result = p->result;
        m->n_strides = p->n_strides <= MAX_DIMS ? p->n_strides : ARRAY_SIZE(too_many);
        m->strides = p->n_strides <= MAX_DIMS ? (uint64_t *)p->strides : too_many;
        return m;
}

static Tutti__V1__Destinations *destinations_out(const struct entry *e, struct entry_box *box) {
        Tutti__V1__Destinations *m = &box->destinations;
        tutti__v1__destinations__init(m);
        switch (e->destination) {
        case DESTINATION_ALL:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_ALL;
                m->all = 1;
                return m;
        case DESTINATION_RANK:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_RANK;
                m->rank = e->destination_rank;
                return m;
        case DESTINATION_RANKS:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_RANKS;
                m->ranks = ranks_out(&e->destination_ranks, box->ranks);
                return m;
        case DESTINATION_DEVICE:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_DEVICE;
                m->device = string_out(device_name(e->destination_device, box->device));
                return m;
        case DESTINATION_SAME:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_SAME;
                m->same = 1;
                return m;
        case DESTINATION_UNSPECIFIED: break;
        }
        return NULL;
}

static void entry_out(const struct entry *e, struct entry_box *box) {
        static Tutti__V1__Sparse sparse = TUTTI__V1__SPARSE__INIT;
        static uint64_t too_many_dims[MAX_DIMS + 1];
        Tutti__V1__Entry *m = &box->message;
        tutti__v1__entry__init(m);
        m->dtype = (Tutti__V1__DType)e->dtype;
        m->output_dtype = (Tutti__V1__DType)e->output_dtype;
        m->n_shape = e->n_dims <= MAX_DIMS ? e->n_dims : ARRAY_SIZE(too_many_dims);
        m->shape = e->n_dims <= MAX_DIMS ? (uint64_t *)e->shape : too_many_dims;
        m->input = place_out(&e->input, &box->input);
        m->output = place_out(&e->output, &box->output);
        m->destinations = destinations_out(e, box);
        m->sparse = e->layout == LAYOUT_SPARSE ? &sparse : NULL;
        m->input_checksum = e->input_checksum;
        m->output_extent = e->output_extent;
}

uint32_t codec_entries_that_fit(const struct entry *entries, uint32_t n, struct arena *scratch) {
        struct entry_box box;
        size_t left = MAX_PACKET_BYTES - SUBMIT_HEAD_BYTES;
        uint32_t i = 0;
        for (; i < n && i < MAX_PART_ENTRIES; i++) {
                entry_out(&entries[i], &box);
                size_t n_bytes = pb_element_bytes(&box.message.base);
                if (n_bytes > left)
                        break;
                left -= n_bytes;
        }
        return i;
}

/* --- submissions --- */

static void options_in(const Tutti__V1__Options *m, struct options *ret) {
        *ret = (struct options){ 0 };
        if (!m)
                return;
        ret->rounding = known_or((int)m->rounding, ROUNDING_NEAREST + 1, ROUNDING_NEAREST + 1);
        ret->has_weight = m->has_weight;
        ret->weight = m->weight;
        ret->check_numerics = m->check_numerics;
        ret->check_overflow = m->check_overflow;
        ret->check_inputs = m->check_inputs;
        ret->reproducible = m->reproducible;
        ret->implementation =
                known_or((int)m->implementation, IMPLEMENTATION_NCCL + 1, IMPLEMENTATION_NCCL + 1);
        ret->algorithm = algorithm_parse(m->algorithm);
        ret->has_place = m->device[0] != '\0';
        ret->place = ret->has_place ? device_parse(m->device) : 0;
        ret->packing = (struct packing){ .num_packs = m->num_packs,
                .small_bytes = m->agg_small_grads_max_bytes,
                .small_group = m->agg_small_grads_max_group,
                .bytes_per_pack = m->bytes_per_pack };
        ret->priority = m->priority;
}

static void options_out(const struct options *o, Tutti__V1__Options *m, char device[DEVICE_NAME_BYTES]) {
        tutti__v1__options__init(m);
        m->rounding = (Tutti__V1__Rounding)o->rounding;
        m->has_weight = o->has_weight;
        m->weight = o->weight;
        m->check_numerics = o->check_numerics;
        m->check_overflow = o->check_overflow;
        m->check_inputs = o->check_inputs;
        m->reproducible = o->reproducible;
        m->implementation = (Tutti__V1__Implementation)o->implementation;
        m->algorithm = string_out(algorithm_word(o->algorithm));
        m->device = string_out(o->has_place ? device_name(o->place, device) : "");
        m->num_packs = o->packing.num_packs;
        m->agg_small_grads_max_bytes = o->packing.small_bytes;
        m->agg_small_grads_max_group = o->packing.small_group;
        m->bytes_per_pack = o->packing.bytes_per_pack;
        m->priority = o->priority;
}

static int submit_in(const Tutti__V1__Submit *m, struct arena *arena, struct msg_submit *ret) {
        if (m->n_entries > MAX_PART_ENTRIES)
                return -E2BIG;
        struct entry *entries = arena_calloc(arena, m->n_entries, sizeof(*entries));
        const char *tag = string_in(m->tag);
        if (!entries || strlen(tag) > MAX_TAG_BYTES)
                return -E2BIG;
        for (size_t i = 0; i < m->n_entries; i++)
                entry_in(m->entries[i], &entries[i]);
        *ret = (struct msg_submit){ .membership = m->membership,
                .epoch = m->epoch,
                .signature = { .kind = kind_in((int)m->kind),
                        .op = op_in((int)m->op),
                        .root = m->root,
                        .n_entries = m->batch_length,
                        .axes = axes_in(m->axes, m->n_axes) },
                .has_timeout = m->has_timeout,
                .timeout_ns = m->timeout_ns,
                .n_part_entries = (uint32_t)m->n_entries,
                .entries = entries,
                .more = m->more,
                .refused = status_in((int)m->refused),
                .refused_field = field_in((int)m->refused_field),
                .refused_detail = string_in(m->refused_detail) };
        if (m->signal)
                ret->signal = (struct msg_signal){ m->signal->slot, m->signal->value };
        text_copy(ret->signature.tag, sizeof(ret->signature.tag), tag);
        ret->has_key = key_in(m->key, &ret->key);
        options_in(m->options, &ret->signature.options);
        return 0;
}

struct submit_box {
        Tutti__V1__Submit message;
        Tutti__V1__Options options;
        char device[DEVICE_NAME_BYTES];
        Tutti__V1__Key key;
        Tutti__V1__Signal signal;
        uint32_t axes[MAX_DIMS + 1];
        Tutti__V1__Entry **list;
        struct entry_box *entries;
};

static bool entries_out(const struct msg_submit *s, struct arena *scratch, struct submit_box *box) {
        box->list = arena_calloc(scratch, s->n_part_entries, sizeof(*box->list));
        box->entries = arena_calloc(scratch, s->n_part_entries, sizeof(*box->entries));
        if (!box->list || !box->entries)
                return false;
        for (uint32_t i = 0; i < s->n_part_entries; i++) {
                entry_out(&s->entries[i], &box->entries[i]);
                box->list[i] = &box->entries[i].message;
        }
        return true;
}

static bool submit_out(const struct msg_submit *s, struct arena *scratch, struct submit_box *box) {
        Tutti__V1__Submit *m = &box->message;
        tutti__v1__submit__init(m);
        if (!entries_out(s, scratch, box))
                return false;
        options_out(&s->signature.options, &box->options, box->device);
        m->membership = s->membership;
        m->epoch = s->epoch;
        m->kind = (Tutti__V1__Kind)s->signature.kind;
        m->op = (Tutti__V1__Op)s->signature.op;
        m->root = s->signature.root;
        m->options = protobuf_c_message_get_packed_size(&box->options.base) ? &box->options : NULL;
        m->has_timeout = s->has_timeout;
        m->timeout_ns = s->timeout_ns;
        m->batch_length = s->signature.n_entries;
        m->n_entries = s->n_part_entries;
        m->entries = box->list;
        m->more = s->more;
        m->refused = (Tutti__V1__Status)s->refused;
        m->refused_field = (Tutti__V1__Field)s->refused_field;
        m->refused_detail = string_out(s->refused_detail ? s->refused_detail : "");
        m->tag = string_out(s->signature.tag);
        m->n_axes = axes_out(s->signature.axes, m->axes = box->axes);
        if (s->has_key) {
                key_out(&s->key, &box->key);
                m->key = &box->key;
        }
        if (s->signal.value)
                m->signal = signal_out(&s->signal, &box->signal);
        return true;
}

/* --- the other requests --- */

static struct msg_hello hello_in(const Tutti__V1__Hello *m) {
        return (struct msg_hello){ .min_version = m->min_version,
                .max_version = m->max_version,
                .client = string_in(m->client),
                .process = string_in(m->process),
                .n_descriptors = m->n_descriptors,
                .secret = string_in(m->secret) };
}

static void hello_out(const struct msg_hello *h, Tutti__V1__Hello *m) {
        tutti__v1__hello__init(m);
        m->min_version = h->min_version;
        m->max_version = h->max_version;
        m->client = string_out(h->client);
        m->process = string_out(h->process);
        m->n_descriptors = h->n_descriptors;
        m->secret = string_out(h->secret);
}

static struct msg_join join_in(const Tutti__V1__Join *m) {
        return (struct msg_join){ .job = string_in(m->job),
                .group = string_in(m->group),
                .secret = string_in(m->secret),
                .world_size = m->world_size,
                .rank = m->rank,
                .join_timeout_ns = m->join_timeout_ns,
                .on_death = on_death_in((int)m->on_death),
                .on_leave = known_or((int)m->on_leave, ON_LEAVE_ZERO_FILL + 1, ON_LEAVE_ZERO_FILL + 1),
                .has_default_timeout = m->has_default_timeout,
                .default_timeout_ns = m->default_timeout_ns };
}

static void join_out(const struct msg_join *j, Tutti__V1__Join *m) {
        tutti__v1__join__init(m);
        m->job = string_out(j->job);
        m->group = string_out(j->group);
        m->secret = string_out(j->secret);
        m->world_size = j->world_size;
        m->rank = j->rank;
        m->join_timeout_ns = j->join_timeout_ns;
        m->on_death = (Tutti__V1__OnDeath)j->on_death;
        m->on_leave = (Tutti__V1__OnLeave)j->on_leave;
        m->has_default_timeout = j->has_default_timeout;
        m->default_timeout_ns = j->default_timeout_ns;
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
                .why = string_in(m->why) };
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

static struct msg_make_result make_result_in(const Tutti__V1__MakeResult *m) {
        struct msg_make_result r = { .membership = m->membership,
                .size_bytes = m->size_bytes,
                .n_slots = m->n_slots,
                .device = string_in(m->device) };
        r.has_key = key_in(m->key, &r.key);
        return r;
}

static void make_result_out(const struct msg_make_result *r, Tutti__V1__MakeResult *m, Tutti__V1__Key *key) {
        tutti__v1__make_result__init(m);
        m->membership = r->membership;
        m->size_bytes = r->size_bytes;
        m->n_slots = r->n_slots;
        m->device = string_out(r->device);
        if (r->has_key) {
                key_out(&r->key, key);
                m->key = key;
        }
}

static struct msg_release_result release_result_in(const Tutti__V1__ReleaseResult *m) {
        return (struct msg_release_result){
                .result = m->result, .membership = m->membership, .slot = m->slot, .detach = m->detach
        };
}

static void release_result_out(const struct msg_release_result *r, Tutti__V1__ReleaseResult *m) {
        tutti__v1__release_result__init(m);
        m->result = r->result;
        m->membership = r->membership;
        m->slot = r->slot;
        m->detach = r->detach;
}

static int query_in(const Tutti__V1__Query *m, struct arena *arena, struct msg_query *ret) {
        *ret = (struct msg_query){ .what = known_or((int)m->what, WHAT_PLAN + 1, WHAT_PLAN + 1),
                .job = string_in(m->job),
                .group = string_in(m->group),
                .has_user = m->has_user,
                .user = m->user,
                .has_shape = m->shape != NULL,
                .world_size = m->world_size };
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
        m->shape = q->has_shape ? &box->shape.message : NULL;
        return !q->has_shape || submit_out(&q->shape, scratch, &box->shape);
}

static void open_signals_out(const struct msg_open_signals *o, Tutti__V1__OpenSignals *m) {
        tutti__v1__open_signals__init(m);
        m->order = (Tutti__V1__Order)o->order;
        m->device = string_out(o->device);
}

/* --- requests --- */

/* Every body of tutti.proto; what this version does not do is known by its type alone. */
static int body_in(const Tutti__V1__Request *m, struct arena *arena, struct request *ret) {
        /* Body numbers of the contract are those of enum request_type, plus one. */
        _Static_assert((int)REQUEST_HELLO + 1 == TUTTI__V1__REQUEST__BODY_HELLO, "first body");
        _Static_assert((int)REQUEST_OPEN_SIGNALS + 1 == TUTTI__V1__REQUEST__BODY_OPEN_SIGNALS, "last body");
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
        case REQUEST_OPEN_SIGNALS:
                ret->open_signals = (struct msg_open_signals){ order_in((int)m->open_signals->order),
                        string_in(m->open_signals->device) };
                break;
        case REQUEST_NONE:
        case REQUEST_PREPARE:
        case REQUEST_START:
        case REQUEST_UNPREPARE:
        case REQUEST_OPEN_LANE:
        case REQUEST_PAGES:
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
        Tutti__V1__Join join;
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
        Tutti__V1__Start start;
        Tutti__V1__Unprepare unprepare;
        Tutti__V1__OpenLane open_lane;
        struct {
                Tutti__V1__MakeResult message;
                Tutti__V1__Key key;
        } make_result;
        Tutti__V1__ReleaseResult release_result;
        Tutti__V1__Pages pages;
        struct query_box query;
        Tutti__V1__Goodbye goodbye;
        Tutti__V1__OpenSignals open_signals;
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
        case REQUEST_START: tutti__v1__start__init(&box->start); return true;
        case REQUEST_UNPREPARE: tutti__v1__unprepare__init(&box->unprepare); return true;
        case REQUEST_OPEN_LANE: tutti__v1__open_lane__init(&box->open_lane); return true;
        case REQUEST_MAKE_RESULT:
                make_result_out(&r->make_result, &box->make_result.message, &box->make_result.key);
                return true;
        case REQUEST_RELEASE_RESULT:
                release_result_out(&r->release_result, &box->release_result);
                return true;
        case REQUEST_PAGES: tutti__v1__pages__init(&box->pages); return true;
        case REQUEST_QUERY: return query_out(&r->query, scratch, &box->query);
        case REQUEST_GOODBYE: tutti__v1__goodbye__init(&box->goodbye); return true;
        case REQUEST_OPEN_SIGNALS: open_signals_out(&r->open_signals, &box->open_signals); return true;
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
