/* The host backend at work: plans give the oracle's numbers however they are cut, and memory that fails under
 * a run ends that run alone. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "backends/host/host-float.h"
#include "backends/host/host-self-test.h"
#include "backends/host/kernels.h"
#include "host-memory.h"
#include "oracle.h"

#define MAX_RANKS 4

/* Four values one behind the other in a buffer of each rank, as a batch has them: dtype, op, odd counts. */
struct value {
        enum op op;
        enum dtype dtype;
        uint64_t count, offset_bytes;
};

static const struct value batch[] = {
        { OP_SUM, DTYPE_F32, 100003, 4 },
        { OP_MEAN, DTYPE_F16, 70001, 400064 },
        { OP_MAX, DTYPE_F64, 40009, 600064 },
        { OP_SUM, DTYPE_U8, 99991, 1000001 },
};
#define BATCH_BYTES (1100u * 1024)

static void fill_batch(struct buffer buffers[MAX_RANKS]) {
        for (int r = 0; r < MAX_RANKS; r++) {
                memset(buffers[r].data, 0, BATCH_BYTES);
                for (size_t v = 0; v < ARRAY_SIZE(batch); v++)
                        oracle_fill(batch[v].dtype, buffers[r].data + batch[v].offset_bytes, batch[v].count,
                                r * 100 + v);
        }
}

/* What each rank's buffer must hold afterwards, for the values and for the gaps between them. */
static void expect_batch(struct buffer buffers[MAX_RANKS], uint8_t *expected) {
        memset(expected, 0, BATCH_BYTES);
        for (size_t v = 0; v < ARRAY_SIZE(batch); v++) {
                const void *inputs[MAX_RANKS];
                for (int r = 0; r < MAX_RANKS; r++)
                        inputs[r] = buffers[r].data + batch[v].offset_bytes;
                oracle_reduce(batch[v].op, batch[v].dtype, inputs, MAX_RANKS,
                        expected + batch[v].offset_bytes, batch[v].count, MAX_RANKS);
        }
}

/* In place at every rank. */
static void plan_batch(struct plan *p, struct buffer buffers[MAX_RANKS]) {
        for (size_t v = 0; v < ARRAY_SIZE(batch); v++) {
                struct spot places[2 * MAX_RANKS];
                for (int i = 0; i < 2 * MAX_RANKS; i++)
                        places[i] = (struct spot){ &buffers[i % MAX_RANKS], batch[v].offset_bytes };
                add_step(p,
                        &(struct step){ .kind = STEP_REDUCE,
                                .op = batch[v].op,
                                .dtype = batch[v].dtype,
                                .n_inputs = MAX_RANKS,
                                .n_outputs = MAX_RANKS,
                                .divisor = MAX_RANKS,
                                .count = batch[v].count },
                        places);
        }
}

static void assert_batch(struct buffer buffers[MAX_RANKS], const uint8_t *expected, const char *how) {
        uint64_t end = 0;
        for (size_t v = 0; v < ARRAY_SIZE(batch); v++) {
                const uint8_t *want = expected + batch[v].offset_bytes;
                const uint8_t *got = buffers[0].data + batch[v].offset_bytes;
                ptrdiff_t i = oracle_difference(batch[v].dtype, got, want, batch[v].count);
                ck_assert_msg(i < 0, "%s: value %zu, element %td", how, v, i);
                for (uint64_t gap = end; gap < batch[v].offset_bytes; gap++)
                        ck_assert_uint_eq(buffers[0].data[gap], 0);
                end = batch[v].offset_bytes + batch[v].count * dtype_bytes(batch[v].dtype);
        }
        for (int r = 1; r < MAX_RANKS; r++)
                ck_assert_mem_eq(buffers[r].data, buffers[0].data, BATCH_BYTES);
}

