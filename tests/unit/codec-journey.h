/* What the tests of the codec share: the journey of a message over the wire and back, and messages that hold
 * everything they can. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include "wire/channel.h"
#include "wire/codec.h"

#define GUARD 0xa5

static uint8_t arena_memory[CODEC_ARENA_BYTES + 64], scratch_memory[CODEC_ARENA_BYTES + 64];
static struct arena arena, scratch;
static uint8_t packet[MAX_PACKET_BYTES];
static size_t n_packet;

static inline void begin(void) {
        memset(arena_memory, GUARD, sizeof(arena_memory));
        memset(scratch_memory, GUARD, sizeof(scratch_memory));
        arena_init(&arena, arena_memory, CODEC_ARENA_BYTES);
        arena_init(&scratch, scratch_memory, CODEC_ARENA_BYTES);
}

/* Neither arena was left, and the scratch arena is as it was. */
static inline void end(void) {
        for (size_t i = CODEC_ARENA_BYTES; i < sizeof(arena_memory); i++) {
                ck_assert_uint_eq(arena_memory[i], GUARD);
                ck_assert_uint_eq(scratch_memory[i], GUARD);
        }
        ck_assert_uint_eq(scratch.used_bytes, 0);
}

static inline struct request pass_request(const struct request *r) {
        struct request back;
        begin();
        ck_assert_int_eq(codec_encode_request(r, &scratch, packet, &n_packet), 0);
        ck_assert_int_eq(codec_decode_request(packet, n_packet, &arena, &back), 0);
        ck_assert_uint_eq(back.request, r->request);
        ck_assert_int_eq(back.type, r->type);
        end();
        return back;
}

static inline struct reply pass_reply(const struct reply *r) {
        struct reply back;
        begin();
        ck_assert_int_eq(codec_encode_reply(r, &scratch, packet, &n_packet), 0);
        ck_assert_int_eq(codec_decode_reply(packet, n_packet, &arena, &back), 0);
        ck_assert_uint_eq(back.request, r->request);
        ck_assert_int_eq(back.type, r->type);
        ck_assert_int_eq(back.status, r->status);
        ck_assert_int_eq(back.more, r->more);
        end();
        return back;
}

/* --- what is equal --- */

#define SAME(a, b, member)     ck_assert_msg((a)->member == (b)->member, #member " differs")
#define SAME_STR(a, b, member) ck_assert_str_eq((a)->member, (b)->member)
#define SAME_KEY(a, b, member) ck_assert(key_is_equal(&(a)->member, &(b)->member))
#define SAME_SET(a, b, member) ck_assert(rankset_is_equal(&(a)->member, &(b)->member))

static inline struct key key_of(const char *name) {
        struct key k;
        ck_assert(key_name(&k, name, strlen(name)));
        return k;
}

static inline struct rankset set_of(uint64_t seed) {
        struct rankset s;
        for (size_t i = 0; i < ARRAY_SIZE(s.words); i++)
                s.words[i] = seed * (i + 1) * UINT64_C(0x9e3779b97f4a7c15) | UINT64_C(1) << 63;
        return s;
}

static inline struct replica_report report_of(uint32_t rank) {
        struct replica_report r = { .rank = rank,
                .pid = 4711 + rank,
                .uid = UINT32_MAX,
                .state = PROCESS_STOPPED,
                .has_last = true,
                .last_key = key_of("grad/6"),
                .last_age_ns = UINT64_MAX };
        memset(r.last_key.bytes, 'k', MAX_KEY_BYTES);
        r.last_key.n_bytes = MAX_KEY_BYTES;
        memset(r.busy, 'b', sizeof(r.busy) - 1);
        return r;
}

static inline void check_report(const struct replica_report *a, const struct replica_report *b) {
        SAME(a, b, rank);
        SAME(a, b, pid);
        SAME(a, b, uid);
        SAME(a, b, state);
        SAME(a, b, has_last);
        SAME_KEY(a, b, last_key);
        SAME(a, b, last_age_ns);
        SAME_STR(a, b, busy);
}

/* --- messages that hold everything they can --- */

static inline struct entry full_entry(enum destination destination) {
        struct entry e = { .dtype = DTYPE_C128,
                .output_dtype = DTYPE_F64,
                .layout = LAYOUT_SPARSE,
                .destination = destination,
                .n_dims = MAX_DIMS,
                .shape = { 1, 0, UINT64_MAX, 4, 5, 6, 7, 8 },
                .input = { .buffer = 1,
                        .offset_bytes = UINT64_MAX,
                        .n_strides = 3,
                        .strides = { 0, 1, UINT64_MAX } },
                .output = { .buffer = UINT64_MAX, .offset_bytes = 64 },
                .input_checksum = UINT64_MAX - 1,
                .output_extent = UINT64_MAX - 2,
                .sparse = { .index_dtype = DTYPE_I64,
                        .n_dense_dims = MAX_DIMS,
                        .dense_shape = { UINT64_MAX, 2, 3, 4, 5, 6, 7, 8 },
                        .n_indices = UINT64_MAX - 3,
                        .indices = { .buffer = 5, .offset_bytes = 6, .n_strides = 1, .strides = { 9 } },
                        .output_indices = { .buffer = 7, .offset_bytes = 8 } } };
        if (destination == DESTINATION_DEVICE) {
                e.destination_device = DEVICE_GPU + 999999;
                e.output = (struct place){ .result = UINT64_MAX, .offset_bytes = 64 };
        }
        if (destination == DESTINATION_RANK)
                e.destination_rank = 1023;
        if (destination == DESTINATION_RANKS)
                e.destination_ranks = set_of(3);
        return e;
}

