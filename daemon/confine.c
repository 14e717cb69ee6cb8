#include "confine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

void confine(enum confine wanted, char why[CONFINE_WHY_BYTES]) {
        why[0] = '\0';
        if (wanted == CONFINE_NO) {
                snprintf(why, CONFINE_WHY_BYTES, "unconfined: daemon.confine is no");
                return;
        }
        errno = 0;
        const char *problem =
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? "no_new_privs is denied" : confine_load_filter();
        if (problem)
                snprintf(why, CONFINE_WHY_BYTES, "unconfined: %s%s%s", problem, errno ? ": " : "",
                        errno ? strerror(errno) : "");
}
