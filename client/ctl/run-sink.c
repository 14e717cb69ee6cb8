#include "run-sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_again(int fd) {
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void sink_init(struct sink *s, int fd) {
        struct stat st = { 0 };

        memset(s, 0, offsetof(struct sink, buf));
        s->fd = fd;
        if (fstat(fd, &st) < 0)
                st.st_mode = 0;
        s->is_socket = S_ISSOCK(st.st_mode);
        s->is_file = S_ISREG(st.st_mode);
        s->own = S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) ? open_again(fd) : -1;
}

void sink_deinit(struct sink *s) {
        s->used = 0;
        if (s->own >= 0)
                close(s->own);
        s->own = -1;
}

/* Where the description is shared and may block, as much as a pipe takes whole once it is ready. */
static ssize_t write_some(const struct sink *s) {
        struct pollfd p = { .fd = s->fd, .events = POLLOUT };

        if (s->own >= 0)
                return write(s->own, s->buf, s->used);
        if (s->is_socket)
                return send(s->fd, s->buf, s->used, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (s->is_file)
                return write(s->fd, s->buf, s->used);
        if (poll(&p, 1, 0) == 0) {
                errno = EAGAIN;
                return -1;
        }
        return write(s->fd, s->buf, s->used < PIPE_BUF ? s->used : PIPE_BUF);
}

/* False: not now. */
static bool take_failure(struct sink *s) {
        switch (errno) {
        case EINTR: return true;
        case EAGAIN: return false;
        case EPIPE:
        case EBADF: s->is_broken = true; break;
        default: s->error = s->error ? s->error : errno;
        }
        s->used = 0;
        return true;
}

void sink_flush(struct sink *s) {
        while (s->used) {
                ssize_t n = write_some(s);

                if (n < 0 && !take_failure(s))
                        return;
                if (n > 0) {
                        s->used -= (size_t)n;
                        memmove(s->buf, s->buf + n, s->used);
                }
        }
}

void sink_write(struct sink *s, const char *bytes, size_t n) {
        bool is_first = !s->used;

        if (n)
                s->is_mid_line = bytes[n - 1] != '\n';
        if (s->is_broken)
                return;
        if (n > SINK_BYTES - s->used)
                n = SINK_BYTES - s->used;
        memcpy(s->buf + s->used, bytes, n);
        s->used += n;
        if (is_first)
                sink_flush(s);
}

bool sink_has_room(const struct sink *s, size_t n) {
        return s->is_broken || SINK_BYTES - s->used >= n;
}

int sink_poll_fd(const struct sink *s) {
        return !s->used ? -1 : s->own >= 0 ? s->own : s->fd;
}
