/* Halves that tests of signatures begin with. */
#pragma once

#include <string.h>
#include "model/signature.h"
#include "unit.h"

#define WORLD 4

/* A half of R1 in a world of four. */
struct half {
        struct signature signature;
        struct entry entries[3];
};

static inline struct entry plain_entry(void) {
        return (struct entry){ .dtype = DTYPE_F32,
                .destination = DESTINATION_ALL,
                .n_dims = 2,
                .shape = { 1024, 10 },
                .input = { .buffer = 1 },
                .output = { .buffer = 2 } };
}

/* 5 of 100 rows. */
static inline struct entry sparse_entry(void) {
        struct entry e = plain_entry();
        e.layout = LAYOUT_SPARSE;
        e.shape[0] = 5;
        e.output_extent = 40;
        e.sparse = (struct sparse){ .index_dtype = DTYPE_I64,
                .n_dense_dims = 2,
                .dense_shape = { 100, 10 },
                .n_indices = 5,
                .indices = { .buffer = 3 },
                .output_indices = { .buffer = 4 } };
        return e;
}

static inline struct half half_of(enum kind kind) {
        bool reduces = kind == KIND_REDUCE || kind == KIND_BATCH_REDUCE;
        struct half h = { .signature = { .kind = kind,
                                  .op = reduces ? OP_SUM : OP_UNSPECIFIED,
                                  .n_entries = kind == KIND_BATCH_REDUCE ? 3 : kind != KIND_BARRIER } };
        for (size_t i = 0; i < ARRAY_SIZE(h.entries); i++)
                h.entries[i] = plain_entry();
        return h;
}

static inline void check_ok(const struct half *h) {
        struct error e;
        error_init(&e, STATUS_OK);
        ck_assert_msg(signature_check(&h->signature, h->entries, 1, WORLD, &e) == STATUS_OK, "%s", e.detail);
        ck_assert_int_eq(e.status, STATUS_OK);
        ck_assert_int_eq(e.entry, -1);
}

/* Refused with this status and field; the detail holds `word`. */
static inline void check_refused(
        const struct half *h, enum status status, enum field field, const char *word) {
        struct error e;
        error_init(&e, STATUS_OK);
        ck_assert_int_eq(signature_check(&h->signature, h->entries, 1, WORLD, &e), status);
        ck_assert_int_eq(e.status, status);
        ck_assert_int_eq(e.field, field);
        ck_assert_msg(strstr(e.detail, word) != NULL, "\"%s\" is not in \"%s\"", word, e.detail);
}
