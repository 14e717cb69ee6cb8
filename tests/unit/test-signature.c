/* What a half must keep by itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "half.h"

/* --- the head --- */

START_TEST(the_four_kinds_are_taken) {
        for (enum kind kind = KIND_REDUCE; kind <= KIND_BARRIER; kind++) {
                struct half h = half_of(kind);
                check_ok(&h);
        }
}
END_TEST

START_TEST(other_kinds_are_not_done) {
        struct half h = half_of(KIND_REDUCE);
        h.signature.kind = KIND_UNSPECIFIED;
        check_refused(&h, STATUS_INVALID, FIELD_KIND, "reduce_scatter or barrier");
        h.signature.kind = N_KIND;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_KIND, kind_name(N_KIND));
}
END_TEST

START_TEST(a_merge_call_brings_any_number_of_values_into_a_result_object) {
        struct half h = half_of(KIND_MERGE_CALL);
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "into a result object");
        h.entries[0].output = (struct place){ .result = 7 };
        check_ok(&h);
        h.entries[0].input = (struct place){ 0 };
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "brings the input");
        h.signature.n_entries = 0;
        check_ok(&h);
        h.signature.op = OP_SUM;
        check_refused(&h, STATUS_INVALID, FIELD_OP, "merge_call combines nothing");
}
END_TEST

START_TEST(a_merge_result_goes_from_its_root_to_all) {
        struct half h = half_of(KIND_MERGE_RESULT);
        h.signature.n_entries = 3;
        h.signature.root = 3;
        h.entries[2].input = (struct place){ 0 }; /* R1 does not read */
        check_ok(&h);
        h.entries[2].output = (struct place){ 0 };
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "receives the result");
        h.signature.root = WORLD;
        check_refused(&h, STATUS_INVALID, FIELD_ROOT, "outside the world");
}
END_TEST

START_TEST(parts_of_a_merge_call_are_whole_lines) {
        struct entry e = plain_entry();
        ck_assert_uint_eq(entry_part_bytes(&e), 40960);
        e.n_dims = 1;
        e.shape[0] = 17;
        ck_assert_uint_eq(entry_part_bytes(&e), 128);
        e.shape[0] = 0;
        ck_assert_uint_eq(entry_part_bytes(&e), 0);
        e.shape[0] = INT64_MAX;
        ck_assert_uint_eq(entry_part_bytes(&e), 0);
}
END_TEST

START_TEST(D18_there_is_no_default_op) {
        struct half h = half_of(KIND_REDUCE);
        h.signature.op = OP_UNSPECIFIED;
        check_refused(&h, STATUS_INVALID, FIELD_OP, "there is no default op: say SUM, MEAN, PROD, MIN,");
        struct half batch = half_of(KIND_BATCH_REDUCE);
        batch.signature.op = OP_UNSPECIFIED;
        check_refused(&batch, STATUS_INVALID, FIELD_OP, "no default op");
}
END_TEST

/* Every op on every dtype: done, or refused with the list of what is. */
START_TEST(D3_ops_that_are_not_done_are_refused_with_the_list) {
        struct half h = half_of(KIND_REDUCE);
        for (unsigned int op = OP_SUM; op <= N_OP; op++) {
                for (unsigned int dtype = DTYPE_U8; dtype < N_DTYPE; dtype++) {
                        h.signature.op = (enum op)op;
                        h.entries[0].dtype = (enum dtype)dtype;
                        if (op_is_supported((enum op)op, (enum dtype)dtype))
                                check_ok(&h);
                        else if (op != OP_MEAN || !dtype_is_integer((enum dtype)dtype))
                                check_refused(&h, STATUS_UNSUPPORTED, FIELD_OP, op_supported_text());
                }
        }
}
END_TEST

START_TEST(broadcast_and_barrier_take_no_op) {
        struct half h = half_of(KIND_BROADCAST), barrier = half_of(KIND_BARRIER);
        h.signature.op = OP_SUM;
        check_refused(&h, STATUS_INVALID, FIELD_OP,
                "a broadcast combines nothing and takes no op, but SUM was given");
        barrier.signature.op = OP_MAX;
        check_refused(&barrier, STATUS_INVALID, FIELD_OP, "a barrier");
}
END_TEST

