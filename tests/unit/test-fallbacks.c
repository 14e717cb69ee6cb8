/* What was not done as was wished: counted by reason, in as much memory for twenty as for one. */
#include "fallbacks.h"
#include <stdio.h>
#include <string.h>
#include "unit.h"

static bool add(struct fallbacks *f, const char *why, const char *algorithm, uint64_t at_ns) {
        const struct key key = key_sequence(at_ns);
        return fallbacks_add(f, &(struct fallback_run){ .why = why,
                                        .algorithm = algorithm,
                                        .kind = KIND_REDUCE,
                                        .key = &key,
                                        .done_ns = at_ns });
}

START_TEST(P15_each_reason_is_counted_with_its_last_collective) {
        struct fallbacks f = { 0 };
        struct key key;
        ck_assert(key_name(&key, "grad/7", 6));
        ck_assert(add(&f, "NCCL was asked for, but no", "one_device", 10));
        ck_assert(!add(&f, "NCCL was asked for, but no", "one_device", 20));
        ck_assert(add(&f, "RING was asked for, but no", "one_device", 30));
        ck_assert(!fallbacks_add(&f, &(struct fallback_run){ .why = "NCCL was asked for, but no",
                                             .algorithm = "one_device",
                                             .kind = KIND_BATCH_REDUCE,
                                             .key = &key,
                                             .done_ns = 40 }));
        ck_assert_uint_eq(f.n, 2);
        ck_assert_str_eq(f.all[0].why, "NCCL was asked for, but no");
        ck_assert_str_eq(f.all[0].algorithm, "one_device");
        ck_assert_uint_eq(f.all[0].n, 3);
        ck_assert_uint_eq(f.all[0].last_ns, 40);
        ck_assert_int_eq(f.all[0].kind, KIND_BATCH_REDUCE);
        ck_assert(key_is_equal(&f.all[0].key, &key));
        ck_assert_str_eq(f.all[1].why, "RING was asked for, but no");
        ck_assert_uint_eq(f.all[1].n, 1);
        ck_assert_uint_eq(f.all[1].last_ns, 30);
}
END_TEST

START_TEST(P15_what_is_taken_instead_tells_them_apart) {
        struct fallbacks f = { 0 };
        ck_assert(add(&f, "no", "one_device", 1));
        ck_assert(add(&f, "no", "hierarchical_copy", 2));
        ck_assert(!add(&f, "no", "one_device", 3));
        ck_assert_uint_eq(f.n, 2);
        ck_assert_uint_eq(f.all[0].n, 2);
        ck_assert_uint_eq(f.all[1].n, 1);
}
END_TEST

START_TEST(P15_P18_twenty_reasons_have_nine_places) {
        struct fallbacks f = { 0 };
        char why[32];
        unsigned int n_first = 0;
        for (unsigned int round = 0; round < 3; round++)
                for (unsigned int i = 0; i < 20; i++) {
                        snprintf(why, sizeof(why), "reason %u", i);
                        n_first += add(&f, why, "one_device", 100 * round + i);
                }
        ck_assert_uint_eq(n_first, MAX_FALLBACKS + 1);
        ck_assert_uint_eq(f.n, MAX_FALLBACKS + 1);
        for (unsigned int i = 0; i < MAX_FALLBACKS; i++) {
                snprintf(why, sizeof(why), "reason %u", i);
                ck_assert_str_eq(f.all[i].why, why);
                ck_assert_uint_eq(f.all[i].n, 3);
        }
        ck_assert_str_eq(f.all[MAX_FALLBACKS].why, "");
        ck_assert_str_eq(f.all[MAX_FALLBACKS].algorithm, "");
        ck_assert_uint_eq(f.all[MAX_FALLBACKS].n, 3 * (20 - MAX_FALLBACKS));
        ck_assert_uint_eq(f.all[MAX_FALLBACKS].last_ns, 219);
        ck_assert_uint_eq(f.all[MAX_FALLBACKS].key.sequence, 219);
}
END_TEST

UNIT_MAIN("fallbacks", 10, P15_each_reason_is_counted_with_its_last_collective,
        P15_what_is_taken_instead_tells_them_apart, P15_P18_twenty_reasons_have_nine_places)
