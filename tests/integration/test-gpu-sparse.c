/* Sparse values in device memory, through tuttid and tuttid-gpu, on the fake driver: what is refused before
 * anything is written, streams, result objects, broadcasts, memory that is copied, GPUs that do not reach
 * each other. That the numbers are those of the oracle shows gpu-sparse-random. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "base/check.h"
#include "gpu-host.h"
#include "meeting.h"

#define DENSE   10
#define ROW     3
#define MOST    16 /* rows of an output */
#define UNUSED  0x55
#define N_DENSE 5000

/* Rows, then their indices, of what this replica brings and gets, then a dense value. */
struct layout {
        float in[4][ROW];
        int64_t in_indices[4];
        float out[MOST][ROW];
        int64_t out_indices[MOST];
        float dense[N_DENSE];
};

struct scene {
        const char *n_devices, *peers;
        bool has_host_member;  /* the last one */
        const char *reducer;   /* all are on the host, and this GPU is to reduce */
        bool is_staged;        /* device memory that libtutti copies */
        bool is_pinned_denied; /* host memory that tuttid-gpu copies */
};

struct half {
        struct replica *me;
        struct tutti_group *g;
        struct tutti_buffer *buffer;
        struct layout *at; /* the processor reads and writes the fake's memory */
        struct tutti_value in, in_indices, out, out_indices, dense;
        bool has_driver;
};

/* --- the scene --- */

static void play(const struct scene *s, uint32_t n, void (*body)(struct replica *me)) {
        setenv("FAKECUDA_PEERS", s->peers ? s->peers : "all", 1);
        if (s->is_pinned_denied) {
                setenv("FAKECUDA_ONLY", "tuttid-gpu", 1);
                setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+=CUDA_ERROR_OUT_OF_MEMORY", 1);
        }
        board_init();
        struct host *h = gpu_host_start(s->n_devices, NULL);
        run_replicas(h, n, body, (void *)s);
        gpu_host_stop(h);
        unlink(getenv("FAKECUDA_CONTROL"));
}

static struct tutti_buffer *take_staged(struct tutti *t) {
        struct tutti_buffer *b;
        CUdeviceptr p;
        ck_assert_int_eq(gpu_cu.cuMemAlloc(&p, sizeof(struct layout)), CUDA_SUCCESS);
        expect_status(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, sizeof(struct layout),
                              &TUTTI_CUDA_ARGS(.path = TUTTI_CUDA_STAGED), &b),
                TUTTI_OK);
        return b;
}

static void place(struct half *h) {
        const struct scene *s = h->me->arg;
        bool is_on_host = s->reducer || (s->has_host_member && h->me->rank + 1 == h->me->n);
        h->has_driver = s->reducer || !is_on_host;
        if (h->has_driver) {
                gpu_use_device((int)(h->me->rank % (uint32_t)atoi(s->n_devices)));
                h->buffer = gpu_take_buffer(h->me->t, sizeof(struct layout) / sizeof(float));
        }
        if (is_on_host || s->is_staged) /* the devices have been tested now, where that matters */
                tutti_buffer_free(h->buffer);
        if (is_on_host)
                expect_status(tutti_buffer_alloc(h->me->t, sizeof(struct layout), &h->buffer), TUTTI_OK);
        else if (s->is_staged)
                h->buffer = take_staged(h->me->t);
}

static struct tutti_value value_at(const struct half *h, size_t offset, enum tutti_dtype dtype, uint64_t n) {
        return TUTTI_VALUE(.buffer = h->buffer, .offset = offset, .dtype = dtype, .n_dims = 1,
                .shape = { n });
}

static void set_rows(struct half *h, uint64_t k, uint64_t room) {
        h->in_indices = value_at(h, offsetof(struct layout, in_indices), TUTTI_I64, k);
        h->out_indices = value_at(h, offsetof(struct layout, out_indices), TUTTI_I64, room);
        h->in = value_at(h, offsetof(struct layout, in), TUTTI_F32, k);
        h->out = value_at(h, offsetof(struct layout, out), TUTTI_F32, room);
        h->in.n_dims = h->out.n_dims = 2;
        h->in.shape[1] = h->out.shape[1] = ROW;
        h->in.indices = &h->in_indices;
        h->out.indices = &h->out_indices;
        h->in.dense_rows = h->out.dense_rows = DENSE;
}

