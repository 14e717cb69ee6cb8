#include "descriptors.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
#include "unit.h"

static struct rlimit before;

static bool is_open(pid_t pid, unsigned int fd) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/fd/%u", (int)pid, fd);
        return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The kernel gives the lowest number that is free, below the limit. */
void descriptors_run_out(pid_t pid, unsigned int n) {
        unsigned int limit = 0;
        for (unsigned int n_free = 0; n_free < n || is_open(pid, limit); limit++)
                n_free += !is_open(pid, limit);
        ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
        const struct rlimit few = { limit, before.rlim_max };
        ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, &few, NULL), 0);
}

void descriptors_are_back(pid_t pid) {
        ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, &before, NULL), 0);
}
