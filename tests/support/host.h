/* A real tuttid in a directory of its own, for tests that want one.
 *
 *     struct host *h = host_start(NULL);
 *     run_replicas(h, 4, body, NULL);           (replica.h)
 *     host_expect_counters_zero(h);
 *     host_stop(h);
 *
 * Everything here fails the test when it cannot do what it says, with what tuttid has logged. When the test
 * fails elsewhere, the log is printed too, and tuttid ends with the test. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct host;

/* Starts tuttid with `--socket DIRECTORY/tuttid.sock` and `args` (NULL: none; ends with NULL), and returns
 * when it serves. */
struct host *host_start(const char *const *args);

/* Starts it again, in the same directory with the same arguments, after host_kill9 or host_end. */
void host_start_again(struct host *h);

const char *host_directory(const struct host *h);
const char *host_socket(const struct host *h);
pid_t host_pid(const struct host *h);
/* From the start of the process until it served. */
double host_start_seconds(const struct host *h);

/* What it has written on stderr so far; good until the next call. */
const char *host_log(struct host *h);

struct host_quota {
        uint32_t uid;
        char name[32];
        uint64_t used;
};

#define HOST_MAX_QUOTAS 64

/* As tuttid tells it. The session that asks is not counted. */
struct host_counters {
        uint32_t n_sessions, n_groups;
        uint64_t mapped_bytes, n_buffers, n_pending, n_ejected, n_collectives;
        uint64_t n_prepared, n_started, n_replayed, n_on_lane, n_passed, n_assisted, n_rings, n_regrets;
        uint32_t n_quotas;
        struct host_quota quotas[HOST_MAX_QUOTAS];
};

void host_counters(struct host *h, struct host_counters *ret);

/* How many descriptors it has open. */
int host_n_descriptors(const struct host *h);

/* Everything is given back within two seconds (scaled): no session, group, buffer, mapped byte, pending
 * submission, and each charge as low as after the start. The flight recorder may keep its bytes. */
void host_expect_counters_zero(struct host *h);

/* Whether that many other sessions are there, within two seconds. */
void host_expect_sessions(struct host *h, uint32_t n);

/* Ends it by SIGTERM: exit code 0 within five seconds, nothing left in its directory but socket and lock,
 * nothing that a sanitizer has found. */
void host_end(struct host *h);
void host_kill9(struct host *h);

/* host_end, unless it has ended already, and frees. */
void host_stop(struct host *h);
