/* Who asks, and which groups and records they may see (P19).
 *
 * Users see their own; of those that a job secret keeps, only whose secret they have shown: in their hello,
 * or by joining with it. Admins and observers (daemon.admins, daemon.observers) see what any user has, one
 * user at a time. Seeing is all that this is about: nobody joins, aborts or ends what is another user's.
 * Lives in a session. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "model/error.h"

#define MAX_SHOWN_SECRETS 4

/* Zero but for uid, is_admin and sees_all: has shown nothing. */
struct viewer {
        uint32_t uid;     /* whose things it looks at: its own user's, or an admin's choice */
        bool is_admin;    /* may act for all, and sees all */
        bool sees_all;    /* whatever the user, whatever the secret */
        uint32_t n_shown; /* secrets ever shown; the last MAX_SHOWN_SECRETS are kept */
        char shown[MAX_SHOWN_SECRETS][MAX_SECRET_BYTES];
};

/* It knows this secret; "" and what is too long to be one are none. */
void viewer_show(struct viewer *v, const char *secret);

/* Whether it may see what belongs to `uid`, kept by `secret` ("": by none). */
bool viewer_sees(const struct viewer *v, uint32_t uid, const char *secret);
