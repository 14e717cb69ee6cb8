/* Several GPUs: which way a collective goes, and that every way gives the same (TA2 TA4 TA5 N2 N4). libtutti,
 * tuttid, tuttid-gpu and its CUDA backend, over a driver and an NCCL of our own in host memory, whose
 * counters tell what was done. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/axes.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "base/check.h"
#include "control.h"
#include "host.h"
#include "load.h"
#include "oracle.h"
#include "replica.h"
#include "unit.h"

#define SMALL UINT64_C(1000)
#define LARGE UINT64_C(100000) /* floats: beyond plan.library-from */

struct scene {
        uint32_t n_devices;
        const char *peers; /* "all", "none" */
        bool has_no_library;
        bool has_host_member; /* R0 */
        uint64_t count;
        enum tutti_dtype dtype;
        enum tutti_op op;
        struct tutti_options options;
};

static struct fakecuda *control;

static struct host *start(const struct scene *s) {
        char path[300], n_devices[12];
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        snprintf(n_devices, sizeof(n_devices), "%u", s->n_devices);
        unlink(path);
        setenv("FAKECUDA_CONTROL", path, 1);
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        setenv("FAKECUDA_PEERS", s->peers, 1);
        setenv("LD_LIBRARY_PATH", fakecuda_directory(), 1);
        control = fakecuda_open(path);
        ck_assert_ptr_nonnull(control);
        if (s->has_no_library)
                fakecuda_strike(control, &(struct fakecuda_strike){ .fault = FAKECUDA_FAILS,
                                                 .who = "tuttid-gpu",
                                                 .call = "ncclGetVersion",
                                                 .repeats = true,
                                                 .code = 1 });
        return host_start(NULL);
}

static void stop(struct host *h) {
        host_expect_counters_zero(h);
        host_stop(h);
        fakecuda_close(control);
}

/* Calls of NCCL's all-reduce, one for each device that took part. */
static uint64_t n_library_calls(void) {
        return fakecuda_calls(control, NULL, "ncclAllReduce");
}

/* Runs `n` replicas through `body`; how often NCCL was called for it. */
static uint64_t play(struct scene *s, uint32_t n, void (*body)(struct replica *me)) {
        struct host *h = start(s);
        run_replicas(h, n, body, s);
        uint64_t calls = n_library_calls();
        stop(h);
        return calls;
}

/* --- in a replica --- */

static struct fakecuda_functions cu;

static void ok(CUresult r) {
        ck_assert_int_eq(r, CUDA_SUCCESS);
}

static const struct scene *scene_of(const struct replica *me) {
        return me->arg;
}

static bool is_on_host(const struct replica *me) {
        return scene_of(me)->has_host_member && me->rank == 0;
}