START_TEST(D6_D7_a_batch_gives_the_same_bits_in_chunks_of_any_size) {
        static const uint64_t chunk_bytes[] = { 4096, 8192, 65536, 64, 100032, 1 << 20, 1 << 30 };
        struct backend *b = new_backend();
        struct buffer buffers[MAX_RANKS];
        uint8_t *expected = malloc(BATCH_BYTES);
        struct plan p;
        const struct memory *culprit = NULL;
        ck_assert_ptr_nonnull(expected);
        plan_init(&p);
        for (int r = 0; r < MAX_RANKS; r++)
                buffer_init(&buffers[r], b, BATCH_BYTES, r);
        for (size_t i = 0; i < ARRAY_SIZE(chunk_bytes); i++) {
                char how[64];
                snprintf(how, sizeof(how), "chunks of %llu", (unsigned long long)chunk_bytes[i]);
                fill_batch(buffers);
                expect_batch(buffers, expected);
                plan_reset(&p);
                plan_batch(&p, buffers);
                plan_freeze(&p, chunk_bytes[i]);
                ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_OK);
                assert_batch(buffers, expected, how);
        }
        for (int r = 0; r < MAX_RANKS; r++)
                buffer_deinit(&buffers[r], b);
        plan_deinit(&p);
        free(expected);
        b->ops->free(b);
}
END_TEST

/* --- checks --- */

static struct findings run_checked(struct backend *b, const struct plan *p) {
        struct findings found = { 0 };
        const struct memory *culprit;
        for (uint64_t chunk = 0; chunk < p->n_chunks; chunk++)
                ck_assert_int_eq(b->ops->run_chunk(b, p, chunk, &found, &culprit), STATUS_OK);
        return found;
}

static void expect_finding(
        const struct finding *f, uint64_t n, uint32_t rank, uint32_t entry, uint64_t index) {
        ck_assert_uint_eq(f->n, n);
        ck_assert_uint_eq(f->rank, rank);
        ck_assert_uint_eq(f->entry, entry);
        ck_assert_uint_eq(f->index, index);
}

#define N_CHECKED 100003

/* Two inputs, of ranks 3 and 7, in place; f32 and i32 have one size. */
static void plan_checked(struct plan *p, struct buffer buffers[2], const struct step *like) {
        struct step step = *like;
        step.kind = STEP_REDUCE;
        step.n_inputs = step.n_outputs = step.divisor = 2;
        step.count = N_CHECKED;
        step.entry = 5;
        add_step(p, &step,
                (struct spot[]){
                        { &buffers[0], 4 }, { &buffers[1], 4 }, { &buffers[0], 4 }, { &buffers[1], 4 } });
        struct operand *inputs = plan_inputs(p, &p->steps[p->n_steps - 1]);
        inputs[0].rank = 3;
        inputs[1].rank = 7;
        inputs[0].weight = 1;
        inputs[1].weight = 0;
}

static void fill_checked(struct buffer buffers[2], float value) {
        for (int i = 0; i < 2; i++)
                for (size_t k = 0; k <= N_CHECKED; k++)
                        ((float *)buffers[i].data)[k] = value;
}

static void check_chunked(struct backend *b, struct buffer buffers[2], struct plan *p, uint64_t chunk_bytes) {
        float *a = (float *)buffers[0].data + 1, *c = (float *)buffers[1].data + 1;
        int32_t *ia = (int32_t *)a, *ic = (int32_t *)c;

        fill_checked(buffers, 1);
        plan_reset(p);
        plan_checked(p, buffers, &(struct step){ .op = OP_SUM, .dtype = DTYPE_F32, .check_numerics = true });
        plan_freeze(p, chunk_bytes);
        ck_assert_uint_eq(run_checked(b, p).numerics.n, 0);
        ck_assert_float_eq(a[N_CHECKED - 1], 2);

        fill_checked(buffers, 1);
        a[90000] = INFINITY;
        a[80001] = a[99999] = c[12345] = NAN;
        struct findings found = run_checked(b, p);
        expect_finding(&found.numerics, 4, 3, 5, 80001);
        ck_assert_uint_eq(found.overflow.n, 0);
        ck_assert(isnan(a[12345]) && isnan(c[12345]) && isnan(a[80001]) && isinf(c[90000]));
        ck_assert_float_eq(c[12346], 2);

        /* What is left out is not looked at. */
        fill_checked(buffers, 1);
        c[12345] = NAN;
        plan_reset(p);
        plan_checked(p, buffers,
                &(struct step){ .op = OP_MEAN,
                        .dtype = DTYPE_F32,
                        .has_weights = true,
                        .total_weight = 1,
                        .check_numerics = true });
        plan_freeze(p, chunk_bytes);
        ck_assert_uint_eq(run_checked(b, p).numerics.n, 0);
        ck_assert_float_eq(c[12345], 1);

        memset(buffers[0].data, 0, buffers[0].n_bytes);
        memset(buffers[1].data, 0, buffers[1].n_bytes);
        ia[70000] = ic[70000] = ia[70001] = INT32_MAX;
        ia[70002] = ic[70002] = INT32_MIN;
        plan_reset(p);
        plan_checked(p, buffers,
                &(struct step){
                        .op = OP_SUM, .dtype = DTYPE_I32, .check_overflow = true, .check_numerics = true });
        plan_freeze(p, chunk_bytes);
        found = run_checked(b, p);
        expect_finding(&found.overflow, 2, 0, 5, 70000);
        ck_assert_uint_eq(found.numerics.n, 0);
        ck_assert_int_eq(ic[70000], -2);
        ck_assert_int_eq(ic[70001], INT32_MAX);
}

