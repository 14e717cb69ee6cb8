/* Every call of the driver and of NCCL fails once, one after the other, until all passes: so each error path
 * has run, and nothing is left behind whichever it was. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backends/cuda/cuda-backend.h"
#include "cuda-bench.h"

#define COUNT 1000

static const char *const calls[] = { "cuDriverGetVersion", "cuInit", "cuDeviceGetCount", "cuDeviceGet",
        "cuDeviceGetUuid", "cuDeviceGetName", "cuDeviceTotalMem", "cuDeviceGetPCIBusId",
        "cuDeviceGetAttribute", "cuDeviceCanAccessPeer", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
        "cuCtxEnablePeerAccess", "cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister",
        "cuMemHostGetDevicePointer", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
        "cuMemExportToShareableHandle", "cuMemGetAllocationGranularity", "cuStreamCreate", "cuStreamQuery",
        "cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamWaitValue64", "cuStreamWriteValue64",
        "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuMemcpyAsync", "cuMemsetD8Async",
        "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "ncclGetVersion", "ncclGetUniqueId",
        "ncclCommInitRankConfig", "ncclGroupStart", "ncclGroupEnd", "ncclAllReduce",
        "ncclCommGetAsyncError" };

/* Whether all went well; whatever goes wrong is said, and ends. */
static bool import(struct bench *t, struct chore *c) {
        t->b->base.ops->import(&t->b->base, c);
        ck_assert(c->status == STATUS_OK || c->why[0] != '\0');
        return c->status == STATUS_OK;
}

static bool run_plan(struct bench *t, struct plan *p, const struct signal *signal) {
        struct run run = { .plan = p, .group = 1, .signals = signal, .n_signals = 1, .limit_ns = NS_PER_S };
        bench_launch(t, &run);
        ck_assert_msg(bench_wait(t, &run, 30), "a run does not end");
        ck_assert(run.status == STATUS_OK || run.why[0] != '\0');
        return run.status == STATUS_OK;
}

static void add(struct plan *p, struct chore *in, struct chore *out, enum step_kind kind) {
        const struct chore *operands[] = { &in[0], &in[1], &out[0], &out[1] };
        bench_add(p, &(struct bench_step){ .operands = operands,
                             .step = { .kind = kind,
                                     .device = DEVICE_GPU,
                                     .op = OP_SUM,
                                     .dtype = DTYPE_F32,
                                     .check_numerics = kind == STEP_REDUCE,
                                     .n_inputs = 2,
                                     .n_outputs = 2,
                                     .count = COUNT } });
        bench_freeze(p, 0);
}

static bool expect(const struct chore *out) {
        for (int i = 0; i < COUNT; i++)
                ck_assert_float_eq(((const float *)bench_data(out))[i], 3);
        return true;
}

/* What fails just now. */
static struct {
        const char *call;
        unsigned int n;
} struck;

static bool use_memory(struct bench *t, struct chore *in, struct chore *out, struct chore *page) {
        struct plan kernels, library;
        _Atomic uint64_t *words = bench_data(page);
        const struct signal signal = { .page = page->memory, .slot = 0, .value = 1 };
        bool is_well;
        for (int i = 0; i < COUNT; i++) {
                ((float *)bench_data(&in[0]))[i] = 1;
                ((float *)bench_data(&in[1]))[i] = 2;
        }
        plan_init(&kernels);
        plan_init(&library);
        add(&kernels, in, out, STEP_REDUCE);
        add(&library, in, out, STEP_LIBRARY);
        struct run late = {
                .plan = &kernels, .group = 1, .signals = &signal, .n_signals = 1, .limit_ns = NS_PER_S
        };
        bench_launch(t, &late);
        atomic_store(words, 1);
        ck_assert_msg(bench_wait(t, &late, 30), "%s: a run does not end (%u)", struck.call, struck.n);
        is_well = late.status == STATUS_OK && expect(&out[0]) && expect(&out[1]);
        is_well &= run_plan(t, &library, &signal) && expect(&out[0]) && expect(&out[1]);
        plan_deinit(&kernels);
        plan_deinit(&library);
        return is_well;
}

