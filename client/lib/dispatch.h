/* Brings a decoded reply to the call that waits for it. Under the connection's lock. */
#pragma once

#include "lib/connection.h"

/* NULL, or what is wrong with it: then the connection cannot go on. Takes the descriptors it has a use for
 * out of the packet. */
const char *dispatch_reply(struct tutti *t, const struct reply *reply, struct packet *packet);