/* R brings the rows R, R + 1 and 9, each element 10 * R + row. */
static void bring(struct half *h) {
        const int64_t r = h->me->rank;
        memset(h->at->out, UNUSED, sizeof(h->at->out));
        memset(h->at->out_indices, UNUSED, sizeof(h->at->out_indices));
        for (int64_t i = 0; i < 3; i++) {
                h->at->in_indices[i] = i < 2 ? r + i : 9;
                for (int k = 0; k < ROW; k++)
                        h->at->in[i][k] = (float)(10 * r + i);
        }
        for (size_t i = 0; i < N_DENSE; i++)
                h->at->dense[i] = (float)r;
}

static void begin(struct half *h, struct replica *me) {
        *h = (struct half){ .me = me, .g = join_train(me, TUTTI_FAIL) };
        place(h);
        h->at = tutti_buffer_data(h->buffer);
        h->dense = value_at(h, offsetof(struct layout, dense), TUTTI_F32, N_DENSE);
        set_rows(h, 3, MOST);
        bring(h);
}

static void end(struct half *h) {
        expect_status(tutti_barrier(h->g, NULL), TUTTI_OK);
        if (h->has_driver)
                gpu_leave(h->me, h->buffer);
        else
                tutti_buffer_free(h->buffer);
}

/* --- what comes out --- */

static void expect_unused(const void *from, const void *end) {
        for (const uint8_t *p = from; p < (const uint8_t *)end; p++)
                ck_assert_uint_eq(*p, UNUSED);
}

static void expect_nothing_written(const struct half *h) {
        expect_unused(h->at->out, h->at->out + MOST);
        expect_unused(h->at->out_indices, h->at->out_indices + MOST);
        for (size_t i = 0; i < N_DENSE; i++)
                ck_assert_float_eq(h->at->dense[i], (float)h->me->rank);
}

static void expect_end_to_end(const struct half *h) {
        for (uint32_t r = 0, at = 0; r < h->me->n; r++)
                for (int i = 0; i < 3; i++, at++) {
                        ck_assert_int_eq(h->at->out_indices[at], i < 2 ? (int64_t)r + i : 9);
                        for (int k = 0; k < ROW; k++)
                                ck_assert_float_eq(h->at->out[at][k], (float)(10 * (int)r + i));
                }
        expect_unused(&h->at->out[(size_t)3 * h->me->n], h->at->out + MOST);
        expect_unused(&h->at->out_indices[(size_t)3 * h->me->n], h->at->out_indices + MOST);
}

/* The indices 0 to n, and 9. */
static void expect_coalesced(const struct half *h) {
        const int n = (int)h->me->n;
        for (int at = 0; at < n + 2; at++) {
                float sum = 0;
                for (int r = 0; r < n; r++)
                        sum += at == n + 1 ? (float)(10 * r + 2) : 0;
                if (at < n)
                        sum += (float)(10 * at);
                if (at > 0 && at <= n)
                        sum += (float)(10 * (at - 1) + 1);
                ck_assert_int_eq(h->at->out_indices[at], at == n + 1 ? 9 : at);
                for (int k = 0; k < ROW; k++)
                        ck_assert_float_eq(h->at->out[at][k], sum);
        }
        expect_unused(h->at->out + n + 2, h->at->out + MOST);
        expect_unused(h->at->out_indices + n + 2, h->at->out_indices + MOST);
}

/* A dense value and a sparse one, in a batch; the dense one in place. */
static struct tutti_work *start(struct half *h, int coalesce, void *stream) {
        const struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &h->dense, .output = &h->dense),
                TUTTI_ENTRY(.input = &h->in, .output = &h->out) };
        const struct scene *s = h->me->arg;
        const struct tutti_options options = TUTTI_OPTIONS(.coalesce = coalesce, .has_stream = stream != NULL,
                .stream = stream, .device = s->reducer);
        struct tutti_work *w;
        expect_status(tutti_batch_reduce_start(h->g, NULL, TUTTI_SUM, entries, 2, &options, &w), TUTTI_OK);
        return w;
}

