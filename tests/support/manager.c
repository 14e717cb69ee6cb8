#include "manager.h"

#include <errno.h>
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

#define MAX_ARGS        16
#define MAX_CONNECTIONS 300
#define MAX_AT_ONCE     253 /* SCM_MAX_FD */
#define END_SECONDS     10
#define READY_SECONDS   5
#define PASSED_FD       (STDERR_FILENO + 1)

struct manager {
        pid_t pid;
        int notify, kept, log_fd;
        int connections[MAX_CONNECTIONS];
        uint32_t n_connections;
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
        manager_drop_connections(m);
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

static void add_name(char *names, size_t size, const char *name) {
        size_t n = strlen(names);
        snprintf(names + n, size - n, "%s%s", n > 0 ? ":" : "", name);
}

/* In the process that becomes tuttid: first all out of the way, then in their places. Returns how many. */
static unsigned int pass_on(const struct manager *m, int socket) {
        char names[16 * (MAX_CONNECTIONS + 1)] = "";
        int fds[MAX_CONNECTIONS + 1], n = 0;
        const int high = PASSED_FD + MAX_CONNECTIONS + 1;
        if (socket)
                fds[n++] = fcntl(socket, F_DUPFD_CLOEXEC, high);
        for (uint32_t i = 0; i < m->n_connections; i++)
                fds[n++] = fcntl(m->connections[i], F_DUPFD_CLOEXEC, high);
        for (int i = 0; i < n; i++) {
                dup2(fds[i], PASSED_FD + i);
                add_name(names, sizeof(names), i == 0 && socket ? "tuttid" : "connection");
        }
        if (n == 0)
                return 0;
        set_number("LISTEN_PID", (unsigned long long)getpid());
        set_number("LISTEN_FDS", (unsigned long long)n);
        setenv("LISTEN_FDNAMES", names, 1);
        return (unsigned int)n;
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
        close_range(PASSED_FD + pass_on(m, start->passed_on), ~0U, 0);
        execv(argv[0], (char *const *)argv);
        _exit(127);
}

void manager_start(struct manager *m, const struct manager_start *start) {
        (void)manager_n_connections(m); /* as of now */
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

/* --- what it keeps --- */

static void close_connection(struct manager *m, uint32_t i) {
        close(m->connections[i]);
        m->connections[i] = m->connections[--m->n_connections];
}

void manager_drop_connections(struct manager *m) {
        while (m->n_connections > 0)
                close_connection(m, m->n_connections - 1);
}

static void drop_those_whose_client_is_gone(struct manager *m) {
        for (uint32_t i = m->n_connections; i-- > 0;) {
                struct pollfd p = { .fd = m->connections[i] };
                if (poll(&p, 1, 0) > 0)
                        close_connection(m, i);
        }
}

static void keep(struct manager *m, int fd) {
        if (strstr(m->heard, "FDNAME=connection\n")) {
                ck_assert_uint_lt(m->n_connections, MAX_CONNECTIONS);
                m->connections[m->n_connections++] = fd;
                return;
        }
        if (m->kept >= 0)
                close(m->kept);
        m->kept = fd;
}

void manager_keep_connection(struct manager *m, int fd) {
        ck_assert_uint_lt(m->n_connections, MAX_CONNECTIONS);
        m->connections[m->n_connections++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Sockets that come with the message are kept. */
static void receive(struct manager *m) {
        char control[CMSG_SPACE(MAX_AT_ONCE * sizeof(int))] __attribute__((aligned(8)));
        int fds[MAX_AT_ONCE];
        struct iovec iov = { .iov_base = m->heard, .iov_len = sizeof(m->heard) - 1 };
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
        };
        ssize_t n = recvmsg(m->notify, &msg, MSG_CMSG_CLOEXEC);
        ck_assert_int_ge(n, 0);
        m->heard[n] = '\0';
        if (strstr(m->heard, "FDSTOREREMOVE=1\nFDNAME=connection\n"))
                manager_drop_connections(m);
        const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (!c)
                return;
        ck_assert_msg(strstr(m->heard, "FDSTORE=1") != NULL, "a descriptor with \"%s\"", m->heard);
        size_t n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
        for (size_t i = 0; i < n_fds; i++)
                keep(m, fds[i]);
}

/* --- what it hears --- */

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

uint32_t manager_n_connections(struct manager *m) {
        struct pollfd p = { .fd = m->notify, .events = POLLIN };
        while (poll(&p, 1, 0) > 0)
                receive(m);
        drop_those_whose_client_is_gone(m);
        return m->n_connections;
}

/* How many messages of one sender were taken, until one would not be. */
static unsigned int stuff_from(const struct sockaddr_un *address) {
        unsigned int n = 0;
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(connect(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
        while (send(fd, "STUFF=1\n", 8, 0) > 0)
                n++;
        ck_assert_int_eq(errno, EAGAIN);
        close(fd);
        return n;
}

/* A sender has a limit of its own. */
void manager_stuff(const struct manager *m) {
        struct sockaddr_un address;
        address_of(m->notify_path, &address);
        while (stuff_from(&address) > 0)
                ;
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

/* --- all at once --- */

struct manager *manager_begin(void) {
        struct manager *m = manager_new();
        manager_go_on(m, NULL);
        return m;
}

void manager_go_on(struct manager *m, const char *const *args) {
        manager_start(m, &(struct manager_start){ .passed_on = m->kept >= 0 ? m->kept : 0, .args = args });
        manager_expect(m, "READY=1", READY_SECONDS);
}

void manager_stop(struct manager *m, uint32_t n_kept) {
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        ck_assert_uint_eq(manager_n_connections(m), n_kept);
}

void manager_finish(struct manager *m) {
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        manager_free(m);
}
