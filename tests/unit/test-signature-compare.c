/* What halves must agree on, and how they say it. Every field that is compared is changed in one half, and
 * found (P4). */
#include <stdlib.h>
#include "half.h"

/* --- two halves --- */

static struct sip digest_of(const struct half *h) {
        static const uint64_t seed[2] = { 1, 2 };
        struct sip digest;
        sip_begin(&digest, seed);
        for (uint32_t i = 0; i < h->signature.n_entries; i++) /* in slices, as it is done */
                entries_digest(&h->signature, &h->entries[i], 1, &digest);
        return digest;
}

/* The digests say of the entries what the comparison says. */
static void check_digests(const struct half *a, const struct half *b, enum field field) {
        struct sip of_a = digest_of(a), of_b = digest_of(b);
        bool is_of_head = signature_compare_heads(&a->signature, &b->signature) != FIELD_UNSPECIFIED;
        if (!is_of_head)
                ck_assert_int_eq(sip_is_equal(&of_a, &of_b), field == FIELD_UNSPECIFIED);
}

static void check_differ(const struct half *a, const struct half *b, enum field field, int32_t entry) {
        int32_t found;
        ck_assert_int_eq(
                signature_compare(&a->signature, a->entries, &b->signature, b->entries, &found), field);
        ck_assert_int_eq(found, entry);
        ck_assert_int_eq(
                signature_compare(&b->signature, b->entries, &a->signature, a->entries, &found), field);
        ck_assert_int_eq(found, entry);
        check_digests(a, b, field);
}

#define CHECK_CHANGE(member, value, field, entry)                                                            \
        do {                                                                                                 \
                struct half changed_ = base;                                                                 \
                changed_.member = (value);                                                                   \
                check_differ(&base, &changed_, (field), (entry));                                            \
        } while (0)

START_TEST(B1_B2_B5_B6_every_compared_field_is_found) {
        struct half base = half_of(KIND_BATCH_REDUCE);
        CHECK_CHANGE(signature.kind, KIND_REDUCE, FIELD_KIND, -1);
        CHECK_CHANGE(signature.op, OP_MEAN, FIELD_OP, -1);
        CHECK_CHANGE(signature.n_entries, 2, FIELD_BATCH_LENGTH, -1);
        CHECK_CHANGE(signature.axes, 2, FIELD_AXIS, -1);
        CHECK_CHANGE(signature.options.rounding, ROUNDING_FLOOR, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.has_weight, true, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.check_numerics, true, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.check_overflow, true, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.check_inputs, true, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.reproducible, true, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.implementation, IMPLEMENTATION_RING, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.algorithm, ALGORITHM_LIBRARY, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.has_place, true, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.place, 1, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.packing.num_packs, 2, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.packing.small_bytes, 2, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.packing.small_group, 2, FIELD_OPTIONS, -1);
        CHECK_CHANGE(signature.options.packing.bytes_per_pack, 2, FIELD_OPTIONS, -1);
        CHECK_CHANGE(entries[0].dtype, DTYPE_BF16, FIELD_DTYPE, 0);
        CHECK_CHANGE(entries[1].output_dtype, DTYPE_F64, FIELD_OUTPUT_DTYPE, 1);
        CHECK_CHANGE(entries[2].layout, LAYOUT_SPARSE, FIELD_LAYOUT, 2);
        CHECK_CHANGE(entries[2].n_dims, 1, FIELD_SHAPE, 2);
        CHECK_CHANGE(entries[2].shape[1], 11, FIELD_SHAPE, 2);
        CHECK_CHANGE(entries[0].destination, DESTINATION_RANK, FIELD_DESTINATIONS, 0);
        base = half_of(KIND_BROADCAST);
        CHECK_CHANGE(signature.root, 1, FIELD_ROOT, -1);
        base = half_of(KIND_MERGE_RESULT);
        CHECK_CHANGE(signature.root, 1, FIELD_ROOT, -1);
        base = half_of(KIND_MERGE_CALL);
        CHECK_CHANGE(signature.tag[0], 't', FIELD_OPTIONS, -1);
}
END_TEST

START_TEST(TB17_of_sparse_values_all_but_the_number_of_rows_is_compared) {
        struct half base = half_of(KIND_BATCH_REDUCE);
        base.entries[1] = sparse_entry();
        CHECK_CHANGE(signature.options.coalesce, true, FIELD_OPTIONS, -1);
        CHECK_CHANGE(entries[1].layout, LAYOUT_DENSE, FIELD_LAYOUT, 1);
        CHECK_CHANGE(entries[1].dtype, DTYPE_F64, FIELD_DTYPE, 1);
        CHECK_CHANGE(entries[1].sparse.index_dtype, DTYPE_I32, FIELD_INDEX_DTYPE, 1);
        CHECK_CHANGE(entries[1].sparse.dense_shape[0], 99, FIELD_DENSE_SHAPE, 1);
        CHECK_CHANGE(entries[1].sparse.dense_shape[1], 11, FIELD_DENSE_SHAPE, 1);
        CHECK_CHANGE(entries[1].sparse.n_dense_dims, 3, FIELD_DENSE_SHAPE, 1);
        CHECK_CHANGE(entries[1].sparse.output_indices.result, 7, FIELD_DESTINATIONS, 1);
        CHECK_CHANGE(entries[1].sparse.n_indices, 0, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[1].shape[0], 0, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[1].output_extent, 7, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[1].sparse.indices.offset_bytes, 64, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[1].sparse.output_indices.buffer, 64, FIELD_UNSPECIFIED, -1);
}
END_TEST