START_TEST(D10_D11_checks_find_the_same_in_chunks_of_any_size) {
        static const uint64_t chunk_bytes[] = { 4096, 64, 65536, 1 << 20, 1 << 30 };
        struct backend *b = new_backend();
        struct buffer buffers[2];
        struct plan p;
        plan_init(&p);
        for (int i = 0; i < 2; i++)
                buffer_init(&buffers[i], b, (N_CHECKED + 1) * 4, (uint64_t)i);
        for (size_t i = 0; i < ARRAY_SIZE(chunk_bytes); i++)
                check_chunked(b, buffers, &p, chunk_bytes[i]);
        for (int i = 0; i < 2; i++)
                buffer_deinit(&buffers[i], b);
        plan_deinit(&p);
        b->ops->free(b);
}
END_TEST

/* The elements of the outputs have another size than those of the inputs. */
START_TEST(P12_a_mean_to_floats_in_chunks_of_any_size) {
        static const uint64_t chunk_bytes[] = { 64, 4096, 1 << 20 };
        const uint64_t n = 10007;
        struct backend *b = new_backend();
        struct buffer in[2], out;
        struct plan p;
        const struct memory *culprit = NULL;
        plan_init(&p);
        buffer_init(&in[0], b, n + 3, 1);
        buffer_init(&in[1], b, n + 3, 2);
        buffer_init(&out, b, n * 4 + 8, 3);
        for (uint64_t k = 0; k < n; k++) {
                in[0].data[k + 3] = (uint8_t)(k * 7);
                in[1].data[k + 3] = (uint8_t)(k * 13);
        }
        for (size_t i = 0; i < ARRAY_SIZE(chunk_bytes); i++) {
                memset(out.data, 0x33, out.n_bytes);
                plan_reset(&p);
                add_step(&p,
                        &(struct step){ .kind = STEP_REDUCE,
                                .op = OP_MEAN,
                                .dtype = DTYPE_U8,
                                .output_dtype = DTYPE_F32,
                                .divisor = 2,
                                .n_inputs = 2,
                                .n_outputs = 1,
                                .count = n },
                        (struct spot[]){ { &in[0], 3 }, { &in[1], 3 }, { &out, 4 } });
                plan_freeze(&p, chunk_bytes[i]);
                ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_OK);
                const float *means = (const float *)(const void *)(out.data + 4);
                for (uint64_t k = 0; k < n; k++)
                        if (means[k] != (float)((uint8_t)(k * 7) + (uint8_t)(k * 13)) / 2)
                                ck_abort_msg("element %llu is %g", (unsigned long long)k, (double)means[k]);
                for (int k = 0; k < 4; k++) {
                        ck_assert_uint_eq(out.data[k], 0x33);
                        ck_assert_uint_eq(out.data[out.n_bytes - 1 - k], 0x33);
                }
        }
        buffer_deinit(&in[0], b);
        buffer_deinit(&in[1], b);
        buffer_deinit(&out, b);
        plan_deinit(&p);
        b->ops->free(b);
}
END_TEST

