#include "manager.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "meeting.h"
#include "program.h"
#include "unit.h"

#define MAX_ARGS    16
#define END_SECONDS 10

struct manager {
        pid_t pid;
        int notify, kept, log_fd;
        char notify_path[108], socket[108], heard[2048], *log;
};

static void address_of(const char *path, struct sockaddr_un *ret) {
        *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
        ck_assert_uint_lt(strlen(path), sizeof(ret->sun_path));
        memcpy(ret->sun_path, path, strlen(path));
}

static int bind_at(const char *path, int type) {
        struct sockaddr_un address;
        address_of(path, &address);
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        ck_assert_msg(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "%s: %m", path);
        return fd;
}

struct manager *manager_new(void) {
        struct manager *m = calloc(1, sizeof(*m));
        ck_assert_ptr_nonnull(m);
        snprintf(m->notify_path, sizeof(m->notify_path), "%s/notify", unit_directory());
        snprintf(m->socket, sizeof(m->socket), "%s/tuttid.sock", unit_directory());
        m->notify = bind_at(m->notify_path, SOCK_DGRAM);
        m->log_fd = open(unit_directory(), O_RDWR | O_APPEND | O_TMPFILE | O_CLOEXEC, 0600);
        ck_assert_msg(m->log_fd >= 0, "log in %s: %m", unit_directory());
        m->kept = -1;
        return m;
}

void manager_free(struct manager *m) {
        if (m->pid)
                manager_end(m, SIGKILL);
        if (m->kept >= 0)
                close(m->kept);
        close(m->notify);
        close(m->log_fd);
        free(m->log);
        free(m);
}

const char *manager_socket(const struct manager *m) {
        return m->socket;
}

int manager_listen(const struct manager *m) {
        int fd = bind_at(m->socket, SOCK_SEQPACKET);
        ck_assert_int_eq(listen(fd, 1024), 0);
        return fd;
}

static void set_number(const char *name, unsigned long long value) {
        char text[32];
        snprintf(text, sizeof(text), "%llu", value);
        setenv(name, text, 1);
}

static void set_journal(int fd) {
        char stream[64];
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
        setenv("JOURNAL_STREAM", stream, 1);
}

static _Noreturn void become(
        const struct manager *m, const struct manager_start *start, const char *const *argv) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("NOTIFY_SOCKET", m->notify_path, 1);
        if (start->watchdog_ms) {
                set_number("WATCHDOG_USEC", start->watchdog_ms * 1000ull);
                set_number("WATCHDOG_PID", (unsigned long long)getpid());
        }
        if (start->is_journal)
                set_journal(m->log_fd);
        int in_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(in_fd, STDIN_FILENO);
        dup2(m->log_fd, STDOUT_FILENO);
        dup2(m->log_fd, STDERR_FILENO);
        if (start->passed_on) {
                set_number("LISTEN_PID", (unsigned long long)getpid());
                set_number("LISTEN_FDS", 1);
                if (start->passed_on == STDERR_FILENO + 1)
                        fcntl(start->passed_on, F_SETFD, 0);
                else
                        dup2(start->passed_on, STDERR_FILENO + 1);
        }
        close_range(STDERR_FILENO + (start->passed_on ? 2u : 1u), ~0U, 0);
        execv(argv[0], (char *const *)argv);
        _exit(127);
}

void manager_start(struct manager *m, const struct manager_start *start) {
        const char *argv[MAX_ARGS + 4] = { program_tuttid(), "--socket", m->socket };
        for (int i = 0; start->args && start->args[i]; i++) {
                ck_assert_int_lt(i, MAX_ARGS);
                argv[3 + i] = start->args[i];
        }
        ck_assert_int_eq(m->pid, 0);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
                become(m, start, argv);
        m->pid = pid;
}

pid_t manager_pid(const struct manager *m) {
        return m->pid;
}

/* A socket that comes with the message is kept. */
static void receive(struct manager *m) {
        char control[CMSG_SPACE(sizeof(int))];
        struct iovec iov = { .iov_base = m->heard, .iov_len = sizeof(m->heard) - 1 };
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
        };
        ssize_t n = recvmsg(m->notify, &msg, MSG_CMSG_CLOEXEC);
        ck_assert_int_ge(n, 0);
        m->heard[n] = '\0';
        const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (!c)
                return;
        ck_assert_msg(strstr(m->heard, "FDSTORE=1") != NULL, "a descriptor with \"%s\"", m->heard);
        if (m->kept >= 0)
                close(m->kept);
        memcpy(&m->kept, CMSG_DATA(c), sizeof(m->kept));
}

static int hear(struct manager *m, double until) {
        struct pollfd p = { .fd = m->notify, .events = POLLIN };
        double left = until - seconds_now();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
                return 0;
        receive(m);
        return 1;
}

const char *manager_expect(struct manager *m, const char *part, double seconds) {
        double until = seconds_now() + seconds * unit_scale();
        while (hear(m, until))
                if (strstr(m->heard, part))
                        return m->heard;
        ck_abort_msg("tuttid did not tell %s; it logged:\n%s", part, manager_log(m));
}

unsigned int manager_count(struct manager *m, const char *part, double seconds) {
        unsigned int n = 0;
        double until = seconds_now() + seconds;
        while (hear(m, until))
                n += strstr(m->heard, part) != NULL;
        return n;
}

int manager_kept(const struct manager *m) {
        return m->kept;
}

const char *manager_log(struct manager *m) {
        free(m->log);
        m->log = program_read_all(m->log_fd);
        return m->log;
}

int manager_wait(struct manager *m) {
        int code = program_wait(m->pid, END_SECONDS);
        ck_assert_msg(code >= 0, "tuttid has not ended:\n%s", manager_log(m));
        m->pid = 0;
        return code;
}

int manager_end(struct manager *m, int signal) {
        ck_assert_int_eq(kill(m->pid, signal), 0);
        return manager_wait(m);
}
