/* gpu-suite: what only a card can show (docs/gpu.md): replicas on one GPU by every kind of memory, order of
 * streams, numbers, deaths. The real tuttid and tuttid-gpu; each replica is a process with a context of its
 * own. In a rehearsal the driver is the fake. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "card.h"
#include "host.h"
#include "meeting.h"
#include "oracle.h"
#include "replica.h"
#include "unit.h"

#define N 10007

static struct host *start(void) {
        return host_start((const char *const[]){ "--set", "gpu.ipc=yes", NULL });
}

static void stop(struct host *h) {
        host_expect_counters_zero(h);
        host_stop(h);
}

static void run(uint32_t n, void (*body)(struct replica *me), void *arg) {
        struct host *h = start();
        run_replicas(h, n, body, arg);
        stop(h);
}

static void run_with(const char *setting, uint32_t n, void (*body)(struct replica *me), void *arg) {
        struct host *h = host_start((const char *const[]){ "--set", "gpu.ipc=yes", "--set", setting, NULL });
        run_replicas(h, n, body, arg);
        stop(h);
}

/* --- in a replica --- */

static struct tutti_group *begin(struct replica *me) {
        gpu_begin();
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

/* A driver keeps descriptors to the end of its process, which is now. */
_Noreturn static void leave(struct replica *me) {
        tutti_close(me->t);
        _exit(0);
}

static struct tutti_buffer *must_take(struct tutti *t, enum tutti_cuda_path path, size_t n_bytes) {
        struct tutti_buffer *b = gpu_take(t, path, n_bytes);
        ck_assert_msg(b != NULL, "%s: %s", tutti_cuda_path_name(path), tutti_error());
        ck_assert_int_eq(tutti_cuda_buffer_path(b, NULL), path);
        return b;
}

static struct tutti_value floats(struct tutti_buffer *b) {
        return TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N });
}

static uint32_t bits_of(float value) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        return bits;
}

static void fill(const struct tutti_buffer *b, float value) {
        GPU(cuMemsetD32, gpu_at(b), bits_of(value), N);
        GPU(cuCtxSynchronize);
}

static void expect(const struct tutti_buffer *b, float value) {
        static float got[N];
        GPU(cuMemcpyDtoH, got, gpu_at(b), sizeof(got));
        for (uint32_t i = 0; i < N; i++)
                ck_assert_msg(got[i] == value, "[%u] is %f, not %f", i, (double)got[i], (double)value);
}

static struct tutti_work *start_on(
        struct tutti_group *g, const char *key, struct tutti_buffer *b, CUstream s) {
        struct tutti_value v = floats(b);
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(
                              g, key, TUTTI_SUM, &v, &v, &TUTTI_OPTIONS(.has_stream = 1, .stream = s), &w),
                TUTTI_OK);
        return w;
}

static void end_work(struct tutti_work *w) {
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
}

/* --- memory between processes --- */

