/* Where scrapers ask: a loopback address or a Unix socket, never a network's. */
#pragma once

#include <stdint.h>

#define SERVE_WHY_BYTES 256

/* "127.0.0.1:9479", "[::1]:9479" (port 0: any), "unix:/path" (made 0660; one that nobody listens on is
 * replaced), or what a service manager passes on (LISTEN_FDS) in whose place `where` is NULL. Returns a
 * listening socket, or a negative errno with a sentence. */
int serve_listen(const char *where, char why[SERVE_WHY_BYTES]);
/* As a scraper would be told: "http://127.0.0.1:9479/metrics". Returns `buf`. */
const char *serve_describe(int fd, char *buf, uint32_t size);
