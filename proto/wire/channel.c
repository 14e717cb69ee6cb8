#include "wire/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fd.h"

/* Room for all descriptors that can come, since the kernel closes those that find none on the spot, which can
 * block; and for credentials, should the socket's owner have asked for them. */
#define CONTROL_BYTES (CMSG_SPACE(MAX_RECEIVED_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred)))

static void take_fds(struct msghdr *h, struct packet *p) {
        for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                CHECK(n <= MAX_RECEIVED_FDS - p->n_fds);
                memcpy(p->fds + p->n_fds, CMSG_DATA(c), n * sizeof(int));
                p->n_fds += (uint32_t)n;
        }
}

/* A peer that closes before it has read everything leaves a reset, which the kernel tells once, before what
 * the peer had sent: its last words come behind it. */
static ssize_t receive_message(int socket, struct msghdr *h) {
        ssize_t n;
        bool was_reset = false, again;
        do {
                n = recvmsg(socket, h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                bool is_reset = n < 0 && errno == ECONNRESET;
                again = (n < 0 && errno == EINTR) || (is_reset && !was_reset);
                was_reset |= is_reset;
        } while (again);
        return n;
}

int channel_receive(int socket, void *buf, struct packet *ret) {
        union {
                struct cmsghdr align;
                char bytes[CONTROL_BYTES];
        } control;
        struct iovec v = { .iov_base = buf, .iov_len = MAX_PACKET_BYTES };
        struct msghdr h = { .msg_iov = &v,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes) };
        ret->n_bytes = 0;
        ret->n_fds = 0;
        ssize_t n = receive_message(socket, &h);
        if (n < 0)
                return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        ret->n_bytes = (size_t)n;
        take_fds(&h, ret);
        ret->is_short = h.msg_flags & MSG_CTRUNC; /* not for want of room, see CONTROL_BYTES */
        if (ret->n_fds > MAX_PACKET_FDS || h.msg_flags & MSG_TRUNC)
                return -EMSGSIZE;
        return n > 0; /* an empty packet is never sent by us: take it for the end */
}

/* The kernel counts them in fdinfo (Linux 5.6). */
bool channel_holds_fds(int socket) {
        char path[64], buf[1024];
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", socket);
        CLEANUP_FD int info = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = info < 0 ? -1 : read(info, buf, sizeof(buf) - 1);
        if (n <= 0)
                return true;
        buf[n] = '\0';
        const char *line = strstr(buf, "\nscm_fds:");
        return !line || strtoul(line + strlen("\nscm_fds:"), NULL, 10) > 0;
}

int channel_send(int socket, const void *buf, size_t n_bytes, const int *fds, uint32_t n_fds) {
        CHECK(n_bytes >= 1 && n_bytes <= MAX_PACKET_BYTES && n_fds <= MAX_PACKET_FDS);
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(MAX_PACKET_FDS * sizeof(int))];
        } control = { 0 };
        struct iovec v = { .iov_base = (void *)buf, .iov_len = n_bytes };
        struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };
        if (n_fds) {
                h.msg_control = control.bytes;
                h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                struct cmsghdr *c = CMSG_FIRSTHDR(&h);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        ssize_t n;
        do
                n = sendmsg(socket, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return errno == EWOULDBLOCK ? -EAGAIN : errno == ECONNRESET ? -EPIPE : -errno;
        return 0;
}

void packet_close_fds(struct packet *p) {
        for (uint32_t i = 0; i < p->n_fds; i++)
                fd_close(&p->fds[i]);
        p->n_fds = 0;
}
