#include "wire/codec-pb.h"

#include <errno.h>
#include <string.h>

/* --- the words of both worlds are numbered alike --- */

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is numbered as on the wire")

SAME(STATUS_OK, TUTTI__V1__STATUS__OK);
SAME(STATUS_INVALID, TUTTI__V1__STATUS__INVALID);
SAME(STATUS_UNSUPPORTED, TUTTI__V1__STATUS__UNSUPPORTED);
SAME(STATUS_MISMATCH, TUTTI__V1__STATUS__MISMATCH);
SAME(STATUS_ALREADY_PENDING, TUTTI__V1__STATUS__ALREADY_PENDING);
SAME(STATUS_TIMEOUT, TUTTI__V1__STATUS__TIMEOUT);
SAME(STATUS_EXPIRED, TUTTI__V1__STATUS__EXPIRED);
SAME(STATUS_ABORTED, TUTTI__V1__STATUS__ABORTED);
SAME(STATUS_CANCELLED, TUTTI__V1__STATUS__CANCELLED);
SAME(STATUS_PEER_REFUSED, TUTTI__V1__STATUS__PEER_REFUSED);
SAME(STATUS_REPLICA_LOST, TUTTI__V1__STATUS__REPLICA_LOST);
SAME(STATUS_LEFT, TUTTI__V1__STATUS__LEFT);
SAME(STATUS_OUTPUT_LOST, TUTTI__V1__STATUS__OUTPUT_LOST);
SAME(STATUS_QUOTA, TUTTI__V1__STATUS__QUOTA);
SAME(STATUS_LIMIT, TUTTI__V1__STATUS__LIMIT);
SAME(STATUS_PERMISSION, TUTTI__V1__STATUS__PERMISSION);
SAME(STATUS_VERSION, TUTTI__V1__STATUS__VERSION);
SAME(STATUS_BAD_FD, TUTTI__V1__STATUS__BAD_FD);
SAME(STATUS_NOT_FOUND, TUTTI__V1__STATUS__NOT_FOUND);
SAME(STATUS_NO_MEMORY, TUTTI__V1__STATUS__NO_MEMORY);
SAME(STATUS_BUSY, TUTTI__V1__STATUS__BUSY);
SAME(STATUS_FORKED, TUTTI__V1__STATUS__FORKED);
SAME(STATUS_NO_DAEMON, TUTTI__V1__STATUS__NO_DAEMON);
SAME(STATUS_DAEMON_LOST, TUTTI__V1__STATUS__DAEMON_LOST);
SAME(STATUS_DRAINING, TUTTI__V1__STATUS__DRAINING);
SAME(STATUS_DEVICE_LOST, TUTTI__V1__STATUS__DEVICE_LOST);
SAME(STATUS_INTERNAL, TUTTI__V1__STATUS__INTERNAL);

SAME(KIND_UNSPECIFIED, TUTTI__V1__KIND__KIND_UNSPECIFIED);
SAME(KIND_REDUCE, TUTTI__V1__KIND__REDUCE);
SAME(KIND_BROADCAST, TUTTI__V1__KIND__BROADCAST);
SAME(KIND_BATCH_REDUCE, TUTTI__V1__KIND__BATCH_REDUCE);
SAME(KIND_BARRIER, TUTTI__V1__KIND__BARRIER);
SAME(KIND_GATHER, TUTTI__V1__KIND__GATHER);
SAME(KIND_REDUCE_SCATTER, TUTTI__V1__KIND__REDUCE_SCATTER);
SAME(KIND_MERGE_CALL, TUTTI__V1__KIND__MERGE_CALL);
SAME(KIND_MERGE_RESULT, TUTTI__V1__KIND__MERGE_RESULT);

SAME(OP_UNSPECIFIED, TUTTI__V1__OP__OP_UNSPECIFIED);
SAME(OP_SUM, TUTTI__V1__OP__SUM);
SAME(OP_MEAN, TUTTI__V1__OP__MEAN);
SAME(OP_PROD, TUTTI__V1__OP__PROD);
SAME(OP_MIN, TUTTI__V1__OP__MIN);
SAME(OP_MAX, TUTTI__V1__OP__MAX);
SAME(OP_BAND, TUTTI__V1__OP__BAND);
SAME(OP_BOR, TUTTI__V1__OP__BOR);
SAME(OP_BXOR, TUTTI__V1__OP__BXOR);
SAME(OP_LAND, TUTTI__V1__OP__LAND);
SAME(OP_LOR, TUTTI__V1__OP__LOR);

