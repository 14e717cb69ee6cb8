#include "failing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

static atomic_uint calls;  /* enum failing_call: which are counted */
static atomic_uint n_left; /* calls until the failing one; 0: none fails */
static atomic_bool has_failed;

void failing_call_at(unsigned int which, unsigned int n) {
        atomic_store(&n_left, 0);
        atomic_store(&calls, which);
        if (n)
                atomic_store(&has_failed, false);
        atomic_store(&n_left, n);
}

void failing_at(unsigned int n) {
        failing_call_at(FAILING_MEMORY, n);
}

bool failing_has_failed(void) {
        return atomic_load(&has_failed);
}

/* Counts a call; whether it is the one to fail, and then errno is `error`. */
static bool is_due(enum failing_call call, int error) {
        unsigned int n = atomic_load(&n_left);
        if (n == 0 || !(atomic_load(&calls) & call))
                return false;
        while (n && !atomic_compare_exchange_weak(&n_left, &n, n - 1))
                ;
        if (n != 1)
                return false;
        atomic_store(&has_failed, true);
        errno = error;
        return true;
}

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n_bytes);
void *__real_mmap(void *at, size_t n_bytes, int protection, int flags, int fd, off_t offset);
void *__real_mmap64(void *at, size_t n_bytes, int protection, int flags, int fd, int64_t offset);
int __real_memfd_create(const char *name, unsigned int flags);
int __real_fcntl(int fd, int command, uintptr_t argument);
int __real_fcntl64(int fd, int command, uintptr_t argument);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
int __real_accept4(int fd, struct sockaddr *address, socklen_t *n_bytes, int flags);

void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n_bytes);
void *__wrap_mmap(void *at, size_t n_bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t n_bytes, int protection, int flags, int fd, int64_t offset);
int __wrap_memfd_create(const char *name, unsigned int flags);
int __wrap_fcntl(int fd, int command, uintptr_t argument);
int __wrap_fcntl64(int fd, int command, uintptr_t argument);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *n_bytes, int flags);

void *__wrap_malloc(size_t n_bytes) {
        return is_due(FAILING_MEMORY, ENOMEM) ? NULL : __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t n, size_t size) {
        return is_due(FAILING_MEMORY, ENOMEM) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t n_bytes) {
        return is_due(FAILING_MEMORY, ENOMEM) ? NULL : __real_realloc(old, n_bytes);
}

/* With 64-bit offsets the C library calls mmap and fcntl by other names. */

void *__wrap_mmap(void *at, size_t n_bytes, int protection, int flags, int fd, off_t offset) {
        if (is_due(FAILING_MMAP, ENOMEM))
                return MAP_FAILED;
        return __real_mmap(at, n_bytes, protection, flags, fd, offset);
}

void *__wrap_mmap64(void *at, size_t n_bytes, int protection, int flags, int fd, int64_t offset) {
        if (is_due(FAILING_MMAP, ENOMEM))
                return MAP_FAILED;
        return __real_mmap64(at, n_bytes, protection, flags, fd, offset);
}

int __wrap_memfd_create(const char *name, unsigned int flags) {
        return is_due(FAILING_MEMFD, EMFILE) ? -1 : __real_memfd_create(name, flags);
}

int __wrap_fcntl(int fd, int command, uintptr_t argument) {
        return is_due(FAILING_FCNTL, EPERM) ? -1 : __real_fcntl(fd, command, argument);
}

int __wrap_fcntl64(int fd, int command, uintptr_t argument) {
        return is_due(FAILING_FCNTL, EPERM) ? -1 : __real_fcntl64(fd, command, argument);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
        return is_due(FAILING_SENDMSG, ENOBUFS) ? -1 : __real_sendmsg(fd, message, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
        return is_due(FAILING_RECVMSG, ENOMEM) ? -1 : __real_recvmsg(fd, message, flags);
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *n_bytes, int flags) {
        return is_due(FAILING_ACCEPT, EMFILE) ? -1 : __real_accept4(fd, address, n_bytes, flags);
}