START_TEST(a_broadcast_copies_to_every_place) {
        struct backend *b = new_backend();
        struct buffer root, other;
        struct plan p;
        const struct memory *culprit = NULL;
        buffer_init(&root, b, 20000, 1);
        buffer_init(&other, b, 20000, 2);
        oracle_fill(DTYPE_F64, root.data + 8, 2001, 5);
        memset(other.data, 0x11, 20000);
        plan_init(&p);
        add_step(&p,
                &(struct step){
                        .kind = STEP_COPY, .dtype = DTYPE_F64, .n_inputs = 1, .n_outputs = 2, .count = 2001 },
                (struct spot[]){ { &root, 8 }, { &root, 8 }, { &other, 16 } });
        plan_freeze(&p, 4096);
        ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_OK);
        ck_assert_mem_eq(other.data + 16, root.data + 8, 2001 * 8);
        ck_assert_uint_eq(other.data[15], 0x11);
        ck_assert_uint_eq(other.data[16 + 2001 * 8], 0x11);
        plan_deinit(&p);
        buffer_deinit(&root, b);
        buffer_deinit(&other, b);
        b->ops->free(b);
}
END_TEST

/* --- holes --- */

/* Two inputs and an output of one rank each, f32 SUM. */
struct trio {
        struct backend *backend;
        struct buffer buffers[3];
        struct plan plan;
        const struct memory *culprit;
};

#define TRIO_PAGES 64u
#define TRIO_BYTES (TRIO_PAGES * PAGE)

static void trio_init(struct trio *t) {
        *t = (struct trio){ .backend = new_backend() };
        require_guard(t->backend);
        for (int i = 0; i < 3; i++) {
                buffer_init(&t->buffers[i], t->backend, TRIO_BYTES, 10 + i);
                for (uint32_t k = 0; k < TRIO_BYTES / 4; k++)
                        ((float *)t->buffers[i].data)[k] = (float)(i + 1);
        }
        plan_init(&t->plan);
        add_step(&t->plan,
                &(struct step){ .kind = STEP_REDUCE,
                        .op = OP_SUM,
                        .dtype = DTYPE_F32,
                        .n_inputs = 2,
                        .n_outputs = 1,
                        .count = TRIO_BYTES / 4 },
                (struct spot[]){ { &t->buffers[0], 0 }, { &t->buffers[1], 0 }, { &t->buffers[2], 0 } });
        plan_freeze(&t->plan, 65536);
}

static void trio_deinit(struct trio *t) {
        plan_deinit(&t->plan);
        for (int i = 0; i < 3; i++)
                buffer_deinit(&t->buffers[i], t->backend);
        t->backend->ops->free(t->backend);
}

static enum status trio_run(struct trio *t) {
        return run_plan(t->backend, &t->plan, &t->culprit);
}

START_TEST(P16_a_hole_ends_the_run_and_names_its_owner) {
        for (int guilty = 0; guilty < 3; guilty++) {
                struct trio t;
                trio_init(&t);
                ck_assert_int_eq(trio_run(&t), STATUS_OK);
                ck_assert(((float *)t.buffers[2].data)[TRIO_BYTES / 4 - 1] == 3.0f);

                int fd = t.buffers[guilty].chore.fd;
                punch(fd, 40 * PAGE, 3 * PAGE);
                uint64_t n_pages = count_pages(fd);
                for (int again = 0; again < 3; again++) {
                        t.culprit = NULL;
                        ck_assert_int_eq(trio_run(&t), STATUS_BAD_FD);
                        ck_assert_ptr_eq(t.culprit, t.buffers[guilty].chore.memory);
                        ck_assert_uint_eq(t.culprit->session, 10 + guilty);
                }
                /* Nobody paid for the hole. */
                ck_assert_uint_eq(count_pages(fd), n_pages);

                ck_assert_int_eq(fallocate(fd, 0, 0, TRIO_BYTES), 0);
                ck_assert_int_eq(trio_run(&t), STATUS_OK);
                trio_deinit(&t);
        }
}
END_TEST

