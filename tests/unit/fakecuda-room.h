/* For the tests of the fake driver: loads it, and a process of its own for what takes two. */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "fakecuda/control.h"
#include "fakecuda/load.h"
#include "unit.h"

static struct fakecuda_functions cu;

#define ok(call)      ck_assert_int_eq((call), CUDA_SUCCESS)
#define is(call, why) ck_assert_int_eq((call), (why))

/* With that many devices. */
static inline void begin(const char *n_devices) {
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        fakecuda_load(&cu);
        ok(cu.cuInit(0));
}

/* Makes the primary context of the device current. */
static inline CUcontext use(int device) {
        CUcontext c;
        ok(cu.cuDevicePrimaryCtxRetain(&c, device));
        ok(cu.cuCtxSetCurrent(c));
        return c;
}

static inline void end(void) {
        ck_assert_int_eq(dlclose(cu.library), 0);
}

/* Tells the fake of this process, and of those that it starts, to listen to a test. */
static inline struct fakecuda *listen_to_control(void) {
        char path[256];
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        setenv("FAKECUDA_CONTROL", path, 1);
        struct fakecuda *f = fakecuda_open(path);
        ck_assert_ptr_nonnull(f);
        return f;
}

static inline CUdeviceptr allocate(size_t n_bytes) {
        CUdeviceptr p;
        ok(cu.cuMemAlloc(&p, n_bytes));
        return p;
}

static inline CUstream new_stream(void) {
        CUstream s;
        ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        return s;
}

static inline uint64_t read_word(CUdeviceptr at) {
        uint64_t value;
        ok(cu.cuMemcpyDtoH(&value, at, sizeof(value)));
        return value;
}

static inline void write_word(CUdeviceptr at, uint64_t value) {
        ok(cu.cuMemcpyHtoD(at, &value, sizeof(value)));
}

/* Longer than a stream needs to run what it may run. */
static inline void a_while(void) {
        nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
}

/* --- a second process, which has not loaded the fake yet --- */

struct other {
        pid_t pid;
        int fd; /* a socket to it */
};

static inline struct other start_other(void (*run)(int fd)) {
        int ends[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                unit_become_child("the other process", NULL, 0);
                close(ends[0]);
                run(ends[1]);
                _exit(0);
        }
        close(ends[1]);
        return (struct other){ .pid = pid, .fd = ends[0] };
}

/* It ends when its socket does. */
static inline void end_other(struct other *other) {
        int status;
        shutdown(other->fd, SHUT_RDWR); /* later processes have copies of it */
        close(other->fd);
        ck_assert_int_eq(waitpid(other->pid, &status, 0), other->pid);
        ck_assert_int_eq(status, 0);
}

static inline void send_bytes(int to, const void *bytes, size_t n) {
        if (send(to, bytes, n, MSG_NOSIGNAL) != (ssize_t)n)
                abort();
}

static inline void receive_bytes(int from, void *bytes, size_t n) {
        ck_assert_int_eq(recv(from, bytes, n, 0), (ssize_t)n);
}

/* In the other process: until the test is done. */
static inline void wait_for_end(int fd) {
        char byte;
        while (recv(fd, &byte, 1, 0) > 0)
                ;
}

static inline void send_descriptor(int to, int fd) {
        char room[CMSG_SPACE(sizeof(int))] = "", byte = 1;
        struct iovec bytes = { &byte, 1 };
        struct msghdr m = {
                .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)
        };
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
        if (sendmsg(to, &m, MSG_NOSIGNAL) != 1)
                abort();
}

static inline int receive_descriptor(int from) {
        char room[CMSG_SPACE(sizeof(int))] = "", byte;
        struct iovec bytes = { &byte, 1 };
        struct msghdr m = {
                .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)
        };
        int fd;
        ck_assert_int_eq(recvmsg(from, &m, MSG_CMSG_CLOEXEC), 1);
        ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&m));
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
        return fd;
}
