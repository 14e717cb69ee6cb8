/* What a program would try that has got hold of tuttid-gpu, made from within it: the driver is the one thing
 * in there that is not ours. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum must { MUST_FAIL, MUST_WORK };

static void note(struct fake_page *page, const char *name, enum must must, long result) {
        int error = result < 0 ? errno : 0;
        uint32_t i = 0;
        while (i < FAKE_MAX_TRIES - 1 && page->tries[i].name[0])
                i++;
        struct fake_try *t = &page->tries[i];
        t->error = error;
        t->must_work = must == MUST_WORK;
        snprintf(t->name, sizeof(t->name), "%s", name);
}

/* Closes what should not have been had, so that nothing else goes wrong. */
static long shut(int fd) {
        int error = errno;
        if (fd >= 0)
                close(fd);
        errno = error;
        return fd;
}

static void try_processes(struct fake_page *page) {
        char byte = 0, path[64];
        struct iovec v = { .iov_base = &byte, .iov_len = 1 };
        pid_t parent = getppid();
        note(page, "execve", MUST_FAIL, syscall(SYS_execve, "/nonexistent", NULL, NULL));
        note(page, "fork", MUST_FAIL, syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
        note(page, "ptrace", MUST_FAIL, ptrace(PTRACE_SEIZE, parent, 0, 0));
        note(page, "process_vm_readv", MUST_FAIL, process_vm_readv(parent, &v, 1, &v, 1, 0));
        note(page, "process_vm_writev", MUST_FAIL, process_vm_writev(parent, &v, 0, &v, 0, 0));
        note(page, "pidfd_getfd", MUST_FAIL, syscall(SYS_pidfd_getfd, 0, 0, 0));
        note(page, "kill", MUST_FAIL, kill(parent, 0));
        snprintf(path, sizeof(path), "/proc/%d/mem", (int)parent);
        note(page, "memory of another", MUST_FAIL, shut(open(path, O_RDWR | O_CLOEXEC)));
}

static void try_kernel(struct fake_page *page) {
        note(page, "bpf", MUST_FAIL, syscall(SYS_bpf, 0, NULL, 0));
        note(page, "userfaultfd", MUST_FAIL, shut((int)syscall(SYS_userfaultfd, O_CLOEXEC)));
        note(page, "io_uring", MUST_FAIL, syscall(SYS_io_uring_setup, 1, NULL));
        note(page, "keyctl", MUST_FAIL, syscall(SYS_keyctl, 0, 0, 0, 0, 0));
        note(page, "unshare", MUST_FAIL, syscall(SYS_unshare, 0));
        note(page, "mount", MUST_FAIL, syscall(SYS_mount, NULL, NULL, NULL, 0, NULL));
        note(page, "setuid", MUST_FAIL, syscall(SYS_setuid, getuid()));
        note(page, "clone3", MUST_FAIL, syscall(SYS_clone3, NULL, 0));
        void *both = mmap(NULL, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        note(page, "memory as code", MUST_FAIL, both == MAP_FAILED ? -1 : 0);
}

static void try_sockets(struct fake_page *page) {
        struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        note(page, "AF_ALG", MUST_FAIL, shut(socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
        note(page, "AF_VSOCK", MUST_FAIL, shut(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0)));
        note(page, "AF_PACKET", MUST_FAIL, shut(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
        note(page, "netfilter", MUST_FAIL, shut(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 12)));
        int inet = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        note(page, "AF_INET", MUST_WORK, inet);
        note(page, "bind", MUST_WORK, bind(inet, (struct sockaddr *)&any, sizeof(any)));
        note(page, "listen", MUST_WORK, listen(inet, 1));
        shut(inet);
        note(page, "AF_UNIX", MUST_WORK, shut(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
        note(page, "route netlink", MUST_WORK, shut(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0)));
}

static void try_what_is_needed(struct fake_page *page) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        note(page, "open for writing", MUST_WORK, shut(open("/dev/null", O_RDWR | O_CLOEXEC)));
        note(page, "sched_getaffinity", MUST_WORK, sched_getaffinity(0, sizeof(cpus), &cpus));
        note(page, "sched_setaffinity", MUST_WORK, sched_setaffinity(0, sizeof(cpus), &cpus));
}

void fake_try_all(struct fake_page *page) {
        fake_page_lock(page);
        if (atomic_load(&page->n_tries) == 0) {
                try_processes(page);
                try_kernel(page);
                try_sockets(page);
                try_what_is_needed(page);
                uint32_t n = 0;
                while (n < FAKE_MAX_TRIES && page->tries[n].name[0])
                        n++;
                atomic_store(&page->n_tries, n);
        }
        fake_page_unlock(page);
}