static struct tutti_group *join(struct replica *me) {
        CUdevice device;
        CUcontext context;
        if (!is_on_host(me)) {
                fakecuda_load(&cu);
                ok(cu.cuInit(0));
                ok(cu.cuDeviceGet(&device, (int)(me->rank % scene_of(me)->n_devices)));
                ok(cu.cuDevicePrimaryCtxRetain(&context, device));
                ok(cu.cuCtxSetCurrent(context));
        }
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

/* The devices appear when they are tested. */
static struct tutti_buffer *take_buffer(struct replica *me, size_t n_bytes, bool is_on_gpu) {
        struct tutti_buffer *b = NULL;
        enum tutti_status status = TUTTI_BUSY;
        for (int i = 0; status == TUTTI_BUSY && i < 1000 * unit_scale(); i++) {
                status = is_on_gpu ? tutti_cuda_buffer_alloc(me->t, n_bytes, &b)
                                   : tutti_buffer_alloc(me->t, n_bytes, &b);
                if (status == TUTTI_BUSY)
                        usleep(10000);
        }
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        return b;
}

/* The fake goes, with what it has open, though libtutti has it too: this process uses it no more. */
static void leave(struct replica *me) {
        tutti_close(me->t);
        me->t = NULL;
        void *library;
        while (!is_on_host(me) && (library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
                ck_assert_int_eq(dlclose(library), 0);
                ck_assert_int_eq(dlclose(library), 0);
        }
}

static void put(struct tutti_buffer *b, bool is_on_gpu, const void *from, size_t n_bytes) {
        if (is_on_gpu)
                ok(cu.cuMemcpyHtoD((uintptr_t)tutti_buffer_data(b), from, n_bytes));
        else
                memcpy(tutti_buffer_data(b), from, n_bytes);
}

static void get(const struct tutti_buffer *b, bool is_on_gpu, void *to, size_t n_bytes) {
        if (is_on_gpu)
                ok(cu.cuMemcpyDtoH(to, (uintptr_t)tutti_buffer_data(b), n_bytes));
        else
                memcpy(to, tutti_buffer_data(b), n_bytes);
}

/* --- TA2, TA4: two values, every pair of destinations, every way --- */

enum to { TO_ALL, TO_LAST, TO_HOST, N_TO };

/* Inputs r and r + 1, each 4 floats; outputs on the GPU, and for TO_HOST in host memory. */
struct bench {
        struct tutti_buffer *in, *out, *host;
};

static struct tutti_entry entry_to(struct replica *me, enum to to, const struct tutti_value *in,
        struct tutti_value *ret_out, const struct bench *b, size_t offset) {
        bool is_mine = to != TO_LAST || me->rank == me->n - 1;
        *ret_out = *in;
        ret_out->buffer = to == TO_HOST ? b->host : b->out;
        ret_out->offset = offset;
        return TUTTI_ENTRY(.input = in, .output = is_mine ? ret_out : NULL,
                .destinations = { .where = to == TO_LAST ? TUTTI_TO_RANK : TUTTI_TO_ALL, .rank = me->n - 1 });
}

static void expect_four(struct replica *me, const struct bench *b, enum to to, size_t offset, float want) {
        float got[8];
        bool is_on_gpu = to != TO_HOST && !is_on_host(me);
        if (to == TO_LAST && me->rank != me->n - 1)
                want = -1; /* untouched */
        get(to == TO_HOST ? b->host : b->out, is_on_gpu, got, sizeof(got));
        for (size_t i = 0; i < 4; i++)
                ck_assert_float_eq(got[offset / sizeof(float) + i], want);
}

static void batch(struct replica *me, struct tutti_group *g, const struct bench *b, enum tutti_op op,
        const enum to to[2], const struct tutti_options *options) {
        static const float untouched[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };
        struct tutti_value in[2], out[2];
        struct tutti_entry entries[2];
        struct tutti_work *w;
        float d = (float)me->n, sum = d * (d - 1) / 2;
        put(b->out, !is_on_host(me), untouched, sizeof(untouched));
        put(b->host, false, untouched, sizeof(untouched));
        for (size_t i = 0; i < 2; i++) {
                in[i] = TUTTI_VALUE(.buffer = b->in, .offset = i * 4 * sizeof(float), .dtype = TUTTI_F32,
                        .n_dims = 1, .shape = { 4 });
                entries[i] = entry_to(me, to[i], &in[i], &out[i], b, i * 4 * sizeof(float));
        }
        ck_assert_msg(tutti_batch_reduce_start(g, NULL, op, entries, 2, options, &w) == TUTTI_OK, "%s",
                tutti_error());
        ck_assert_msg(tutti_work_wait(w, -1) == TUTTI_OK, "%s", tutti_work_error(w)->text);
        tutti_work_free(w);
        for (size_t i = 0; i < 2; i++) {
                float total = sum + (i ? d : 0);
                expect_four(me, b, to[i], i * 4 * sizeof(float), op == TUTTI_MEAN ? total / d : total);
        }
}

static void every_way(struct replica *me) {
        const struct tutti_options ways[] = {
                TUTTI_OPTIONS(.algorithm = NULL),
                TUTTI_OPTIONS(.algorithm = "one_device"),
                TUTTI_OPTIONS(.device = "CPU:0"), /* reduce_to_device */
                TUTTI_OPTIONS(.reproducible = 1),
                TUTTI_OPTIONS(.algorithm = "library", .num_packs = 1),
                TUTTI_OPTIONS(.algorithm = "library"),
                TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .num_packs = 8),
                TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .agg_small_grads_max_bytes = 100,
                        .agg_small_grads_max_group = 10),
        };
        struct tutti_group *g = join(me);
        bool is_on_gpu = !is_on_host(me);
        struct bench b = { take_buffer(me, 32, is_on_gpu), take_buffer(me, 32, is_on_gpu),
                take_buffer(me, 32, false) };
        float r = (float)me->rank, values[8] = { r, r, r, r, r + 1, r + 1, r + 1, r + 1 };
        put(b.in, is_on_gpu, values, sizeof(values));
        for (size_t way = 0; way < ARRAY_SIZE(ways); way++)
                for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_MEAN; op++)
                        for (enum to k = 0; k < N_TO * N_TO; k++)
                                batch(me, g, &b, op, (enum to[]){ k / N_TO, k % N_TO }, &ways[way]);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(b.in);
        tutti_buffer_free(b.out);
        tutti_buffer_free(b.host);
        leave(me);
}

