/* The words: their names and tables, keys and spans. That they are numbered as on the wire is asserted where
 * both are seen, in the codec. */
#include <string.h>
#include "model/dtype.h"
#include "model/error.h"
#include "model/field.h"
#include "model/finding.h"
#include "model/key.h"
#include "model/op.h"
#include "model/signature.h"
#include "model/span.h"
#include "model/status.h"
#include "unit.h"

static const struct {
        enum dtype dtype;
        const char *name;
        size_t n_bytes;
        char family; /* 'i' integer, 'f' float, 'c' complex, 'b' bool, '-' none */
        enum dtype mean;
} dtypes[] = {
        { DTYPE_UNSPECIFIED, "unspecified", 0, '-', DTYPE_UNSPECIFIED },
        { DTYPE_U8, "u8", 1, 'i', DTYPE_F32 },
        { DTYPE_I8, "i8", 1, 'i', DTYPE_F32 },
        { DTYPE_U16, "u16", 2, 'i', DTYPE_F32 },
        { DTYPE_I16, "i16", 2, 'i', DTYPE_F32 },
        { DTYPE_U32, "u32", 4, 'i', DTYPE_F64 },
        { DTYPE_I32, "i32", 4, 'i', DTYPE_F64 },
        { DTYPE_U64, "u64", 8, 'i', DTYPE_F64 },
        { DTYPE_I64, "i64", 8, 'i', DTYPE_F64 },
        { DTYPE_F16, "f16", 2, 'f', DTYPE_UNSPECIFIED },
        { DTYPE_BF16, "bf16", 2, 'f', DTYPE_UNSPECIFIED },
        { DTYPE_F32, "f32", 4, 'f', DTYPE_UNSPECIFIED },
        { DTYPE_F64, "f64", 8, 'f', DTYPE_UNSPECIFIED },
        { DTYPE_BOOL, "bool", 1, 'b', DTYPE_UNSPECIFIED },
        { DTYPE_C64, "c64", 8, 'c', DTYPE_UNSPECIFIED },
        { DTYPE_C128, "c128", 16, 'c', DTYPE_UNSPECIFIED },
        { N_DTYPE, "?", 0, '-', DTYPE_UNSPECIFIED },
        { (enum dtype) - 1, "?", 0, '-', DTYPE_UNSPECIFIED },
};

START_TEST(dtypes_have_name_size_and_family) {
        ck_assert_uint_eq(ARRAY_SIZE(dtypes), N_DTYPE + 2);
        for (size_t i = 0; i < ARRAY_SIZE(dtypes); i++) {
                ck_assert_str_eq(dtype_name(dtypes[i].dtype), dtypes[i].name);
                ck_assert_uint_eq(dtype_bytes(dtypes[i].dtype), dtypes[i].n_bytes);
                ck_assert_int_eq(dtype_is_integer(dtypes[i].dtype), dtypes[i].family == 'i');
                ck_assert_int_eq(dtype_is_float(dtypes[i].dtype), dtypes[i].family == 'f');
                ck_assert_int_eq(dtype_is_complex(dtypes[i].dtype), dtypes[i].family == 'c');
                ck_assert_int_eq(dtype_is_supported(dtypes[i].dtype), dtypes[i].family != '-');
                ck_assert_int_eq(dtype_of_integer_mean(dtypes[i].dtype), dtypes[i].mean);
        }
}
END_TEST

/* Which families have each op, unasked. */
static const char *const families_of[] = {
        [OP_UNSPECIFIED] = "",
        [OP_SUM] = "ifc",
        [OP_MEAN] = "fc",
        [OP_PROD] = "ifc",
        [OP_MIN] = "if",
        [OP_MAX] = "if",
        [OP_BAND] = "i",
        [OP_BOR] = "i",
        [OP_BXOR] = "i",
        [OP_LAND] = "b",
        [OP_LOR] = "b",
        [N_OP] = "",
};

START_TEST(ops_on_dtypes) {
        for (unsigned int op = 0; op <= N_OP; op++)
                for (size_t i = 0; i < ARRAY_SIZE(dtypes); i++)
                        ck_assert_msg(op_is_supported((enum op)op, dtypes[i].dtype) ==
                                              (strchr(families_of[op], dtypes[i].family) != NULL),
                                "%s on %s", op_name((enum op)op), dtypes[i].name);
}
END_TEST