static void expect_batch(struct half *h, struct tutti_work *w, int coalesce) {
        uint64_t total, first;
        const float sum = (float)(h->me->n * (h->me->n - 1) / 2);
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_extent(w, 1, &total, &first), TUTTI_OK);
        ck_assert_uint_eq(total, coalesce ? h->me->n + 2 : 3 * h->me->n);
        tutti_work_free(w);
        for (size_t i = 0; i < N_DENSE; i++)
                ck_assert_float_eq(h->at->dense[i], sum);
        if (coalesce)
                expect_coalesced(h);
        else
                expect_end_to_end(h);
}

/* --- dense and sparse values in one batch --- */

static void dense_and_sparse(struct replica *me) {
        struct half h;
        begin(&h, me);
        for (int i = 0; i < 4; i++) {
                bring(&h);
                expect_batch(&h, start(&h, i % 2, NULL), i % 2);
        }
        end(&h);
}

START_TEST(TB6_dense_and_sparse_in_one_batch_on_one_gpu) {
        play(&(struct scene){ .n_devices = "1" }, 1, dense_and_sparse);
        play(&(struct scene){ .n_devices = "1" }, 4, dense_and_sparse);
}
END_TEST

START_TEST(TB6_the_same_on_gpus_that_reach_each_other_and_with_a_host_member) {
        play(&(struct scene){ .n_devices = "3" }, 4, dense_and_sparse);
        play(&(struct scene){ .n_devices = "2", .has_host_member = true }, 3, dense_and_sparse);
        play(&(struct scene){ .n_devices = "2", .reducer = "GPU:1" }, 3, dense_and_sparse);
}
END_TEST

START_TEST(F8_the_same_with_memory_that_is_copied) {
        play(&(struct scene){ .n_devices = "1", .is_staged = true }, 2, dense_and_sparse);
        play(&(struct scene){ .n_devices = "1", .has_host_member = true, .is_pinned_denied = true }, 3,
                dense_and_sparse);
}
END_TEST

/* --- refused --- */

static void expect_refusal(struct half *h, int coalesce, enum tutti_field field, const char *text) {
        struct tutti_work *w = start(h, coalesce, NULL);
        expect_work(w, TUTTI_INVALID);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->field, field);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->entry, 1);
        ck_assert_int_eq(e->outputs_undefined, 0);
        expect_in(e->text, text);
        tutti_work_free(w);
        expect_nothing_written(h);
}

/* R1's is told, whatever R2 has; then all is as it was. */
static void bad_indices(struct replica *me) {
        static const int64_t bad[] = { -1, DENSE, INT64_MIN, INT64_MAX };
        struct half h;
        char text[80];
        begin(&h, me);
        for (int i = 0; i < 8; i++) {
                bring(&h);
                for (int at = i % 3; me->rank >= 1 && at < 3; at++)
                        h.at->in_indices[at] = bad[i / 2];
                snprintf(text, sizeof(text), "R1 brings the index %lld at position %d of entry 1",
                        (long long)bad[i / 2], i % 3);
                expect_refusal(&h, i % 2, TUTTI_FIELD_INDICES, text);
        }
        bring(&h);
        expect_batch(&h, start(&h, 1, NULL), 1);
        end(&h);
}

START_TEST(P4_an_index_that_names_no_row_is_refused_for_all_and_nothing_is_written) {
        play(&(struct scene){ .n_devices = "1" }, 3, bad_indices);
        play(&(struct scene){ .n_devices = "2" }, 3, bad_indices);
        play(&(struct scene){ .n_devices = "1", .has_host_member = true, .is_pinned_denied = true }, 3,
                bad_indices);
}
END_TEST

static void short_outputs(struct replica *me) {
        struct half h;
        begin(&h, me);
        for (int coalesce = 0; coalesce < 2; coalesce++) {
                set_rows(&h, 3, me->rank == 1 ? 3 : MOST);
                expect_refusal(&h, coalesce, TUTTI_FIELD_SIZE,
                        coalesce ? "has 4 rows, and the output of R1 has room for 3"
                                 : "has 6 rows, and the output of R1 has room for 3");
        }
        set_rows(&h, 3, me->rank == 1 ? 4 : MOST);
        expect_batch(&h, start(&h, 1, NULL), 1);
        end(&h);
}