static void body_kind(struct replica *me) {
        const enum tutti_cuda_path path = *(const enum tutti_cuda_path *)me->arg;
        struct tutti_group *g = begin(me);
        struct tutti_buffer *b = must_take(me->t, path, N * sizeof(float));
        struct tutti_value v = floats(b);
        const uint32_t sum = me->n * (me->n + 1) / 2;
        for (int i = 0; i < 3; i++) {
                fill(b, (float)(1 + me->rank));
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
                expect(b, (float)sum);
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        leave(me);
}

static void meet_by(enum tutti_cuda_path path) {
        run(2, body_kind, &path);
        run(4, body_kind, &path);
}

START_TEST(N2_memory_that_tuttid_makes) {
        meet_by(TUTTI_CUDA_VMM_MADE);
}
END_TEST

START_TEST(N2_memory_by_its_descriptor) {
        meet_by(TUTTI_CUDA_VMM_FD);
}
END_TEST

START_TEST(E8_memory_by_a_legacy_handle) {
        meet_by(TUTTI_CUDA_IPC);
}
END_TEST

START_TEST(N2_memory_copied_through_the_host) {
        meet_by(TUTTI_CUDA_STAGED);
}
END_TEST

/* Each by another kind, and the last one from the host. */
static void body_mixed(struct replica *me) {
        static const enum tutti_cuda_path paths[] = { TUTTI_CUDA_VMM_MADE, TUTTI_CUDA_VMM_FD,
                TUTTI_CUDA_STAGED };
        struct tutti_group *g = begin(me);
        if (me->rank == 3) {
                struct floats f;
                floats_init(me->t, &f, N);
                floats_meet(g, NULL, &f, 4, 10);
                leave(me);
        }
        struct tutti_buffer *b = must_take(me->t, paths[me->rank], N * sizeof(float));
        struct tutti_value v = floats(b);
        fill(b, (float)(1 + me->rank));
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
        expect(b, 10);
        leave(me);
}

START_TEST(N4_device_and_host_in_one_collective) {
        run(4, body_mixed, NULL);
}
END_TEST

/* --- streams --- */

#define N_ROUNDS 20

/* The stream is busy before each value is there, and nobody waits before the end. */
static void body_ordered(struct replica *me) {
        const size_t ballast = gpu_size((size_t)256 << 20, 4096);
        struct tutti_work *works[N_ROUNDS];
        float *seen;
        const char *why;
        CUdeviceptr busy;
        struct tutti_group *g = begin(me);
        CUstream s = gpu_stream();
        struct tutti_buffer *b = must_take(me->t, TUTTI_CUDA_VMM_MADE, N * sizeof(float));
        GPU(cuMemHostAlloc, (void **)&seen, N_ROUNDS * sizeof(*seen), 0);
        GPU(cuMemAlloc, &busy, ballast);
        const enum tutti_cuda_order *order = me->arg;
        ck_assert_msg(
                tutti_cuda_order(me->t, &why) == *order, "no %s: %s", tutti_cuda_order_name(*order), why);
        for (int i = 0; i < N_ROUNDS; i++) {
                for (int k = 0; k < 10; k++)
                        GPU(cuMemsetD8Async, busy, (unsigned char)k, ballast, s);
                GPU(cuMemsetD32Async, gpu_at(b), bits_of((float)(i + 1 + (int)me->rank)), N, s);
                works[i] = start_on(g, NULL, b, s);
                expect_status(tutti_cuda_follow(works[i], -1), TUTTI_OK);
                GPU(cuMemcpyDtoHAsync, &seen[i], gpu_at(b) + (N - 1) * sizeof(float), sizeof(float), s);
        }
        GPU(cuStreamSynchronize, s);
        for (int i = 0; i < N_ROUNDS; i++) {
                ck_assert_float_eq(seen[i], (float)(2 * i + 3));
                end_work(works[i]);
        }
        leave(me);
}

START_TEST(streams_wait_for_values_and_for_results_on_the_device) {
        enum tutti_cuda_order order = TUTTI_CUDA_TIMELINE;
        run(2, body_ordered, &order);
}
END_TEST

START_TEST(streams_wait_by_events_as_well) {
        enum tutti_cuda_order order = TUTTI_CUDA_EVENTS;
        run_with("gpu.order=events", 2, body_ordered, &order);
}
END_TEST

/* --- numbers --- */

/* In place in every other collective. */
struct table {
        struct tutti_group *g;
        struct tutti_buffer *in, *out;
        void *host[4], *expected, *got;
        size_t count, n_bytes;
        uint32_t rank, n;
        enum tutti_dtype dtype;
};

static void table_fill(struct table *t, enum tutti_dtype dtype) {
        t->dtype = dtype;
        t->n_bytes = t->count * tutti_dtype_bytes(dtype);
        for (uint32_t i = 0; i < t->n; i++)
                oracle_fill((enum dtype)dtype, t->host[i], t->count, 100 * dtype + i);
}

static void reduce_table(struct table *t, enum tutti_op op, enum tutti_rounding rounding) {
        const struct tutti_value in =
                TUTTI_VALUE(.buffer = t->in, .dtype = t->dtype, .n_dims = 1, .shape = { t->count });
        struct tutti_value out = in;
        struct tutti_work *w;
        if (op % 2)
                out.buffer = t->out;
        GPU(cuMemcpyHtoD, gpu_at(t->in), t->host[t->rank], t->n_bytes);
        expect_status(
                tutti_all_reduce_start(t->g, NULL, op, &in, &out, &TUTTI_OPTIONS(.rounding = rounding), &w),
                TUTTI_OK);
        end_work(w);
        GPU(cuMemcpyDtoH, t->got, gpu_at(out.buffer), t->n_bytes);
        if (rounding)
                oracle_mean_of_integers((enum dtype)t->dtype, (enum rounding)rounding,
                        (const void *const *)t->host, t->n, t->expected, t->count, t->n);
        else
                oracle_reduce((enum op)op, (enum dtype)t->dtype, (const void *const *)t->host, t->n,
                        t->expected, t->count, t->n);
        ptrdiff_t at = oracle_difference((enum dtype)t->dtype, t->got, t->expected, t->count);
        ck_assert_msg(at < 0, "%s of %s: [%td] is %s, not %s", op_name((enum op)op),
                tutti_dtype_name(t->dtype), at, oracle_show((enum dtype)t->dtype, t->got, (size_t)at),
                oracle_show((enum dtype)t->dtype, t->expected, (size_t)at));
}

static void body_numbers(struct replica *me) {
        struct table t = { .g = begin(me), .rank = me->rank, .n = me->n, .count = gpu_size(100003, 503) };
        const size_t n_bytes = t.count * 16;
        t.in = must_take(me->t, TUTTI_CUDA_VMM_MADE, n_bytes);
        t.out = must_take(me->t, TUTTI_CUDA_VMM_FD, n_bytes);
        t.expected = calloc(1, n_bytes);
        t.got = calloc(1, n_bytes);
        for (uint32_t i = 0; i < me->n; i++)
                t.host[i] = calloc(1, n_bytes);
        for (enum tutti_dtype d = TUTTI_U8; d <= TUTTI_C128; d++) {
                table_fill(&t, d);
                for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_LOR; op++)
                        if (op_is_supported((enum op)op, (enum dtype)d))
                                reduce_table(&t, op, TUTTI_ROUNDING_UNSPECIFIED);
                if (dtype_is_integer((enum dtype)d))
                        reduce_table(&t, TUTTI_MEAN, TUTTI_NEAREST);
        }
        leave(me);
}

