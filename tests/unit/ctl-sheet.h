/* A page of tuttictl, caught as text. */
#pragma once

#include <stdlib.h>
#include "print.h"
#include "unit.h"

struct sheet {
        char *text;
        size_t n;
        struct page page;
};

static inline void sheet_open(struct sheet *s) {
        s->page = (struct page){ .out = open_memstream(&s->text, &s->n) };
        ck_assert_ptr_nonnull(s->page.out);
}

static inline void sheet_expect(struct sheet *s, const char *expected) {
        fclose(s->page.out);
        ck_assert_str_eq(s->text, expected);
        free(s->text);
}
