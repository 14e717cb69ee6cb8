/* Descriptors: close-on-exec at birth, -1 when empty, closed by their scope. */
#pragma once

#include "base/cleanup.h"

/* Closes `*fd` unless it is -1, and sets it to -1. Keeps errno. */
void fd_close(int *fd);

/* Moves a descriptor out of `*fd`, which becomes -1. */
static inline int fd_take(int *fd) {
        int r = *fd;
        *fd = -1;
        return r;
}

#define CLEANUP_FD CLEANUP(fd_close)

/* 0 or negative errno. */
int fd_set_nonblock(int fd);
