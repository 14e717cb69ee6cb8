/* What the configuration names, looked for on this host: users, when they are read; the group and the files,
 * when `tuttid --check-config` asks. The parser knows nothing of it.
 *
 * Used by main.c and tests. Reads the host's files and nothing else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "config.h"

/* The users of this host, by getpwnam(3). */
extern const struct user_names host_users;

#define MAX_FINDINGS 4

struct finding {
        bool is_error;  /* tuttid would not start, or would not serve the GPUs; else it serves */
        char text[480]; /* "key = value: what is wrong; what to do" */
};

struct findings {
        struct finding all[MAX_FINDINGS];
        size_t n;
};

/* As the user who calls it sees the host, now. */
void host_look(const struct config *c, struct findings *ret);
