/* Order by events between processes: those that tuttid-gpu has made for the slots of this connection's signal
 * page, opened here when a slot is first used, and again when a new tuttid-gpu has made others.
 *
 * What is known of a slot is his who has taken it (order.c); so there is no lock. */
#pragma once

#include <stdint.h>
#include "lib/driver.h"
#include "wire/message.h"

struct order_events;

/* Of the table behind the page's slots, which stays the caller's; in the context of the streams that will be
 * ordered. Opens one, to see whether it can: UNSUPPORTED where the driver refuses. NO_MEMORY. */
enum status order_events_new(
        struct order_events **ret, void *context, struct signal_events *table, struct error *err) MUST_USE;
void order_events_free(struct order_events *e);

/* The stream, which must be of that context, says when it is there. BUSY: tuttid-gpu is being started anew.
 */
enum status order_events_record(
        struct order_events *e, uint32_t slot, void *stream, struct error *err) MUST_USE;
/* The stream waits for what the slot's done event was recorded behind. */
enum status order_events_follow(
        struct order_events *e, uint32_t slot, void *stream, struct error *err) MUST_USE;