START_TEST(a_root_is_inside_the_world) {
        struct half h = half_of(KIND_BROADCAST);
        h.signature.root = WORLD - 1;
        check_ok(&h);
        h.signature.root = WORLD;
        check_refused(
                &h, STATUS_INVALID, FIELD_ROOT, "root 4 is outside the world of 4; its ranks are 0 to 3");
}
END_TEST

START_TEST(options_that_are_not_done_are_refused) {
        static const struct {
                struct options options;
                const char *word;
        } table[] = {
                { { .rounding = 77 }, "a rounding other than trunc, floor and nearest" },
                { { .algorithm = N_ALGORITHM }, "hierarchical_copy" },
                { { .implementation = 77 }, "implementation" },
        };
        struct half h = half_of(KIND_REDUCE);
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                h.signature.options = table[i].options;
                check_refused(&h, STATUS_UNSUPPORTED, FIELD_OPTIONS, table[i].word);
        }
        h.signature.options = (struct options){ .algorithm = ALGORITHM_ONE_DEVICE,
                .has_place = true,
                .implementation = IMPLEMENTATION_NCCL,
                .reproducible = true,
                .packing = { 1, 2, 3, 4 } };
        check_ok(&h);
        h.signature.options = (struct options){
                .reproducible = true, .implementation = IMPLEMENTATION_RING, .priority = -3
        };
        check_ok(&h);
}
END_TEST

START_TEST(options_that_contradict_each_other_are_refused) {
        static const struct {
                struct options options;
                const char *words;
        } table[] = {
                { { .reproducible = true, .algorithm = ALGORITHM_LIBRARY }, "which library does not keep" },
                { { .reproducible = true, .algorithm = ALGORITHM_HIERARCHICAL_COPY }, "hierarchical_copy" },
                { { .has_place = true, .place = DEVICE_UNKNOWN }, "name it like CPU:0" },
                { { .has_place = true, .algorithm = ALGORITHM_HIERARCHICAL_COPY }, "one_device alone" },
                { { .packing.small_bytes = 1 }, "give both or none" },
                { { .packing.small_group = 1 }, "give both or none" },
                { { .packing.num_packs = 65537 }, "num_packs is 65537" },
        };
        struct half h = half_of(KIND_REDUCE);
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                h.signature.options = table[i].options;
                check_refused(&h, STATUS_INVALID, FIELD_OPTIONS, table[i].words);
        }
}
END_TEST

START_TEST(each_kind_takes_its_number_of_entries) {
        struct half reduce = half_of(KIND_REDUCE), broadcast = half_of(KIND_BROADCAST),
                    batch = half_of(KIND_BATCH_REDUCE), barrier = half_of(KIND_BARRIER);
        reduce.signature.n_entries = 0;
        check_refused(&reduce, STATUS_INVALID, FIELD_BATCH_LENGTH, "exactly one value, but 0 were given");
        broadcast.signature.n_entries = 2;
        check_refused(&broadcast, STATUS_INVALID, FIELD_BATCH_LENGTH, "exactly one value, but 2 were given");
        batch.signature.n_entries = 0;
        check_refused(&batch, STATUS_INVALID, FIELD_BATCH_LENGTH, "at least one entry");
        barrier.signature.n_entries = 1;
        check_refused(&barrier, STATUS_INVALID, FIELD_BATCH_LENGTH, "takes no values");
}
END_TEST

START_TEST(O3_a_batch_has_at_most_65536_entries) {
        struct half h = half_of(KIND_BATCH_REDUCE);
        struct error e;
        h.signature.n_entries = MAX_ENTRIES + 1;
        error_init(&e, STATUS_OK);
        ck_assert_int_eq(signature_check(&h.signature, h.entries, 1, WORLD, &e), STATUS_LIMIT);
        ck_assert_uint_eq(e.used, MAX_ENTRIES + 1);
        ck_assert_uint_eq(e.limit, MAX_ENTRIES);

        struct entry *entries = calloc(MAX_ENTRIES, sizeof(*entries));
        ck_assert_ptr_nonnull(entries);
        for (size_t i = 0; i < MAX_ENTRIES; i++)
                entries[i] = plain_entry();
        h.signature.n_entries = MAX_ENTRIES;
        ck_assert_int_eq(signature_check(&h.signature, entries, 1, WORLD, &e), STATUS_OK);
        /* P21: ranks times entries is the work that one collective can make. */
        const uint32_t most = MAX_COLLECTIVE_ENTRIES / MAX_ENTRIES;
        ck_assert_int_eq(signature_check(&h.signature, entries, 1, most, &e), STATUS_OK);
        ck_assert_int_eq(signature_check(&h.signature, entries, 1, most + 1, &e), STATUS_LIMIT);
        ck_assert_int_eq(e.field, FIELD_BATCH_LENGTH);
        ck_assert_uint_eq(e.used, (most + 1) * MAX_ENTRIES);
        ck_assert_uint_eq(e.limit, MAX_COLLECTIVE_ENTRIES);
        free(entries);
}
END_TEST

