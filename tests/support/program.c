#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "unit.h"

extern char **environ;

static const char *path_of(const char *variable, const char *built) {
        const char *path = getenv(variable);
        return path && *path ? path : built;
}

const char *program_tuttid(void) {
        return path_of("TUTTI_DAEMON", BUILT_TUTTID);
}

const char *program_tuttictl(void) {
        return path_of("TUTTI_CTL", BUILT_TUTTICTL);
}

pid_t program_spawn(const char *const *argv, int out_fd, int err_fd) {
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid)
                return pid;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int in_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(in_fd, STDIN_FILENO);
        dup2(out_fd, STDOUT_FILENO);
        dup2(err_fd, STDERR_FILENO);
        /* Check's own descriptors are none of the program's business. */
        close_range(STDERR_FILENO + 1, ~0U, 0);
        execve(argv[0], (char *const *)argv, environ);
        dprintf(STDERR_FILENO, "cannot run %s: %m\n", argv[0]);
        _exit(127);
}

int program_wait(pid_t pid, double seconds) {
        int status, fd = pidfd_open(pid, 0);
        ck_assert_msg(fd >= 0, "pidfd_open(%d): %m", pid);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int n = poll(&p, 1, (int)(seconds * unit_scale() * 1000));
        close(fd);
        if (n <= 0)
                return -1;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

char *program_read_all(int fd) {
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        char *text = malloc((size_t)st.st_size + 1);
        ck_assert_ptr_nonnull(text);
        ssize_t n = pread(fd, text, (size_t)st.st_size, 0);
        ck_assert_int_ge(n, 0);
        text[n] = '\0';
        return text;
}

void program_run(const char *const *argv, double seconds, struct program *ret) {
        int out_fd = memfd_create("stdout", MFD_CLOEXEC), err_fd = memfd_create("stderr", MFD_CLOEXEC);
        ck_assert(out_fd >= 0 && err_fd >= 0);
        pid_t pid = program_spawn(argv, out_fd, err_fd);
        ret->code = program_wait(pid, seconds);
        ret->out = program_read_all(out_fd);
        ret->err = program_read_all(err_fd);
        close(out_fd);
        close(err_fd);
        if (ret->code >= 0)
                return;
        kill(pid, SIGKILL);
        ck_abort_msg("%s has not ended after %g s; stdout: %s\nstderr: %s", argv[0], seconds * unit_scale(),
                ret->out, ret->err);
}

void program_deinit(struct program *p) {
        free(p->out);
        free(p->err);
        *p = (struct program){ 0 };
}
