/* Host memory that tuttid-gpu copies, since the driver would not register it, and that its owner has taken
 * away: it costs the owner the connection, and neither tuttid-gpu nor anybody else (P16). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "gpu-host.h"
#include "meeting.h"
#include "pool.h"
#include "program.h"
#include "unit.h"

#define N_FLOATS 1000

static int pool_memfd(size_t n_pages) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21u << 26);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)(n_pages * POOL_PAGE_BYTES)), 0);
        return fd;
}

/* In the second of its two pages. */
static struct tutti_value value_of(struct tutti_buffer *b) {
        return (struct tutti_value)TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .offset = POOL_PAGE_BYTES,
                .n_dims = 1, .shape = { N_FLOATS });
}

static void expect_sum(const float *at, float sum) {
        for (uint32_t i = 0; i < N_FLOATS; i++)
                ck_assert_float_eq(at[i], sum + (float)i);
}

/* Its own page goes, and another value takes it: there is none for whoever comes to the hole. */
static int lose_a_page(int fd) {
        const off_t page = (off_t)POOL_PAGE_BYTES;
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page, page), 0);
        int other = pool_memfd(1);
        ck_assert_int_eq(fallocate(other, 0, 0, page), 0);
        ck_assert_uint_eq(pool_free(), 0);
        return other;
}

static void be_the_culprit(struct replica *me) {
        struct tutti_buffer *b;
        struct tutti_work *w;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "holes"));
        int fd = pool_memfd(2);
        expect_status(tutti_buffer_from_fd(me->t, fd, 0, TUTTI_INOUT, &b), TUTTI_OK);
        const struct tutti_value v = value_of(b);
        float *p = (float *)tutti_buffer_data(b) + POOL_PAGE_BYTES / sizeof(float);
        memset(p, 0, N_FLOATS * sizeof(*p));
        expect_status(tutti_all_reduce(g, "whole", TUTTI_SUM, &v, &v), TUTTI_OK);
        expect_sum(p, 1);
        int other = lose_a_page(fd);
        expect_status(tutti_all_reduce_start(g, "holed", TUTTI_SUM, &v, &v, NULL, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        ck_assert_msg(status == TUTTI_BAD_FD || status == TUTTI_DAEMON_LOST, "%s", tutti_work_error(w)->text);
        expect_in(tutti_work_error(w)->text, "BAD_FD");
        tutti_work_free(w);
        close(other);
        close(fd);
}

static void play(struct replica *me) {
        if (me->rank == 1) {
                be_the_culprit(me);
                return;
        }
        gpu_use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "holes"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        gpu_fill(b, 1);
        expect_status(gpu_reduce(g, "whole", b, N_FLOATS), TUTTI_OK);
        expect_status(gpu_reduce(g, "holed", b, N_FLOATS), TUTTI_REPLICA_LOST);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->loss, TUTTI_EJECTED);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->outputs_undefined, 0); /* it was on its way in */
        gpu_leave(me, b);
}

static void meet_anew(struct replica *me) {
        gpu_use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "anew"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        gpu_fill(b, 1);
        expect_status(gpu_reduce(g, NULL, b, GPU_COUNT), TUTTI_OK);
        gpu_expect(b, 2, 2);
        gpu_leave(me, b);
}

START_TEST(F6_P16_a_hole_in_what_tuttid_gpu_copies_costs_its_owner_alone) {
        setenv("FAKECUDA_ONLY", "tuttid-gpu", 1);
        setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+=CUDA_ERROR_OUT_OF_MEMORY", 1);
        pool_take(2);
        struct host *h = gpu_host_start("1", NULL);
        int worker = gpu_worker_pid(h);
        run_replicas(h, 2, play, NULL);
        expect_in(host_log(h), "is ejected: BAD_FD");
        run_replicas(h, 2, meet_anew, NULL);
        ck_assert_int_eq(gpu_worker_pid(h), worker);
        gpu_host_stop(h);
        pool_give_back();
        const char *control = getenv("FAKECUDA_CONTROL");
        ck_assert_ptr_nonnull(control);
        unlink(control);
}
END_TEST

UNIT_MAIN("gpu-holes", 60, F6_P16_a_hole_in_what_tuttid_gpu_copies_costs_its_owner_alone)
