#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#define FIRST_PASSED_FD 3 /* SD_LISTEN_FDS_START */
#define MAX_PASSED      65536
#define KEPT_NAME       "tuttid"
#define CONNECTION_NAME "connection"
#define WAIT_MS         100
#define HEARD_MS        500

struct descriptors {
        int *fds; /* -1 where taken */
        uint32_t n;
};

struct service {
        int notify; /* -1: nobody listens */
        uint64_t watchdog_ns;
        struct descriptors passed, connections;
};

DEFINE_CLEANUP(struct service, service_free)

/* --- what the environment says --- */

/* A whole number, or 0. */
static unsigned long long number_of(const char *name) {
        const char *text = getenv(name);
        char *end;
        if (!text || *text < '0' || *text > '9')
                return 0;
        errno = 0;
        unsigned long long n = strtoull(text, &end, 10);
        return errno || *end ? 0 : n;
}

/* Variables that name a process are for that one alone: ours, not one that inherited them. */
static bool is_for_us(const char *pid_name) {
        return number_of(pid_name) == (unsigned long long)getpid();
}

static int open_notify(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        size_t n = strlen(path);
        if ((path[0] != '/' && path[0] != '@') || n >= sizeof(address.sun_path))
                return -EINVAL;
        memcpy(address.sun_path, path, n);
        if (path[0] == '@') /* an abstract name */
                address.sun_path[0] = '\0';
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (path[0] == '/'));
        CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)&address, size) < 0)
                return -errno;
        return fd_take(&fd);
}

static void find_manager(struct service *s) {
        const char *path = getenv("NOTIFY_SOCKET");
        if (!path || !*path)
                return;
        int fd = open_notify(path);
        if (fd < 0) {
                log_warning("$NOTIFY_SOCKET (%s) cannot be used: %s; the service manager is told nothing",
                        path, strerror(-fd));
                return;
        }
        s->notify = fd;
        if (!getenv("WATCHDOG_PID") || is_for_us("WATCHDOG_PID"))
                s->watchdog_ns = number_of("WATCHDOG_USEC") * 1000;
}

/* Names stand in a line, with colons between them; what has none is a socket to listen at. */
static bool next_is_connection(const char **names) {
        const size_t n = strcspn(*names, ":");
        bool is = n == strlen(CONNECTION_NAME) && strncmp(*names, CONNECTION_NAME, n) == 0;
        *names += n + ((*names)[n] == ':');
        return is;
}

static int find_passed(struct service *s) {
        const char *names = getenv("LISTEN_FDNAMES");
        unsigned long long n = is_for_us("LISTEN_PID") ? number_of("LISTEN_FDS") : 0;
        if (n == 0)
                return 0;
        if (n > MAX_PASSED)
                n = MAX_PASSED;
        s->passed.fds = calloc(n, sizeof(int));
        s->connections.fds = calloc(n, sizeof(int));
        if (!s->passed.fds || !s->connections.fds)
                return -ENOMEM;
        names = names ? names : "";
        for (unsigned int i = 0; i < n; i++) {
                int fd = FIRST_PASSED_FD + (int)i;
                struct descriptors *d = next_is_connection(&names) ? &s->connections : &s->passed;
                if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
                        d->fds[d->n++] = fd;
        }
        return 0;
}

int service_new(struct service **ret) {
        static const char *const ours[] = { "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID",
                "LISTEN_FDS", "LISTEN_FDNAMES" };
        CLEANUP(service_freep) struct service *s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->notify = -1;
        find_manager(s);
        int r = find_passed(s);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
                unsetenv(ours[i]);
        *ret = take_pointer(s);
        return 0;
}

static void close_all(struct descriptors *d) {
        for (uint32_t i = 0; i < d->n; i++)
                fd_close(&d->fds[i]);
        free(d->fds);
}

void service_free(struct service *s) {
        if (!s)
                return;
        close_all(&s->passed);
        close_all(&s->connections);
        fd_close(&s->notify);
        free(s);
}

bool service_is_managed(const struct service *s) {
        return s->notify >= 0;
}

uint64_t service_watchdog_ns(const struct service *s) {
        return s->watchdog_ns;
}

/* --- sockets that were passed on --- */

