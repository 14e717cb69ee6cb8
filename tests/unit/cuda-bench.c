#include "cuda-bench.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "backends/cuda/cuda-backend.h"
#include "backends/cuda/kernels-image.h"
#include "load.h"

/* The fake finds kernels by name, and only looks whether the image could be one. */
const unsigned char tuttid_cuda_fatbin[] = { 0x7f, 'E', 'L', 'F', 0 };

void bench_prepare(struct bench *t, const char *n_devices) {
        static char path[256], driver[512], nccl[512];
        *t = (struct bench){ .b = NULL };
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        snprintf(driver, sizeof(driver), "%s/libcuda.so.1", fakecuda_directory());
        snprintf(nccl, sizeof(nccl), "%s/libnccl.so.2", fakecuda_directory());
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        setenv("FAKECUDA_CONTROL", path, 1);
        t->fake = fakecuda_open(path);
        ck_assert_ptr_nonnull(t->fake);
        t->options = (struct gpu_options){ .takes_ipc = true, .cuda_path = driver, .nccl_path = nccl };
}

void bench_open(struct bench *t) {
        char why[256] = "";
        int r = cuda_backend_new(&t->b, &t->options, why, sizeof(why));
        ck_assert_msg(r == 0, "cuda_backend_new: %d: %s", r, why);
}

void bench_close(struct bench *t) {
        if (t->b)
                t->b->base.ops->free(&t->b->base);
        for (unsigned int i = 0; i < 4; i++)
                ck_assert_uint_eq(fakecuda_bytes(t->fake, i), 0);
        ck_assert_uint_eq(fakecuda_ipc_open(t->fake, NULL), 0);
        fakecuda_close(t->fake);
}

struct chore bench_import(struct bench *t, const struct chore *like) {
        struct chore c = *like;
        c.read_fd = -1;
        t->b->base.ops->import(&t->b->base, &c);
        return c;
}

void bench_release(struct bench *t, struct chore *chore) {
        t->b->base.ops->release(&t->b->base, chore);
}

struct chore bench_memory(struct bench *t, uint32_t where, uint64_t n_bytes) {
        struct chore like = { .kind = CHORE_IMPORT, .n_bytes = n_bytes, .fd = -1, .access = ACCESS_INOUT };
        if (where == HOST) {
                like.fd = memfd_create("host", MFD_CLOEXEC);
                ck_assert_int_eq(ftruncate(like.fd, (off_t)n_bytes), 0);
        } else {
                like.path = PATH_VMM_MADE;
                like.device = DEVICE_GPU + where;
        }
        struct chore c = bench_import(t, &like);
        ck_assert_msg(c.status == STATUS_OK, "memory: %s: %s", status_name(c.status), c.why);
        return c;
}

void *bench_data(const struct chore *chore) {
        const struct cuda_memory *m = cuda_memory_of(chore->memory);
        return m->map ? (void *)m->map : (void *)(uintptr_t)m->at;
}

void bench_add(struct plan *p, const struct bench_step *s) {
        struct step *added = plan_add_step(p, &s->step);
        for (uint32_t i = 0; i < s->step.n_inputs + s->step.n_outputs; i++)
                plan_inputs(p, added)[i] = (struct operand){ .memory = s->operands[i]->memory,
                        .offset_bytes = s->offset_bytes,
                        .rank = i < s->step.n_inputs ? i : i - s->step.n_inputs };
}

void bench_freeze(struct plan *p, uint32_t k) {
        p->device = DEVICE_GPU + k;
        plan_freeze(p, 1 << 20);
}

void bench_launch(struct bench *t, struct run *run) {
        if (run->limit_ns == 0)
                run->limit_ns = 100 * NS_PER_S;
        (void)!t->b->base.ops->launch(&t->b->base, run);
}

bool bench_wait(struct bench *t, struct run *run, double seconds) {
        uint64_t limit = clock_now_ns() + (uint64_t)(seconds * unit_scale() * 1e9);
        while (!run->is_over && clock_now_ns() < limit) {
                t->b->base.ops->poll(&t->b->base);
                nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
        }
        return run->is_over;
}

void bench_run(struct bench *t, struct plan *p) {
        struct run run = { .plan = p, .group = 1 };
        bench_launch(t, &run);
        ck_assert(bench_wait(t, &run, 10));
        ck_assert_msg(run.status == STATUS_OK, "%s: %s", status_name(run.status), run.why);
}

const char *bench_fallback(const struct bench *t, const char *what) {
        for (uint32_t i = 0; i < t->b->n_fallbacks; i++)
                if (strcmp(t->b->fallbacks[i].what, what) == 0)
                        return t->b->fallbacks[i].why;
        return NULL;
}