/* --- an entry --- */

START_TEST(D3_dtypes_that_are_not_done_are_refused_with_the_list) {
        struct half h = half_of(KIND_REDUCE), broadcast = half_of(KIND_BROADCAST);
        for (unsigned int dtype = DTYPE_U8; dtype < N_DTYPE; dtype++) {
                broadcast.entries[0].dtype = (enum dtype)dtype;
                check_ok(&broadcast);
        }
        h.entries[0].dtype = broadcast.entries[0].dtype = N_DTYPE;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_DTYPE, op_supported_text());
        check_refused(&broadcast, STATUS_UNSUPPORTED, FIELD_DTYPE,
                "u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 bool c64 c128");
        h.entries[0].dtype = DTYPE_UNSPECIFIED;
        check_refused(&h, STATUS_INVALID, FIELD_DTYPE, "missing");
}
END_TEST

START_TEST(D9_mean_of_integers_needs_a_rounding_or_a_float_output) {
        struct half h = half_of(KIND_REDUCE);
        h.signature.op = OP_MEAN;
        for (enum dtype dtype = DTYPE_U8; dtype <= DTYPE_I64; dtype++) {
                struct entry *e = &h.entries[0];
                enum dtype mean = dtype_of_integer_mean(dtype),
                           other = mean == DTYPE_F32 ? DTYPE_F64 : DTYPE_F32;
                e->dtype = dtype;
                e->output_dtype = DTYPE_UNSPECIFIED;
                check_refused(
                        &h, STATUS_UNSUPPORTED, FIELD_OP, "a named rounding (trunc, floor, nearest) or an");
                check_refused(&h, STATUS_UNSUPPORTED, FIELD_OP, dtype_name(mean));
                for (enum rounding r = ROUNDING_TRUNC; r <= ROUNDING_NEAREST; r++) {
                        h.signature.options.rounding = r;
                        check_ok(&h);
                        e->output_dtype = dtype;
                        check_ok(&h);
                        e->output_dtype = mean;
                        check_refused(&h, STATUS_INVALID, FIELD_OPTIONS, "needs no rounding");
                        e->output_dtype = DTYPE_UNSPECIFIED;
                }
                h.signature.options.rounding = ROUNDING_UNSPECIFIED;
                e->output_dtype = mean;
                check_ok(&h);
                e->output_dtype = other;
                check_refused(&h, STATUS_UNSUPPORTED, FIELD_OUTPUT_DTYPE, dtype_name(mean));
        }
}
END_TEST

START_TEST(P15_a_rounding_is_for_the_mean_of_integers_alone) {
        struct half h = half_of(KIND_REDUCE), barrier = half_of(KIND_BARRIER);
        h.signature.options.rounding = barrier.signature.options.rounding = ROUNDING_FLOOR;
        check_refused(&barrier, STATUS_INVALID, FIELD_OPTIONS, "MEAN of integers");
        h.entries[0].dtype = DTYPE_I32;
        check_refused(&h, STATUS_INVALID, FIELD_OPTIONS, "MEAN of integers");
        h.signature.op = OP_MEAN;
        check_ok(&h);
        h.entries[0].dtype = DTYPE_F32;
        check_refused(&h, STATUS_INVALID, FIELD_OPTIONS, "not of f32");
}
END_TEST

