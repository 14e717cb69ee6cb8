#include "base/log-journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* systemd sets $JOURNAL_STREAM to "device:inode" of the stream it made; a stderr redirected since is another
 * one. */
bool log_journal_reads_stderr(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;
        return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
               fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

int log_journal_open(void) {
        static const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET };
        CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        return fd_take(&fd);
}

int log_journal_send(int fd, const struct text *record) {
        struct iovec iov = { .iov_base = record->buf, .iov_len = record->used };
        const struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
        ssize_t n;
        do
                n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : 0;
}
