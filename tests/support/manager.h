/* A service manager for tuttid, as far as tests need one: hears what it is told, passes sockets on, keeps
 * those that it is given. The connections of clients that it keeps go to each tuttid that it starts, and stay
 * until it is told to let go of them or their clients are gone, as systemd has it. Everything fails the test
 * when it cannot do what it says. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct manager;

struct manager *manager_new(void);
/* Kills what still runs. */
void manager_free(struct manager *m);

/* The path at which tuttid is to serve. */
const char *manager_socket(const struct manager *m);
/* A listening packet socket at that path (as a socket unit makes it), which the caller closes. */
int manager_listen(const struct manager *m);

struct manager_start {
        const char *const *args; /* further ones of tuttid, ends with NULL; or NULL */
        int passed_on;           /* a socket to pass on, or 0 */
        uint32_t watchdog_ms;    /* 0: none */
        bool is_journal;         /* its stderr is said to be read by the journal */
};

/* Starts tuttid, and has heard what it was told before; does not wait for anything. */
void manager_start(struct manager *m, const struct manager_start *start);
pid_t manager_pid(const struct manager *m);

/* One with a tuttid that serves. */
struct manager *manager_begin(void);
/* Starts the next one at the socket that it was given to keep, and waits until it serves. */
void manager_go_on(struct manager *m, const char *const *args);
/* Ends tuttid in order; so many connections are kept. */
void manager_stop(struct manager *m, uint32_t n_kept);
/* Ends tuttid in order, and frees. */
void manager_finish(struct manager *m);

/* The next message in which `part` stands, within `seconds` (scaled); others are passed over. Good until the
 * next call. */
const char *manager_expect(struct manager *m, const char *part, double seconds);
/* How many messages with `part` come within so many seconds (not scaled). */
unsigned int manager_count(struct manager *m, const char *part, double seconds);

/* The last socket to listen at that it was given to keep; -1: none. */
int manager_kept(const struct manager *m);

/* How many connections it keeps, as it has been told so far. */
uint32_t manager_n_connections(struct manager *m);
/* The service was stopped: nothing is kept. */
void manager_drop_connections(struct manager *m);
/* Keeps a copy of this one as a connection. */
void manager_keep_connection(struct manager *m, int fd);
/* Nothing more can be told until something is heard. */
void manager_stuff(const struct manager *m);

/* What tuttid has logged; good until the next call. */
const char *manager_log(struct manager *m);

/* Sends it `signal` and waits for its end; its exit code, or 128 + signal. */
int manager_end(struct manager *m, int signal);
/* Waits for its end. */
int manager_wait(struct manager *m);