SAME(DTYPE_UNSPECIFIED, TUTTI__V1__DTYPE__DTYPE_UNSPECIFIED);
SAME(DTYPE_U8, TUTTI__V1__DTYPE__U8);
SAME(DTYPE_I8, TUTTI__V1__DTYPE__I8);
SAME(DTYPE_U16, TUTTI__V1__DTYPE__U16);
SAME(DTYPE_I16, TUTTI__V1__DTYPE__I16);
SAME(DTYPE_U32, TUTTI__V1__DTYPE__U32);
SAME(DTYPE_I32, TUTTI__V1__DTYPE__I32);
SAME(DTYPE_U64, TUTTI__V1__DTYPE__U64);
SAME(DTYPE_I64, TUTTI__V1__DTYPE__I64);
SAME(DTYPE_F16, TUTTI__V1__DTYPE__F16);
SAME(DTYPE_BF16, TUTTI__V1__DTYPE__BF16);
SAME(DTYPE_F32, TUTTI__V1__DTYPE__F32);
SAME(DTYPE_F64, TUTTI__V1__DTYPE__F64);
SAME(DTYPE_BOOL, TUTTI__V1__DTYPE__BOOL);
SAME(DTYPE_C64, TUTTI__V1__DTYPE__C64);
SAME(DTYPE_C128, TUTTI__V1__DTYPE__C128);

SAME(ACCESS_IN, TUTTI__V1__ACCESS__IN);
SAME(ACCESS_OUT, TUTTI__V1__ACCESS__OUT);
SAME(ACCESS_INOUT, TUTTI__V1__ACCESS__INOUT);
SAME(ON_DEATH_FAIL, TUTTI__V1__ON_DEATH__FAIL);
SAME(ON_DEATH_SHRINK, TUTTI__V1__ON_DEATH__SHRINK);
SAME(ON_LEAVE_CONTRIBUTORS, TUTTI__V1__ON_LEAVE__CONTRIBUTORS);
SAME(ON_LEAVE_ZERO_FILL, TUTTI__V1__ON_LEAVE__ZERO_FILL);
SAME(ROUNDING_TRUNC, TUTTI__V1__ROUNDING__TRUNC);
SAME(ROUNDING_FLOOR, TUTTI__V1__ROUNDING__FLOOR);
SAME(ROUNDING_NEAREST, TUTTI__V1__ROUNDING__NEAREST);
SAME(IMPLEMENTATION_AUTO, TUTTI__V1__IMPLEMENTATION__AUTO);
SAME(IMPLEMENTATION_RING, TUTTI__V1__IMPLEMENTATION__RING);
SAME(IMPLEMENTATION_NCCL, TUTTI__V1__IMPLEMENTATION__NCCL);
SAME(BUFFER_KIND_MEMFD, TUTTI__V1__BUFFER_KIND__MEMFD);
SAME(BUFFER_KIND_CUDA_VMM, TUTTI__V1__BUFFER_KIND__CUDA_VMM);
SAME(BUFFER_KIND_CUDA_IPC, TUTTI__V1__BUFFER_KIND__CUDA_IPC);
SAME(ORDER_HOST, TUTTI__V1__ORDER__ORDER_HOST);
SAME(ORDER_TIMELINE, TUTTI__V1__ORDER__ORDER_TIMELINE);
SAME(ORDER_EVENTS, TUTTI__V1__ORDER__ORDER_EVENTS);