START_TEST(P4_an_output_without_room_is_refused_for_all_and_nothing_is_written) {
        play(&(struct scene){ .n_devices = "1" }, 2, short_outputs);
        play(&(struct scene){ .n_devices = "2" }, 2, short_outputs);
}
END_TEST

static void out_of_reach(struct replica *me) {
        struct half h;
        begin(&h, me);
        expect_status(tutti_all_reduce(h.g, NULL, TUTTI_SUM, &h.in, &h.out), TUTTI_UNSUPPORTED);
        expect_in(tutti_error(), "there is none that reaches all of these GPUs");
        expect_status(tutti_broadcast(h.g, NULL, 0, &h.out), TUTTI_UNSUPPORTED);
        expect_in(tutti_error(), "there is none that reaches all of these GPUs");
        expect_nothing_written(&h);
        end(&h);
}

START_TEST(P15_gpus_that_do_not_reach_each_other_are_refused_with_the_reason) {
        play(&(struct scene){ .n_devices = "2", .peers = "none" }, 2, out_of_reach);
}
END_TEST

/* --- streams --- */

/* What writes the values is in the stream before the collective, what reads the result behind it. */
static void in_order(struct replica *me) {
        struct half h;
        CUstream stream;
        struct layout *pinned;
        begin(&h, me);
        ck_assert_int_eq(tutti_cuda_order(me->t, NULL), TUTTI_CUDA_TIMELINE);
        ck_assert_int_eq(gpu_cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        ck_assert_int_eq(gpu_cu.cuMemHostAlloc((void **)&pinned, 2 * sizeof(*pinned), 0), CUDA_SUCCESS);
        memcpy(&pinned[0], h.at, sizeof(*pinned));
        for (int is_bad = 0; is_bad < 2; is_bad++) {
                memset(h.at, UNUSED, sizeof(*h.at));
                if (is_bad && me->rank == 1)
                        pinned[0].in_indices[2] = DENSE;
                ck_assert_int_eq(
                        gpu_cu.cuMemcpyHtoDAsync((uintptr_t)h.at, &pinned[0], sizeof(*pinned), stream),
                        CUDA_SUCCESS);
                struct tutti_work *w = start(&h, 1, stream);
                ck_assert_int_eq(
                        gpu_cu.cuMemcpyDtoHAsync(&pinned[1], (uintptr_t)h.at, sizeof(*pinned), stream),
                        CUDA_SUCCESS);
                ck_assert_int_eq(gpu_cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
                struct half seen = h;
                seen.at = &pinned[1];
                if (is_bad) {
                        expect_work(w, TUTTI_INVALID);
                        expect_in(tutti_work_error(w)->text, "R1 brings the index 10 at position 2");
                        tutti_work_free(w);
                        expect_nothing_written(&seen);
                } else {
                        expect_batch(&seen, w, 1);
                }
        }
        end(&h);
}

START_TEST(a_stream_waits_for_the_result_and_goes_on_when_an_index_is_bad) {
        play(&(struct scene){ .n_devices = "1" }, 2, in_order);
        play(&(struct scene){ .n_devices = "2" }, 3, in_order);
}
END_TEST

/* R0's stream is held: nothing is looked at, and nothing written. */
static void never_there(struct replica *me) {
        struct half h;
        CUstream stream;
        begin(&h, me);
        ck_assert_int_eq(gpu_cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        replica_say(me, "%d", (int)getpid());
        replica_hear(me, "go");
        ck_assert_int_eq(gpu_cu.cuMemsetD8Async((uintptr_t)h.at->in, 0, 1, stream), CUDA_SUCCESS);
        struct tutti_work *w = start(&h, 1, stream);
        expect_work(w, TUTTI_TIMEOUT);
        expect_in(tutti_work_error(w)->text, "the stream of R0 has not come so far");
        tutti_work_free(w);
        expect_nothing_written(&h);
        replica_say(me, "told");
        replica_hear(me, "end");
        ck_assert_int_eq(gpu_cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        end(&h);
}

START_TEST(who_never_signals_is_not_waited_for_and_nothing_is_written) {
        static const struct scene s = { .n_devices = "1" };
        struct replica *r[2];
        char who[32];
        board_init();
        struct host *h = gpu_host_start("1", (const char *[]){ "--set", "gpu.signal-timeout=500ms", NULL });
        replicas_spawn(h, 2, never_there, (void *)&s, r);
        snprintf(who, sizeof(who), "#%s", replica_listen(r[0], 10));
        replica_listen(r[1], 10);
        fakecuda_hold(gpu_control, who, "cuMemsetD8Async");
        replicas_tell(r, 2, "go");
        replicas_expect(r, 2, "told", 15);
        fakecuda_release(gpu_control);
        replicas_tell(r, 2, "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        gpu_host_stop(h);
}
END_TEST

/* --- one to all, and into a result object --- */

static void from_the_root(struct replica *me) {
        struct half h;
        const uint32_t root = 1;
        begin(&h, me);
        if (me->rank == root) {
                memcpy(h.at->out, h.at->in, sizeof(h.at->in));
                memcpy(h.at->out_indices, h.at->in_indices, sizeof(h.at->in_indices));
                set_rows(&h, 3, 3);
        }
        expect_status(tutti_broadcast(h.g, NULL, root, &h.out), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->extent, 3);
        for (int i = 0; i < 3; i++) {
                ck_assert_int_eq(h.at->out_indices[i], i < 2 ? 1 + i : 9);
                ck_assert_float_eq(h.at->out[i][ROW - 1], (float)(10 + i));
        }
        if (me->rank != root)
                expect_unused(h.at->out + 3, h.at->out + MOST);
        end(&h);
}

START_TEST(TC3_a_broadcast_gives_the_roots_rows_and_indices) {
        play(&(struct scene){ .n_devices = "1" }, 3, from_the_root);
        play(&(struct scene){ .n_devices = "3", .has_host_member = true }, 4, from_the_root);
}
END_TEST

static void to_an_object(struct replica *me) {
        struct half h;
        struct tutti_object *o;
        begin(&h, me);
        expect_status(
                tutti_object_make(h.g, &TUTTI_OBJECT(.name = "rows", .n_bytes = 4096, .device = "GPU:0"), &o),
                TUTTI_OK);
        const struct tutti_value ids =
                TUTTI_VALUE(.object = o, .offset = 1024, .dtype = TUTTI_I64, .n_dims = 1, .shape = { MOST });
        const struct tutti_value rows = TUTTI_VALUE(.object = o, .dtype = TUTTI_F32, .n_dims = 2,
                .shape = { MOST, ROW }, .indices = &ids, .dense_rows = DENSE);
        const struct tutti_options options = TUTTI_OPTIONS(.coalesce = 1);
        struct tutti_work *w;
        struct tutti_result result = { 0 };
        expect_status(tutti_all_reduce_start(h.g, NULL, TUTTI_SUM, &h.in, &rows, &options, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        ck_assert_uint_eq(result.extent, me->n + 2);
        tutti_work_free(w);
        const uint8_t *slot = tutti_object_data(o, result.slot);
        memcpy(h.at->out, slot, (me->n + 2) * sizeof(h.at->out[0]));
        memcpy(h.at->out_indices, slot + 1024, (me->n + 2) * sizeof(int64_t));
        expect_coalesced(&h);
        expect_status(tutti_object_release(o, result.slot), TUTTI_OK);
        expect_status(tutti_barrier(h.g, NULL), TUTTI_OK);
        tutti_object_free(o);
        end(&h);
}

START_TEST(rows_of_equal_index_go_into_a_result_object_on_a_gpu) {
        play(&(struct scene){ .n_devices = "2" }, 2, to_an_object);
}
END_TEST

UNIT_MAIN("gpu-sparse", 120, TB6_dense_and_sparse_in_one_batch_on_one_gpu,
        TB6_the_same_on_gpus_that_reach_each_other_and_with_a_host_member,
        F8_the_same_with_memory_that_is_copied,
        P4_an_index_that_names_no_row_is_refused_for_all_and_nothing_is_written,
        P4_an_output_without_room_is_refused_for_all_and_nothing_is_written,
        P15_gpus_that_do_not_reach_each_other_are_refused_with_the_reason,
        a_stream_waits_for_the_result_and_goes_on_when_an_index_is_bad,
        who_never_signals_is_not_waited_for_and_nothing_is_written,
        TC3_a_broadcast_gives_the_roots_rows_and_indices,
        rows_of_equal_index_go_into_a_result_object_on_a_gpu)
