/* What is taken from tuttid-gpu. Its driver is a library that nobody outside of NVIDIA can read, and differs
 * from host to host; so this is a list of what computing on GPUs never takes, where tuttid's own
 * (confine-seccomp.c) is one of all that it takes. What is new in a kernel and not named here is left to the
 * filter of the unit.
 *
 * What stays, and why: ioctl, mmap and open of anything (/dev/nvidia*, /sys, /dev/shm); threads and their
 * placement; sockets of the Unix and the internet families and the routing netlink, by which NCCL's threads
 * meet over the loopback interface and MPS is reached. */
#include "confine-filter.h"
#include "confine.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/check.h"

static const int denied[] = {
        /* programs and processes */
        SCMP_SYS(execve),
        SCMP_SYS(execveat),
        SCMP_SYS(fork),
        SCMP_SYS(vfork),
        /* looking into, and acting on, other processes */
        SCMP_SYS(ptrace),
        SCMP_SYS(process_vm_readv),
        SCMP_SYS(process_vm_writev),
        SCMP_SYS(process_madvise),
        SCMP_SYS(process_mrelease),
        SCMP_SYS(pidfd_open),
        SCMP_SYS(pidfd_getfd),
        SCMP_SYS(pidfd_send_signal),
        SCMP_SYS(kcmp),
        SCMP_SYS(tkill),
        SCMP_SYS(rt_sigqueueinfo),
        SCMP_SYS(rt_tgsigqueueinfo),
        SCMP_SYS(move_pages),
        SCMP_SYS(migrate_pages),
        /* doors of the kernel that stand open to everybody and have been broken often */
        SCMP_SYS(bpf),
        SCMP_SYS(perf_event_open),
        SCMP_SYS(userfaultfd),
        SCMP_SYS(io_uring_setup),
        SCMP_SYS(io_uring_enter),
        SCMP_SYS(io_uring_register),
        SCMP_SYS(add_key),
        SCMP_SYS(request_key),
        SCMP_SYS(keyctl),
        SCMP_SYS(fanotify_init),
        SCMP_SYS(fanotify_mark),
        SCMP_SYS(vmsplice),
        SCMP_SYS(modify_ldt),
        SCMP_SYS(personality),
        /* namespaces and mounts */
        SCMP_SYS(unshare),
        SCMP_SYS(setns),
        SCMP_SYS(mount),
        SCMP_SYS(umount2),
        SCMP_SYS(pivot_root),
        SCMP_SYS(chroot),
        SCMP_SYS(move_mount),
        SCMP_SYS(open_tree),
        SCMP_SYS(fsopen),
        SCMP_SYS(fsconfig),
        SCMP_SYS(fsmount),
        SCMP_SYS(fspick),
        SCMP_SYS(mount_setattr),
        SCMP_SYS(name_to_handle_at),
        SCMP_SYS(open_by_handle_at),
        SCMP_SYS(mknod),
        SCMP_SYS(mknodat),
        /* who one is */
        SCMP_SYS(setuid),
        SCMP_SYS(setgid),
        SCMP_SYS(setreuid),
        SCMP_SYS(setregid),
        SCMP_SYS(setresuid),
        SCMP_SYS(setresgid),
        SCMP_SYS(setfsuid),
        SCMP_SYS(setfsgid),
        SCMP_SYS(setgroups),
        SCMP_SYS(capset),
        SCMP_SYS(chown),
        SCMP_SYS(lchown),
        SCMP_SYS(fchown),
        SCMP_SYS(fchownat),
        /* the host */
        SCMP_SYS(init_module),
        SCMP_SYS(finit_module),
        SCMP_SYS(delete_module),
        SCMP_SYS(kexec_load),
        SCMP_SYS(kexec_file_load),
        SCMP_SYS(reboot),
        SCMP_SYS(swapon),
        SCMP_SYS(swapoff),
        SCMP_SYS(acct),
        SCMP_SYS(quotactl),
        SCMP_SYS(syslog),
        SCMP_SYS(sethostname),
        SCMP_SYS(setdomainname),
        SCMP_SYS(settimeofday),
        SCMP_SYS(clock_settime),
        SCMP_SYS(clock_adjtime),
        SCMP_SYS(adjtimex),
        SCMP_SYS(iopl),
        SCMP_SYS(ioperm),
        SCMP_SYS(vhangup),
};

/* Denied where both hold of two arguments; the same one twice: where it holds of that. */
struct refusal {
        int call;
        struct scmp_arg_cmp first, second;
};

#define MASKED(index, mask, value) SCMP_CMP(index, SCMP_CMP_MASKED_EQ, mask, value)
#define ONE(call, ...)                                                                                       \
        { SCMP_SYS(call), __VA_ARGS__, __VA_ARGS__ }
#define SPACE(flag) ONE(clone, MASKED(0, flag, flag))

static const struct refusal refusals[] = {
        ONE(clone, MASKED(0, CLONE_THREAD, 0)), /* a process */
        SPACE(CLONE_NEWNS),
        SPACE(CLONE_NEWCGROUP),
        SPACE(CLONE_NEWUTS),
        SPACE(CLONE_NEWIPC),
        SPACE(CLONE_NEWUSER),
        SPACE(CLONE_NEWPID),
        SPACE(CLONE_NEWNET),
        ONE(mmap, MASKED(2, PROT_WRITE | PROT_EXEC, PROT_WRITE | PROT_EXEC)),
        ONE(mprotect, MASKED(2, PROT_EXEC, PROT_EXEC)),
        ONE(pkey_mprotect, MASKED(2, PROT_EXEC, PROT_EXEC)),
        ONE(shmat, MASKED(2, SHM_EXEC, SHM_EXEC)),
        ONE(ioctl, MASKED(1, 0xffffffff, TIOCSTI)), /* typing at whoever started tuttid */
        { SCMP_SYS(socket), MASKED(0, 0xffffffff, AF_NETLINK), SCMP_CMP(2, SCMP_CMP_NE, 0) },
        ONE(socket, SCMP_CMP(0, SCMP_CMP_GT, AF_NETLINK)),
};

static int refuse(scmp_filter_ctx filter, const struct refusal *r) {
        const struct scmp_arg_cmp both[] = { r->first, r->second };
        unsigned int n = r->first.arg == r->second.arg ? 1 : 2;
        return seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), r->call, n, both);
}

/* Below the routing netlink: what is neither Unix nor the internet. */
static int refuse_families(scmp_filter_ctx filter) {
        int r = 0;
        for (int family = 0; r == 0 && family < AF_NETLINK; family++)
                if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
                        r = refuse(filter,
                                &(struct refusal)ONE(socket, SCMP_CMP(0, SCMP_CMP_EQ, (uint64_t)family)));
        return r;
}

static int refuse_foreign_signals(scmp_filter_ctx filter) {
        const struct scmp_arg_cmp is_foreign = SCMP_A0(SCMP_CMP_NE, (uint64_t)getpid());
        int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(tgkill), 1, is_foreign);
        return r < 0 ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(kill), 1, is_foreign);
}

static int add_rules(scmp_filter_ctx filter) {
        int r = 0;
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(denied); i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), denied[i], 0);
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(refusals); i++)
                r = refuse(filter, &refusals[i]);
        if (r == 0)
                r = refuse_families(filter);
        if (r == 0)
                r = refuse_foreign_signals(filter);
        return r;
}

const char *confine_load_gpu_filter(void) {
        return confine_load(SCMP_ACT_ALLOW, add_rules);
}
