#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void fd_close(int *fd) {
        if (*fd < 0)
                return;
        int saved = errno;
        close(fd_take(fd)); /* after EINTR the descriptor is gone as well (close(2), Linux) */
        errno = saved;
}

int fd_set_nonblock(int fd) {
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
                return -errno;
        return 0;
}
