/* The contract between the machines and the memory: a backend imports client memory, runs plans over it, and
 * lets it go. The host backend lives in tuttid, the cuda backend in the worker process (docs/adr/0007).
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

/* How a buffer's memory is reached: shown for each. */
enum memory_path {
        PATH_MEMFD,    /* host memory, mapped */
        PATH_VMM_MADE, /* device memory that tuttid made for the client */
        PATH_VMM_FD,   /* the client's VMM allocation, by its descriptor */
        PATH_CUDA_IPC, /* the client's allocation, by a legacy handle */
        PATH_EVENTS,   /* no client's: a signal page, with events that the GPU worker makes */
};

#define MEMORY_HANDLE_BYTES 64 /* of a legacy handle */

/* What every backend's mapping begins with. */
struct memory {
        uint64_t session; /* whose it is: the culprit when a run faults in it */
        uint64_t buffer;  /* its id, for messages */
        uint64_t n_bytes;
        bool is_guarded;          /* userfaultfd watches it */
        uint64_t pool_page_bytes; /* of the pages of the kernel's pool that it lies in; 0: in no such */
        enum memory_path path;
        uint32_t device; /* where it is: device_parse's number */
        /* In tuttid: how the GPU worker gets it. */
        uint64_t remote; /* the number under which the worker knows it; 0: it does not */
        int fd;          /* borrowed from the chore that brought it; -1: none */
        enum access access;
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
        enum pages pages;   /* IMPORT: what pages its client says it lies in */
        /* IMPORT and MAKE of device memory; zero for host memory. */
        enum memory_path path;
        uint32_t device;
        uint8_t handle[MEMORY_HANDLE_BYTES]; /* PATH_CUDA_IPC */
        uint64_t handle_offset_bytes;        /* PATH_CUDA_IPC: where the buffer begins in that allocation */
        void (*think)(struct chore *chore);  /* THINK */
        /* Set by the backend. */
        struct memory *memory;
        enum status status; /* IMPORT: OK, BAD_FD, INVALID (shorter than n_bytes), NO_MEMORY, INTERNAL;
                               MAKE: OK, NO_MEMORY, LIMIT (no descriptor left), INTERNAL */
        char why[160];
};

/* A slot in a page that is shared with a client, for order between its stream and ours: by its words, or, in
 * memory of PATH_EVENTS, by its events. */
struct signal {
        struct memory *page; /* NULL: the order is kept by the host */
        uint32_t slot;
        uint64_t value; /* ready: run when it is there; done: written when the outputs are complete */
};

/* A plan under way on a backend that launches. The caller's until launch, the backend's until is_over. */
struct run {
        struct list link;
        const struct plan *plan;
        uint64_t group;               /* one stream a device for each */
        uint32_t user;                /* users take turns */
        bool is_shared;               /* others than this one are there, if only to come */
        const struct signal *signals; /* [n_signals]: one for each half that brought one */
        uint32_t n_signals;
        uint64_t limit_ns; /* how long it may wait for signals; then TIMEOUT, nothing written */
        /* It is in the streams, and the done events of its signals have been recorded behind it. Set before
         * is_over, of runs that have such signals. */
        bool is_launched;
        bool is_over;
        enum status status;   /* OK, TIMEOUT (ready never came), BAD_FD, DEVICE_LOST, ABORTED, INTERNAL */
        bool is_untouched;    /* it failed before any stream had anything of it */
        uint32_t late_signal; /* TIMEOUT: which */
        uint32_t culprit;     /* BAD_FD: whose memory failed under it, that of this operand, from 1 on */
        struct findings found;
        uint64_t started_ns, done_ns; /* by the backend's clock */
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
        /* Memory for what lies between the steps of a plan (plan->scratch), its bytes of any value; nobody
         * else ever sees it. NULL when memory is short. Where plans are run by run_chunk; on any thread. */
        struct memory *(*make_scratch)(struct backend *b, uint32_t device, uint64_t n_bytes);
        void (*free_scratch)(struct backend *b, struct memory *memory);
        /* Of a backend whose devices run by themselves, instead of run_chunk; NULL otherwise. Both on the
         * thread that owns the backend. launch begins a run and returns at once: 0, or a negative errno (the
         * run is over, with its status set). poll moves on what is under way; a run that has ended has
         * is_over set. */
        int (*launch)(struct backend *b, struct run *run);
        void (*poll)(struct backend *b);
        /* Why it is less than it could be, or NULL: a line of `tuttictl status` ("unguarded: userfaultfd is
         * denied"). */
        const char *(*fallback)(const struct backend *b);
};

struct backend {
        const struct backend_ops *ops;
};