/* 64 MiB of nothing: import maps it, a run fails, no page is made. */
START_TEST(P16_memory_that_was_never_filled_costs_nothing) {
        uint64_t n_bytes = 64u << 20;
        struct backend *b = new_backend();
        require_guard(b);
        struct rusage before, after;
        struct buffer buf = { .n_bytes = n_bytes };
        struct plan p;
        const struct memory *culprit = NULL;
        ck_assert_int_eq(getrusage(RUSAGE_SELF, &before), 0);
        buf.chore = import(b, make_memfd(n_bytes), n_bytes, ACCESS_INOUT);
        ck_assert_msg(buf.chore.status == STATUS_OK, "%s", buf.chore.why);
        plan_init(&p);
        add_step(&p,
                &(struct step){ .kind = STEP_REDUCE,
                        .op = OP_MAX,
                        .dtype = DTYPE_F32,
                        .n_inputs = 1,
                        .n_outputs = 1,
                        .count = n_bytes / 4 },
                (struct spot[]){ { &buf, 0 }, { &buf, 0 } });
        plan_freeze(&p, 65536);
        for (uint64_t chunk = 0; chunk < p.n_chunks; chunk += 97)
                ck_assert_int_eq(
                        b->ops->run_chunk(b, &p, chunk, &(struct findings){ 0 }, &culprit), STATUS_BAD_FD);
        ck_assert_uint_eq(count_pages(buf.chore.fd), 0);
        ck_assert_int_eq(getrusage(RUSAGE_SELF, &after), 0);
        ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 16384);
        plan_deinit(&p);
        release(b, &buf.chore);
        b->ops->free(b);
}
END_TEST

/* Several threads at once, each with its own hole: each finds its own culprit. */
static void *run_trio(void *arg) {
        struct trio *t = arg;
        ck_assert_int_eq(t->backend->ops->thread_init(t->backend), 0);
        for (int i = 0; i < 100; i++) {
                t->culprit = NULL;
                if (trio_run(t) != STATUS_BAD_FD || !t->culprit)
                        return NULL;
        }
        return t;
}

START_TEST(P16_threads_are_guarded_one_by_one) {
        struct trio trios[4];
        pthread_t threads[4];
        sigset_t all;
        sigfillset(&all);
        /* As in tuttid, whose threads are born with every signal blocked; thread_init lets SIGBUS through. */
        ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
        for (int i = 0; i < 4; i++) {
                trio_init(&trios[i]);
                punch(trios[i].buffers[i % 3].chore.fd, PAGE * i, PAGE);
        }
        ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
        for (int i = 0; i < 4; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, run_trio, &trios[i]), 0);
        for (int i = 0; i < 4; i++) {
                void *result = NULL;
                pthread_join(threads[i], &result);
                ck_assert_ptr_eq(result, &trios[i]);
                ck_assert_ptr_eq(trios[i].culprit, trios[i].buffers[i % 3].chore.memory);
        }
        ck_assert_int_eq(pthread_sigmask(SIG_UNBLOCK, &all, NULL), 0);
        for (int i = 0; i < 4; i++)
                trio_deinit(&trios[i]);
}
END_TEST

/* How a child ends that meets SIGBUS by `cause`. */
static int status_of_child(void (*cause)(struct trio *t)) {
        struct trio t;
        int status = 0;
        trio_init(&t);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                struct rlimit none = { 0, 0 };
                setrlimit(RLIMIT_CORE, &none);
                cause(&t);
                _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        trio_deinit(&t);
        return status;
}

static void fault_outside_a_run(struct trio *t) {
        int fd = make_memfd(PAGE);
        volatile char *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
        (void)t;
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        (void)*p;
}

static void receive_the_signal(struct trio *t) {
        (void)t;
        kill(getpid(), SIGBUS);
}

/* A sanitizer's handler, which was there before ours, ends the process with an exit code. */
START_TEST(other_bus_errors_end_the_process_as_ever) {
        void (*const causes[])(struct trio *) = { fault_outside_a_run, receive_the_signal };
        for (size_t i = 0; i < ARRAY_SIZE(causes); i++) {
                int status = status_of_child(causes[i]);
                ck_assert_msg((WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) ||
                                      (WIFEXITED(status) && WEXITSTATUS(status) > 0),
                        "cause %zu: wait status %#x", i, (unsigned int)status);
        }
}
END_TEST

/* --- what is less than it could be --- */

