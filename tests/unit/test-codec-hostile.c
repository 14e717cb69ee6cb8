/* Packets as a lying, broken or newer peer may send them: nothing off the wire is believed, and no packet
 * takes more than its bound. */
#include "codec-journey.h"

/* --- packets by hand: what a lying or newer peer may send --- */

struct raw {
        uint8_t bytes[2 * MAX_PACKET_BYTES];
        size_t n;
};

static void raw_number(struct raw *r, uint64_t value) {
        for (; value >= 128; value >>= 7)
                r->bytes[r->n++] = (uint8_t)(value | 128);
        r->bytes[r->n++] = (uint8_t)value;
}

static void raw_varint(struct raw *r, unsigned int field, uint64_t value) {
        raw_number(r, field << 3);
        raw_number(r, value);
}

static void raw_bytes(struct raw *r, unsigned int field, const void *bytes, size_t n) {
        raw_number(r, field << 3 | 2);
        raw_number(r, n);
        memcpy(r->bytes + r->n, bytes, n);
        r->n += n;
}

static struct raw raw_a, raw_b, raw_c, raw_d;

static struct raw *raw_new(struct raw *r) {
        r->n = 0;
        return r;
}

/* A request that is a submission of `submit`. */
static struct request decode_submit(const struct raw *submit) {
        struct request back;
        struct raw *request = raw_new(&raw_d);
        raw_varint(request, 1, 5);
        raw_bytes(request, 7, submit->bytes, submit->n);
        begin();
        ck_assert_int_eq(codec_decode_request(request->bytes, request->n, &arena, &back), 0);
        ck_assert_int_eq(back.type, REQUEST_SUBMIT);
        end();
        return back;
}

/* The entry of a submission that has this one alone. */
static struct entry decode_entry(const struct raw *entry) {
        struct raw *submit = raw_new(&raw_c);
        raw_bytes(submit, 11, entry->bytes, entry->n);
        struct request back = decode_submit(submit);
        ck_assert_uint_eq(back.submit.n_part_entries, 1);
        return back.submit.entries[0];
}

START_TEST(unknown_words_are_known_to_no_table) {
        static const uint64_t unknown[] = { 100, UINT32_MAX, UINT64_MAX, 1ull << 31 };
        for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
                struct raw *submit = raw_new(&raw_a), *entry = raw_new(&raw_b), *options = raw_new(&raw_c);
                raw_varint(submit, 4, unknown[i]);
                raw_varint(submit, 5, unknown[i]);
                raw_varint(submit, 13, unknown[i]);
                raw_varint(submit, 14, unknown[i]);
                raw_varint(options, 1, unknown[i]);
                raw_varint(options, 7, unknown[i]);
                raw_bytes(submit, 7, options->bytes, options->n);
                struct request back = decode_submit(submit);
                ck_assert_int_eq(back.submit.signature.kind, N_KIND);
                ck_assert_int_eq(back.submit.signature.op, N_OP);
                ck_assert_int_eq(back.submit.refused, STATUS_INTERNAL);
                ck_assert_int_eq(back.submit.refused_field, FIELD_UNSPECIFIED);
                ck_assert_int_eq(back.submit.signature.options.rounding, ROUNDING_NEAREST + 1);
                ck_assert_int_eq(back.submit.signature.options.implementation, IMPLEMENTATION_NCCL + 1);
                raw_varint(entry, 1, unknown[i]);
                raw_varint(entry, 2, unknown[i]);
                struct entry e = decode_entry(entry);
                ck_assert_int_eq(e.dtype, N_DTYPE);
                ck_assert_int_eq(e.output_dtype, N_DTYPE);
                ck_assert_str_eq(dtype_name(e.dtype), "?");
        }
}
END_TEST

START_TEST(unknown_policies_are_one_beyond_the_last) {
        struct raw *request = raw_new(&raw_a), *body = raw_new(&raw_b);
        struct request back;
        raw_varint(body, 6, 50);
        raw_varint(body, 7, 50);
        raw_bytes(request, 3, body->bytes, body->n);
        begin();
        ck_assert_int_eq(codec_decode_request(request->bytes, request->n, &arena, &back), 0);
        ck_assert_int_eq(back.join.on_death, ON_DEATH_SHRINK + 1);
        ck_assert_int_eq(back.join.on_leave, ON_LEAVE_ZERO_FILL + 1);
        body = raw_new(&raw_b);
        request = raw_new(&raw_a);
        raw_varint(body, 3, 50);
        raw_varint(body, 4, 50);
        raw_bytes(request, 5, body->bytes, body->n);
        ck_assert_int_eq(codec_decode_request(request->bytes, request->n, &arena, &back), 0);
        ck_assert_int_eq(back.reg.access, ACCESS_INOUT + 1);
        ck_assert_int_eq(back.reg.kind, BUFFER_KIND_CUDA_IPC + 1);
        request = raw_new(&raw_a);
        body = raw_new(&raw_b);
        raw_varint(body, 1, 50);
        raw_bytes(request, 19, body->bytes, body->n);
        ck_assert_int_eq(codec_decode_request(request->bytes, request->n, &arena, &back), 0);
        ck_assert_int_eq(back.query.what, WHAT_PLAN + 1);
        end();
}
END_TEST

