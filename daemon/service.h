/* Where tuttid speaks with the service manager: what systemd passed on, asks for, keeps, and is told.
 *
 * The protocols are systemd's documented, stable ones (sd_notify(3), sd_listen_fds(3),
 * sd_watchdog_enabled(3)), spoken over one socket that is opened at the start, since a tuttid that has
 * confined itself makes no sockets any more. Where nobody asked (no $NOTIFY_SOCKET), nothing is sent and
 * nothing ticks. Owned by daemon.c; loop thread. Never touches a client. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

/* In one message: what the kernel lets it carry is 253. */
#define SERVICE_MAX_CONNECTIONS 128

struct service;

/* Reads the environment, and clears what is meant for this process alone. Descriptors that were passed on are
 * closed by service_free unless taken. 0 or -ENOMEM: what the manager said wrongly is logged, and ignored. */
int service_new(struct service **ret) MUST_USE;
void service_free(struct service *s);

/* A manager listens. */
bool service_is_managed(const struct service *s);
/* How often it wants a sign of life at least; 0: it does not. */
uint64_t service_watchdog_ns(const struct service *s);

/* The listening packet socket that was passed on and is bound to `path`, which is the caller's from here on;
 * -ENOENT: none was passed on; -EINVAL: those that were are not for this path, as said in `why`. */
int service_take_socket(struct service *s, const char *path, char *why, size_t why_bytes) MUST_USE;

/* Sends lines "NAME=value\n..." (sd_notify(3)). Whoever does not listen is no error. */
void service_tell(struct service *s, const char *format, ...) PRINTF_LIKE(2, 3);
/* Gives the manager a copy of `fd` to hand to whoever is started after us. */
void service_keep(struct service *s, int fd);

/* --- connections of clients, from one tuttid to the next --- */

/* Makes those that the tuttid before has left ours alone: the manager lets go of them, so that they end with
 * us when we are killed; where it does not within half a second, they end now. What is no connection to
 * `path` is closed. The log says so. Before tuttid confines itself. */
void service_claim_connections(struct service *s, const char *path);
/* The next of them, which is the caller's from here on; -1: there are no more. */
int service_take_connection(struct service *s);
/* Gives the manager copies of up to SERVICE_MAX_CONNECTIONS connections for whoever is started after us.
 * false: it does not take them within a tenth of a second. One whose client goes it drops by itself. */
bool service_keep_connections(struct service *s, const int *sockets, uint32_t n) MUST_USE;
