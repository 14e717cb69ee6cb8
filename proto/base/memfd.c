/* The kernel counts who has opened a file for reading and for writing, and grants a write lease (fcntl(2),
 * F_SETLEASE) only to the one and only; memfd_create's own descriptor is not counted. */
#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include "fd.h"

/* Newer than some C libraries. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int memfd_new(const char *name, unsigned int flags) {
        flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
        int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create(name, flags); /* the right to seal must survive the second try */
        return fd < 0 ? -errno : fd;
}

int memfd_open_anew(int fd, int access) {
        char path[32];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int anew = open(path, access | O_CLOEXEC | O_NONBLOCK);
        return anew < 0 ? -errno : anew;
}

bool memfd_is_had(int fd) {
        CLEANUP_FD int only = memfd_open_anew(fd, O_RDONLY);
        if (only < 0)
                return only == -EMFILE || only == -ENFILE || only == -EWOULDBLOCK;
        if (fcntl(only, F_SETLEASE, F_WRLCK) == 0)
                return false; /* and closing it ends the lease */
        return errno == EAGAIN;
}