START_TEST(a_body_of_the_future_is_none) {
        struct raw *request = raw_new(&raw_a);
        struct request back;
        raw_varint(request, 1, 5);
        raw_bytes(request, 99, "abc", 3);
        begin();
        ck_assert_int_eq(codec_decode_request(request->bytes, request->n, &arena, &back), 0);
        ck_assert_uint_eq(back.request, 5);
        ck_assert_int_eq(back.type, REQUEST_NONE);
        struct reply reply;
        raw_bytes(request, 9, "", 0); /* Prepared: not decoded by this version */
        ck_assert_int_eq(codec_decode_reply(request->bytes, request->n, &arena, &reply), 0);
        ck_assert_int_eq(reply.type, REPLY_NONE);
        end();
}
END_TEST

START_TEST(keys_of_a_wrong_length_are_no_keys) {
        static const size_t lengths[] = { 0, MAX_KEY_BYTES + 1, 5000 };
        static char name[5000];
        for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
                struct raw *submit = raw_new(&raw_a), *key = raw_new(&raw_b);
                raw_bytes(key, 1, name, lengths[i]);
                raw_bytes(submit, 3, key->bytes, key->n);
                struct request back = decode_submit(submit);
                ck_assert(!back.submit.has_key);
                ck_assert_uint_eq(back.submit.key.n_bytes, 0);
        }
        struct raw *submit = raw_new(&raw_a);
        raw_bytes(submit, 3, "", 0);
        ck_assert(!decode_submit(submit).submit.has_key);
}
END_TEST

START_TEST(more_than_8_dimensions_are_9) {
        for (size_t n = 7; n < 100; n += 13) {
                struct raw *entry = raw_new(&raw_a), *shape = raw_new(&raw_b);
                for (size_t i = 0; i < n; i++)
                        raw_number(shape, i + 1);
                raw_bytes(entry, 3, shape->bytes, shape->n);
                struct entry e = decode_entry(entry);
                ck_assert_uint_eq(e.n_dims, n <= MAX_DIMS ? n : MAX_DIMS + 1);
                ck_assert_uint_eq(e.shape[6], 7);
                ck_assert_uint_eq(e.shape[7], n > 7 ? 8 : 0);
        }
}
END_TEST

START_TEST(destinations_that_are_none_are_unspecified) {
        uint8_t bitmap[200] = { [0] = 1, [128] = 1 };
        struct raw *entry = raw_new(&raw_a), *where = raw_new(&raw_b);
        ck_assert_int_eq(decode_entry(entry).destination, DESTINATION_UNSPECIFIED);
        raw_bytes(where, 3, bitmap, sizeof(bitmap)); /* names R1024 */
        raw_bytes(entry, 6, where->bytes, where->n);
        ck_assert_int_eq(decode_entry(entry).destination, DESTINATION_UNSPECIFIED);
        bitmap[128] = 0;
        entry = raw_new(&raw_a);
        where = raw_new(&raw_b);
        raw_bytes(where, 3, bitmap, sizeof(bitmap)); /* long, but names R0 alone */
        raw_bytes(entry, 6, where->bytes, where->n);
        struct entry e = decode_entry(entry);
        ck_assert_int_eq(e.destination, DESTINATION_RANKS);
        ck_assert_uint_eq(rankset_count(&e.destination_ranks), 1);
        entry = raw_new(&raw_a);
        where = raw_new(&raw_b);
        raw_varint(where, 1, 0); /* "all", but not true */
        raw_bytes(entry, 6, where->bytes, where->n);
        ck_assert_int_eq(decode_entry(entry).destination, DESTINATION_UNSPECIFIED);
        entry = raw_new(&raw_a);
        where = raw_new(&raw_b);
        raw_varint(where, 5, 0);
        raw_bytes(entry, 6, where->bytes, where->n);
        ck_assert_int_eq(decode_entry(entry).destination, DESTINATION_UNSPECIFIED);
}
END_TEST

START_TEST(long_strings_are_cut) {
        static char name[20000];
        struct raw *request = raw_new(&raw_a), *body = raw_new(&raw_b);
        struct request back;
        memset(name, 'n', sizeof(name));
        raw_bytes(body, 1, name, sizeof(name));
        raw_bytes(request, 3, body->bytes, body->n);
        begin();
        ck_assert_int_eq(codec_decode_request(request->bytes, request->n, &arena, &back), 0);
        ck_assert_uint_eq(strlen(back.join.job), 1024);
        end();
}
END_TEST