START_TEST(D12_weights_are_for_sums_and_means_of_floats) {
        static const double good[] = { 0, -0.0, 1, 0x1p-1074, 0x1.fffffffffffffp1023 };
        static const double bad[] = { -1, -0x1p-1074, INFINITY, -INFINITY, NAN };
        struct half h = half_of(KIND_REDUCE), broadcast = half_of(KIND_BROADCAST);
        h.signature.options.has_weight = broadcast.signature.options.has_weight = true;
        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                h.signature.options.weight = good[i];
                check_ok(&h);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                h.signature.options.weight = bad[i];
                check_refused(&h, STATUS_INVALID, FIELD_OPTIONS, "0 or a positive finite number");
        }
        h.signature.options.weight = 1;
        check_refused(&broadcast, STATUS_INVALID, FIELD_OPTIONS, "not for broadcast");
        for (unsigned int op = OP_SUM; op < N_OP; op++) {
                h.signature.op = (enum op)op;
                if (op > OP_MEAN)
                        check_refused(&h, STATUS_INVALID, FIELD_OPTIONS, "a weight is for SUM and MEAN");
        }
        h.signature.op = OP_SUM;
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++) {
                h.entries[0].dtype = dtype;
                if (dtype_is_float(dtype))
                        check_ok(&h);
                else
                        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OPTIONS, "can be weighted");
        }
}
END_TEST

START_TEST(checks_may_be_asked_for_with_everything) {
        for (enum kind kind = KIND_REDUCE; kind <= KIND_BARRIER; kind++) {
                struct half h = half_of(kind);
                h.signature.options.check_numerics = h.signature.options.check_overflow = true;
                check_ok(&h);
        }
}
END_TEST

START_TEST(an_output_dtype_is_the_inputs) {
        struct half h = half_of(KIND_REDUCE);
        h.entries[0].output_dtype = DTYPE_F32;
        check_ok(&h);
        h.entries[0].output_dtype = DTYPE_F64;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OUTPUT_DTYPE, "(f64) other than the input's (f32)");
        h.entries[0].dtype = DTYPE_I32; /* of another op than MEAN */
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OUTPUT_DTYPE, "(f64) other than the input's (i32)");
        h.signature.op = OP_MEAN;
        ck_assert_int_eq(entry_output_dtype(&h.entries[0]), DTYPE_F64);
        check_ok(&h);
        h.entries[0].dtype = DTYPE_U8; /* the output has the most bytes */
        h.entries[0].output_dtype = DTYPE_F32;
        h.entries[0].n_dims = 1;
        h.entries[0].shape[0] = UINT64_C(1) << 61;
        check_refused(&h, STATUS_LIMIT, FIELD_SHAPE, "63 bits");
}
END_TEST

/* A reduction of a value of this shape, with these strides of its output. */
static struct half half_with_strides(uint32_t n_dims, const uint64_t *shape, const uint64_t *strides) {
        struct half h = half_of(KIND_REDUCE);
        h.entries[0].n_dims = n_dims;
        memset(h.entries[0].shape, 0, sizeof(h.entries[0].shape));
        memcpy(h.entries[0].shape, shape, n_dims * sizeof(*shape));
        h.entries[0].output.n_strides = n_dims;
        memcpy(h.entries[0].output.strides, strides, n_dims * sizeof(*strides));
        return h;
}

#define DIMS(...) ((const uint64_t[]){ __VA_ARGS__ })

START_TEST(P14_strides_leave_each_element_a_place_of_its_own) {
        struct half h = half_with_strides(2, DIMS(3, 4), DIMS(10, 2));
        check_ok(&h);
        h = half_with_strides(2, DIMS(3, 4), DIMS(1, 3));
        check_ok(&h);
        h = half_with_strides(2, DIMS(3, 2), DIMS(2, 3)); /* 0 3 2 5 4 7: not nested, and none twice */
        check_ok(&h);
        h = half_with_strides(3, DIMS(1, 5, 1), DIMS(0, 2, 7));
        check_ok(&h);
        h = half_with_strides(2, DIMS(0, 5), DIMS(0, 0)); /* there are none */
        check_ok(&h);

        h = half_with_strides(2, DIMS(3, 4), DIMS(4, 0));
        check_refused(
                &h, STATUS_INVALID, FIELD_STRIDES, "the output has stride 0 in dimension 1, which has 4");
        h = half_with_strides(2, DIMS(3, 4), DIMS(3, 1));
        check_refused(&h, STATUS_INVALID, FIELD_STRIDES,
                "elements of the output share memory: stride 3 of dimension 0 does not go beyond what "
                "dimension "
                "1 (4 elements, stride 1)");
        h = half_with_strides(3, DIMS(2, 2, 2), DIMS(2, 2, 1));
        check_refused(&h, STATUS_INVALID, FIELD_STRIDES, "share memory");
        h.entries[0].input = h.entries[0].output;
        check_refused(&h, STATUS_INVALID, FIELD_STRIDES, "elements of the input share memory");
}
END_TEST

