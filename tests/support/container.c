#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "unit.h"

#define MAX_DENIED 16

static int write_text(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -1;
        ssize_t n = write(fd, text, strlen(text));
        close(fd);
        return n < 0 ? -1 : 0;
}

/* New namespaces in which our uid is what it was. */
static int enter_namespaces(int flags) {
        char map[64], groups[64];
        snprintf(map, sizeof(map), "%u %u 1", geteuid(), geteuid());
        snprintf(groups, sizeof(groups), "%u %u 1", getegid(), getegid());
        if (unshare(CLONE_NEWUSER | flags) < 0 || write_text("/proc/self/uid_map", map) < 0 ||
                write_text("/proc/self/setgroups", "deny") < 0 ||
                write_text("/proc/self/gid_map", groups) < 0)
                return -1;
        return 0;
}

static int own_shm(size_t n_bytes) {
        char options[32];
        snprintf(options, sizeof(options), "size=%zu", n_bytes);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return -1;
        return mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options);
}

#define WHOLE_CONTAINER (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWNET)

void container_need(void) {
        int status;
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
                _exit(enter_namespaces(WHOLE_CONTAINER) < 0 || own_shm(1 << 20) < 0 ? errno : 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        if (status != 0)
                unit_skip("containers cannot be made here: %s", strerror(WEXITSTATUS(status)));
}

void container_own_shm(size_t n_bytes) {
        ck_assert_msg(enter_namespaces(CLONE_NEWNS) == 0, "namespaces: %m");
        ck_assert_msg(own_shm(n_bytes) == 0, "/dev/shm: %m");
}

/* The directory of the socket, read-only over itself. */
static void mount_socket(const char *socket) {
        char directory[160];
        snprintf(directory, sizeof(directory), "%s", socket);
        *strrchr(directory, '/') = '\0';
        ck_assert_msg(mount(directory, directory, NULL, MS_BIND, NULL) == 0, "bind %s: %m", directory);
        ck_assert_msg(mount(NULL, directory, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
                              NULL) == 0,
                "read-only %s: %m", directory);
        ck_assert_int_eq(access(directory, W_OK), -1);
        ck_assert_int_eq(errno, EROFS);
}

static void be_process_1(struct replica *me, void (*body)(struct replica *me)) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ck_assert_int_eq(getpid(), 1);
        body(me);
        tutti_close(me->t);
        _exit(0);
}

void container_run(struct replica *me, void (*body)(struct replica *me)) {
        int status;
        ck_assert_msg(enter_namespaces(WHOLE_CONTAINER) == 0, "namespaces: %m");
        ck_assert_msg(own_shm(1 << 20) == 0, "/dev/shm: %m");
        mount_socket(me->socket);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
                be_process_1(me, body);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        if (status != 0) /* its words are in the replica's failure already */
                _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/* --- a host that denies --- */

static struct sock_filter load(uint32_t offset) {
        return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}

/* The filter looks at the number alone: nobody here calls by another architecture's numbers. */
void deny_calls(const struct denied_call *calls, size_t n) {
        struct sock_filter code[5 * MAX_DENIED + 2];
        unsigned short k = 0;
        ck_assert_uint_le(n, MAX_DENIED);
        for (size_t i = 0; i < n; i++) {
                const struct denied_call *c = &calls[i];
                uint32_t argument =
                        (uint32_t)(offsetof(struct seccomp_data, args) + c->index * sizeof(uint64_t));
                code[k++] = load(offsetof(struct seccomp_data, nr));
                code[k++] = (struct sock_filter)BPF_JUMP(
                        BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)c->call, 0, c->flag ? 3 : 1);
                if (c->flag) {
                        code[k++] = load(argument);
                        code[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, c->flag, 0, 1);
                }
                code[k++] =
                        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)c->error);
        }
        code[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        const struct sock_fprog program = { .len = k, .filter = code };
        ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
                unit_skip("the kernel takes no seccomp filter: %s", strerror(errno));
}

void drop_capabilities(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        const struct __user_cap_data_struct none[2] = { { 0 } };
        if (geteuid() == 0)
                prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED);
        ck_assert_msg(syscall(SYS_capset, &header, none) == 0, "capset: %m");
}
