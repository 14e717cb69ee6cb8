/* The order between a caller's streams and tuttid's: the signal page of a connection (docs/protocol.md), and
 * which slots of it are in use.
 *
 * A slot is free when both its words have reached its last value: then neither side's stream will look at it
 * again for less. Asked for once, before the first buffer that tuttid reaches directly is handed out; `lock`
 * guards the rest. */
#pragma once

#include "lib/connection.h"
#include "lib/driver.h"

/* What OpenSignals is answered with. */
struct order_granted {
        bool is_timeline;
        int fd; /* owned; -1 where there is none */
        char why[160];
};

/* Asks for it, unless that has been done. Whatever goes wrong is why it is not a timeline. Not under any
 * lock. */
void order_open(struct tutti *t, const struct driver_place *place);
/* Streams that wait go on; those that will, do not stop. Under `lock`. */
void order_let_go(struct tutti *t);
/* Waits for the streams that were handed in, and unmaps the page. */
void order_free(struct tutti *t);

/* A half's stream. */
struct order_use {
        bool has_stream;
        void *stream;
        void *context;  /* where that is the default stream's; NULL: the thread's own */
        uint64_t value; /* of the slot; 0: there is none */
        uint32_t slot;
};

/* The stream will say when it is there, and waits from there on; or, where there is no timeline or it is
 * not for `is_direct`, this thread waits for the stream. Not under `lock`. */
enum status order_begin(struct tutti *t, struct order_use *use, bool is_direct, struct error *err) MUST_USE;
/* The half was not sent: the stream goes on. */
void order_abandon(struct tutti *t, const struct order_use *use);
