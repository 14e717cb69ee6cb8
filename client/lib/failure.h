/* An error in the form that tutti.h shows, with everything it points to; and each thread's last one.
 *
 * Counted, and unchanged once made, so that one lost connection is one failure for all that waited. Made only
 * when something went wrong. Where there is no memory for it, NULL stands for it, and bare words take its
 * place. */
#pragma once

#include <stdatomic.h>
#include <tutti/tutti.h>
#include "base/check.h"
#include "model/error.h"

#define KEY_TEXT_BYTES (4 * MAX_KEY_BYTES + 4) /* a key of which every byte is escaped */

struct failure {
        atomic_uint n_refs;
        struct error error;
        struct tutti_error_info info;
        struct tutti_error_class classes[MAX_ERROR_CLASSES];
        struct tutti_replica replicas[MAX_ERROR_REPLICAS];
        char key[KEY_TEXT_BYTES], last_keys[MAX_ERROR_REPLICAS][KEY_TEXT_BYTES];
        char text[ERROR_TEXT_BYTES];
};

/* NULL when there is no memory. */
struct failure *failure_new(const struct error *e);
struct failure *failure_ref(struct failure *f);
void failure_unref(struct failure *f);

/* The data of `f`, or, where it is NULL, what can be said of the bare status. Never NULL. */
const struct tutti_error_info *failure_info(const struct failure *f, enum status status);

/* A key as tutti.h shows it: grad/7 or #17, escaped, without quotes. */
void key_show(const struct key *k, char *buf, size_t size);
struct tutti_ranks ranks_show(const struct rankset *s);

/* Begins *e anew, and sets it; returns the status, so that a check ends with `return refuse(...)`. */
enum status refuse(struct error *e, enum status status, enum field field, const char *format, ...)
        PRINTF_LIKE(4, 5);

/* LIMIT: tuttid has sent `what`, and its descriptor found no place here. */
enum status refuse_no_descriptor(struct error *e, const char *what);

/* --- the calling thread's last failed call --- */

/* Makes it the thread's error, takes the caller's reference, returns the status. */
enum tutti_status thread_fail_with(enum status status, struct failure *f);
enum tutti_status thread_fail(const struct error *e);
enum tutti_status thread_say_forked(void);
enum tutti_status thread_say(enum status status, enum field field, const char *format, ...) PRINTF_LIKE(3, 4);
