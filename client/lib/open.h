/* The pieces of tutti_open that are used again when tuttid is back. */
#pragma once

#include "base/check.h"
#include "model/error.h"
#include "wire/message.h"

/* A socket that does not block, connected without waiting: 0, or negative errno. `path` fits an address. */
int open_connect_now(const char *path, int *ret) MUST_USE;
/* Whether whoever listens there is to be trusted with our memory. */
enum status open_check_server(int socket, const char *path, struct error *err) MUST_USE;
/* Fills in a hello; returns the descriptor that goes with it, the caller's to close, or -1. */
int open_fill_hello(int socket, struct msg_hello *ret);