START_TEST(D3_the_text_of_what_works_names_every_dtype_and_op) {
        for (unsigned int dtype = DTYPE_U8; dtype < N_DTYPE; dtype++) {
                char word[16] = " ";
                strcat(word, dtype_name((enum dtype)dtype));
                ck_assert_msg(strstr(op_supported_text(), word) != NULL, "%s", word);
        }
        for (unsigned int op = OP_SUM; op < N_OP; op++)
                ck_assert_msg(strstr(op_supported_text(), op_name((enum op)op)) != NULL, "%u", op);
        ck_assert_str_eq(op_supported_text(),
                "SUM, MEAN, PROD, MIN, MAX on f16 bf16 f32 f64; SUM, PROD, MIN, MAX, BAND, BOR, BXOR on u8 "
                "i8 "
                "u16 i16 u32 i32 u64 i64, and MEAN with a rounding or a float output; SUM, MEAN, PROD on c64 "
                "c128; LAND, LOR on bool");
        struct error e; /* it fits behind what is said of the op */
        error_init(&e, STATUS_OK);
        ck_assert_uint_lt(strlen(op_supported_text()) + 64, sizeof(e.detail));
}
END_TEST

/* --- findings --- */

static struct findings finding_at(uint32_t rank, uint32_t entry, uint64_t index, uint64_t n) {
        return (struct findings){ .numerics = { .n = n, .rank = rank, .entry = entry, .index = index } };
}

START_TEST(D11_the_first_finding_is_the_same_in_whatever_order_parts_are_added) {
        const struct findings parts[] = { finding_at(2, 0, 5, 1), finding_at(1, 3, 900, 10),
                finding_at(1, 3, 70, 100), finding_at(1, 4, 0, 1000),
                { .overflow = { .n = 6, .index = 8 } } };
        for (size_t start = 0; start < ARRAY_SIZE(parts); start++) {
                struct findings f = { 0 };
                for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
                        findings_add(&f, &parts[(start + i) % ARRAY_SIZE(parts)]);
                ck_assert_uint_eq(f.numerics.n, 1111);
                ck_assert_uint_eq(f.numerics.rank, 1);
                ck_assert_uint_eq(f.numerics.entry, 3);
                ck_assert_uint_eq(f.numerics.index, 70);
                ck_assert_uint_eq(f.overflow.n, 6);
                ck_assert_uint_eq(f.overflow.index, 8);
        }
}
END_TEST

START_TEST(the_bad_index_that_is_told_is_the_same_in_whatever_order_parts_are_added) {
        const struct findings parts[] = { { .bad_index = { .n = 1, .entry = 2, .rank = 0, .position = 0 } },
                { .bad_index = { .n = 10, .entry = 1, .rank = 3, .position = 0 } },
                { .bad_index = { .n = 100, .entry = 1, .rank = 2, .position = 9 } },
                { .bad_index = { .n = 1000, .entry = 1, .rank = 2, .position = 4, .value = -7 } },
                { .short_output = { .needed = 5, .entry = 2 } },
                { .short_output = { .needed = 4, .entry = 1 } } };
        for (size_t start = 0; start < ARRAY_SIZE(parts); start++) {
                struct findings f = { 0 };
                ck_assert(!findings_forbid(&f));
                for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
                        findings_add(&f, &parts[(start + i) % ARRAY_SIZE(parts)]);
                ck_assert(findings_forbid(&f));
                ck_assert_uint_eq(f.bad_index.n, 1111);
                ck_assert_uint_eq(f.bad_index.position, 4);
                ck_assert_int_eq(f.bad_index.value, -7);
                ck_assert_uint_eq(f.short_output.needed, 4);
        }
}
END_TEST

/* Names of an enum: in order, none missing, none twice. */
static void check_names(const char *(*name)(unsigned int), const char *expected) {
        char all[1024] = "", *end = all;
        for (unsigned int i = 0; strcmp(name(i), "?") != 0; i++) {
                if (i)
                        *end++ = ' ';
                for (const char *p = name(i); *p; p++)
                        *end++ = *p == ' ' ? '-' : *p;
        }
        *end = '\0';
        ck_assert_str_eq(all, expected);
        ck_assert_str_eq(name(UINT32_MAX), "?");
}

static const char *op_at(unsigned int i) {
        return op_name((enum op)i);
}
static const char *kind_at(unsigned int i) {
        return kind_name((enum kind)i);
}
static const char *field_at(unsigned int i) {
        return field_name((enum field)i);
}
static const char *status_at(unsigned int i) {
        return status_name((enum status)i);
}
static const char *loss_at(unsigned int i) {
        return loss_name((enum loss)i);
}
static const char *state_at(unsigned int i) {
        return process_state_name((enum process_state)i);
}

START_TEST(every_word_has_its_name) {
        check_names(op_at, "unspecified SUM MEAN PROD MIN MAX BAND BOR BXOR LAND LOR");
        check_names(kind_at,
                "unspecified reduce broadcast batch_reduce barrier gather reduce_scatter merge_call "
                "merge_result");
        check_names(status_at,
                "OK INVALID UNSUPPORTED MISMATCH ALREADY_PENDING TIMEOUT EXPIRED ABORTED CANCELLED "
                "PEER_REFUSED REPLICA_LOST LEFT OUTPUT_LOST QUOTA LIMIT PERMISSION VERSION BAD_FD "
                "NOT_FOUND NO_MEMORY BUSY FORKED NO_DAEMON DAEMON_LOST DRAINING DEVICE_LOST INTERNAL");
        check_names(field_at,
                "unspecified kind op root dtype output-dtype shape layout destinations batch-length options "
                "world-size rank buffer offset strides overlap data key group job access size descriptor "
                "entries timeout membership version");
        check_names(loss_at, "unspecified died disconnected ejected went");
        check_names(state_at, "unknown alive stopped dead absent");
        ck_assert_str_eq(status_name(STATUS_PENDING), "PENDING");
}
END_TEST

