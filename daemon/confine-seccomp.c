/* The list of what is left to tuttid. It was made from traces of the test programs, and from what their
 * libraries do in rarer moments: who adds a call to tuttid adds it here, and tests/integration/test-confine.c
 * runs everything under it.
 *
 * What a call is asked to do can be looked at only in its numbers, not behind its pointers. So open says for
 * what, but not which file; and clone3, whose flags lie behind a pointer, does not exist (ENOSYS), which
 * makes the C library use clone. */
#include "confine-filter.h"
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/check.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41 /* names of mappings, Linux 5.17 */
#endif

static const int calls[] = {
        /* packets and descriptors */
        SCMP_SYS(accept4),
        SCMP_SYS(recvmsg),
        SCMP_SYS(sendmsg),
        SCMP_SYS(shutdown),
        SCMP_SYS(getsockopt),
        SCMP_SYS(setsockopt),
        SCMP_SYS(close),
        SCMP_SYS(close_range),
        SCMP_SYS(fcntl),
        SCMP_SYS(dup),
        SCMP_SYS(read),
        SCMP_SYS(readv),
        SCMP_SYS(pread64),
        SCMP_SYS(write),
        SCMP_SYS(writev),
        SCMP_SYS(pwrite64),
        SCMP_SYS(lseek),
        SCMP_SYS(unlink),
        SCMP_SYS(unlinkat),
        /* waiting */
        SCMP_SYS(poll),
        SCMP_SYS(ppoll),
        SCMP_SYS(epoll_wait),
        SCMP_SYS(epoll_pwait),
        SCMP_SYS(epoll_pwait2),
        SCMP_SYS(epoll_ctl),
        SCMP_SYS(epoll_create1),
        SCMP_SYS(eventfd2),
        SCMP_SYS(pipe2),
        SCMP_SYS(futex),
        SCMP_SYS(nanosleep),
        SCMP_SYS(clock_nanosleep),
        SCMP_SYS(sched_yield),
        SCMP_SYS(restart_syscall),
        /* looking at what a descriptor is, at ourselves, at the host */
        SCMP_SYS(fstat),
        SCMP_SYS(newfstatat),
        SCMP_SYS(statx),
        SCMP_SYS(fstatfs),
        SCMP_SYS(readlink),
        SCMP_SYS(readlinkat),
        SCMP_SYS(getdents64),
        SCMP_SYS(clock_gettime),
        SCMP_SYS(clock_getres),
        SCMP_SYS(gettimeofday),
        SCMP_SYS(time),
        SCMP_SYS(getrandom),
        SCMP_SYS(getpid),
        SCMP_SYS(gettid),
        SCMP_SYS(getuid),
        SCMP_SYS(geteuid),
        SCMP_SYS(getgid),
        SCMP_SYS(getegid),
        SCMP_SYS(getcpu),
        SCMP_SYS(sched_getaffinity),
        SCMP_SYS(sysinfo),
        SCMP_SYS(uname),
        SCMP_SYS(getrusage),
        /* memory: what is executable is looked at below */
        SCMP_SYS(munmap),
        SCMP_SYS(mremap),
        SCMP_SYS(madvise),
        SCMP_SYS(brk),
        SCMP_SYS(mincore),
        SCMP_SYS(msync),
        SCMP_SYS(memfd_create),
        SCMP_SYS(ftruncate),
        SCMP_SYS(fallocate),
        SCMP_SYS(membarrier),
        /* threads and signals */
        SCMP_SYS(set_robust_list),
        SCMP_SYS(rseq),
        SCMP_SYS(sigaltstack),
        SCMP_SYS(rt_sigaction),
        SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(rt_sigreturn),
        SCMP_SYS(exit),
        SCMP_SYS(exit_group),
};

/* Allowed where `mask` of argument `index` is `value`. */
struct condition {
        int call;
        unsigned int index;
        uint64_t mask, value;
};

#define NAMESPACES                                                                                           \
        (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |        \
                CLONE_NEWNET)
#define WHOLE UINT64_C(0xffffffff)

static const struct condition conditions[] = {
        { SCMP_SYS(open), 1, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY },
        { SCMP_SYS(openat), 2, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY }, { SCMP_SYS(mmap), 2, PROT_EXEC, 0 },
        { SCMP_SYS(mprotect), 2, PROT_EXEC, 0 },
        { SCMP_SYS(clone), 0, CLONE_THREAD | CLONE_VM | NAMESPACES, CLONE_THREAD | CLONE_VM },
        { SCMP_SYS(ioctl), 1, WHOLE, UFFDIO_REGISTER }, { SCMP_SYS(ioctl), 1, WHOLE, UFFDIO_UNREGISTER },
        { SCMP_SYS(ioctl), 1, WHOLE, FIONBIO }, { SCMP_SYS(prctl), 0, WHOLE, PR_SET_NAME },
        { SCMP_SYS(prctl), 0, WHOLE, PR_SET_VMA },
        { SCMP_SYS(sched_setaffinity), 0, WHOLE, 0 }, /* the caller's own */
        { SCMP_SYS(prlimit64), 2, UINT64_MAX, 0 },    /* only asked for */
};

static int allow_calls(scmp_filter_ctx filter) {
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int allow_conditions(scmp_filter_ctx filter) {
        for (size_t i = 0; i < ARRAY_SIZE(conditions); i++) {
                const struct condition *c = &conditions[i];
                int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, c->call, 1,
                        SCMP_CMP(c->index, SCMP_CMP_MASKED_EQ, c->mask, c->value));
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Signals to ourselves alone: abort, and a fault that is passed on. */
static int allow_own_signals(scmp_filter_ctx filter) {
        const struct scmp_arg_cmp is_own = SCMP_A0(SCMP_CMP_EQ, (uint64_t)getpid());
        int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, is_own);
        return r < 0 ? r : seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(kill), 1, is_own);
}

static int add_rules(scmp_filter_ctx filter) {
        int r = allow_calls(filter);
        if (r == 0)
                r = allow_conditions(filter);
        if (r == 0)
                r = allow_own_signals(filter);
        return r;
}

const char *confine_load_filter(void) {
        return confine_load(SCMP_ACT_ERRNO(EPERM), add_rules);
}