START_TEST(TA2_TA4_every_way_and_pair_of_destinations_on_2_3_and_4_GPUs) {
        for (uint32_t n = 2; n <= 4; n++) {
                struct scene s = { .n_devices = n, .peers = "all" };
                ck_assert_uint_gt(play(&s, n, every_way), 0);
        }
}
END_TEST

START_TEST(TA2_TA4_the_same_without_peer_access) {
        for (uint32_t n = 2; n <= 4; n++) {
                struct scene s = { .n_devices = n, .peers = "none" };
                ck_assert_uint_gt(play(&s, n, every_way), 0);
        }
}
END_TEST

START_TEST(TA4_N4_the_same_with_a_host_member) {
        struct scene s = { .n_devices = 2, .peers = "all", .has_host_member = true };
        ck_assert_uint_gt(play(&s, 3, every_way), 0);
        s.peers = "none";
        ck_assert_uint_gt(play(&s, 3, every_way), 0);
}
END_TEST

/* --- one value, as the scene says --- */

static void *filled(const struct scene *s, uint32_t rank) {
        void *values = malloc(s->count * dtype_bytes((enum dtype)s->dtype));
        ck_assert_ptr_nonnull(values);
        if (s->options.reproducible)
                oracle_fill((enum dtype)s->dtype, values, s->count, 7 + rank);
        for (uint64_t i = 0; !s->options.reproducible && i < s->count; i++) {
                float v = (float)(i % 7 + rank);
                if (s->dtype == TUTTI_BF16)
                        ((uint16_t *)values)[i] = oracle_to_bf16((double)v);
                else
                        ((float *)values)[i] = v;
        }
        return values;
}

/* What the pass in rank order gives; sums of small whole numbers are that in any order. */
static void expect_result(struct replica *me, const struct tutti_buffer *b) {
        const struct scene *s = scene_of(me);
        const enum dtype dtype = (enum dtype)s->dtype;
        size_t n_bytes = s->count * dtype_bytes(dtype);
        void *inputs[16], *expected = malloc(n_bytes), *got = malloc(n_bytes);
        ck_assert(expected && got && me->n <= ARRAY_SIZE(inputs));
        for (uint32_t r = 0; r < me->n; r++)
                inputs[r] = filled(s, r);
        oracle_reduce((enum op)s->op, dtype, (const void *const *)inputs, me->n, expected, s->count, me->n);
        get(b, !is_on_host(me), got, n_bytes);
        ptrdiff_t at = oracle_difference(dtype, expected, got, s->count);
        ck_assert_msg(at < 0, "[%td] is %s, not %s", at, oracle_show(dtype, got, (size_t)at),
                oracle_show(dtype, expected, (size_t)at));
        for (uint32_t r = 0; r < me->n; r++)
                free(inputs[r]);
        free(expected);
        free(got);
}

