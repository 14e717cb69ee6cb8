/* uthash for people who survive a failing malloc: HASH_ADD that says whether it worked instead of ending the
 * process.
 *
 * Include this, never uthash.h. uthash frees its table with the last element, so a table on a hot path keeps
 * one element that never leaves. */
#pragma once

#define HASH_NONFATAL_OOM 1
/* The element could not be added; it is left out of the table. */
#define uthash_nonfatal_oom(element) ((void)(element), table_oom_ = 1)

/* FNV-1a: short for short keys; the default falls through its cases in a way clang warns of. Keys that a
 * client chooses are hashed by their owner, with a secret. */
#define HASH_FUNCTION(key, n_bytes, hash) HASH_FNV(key, n_bytes, hash)

#include <uthash.h>

/* Adds `element` by its member `field` (of fixed size); *is_in is false when memory is short. */
#define TABLE_ADD(head, element, field, is_in)                                                               \
        do {                                                                                                 \
                int table_oom_ = 0;                                                                          \
                HASH_ADD(hh, head, field, sizeof((element)->field), element);                                \
                (is_in) = !table_oom_;                                                                       \
        } while (0)

/* The same with a key that is `n` bytes from `key` on, inside the element. */
#define TABLE_ADD_KEYPTR(head, key, n, element, is_in)                                                       \
        do {                                                                                                 \
                int table_oom_ = 0;                                                                          \
                HASH_ADD_KEYPTR(hh, head, key, n, element);                                                  \
                (is_in) = !table_oom_;                                                                       \
        } while (0)
