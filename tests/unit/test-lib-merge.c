/* What is compared and counted of a merge_call before it is sent. */
#include <string.h>
#include "lib/merge.h"
#include "unit.h"

static const struct tutti_value three = TUTTI_VALUE(.dtype = TUTTI_F32, .n_dims = 1, .shape = { 3 });
static const struct tutti_value scalar = TUTTI_VALUE(.dtype = TUTTI_I64);

START_TEST(a_tag_tells_what_is_called_and_what_it_makes) {
        char tag[MAX_TAG_BYTES + 1];
        const struct tutti_value outputs[] = { three, scalar };
        merge_tag("norm", outputs, 2, tag);
        ck_assert_str_eq(tag, "norm -> f32[3] i64[]");
        merge_tag("", outputs, 0, tag);
        ck_assert_str_eq(tag, "->");
}
END_TEST

/* Whatever its length, it fits, and what differs behind the cut differs. */
START_TEST(a_long_tag_is_cut_and_stays_apart) {
        struct tutti_value outputs[100];
        char long_tag[200], a[MAX_TAG_BYTES + 1], b[MAX_TAG_BYTES + 1];
        for (size_t i = 0; i < 100; i++)
                outputs[i] = three;
        for (size_t n = 0; n < sizeof(long_tag); n++) {
                memset(long_tag, 't', n);
                long_tag[n] = '\0';
                merge_tag(long_tag, outputs, 100, a);
                ck_assert_uint_le(strlen(a), MAX_TAG_BYTES);
                outputs[99] = scalar;
                merge_tag(long_tag, outputs, 100, b);
                outputs[99] = three;
                ck_assert_str_ne(a, b);
                merge_tag(long_tag, outputs, 100, b);
                ck_assert_str_eq(a, b);
        }
        ck_assert_ptr_nonnull(strstr(a, "ttt ... #"));
}
END_TEST

START_TEST(bytes_are_counted_or_said_to_be_too_many) {
        struct tutti_value v = three;
        ck_assert_uint_eq(merge_value_bytes(&v), 12);
        ck_assert_uint_eq(merge_part_bytes(&v), 64);
        v.shape[0] = UINT64_MAX / 2;
        ck_assert_uint_eq(merge_value_bytes(&v), UINT64_MAX);
        ck_assert_uint_eq(merge_part_bytes(&v), 0);
}
END_TEST

UNIT_MAIN("lib-merge", 10, a_tag_tells_what_is_called_and_what_it_makes, a_long_tag_is_cut_and_stays_apart,
        bytes_are_counted_or_said_to_be_too_many)