static enum tutti_status reduce(struct replica *me, struct tutti_group *g, struct tutti_buffer *b) {
        const struct scene *s = scene_of(me);
        const struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = s->dtype, .n_dims = 1, .shape = { s->count });
        struct tutti_work *w;
        void *values = filled(s, me->rank);
        put(b, !is_on_host(me), values, s->count * dtype_bytes((enum dtype)s->dtype));
        free(values);
        struct tutti_options options = s->options;
        options.struct_size = sizeof(options);
        ck_assert_int_eq(tutti_all_reduce_start(g, NULL, s->op, &v, &v, &options, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        if (status != TUTTI_OK && status != TUTTI_DEVICE_LOST && status != TUTTI_ABORTED)
                ck_abort_msg("%s", tutti_work_error(w)->text);
        tutti_work_free(w);
        return status;
}

static void one_reduction(struct replica *me) {
        const struct scene *s = scene_of(me);
        struct tutti_group *g = join(me);
        struct tutti_buffer *b =
                take_buffer(me, s->count * dtype_bytes((enum dtype)s->dtype), !is_on_host(me));
        ck_assert_int_eq(reduce(me, g, b), TUTTI_OK);
        expect_result(me, b);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(TA5_size_peers_and_library_choose) {
        for (uint32_t n = 2; n <= 4; n++) {
                struct scene s = {
                        .n_devices = n, .peers = "all", .count = SMALL, .dtype = TUTTI_F32, .op = TUTTI_SUM
                };
                ck_assert_uint_eq(play(&s, n, one_reduction), 0); /* one kernel over peers */
                s.peers = "none";
                ck_assert_uint_eq(play(&s, n, one_reduction), n);
                s.count = LARGE;
                ck_assert_uint_eq(play(&s, n, one_reduction), n);
                s.peers = "all";
                ck_assert_uint_eq(play(&s, n, one_reduction), n);
                s.has_no_library = true;
                ck_assert_uint_eq(play(&s, n, one_reduction), 0);
                s.peers = "none";
                ck_assert_uint_eq(play(&s, n, one_reduction), 0); /* hierarchical copy */
        }
}
END_TEST

/* Means and sums of halves travel as f32. */
START_TEST(TA5_means_of_halves_by_library_and_hierarchy) {
        struct scene s = {
                .n_devices = 2, .peers = "all", .count = 300000, .dtype = TUTTI_BF16, .op = TUTTI_MEAN
        };
        ck_assert_uint_eq(play(&s, 4, one_reduction), 2);
        s.peers = "none";
        s.has_no_library = true;
        ck_assert_uint_eq(play(&s, 4, one_reduction), 0);
        s.op = TUTTI_SUM;
        ck_assert_uint_eq(play(&s, 4, one_reduction), 0);
}
END_TEST

START_TEST(N2_replicas_of_a_GPU_are_reduced_before_NCCL) {
        struct scene s = {
                .n_devices = 2, .peers = "all", .count = LARGE, .dtype = TUTTI_F32, .op = TUTTI_SUM
        };
        ck_assert_uint_eq(play(&s, 8, one_reduction), 2);
        s.has_host_member = true;
        s.options.algorithm = "library";
        ck_assert_uint_eq(play(&s, 5, one_reduction), 2);
}
END_TEST

START_TEST(P10_reproducible_is_the_order_of_ranks_to_the_bit) {
        struct scene s = { .n_devices = 3,
                .peers = "all",
                .count = LARGE,
                .dtype = TUTTI_F32,
                .op = TUTTI_SUM,
                .options = { .reproducible = 1 } };
        ck_assert_uint_eq(play(&s, 6, one_reduction), 0);
        s.peers = "none";
        s.count = 1200000; /* two rounds of what passes through host memory */
        ck_assert_uint_eq(play(&s, 4, one_reduction), 0);
        s.dtype = TUTTI_F16;
        s.op = TUTTI_MEAN;
        s.count = LARGE;
        s.has_host_member = true;
        ck_assert_uint_eq(play(&s, 4, one_reduction), 0);
}
END_TEST

static void from_everybody(struct replica *me) {
        const struct scene *s = scene_of(me);
        struct tutti_group *g = join(me);
        struct tutti_buffer *b = take_buffer(me, s->count * sizeof(float), !is_on_host(me));
        const struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { s->count });
        for (uint32_t root = 0; root < me->n; root++) {
                float *values = filled(s, me->rank), *want = filled(s, root);
                put(b, !is_on_host(me), values, s->count * sizeof(float));
                ck_assert_msg(tutti_broadcast(g, NULL, root, &v) == TUTTI_OK, "%s", tutti_error());
                get(b, !is_on_host(me), values, s->count * sizeof(float));
                ck_assert_mem_eq(values, want, s->count * sizeof(float));
                free(values);
                free(want);
        }
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(TA3_broadcast_from_every_GPU_with_and_without_peers) {
        struct scene s = { .n_devices = 3, .peers = "all", .count = SMALL, .dtype = TUTTI_F32 };
        play(&s, 4, from_everybody);
        s.peers = "none";
        play(&s, 4, from_everybody);
        s.has_host_member = true;
        play(&s, 4, from_everybody);
}
END_TEST

/* --- along axes --- */

static enum tutti_status gather_columns(
        struct replica *me, struct tutti_group *g, struct tutti_buffer *in, struct tutti_buffer *out) {
        const struct tutti_value from =
                TUTTI_VALUE(.buffer = in, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 3, me->rank + 1 });
        const struct tutti_value to =
                TUTTI_VALUE(.buffer = out, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 3, 40 });
        return tutti_all_gather(g, NULL, 1, &from, &to, NULL);
}

