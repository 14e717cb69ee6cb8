/* Halves that come again: what was submitted a second time is kept by tuttid, and from the third time on only
 * its number travels.
 *
 * A half comes again when everything that it says is the same, byte for byte in wire form: kind, op, options,
 * and for each entry dtype, shape, destinations and places. Which of them are known is a fixed table of the
 * connection; the least recently used one makes room. Written under `sending` and `lock`, read under either.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/sip.h"
#include "wire/message.h"

struct tutti;

/* Fewer than tuttid keeps for one connection. */
#define MAX_REMEMBERED         (MAX_PREPARED * 3 / 4)
#define MAX_REMEMBERED_BUFFERS 8

enum remembered_state {
        REMEMBERED_NOTHING,
        REMEMBERED_SEEN,  /* once */
        REMEMBERED_ASKED, /* tuttid was asked to keep it */
        REMEMBERED_KEPT,
        REMEMBERED_DECLINED, /* tuttid does not keep it */
};

struct remembered {
        _Atomic int state; /* enum remembered_state */
        struct sip print;
        uint64_t number; /* the wire's */
        uint64_t last_use;
        bool has_done;        /* it has been answered since it is kept */
        struct msg_done done; /* by this */
        uint32_t n_buffers;   /* beyond MAX_REMEMBERED_BUFFERS: so many that not all are listed */
        uint64_t buffers[MAX_REMEMBERED_BUFFERS];
        uint64_t result; /* the object that it goes to; 0: none */
};

struct memory_of_halves {
        bool is_off;
        uint64_t n_uses, last_number;
        struct remembered items[MAX_REMEMBERED];
};

/* What tells it from every other half. `entries` are all of it, in wire form. */
struct sip print_of_half(const struct msg_submit *m, const struct entry *entries);

/* Under `sending`: what is known of this half, and notes that it has come. The number under which it is to be
 * started or asked for; 0: it is to be submitted as it is. */
struct remembering {
        const struct remembered *start; /* NULL: it is to be kept under the number */
        uint64_t number;
};
struct remembering remember(
        struct tutti *t, const struct msg_submit *m, const struct entry *entries, const struct sip *print);

/* Under `lock`: the half that was to be kept under this number has ended. */
void remember_end(struct tutti *t, uint64_t number, bool is_kept);
/* Under `lock`: one that is kept under it has ended well. */
void remember_done(struct tutti *t, uint64_t number, const struct msg_done *done);
/* The buffer (the wire's) is about to go: nothing that uses it stays kept. Takes `sending` and `lock`. */
void forget_buffer(struct tutti *t, uint64_t buffer);
/* Likewise of a result object. */
void forget_object(struct tutti *t, uint64_t result);
/* The connection has ended, and may be another one later: nothing is kept. Under `lock`. */
void forget_all(struct tutti *t);
