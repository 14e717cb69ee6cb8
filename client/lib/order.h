/* The order between a caller's streams and tuttid's: the signal page of a connection (docs/protocol.md), and
 * which slots of it are in use.
 *
 * Where streams cannot wait for values in memory, each of a few slots has two events instead
 * (order-events.h): then what is put into the stream does not wait by itself, since a stream can only wait
 * for an event that has been recorded, and tuttid records it when it puts the collective into its own streams
 * (order_follow).
 *
 * A slot is free when both its words have reached its last value: then neither side's stream will look at it
 * again for less. Asked for once, before the first buffer that tuttid reaches directly is handed out; `lock`
 * guards the rest. */
#pragma once

#include "lib/connection.h"
#include "lib/driver.h"

/* What OpenSignals is answered with. */
struct order_granted {
        enum stream_order order;
        int fd; /* owned; -1 where there is none */
        char why[160];
};

/* Asks for the best, unless that has been done: a timeline, else events. Whatever goes wrong is why it is not
 * a better one. Not under any lock. */
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

/* The stream will say when it is there, and waits from there on; or, where there is no order of streams, or
 * none for `is_direct`, this thread waits for the stream. Not under `lock`. */
enum status order_begin(struct tutti *t, struct order_use *use, bool is_direct, struct error *err) MUST_USE;
/* What a half's stream does: nothing (the host waits), waits already, waits when it is told to. Under `lock`.
 */
enum order_kind { ORDER_KIND_HOST, ORDER_KIND_TIMELINE, ORDER_KIND_EVENTS };
enum order_kind order_of_use(const struct tutti *t, const struct order_use *use);
/* The collective has been launched, and its slot stays as it is until order_end_follow. Under `lock`. */
void order_hold(struct tutti *t, const struct order_use *use);
/* The stream waits for the result from here on. Not under `lock`. */
enum status order_follow(struct tutti *t, const struct order_use *use, struct error *err) MUST_USE;
void order_end_follow(struct tutti *t, const struct order_use *use);
/* The half was not sent: the stream goes on. */
void order_abandon(struct tutti *t, const struct order_use *use);
