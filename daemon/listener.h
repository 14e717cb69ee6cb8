/* The door: the socket in the file system, the lock that keeps it ours, and accepting.
 *
 * One tuttid per path: an flock on `<path without .sock>.lock`, which also says our pid. A socket that a dead
 * tuttid left is replaced; anything else at the path is left alone. Owned by daemon.c; loop thread. */
#pragma once

#include <stddef.h>
#include <uv.h>
#include "base/check.h"
#include "config.h"
#include "doorbell.h"

#define MAX_SOCKET_PATH 107 /* sockaddr_un, with its terminator 108 */

struct listener;

/* Binds and listens; the bell rings when somebody waits at the door. 0, or a negative errno with a sentence
 * in `why`: -EALREADY (another tuttid runs there, with its pid), -EEXIST (something else is at the path),
 * -ENAMETOOLONG, -ENOENT (no such directory), -EACCES, ... */
int listener_new(struct listener **ret, uv_loop_t *loop, const struct config *config,
        const struct doorbell *bell, char *why, size_t why_bytes) MUST_USE;

/* A connection (owned by the caller), or -EAGAIN. When descriptors run out the one at the door is turned
 * away, so that the door does not stay ringing. */
int listener_accept(struct listener *l) MUST_USE;

/* No more guests: removes the socket, keeps the lock until freed. */
void listener_close(struct listener *l);
/* After the loop has run once. */
void listener_free(struct listener *l);
