/* A bounded piece of text under construction in memory that somebody else owns. What does not fit is cut, and
 * that is known. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

struct text {
        char *buf;
        size_t size, used; /* used < size; buf is always NUL-terminated */
        bool is_cut;
};

/* `size` >= 1. */
void text_init(struct text *t, char *buf, size_t size);
void text_add(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);

/* "12.4 s", "3 ms", "71 us", "1 h 02 min", "3 d 04:11": a duration as people read it. */
void text_add_duration(struct text *t, uint64_t ns);

/* "64 KiB", "1.5 GiB", "17 bytes". */
void text_add_bytes(struct text *t, uint64_t bytes);

/* Bytes in double quotes; what is not printable ASCII, quotes and backslashes are escaped, so that a name
 * cannot forge a line. */
void text_add_quoted(struct text *t, const char *bytes, size_t n);

/* Copies `src` into `dst` of `size` bytes, cut where it must be, always terminated. Replaces control bytes by
 * '?'. */
void text_copy(char *dst, size_t size, const char *src);

/* Whether a page, a terminal or a label may show it as it is: UTF-8 (RFC 3629) without control characters
 * (C0, DEL, C1). */
bool text_is_printable(const char *s);