START_TEST(what_is_each_replicas_own_is_not_compared) {
        struct half base = half_of(KIND_BATCH_REDUCE);
        CHECK_CHANGE(signature.root, 3, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(signature.options.weight, 0.5, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(signature.options.priority, 9, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(signature.options.implementation, IMPLEMENTATION_AUTO, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[0].output_dtype, DTYPE_F32, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[0].input.buffer, 99, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[0].output.buffer, 0, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[0].input.offset_bytes, 64, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[0].input.n_strides, 1, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[0].destination_rank, 2, FIELD_UNSPECIFIED, -1);
        CHECK_CHANGE(entries[0].shape[7], 2, FIELD_UNSPECIFIED, -1);
}
END_TEST

START_TEST(the_first_difference_in_order_is_told) {
        struct half a = half_of(KIND_BATCH_REDUCE), b = half_of(KIND_BATCH_REDUCE);
        b.entries[2].dtype = DTYPE_F64;
        check_differ(&a, &b, FIELD_DTYPE, 2);
        b.entries[1].shape[0] = 5;
        check_differ(&a, &b, FIELD_SHAPE, 1);
        b.entries[1].dtype = DTYPE_U8;
        check_differ(&a, &b, FIELD_DTYPE, 1);
        b.signature.n_entries = 2;
        check_differ(&a, &b, FIELD_BATCH_LENGTH, -1);
        b.signature.options.reproducible = true;
        check_differ(&a, &b, FIELD_OPTIONS, -1);
        b.signature.op = OP_MIN;
        check_differ(&a, &b, FIELD_OP, -1);
        b.signature.kind = KIND_BARRIER;
        check_differ(&a, &b, FIELD_KIND, -1);
}
END_TEST

START_TEST(destinations_are_compared_as_sets) {
        struct half a = half_of(KIND_REDUCE), b = half_of(KIND_REDUCE);
        a.entries[0].destination = b.entries[0].destination = DESTINATION_RANKS;
        rankset_add(&a.entries[0].destination_ranks, 1);
        rankset_add(&b.entries[0].destination_ranks, 2);
        check_differ(&a, &b, FIELD_DESTINATIONS, 0);
        b.entries[0].destination_ranks = a.entries[0].destination_ranks;
        check_differ(&a, &b, FIELD_UNSPECIFIED, -1);
        b.entries[0].destination = DESTINATION_RANK; /* one rank is the set of this rank */
        b.entries[0].destination_rank = 1;
        check_differ(&a, &b, FIELD_UNSPECIFIED, -1);
        b.entries[0].destination_rank = 2;
        check_differ(&a, &b, FIELD_DESTINATIONS, 0);
        a.entries[0].destination = DESTINATION_RANK;
        a.entries[0].destination_rank = UINT32_MAX;
        check_differ(&a, &b, FIELD_DESTINATIONS, 0);
}
END_TEST

START_TEST(D13_zero_elements_on_one_is_a_mismatch) {
        struct half a = half_of(KIND_REDUCE), b = half_of(KIND_REDUCE);
        b.entries[0].shape[0] = 0;
        check_differ(&a, &b, FIELD_SHAPE, 0);
}
END_TEST

START_TEST(P4_result_objects_and_devices_are_compared) {
        struct half a = half_of(KIND_REDUCE), b = half_of(KIND_REDUCE);
        a.entries[0].output.result = b.entries[0].output.result = 5;
        b.entries[0].output.offset_bytes = a.entries[0].output.offset_bytes + 64;
        check_differ(&a, &b, FIELD_DESTINATIONS, 0);
        b.entries[0].output = a.entries[0].output;
        b.entries[0].output.result = 6;
        check_differ(&a, &b, FIELD_DESTINATIONS, 0);
        b.entries[0].output = a.entries[0].output;
        a.entries[0].destination = b.entries[0].destination = DESTINATION_DEVICE;
        b.entries[0].destination_device = 1;
        check_differ(&a, &b, FIELD_DESTINATIONS, 0);
}
END_TEST

/* --- for people --- */

static void check_print(const struct half *h, enum field field, int32_t entry, const char *expected) {
        char buf[256];
        struct text t;
        text_init(&t, buf, sizeof(buf));
        signature_print_field(&h->signature, h->entries, field, entry, &t);
        ck_assert_str_eq(buf, expected);
}

START_TEST(B3_B4_fields_are_printed_as_values_never_as_byte_counts) {
        struct half h = half_of(KIND_BATCH_REDUCE);
        check_print(&h, FIELD_KIND, -1, "batch_reduce");
        check_print(&h, FIELD_OP, -1, "SUM");
        check_print(&h, FIELD_ROOT, -1, "root 0");
        check_print(&h, FIELD_BATCH_LENGTH, -1, "3 entries");
        check_print(&h, FIELD_OPTIONS, -1, "default options");
        check_print(&h, FIELD_SHAPE, 0, "f32[1024,10]");
        check_print(&h, FIELD_DTYPE, 2, "f32[1024,10]");
        check_print(&h, FIELD_OUTPUT_DTYPE, 0, "f32");
        check_print(&h, FIELD_LAYOUT, 0, "dense");
        check_print(&h, FIELD_DESTINATIONS, 0, "all");
        check_print(&h, FIELD_SHAPE, 3, "3 entries"); /* no such entry here */
        h.signature.options = (struct options){ .rounding = ROUNDING_FLOOR,
                .implementation = IMPLEMENTATION_RING,
                .has_weight = true,
                .reproducible = true };
        check_print(&h, FIELD_OPTIONS, -1, "rounding=floor implementation=RING weight reproducible");
        h.signature.options = (struct options){
                .algorithm = ALGORITHM_ONE_DEVICE, .has_place = true, .place = 1, .packing = { 1, 2, 3, 4 }
        };
        check_print(&h, FIELD_OPTIONS, -1,
                "algorithm=one_device device=CPU:1 num_packs=1 agg_small_grads_max_bytes=2 "
                "agg_small_grads_max_group=3 bytes_per_pack=4");
        h.signature.n_entries = 1;
        check_print(&h, FIELD_BATCH_LENGTH, -1, "1 entry");
        h.entries[0].layout = LAYOUT_SPARSE;
        check_print(&h, FIELD_LAYOUT, 0, "sparse");
        struct half sparse = half_of(KIND_REDUCE);
        sparse.entries[0] = sparse_entry();
        check_print(&sparse, FIELD_DENSE_SHAPE, 0, "[100,10]");
        check_print(&sparse, FIELD_INDEX_DTYPE, 0, "i64");
        h.entries[0].n_dims = 0;
        check_print(&h, FIELD_SHAPE, 0, "f32[]");
        h.entries[0].n_dims = MAX_DIMS + 1;
        check_print(&h, FIELD_SHAPE, 0, "f32[1024,10,0,0,0,0,0,0,...]");
}
END_TEST

START_TEST(destinations_are_printed_as_ranks) {
        struct half h = half_of(KIND_REDUCE);
        struct entry *e = &h.entries[0];
        e->destination = DESTINATION_RANK;
        e->destination_rank = 2;
        check_print(&h, FIELD_DESTINATIONS, 0, "R2");
        e->destination = DESTINATION_RANKS;
        rankset_add(&e->destination_ranks, 0);
        rankset_add(&e->destination_ranks, 2);
        check_print(&h, FIELD_DESTINATIONS, 0, "R0 R2");
        e->destination = DESTINATION_UNSPECIFIED;
        check_print(&h, FIELD_DESTINATIONS, 0, "unspecified");
        e->destination = DESTINATION_DEVICE;
        check_print(&h, FIELD_DESTINATIONS, 0, "CPU:0");
        e->destination = DESTINATION_SAME;
        check_print(&h, FIELD_DESTINATIONS, 0, "where the value lives");
}
END_TEST

/* What is gathered along or reduced over may differ in length, and nothing else of it. */
START_TEST(P4_lengths_along_axes_are_each_replicas_own) {
        for (unsigned int kind = KIND_REDUCE; kind <= KIND_REDUCE_SCATTER; kind++) {
                struct half a = half_of((enum kind)kind);
                if (kind == KIND_BROADCAST || kind == KIND_BARRIER)
                        continue;
                a.signature.axes = 1u << 1;
                struct half b = a;
                b.entries[0].shape[1]++;
                b.entries[0].output_extent = 5;
                if (kind == KIND_REDUCE_SCATTER)
                        check_differ(&a, &b, FIELD_SHAPE, 0);
                else
                        check_differ(&a, &b, FIELD_UNSPECIFIED, -1);
                b.entries[0].shape[0]++;
                check_differ(&a, &b, FIELD_SHAPE, 0);
                check_print(&a, FIELD_AXIS, -1, "axis 1");
                a.signature.axes = 0;
                check_print(&a, FIELD_AXIS, -1, "no axis");
                a.signature.axes = 5;
                check_print(&a, FIELD_AXIS, -1, "axes 0 2");
        }
}
END_TEST

UNIT_MAIN("signature-compare", 10, P4_lengths_along_axes_are_each_replicas_own,
        B1_B2_B5_B6_every_compared_field_is_found,
        TB17_of_sparse_values_all_but_the_number_of_rows_is_compared,
        what_is_each_replicas_own_is_not_compared, the_first_difference_in_order_is_told,
        destinations_are_compared_as_sets, D13_zero_elements_on_one_is_a_mismatch,
        P4_result_objects_and_devices_are_compared, B3_B4_fields_are_printed_as_values_never_as_byte_counts,
        destinations_are_printed_as_ranks)
