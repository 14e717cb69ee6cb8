/* Processes of diag: forked, told by memory that they share, waited for. */
#include "diag.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define PATIENCE_S 60.0 /* of a join or a collective */
#define MAX_FORKED 16

void *diag_shared(size_t n_bytes) {
        void *memory =
                mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

        return memory == MAP_FAILED ? NULL : memory;
}

void diag_unshare(void *memory, size_t n_bytes) {
        if (memory)
                munmap(memory, n_bytes);
}

/* In the forked process, which ends here. */
static void be_replica(
        const struct diag *d, struct diag_replica *me, void (*body)(struct diag_replica *me), char why[256]) {
        char job[64];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(job, sizeof(job), "tuttictl-diag-%ld", (long)getppid());
        const struct tutti_join_args join = TUTTI_JOIN(.job = job, .group = "loopback",
                .rank = (int32_t)me->rank, .world_size = (int32_t)me->n, .join_timeout = PATIENCE_S,
                .default_timeout = PATIENCE_S, .secret = "", .brief_record = 1);
        if (tutti_open(d->socket, &me->t) != TUTTI_OK || tutti_join(me->t, &join, &me->g) != TUTTI_OK) {
                snprintf(why, 256, "%s", tutti_error());
                _exit(1);
        }
        body(me);
        tutti_close(me->t);
        _exit(0);
}

static void kill_all(const pid_t *pids, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                if (pids[i] > 0)
                        kill(pids[i], SIGKILL);
}

static void describe_end(uint32_t rank, int status, const char *words, struct line *why) {
        if (words[0])
                line_add_safe(why, words);
        else
                line_add(why, "replica %u ended with %s %d", rank,
                        WIFSIGNALED(status) ? "signal" : "exit code",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* In the order in which they end: what the first that failed has to say is *why, and the others, who would
 * wait for it, end with it. */
static int wait_for_all(pid_t *pids, uint32_t n, char (*words)[256], struct line *why) {
        int r = 0, status;

        for (uint32_t n_left = n; n_left > 0;) {
                pid_t pid = waitpid(-1, &status, 0);
                if (pid < 0 && errno != EINTR)
                        return -1;
                for (uint32_t i = 0; pid > 0 && i < n; i++) {
                        if (pids[i] != pid)
                                continue;
                        n_left--;
                        pids[i] = 0;
                        if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || r < 0)
                                continue;
                        r = -1;
                        describe_end(i, status, words[i], why);
                        kill_all(pids, n);
                }
        }
        return r;
}

int diag_run_replicas(const struct diag *d, uint32_t n, void (*body)(struct diag_replica *me), void *shared,
        struct line *why) {
        pid_t pids[MAX_FORKED];
        uint32_t n_forked = 0;
        char(*words)[256] = n <= MAX_FORKED ? diag_shared(MAX_FORKED * sizeof(*words)) : NULL;

        if (!words) {
                line_add(why, "memory is short");
                return -1;
        }
        fflush(NULL);
        for (; n_forked < n; n_forked++) {
                struct diag_replica me = { .rank = n_forked, .n = n, .shared = shared };
                pids[n_forked] = fork();
                if (pids[n_forked] == 0)
                        be_replica(d, &me, body, words[n_forked]);
                if (pids[n_forked] < 0)
                        break;
        }
        if (n_forked < n) {
                line_add(why, "cannot fork: %s", strerror(errno));
                kill_all(pids, n_forked);
        }
        struct line later = { 0 };
        int r = wait_for_all(pids, n_forked, words, n_forked < n ? &later : why);
        diag_unshare(words, MAX_FORKED * sizeof(*words));
        return n_forked < n ? -1 : r;
}
