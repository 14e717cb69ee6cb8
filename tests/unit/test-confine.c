/* What is left to a confined process, and what is not (G8, P21). A child of each test confines itself: what
 * the test's own process does in the end, for its report, needs more. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "confine.h"
#include "unit.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#define UNCONFINED 77

/* What a child and its test both see. */
struct shared {
        char failure[1024], why[CONFINE_WHY_BYTES];
};

static struct shared *shared;

static void confine_or_end(void) {
        confine(CONFINE_YES, shared->why);
        if (shared->why[0] != '\0')
                _exit(UNCONFINED);
}

/* Runs `body` in a process that may confine itself. */
static void in_child(void (*body)(void)) {
        int status;
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(shared, MAP_FAILED);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                unit_become_child("the confined one", shared->failure, sizeof(shared->failure));
                body();
                _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFEXITED(status), "it ended with signal %d", WTERMSIG(status));
        if (WEXITSTATUS(status) == UNCONFINED)
                unit_skip("%s", shared->why);
        ck_assert_msg(WEXITSTATUS(status) == 0, "%s", shared->failure);
}

/* A number of /proc/self/status. */
static int status_of(const char *name) {
        char line[256], format[64];
        int value = -1;
        snprintf(format, sizeof(format), "%s: %%d", name);
        FILE *f = fopen("/proc/thread-self/status", "re");
        ck_assert_ptr_nonnull(f);
        while (value < 0 && fgets(line, sizeof(line), f))
                if (sscanf(line, format, &value) != 1)
                        value = -1;
        fclose(f);
        return value;
}

#define expect_denied(call)                                                                                  \
        do {                                                                                                 \
                errno = 0;                                                                                   \
                long r_ = (long)(call);                                                                      \
                ck_assert_msg(r_ == -1 && errno == EPERM, "%s gave %ld, %s", #call, r_, strerror(errno));    \
        } while (0)

static void expect_locked_up(void) {
        char byte = 0;
        struct iovec v = { .iov_base = &byte, .iov_len = 1 };
        expect_denied(syscall(SYS_execve, "/bin/true", NULL, NULL));
        expect_denied(ptrace(PTRACE_TRACEME, 0, 0, 0));
        expect_denied(process_vm_readv(getppid(), &v, 1, &v, 1, 0));
        expect_denied(process_vm_writev(getppid(), &v, 1, &v, 1, 0));
        expect_denied(syscall(SYS_pidfd_getfd, 0, 0, 0));
        expect_denied(socket(AF_UNIX, SOCK_STREAM, 0));
        expect_denied(socket(AF_INET, SOCK_STREAM, 0));
        expect_denied(connect(0, NULL, 0));
        expect_denied(bind(0, NULL, 0));
        expect_denied(syscall(SYS_mount, NULL, NULL, NULL, 0, NULL));
        expect_denied(syscall(SYS_unshare, 0));
        expect_denied(syscall(SYS_setns, 0, 0));
        expect_denied(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
        expect_denied(syscall(SYS_bpf, 0, NULL, 0));
        expect_denied(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0));
        expect_denied(syscall(SYS_io_uring_setup, 1, NULL));
        expect_denied(syscall(SYS_userfaultfd, 0));
        expect_denied(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 }));
        expect_denied(syscall(SYS_setuid, getuid()));
}

static void be_confined(void) {
        confine_or_end();
        ck_assert_int_eq(status_of("Seccomp"), 2);
        ck_assert_int_eq(status_of("NoNewPrivs"), 1);
        expect_locked_up();
        expect_denied(syscall(SYS_fork));
        expect_denied(syscall(SYS_clone, 0, NULL, NULL, NULL, 0));
        expect_denied(kill(getppid(), 0));
        ck_assert_int_eq(kill(getpid(), 0), 0);
}

START_TEST(a_confined_process_can_do_nothing_else) {
        in_child(be_confined);
}
END_TEST

