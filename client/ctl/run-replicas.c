#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ctl.h"

#define SWEEP_NS UINT64_C(5000000000)

/* What a replica gets as 0, 1, 2. -1: what the launcher has. */
struct endpoints {
        int in, out, err;
};

void describe_end(char *buf, size_t size, int wait_status) {
        int signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
        const char *name = signal ? sigabbrev_np(signal) : NULL;

        if (!signal)
                snprintf(buf, size, "exit code %d", WEXITSTATUS(wait_status));
        else
                snprintf(buf, size, "signal %d (%s%s)", signal, name ? "SIG" : "?", name ? name : "");
}

static int exit_code_of(int wait_status) {
        return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static int set_environment(const struct launch *l, uint32_t rank) {
        char number[16];

        snprintf(number, sizeof(number), "%u", rank);
        if (setenv("TUTTI_RANK", number, 1) < 0)
                return -errno;
        snprintf(number, sizeof(number), "%u", l->options->n);
        if (setenv("TUTTI_WORLD_SIZE", number, 1) < 0 || setenv("TUTTI_JOB", l->job, 1) < 0 ||
                setenv("TUTTI_SOCKET", l->socket, 1) < 0)
                return -errno;
        return 0;
}

static int put_at(int fd, int place) {
        return fd < 0 || dup2(fd, place) >= 0 ? 0 : -errno;
}

/* In the child. Returns only on failure, with -errno. */
static int become_replica(
        const struct launch *l, uint32_t rank, const struct endpoints *ends, pid_t launcher) {
        int r = 0;

        if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return -errno;
        if (getppid() != launcher)
                raise(SIGKILL);
        if ((r = put_at(ends->in, 0)) < 0 || (r = put_at(ends->out, 1)) < 0 ||
                (r = put_at(ends->err, 2)) < 0 || (r = set_environment(l, rank)) < 0)
                return r;
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
        execvp(l->options->program[0], l->options->program);
        return -errno;
}

/* The pipe closes by itself when exec succeeds; else the child's errno comes through it. */
static int fork_replica(struct launch *l, uint32_t rank, const struct endpoints *ends) {
        pid_t launcher = getpid(), pid;
        int report[2], r = 0;

        if (pipe2(report, O_CLOEXEC) < 0)
                return -errno;
        pid = fork();
        if (pid == 0) {
                r = become_replica(l, rank, ends, launcher);
                _exit(write(report[1], &r, sizeof(r)) == sizeof(r) ? 127 : 126);
        }
        close(report[1]);
        if (pid < 0)
                r = -errno;
        else if (read(report[0], &r, sizeof(r)) != sizeof(r))
                r = 0;
        close(report[0]);
        if (pid > 0 && r < 0)
                waitpid(pid, NULL, 0);
        if (pid > 0 && r == 0) {
                l->replicas[rank].pid = pid;
                l->n_started++;
                l->n_alive++;
        }
        return r;
}

static bool has_own_pipe(const struct launch *l, uint32_t rank, const struct sink *sink) {
        switch (l->options->prefix) {
        case PREFIX_NONE: return false;
        case PREFIX_ALL: return true;
        case PREFIX_AUTO:
                /* Rank 0 keeps a terminal, so that it sees one. Into a file or pipe its lines go through us,
                 * so that they stay whole among those of the others. */
                return l->options->n > 1 && !(rank == 0 && isatty(sink->fd));
        }
        return false;
}

/* Opens the pipe of one output; *ret is the replica's end or -1. */
static int open_output(struct launch *l, uint32_t rank, struct stream *s, struct sink *sink, int *ret) {
        char label[16] = "";
        int ends[2], r;

        *ret = -1;
        if (!has_own_pipe(l, rank, sink))
                return 0;
        if (rank > 0 || l->options->prefix == PREFIX_ALL)
                snprintf(label, sizeof(label), "R%u | ", rank);
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        r = stream_open(s, ends[0], sink, label);
        if (r < 0)
                close(ends[1]);
        else
                *ret = ends[1];
        return r;
}

/* Rank 0 reads what the launcher was given, unless that is the terminal: a background process group that
 * reads from a terminal is stopped. */
static int open_input(uint32_t rank) {
        return rank == 0 && !isatty(0) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int start_replica(struct launch *l, uint32_t rank) {
        struct endpoints ends = { .in = open_input(rank), .out = -1, .err = -1 };
        int r = open_output(l, rank, &l->streams[2 * rank], &l->out, &ends.out);

        if (r == 0)
                r = open_output(l, rank, &l->streams[2 * rank + 1], &l->err, &ends.err);
        if (r == 0)
                r = fork_replica(l, rank, &ends);
        if (ends.in >= 0)
                close(ends.in);
        if (ends.out >= 0)
                close(ends.out);
        if (ends.err >= 0)
                close(ends.err);
        return r;
}

int replicas_start(struct launch *l) {
        for (uint32_t rank = 0; rank < l->options->n; rank++) {
                int r = start_replica(l, rank);

                if (r == 0)
                        continue;
                launch_say(l, "tuttictl run: cannot start %s as R%u: %s.", l->options->program[0], rank,
                        strerror(-r));
                l->exit_code = r == -ENOENT ? 127 : 126;
                replicas_end(l);
                return l->exit_code;
        }
        return 0;
}

void replicas_signal(struct launch *l, int signal) {
        for (uint32_t i = 0; i < l->n_started; i++)
                if (!l->replicas[i].is_over)
                        killpg(l->replicas[i].pid, signal);
}

void replicas_end(struct launch *l) {
        if (l->is_ending || !l->n_alive)
                return;
        l->is_ending = true;
        l->kill_at_ns = monotonic_ns() + l->options->grace_ns;
        replicas_signal(l, SIGTERM);
        replicas_signal(l, SIGCONT); /* a stopped one could not hear it */
}

static struct replica *find_replica(struct launch *l, pid_t pid) {
        for (uint32_t i = 0; i < l->n_started; i++)
                if (l->replicas[i].pid == pid && !l->replicas[i].is_over)
                        return &l->replicas[i];
        return NULL;
}

static void take_replica_end(struct launch *l, struct replica *r, int wait_status) {
        r->is_over = true;
        r->wait_status = wait_status;
        l->n_alive--;
}

static void take_tuttid_end(struct launch *l, int wait_status) {
        char how[64];

        describe_end(how, sizeof(how), wait_status);
        if (l->tuttid.stdin_fd >= 0)
                launch_say(l, "tuttictl: tuttid (pid %d) ended with %s.", (int)l->tuttid.pid, how);
        l->tuttid.pid = 0;
        l->tuttid.wait_status = wait_status;
}

/* Of several that failed since the last look, one that was killed is rather the cause than one that gave up.
 */
static struct replica *choose_cause(struct launch *l, struct replica *a, struct replica *b) {
        if (!a || (!WIFSIGNALED(a->wait_status) && WIFSIGNALED(b->wait_status)))
                return b;
        return a;
}

static void say_failure(struct launch *l, const struct replica *r) {
        char how[64];

        describe_end(how, sizeof(how), r->wait_status);
        launch_say(l, "tuttictl: R%u (pid %d) ended with %s%s", (unsigned int)(r - l->replicas), (int)r->pid,
                how, l->n_alive ? "; ending the others." : ".");
}

void replicas_reap(struct launch *l) {
        struct replica *cause = NULL, *r;
        siginfo_t info = { 0 };
        int wait_status;

        /* Not reaped yet, a leader keeps the number of its group: what is left in the group can be killed
         * safely. */
        while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
                r = find_replica(l, info.si_pid);
                if (r)
                        killpg(r->pid, SIGKILL);
                waitpid(info.si_pid, &wait_status, 0);
                if (r)
                        take_replica_end(l, r, wait_status);
                else if (info.si_pid == l->tuttid.pid)
                        take_tuttid_end(l, wait_status);
                if (r && wait_status != 0)
                        cause = choose_cause(l, cause, r);
                info.si_pid = 0;
        }
        if (!cause || l->exit_code)
                return;
        l->exit_code = exit_code_of(cause->wait_status);
        say_failure(l, cause);
        replicas_end(l);
}

static void read_name(const char *path, char *ret, size_t size) {
        FILE *f = fopen(path, "re");

        if (!f || !fgets(ret, (int)size, f))
                snprintf(ret, size, "?");
        ret[strcspn(ret, "\n")] = '\0';
        if (f)
                fclose(f);
}

/* The next child of this process but tuttid; 0: there is none, or they cannot be listed. */
static pid_t next_child(const struct launch *l, FILE *children) {
        int pid;

        while (children && fscanf(children, "%d", &pid) == 1)
                if (pid != l->tuttid.pid)
                        return pid;
        return 0;
}

/* Whether there was one. */
static bool kill_adopted(const struct launch *l) {
        FILE *f = fopen("/proc/thread-self/children", "re");
        bool any = false;
        pid_t pid;

        while ((pid = next_child(l, f))) {
                kill(pid, SIGKILL);
                any = true;
        }
        if (f)
                fclose(f);
        return any;
}

/* One that has become somebody else's, or hangs in the kernel. */
static void say_left(struct launch *l) {
        FILE *f = fopen("/proc/thread-self/children", "re");
        char path[32], name[32];
        pid_t pid;

        while ((pid = next_child(l, f))) {
                snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
                read_name(path, name, sizeof(name));
                launch_say(l, "tuttictl run: pid %d (%s), which a replica has left behind, stays: %s.",
                        (int)pid, name,
                        kill(pid, SIGKILL) < 0 ? strerror(errno) : "SIGKILL has not ended it");
        }
        if (f)
                fclose(f);
}

void replicas_sweep(struct launch *l) {
        uint64_t began_ns = monotonic_ns();

        /* The children of what is killed are adopted in turn. */
        while (kill_adopted(l)) {
                if (monotonic_ns() - began_ns > SWEEP_NS || l->told_ns > began_ns) {
                        say_left(l);
                        return;
                }
                launch_turn(l, 10);
        }
}
