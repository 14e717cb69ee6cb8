/* A small process beside tuttid that starts worker processes for it.
 *
 * tuttid gives up, once it has started, the right to start programs (confine.h). But a worker that has ended
 * must be started anew. So before it has threads and before it is confined, tuttid forks this one: it has one
 * thread, no memory and no descriptor of a client, and knows three things: to start the one program that it
 * was made for, to kill what it has started, and to say how that ended. It ends when tuttid's end of its
 * socket closes, and its children with it (PR_SET_PDEATHSIG); they ignore the signals that are meant for
 * tuttid, which a terminal and a service manager send to all.
 *
 * Owned by daemon.c, used by worker.c; loop thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/check.h"

struct nursery;

/* Forks it, while there is one thread alone. `program`: what it starts, found by its path. 0 or negative
 * errno. */
int nursery_new(struct nursery **ret, const char *program) MUST_USE;
/* It has nothing more to do: it ends, and what it has started with it, which its socket shows. */
void nursery_dismiss(struct nursery *n);
/* Waits until it has ended. */
void nursery_free(struct nursery *n);

/* Readable when there is news. */
int nursery_socket(const struct nursery *n);

/* Asks for a worker; news says which. Its end of a SOCK_SEQPACKET pair is its descriptor 3. 0 or negative
 * errno. */
int nursery_spawn(struct nursery *n) MUST_USE;
/* SIGKILL; harmless when it has ended. */
void nursery_kill(struct nursery *n, pid_t pid);

struct nursery_news {
        pid_t pid; /* 0: it could not be started */
        bool has_ended;
        int socket; /* it was started: our end, the caller's from now on; else -1 */
        int error;  /* it could not be started: errno */
        int status; /* it has ended: as waitpid tells */
};

/* 1: news; 0: the nursery itself has ended; -EAGAIN: nothing; or another negative errno. */
int nursery_take(struct nursery *n, struct nursery_news *ret) MUST_USE;
