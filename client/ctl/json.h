/* Rows as JSON. Names carry their units (_ns, _bytes); docs/schema/ describes every document.
 *
 * Each function returns a new reference, or NULL when memory is short; json_pack passes a NULL on. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/admin.h>

/* Bytes that are no UTF-8 become '?': names come from clients. */
json_t *json_text(const char *s);
/* null for "" and NULL. */
json_t *json_text_or_null(const char *s);
/* JSON integers are signed: what is beyond 2^63 - 1 is written as that. */
json_t *json_count(uint64_t n);
/* Sets `key`; a `value` of NULL or a failure makes *root NULL (and frees it), so that only the last result
 * need be looked at. */
void json_put(json_t **root, const char *key, json_t *value);
void json_add(json_t **array, json_t *value);

json_t *json_error_object(const char *status, const char *text);
json_t *json_ranks(const struct tutti_ranks *ranks);
json_t *json_daemon(const struct tutti_row_daemon *d);
json_t *json_device(const struct tutti_row_device *d);
json_t *json_buffer(const struct tutti_row_buffer *b);
json_t *json_group(const struct tutti_row_group *g);
json_t *json_member(const struct tutti_row_member *m);
json_t *json_result(const struct tutti_row_result *r);
json_t *json_pending(const struct tutti_row_pending *p);
/* Which collective it was, and how it ended; without its times. */
json_t *json_record(const struct tutti_row_record *r);
