/* tuttid-gpu gives up what computing on GPUs never takes (G8, P15, P21). What it can still do is tried from
 * within it, by the fake driver. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/admin.h>
#include <tutti/object.h>
#include <unistd.h>
#include "gpu-host.h"
#include "program.h"
#include "unit.h"

/* A number of /proc/PID/task/TID/status. */
static int status_of(int pid, const char *thread, const char *name) {
        char path[400], line[256], format[64];
        int value = -1;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, thread);
        snprintf(format, sizeof(format), "%s: %%d", name);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (value < 0 && fgets(line, sizeof(line), f))
                if (sscanf(line, format, &value) != 1)
                        value = -1;
        fclose(f);
        return value;
}

static int seccomp_of_myself(void) {
        char thread[16];
        snprintf(thread, sizeof(thread), "%d", (int)getpid());
        return status_of(getpid(), thread, "Seccomp");
}

/* Every thread has this; returns how many there are. */
static int expect_threads(int pid, int seccomp) {
        char path[64];
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/task", pid);
        DIR *dir = opendir(path);
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
                if (e->d_name[0] == '.')
                        continue;
                ck_assert_int_eq(status_of(pid, e->d_name, "Seccomp"), seccomp);
                ck_assert_int_eq(status_of(pid, e->d_name, "NoNewPrivs"), 1);
                n++;
        }
        closedir(dir);
        return n;
}

/* Why tuttid-gpu is unconfined, as status tells; "": it is confined. */
static void why_unconfined(struct host *h, char *ret, size_t size) {
        struct tutti *t;
        struct tutti_answer *a;
        ret[0] = '\0';
        ck_assert_int_eq(tutti_open(host_socket(h), &t), TUTTI_OK);
        ck_assert_int_eq(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_FALLBACK &&
                        strcmp(a->rows[i].fallback.what, "tuttid-gpu") == 0)
                        snprintf(ret, size, "%s", a->rows[i].fallback.why);
        tutti_answer_free(a);
        tutti_close(t);
}

/* The devices are there: what is to be said has been said. */
static void wait_for_gpus(struct replica *me) {
        gpu_use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        gpu_fill(b, 1);
        ck_assert_msg(gpu_reduce(g, "a", b, GPU_COUNT) == TUTTI_OK, "%s", tutti_error());
        gpu_expect(b, 1, 1);
        gpu_leave(me, b);
}

/* `h` has GPUs that work; skips the test where this build or kernel has no filter. */
static void expect_filter(struct host *h) {
        char why[256];
        run_replicas(h, 1, wait_for_gpus, NULL);
        why_unconfined(h, why, sizeof(why));
        if (strstr(why, "built") || strstr(why, "Landlock")) {
                gpu_host_stop(h);
                unit_skip("tuttid-gpu is %s", why);
        }
        ck_assert_str_eq(why, "");
}

START_TEST(P21_every_thread_of_tuttid_gpu_is_confined) {
        struct host *h = gpu_host_start("2", NULL);
        expect_filter(h);
        ck_assert_int_ge(expect_threads(gpu_worker_pid(h), 2), 1 + 2); /* its own, one for each context */
        gpu_host_stop(h);
}
END_TEST

START_TEST(G8_P21_what_has_taken_tuttid_gpu_over_cannot_get_out_of_it) {
        struct fakecuda_attempt t;
        unsigned int n_refused = 0, n_done = 0;
        struct host *h = gpu_host_start("1", NULL);
        expect_filter(h);
        fakecuda_strike(gpu_control,
                &(struct fakecuda_strike){
                        .fault = FAKECUDA_TRIES, .who = "tuttid-gpu", .call = "cuLaunchKernel" });
        run_replicas(h, 1, wait_for_gpus, NULL);
        for (unsigned int i = 0; fakecuda_try(gpu_control, i, &t); i++) {
                bool is_refused = t.error == EPERM || t.error == EACCES || t.error == ENOSYS;
                ck_assert_msg(!t.must_work || t.error == 0, "%s: %s", t.name, strerror(t.error));
                ck_assert_msg(t.must_work || is_refused, "%s was not refused: %s", t.name, strerror(t.error));
                *(t.must_work ? &n_done : &n_refused) += 1;
        }
        ck_assert_uint_ge(n_refused, 20);
        ck_assert_uint_ge(n_done, 7);
        gpu_host_stop(h);
}
END_TEST

START_TEST(P15_a_tuttid_gpu_that_is_not_confined_says_so) {
        char why[256];
        struct program p;
        struct host *h = gpu_host_start("1", (const char *[]){ "--set", "daemon.confine=no", NULL });
        run_replicas(h, 1, wait_for_gpus, NULL);
        why_unconfined(h, why, sizeof(why));
        ck_assert_str_eq(why, "unconfined: daemon.confine is no");
        expect_threads(gpu_worker_pid(h), seccomp_of_myself());
        for (int i = 0; i < 2; i++) {
                const char *verbs[] = { "status", "doctor" };
                program_run(
                        (const char *[]){ program_tuttictl(), verbs[i], "--socket", host_socket(h), NULL },
                        30, &p);
                ck_assert_msg(strstr(p.out, "tuttid-gpu") && strstr(p.out, "unconfined"), "%s", p.out);
                program_deinit(&p);
        }
        gpu_host_stop(h);
}
END_TEST

static uint64_t used(struct tutti *t, const char *quota) {
        struct tutti_answer *a;
        uint64_t n = UINT64_MAX;
        ck_assert_int_eq(tutti_admin_ask(t, TUTTI_ADMIN_QUOTA, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_QUOTA && strcmp(a->rows[i].quota.name, quota) == 0)
                        n = a->rows[i].quota.used;
        tutti_answer_free(a);
        ck_assert_uint_ne(n, UINT64_MAX);
        return n;
}

#define PIECE_BYTES (UINT64_C(2) << 20) /* in which the fake driver gives memory */

static void take_a_few_bytes(struct replica *me) {
        struct tutti_object *o;
        gpu_use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "few"));
        uint64_t mapped = used(me->t, "mapped-bytes"), made = used(me->t, "result-bytes");
        struct tutti_buffer *b = gpu_take_buffer(me->t, 10);
        ck_assert_uint_ge(used(me->t, "mapped-bytes"), mapped + PIECE_BYTES); /* and a signal page */
        ck_assert_int_eq(
                tutti_object_make(g, &TUTTI_OBJECT(.name = "few", .n_bytes = 40, .device = "GPU:0"), &o),
                TUTTI_OK);
        ck_assert_uint_eq((used(me->t, "result-bytes") - made) % PIECE_BYTES, 0);
        ck_assert_uint_gt(used(me->t, "result-bytes"), made);
        tutti_object_free(o);
        gpu_leave(me, b);
}

/* And not as it was asked for: a driver gives whole pieces. */
START_TEST(P18_device_memory_is_charged_as_it_is_given) {
        struct host *h = gpu_host_start("1", NULL);
        run_replicas(h, 1, take_a_few_bytes, NULL);
        gpu_host_stop(h);
}
END_TEST

UNIT_MAIN("gpu-walls", 120, P21_every_thread_of_tuttid_gpu_is_confined,
        G8_P21_what_has_taken_tuttid_gpu_over_cannot_get_out_of_it,
        P15_a_tuttid_gpu_that_is_not_confined_says_so, P18_device_memory_is_charged_as_it_is_given)