/* Where one GPU reaches all it copies, and where none does that is said; a host's part of it comes along. */
static void along_axes(struct replica *me) {
        const struct scene *s = scene_of(me);
        struct tutti_group *g = join(me);
        bool is_on_gpu = !is_on_host(me), has_peers = strcmp(s->peers, "all") == 0;
        struct tutti_buffer *in = take_buffer(me, 200 * sizeof(float), is_on_gpu),
                            *out = take_buffer(me, 200 * sizeof(float), is_on_gpu);
        float values[200], got[200];
        uint32_t total = me->n * (me->n + 1) / 2, k = 0;
        for (uint32_t i = 0; i < 200; i++)
                values[i] = (float)(100 * me->rank + i);
        put(in, is_on_gpu, values, sizeof(values));
        enum tutti_status status = gather_columns(me, g, in, out);
        ck_assert_msg(status == (has_peers ? TUTTI_OK : TUTTI_UNSUPPORTED), "%s", tutti_error());
        if (!has_peers)
                ck_assert_ptr_nonnull(strstr(tutti_error(), "there is none that reaches all of these GPUs"));
        get(out, is_on_gpu, got, sizeof(got));
        for (uint32_t row = 0; has_peers && row < 3; row++)
                for (uint32_t rank = 0; rank < me->n; rank++)
                        for (uint32_t i = 0; i <= rank; i++)
                                ck_assert_float_eq(got[k++], (float)(100 * rank + row * (rank + 1) + i));
        ck_assert_uint_eq(k, has_peers ? 3 * total : 0);
        const struct tutti_value whole =
                TUTTI_VALUE(.buffer = in, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 2, total });
        const struct tutti_value slice =
                TUTTI_VALUE(.buffer = out, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 2, me->rank + 1 });
        struct tutti_entry e = TUTTI_ENTRY(.input = &whole, .output = &slice);
        status = tutti_reduce_scatter(
                g, &TUTTI_REDUCE_SCATTER(.op = TUTTI_MEAN, .axis = 1, .entries = &e, .n_entries = 1));
        ck_assert_msg(status == (has_peers ? TUTTI_OK : TUTTI_UNSUPPORTED), "%s", tutti_error());
        get(out, is_on_gpu, got, sizeof(got));
        for (uint32_t i = 0; has_peers && i < 2 * (me->rank + 1); i++) {
                uint32_t row = i / (me->rank + 1), column = i % (me->rank + 1);
                ck_assert_float_eq(
                        got[i], 50 * (float)(me->n - 1) +
                                        (float)(row * total + me->rank * (me->rank + 1) / 2 + column));
        }
        const struct tutti_value row =
                TUTTI_VALUE(.buffer = out, .dtype = TUTTI_F32, .n_dims = 1, .shape = { total });
        e.output = &row;
        status = tutti_reduce_over(g, &TUTTI_REDUCE_OVER(.op = TUTTI_SUM, .axes = (int32_t[]){ 0 },
                                              .n_axes = 1, .entries = &e, .n_entries = 1));
        ck_assert_msg(status == (has_peers ? TUTTI_OK : TUTTI_UNSUPPORTED), "%s", tutti_error());
        if (!has_peers)
                ck_assert_ptr_nonnull(strstr(tutti_error(), "over axes one device reads all values"));
        get(out, is_on_gpu, got, sizeof(got));
        for (uint32_t i = 0; has_peers && i < total; i++)
                ck_assert_float_eq(got[i], (float)(100 * me->n * (me->n - 1) + me->n * (total + 2 * i)));
        tutti_buffer_free(in);
        tutti_buffer_free(out);
        leave(me);
}