static inline void check_entry(const struct entry *a, const struct entry *b) {
        SAME(a, b, dtype);
        SAME(a, b, output_dtype);
        SAME(a, b, layout);
        SAME(a, b, destination);
        SAME(a, b, destination_rank);
        SAME(a, b, destination_device);
        SAME_SET(a, b, destination_ranks);
        SAME(a, b, n_dims);
        ck_assert_int_eq(memcmp(a->shape, b->shape, sizeof(a->shape)), 0);
        SAME(a, b, input_checksum);
        SAME(a, b, output_extent);
        SAME(a, b, sparse.index_dtype);
        SAME(a, b, sparse.n_dense_dims);
        ck_assert_mem_eq(a->sparse.dense_shape, b->sparse.dense_shape, sizeof(a->sparse.dense_shape));
        SAME(a, b, sparse.n_indices);
        SAME(a, b, sparse.indices.buffer);
        SAME(a, b, sparse.indices.offset_bytes);
        SAME(a, b, sparse.indices.n_strides);
        SAME(a, b, sparse.indices.strides[0]);
        SAME(a, b, sparse.output_indices.buffer);
        SAME(a, b, sparse.output_indices.offset_bytes);
        ck_assert_ptr_null(b->sparse.indices.lease);
        SAME(a, b, input.buffer);
        SAME(a, b, input.offset_bytes);
        SAME(a, b, input.n_strides);
        ck_assert_mem_eq(a->input.strides, b->input.strides, sizeof(a->input.strides));
        SAME(a, b, output.buffer);
        SAME(a, b, output.offset_bytes);
        SAME(a, b, output.n_strides);
        ck_assert_mem_eq(a->output.strides, b->output.strides, sizeof(a->output.strides));
        SAME(a, b, output.result);
        ck_assert_ptr_null(b->output.object);
        ck_assert_ptr_null(b->input.lease);
        ck_assert_ptr_null(b->input.memory);
        ck_assert_ptr_null(b->output.lease);
        ck_assert_uint_eq(b->output.span.n_bytes, 0);
}

static const struct options all_options __attribute__((unused)) = { .rounding = ROUNDING_NEAREST,
        .has_weight = true,
        .weight = -0.1,
        .check_numerics = true,
        .check_overflow = true,
        .check_inputs = true,
        .reproducible = true,
        .coalesce = true,
        .implementation = IMPLEMENTATION_NCCL,
        .algorithm = ALGORITHM_HIERARCHICAL_COPY,
        .has_place = true,
        .place = 3,
        .packing = { .num_packs = 5,
                .small_bytes = 6,
                .small_group = 7,
                .bytes_per_pack = UINT64_C(1) << 40 },
        .priority = -5 };

static inline struct request submission(const struct entry *entries, uint32_t n) {
        struct request r = { .request = 7, .type = REQUEST_SUBMIT };
        r.submit = (struct msg_submit){ .membership = 9,
                .epoch = 3,
                .has_key = true,
                .key = key_of("grad/7"),
                .signature = { .kind = KIND_BATCH_REDUCE, .op = OP_MEAN, .n_entries = n },
                .n_part_entries = n,
                .entries = entries };
        return r;
}

/* Everything an error can hold, at its longest. */
static inline struct error full_error(void) {
        struct error e;
        error_init(&e, STATUS_MISMATCH);
        e.cause = STATUS_INTERNAL;
        e.field = FIELD_VERSION;
        e.loss = LOSS_WENT;
        e.outputs_undefined = true;
        e.kind = KIND_MERGE_CALL;
        memset(e.job, 'j', sizeof(e.job) - 1);
        memset(e.group, 'g', sizeof(e.group) - 1);
        e.has_key = true;
        e.key = key_of("grad/7");
        e.epoch = UINT64_MAX;
        e.entry = 65535;
        e.rank = 1023;
        e.world_size = 1024;
        e.have = set_of(1);
        e.missing = set_of(2);
        e.n_classes = MAX_ERROR_CLASSES;
        e.n_replicas = MAX_ERROR_REPLICAS;
        for (uint32_t i = 0; i < MAX_ERROR_CLASSES; i++) {
                e.classes[i].ranks = set_of(i + 3);
                memset(e.classes[i].value, (int)('a' + i), sizeof(e.classes[i].value) - 1);
                e.replicas[i] = report_of(i);
        }
        e.age_ns = e.used = e.limit = UINT64_MAX;
        memset(e.detail, 'd', sizeof(e.detail) - 1);
        return e;
}

static inline struct reply reply_with_rows(const struct row *rows, uint32_t n) {
        struct reply r = { .request = 9, .type = REPLY_ROWS };
        r.rows.rows = rows;
        r.rows.n_rows = n;
        return r;
}
