/* Text to value and back: how one key of the configuration is written.
 *
 * Pure. Private to config.c and its tests. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/check.h"
#include "base/text.h"
#include "config-users.h"

enum value_type {
        VALUE_TEXT,     /* char[size] */
        VALUE_COUNT,    /* uint32_t or uint64_t, by size */
        VALUE_BYTES,    /* uint64_t */
        VALUE_DURATION, /* uint64_t, nanoseconds */
        VALUE_WORD,     /* an enum whose values count the words from 0 */
        VALUE_USERS,    /* struct user_list */
};

struct value_rule {
        enum value_type type;
        size_t size;          /* of the field */
        uint64_t min, max;    /* of numbers */
        uint64_t multiple_of; /* of numbers; 0: any */
        const char *word;     /* a number may also be given as this word; NULL: no */
        uint64_t (*of_word)(void);
        const char *const *words; /* VALUE_WORD: NULL-terminated */
        enum unknown_users unknown_users;
};

/* Stores what `text` says in `field`. 0, or -EINVAL with "what is wrong; what is allowed" in `why` and *field
 * untouched. */
int value_parse(const struct value_rule *rule, const char *text, void *field, struct text *why) MUST_USE;

/* "4 KiB to 64 MiB, in steps of 64", "auto, scalar or avx2". */
void value_print_allowed(const struct value_rule *rule, struct text *t);