/* --- keys --- */

static void check_key(const struct key *k, const char *expected) {
        char buf[1024];
        struct text t;
        text_init(&t, buf, sizeof(buf));
        key_print(k, &t);
        ck_assert_str_eq(buf, expected);
}

START_TEST(keys_are_names_or_numbers_and_never_collide) {
        struct key name, zero = key_sequence(0), one = key_sequence(1), other;
        ck_assert(key_name(&name, "grad/7", 6));
        ck_assert(key_name(&other, "grad/8", 6));
        ck_assert(key_is_equal(&name, &name) && !key_is_equal(&name, &other));
        ck_assert(!key_is_equal(&zero, &one) && key_is_equal(&zero, &zero) && !key_is_equal(&zero, &name));
        ck_assert(key_name(&other, "0", 1));
        ck_assert(!key_is_equal(&other, &zero));
        ck_assert(key_name(&other, "grad/7\0", 7));
        ck_assert(!key_is_equal(&other, &name));
        check_key(&name, "\"grad/7\"");
        check_key(&one, "#1");
}
END_TEST

START_TEST(keys_have_1_to_128_bytes) {
        char bytes[MAX_KEY_BYTES + 1];
        struct key k = key_sequence(3);
        memset(bytes, 'k', sizeof(bytes));
        ck_assert(!key_name(&k, bytes, 0));
        ck_assert(!key_name(&k, bytes, MAX_KEY_BYTES + 1));
        ck_assert_uint_eq(k.sequence, 3);
        ck_assert(key_name(&k, bytes, MAX_KEY_BYTES));
        ck_assert_uint_eq(k.n_bytes, MAX_KEY_BYTES);
        ck_assert_int_eq(memcmp(k.bytes, bytes, MAX_KEY_BYTES), 0);
        ck_assert(key_name(&k, "\n", 1));
        check_key(&k, "\"\\x0a\"");
}
END_TEST

/* --- spans --- */

START_TEST(spans_fit_or_are_refused) {
        struct span s;
        ck_assert(span_make(8, 4, 4, 24, &s));
        ck_assert_uint_eq(s.offset_bytes, 8);
        ck_assert_uint_eq(s.n_bytes, 16);
        ck_assert_uint_eq(span_end(&s), 24);
        ck_assert(!span_make(8, 4, 4, 23, &s));  /* one byte short */
        ck_assert(!span_make(6, 1, 4, 64, &s));  /* not aligned to its elements */
        ck_assert(span_make(6, 1, 2, 64, &s));   /* any element-aligned offset works */
        ck_assert(!span_make(0, 1, 0, 64, &s));  /* no element size */
        ck_assert(span_make(64, 0, 4, 64, &s));  /* nothing, at the end */
        ck_assert(!span_make(68, 0, 4, 64, &s)); /* nothing, beyond it */
        ck_assert(!span_make(0, UINT64_MAX / 4 + 1, 4, UINT64_MAX, &s));
        ck_assert(!span_make(UINT64_MAX - 7, 2, 8, UINT64_MAX, &s));
        ck_assert_uint_eq(s.offset_bytes, 64); /* untouched by refusals */
}
END_TEST

START_TEST(spans_overlap_when_they_share_a_byte) {
        struct span a = { 0, 8 }, b = { 8, 8 }, c = { 7, 2 }, none = { 4, 0 };
        ck_assert(!span_overlaps(&a, &b) && !span_overlaps(&b, &a));
        ck_assert(span_overlaps(&a, &c) && span_overlaps(&c, &b) && span_overlaps(&a, &a));
        ck_assert(!span_overlaps(&a, &none) && !span_overlaps(&none, &a) && !span_overlaps(&none, &none));
}
END_TEST

UNIT_MAIN("model", 5, dtypes_have_name_size_and_family, ops_on_dtypes,
        D3_the_text_of_what_works_names_every_dtype_and_op,
        D11_the_first_finding_is_the_same_in_whatever_order_parts_are_added,
        the_bad_index_that_is_told_is_the_same_in_whatever_order_parts_are_added, every_word_has_its_name,
        keys_are_names_or_numbers_and_never_collide, keys_have_1_to_128_bytes, spans_fit_or_are_refused,
        spans_overlap_when_they_share_a_byte)
