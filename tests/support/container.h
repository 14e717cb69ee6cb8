/* Parts of a container, for processes of a test: namespaces of its own, a small /dev/shm, a host that denies
 * system calls. What this host does not let us make is skipped by name, with the reason. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "replica.h"

/* Skips the test where namespaces cannot be made. In the process of the test itself. */
void container_need(void);

/* This process gets its own user and mount namespace (its uid stays), with a /dev/shm of `n_bytes`. */
void container_own_shm(size_t n_bytes);

/* In a replica: runs `body` as process 1 of a new container: user, pid, ipc, mount and net namespaces of its
 * own, a /dev/shm of 1 MiB, and of the host's files the socket's directory read-only. What becomes of the
 * body becomes of the replica. */
void container_run(struct replica *me, void (*body)(struct replica *me));

/* One system call that fails with `error`; with `flag` not 0 only where argument `index` has that flag. */
struct denied_call {
        int call, error;
        unsigned int index;
        uint32_t flag;
};

/* From here on this process and its children live under a filter that denies these (all else is allowed), and
 * gain no privileges. Skips the test where the kernel takes no filter. */
void deny_calls(const struct denied_call *calls, size_t n);
/* No capabilities any more, not even by running programs as root. */
void drop_capabilities(void);
