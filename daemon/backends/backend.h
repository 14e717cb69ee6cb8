/* The contract between the machines and the memory: a backend imports client memory, runs plans over it, and
 * lets it go.
 *
 * import, release, make, unmake and run_chunk are called on engine threads, never on the loop thread;
 * describe on any. `struct memory` is the backend's mapping of one buffer; everybody else passes it on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"
#include "base/list.h"
#include "model/finding.h"
#include "model/status.h"
#include "plan.h"
#include "wire/message.h"

struct backend;

/* What every backend's mapping begins with. */
struct memory {
        uint64_t session; /* whose it is: the culprit when a run faults in it */
        uint64_t buffer;  /* its id, for messages */
        uint64_t n_bytes;
        bool is_guarded; /* userfaultfd watches it */
};

enum chore_kind {
        CHORE_IMPORT,  /* seal, check, map, guard fd -> memory */
        CHORE_RELEASE, /* unmap memory if there is any, close fd; also after an import that failed */
        CHORE_MAKE,    /* make memory of our own for clients to read, sealed against them -> fd, memory */
        CHORE_UNMAKE,  /* let go of it, if nobody else has it any more; may be tried again */
        CHORE_CLOSE,   /* close a stranger's descriptor, which may block for seconds */
        CHORE_THINK,   /* `think`, which takes longer than the loop thread may */
};

/* A piece of memory work: a baton that one thread holds at a time. Embedded in what it works for. */
struct chore {
        struct list link;
        enum chore_kind kind;
        uint32_t uid;
        uint64_t session, buffer;
        int fd;             /* owned; MAKE: set; UNMAKE: -1 afterwards, unless somebody else has the memory */
        int read_fd;        /* owned; MAKE: set, the same memory for others to have, open for reading */
        uint64_t n_bytes;   /* IMPORT, MAKE: asked for */
        enum access access; /* IMPORT */
        void (*think)(struct chore *chore); /* THINK */
        /* Set by the backend. */
        struct memory *memory;
        enum status status; /* IMPORT: OK, BAD_FD, INVALID (shorter than n_bytes), NO_MEMORY, INTERNAL;
                               MAKE: OK, NO_MEMORY, LIMIT (no descriptor left), INTERNAL */
        char why[160];
};

struct backend_ops {
        const char *name; /* "host" */
        void (*free)(struct backend *b);
        /* One line for people: "AVX-512, guarded by userfaultfd". */
        void (*describe)(const struct backend *b, char *buf, size_t size);
        /* Once on each engine thread that will run chunks: floating-point state, signal guard. 0 or negative
         * errno. */
        int (*thread_init)(struct backend *b);
        void (*import)(struct backend *b, struct chore *chore);
        void (*release)(struct backend *b, struct chore *chore);
        /* Memory of n_bytes, zero, all of it there, mapped by us for writing and by nobody else ever. */
        void (*make)(struct backend *b, struct chore *chore);
        /* Unmaps it, closes read_fd, and, unless somebody still has a descriptor or a mapping of it, fd. */
        void (*unmake)(struct backend *b, struct chore *chore);
        /* Runs one chunk of a frozen plan to completion. What the checks of its steps find is added to
         * *found. OK, or BAD_FD with *ret_culprit where a client's memory failed under it. */
        enum status (*run_chunk)(struct backend *b, const struct plan *plan, uint64_t chunk,
                struct findings *found, const struct memory **ret_culprit);
        /* Why it is less than it could be, or NULL: a line of `tuttictl status` ("unguarded: userfaultfd is
         * denied"). */
        const char *(*fallback)(const struct backend *b);
};

struct backend {
        const struct backend_ops *ops;
};
