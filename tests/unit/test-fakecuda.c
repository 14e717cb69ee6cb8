/* The fake driver does what the documentation of the real one says: devices, contexts, memory, streams. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fakecuda/load.h"
#include "unit.h"

static struct fakecuda_functions cu;

static void begin(const char *n_devices) {
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        fakecuda_load(&cu);
        ck_assert_int_eq(cu.cuInit(0), CUDA_SUCCESS);
}

static CUcontext use(int device) {
        CUcontext c;
        ck_assert_int_eq(cu.cuDevicePrimaryCtxRetain(&c, device), CUDA_SUCCESS);
        ck_assert_int_eq(cu.cuCtxSetCurrent(c), CUDA_SUCCESS);
        return c;
}

static void end(void) {
        ck_assert_int_eq(dlclose(cu.library), 0);
}

START_TEST(nothing_works_before_init) {
        int n;
        fakecuda_load(&cu);
        ck_assert_int_eq(cu.cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
        ck_assert_int_eq(cu.cuInit(1), CUDA_ERROR_INVALID_VALUE);
        ck_assert_int_eq(cu.cuInit(0), CUDA_SUCCESS);
        ck_assert_int_eq(cu.cuDeviceGetCount(&n), CUDA_SUCCESS);
        ck_assert_int_eq(n, 1);
        end();
}
END_TEST

START_TEST(copies_go_through_the_device) {
        char out[100], in[100];
        CUdeviceptr a, b;
        memset(in, 7, sizeof(in));
        begin("1");
        use(0);
        ck_assert_int_eq(cu.cuMemAlloc(&a, sizeof(in)), CUDA_SUCCESS);
        ck_assert_int_eq(cu.cuMemAlloc(&b, sizeof(in)), CUDA_SUCCESS);
        ck_assert_int_eq(cu.cuMemcpyHtoD(a, in, sizeof(in)), CUDA_SUCCESS);
        ck_assert_int_eq(cu.cuMemcpyDtoD(b, a, sizeof(in)), CUDA_SUCCESS);
        ck_assert_int_eq(cu.cuMemcpyDtoH(out, b, sizeof(in)), CUDA_SUCCESS);
        ck_assert_mem_eq(in, out, sizeof(in));
        ck_assert_int_eq(cu.cuMemFree(a), CUDA_SUCCESS);
        ck_assert_int_eq(cu.cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

UNIT_MAIN("fakecuda", 10, nothing_works_before_init, copies_go_through_the_device)