static void try_files_and_code(void) {
        char path[256];
        snprintf(path, sizeof(path), "%s/file", unit_directory());
        confine_or_end();
        expect_denied(open(path, O_WRONLY | O_CREAT, 0600));
        expect_denied(open("/dev/null", O_RDWR));
        expect_denied(openat(AT_FDCWD, unit_directory(), O_TMPFILE | O_RDWR, 0600));
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        close(fd);
        void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        expect_denied(mprotect(p, 4096, PROT_READ | PROT_EXEC));
        expect_denied((long)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        munmap(p, 4096);
}

START_TEST(files_are_only_read_and_memory_is_never_code) {
        in_child(try_files_and_code);
}
END_TEST

/* --- threads: from before, and made later --- */

static pthread_barrier_t is_confined;

static void *wait_and_try(void *data) {
        pthread_barrier_wait(&is_confined);
        ck_assert_int_eq(status_of("Seccomp"), 2);
        ck_assert_int_eq(status_of("NoNewPrivs"), 1);
        expect_locked_up();
        return data;
}

static void *just_try(void *data) {
        expect_locked_up();
        return data;
}

static void try_in_threads(void) {
        pthread_t before, after;
        pthread_barrier_init(&is_confined, NULL, 2);
        ck_assert_int_eq(pthread_create(&before, NULL, wait_and_try, NULL), 0);
        confine_or_end();
        pthread_barrier_wait(&is_confined);
        ck_assert_int_eq(pthread_join(before, NULL), 0);
        ck_assert_int_eq(pthread_create(&after, NULL, just_try, NULL), 0);
        ck_assert_int_eq(pthread_join(after, NULL), 0);
}

START_TEST(every_thread_is_confined) {
        in_child(try_in_threads);
}
END_TEST

static void do_what_running_takes(void) {
        confine_or_end();
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), epoll = epoll_create1(EPOLL_CLOEXEC);
        ck_assert(fd >= 0 && epoll >= 0);
        ck_assert_int_eq(ftruncate(fd, 8192), 0);
        ck_assert_int_eq(fallocate(fd, 0, 0, 8192), 0);
        void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        ck_assert_int_eq(madvise(p, 8192, MADV_DONTDUMP), 0);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
        munmap(p, 8192);
        close(fd);
        close(epoll);
}

START_TEST(what_running_takes_is_left) {
        in_child(do_what_running_takes);
}
END_TEST

START_TEST(who_wants_no_confinement_gets_none_and_is_told) {
        char why[CONFINE_WHY_BYTES];
        confine(CONFINE_NO, why);
        ck_assert_str_eq(why, "unconfined: daemon.confine is no");
        ck_assert_int_eq(status_of("NoNewPrivs"), 0);
}
END_TEST

/* --- tuttid-gpu --- */

static void confine_gpu_or_end(void) {
        confine_from_others(CONFINE_YES, shared->why);
        if (shared->why[0] == '\0')
                confine_gpu(CONFINE_YES, shared->why);
        if (shared->why[0] != '\0')
                _exit(UNCONFINED);
}

static void be_a_confined_gpu_process(void) {
        char path[64];
        confine_gpu_or_end();
        ck_assert_int_eq(status_of("Seccomp"), 2);
        ck_assert_int_eq(status_of("NoNewPrivs"), 1);
        expect_denied(syscall(SYS_execve, "/bin/true", NULL, NULL));
        expect_denied(syscall(SYS_fork));
        expect_denied(syscall(SYS_clone, 0, NULL, NULL, NULL, 0));
        expect_denied(ptrace(PTRACE_TRACEME, 0, 0, 0));
        expect_denied(kill(getppid(), 0));
        expect_denied(socket(AF_VSOCK, SOCK_STREAM, 0));
        expect_denied(socket(AF_NETLINK, SOCK_RAW, 12));
        expect_denied(mmap(NULL, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        snprintf(path, sizeof(path), "/proc/%d/mem", (int)getppid());
        ck_assert_int_eq(open(path, O_RDWR | O_CLOEXEC), -1);
        ck_assert_int_eq(errno, EACCES);
        ck_assert_int_ge(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
        ck_assert_int_ge(open("/dev/null", O_RDWR | O_CLOEXEC), 0);
}

START_TEST(P21_what_computing_on_gpus_never_takes_is_taken_away) {
        in_child(be_a_confined_gpu_process);
}
END_TEST

START_TEST(P15_a_gpu_process_that_wants_none_is_told_once) {
        char why[CONFINE_WHY_BYTES];
        confine_from_others(CONFINE_NO, why);
        ck_assert_str_eq(why, "");
        confine_gpu(CONFINE_NO, why);
        ck_assert_str_eq(why, "unconfined: daemon.confine is no");
}
END_TEST

UNIT_MAIN("confine", 10, a_confined_process_can_do_nothing_else, files_are_only_read_and_memory_is_never_code,
        every_thread_is_confined, what_running_takes_is_left, who_wants_no_confinement_gets_none_and_is_told,
        P21_what_computing_on_gpus_never_takes_is_taken_away, P15_a_gpu_process_that_wants_none_is_told_once)
