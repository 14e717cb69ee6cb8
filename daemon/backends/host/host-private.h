/* What the files of the host backend share. */
#pragma once

#include <sys/types.h>
#include "backends/backend.h"
#include "backends/host/host.h"
#include "config.h"

struct host_backend {
        struct backend base; /* first */
        enum isa isa;
        /* Watches every mapping of client memory, so that a hole in it is a SIGBUS and never a page on our
         * account. -1 where it is denied. */
        int userfaultfd;
        char fallback[160]; /* "" : nothing to say */
};

/* A client's memfd, or one of ours for clients, in our address space. */
struct host_memory {
        struct memory base;   /* first */
        uint8_t *map;         /* NULL when it has no bytes */
        uint64_t n_map_bytes; /* whole pages */
        bool is_writable;
};

static inline struct host_backend *host_backend_of(struct backend *b) {
        return (struct host_backend *)b;
}

static inline struct host_memory *host_memory_of(struct memory *m) {
        return (struct host_memory *)m;
}

/* host.c. Writes into h->fallback what is less than it could be (P15): h->isa, where `wanted` is more, and
 * unwatched memory, where `uffd` is a negative errno. */
void host_note_fallback(struct host_backend *h, enum isa wanted, int uffd);

/* host-memory.c */
void host_import(struct backend *b, struct chore *chore);
void host_release(struct backend *b, struct chore *chore);
void host_memory_free(struct host_memory *m);

/* host-make.c */
void host_make(struct backend *b, struct chore *chore);
void host_unmake(struct backend *b, struct chore *chore);

struct memory *host_make_scratch(struct backend *b, uint32_t device, uint64_t n_bytes);
void host_free_scratch(struct backend *b, struct memory *memory);

/* host-run.c */
enum status host_run_chunk(struct backend *b, const struct plan *plan, uint64_t chunk, struct findings *found,
        const struct memory **ret_culprit);