START_TEST(P14_strides_are_as_many_as_dimensions_and_can_be_counted) {
        struct half h = half_with_strides(2, DIMS(3, 4), DIMS(4, 1));
        for (uint32_t n = 1; n <= MAX_DIMS + 1; n++) {
                h.entries[0].output.n_strides = n;
                if (n != 2)
                        check_refused(
                                &h, STATUS_INVALID, FIELD_STRIDES, "has 2 dimensions and another number");
        }
        h = half_with_strides(2, DIMS(3, 4), DIMS(UINT64_MAX / 2, 1));
        check_refused(&h, STATUS_LIMIT, FIELD_STRIDES, "63 bits");
        h = half_with_strides(2, DIMS(3, 2), DIMS(UINT64_C(1) << 62, UINT64_C(1) << 62));
        check_refused(&h, STATUS_LIMIT, FIELD_STRIDES, "63 bits");
}
END_TEST

START_TEST(O3_shapes_have_8_dimensions_and_count_below_2_to_the_63) {
        struct half h = half_of(KIND_REDUCE);
        h.entries[0].n_dims = MAX_DIMS + 1;
        check_refused(&h, STATUS_LIMIT, FIELD_SHAPE, "too many dimensions");
        ck_assert_uint_eq(signature_bytes(&h.signature, h.entries), UINT64_MAX);
        h.entries[0].n_dims = 2;
        h.entries[0].shape[0] = 1ull << 32;
        h.entries[0].shape[1] = 1ull << 31;
        check_refused(&h, STATUS_LIMIT, FIELD_SHAPE, "63 bits");
        h.entries[0].shape[1] = 1ull << 30; /* 2^62 elements, but 2^64 bytes */
        check_refused(&h, STATUS_LIMIT, FIELD_SHAPE, "63 bits");
        h.entries[0].shape[1] = 1ull << 28;
        check_ok(&h);
        h.entries[0].n_dims = 1;
        h.entries[0].shape[0] = UINT64_MAX;
        check_refused(&h, STATUS_LIMIT, FIELD_SHAPE, "63 bits");
}
END_TEST

START_TEST(D13_zero_elements_are_a_value_like_any) {
        struct half h = half_of(KIND_REDUCE);
        uint64_t n = 1;
        h.entries[0].n_dims = 3;
        memcpy(h.entries[0].shape, (uint64_t[]){ 1ull << 62, 1ull << 62, 0 }, 24);
        check_ok(&h);
        ck_assert(entry_count(&h.entries[0], &n));
        ck_assert_uint_eq(n, 0);
        ck_assert_uint_eq(signature_bytes(&h.signature, h.entries), 0);
        h.entries[0].n_dims = 0; /* a scalar has one */
        ck_assert(entry_count(&h.entries[0], &n));
        ck_assert_uint_eq(n, 1);
        check_ok(&h);
}
END_TEST

START_TEST(destinations_are_named_and_inside_the_world) {
        struct half h = half_of(KIND_REDUCE);
        struct entry *e = &h.entries[0];
        e->destination = DESTINATION_UNSPECIFIED;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "say who receives");
        e->destination = DESTINATION_RANK;
        e->destination_rank = 3;
        check_ok(&h);
        e->destination_rank = UINT32_MAX;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "R4294967295 is outside the world of 4");
        e->destination = DESTINATION_RANKS;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "empty");
        rankset_add(&e->destination_ranks, 0);
        rankset_add(&e->destination_ranks, 3);
        check_ok(&h);
        rankset_add(&e->destination_ranks, 4);
        check_refused(
                &h, STATUS_INVALID, FIELD_DESTINATIONS, "R4 is outside the world of 4; its ranks are 0 to 3");
        e->destination = DESTINATION_DEVICE;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "name one as the output");
}
END_TEST

START_TEST(a_result_object_is_for_outputs_to_all_and_to_devices) {
        struct half h = half_of(KIND_REDUCE);
        struct entry *e = &h.entries[0];
        e->output.result = 5;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "a buffer and a result object");
        e->output.buffer = 0;
        check_ok(&h);
        e->destination = DESTINATION_DEVICE;
        check_ok(&h);
        e->destination = DESTINATION_RANK;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "seen by every member");
        e->destination = DESTINATION_ALL;
        e->input.result = 5;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "the input is a result object");
}
END_TEST