START_TEST(TE14_gathers_slices_and_axes_where_one_GPU_reaches_all) {
        struct scene s = { .n_devices = 2, .peers = "all" };
        play(&s, 3, along_axes);
        s.has_host_member = true;
        play(&s, 3, along_axes);
        s.has_host_member = false;
        s.peers = "none";
        play(&s, 3, along_axes);
}
END_TEST

/* --- what the next process finds is what counts --- */

static void through_a_loss(struct replica *me) {
        const struct scene *s = scene_of(me);
        struct tutti_group *g = join(me);
        struct tutti_buffer *b = take_buffer(me, s->count * sizeof(float), true);
        ck_assert_int_eq(reduce(me, g, b), TUTTI_OK);
        expect_result(me, b);
        replica_say(me, "ready");
        replica_hear(me, "go");
        ck_assert_int_eq(reduce(me, g, b), TUTTI_DEVICE_LOST);
        /* What is handed in before the new process has been tested is planned by what there was. */
        while (reduce(me, g, b) != TUTTI_OK)
                ;
        replica_say(me, "again");
        replica_hear(me, "go on");
        ck_assert_int_eq(reduce(me, g, b), TUTTI_OK);
        expect_result(me, b);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(E14_a_process_without_NCCL_goes_on_without) {
        struct scene s = {
                .n_devices = 2, .peers = "all", .count = LARGE, .dtype = TUTTI_F32, .op = TUTTI_SUM
        };
        struct host *h = start(&s);
        struct replica *r[2];
        replicas_spawn(h, 2, through_a_loss, &s, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "ready", 30);
        ck_assert_uint_eq(n_library_calls(), 2);
        fakecuda_strike(control, &(struct fakecuda_strike){ .fault = FAKECUDA_FAILS,
                                         .who = "tuttid-gpu",
                                         .call = "ncclGetVersion",
                                         .repeats = true,
                                         .code = 1 });
        fakecuda_strike(
                control, &(struct fakecuda_strike){
                                 .fault = FAKECUDA_STICKS, .who = "tuttid-gpu", .call = "ncclAllReduce" });
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "again", 30);
        uint64_t before = n_library_calls();
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go on");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 60), 0);
        ck_assert_uint_eq(n_library_calls(), before);
        stop(h);
}
END_TEST

UNIT_MAIN("gpus", 120, TE14_gathers_slices_and_axes_where_one_GPU_reaches_all,
        TA5_size_peers_and_library_choose, TA5_means_of_halves_by_library_and_hierarchy,
        TA2_TA4_every_way_and_pair_of_destinations_on_2_3_and_4_GPUs, TA2_TA4_the_same_without_peer_access,
        TA4_N4_the_same_with_a_host_member, N2_replicas_of_a_GPU_are_reduced_before_NCCL,
        P10_reproducible_is_the_order_of_ranks_to_the_bit,
        TA3_broadcast_from_every_GPU_with_and_without_peers, E14_a_process_without_NCCL_goes_on_without)
