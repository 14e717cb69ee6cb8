#include "serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

union address {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
};

__attribute__((format(printf, 3, 4))) static int refuse(
        int error, char why[SERVE_WHY_BYTES], const char *format, ...) {
        va_list args;
        va_start(args, format);
        vsnprintf(why, SERVE_WHY_BYTES, format, args);
        va_end(args);
        return -error;
}

static int make_socket(int family, char why[SERVE_WHY_BYTES]) {
        int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
        if (fd < 0)
                return refuse(errno, why, "cannot make a socket: %s", strerror(errno));
        if (family != AF_UNIX)
                (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        return fd;
}

static int bind_to(const union address *a, socklen_t size, const char *where, char why[SERVE_WHY_BYTES]) {
        int fd = make_socket(a->any.sa_family, why);
        if (fd < 0)
                return fd;
        if (bind(fd, &a->any, size) == 0 && listen(fd, 64) == 0)
                return fd;
        int error = errno;
        close(fd);
        return refuse(error, why, "cannot listen on %s: %s", where, strerror(error));
}

/* --- a path --- */

/* Whether nobody listens there any more. */
static int is_left_over(const struct sockaddr_un *un) {
        struct stat st;
        int fd, is_refused;
        if (lstat(un->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
                return 0;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return 0;
        is_refused = connect(fd, (const struct sockaddr *)un, sizeof(*un)) < 0 && errno == ECONNREFUSED;
        close(fd);
        return is_refused;
}

static int listen_on_path(const char *path, char why[SERVE_WHY_BYTES]) {
        union address a = { .un = { .sun_family = AF_UNIX } };
        if (path[0] != '/' || strlen(path) >= sizeof(a.un.sun_path))
                return refuse(EINVAL, why, "unix:%s: an absolute path of at most %zu bytes is wanted", path,
                        sizeof(a.un.sun_path) - 1);
        memcpy(a.un.sun_path, path, strlen(path) + 1);
        if (is_left_over(&a.un))
                unlink(path);
        mode_t mask = umask(0117);
        int fd = bind_to(&a, sizeof(a.un), path, why);
        umask(mask);
        return fd;
}

/* --- an address --- */

static int parse_port(const char *s, in_port_t *ret) {
        char *end;
        unsigned long port = strtoul(s, &end, 10);
        if (s[0] < '0' || s[0] > '9' || *end || port > 65535)
                return -EINVAL;
        *ret = htons((uint16_t)port);
        return 0;
}

/* Only what does not leave the host: tuttid's numbers name users, jobs and processes. */
static int is_loopback(const union address *a) {
        if (a->any.sa_family == AF_INET)
                return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
        return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

static int parse_address(const char *where, union address *a, socklen_t *ret_size) {
        char host[64];
        const char *colon = strrchr(where, ':');
        memset(a, 0, sizeof(*a));
        if (!colon || (size_t)(colon - where) >= sizeof(host))
                return -EINVAL;
        memcpy(host, where, (size_t)(colon - where));
        host[colon - where] = '\0';
        size_t n = strlen(host);
        if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
                host[n - 1] = '\0';
                a->in6.sin6_family = AF_INET6;
                *ret_size = sizeof(a->in6);
                return inet_pton(AF_INET6, host + 1, &a->in6.sin6_addr) == 1
                               ? parse_port(colon + 1, &a->in6.sin6_port)
                               : -EINVAL;
        }
        a->in.sin_family = AF_INET;
        *ret_size = sizeof(a->in);
        return inet_pton(AF_INET, host, &a->in.sin_addr) == 1 ? parse_port(colon + 1, &a->in.sin_port)
                                                              : -EINVAL;
}

static int listen_on_address(const char *where, char why[SERVE_WHY_BYTES]) {
        union address a;
        socklen_t size;
        if (parse_address(where, &a, &size) < 0)
                return refuse(EINVAL, why,
                        "%s: an address is wanted like 127.0.0.1:9479, [::1]:9479 or "
                        "unix:/run/tutti/exporter.sock",
                        where);
        if (!is_loopback(&a))
                return refuse(EPERM, why,
                        "%s is not a loopback address. The numbers name users and jobs: put a proxy that "
                        "asks "
                        "who is there before a loopback address or a Unix socket",
                        where);
        return bind_to(&a, size, where, why);
}

/* --- a service manager's --- */

#define FIRST_PASSED 3

static int listen_passed(char why[SERVE_WHY_BYTES]) {
        const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
        if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid() || strcmp(n, "1") != 0)
                return -ENOENT;
        unsetenv("LISTEN_PID");
        unsetenv("LISTEN_FDS");
        int type, listens = 0;
        socklen_t size = sizeof(type);
        if (getsockopt(FIRST_PASSED, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM ||
                getsockopt(FIRST_PASSED, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens)
                return refuse(
                        EINVAL, why, "the socket passed on by the service manager is no listening stream");
        return FIRST_PASSED;
}

int serve_listen(const char *where, char why[SERVE_WHY_BYTES]) {
        if (!where) {
                int fd = listen_passed(why);
                if (fd != -ENOENT)
                        return fd;
                where = "127.0.0.1:9479";
        }
        return strncmp(where, "unix:", 5) == 0 ? listen_on_path(where + 5, why)
                                               : listen_on_address(where, why);
}

const char *serve_describe(int fd, char *buf, uint32_t size) {
        union address a;
        socklen_t n = sizeof(a);
        char host[64] = "";
        memset(&a, 0, sizeof(a));
        if (getsockname(fd, &a.any, &n) < 0)
                snprintf(buf, size, "?");
        else if (a.any.sa_family == AF_UNIX)
                snprintf(buf, size, "unix:%s", a.un.sun_path);
        else if (a.any.sa_family == AF_INET6)
                snprintf(buf, size, "http://[%s]:%u/metrics",
                        inet_ntop(AF_INET6, &a.in6.sin6_addr, host, sizeof(host)), ntohs(a.in6.sin6_port));
        else
                snprintf(buf, size, "http://%s:%u/metrics",
                        inet_ntop(AF_INET, &a.in.sin_addr, host, sizeof(host)), ntohs(a.in.sin_port));
        return buf;
}
