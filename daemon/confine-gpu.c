#include "confine.h"

#include <errno.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(char why[CONFINE_WHY_BYTES], const char *problem) {
        snprintf(why, CONFINE_WHY_BYTES, "unconfined: %s%s%s", problem, errno ? ": " : "",
                errno ? strerror(errno) : "");
}

/* A Landlock domain that handles execution, with no rule that allows any. That nothing is executed is also
 * the filter's; what counts is the domain itself: whoever is in one can neither trace a process outside of it
 * nor open its /proc/PID/mem, which a filter, blind to paths, cannot tell from the files that the driver
 * needs. */
void confine_from_others(enum confine wanted, char why[CONFINE_WHY_BYTES]) {
        const struct landlock_ruleset_attr rules = { .handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE };
        why[0] = '\0';
        if (wanted == CONFINE_NO)
                return; /* which the other step says */
        errno = 0;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
                say(why, "no_new_privs is denied");
                return;
        }
        int domain = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
        if (domain < 0 || syscall(SYS_landlock_restrict_self, domain, 0) < 0)
                say(why, "the kernel has no Landlock, so other processes of this user can be traced");
        if (domain >= 0)
                close(domain);
}

void confine_gpu(enum confine wanted, char why[CONFINE_WHY_BYTES]) {
        why[0] = '\0';
        errno = 0;
        if (wanted == CONFINE_NO) {
                say(why, "daemon.confine is no");
                return;
        }
        const char *problem = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? "no_new_privs is denied"
                                                                         : confine_load_gpu_filter();
        if (problem)
                say(why, problem);
}
