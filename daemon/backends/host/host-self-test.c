/* A processor, a hypervisor or a kernel that does not keep what it promises is found here, and not in a
 * client's weights. The answers are written down and not computed; each case has vectors and a rest. */
#include "backends/host/host-self-test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backends/host/host-float.h"
#include "backends/guard.h"
#include "backends/host/host-private.h"
#include "base/cleanup.h"
#include "base/fd.h"

#define N_ELEMENTS 77
#define N_INPUTS   4

/* --- numbers --- */

/* All elements of each input are alike: their bits. */
struct known {
        const char *rule;
        enum op op;
        enum dtype dtype;
        uint64_t inputs[N_INPUTS], answer;
};

static const struct known knowns[] = {
        { "f32 SUM", OP_SUM, DTYPE_F32, { 0x3f800000, 0x33800000, 0x33800000, 0x33800000 },
                0x3f800000 }, /* 1 + 3 * 2^-24 in rank order: each tie goes to even */
        { "f32 MAX", OP_MAX, DTYPE_F32, { 0x3f800000, 0xbf800000, 0x40000000, 0x00000000 }, 0x40000000 },
        { "f32 SUM of subnormals", OP_SUM, DTYPE_F32, { 1, 2, 3, 4 }, 10 },
        { "f64 SUM", OP_SUM, DTYPE_F64,
                { 0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000, 0x4010000000000000 },
                0x4024000000000000 },
        { "f16 MEAN", OP_MEAN, DTYPE_F16, { 0x7753, 0x7753, 0x7753, 0x7753 }, 0x7753 }, /* of 30000 */
        { "bf16 SUM", OP_SUM, DTYPE_BF16, { 0x3f80, 0x3f80, 0x4000, 0x4080 }, 0x4100 },
        { "i32 SUM", OP_SUM, DTYPE_I32, { 0x7fffffff, 1, 1, 1 }, 0x80000002 },
        { "u8 MIN", OP_MIN, DTYPE_U8, { 200, 7, 130, 255 }, 7 },
};

static void fill(uint8_t *at, const uint64_t *bits, size_t size) {
        for (size_t i = 0; i < N_ELEMENTS; i++)
                memcpy(at + i * size, bits, size); /* little-endian: the low bytes */
}

static bool holds(
        const struct known *k, enum isa isa, void (*reduce)(enum isa isa, const struct kernel_call *call)) {
        uint8_t memory[N_INPUTS][N_ELEMENTS * 8], output[N_ELEMENTS * 8], expected[N_ELEMENTS * 8];
        const void *inputs[N_INPUTS];
        void *outputs[1] = { output };
        size_t size = dtype_bytes(k->dtype);
        for (int i = 0; i < N_INPUTS; i++) {
                fill(memory[i], &k->inputs[i], size);
                inputs[i] = memory[i];
        }
        fill(expected, &k->answer, size);
        memset(output, 0xa5, sizeof(output));
        reduce(isa, &(struct kernel_call){ .op = k->op,
                            .dtype = k->dtype,
                            .inputs = inputs,
                            .n_inputs = N_INPUTS,
                            .outputs = outputs,
                            .n_outputs = 1,
                            .count = N_ELEMENTS,
                            .divisor = N_INPUTS });
        return memcmp(output, expected, N_ELEMENTS * size) == 0;
}

const char *self_test_numbers(enum isa isa, void (*reduce)(enum isa isa, const struct kernel_call *call)) {
        for (size_t i = 0; i < sizeof(knowns) / sizeof(*knowns); i++)
                if (!holds(&knowns[i], isa, reduce))
                        return knowns[i].rule;
        return NULL;
}

/* --- the guard --- */

/* One page of memory that is not there: reading it is a SIGBUS. */
struct gone {
        struct guarded_work work; /* first */
        const volatile uint8_t *page;
        size_t n_bytes;
        struct memory memory;
};

static void read_gone(const struct guarded_work *work) {
        (void)*((const struct gone *)work)->page;
}

static const struct memory *owner_of(const struct guarded_work *work, const void *address) {
        const struct gone *g = (const struct gone *)work;
        uintptr_t offset = (uintptr_t)address - (uintptr_t)g->page;
        return offset < g->n_bytes ? &g->memory : NULL;
}

/* Whether a page that is not there ends the work that reads it, and is blamed. */
static bool guard_holds(const void *page, size_t n_bytes) {
        const struct memory *culprit = NULL;
        struct gone gone = {
                .work = { .run = read_gone, .find_owner = owner_of }, .page = page, .n_bytes = n_bytes
        };
        return !guard_run(&gone.work, &culprit) && culprit == &gone.memory;
}

/* Behind the end of a file, which every kernel must refuse. */
static int test_guard(char *why, size_t why_bytes) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        int r = guard_thread_init();
        CLEANUP_FD int fd = memfd_create("tuttid-self-test", MFD_CLOEXEC);
        void *at = fd < 0 ? MAP_FAILED : mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
        if (r == 0 && at == MAP_FAILED)
                r = -errno;
        if (r < 0) {
                snprintf(why, why_bytes, "self-test: the memory guard cannot be tried: %s", strerror(-r));
                return r;
        }
        r = guard_holds(at, page) ? 0 : -EIO;
        munmap(at, page);
        if (r < 0)
                snprintf(why, why_bytes, "self-test: the memory guard does not catch a lost page");
        return r;
}

/* A hole in memory that came in as a client's does: caught, and not filled on our account. */
static int test_watch(struct backend *b, char *why, size_t why_bytes) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        struct chore chore = { .fd = memfd_create("tuttid-self-test", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                .n_bytes = page,
                .access = ACCESS_INOUT };
        if (host_backend_of(b)->userfaultfd < 0) { /* a line of fallback() says so */
                fd_close(&chore.fd);
                return 0;
        }
        int r = chore.fd < 0 || ftruncate(chore.fd, (off_t)page) < 0 ? -errno : 0;
        if (r == 0) {
                host_import(b, &chore);
                r = chore.status != STATUS_OK || !guard_holds(host_memory_of(chore.memory)->map, page) ? -EIO
                                                                                                       : 0;
        }
        host_release(b, &chore);
        if (r < 0)
                snprintf(why, why_bytes, "self-test: userfaultfd does not watch a hole: %s",
                        chore.why[0] ? chore.why : strerror(-r));
        return r;
}

int host_self_test(struct backend *b, char *why, size_t why_bytes) {
        struct float_state before;
        enum isa isa = host_backend_of(b)->isa;
        float_state_enter(&before);
        const char *broken = self_test_numbers(isa, kernels_reduce);
        float_state_leave(&before);
        if (broken) {
                snprintf(why, why_bytes,
                        "self-test: %s is wrong with %s on this processor; choose another cpu.isa, and look "
                        "at the "
                        "host",
                        broken, isa_name(isa));
                return -EIO;
        }
        int r = test_guard(why, why_bytes);
        return r < 0 ? r : test_watch(b, why, why_bytes);
}