static bool use_backend(struct bench *t) {
        struct chore page = { .kind = CHORE_IMPORT, .n_bytes = 4096, .access = ACCESS_INOUT };
        struct chore memory[4];
        bool is_well = true;
        page.fd = memfd_create("page", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(page.fd, 4096), 0);
        is_well &= import(t, &page);
        for (uint32_t i = 0; i < 4; i++) {
                memory[i] = (struct chore){ .kind = CHORE_IMPORT,
                        .path = PATH_VMM_MADE,
                        .device = DEVICE_GPU + i % 2,
                        .n_bytes = 4 * COUNT,
                        .fd = -1,
                        .access = ACCESS_INOUT };
                is_well &= import(t, &memory[i]);
        }
        is_well = is_well && use_memory(t, &memory[0], &memory[2], &page);
        bench_release(t, &page);
        for (uint32_t i = 0; i < 4; i++)
                bench_release(t, &memory[i]);
        return is_well;
}

/* Whether the n-th call was never reached. An error that the driver keeps (STICKS) ends all that comes after.
 */
static bool strike_nth(enum fakecuda_fault fault, const char *call, unsigned int n) {
        struct bench t;
        char why[256] = "";
        struck.call = call;
        struck.n = n;
        const char *control = getenv("FAKECUDA_CONTROL"); /* of the time before, whose processes it has */
        if (control)
                (void)!unlink(control);
        bench_prepare(&t, "2");
        t.options.library_limit_ns = 2 * NS_PER_S;
        fakecuda_strike(t.fake, &(struct fakecuda_strike){ .fault = fault,
                                        .call = call,
                                        .n = n,
                                        .code = fault == FAKECUDA_STICKS ? 0 /* illegal address */
                                                : call[0] == 'n'         ? 3 /* internal error */
                                                                         : 1 /* invalid value */ });
        int r = cuda_backend_new(&t.b, &t.options, why, sizeof(why));
        ck_assert(r == 0 || why[0] != '\0');
        bool is_well = r == 0 && use_backend(&t), is_through = fakecuda_calls(t.fake, NULL, call) < n;
        ck_assert_msg(!is_through || is_well, "%s: fails without a fault (%u)", call, n);
        if (fault == FAKECUDA_STICKS && !is_through)
                ck_assert(!is_well && (r < 0 || t.b->is_broken));
        fakecuda_clear(t.fake);
        bench_close(&t);
        return is_through;
}

/* Of what is many alike a few fail: of the kernels, and of the questions whether something is done, which are
 * the more the slower the machine is. */
static unsigned int next_after(const char *call, unsigned int n) {
        if (strcmp(call, "cuModuleGetFunction") == 0)
                return n + 101;
        bool is_question = strcmp(call, "cuStreamQuery") == 0 || strcmp(call, "cuEventQuery") == 0;
        return n + 1 + (is_question ? n / 32 : 0);
}

static void fail_calls(size_t first, size_t step) {
        for (size_t i = first; i < ARRAY_SIZE(calls); i += step) {
                unsigned int n = 1;
                while (n < 400 && !strike_nth(FAKECUDA_FAILS, calls[i], n))
                        n = next_after(calls[i], n);
        }
}

START_TEST(every_call_fails_once_first_part) {
        fail_calls(0, 2);
}
END_TEST

START_TEST(every_call_fails_once_second_part) {
        fail_calls(1, 2);
}
END_TEST

START_TEST(E14_an_error_that_the_driver_keeps_ends_all_wherever_it_comes) {
        static const char *const sticking[] = { "cuLaunchKernel", "cuMemcpyAsync", "cuStreamWaitValue64",
                "cuEventQuery", "cuMemCreate", "cuMemHostRegister", "ncclAllReduce" };
        for (size_t i = 0; i < ARRAY_SIZE(sticking); i++)
                for (unsigned int n = 1; n < 100 && !strike_nth(FAKECUDA_STICKS, sticking[i], n);)
                        n++;
}
END_TEST

UNIT_MAIN("cuda-faults", 200, every_call_fails_once_first_part, every_call_fails_once_second_part,
        E14_an_error_that_the_driver_keeps_ends_all_wherever_it_comes)
