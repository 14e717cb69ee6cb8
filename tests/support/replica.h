/* Replicas as processes of their own, scripted step by step by the test.
 *
 *     static void body(struct replica *me) {               (in the forked process)
 *             struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
 *             replica_hear(me, "go");
 *             ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
 *             replica_say(me, "done");
 *     }
 *
 *     struct replica *r = replica_spawn(h, &(struct replica_options){ .rank = 0, .n = 1, .body = body });
 *     replica_tell(r, "go");
 *     replica_expect(r, "done", 1);
 *     ck_assert_int_eq(replica_end(r, 5), 0);
 *
 * A failed assertion in a replica ends it with exit code 1; its text reaches the test, which fails with it as
 * soon as it waits for that replica. */
#pragma once

#include <stdint.h>
#include <sys/types.h>
#include <tutti/tutti.h>
#include "host.h"

struct replica {
        uint32_t rank, n;
        const char *socket;
        void *arg;
        pid_t pid;
        struct tutti
                *t; /* in the replica: the connection, closed when the body returns; may be set by hand */
        int control;
        char *failure; /* shared: the text of its first failed assertion */
        char heard[1024];
        struct replica *next;
};

struct replica_options {
        uint32_t rank, n; /* of how many */
        void (*body)(struct replica *me);
        const char *socket; /* NULL: that of the host */
        void *arg; /* for the body; what it writes is seen by the test only in memory that is shared */
};

/* --- in the test --- */

struct replica *replica_spawn(struct host *h, const struct replica_options *options);
/* ret[0] .. ret[n - 1] are the ranks. */
void replicas_spawn(
        struct host *h, uint32_t n, void (*body)(struct replica *me), void *arg, struct replica **ret);

void replica_tell(struct replica *r, const char *text);
/* The next thing it says, within `seconds` (scaled); good until the next call. */
const char *replica_listen(struct replica *r, double seconds);
/* ... which must be `text`. */
void replica_expect(struct replica *r, const char *text, double seconds);

void replica_signal(struct replica *r, int signal);

/* Waits for its end, and frees. Its exit code, or 128 + signal; fails the test when it has not ended in time,
 * or with the text of a failed assertion. */
int replica_end(struct replica *r, double seconds);
/* SIGKILL, waits, frees. */
void replica_kill9(struct replica *r);

/* Runs `body` in n replicas; every one must end with 0 within half a minute (scaled). */
void run_replicas(struct host *h, uint32_t n, void (*body)(struct replica *me), void *arg);

/* --- in the replica --- */

/* Connects, once. */
struct tutti *replica_open(struct replica *me);
/* The same, to go on with the next tuttid within so many seconds. */
struct tutti *replica_open_again(struct replica *me, double reconnect);
/* Connects and joins: job "test", rank and world size as spawned, where `args` does not say otherwise. */
struct tutti_group *replica_join_group(struct replica *me, const struct tutti_join_args *args);

void replica_say(struct replica *me, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next thing the test tells. */
const char *replica_hear_any(struct replica *me);
void replica_hear(struct replica *me, const char *text);
