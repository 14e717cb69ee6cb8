#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#define FIRST_PASSED_FD 3 /* SD_LISTEN_FDS_START */
#define MAX_PASSED      16
#define KEPT_NAME       "tuttid"

struct service {
        int notify; /* -1: nobody listens */
        uint64_t watchdog_ns;
        int passed[MAX_PASSED];
        uint32_t n_passed;
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

static void find_passed(struct service *s) {
        unsigned long long n = is_for_us("LISTEN_PID") ? number_of("LISTEN_FDS") : 0;
        for (unsigned int i = 0; i < n && i < MAX_PASSED; i++) {
                int fd = FIRST_PASSED_FD + (int)i;
                if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
                        s->passed[s->n_passed++] = fd;
        }
}

int service_new(struct service **ret) {
        static const char *const ours[] = { "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID",
                "LISTEN_FDS", "LISTEN_FDNAMES" };
        CLEANUP(service_freep) struct service *s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->notify = -1;
        find_manager(s);
        find_passed(s);
        for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
                unsetenv(ours[i]);
        *ret = take_pointer(s);
        return 0;
}

void service_free(struct service *s) {
        if (!s)
                return;
        for (uint32_t i = 0; i < s->n_passed; i++)
                fd_close(&s->passed[i]);
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

/* Whether it listens for us at `path`; what it is instead in `what`. */
static bool is_our_socket(int fd, const char *path, char *what, size_t what_bytes) {
        struct sockaddr_un address = { 0 };
        socklen_t size = sizeof(address) - 1; /* stays terminated */
        if (option_of(fd, SO_DOMAIN) != AF_UNIX || option_of(fd, SO_TYPE) != SOCK_SEQPACKET ||
                option_of(fd, SO_ACCEPTCONN) != 1) {
                snprintf(what, what_bytes, "not a listening socket of packets (ListenSequentialPacket=)");
                return false;
        }
        if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
                address.sun_path[0] = '\0';
        snprintf(what, what_bytes, "bound to \"%s\"", address.sun_path);
        return strcmp(address.sun_path, path) == 0;
}

int service_take_socket(struct service *s, const char *path, char *why, size_t why_bytes) {
        char what[160];
        for (uint32_t i = 0; i < s->n_passed; i++)
                if (is_our_socket(s->passed[i], path, what, sizeof(what))) {
                        int r = fd_set_nonblock(s->passed[i]);
                        if (r < 0) {
                                snprintf(why, why_bytes, "the socket that was passed on cannot be used: %s",
                                        strerror(-r));
                                return r;
                        }
                        return fd_take(&s->passed[i]);
                }
        if (s->n_passed == 0)
                return -ENOENT;
        snprintf(why, why_bytes,
                "the socket that was passed on is %s, the configuration says daemon.socket = %s; make the "
                "socket "
                "unit and the configuration agree",
                what, path);
        return -EINVAL;
}

/* --- telling --- */

static void send_text(const struct service *s, const char *text, int fd) {
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = { 0 };
        struct iovec iov = { .iov_base = (char *)text, .iov_len = strlen(text) };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
        if (s->notify < 0)
                return;
        if (fd >= 0) {
                msg.msg_control = control.bytes;
                msg.msg_controllen = sizeof(control.bytes);
                struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(fd));
                memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        }
        if (sendmsg(s->notify, &msg, MSG_NOSIGNAL) < 0)
                log_warning("the service manager cannot be told %.*s: %s", (int)strcspn(text, "\n"), text,
                        strerror(errno));
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