static int option_of(int fd, int option) {
        int value = -1;
        socklen_t size = sizeof(value);
        return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

static bool is_of_packets(int fd) {
        return option_of(fd, SO_DOMAIN) == AF_UNIX && option_of(fd, SO_TYPE) == SOCK_SEQPACKET;
}

/* Where it is bound; "": nowhere. */
static void own_address(int fd, struct sockaddr_un *ret) {
        socklen_t size = sizeof(*ret) - 1; /* stays terminated */
        *ret = (struct sockaddr_un){ 0 };
        if (getsockname(fd, (struct sockaddr *)ret, &size) < 0)
                ret->sun_path[0] = '\0';
}

/* Whether it listens for us at `path`; what it is instead in `what`. */
static bool is_our_socket(int fd, const char *path, char *what, size_t what_bytes) {
        struct sockaddr_un address;
        if (!is_of_packets(fd) || option_of(fd, SO_ACCEPTCONN) != 1) {
                snprintf(what, what_bytes, "not a listening socket of packets (ListenSequentialPacket=)");
                return false;
        }
        own_address(fd, &address);
        snprintf(what, what_bytes, "bound to \"%s\"", address.sun_path);
        return strcmp(address.sun_path, path) == 0;
}

/* What was accepted at `path` has its address. */
static bool is_our_connection(int fd, const char *path) {
        struct sockaddr_un own, peer;
        socklen_t size = sizeof(peer);
        if (!is_of_packets(fd) || option_of(fd, SO_ACCEPTCONN) != 0 ||
                getpeername(fd, (struct sockaddr *)&peer, &size) < 0)
                return false;
        own_address(fd, &own);
        return strcmp(own.sun_path, path) == 0;
}

int service_take_socket(struct service *s, const char *path, char *why, size_t why_bytes) {
        char what[160];
        for (uint32_t i = 0; i < s->passed.n; i++)
                if (is_our_socket(s->passed.fds[i], path, what, sizeof(what))) {
                        int r = fd_set_nonblock(s->passed.fds[i]);
                        if (r < 0) {
                                snprintf(why, why_bytes, "the socket that was passed on cannot be used: %s",
                                        strerror(-r));
                                return r;
                        }
                        return fd_take(&s->passed.fds[i]);
                }
        if (s->passed.n == 0)
                return -ENOENT;
        snprintf(why, why_bytes,
                "the socket that was passed on is %s, the configuration says daemon.socket = %s; make the "
                "socket "
                "unit and the configuration agree",
                what, path);
        return -EINVAL;
}

/* --- telling --- */

/* 0 or negative errno. */
static int send_message(const struct service *s, const char *text, const int *fds, uint32_t n_fds) {
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(SERVICE_MAX_CONNECTIONS * sizeof(int))];
        } control = { 0 };
        struct iovec iov = { .iov_base = (char *)text, .iov_len = strlen(text) };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
        CHECK(n_fds <= SERVICE_MAX_CONNECTIONS);
        if (n_fds > 0) {
                msg.msg_control = control.bytes;
                msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        return sendmsg(s->notify, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void warn_untold(const char *text, int r) {
        log_warning(
                "the service manager cannot be told %.*s: %s", (int)strcspn(text, "\n"), text, strerror(-r));
}

static void send_text(const struct service *s, const char *text, int fd) {
        if (s->notify < 0)
                return;
        int r = send_message(s, text, &fd, fd >= 0);
        if (r < 0)
                warn_untold(text, r);
}

/* For what must be known to have arrived: a manager that is behind is waited for a little. */
static bool send_surely(const struct service *s, const char *text, const int *fds, uint32_t n_fds) {
        struct pollfd room = { .fd = s->notify, .events = POLLOUT };
        if (s->notify < 0)
                return false;
        int r = send_message(s, text, fds, n_fds);
        if (r == -EAGAIN && poll(&room, 1, WAIT_MS) > 0)
                r = send_message(s, text, fds, n_fds);
        if (r < 0)
                warn_untold(text, r);
        return r == 0;
}

void service_tell(struct service *s, const char *format, ...) {
        char text[1024];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        send_text(s, text, -1);
}

/* Named, so that `systemctl status` and whoever is started next can tell what it is. */
void service_keep(struct service *s, int fd) {
        send_text(s, "FDSTORE=1\nFDNAME=" KEPT_NAME "\n", fd);
}

/* --- connections --- */

/* Whether the manager has read all that it was told, within a while: unread messages are still ours. */
static bool is_heard(const struct service *s) {
        static const struct timespec step = { .tv_nsec = 1000000 };
        int n_bytes = 0;
        for (int i = 0; i < HEARD_MS; i++) {
                if (ioctl(s->notify, SIOCOUTQ, &n_bytes) < 0 || n_bytes == 0)
                        return n_bytes == 0;
                nanosleep(&step, NULL);
        }
        return false;
}

static void hang_up_all(struct descriptors *d) {
        for (uint32_t i = 0; i < d->n; i++) {
                shutdown(d->fds[i], SHUT_RDWR); /* the manager has them too */
                fd_close(&d->fds[i]);
        }
        d->n = 0;
}

static void close_strangers(struct descriptors *d, const char *path) {
        uint32_t n_ours = 0;
        for (uint32_t i = 0; i < d->n; i++)
                if (is_our_connection(d->fds[i], path))
                        d->fds[n_ours++] = d->fds[i];
                else
                        fd_close(&d->fds[i]);
        if (n_ours < d->n)
                log_warning("of %u descriptors that were passed on as connections %u are none to %s, and "
                            "were closed",
                        d->n, d->n - n_ours, path);
        d->n = n_ours;
}

/* What the manager kept beside us would look alive to its client after our death: the next tuttid would have
 * it, and think that its client has been told. */
void service_claim_connections(struct service *s, const char *path) {
        struct descriptors *d = &s->connections;
        if (d->n == 0)
                return;
        close_strangers(d, path);
        if (!send_surely(s, "FDSTOREREMOVE=1\nFDNAME=" CONNECTION_NAME "\n", NULL, 0) || !is_heard(s)) {
                log_warning("the service manager does not let go of %u connections, which were closed", d->n);
                hang_up_all(d);
        }
}

int service_take_connection(struct service *s) {
        struct descriptors *d = &s->connections;
        return d->n > 0 ? fd_take(&d->fds[--d->n]) : -1;
}

bool service_keep_connections(struct service *s, const int *sockets, uint32_t n) {
        return send_surely(s, "FDSTORE=1\nFDNAME=" CONNECTION_NAME "\n", sockets, n);
}