/* Whatever this processor has. */
START_TEST(P15_an_instruction_set_that_is_not_there_is_said) {
        struct host_backend h = { .isa = ISA_AVX2, .fallback = "of before" };
        host_note_fallback(&h, ISA_AUTO, 3);
        ck_assert_str_eq(h.fallback, "");
        host_note_fallback(&h, ISA_AVX2, 3);
        ck_assert_str_eq(h.fallback, "");
        host_note_fallback(&h, ISA_SCALAR, -EPERM);
        ck_assert_str_eq(h.fallback, "unguarded: userfaultfd is denied (EPERM)");
        host_note_fallback(&h, ISA_AVX512, 3);
        ck_assert_str_eq(h.fallback, "isa: avx512 was asked for, this processor has AVX2");
        host_note_fallback(&h, ISA_AVX512, -EPERM);
        ck_assert_str_eq(h.fallback, "isa: avx512 was asked for, this processor has AVX2; "
                                     "unguarded: userfaultfd is denied (EPERM)");
        h.isa = ISA_SCALAR;
        host_note_fallback(&h, ISA_AVX2, 3);
        ck_assert_str_eq(h.fallback, "isa: avx2 was asked for, this processor has scalar only");
}
END_TEST

/* The real one: everything up to what is there is no fallback, everything beyond is. */
START_TEST(P15_a_backend_says_which_instruction_set_it_lacks) {
        for (enum isa isa = ISA_AUTO; isa <= ISA_AVX512; isa++) {
                struct backend *b = NULL;
                ck_assert_int_eq(host_backend_new(&b, isa), 0);
                const char *said = b->ops->fallback(b);
                ck_assert_int_eq(said && strstr(said, "isa: ") == said, isa > kernels_isa(isa));
                b->ops->free(b);
        }
}
END_TEST

