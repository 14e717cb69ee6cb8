/* The cuda backend opens its devices, and trusts none that it has not tried. */
#include <errno.h>
#include <stdio.h>
#include "backends/cuda/cuda-backend.h"
#include "cuda-bench.h"

static void each_says_what_it_is(const char *n_devices) {
        struct bench t;
        bench_prepare(&t, n_devices);
        bench_open(&t);
        ck_assert_uint_eq(t.b->n_devices, (uint32_t)atoi(n_devices));
        for (uint32_t k = 0; k < t.b->n_devices; k++) {
                const struct gpu_device *d = &t.b->devices[k];
                ck_assert_str_eq(d->why, "");
                ck_assert_int_eq(strncmp(d->uuid, "GPU-", 4), 0);
                ck_assert_uint_eq(strlen(d->uuid), GPU_UUID_BYTES - 4);
                for (const char *at = "\14\21\26\33"; *at; at++) /* "GPU-" and 8-4-4-4-12 digits */
                        ck_assert_int_eq(d->uuid[(int)*at], '-');
                ck_assert_ptr_nonnull(strstr(d->describe, "compute capability"));
                ck_assert_uint_eq(d->paths,
                        1u << PATH_MEMFD | 1u << PATH_VMM_MADE | 1u << PATH_VMM_FD | 1u << PATH_CUDA_IPC);
                ck_assert_uint_eq(d->peers[0], (1u << t.b->n_devices) - 1);
                ck_assert(d->has_timeline && d->has_library);
                ck_assert(d->has_events); /* legacy handles are taken */
        }
        ck_assert_ptr_null(t.b->base.ops->fallback(&t.b->base));
        bench_close(&t);
}

START_TEST(one_device_says_what_it_is) {
        each_says_what_it_is("1");
}
END_TEST

START_TEST(two_devices_say_what_they_are) {
        each_says_what_it_is("2");
}
END_TEST

START_TEST(four_devices_say_what_they_are) {
        each_says_what_it_is("4");
}
END_TEST

START_TEST(D17_a_way_that_corrupts_is_off_and_says_so) {
        struct bench t;
        bench_prepare(&t, "4");
        setenv("FAKECUDA_CORRUPT_PEER", "1-2", 1);
        bench_open(&t);
        ck_assert_uint_eq(t.b->devices[0].peers[0], 0xf);
        ck_assert_uint_eq(t.b->devices[1].peers[0], 0xb);
        ck_assert_uint_eq(t.b->devices[2].peers[0], 0xd);
        ck_assert_uint_eq(t.b->devices[3].peers[0], 0xf);
        const char *why = bench_fallback(&t, "GPU:1-GPU:2");
        ck_assert_ptr_nonnull(why);
        ck_assert_msg(strstr(why, "off: word ") != NULL, "%s", why);
        for (uint32_t k = 0; k < 4; k++)
                ck_assert_str_eq(t.b->devices[k].why, "");
        bench_close(&t);
}
END_TEST

START_TEST(A11_a_device_whose_test_does_not_end_is_off_in_time) {
        struct bench t;
        uint64_t begin = clock_now_ns();
        bench_prepare(&t, "2");
        t.options.test_limit_ns = 200 * NS_PER_MS;
        fakecuda_strike(
                t.fake, &(struct fakecuda_strike){ .fault = FAKECUDA_STALLS, .call = "cuMemcpyAsync" });
        bench_open(&t);
        ck_assert_uint_lt(clock_now_ns() - begin, (uint64_t)(unit_scale() * 10 * NS_PER_S));
        ck_assert_str_eq(t.b->devices[0].why, "its test took more than 200 ms");
        ck_assert_str_eq(t.b->devices[1].why, "");
        ck_assert_uint_eq(t.b->devices[1].peers[0], 2);
        /* Who serves, serves. */
        struct chore c = bench_memory(&t, 1, 4096);
        bench_release(&t, &c);
        struct chore lost = {
                .kind = CHORE_IMPORT, .path = PATH_VMM_MADE, .device = DEVICE_GPU, .fd = -1, .n_bytes = 4096
        };
        lost = bench_import(&t, &lost);
        ck_assert_int_eq(lost.status, STATUS_UNSUPPORTED);
        fakecuda_clear(t.fake);
        bench_close(&t);
}
END_TEST

START_TEST(a_device_whose_test_fails_is_off) {
        struct bench t;
        bench_prepare(&t, "2");
        setenv("FAKECUDA_FAIL", "cuLaunchKernel:1=CUDA_ERROR_INVALID_VALUE", 1);
        bench_open(&t);
        ck_assert_str_eq(t.b->devices[0].why, "a kernel could not be launched");
        ck_assert_str_eq(t.b->devices[1].why, "");
        bench_close(&t);
}
END_TEST

START_TEST(devices_that_do_not_reach_each_other_say_so) {
        struct bench t;
        bench_prepare(&t, "4");
        setenv("FAKECUDA_PEERS", "0-1,2-3", 1);
        bench_open(&t);
        ck_assert_uint_eq(t.b->devices[0].peers[0], 0x3);
        ck_assert_uint_eq(t.b->devices[3].peers[0], 0xc);
        const char *why = bench_fallback(&t, "GPU:1-GPU:2");
        ck_assert_ptr_nonnull(why);
        ck_assert_str_eq(why, "no peer access; what crosses goes over host memory");
        ck_assert_ptr_null(bench_fallback(&t, "GPU:0-GPU:1"));
        bench_close(&t);
}
END_TEST

START_TEST(without_a_driver_there_is_a_sentence) {
        struct bench t;
        char why[256] = "";
        bench_prepare(&t, "1");
        t.options.cuda_path = "/nowhere/libcuda.so.1";
        ck_assert_int_eq(cuda_backend_new(&t.b, &t.options, why, sizeof(why)), -ENOENT);
        ck_assert_msg(strncmp(why, "no CUDA driver: ", 16) == 0, "%s", why);
        bench_close(&t);
}
END_TEST

START_TEST(without_devices_there_is_a_sentence) {
        struct bench t;
        char why[256] = "";
        bench_prepare(&t, "1");
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        ck_assert_int_lt(cuda_backend_new(&t.b, &t.options, why, sizeof(why)), 0);
        ck_assert_msg(why[0] != '\0', "no sentence");
        bench_close(&t);
}
END_TEST

START_TEST(without_nccl_it_serves_and_says_so) {
        struct bench t;
        bench_prepare(&t, "2");
        t.options.nccl_path = "/nowhere/libnccl.so.2";
        bench_open(&t);
        ck_assert(!t.b->devices[0].has_library);
        const char *why = bench_fallback(&t, "nccl");
        ck_assert_ptr_nonnull(why);
        ck_assert_int_eq(strncmp(why, "not there: ", 11), 0);
        bench_close(&t);
}
END_TEST

UNIT_MAIN("cuda-devices", 60, one_device_says_what_it_is, two_devices_say_what_they_are,
        four_devices_say_what_they_are, D17_a_way_that_corrupts_is_off_and_says_so,
        A11_a_device_whose_test_does_not_end_is_off_in_time, a_device_whose_test_fails_is_off,
        devices_that_do_not_reach_each_other_say_so, without_a_driver_there_is_a_sentence,
        without_devices_there_is_a_sentence, without_nccl_it_serves_and_says_so)