START_TEST(where_the_value_lives_is_its_input) {
        struct half h = half_of(KIND_REDUCE);
        h.entries[0].destination = DESTINATION_SAME;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "leave the output out");
        h.entries[0].output.buffer = 0;
        check_ok(&h);
        struct half b = half_of(KIND_BROADCAST);
        b.entries[0].destination = DESTINATION_SAME;
        check_refused(&b, STATUS_INVALID, FIELD_DESTINATIONS, "a broadcast has an input at its root alone");
}
END_TEST

START_TEST(a_reduction_needs_an_input_everywhere_and_an_output_where_it_goes) {
        struct half h = half_of(KIND_REDUCE);
        h.entries[0].input.buffer = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "R1 brings the input of entry 0");
        h.entries[0].input.buffer = 1;
        h.entries[0].output.buffer = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "R1 receives the result of entry 0");
        h.entries[0].destination = DESTINATION_RANK;
        h.entries[0].destination_rank = 0;
        check_ok(&h);
        h.entries[0].destination_rank = 1;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "R1 receives");
}
END_TEST

START_TEST(a_broadcast_needs_the_roots_input_and_the_others_output) {
        struct half h = half_of(KIND_BROADCAST);
        h.signature.root = 0;
        h.entries[0].input.buffer = 0;
        check_ok(&h);
        h.entries[0].output.buffer = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "R1 receives");
        h.signature.root = 1;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "R1 brings the input");
        h.entries[0].input.buffer = 1;
        check_ok(&h);
}
END_TEST

START_TEST(refusals_of_a_batch_name_the_entry) {
        struct half h = half_of(KIND_BATCH_REDUCE);
        struct error e;
        error_init(&e, STATUS_OK);
        h.entries[2].dtype = DTYPE_BOOL;
        ck_assert_int_eq(signature_check(&h.signature, h.entries, 1, WORLD, &e), STATUS_UNSUPPORTED);
        ck_assert_int_eq(e.entry, 2);
        h = half_of(KIND_BATCH_REDUCE);
        h.entries[1].output.buffer = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "R1 receives the result of entry 1");
}
END_TEST

/* --- who reads, who receives, how much --- */

START_TEST(who_reads_and_who_receives) {
        struct signature broadcast = { .kind = KIND_BROADCAST, .root = 2 }, reduce = { .kind = KIND_REDUCE },
                         barrier = { .kind = KIND_BARRIER };
        ck_assert(signature_reads(&broadcast, 2) && !signature_reads(&broadcast, 1));
        ck_assert(signature_reads(&reduce, 0) && signature_reads(&reduce, 1023));
        ck_assert(!signature_reads(&barrier, 0));
        struct entry e = plain_entry();
        ck_assert(entry_has_destination(&e, 1023));
        e.destination = DESTINATION_RANK;
        e.destination_rank = 7;
        ck_assert(entry_has_destination(&e, 7) && !entry_has_destination(&e, 8));
        e.destination = DESTINATION_RANKS;
        rankset_add(&e.destination_ranks, 9);
        ck_assert(entry_has_destination(&e, 9) && !entry_has_destination(&e, 7));
        e.destination = DESTINATION_UNSPECIFIED;
        ck_assert(!entry_has_destination(&e, 9) && !entry_has_destination(&e, 7));
}
END_TEST

START_TEST(bytes_are_summed_and_saturate) {
        struct half h = half_of(KIND_BATCH_REDUCE);
        h.entries[1].dtype = DTYPE_U8;
        ck_assert_uint_eq(signature_bytes(&h.signature, h.entries), 10240 * 9);
        h.entries[2].n_dims = 1;
        h.entries[2].shape[0] = 1ull << 62;
        ck_assert_uint_eq(signature_bytes(&h.signature, h.entries), UINT64_MAX);
}
END_TEST

