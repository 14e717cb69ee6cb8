/* Registered memory: whose it is, who leases it, when it may go.
 *
 *   IMPORTING --chore done--> READY --unregistered or session over, last lease back--> (release chore) -->
 * gone
 *       |
 *       +--chore failed--> FAILED(status): keeps its id until unregistered, so that a submission naming it
 * gets that status
 *
 * Owned by daemon.c, driven by conductor.c; loop thread. Client descriptors are only looked at here (fstat,
 * F_GET_SEALS); sealing, mapping, unmapping and closing are chores, which are handed back in the `chores`
 * list of each call for the conductor to give to the engine. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/backend.h"
#include "base/list.h"
#include "model/error.h"
#include "model/signature.h"
#include "quota.h"

struct buffers;
struct buffer;

/* What a session asks for. */
struct buffer_ask {
        uint64_t session, request;
        uint32_t uid;
        const struct msg_register *reg;
        int fd; /* -1: none came; taken when the answer is OK */
        /* Device memory, as the conductor has found out: how it is reached, and where it is. Zero: host
         * memory. */
        enum memory_path path;
        uint32_t device;
        uint64_t granularity;        /* tuttid makes it there, in pieces of this; 0: it does not */
        const struct error *refused; /* it cannot be: the id stays as failed with this; NULL: it can */
};

/* How an import ended. */
struct buffer_news {
        uint64_t session, request, buffer;
        enum status status;
        char why[160];
        bool is_device;      /* its memory is a device's */
        int made_fd;         /* it was made for the client, who gets this; the buffer's; -1: it was not */
        uint64_t made_bytes; /* of all of it, to be mapped as one */
};

int buffers_new(struct buffers **ret, struct quotas *quotas) MUST_USE;
/* All sessions must have ended and all chores come back. */
void buffers_free(struct buffers *b);

/* OK: the import is a chore in `chores`, and buffer_chore_done will tell how it went. Otherwise the
 * descriptor stays the caller's, and the id stays as failed with this status, unless it was taken before
 * (LIMIT: the first one is unharmed) or its user has no descriptor left to be charged for remembering it. */
enum status buffer_register(
        struct buffers *b, const struct buffer_ask *ask, struct list *chores, struct error *err) MUST_USE;

/* Takes a chore back from the engine. true: an import has ended, *ret tells; more chores may follow from it.
 */
bool buffer_chore_done(struct buffers *b, struct chore *chore, struct list *chores, struct buffer_news *ret);

/* Forgets the id at once; the memory goes when its last lease comes back. NOT_FOUND. */
enum status buffer_unregister(
        struct buffers *b, uint64_t session, uint64_t id, struct list *chores, struct error *err) MUST_USE;

/* Every buffer of the session is unregistered. */
void buffers_end_session(struct buffers *b, uint64_t session, struct list *chores);

/* A stranger's descriptor, charged until it is closed, beyond the limit if need be. The descriptor is
 * consumed in any case; QUOTA when the user has used up that reserve too (it is closed all the same),
 * NO_MEMORY. */
enum status buffer_close_stranger(struct buffers *b, uint64_t session, uint32_t uid, int fd,
        struct list *chores, struct error *err) MUST_USE;

/* Whether imports of this session are under way: a submission waits for them, so that a client may register
 * and submit in one breath. */
bool buffers_is_importing(const struct buffers *b, uint64_t session);

enum buffer_use { BUFFER_READ, BUFFER_WRITE };

/* Checks the place of a value that reaches over `extent` elements of `element_bytes` (its first, its last,
 * and what lies between) and takes a lease: fills lease, memory, file, span. NOT_FOUND (no such buffer), the
 * status of a failed registration, INVALID with field OFFSET, SIZE or ACCESS. */
enum status buffer_lease(struct buffers *b, uint64_t session, struct place *place, enum buffer_use use,
        uint64_t extent, uint64_t element_bytes, struct error *err) MUST_USE;

/* Gives a lease back; harmless on a place without one. */
void buffer_unlease(struct buffers *b, struct place *place, struct list *chores);

/* What people are told of a buffer that has to do with a device (in its memory, or host memory that stands
 * for some), or that lies in huge pages, or was meant to.
 */
struct buffer_description {
        uint64_t session, id, n_bytes;
        uint32_t uid;
        enum memory_path path;
        uint32_t device;
        const char *stands_for, *why; /* "": nothing of the kind */
        enum pages pages;             /* as its client says */
        uint64_t pool_page_bytes;     /* as tuttid has found; 0: it lies in no pages of the pool */
};

/* One of them in their list; where `buffer` is NULL, how far a reader of that list has come, who owns it:
 * list_init before the first is told, list_unlink where he stops before the last. */
struct told {
        struct list link;
        const struct buffer *buffer;
};

/* The one behind `at`, which moves on; false: there is none, and the next would be the first again. However
 * many come and go between two calls, neither looks at more than the one, and none is told twice. */
bool buffers_tell(struct buffers *b, struct told *at, struct buffer_description *ret);

/* Buffers for which huge pages were asked, and that have none of the pool. */
struct buffer_shortage {
        uint32_t n_buffers;
        uint64_t n_bytes;
        struct buffer_description first;
};

/* Those of this user; NULL: of all. false: there are none. One pass over all that people are told of, where
 * there are any. */
bool buffers_describe_short(const struct buffers *b, const uint32_t *uid, struct buffer_shortage *ret);

/* Registered and not failed, over all; and of one session. */
uint32_t buffers_count(const struct buffers *b);
uint32_t buffers_count_session(const struct buffers *b, uint64_t session, uint64_t *ret_bytes);