/* From here on this process (the test's own) may not make one. */
static void deny_userfaultfd(void) {
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { .len = ARRAY_SIZE(filter), .filter = filter };
        ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(P16_where_userfaultfd_is_denied_it_says_so_and_works) {
        char text[128];
        deny_userfaultfd();
        struct backend *b = new_backend();
        ck_assert_str_eq(b->ops->fallback(b), "unguarded: userfaultfd is denied (EPERM)");
        b->ops->describe(b, text, sizeof(text));
        ck_assert_ptr_nonnull(strstr(text, "unguarded"));

        struct buffer buf;
        struct plan p;
        const struct memory *culprit = NULL;
        buffer_init(&buf, b, PAGE, 1);
        ck_assert(!buf.chore.memory->is_guarded);
        memset(buf.data, 5, PAGE);
        plan_init(&p);
        add_step(&p,
                &(struct step){ .kind = STEP_REDUCE,
                        .op = OP_SUM,
                        .dtype = DTYPE_U8,
                        .n_inputs = 2,
                        .n_outputs = 1,
                        .count = PAGE },
                (struct spot[]){ { &buf, 0 }, { &buf, 0 }, { &buf, 0 } });
        plan_freeze(&p, 4096);
        ck_assert_int_eq(run_plan(b, &p, &culprit), STATUS_OK);
        ck_assert_uint_eq(buf.data[PAGE - 1], 10);

        /* Holes are filled by a run at the earliest, never by the import. */
        struct chore empty = import(b, make_memfd(16 * PAGE), 16 * PAGE, ACCESS_INOUT);
        ck_assert_int_eq(empty.status, STATUS_OK);
        ck_assert_uint_eq(count_pages(empty.fd), 0);
        release(b, &empty);
        plan_deinit(&p);
        buffer_deinit(&buf, b);
        b->ops->free(b);
}
END_TEST

/* --- floating point, and what it says of itself --- */

#ifdef __SSE__
#include <xmmintrin.h>

#define FLUSH_AND_ROUND_DOWN 0xbfc0u /* FTZ, DAZ, towards minus infinity, all masked */

START_TEST(P11_the_callers_floating_point_state_changes_no_bit_and_comes_back) {
        struct trio t;
        trio_init(&t);
        float *in0 = (float *)t.buffers[0].data, *in1 = (float *)t.buffers[1].data;
        float *out = (float *)t.buffers[2].data;
        in0[0] = 0x1p-140f, in1[0] = 0x1p-141f;    /* subnormals */
        in0[1] = 0x1p-126f, in1[1] = -0x1.8p-127f; /* a subnormal of normals */
        in0[2] = 1, in1[2] = 0x1.8p-24f;           /* rounds up */
        _mm_setcsr(FLUSH_AND_ROUND_DOWN);
        enum status status = trio_run(&t);
        unsigned int state = _mm_getcsr();
        _mm_setcsr(0x1f80);
        ck_assert_int_eq(status, STATUS_OK);
        ck_assert_uint_eq(state & ~0x3fu, FLUSH_AND_ROUND_DOWN);
        ck_assert(out[0] == 0x1.8p-140f);
        ck_assert(out[1] == 0x1p-128f);
        ck_assert(out[2] == 1 + 0x1p-23f);

        punch(t.buffers[0].chore.fd, 0, PAGE);
        _mm_setcsr(FLUSH_AND_ROUND_DOWN);
        status = trio_run(&t);
        state = _mm_getcsr();
        _mm_setcsr(0x1f80);
        ck_assert_int_eq(status, STATUS_BAD_FD);
        ck_assert_uint_eq(state & ~0x3fu, FLUSH_AND_ROUND_DOWN);
        trio_deinit(&t);
}
END_TEST
#else
START_TEST(P11_the_callers_floating_point_state_changes_no_bit_and_comes_back) {
        unit_skip("says its state in MXCSR only on x86");
}
END_TEST
#endif

/* --- the self-test --- */

START_TEST(P24_the_self_test_holds_on_every_instruction_set_that_is_here) {
        char why[256] = "";
        struct backend *b = new_backend();
        ck_assert_msg(host_self_test(b, why, sizeof(why)) == 0, "%s", why);
        b->ops->free(b);
        struct float_state before;
        float_state_enter(&before);
        for (enum isa isa = ISA_SCALAR; isa <= kernels_isa(ISA_AUTO); isa++)
                ck_assert_ptr_null(self_test_numbers(isa, kernels_reduce));
        float_state_leave(&before);
}
END_TEST

static unsigned int n_reduced, n_broken;

/* One bit of the last element of the n-th case is wrong. */
static void reduce_badly(enum isa isa, const struct kernel_call *call) {
        kernels_reduce(isa, call);
        if (++n_reduced == n_broken)
                ((uint8_t *)call->outputs[0])[call->count * dtype_bytes(call->dtype) - 1] ^= 1;
}

START_TEST(P24_one_wrong_bit_fails_the_self_test_and_is_named) {
        const char *last = NULL;
        for (n_broken = 1;; n_broken++) {
                n_reduced = 0;
                const char *broken = self_test_numbers(ISA_SCALAR, reduce_badly);
                if (n_reduced < n_broken) { /* there are no more cases */
                        ck_assert_ptr_null(broken);
                        break;
                }
                ck_assert_ptr_nonnull(broken);
                ck_assert_uint_eq(n_reduced, n_broken);
                ck_assert(!last || strcmp(last, broken) != 0);
                last = broken;
        }
        ck_assert_uint_ge(n_broken, 5);
}
END_TEST

UNIT_MAIN("host-backend", 20, D6_D7_a_batch_gives_the_same_bits_in_chunks_of_any_size,
        D10_D11_checks_find_the_same_in_chunks_of_any_size, P12_a_mean_to_floats_in_chunks_of_any_size,
        a_broadcast_copies_to_every_place, P16_a_hole_ends_the_run_and_names_its_owner,
        P16_memory_that_was_never_filled_costs_nothing, P16_threads_are_guarded_one_by_one,
        other_bus_errors_end_the_process_as_ever, P15_an_instruction_set_that_is_not_there_is_said,
        P15_a_backend_says_which_instruction_set_it_lacks,
        P16_where_userfaultfd_is_denied_it_says_so_and_works,
        P11_the_callers_floating_point_state_changes_no_bit_and_comes_back,
        P24_the_self_test_holds_on_every_instruction_set_that_is_here,
        P24_one_wrong_bit_fails_the_self_test_and_is_named)