/* What the library says first, tuttid says to those who have another one. */
START_TEST(P15_axes_are_of_kinds_that_have_them_and_of_values_that_do) {
        struct half h = half_of(KIND_GATHER);
        h.signature.n_entries = 2;
        check_refused(&h, STATUS_INVALID, FIELD_AXIS, "works along one axis of its values, but 0 were given");
        h.signature.axes = 3;
        check_refused(&h, STATUS_INVALID, FIELD_AXIS, "but 2 were given");
        h.signature.axes = AXIS_BEYOND;
        check_refused(&h, STATUS_INVALID, FIELD_AXIS, "an axis of 8 or more");
        h.signature.axes = 1u << 2;
        check_refused(&h, STATUS_INVALID, FIELD_AXIS,
                "axis 2 is outside of the value, f32[1024,10]; its axes are 0 to 1");
        h.signature.axes = 1;
        h.entries[0].output_extent = h.entries[1].output_extent = 5000;
        check_ok(&h);
        h.entries[1].n_dims = 0;
        check_refused(&h, STATUS_INVALID, FIELD_AXIS, "the value is a scalar, f32[]");
        h.entries[1].n_dims = 2;
        h.entries[1].output_extent = UINT64_MAX / 40;
        check_refused(&h, STATUS_LIMIT, FIELD_EXTENT, "along axis 0");
        h.entries[1].output_extent = 4;
        h.entries[1].output.n_strides = 2;
        h.entries[1].output.strides[0] = 2;
        h.entries[1].output.strides[1] = 8;
        check_ok(&h); /* 4 rows, not 1,024 */
        h.entries[1].output_extent = 5;
        check_refused(&h, STATUS_INVALID, FIELD_STRIDES, "elements of the output share memory");
        h.entries[1].output = (struct place){ 0 };
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "receives the result");
        h.entries[1].destination = DESTINATION_SAME;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "another shape");
        h.signature.n_entries = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BATCH_LENGTH, "a gather needs at least one entry");
        h = half_of(KIND_BROADCAST);
        h.signature.axes = 1;
        check_refused(&h, STATUS_INVALID, FIELD_AXIS, "takes its values whole");
        h = half_of(KIND_REDUCE_SCATTER);
        h.signature.op = OP_UNSPECIFIED;
        h.signature.axes = 1;
        check_refused(&h, STATUS_INVALID, FIELD_OP, "no default op");
        h.signature.op = OP_SUM;
        h.signature.n_entries = 1;
        h.entries[0].output = (struct place){ 0 };
        check_ok(&h); /* no slice, no place */
        h.entries[0].output_extent = 1;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "receives the result");
        h.entries[0].output.result = 7;
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "a slice of its own");
        h = half_of(KIND_REDUCE);
        h.signature.axes = 3;
        check_ok(&h);
        h.signature.options.check_numerics = true;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OPTIONS, "check_numerics is not done");
}
END_TEST

UNIT_MAIN("signature", 10, P15_axes_are_of_kinds_that_have_them_and_of_values_that_do,
        the_four_kinds_are_taken, other_kinds_are_not_done,
        a_merge_call_brings_any_number_of_values_into_a_result_object,
        a_merge_result_goes_from_its_root_to_all, parts_of_a_merge_call_are_whole_lines,
        D18_there_is_no_default_op, D3_ops_that_are_not_done_are_refused_with_the_list,
        broadcast_and_barrier_take_no_op, a_root_is_inside_the_world, options_that_are_not_done_are_refused,
        options_that_contradict_each_other_are_refused, each_kind_takes_its_number_of_entries,
        O3_a_batch_has_at_most_65536_entries, D3_dtypes_that_are_not_done_are_refused_with_the_list,
        D9_mean_of_integers_needs_a_rounding_or_a_float_output,
        P15_a_rounding_is_for_the_mean_of_integers_alone, D12_weights_are_for_sums_and_means_of_floats,
        checks_may_be_asked_for_with_everything, an_output_dtype_is_the_inputs,
        P14_strides_leave_each_element_a_place_of_its_own,
        P14_strides_are_as_many_as_dimensions_and_can_be_counted,
        O3_shapes_have_8_dimensions_and_count_below_2_to_the_63, D13_zero_elements_are_a_value_like_any,
        destinations_are_named_and_inside_the_world, a_result_object_is_for_outputs_to_all_and_to_devices,
        where_the_value_lives_is_its_input, a_reduction_needs_an_input_everywhere_and_an_output_where_it_goes,
        a_broadcast_needs_the_roots_input_and_the_others_output, refusals_of_a_batch_name_the_entry,
        who_reads_and_who_receives, bytes_are_summed_and_saturate)
