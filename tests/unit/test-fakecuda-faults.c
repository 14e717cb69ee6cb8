/* The fake driver fails where a test asks it to: by the environment, and in other processes by the control
 * file. */
#include <signal.h>
#include "fakecuda-room.h"

START_TEST(the_nth_call_fails_and_no_other) {
        setenv("FAKECUDA_FAIL", "cuMemAlloc:2=CUDA_ERROR_OUT_OF_MEMORY,cuStreamCreate:1+=CUDA_ERROR_UNKNOWN",
                1);
        begin("1");
        use(0);
        CUdeviceptr p;
        CUstream s;
        ok(cu.cuMemAlloc(&p, 8));
        is(cu.cuMemAlloc(&p, 8), CUDA_ERROR_OUT_OF_MEMORY);
        ok(cu.cuMemAlloc(&p, 8));
        is(cu.cuStreamCreate(&s, 0), CUDA_ERROR_UNKNOWN);
        is(cu.cuStreamCreate(&s, 0), CUDA_ERROR_UNKNOWN);
        end();
}
END_TEST

START_TEST(init_itself_fails) {
        setenv("FAKECUDA_FAIL", "cuInit:1=CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 1);
        fakecuda_load(&cu);
        is(cu.cuInit(0), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
        ok(cu.cuInit(0));
        end();
}
END_TEST

START_TEST(faults_of_the_environment_can_be_for_one_program) {
        CUdeviceptr p;
        setenv("FAKECUDA_FAIL", "cuMemAlloc:1+=CUDA_ERROR_OUT_OF_MEMORY", 1);
        setenv("FAKECUDA_ONLY", "another-program", 1);
        begin("1");
        use(0);
        ok(cu.cuMemAlloc(&p, 8));
        end();
}
END_TEST

START_TEST(E14_work_that_sticks_breaks_the_process) {
        setenv("FAKECUDA_STICKY", "cuMemsetD8Async:2", 1);
        begin("1");
        use(0);
        CUdeviceptr p = allocate(8);
        CUstream s = new_stream();
        CUevent e;
        ok(cu.cuMemsetD8Async(p, 1, 8, s));
        ok(cu.cuStreamSynchronize(s));
        ok(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        ok(cu.cuMemsetD8Async(p, 1, 8, s)); /* the call itself is well */
        (void)cu.cuEventRecord(e, s);
        is(cu.cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
        is(cu.cuEventSynchronize(e), CUDA_ERROR_ILLEGAL_ADDRESS);
        is(cu.cuMemFree(p), CUDA_ERROR_ILLEGAL_ADDRESS);
        end();
}
END_TEST

START_TEST(work_can_be_slow) {
        float ms;
        CUevent a, b;
        setenv("FAKECUDA_SLOW", "cuMemsetD8Async:50", 1);
        begin("1");
        use(0);
        CUdeviceptr p = allocate(8);
        CUstream s = new_stream();
        ok(cu.cuEventCreate(&a, 0));
        ok(cu.cuEventCreate(&b, 0));
        ok(cu.cuEventRecord(a, s));
        ok(cu.cuEventSynchronize(a));
        ok(cu.cuMemsetD8Async(p, 1, 8, s));
        ok(cu.cuEventRecord(b, s));
        is(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
        ok(cu.cuStreamSynchronize(s));
        ok(cu.cuEventElapsedTime(&ms, a, b));
        ck_assert_float_ge(ms, 49);
        end();
}
END_TEST

/* Some calls; the first error, or 0. */
static CUresult use_it(void) {
        CUdeviceptr p;
        uint64_t word = 1;
        CUresult r = cu.cuMemAlloc(&p, 8);
        if (r != CUDA_SUCCESS)
                return r;
        r = cu.cuMemcpyHtoD(p, &word, 8);
        CUresult freed = cu.cuMemFree(p);
        if (freed != CUDA_SUCCESS) /* the fault struck the freeing: again */
                ok(cu.cuMemFree(p));
        return r == CUDA_SUCCESS ? freed : r;
}

START_TEST(every_call_in_turn_fails) {
        struct fakecuda *f = listen_to_control();
        unsigned int n = 0, n_failed = 0;
        bool has_struck = true;
        begin("1");
        use(0);
        while (has_struck) {
                fakecuda_strike(
                        f, &(struct fakecuda_strike){ .fault = FAKECUDA_FAILS, .n = ++n, .code = 999 });
                n_failed += use_it() == CUDA_ERROR_UNKNOWN;
                has_struck = fakecuda_has_struck(f);
                fakecuda_clear(f);
                ck_assert_uint_eq(fakecuda_bytes(f, 0), 0);
        }
        ck_assert_uint_eq(n, 4);
        ck_assert_uint_eq(n_failed, 3);
        end();
        fakecuda_close(f);
}
END_TEST

/* --- other processes --- */

/* Allocates whenever it is asked to, and answers with the result. */
static void allocate_on_demand(int fd) {
        char byte;
        CUdeviceptr p;
        begin("1");
        use(0);
        send_bytes(fd, "", 1);
        while (recv(fd, &byte, 1, 0) == 1) {
                int r = (int)cu.cuMemAlloc(&p, 8);
                send_bytes(fd, &r, sizeof(r));
        }
        dlclose(cu.library);
}

static struct other start_allocator(void) {
        char byte;
        struct other other = start_other(allocate_on_demand);
        receive_bytes(other.fd, &byte, 1);
        return other;
}

static int ask(const struct other *other) {
        int r;
        send_bytes(other->fd, "", 1);
        receive_bytes(other->fd, &r, sizeof(r));
        return r;
}

START_TEST(a_test_makes_calls_of_one_process_fail) {
        char who[16];
        struct fakecuda *f = listen_to_control();
        struct other one = start_allocator(), two = start_allocator();
        snprintf(who, sizeof(who), "#%d", (int)two.pid);
        fakecuda_strike(
                f, &(struct fakecuda_strike){
                           .fault = FAKECUDA_FAILS, .who = who, .call = "cuMemAlloc", .n = 2, .code = 2 });
        is(ask(&two), CUDA_SUCCESS);
        is(ask(&one), CUDA_SUCCESS);
        is(ask(&one), CUDA_SUCCESS);
        is(ask(&two), CUDA_ERROR_OUT_OF_MEMORY);
        is(ask(&two), CUDA_SUCCESS);
        ck_assert_uint_eq(fakecuda_calls(f, who, "cuMemAlloc"), 3);
        ck_assert_uint_eq(fakecuda_calls(f, NULL, "cuMemAlloc"), 5);
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 4 * 4096);
        end_other(&one);
        end_other(&two);
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 0);
        fakecuda_close(f);
}
END_TEST

START_TEST(A11_a_call_hangs_until_it_is_let_go) {
        int r;
        struct fakecuda *f = listen_to_control();
        struct other other = start_allocator();
        fakecuda_strike(f, &(struct fakecuda_strike){ .fault = FAKECUDA_HANGS, .call = "cuMemAlloc" });
        send_bytes(other.fd, "", 1);
        a_while();
        ck_assert_int_eq(recv(other.fd, &r, sizeof(r), MSG_DONTWAIT), -1);
        fakecuda_clear(f);
        receive_bytes(other.fd, &r, sizeof(r));
        ck_assert_int_eq(r, 0);
        end_other(&other);
        fakecuda_close(f);
}
END_TEST

START_TEST(E14_a_test_breaks_a_process_for_good) {
        struct fakecuda *f = listen_to_control();
        struct other other = start_allocator();
        fakecuda_strike(
                f, &(struct fakecuda_strike){ .fault = FAKECUDA_STICKS, .call = "cuMemAlloc", .code = 719 });
        is(ask(&other), CUDA_ERROR_LAUNCH_FAILED);
        is(ask(&other), CUDA_ERROR_LAUNCH_FAILED);
        end_other(&other);
        other = start_allocator(); /* only a new process goes on */
        is(ask(&other), CUDA_SUCCESS);
        end_other(&other);
        fakecuda_close(f);
}
END_TEST

START_TEST(work_stalls_and_others_do_not) {
        struct fakecuda *f = listen_to_control();
        begin("1");
        use(0);
        CUdeviceptr p = allocate(8);
        CUstream s = new_stream(), t = new_stream();
        fakecuda_strike(f, &(struct fakecuda_strike){ .fault = FAKECUDA_STALLS, .call = "cuMemsetD8Async" });
        ok(cu.cuMemsetD8Async(p, 1, 8, s));
        ok(cu.cuMemsetD8Async(p, 2, 8, t));
        ok(cu.cuStreamSynchronize(t));
        a_while();
        is(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
        fakecuda_clear(f);
        ok(cu.cuStreamSynchronize(s));
        end();
        fakecuda_close(f);
}
END_TEST

START_TEST(a_killed_process_leaves_the_control_file_usable) {
        struct fakecuda *f = listen_to_control();
        for (int i = 0; i < 70; i++) { /* more than there are slots */
                struct other other = start_allocator();
                is(ask(&other), CUDA_SUCCESS);
                kill(other.pid, SIGKILL);
                waitpid(other.pid, NULL, 0);
                close(other.fd);
        }
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 0);
        ck_assert_uint_eq(fakecuda_calls(f, NULL, "cuMemAlloc"), 70);
        fakecuda_close(f);
}
END_TEST

UNIT_MAIN("fakecuda-faults", 20, the_nth_call_fails_and_no_other, init_itself_fails,
        faults_of_the_environment_can_be_for_one_program, E14_work_that_sticks_breaks_the_process,
        work_can_be_slow, every_call_in_turn_fails, a_test_makes_calls_of_one_process_fail,
        A11_a_call_hangs_until_it_is_let_go, E14_a_test_breaks_a_process_for_good,
        work_stalls_and_others_do_not, a_killed_process_leaves_the_control_file_usable)