START_TEST(P10_P13_every_op_and_type_is_the_oracles) {
        run(4, body_numbers, NULL);
}
END_TEST

/* --- deaths --- */

/* R1 is killed while R0's stream waits for it. */
static void body_bereaved(struct replica *me) {
        struct tutti_group *g = begin(me);
        CUstream s = gpu_stream();
        struct tutti_buffer *b = must_take(me->t, TUTTI_CUDA_VMM_MADE, N * sizeof(float));
        fill(b, 7);
        if (me->rank == 1) {
                replica_say(me, "ready");
                replica_hear(me, "nothing");
        }
        struct tutti_work *w = start_on(g, "a", b, s);
        replica_say(me, "ready");
        GPU(cuStreamSynchronize, s);
        expect_work(w, TUTTI_REPLICA_LOST);
        tutti_work_free(w);
        expect(b, 7);
        leave(me);
}

START_TEST(P5_a_stream_goes_on_when_a_client_is_killed) {
        struct replica *r[2];
        struct host *h = start();
        replicas_spawn(h, 2, body_bereaved, NULL, r);
        replicas_expect(r, 2, "ready", 60);
        replica_kill9(r[1]);
        ck_assert_int_eq(replica_end(r[0], 20), 0);
        stop(h);
}
END_TEST

/* Parent of a process, and whether it is tuttid-gpu. */
static pid_t parent_of(pid_t pid, bool *ret_is_worker) {
        char path[64], name[32] = "";
        int parent = 0;
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%*d (%31[^)]) %*c %d", name, &parent) != 2)
                parent = 0;
        if (f)
                fclose(f);
        *ret_is_worker = strcmp(name, "tuttid-gpu") == 0;
        return parent;
}

static bool is_worker_of(pid_t pid, pid_t tuttid) {
        bool is_worker, ignored;
        for (pid_t p = parent_of(pid, &is_worker); is_worker && p > 1; p = parent_of(p, &ignored))
                if (p == tuttid)
                        return true;
        return false;
}

static pid_t find_worker(const struct host *h) {
        pid_t found = 0;
        const struct dirent *e;
        DIR *d = opendir("/proc");
        ck_assert_ptr_nonnull(d);
        while (!found && (e = readdir(d))) {
                pid_t pid = atoi(e->d_name);
                if (pid > 0 && is_worker_of(pid, host_pid(h)))
                        found = pid;
        }
        closedir(d);
        return found;
}

/* What was under way may be lost, and says so; then it goes on with the same memory. */
static void body_worker(struct replica *me) {
        enum tutti_status status = TUTTI_DEVICE_LOST;
        struct tutti_group *g = begin(me);
        struct tutti_buffer *b =
                must_take(me->t, me->rank ? TUTTI_CUDA_VMM_FD : TUTTI_CUDA_VMM_MADE, N * sizeof(float));
        struct tutti_value v = floats(b);
        fill(b, 1);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
        expect(b, 2);
        replica_say(me, "ready");
        replica_hear(me, "go");
        for (int i = 0; i < 5 && status == TUTTI_DEVICE_LOST; i++) {
                fill(b, 3);
                status = tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v);
        }
        expect_status(status, TUTTI_OK);
        expect(b, 6);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        leave(me);
}

START_TEST(E14_a_killed_worker_is_replaced) {
        struct replica *r[2];
        struct host *h = start();
        replicas_spawn(h, 2, body_worker, NULL, r);
        replicas_expect(r, 2, "ready", 60);
        pid_t worker = find_worker(h);
        ck_assert_int_gt(worker, 0);
        ck_assert_int_eq(kill(worker, SIGKILL), 0);
        replicas_tell(r, 2, "go");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 30), 0);
        ck_assert_int_ne(find_worker(h), worker);
        stop(h);
}
END_TEST

UNIT_MAIN("gpu-suite", 60, N2_memory_that_tuttid_makes, N2_memory_by_its_descriptor,
        E8_memory_by_a_legacy_handle, N2_memory_copied_through_the_host, N4_device_and_host_in_one_collective,
        streams_wait_for_values_and_for_results_on_the_device, streams_wait_by_events_as_well,
        P10_P13_every_op_and_type_is_the_oracles, P5_a_stream_goes_on_when_a_client_is_killed,
        E14_a_killed_worker_is_replaced)