START_TEST(errors_keep_to_their_bounds) {
        static char value[1000];
        struct raw *reply = raw_new(&raw_a), *error = raw_new(&raw_b), *class = raw_new(&raw_c);
        struct reply back;
        memset(value, '\n', sizeof(value));
        raw_bytes(class, 2, value, sizeof(value));
        for (int i = 0; i < 12; i++) {
                raw_bytes(error, 15, class->bytes, class->n);
                raw_bytes(error, 16, "", 0);
        }
        raw_bytes(error, 20, value, sizeof(value));
        raw_bytes(error, 6, value, sizeof(value));
        raw_varint(reply, 2, 3);
        raw_bytes(reply, 3, error->bytes, error->n);
        begin();
        ck_assert_int_eq(codec_decode_reply(reply->bytes, reply->n, &arena, &back), 0);
        ck_assert_uint_eq(back.error->n_classes, MAX_ERROR_CLASSES);
        ck_assert_uint_eq(back.error->n_replicas, MAX_ERROR_REPLICAS);
        ck_assert_uint_eq(strlen(back.error->classes[0].value), sizeof(back.error->classes[0].value) - 1);
        ck_assert_uint_eq(strlen(back.error->detail), sizeof(back.error->detail) - 1);
        ck_assert_uint_eq(strlen(back.error->job), MAX_NAME_BYTES - 1);
        ck_assert_ptr_null(strchr(back.error->detail, '\n'));
        end();
}
END_TEST

START_TEST(what_is_no_message_is_refused) {
        static const uint8_t truncated[] = { 0x3a, 0x7f, 0x08 }, no_end[] = { 0x08, 0xff, 0xff },
                             wrong_type[] = { 0x3a, 0x02, 0x5a, 0x7f }, group_tag[] = { 0x0b };
        static uint8_t large[MAX_PACKET_BYTES + 1];
        struct request back;
        struct reply reply;
        begin();
        ck_assert_int_eq(codec_decode_request(truncated, sizeof(truncated), &arena, &back), -EPROTO);
        ck_assert_int_eq(codec_decode_request(no_end, sizeof(no_end), &arena, &back), -EPROTO);
        ck_assert_int_eq(codec_decode_request(wrong_type, sizeof(wrong_type), &arena, &back), -EPROTO);
        ck_assert_int_eq(codec_decode_request(group_tag, sizeof(group_tag), &arena, &back), -EPROTO);
        ck_assert_int_eq(codec_decode_reply(truncated, sizeof(truncated), &arena, &reply), -EPROTO);
        ck_assert_int_eq(codec_decode_request(large, sizeof(large), &arena, &back), -E2BIG);
        end();
}
END_TEST

START_TEST(O3_a_packet_that_wants_too_much_is_refused) {
        struct raw *request = raw_new(&raw_a), *submit = raw_new(&raw_b);
        struct request back;
        for (int i = 0; i < 32000; i++)
                raw_bytes(submit, 11, "", 0); /* 64 KB of empty entries would become 10 MB */
        raw_bytes(request, 7, submit->bytes, submit->n);
        begin();
        ck_assert_int_eq(codec_decode_request(request->bytes, request->n, &arena, &back), -E2BIG);
        end();

        struct row row = { .type = ROW_RECORD };
        static uint64_t arrivals[MAX_WORLD + 1];
        row.record.n_arrivals = ARRAY_SIZE(arrivals);
        row.record.arrival_ns = arrivals;
        struct reply reply, r = reply_with_rows(&row, 1);
        begin();
        ck_assert_int_eq(codec_encode_reply(&r, &scratch, packet, &n_packet), 0);
        ck_assert_int_eq(codec_decode_reply(packet, n_packet, &arena, &reply), -E2BIG);
        end();
}
END_TEST

/* Every piece of memory that a packet needs is denied in turn. */
START_TEST(every_arena_that_is_too_small_is_refused) {
        struct entry entries[4];
        struct error e = full_error();
        struct reply reply = { .request = 1, .status = STATUS_MISMATCH, .error = &e }, reply_back;
        for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
                entries[i] = full_entry(DESTINATION_RANKS);
        struct request r = submission(entries, ARRAY_SIZE(entries)), back;
        pass_request(&r);
        size_t n_needed = arena.used_bytes;
        for (size_t n = 0; n < n_needed; n += 8) {
                arena_init(&arena, arena_memory, n);
                ck_assert_int_eq(codec_decode_request(packet, n_packet, &arena, &back), -E2BIG);
        }
        arena_init(&arena, arena_memory, n_needed);
        ck_assert_int_eq(codec_decode_request(packet, n_packet, &arena, &back), 0);

        pass_reply(&reply);
        n_needed = arena.used_bytes;
        for (size_t n = 0; n < n_needed; n += 8) {
                arena_init(&arena, arena_memory, n);
                ck_assert_int_eq(codec_decode_reply(packet, n_packet, &arena, &reply_back), -E2BIG);
                arena_init(&scratch, scratch_memory, n);
                int r_encode = codec_encode_reply(&reply, &scratch, packet, &n_packet);
                ck_assert(r_encode == 0 || r_encode == -EMSGSIZE);
        }
}
END_TEST

UNIT_MAIN("codec-hostile", 30, unknown_words_are_known_to_no_table, unknown_policies_are_one_beyond_the_last,
        a_body_of_the_future_is_none, keys_of_a_wrong_length_are_no_keys, more_than_8_dimensions_are_9,
        destinations_that_are_none_are_unspecified, long_strings_are_cut, errors_keep_to_their_bounds,
        what_is_no_message_is_refused, O3_a_packet_that_wants_too_much_is_refused,
        every_arena_that_is_too_small_is_refused)
