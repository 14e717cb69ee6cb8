/* The door: the socket in the file system, the lock that keeps it ours, and accepting.
 *
 * One tuttid per path: an flock on `<path without .sock>.lock`, which also says our pid. A socket that a dead
 * tuttid left is replaced; anything else at the path is left alone. A socket that the service manager passed
 * on is taken as it is, and outlives us: who connects meanwhile waits in it. Owned by daemon.c; loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "base/check.h"
#include "config.h"
#include "doorbell.h"

#define MAX_SOCKET_PATH 107 /* sockaddr_un, with its terminator 108 */

struct listener;

struct listener_setting {
        const struct config *config;
        struct doorbell bell;
        int passed_on;      /* a socket that listens at the path already, taken over; -1: bind one */
        bool is_kept_alive; /* somebody keeps our socket when we end, so its path stays */
};

/* Binds and listens; the bell rings when somebody waits at the door. 0, or a negative errno with a sentence
 * in `why`: -EALREADY (another tuttid runs there, with its pid), -EEXIST (something else is at the path),
 * -ENAMETOOLONG, -ENOENT (no such directory), -EACCES, ... */
int listener_new(struct listener **ret, uv_loop_t *loop, const struct listener_setting *setting, char *why,
        size_t why_bytes) MUST_USE;

/* The socket, which stays ours. */
int listener_socket(const struct listener *l);

/* A connection (owned by the caller), -EAGAIN (nobody is there, or the door is shut), or -EMFILE: there is no
 * descriptor for the one at the door. */
int listener_accept(struct listener *l, uint64_t now_ns) MUST_USE;
/* After -EMFILE: lets that one in by descriptors kept for this, to be sent away: it may have sent some that
 * block when they are closed, so that is for the caller to do. -EAGAIN: not even so. As long as those kept
 * are not there again the door is shut, and who comes waits before it. */
int listener_accept_by_spare(struct listener *l, uint64_t now_ns) MUST_USE;

/* When it is worth looking whether the door can be opened again; UINT64_MAX: it is open. */
uint64_t listener_next_ns(const struct listener *l);
void listener_expire(struct listener *l, uint64_t now_ns);

/* No more guests: removes the socket that is ours alone, keeps the lock until freed. */
void listener_close(struct listener *l);
/* After the loop has run once. */
void listener_free(struct listener *l);