SAME(FIELD_KIND, TUTTI__V1__FIELD__FIELD_KIND);
SAME(FIELD_OP, TUTTI__V1__FIELD__FIELD_OP);
SAME(FIELD_ROOT, TUTTI__V1__FIELD__FIELD_ROOT);
SAME(FIELD_DTYPE, TUTTI__V1__FIELD__FIELD_DTYPE);
SAME(FIELD_OUTPUT_DTYPE, TUTTI__V1__FIELD__FIELD_OUTPUT_DTYPE);
SAME(FIELD_SHAPE, TUTTI__V1__FIELD__FIELD_SHAPE);
SAME(FIELD_LAYOUT, TUTTI__V1__FIELD__FIELD_LAYOUT);
SAME(FIELD_DESTINATIONS, TUTTI__V1__FIELD__FIELD_DESTINATIONS);
SAME(FIELD_BATCH_LENGTH, TUTTI__V1__FIELD__FIELD_BATCH_LENGTH);
SAME(FIELD_OPTIONS, TUTTI__V1__FIELD__FIELD_OPTIONS);
SAME(FIELD_WORLD_SIZE, TUTTI__V1__FIELD__FIELD_WORLD_SIZE);
SAME(FIELD_RANK, TUTTI__V1__FIELD__FIELD_RANK);
SAME(FIELD_BUFFER, TUTTI__V1__FIELD__FIELD_BUFFER);
SAME(FIELD_OFFSET, TUTTI__V1__FIELD__FIELD_OFFSET);
SAME(FIELD_STRIDES, TUTTI__V1__FIELD__FIELD_STRIDES);
SAME(FIELD_OVERLAP, TUTTI__V1__FIELD__FIELD_OVERLAP);
SAME(FIELD_DATA, TUTTI__V1__FIELD__FIELD_DATA);
SAME(FIELD_KEY, TUTTI__V1__FIELD__FIELD_KEY);
SAME(FIELD_GROUP, TUTTI__V1__FIELD__FIELD_GROUP);
SAME(FIELD_JOB, TUTTI__V1__FIELD__FIELD_JOB);
SAME(FIELD_ACCESS, TUTTI__V1__FIELD__FIELD_ACCESS);
SAME(FIELD_SIZE, TUTTI__V1__FIELD__FIELD_SIZE);
SAME(FIELD_DESCRIPTOR, TUTTI__V1__FIELD__FIELD_DESCRIPTOR);
SAME(FIELD_ENTRIES, TUTTI__V1__FIELD__FIELD_ENTRIES);
SAME(FIELD_TIMEOUT, TUTTI__V1__FIELD__FIELD_TIMEOUT);
SAME(FIELD_MEMBERSHIP, TUTTI__V1__FIELD__FIELD_MEMBERSHIP);
SAME(FIELD_VERSION, TUTTI__V1__FIELD__FIELD_VERSION);
SAME(FIELD_AXIS, TUTTI__V1__FIELD__FIELD_AXIS);
SAME(FIELD_EXTENT, TUTTI__V1__FIELD__FIELD_EXTENT);
SAME(FIELD_INDICES, TUTTI__V1__FIELD__FIELD_INDICES);
SAME(FIELD_INDEX_DTYPE, TUTTI__V1__FIELD__FIELD_INDEX_DTYPE);
SAME(FIELD_DENSE_SHAPE, TUTTI__V1__FIELD__FIELD_DENSE_SHAPE);

SAME(LOSS_DIED, TUTTI__V1__LOSS__DIED);
SAME(LOSS_DISCONNECTED, TUTTI__V1__LOSS__DISCONNECTED);
SAME(LOSS_EJECTED, TUTTI__V1__LOSS__EJECTED);
SAME(LOSS_WENT, TUTTI__V1__LOSS__WENT);
SAME(PROCESS_UNKNOWN, TUTTI__V1__PROCESS_STATE__STATE_UNKNOWN);
SAME(PROCESS_ALIVE, TUTTI__V1__PROCESS_STATE__ALIVE);
SAME(PROCESS_STOPPED, TUTTI__V1__PROCESS_STATE__STOPPED);
SAME(PROCESS_DEAD, TUTTI__V1__PROCESS_STATE__DEAD);
SAME(PROCESS_ABSENT, TUTTI__V1__PROCESS_STATE__ABSENT);
SAME(WHAT_STATUS, TUTTI__V1__WHAT__WHAT_STATUS);
SAME(WHAT_GROUPS, TUTTI__V1__WHAT__WHAT_GROUPS);
SAME(WHAT_STATS, TUTTI__V1__WHAT__WHAT_STATS);
SAME(WHAT_DUMP, TUTTI__V1__WHAT__WHAT_DUMP);
SAME(WHAT_QUOTA, TUTTI__V1__WHAT__WHAT_QUOTA);
SAME(WHAT_HISTOGRAMS, TUTTI__V1__WHAT__WHAT_HISTOGRAMS);
SAME(MEASURE_WAIT, TUTTI__V1__MEASURE__MEASURE_WAIT);
SAME(MEASURE_RUN, TUTTI__V1__MEASURE__MEASURE_RUN);
SAME(MEASURE_LATENESS, TUTTI__V1__MEASURE__MEASURE_LATENESS);
SAME(WHAT_PLAN, TUTTI__V1__WHAT__WHAT_PLAN);

/* --- unpacking and packing --- */

/* The unpacker gives everything back at the end in any case: with the arena. */
struct bounded {
        struct arena *arena;
        bool is_full;
};

static void *bounded_alloc(void *data, size_t n_bytes) {
        struct bounded *b = data;
        void *r = arena_alloc(b->arena, n_bytes);
        if (!r)
                b->is_full = true;
        return r;
}

static void bounded_free(void *data, void *p) {
}

int pb_unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t n_bytes,
        struct arena *arena, ProtobufCMessage **ret) {
        struct bounded bounded = { .arena = arena };
        ProtobufCAllocator allocator = { bounded_alloc, bounded_free, &bounded };
        if (n_bytes > MAX_PACKET_BYTES)
                return -E2BIG;
        ProtobufCMessage *m = protobuf_c_message_unpack(descriptor, &allocator, n_bytes, bytes);
        if (!m)
                return bounded.is_full ? -E2BIG : -EPROTO;
        *ret = m;
        return 0;
}

int pb_pack(const ProtobufCMessage *message, void *buf, size_t *ret_bytes) {
        size_t n = protobuf_c_message_get_packed_size(message);
        if (n == 0)
                return -EINVAL;
        if (n > MAX_PACKET_BYTES)
                return -EMSGSIZE;
        *ret_bytes = protobuf_c_message_pack(message, buf);
        return 0;
}

size_t pb_element_bytes(const ProtobufCMessage *message) {
        size_t n = protobuf_c_message_get_packed_size(message), n_length = 1;
        for (size_t rest = n; rest >= 128; rest /= 128)
                n_length++;
        return 1 + n_length + n;
}

/* --- pieces --- */

const char *string_in(char *s) {
        if (strnlen(s, MAX_STRING_BYTES + 1) > MAX_STRING_BYTES)
                s[MAX_STRING_BYTES] = '\0';
        return s;
}

char *string_out(const char *s) {
        return (char *)(s ? s : "");
}

bool key_in(const Tutti__V1__Key *m, struct key *ret) {
        *ret = key_sequence(0);
        if (!m)
                return false;
        if (m->name_case == TUTTI__V1__KEY__NAME_KEY)
                return key_name(ret, (const char *)m->key.data, m->key.len);
        if (m->name_case != TUTTI__V1__KEY__NAME_SEQUENCE)
                return false;
        ret->sequence = m->sequence;
        return true;
}

void key_out(const struct key *key, Tutti__V1__Key *m) {
        tutti__v1__key__init(m);
        if (key->n_bytes) {
                m->name_case = TUTTI__V1__KEY__NAME_KEY;
                m->key = (ProtobufCBinaryData){ key->n_bytes, (uint8_t *)key->bytes };
        } else {
                m->name_case = TUTTI__V1__KEY__NAME_SEQUENCE;
                m->sequence = key->sequence;
        }
}

bool ranks_in(const ProtobufCBinaryData *m, struct rankset *ret) {
        return rankset_from_bytes(m->data, m->len, ret);
}

ProtobufCBinaryData ranks_out(const struct rankset *s, uint8_t bytes[MAX_WORLD / 8]) {
        return (ProtobufCBinaryData){ rankset_to_bytes(s, bytes), bytes };
}

uint16_t axes_in(const uint32_t *axes, size_t n) {
        uint16_t set = 0;
        for (size_t i = 0; i < n; i++)
                set |= axes[i] < MAX_DIMS ? 1u << axes[i] : AXIS_BEYOND;
        return set;
}

size_t axes_out(uint16_t axes, uint32_t ret[MAX_DIMS + 1]) {
        size_t n = 0;
        for (uint32_t d = 0; d <= MAX_DIMS; d++)
                if (axes >> d & 1)
                        ret[n++] = d;
        return n;
}

Tutti__V1__Signal *signal_out(const struct msg_signal *s, Tutti__V1__Signal *m) {
        tutti__v1__signal__init(m);
        m->slot = s->slot;
        m->value = s->value;
        return m;
}

void report_in(const Tutti__V1__ReplicaReport *m, struct replica_report *ret) {
        *ret = (struct replica_report){ .rank = m->rank,
                .pid = m->pid,
                .uid = m->uid,
                .state = process_state_in((int)m->state),
                .last_age_ns = m->last_age_ns };
        ret->has_last = key_in(m->last_key, &ret->last_key) && m->has_last;
        text_copy(ret->busy, sizeof(ret->busy), m->busy);
}

void report_out(const struct replica_report *r, struct report_box *box) {
        Tutti__V1__ReplicaReport *m = &box->message;
        tutti__v1__replica_report__init(m);
        m->rank = r->rank;
        m->pid = r->pid;
        m->uid = r->uid;
        m->state = (Tutti__V1__ProcessState)r->state;
        m->last_age_ns = r->last_age_ns;
        m->has_last = r->has_last;
        m->busy = string_out(r->busy);
        if (r->has_last) {
                key_out(&r->last_key, &box->key);
                m->last_key = &box->key;
        }
}

void reports_out(const struct replica_report *reports, uint32_t n, struct reports_box *box) {
        box->n = n < MAX_ERROR_REPLICAS ? n : MAX_ERROR_REPLICAS;
        for (size_t i = 0; i < box->n; i++) {
                report_out(&reports[i], &box->boxes[i]);
                box->list[i] = &box->boxes[i].message;
        }
}

uint32_t reports_in(
        Tutti__V1__ReplicaReport *const *list, size_t n, struct replica_report ret[MAX_ERROR_REPLICAS]) {
        uint32_t n_taken = n < MAX_ERROR_REPLICAS ? (uint32_t)n : MAX_ERROR_REPLICAS;
        for (uint32_t i = 0; i < n_taken; i++)
                report_in(list[i], &ret[i]);
        return n_taken;
}
