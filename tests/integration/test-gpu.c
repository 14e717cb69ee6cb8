/* GPUs from the outside, over a tuttid-gpu that keeps device memory in memfds (support/fake-gpu.h): several
 * replicas on one GPU, host members among them, and a process that is killed, breaks and hangs (N2 N4 E8 E9
 * E12 E14). */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/memfd.h"
#include "fake-gpu.h"
#include "host.h"
#include "raw.h"

#define COUNT   1000
#define N_BYTES (4096)

/* --- tuttid, and what it says of its devices --- */

static struct host *start(struct fake_gpu **ret_fake, uint32_t n_devices, const char *more) {
        const char *args[] = { "--set", fake_gpu_setting(), more ? "--set" : NULL, more, NULL };
        *ret_fake = fake_gpu_new(n_devices);
        return host_start(args);
}

/* Whether a row of the status is the one that is meant. */
struct wanted {
        enum row_type type;
        const char *name; /* of the device, what of the fallback, path of the buffer */
        char why[300], describe[300], uuid[64], paths[80];
        bool failing;
        uint64_t n_tasks;
};

static bool row_is_wanted(const struct row *row, struct wanted *w) {
        const char *why = "";
        if (row->type != w->type)
                return false;
        if (row->type == ROW_DEVICE && strcmp(row->device.name, w->name) == 0) {
                why = row->device.why;
                snprintf(w->describe, sizeof(w->describe), "%s", row->device.describe);
                snprintf(w->uuid, sizeof(w->uuid), "%s", row->device.uuid);
                snprintf(w->paths, sizeof(w->paths), "%s", row->device.paths);
                w->failing = row->device.failing;
                w->n_tasks = row->device.n_tasks;
        } else if (row->type == ROW_FALLBACK && strcmp(row->fallback.what, w->name) == 0) {
                why = row->fallback.why;
        } else if (row->type == ROW_BUFFER && strcmp(row->buffer.path, w->name) == 0) {
                why = row->buffer.why;
                snprintf(w->describe, sizeof(w->describe), "%s", row->buffer.device);
        } else {
                return false;
        }
        snprintf(w->why, sizeof(w->why), "%s", why);
        return true;
}

static bool status_has(struct raw *r, struct wanted *w) {
        struct reply reply;
        bool is_found = false;
        raw_query(r, WHAT_STATUS, "", "");
        do {
                ck_assert(raw_take(r, &reply));
                for (uint32_t i = 0; reply.type == REPLY_ROWS && i < reply.rows.n_rows; i++)
                        is_found |= row_is_wanted(&reply.rows.rows[i], w);
        } while (reply.more);
        return is_found;
}

/* GPU:k, once it serves (or does not). */
static struct wanted await_gpu(struct raw *r, const char *name, bool is_failing) {
        struct wanted w = { .type = ROW_DEVICE, .name = name };
        for (int i = 0; i < 500 * unit_scale(); i++) {
                if (status_has(r, &w) && w.failing == is_failing)
                        return w;
                usleep(20000);
        }
        ck_abort_msg("%s does not come", name);
}

/* --- memory --- */

struct value {
        int fd;
        float *at;
};

static struct value value_new(float first) {
        struct value v = { .fd = raw_memfd(N_BYTES) };
        v.at = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, v.fd, 0);
        ck_assert_ptr_ne(v.at, MAP_FAILED);
        for (int i = 0; i < COUNT; i++)
                v.at[i] = first + (float)i;
        return v;
}

static void value_free(struct value *v) {
        munmap(v->at, N_BYTES);
        close(v->fd);
}

static uint64_t register_device(struct raw *r, uint64_t buffer, int fd, const char *device) {
        const struct request request = { .type = REQUEST_REGISTER,
                .reg = { .buffer = buffer,
                        .size_bytes = N_BYTES,
                        .access = ACCESS_INOUT,
                        .kind = BUFFER_KIND_CUDA_VMM,
                        .n_descriptors = fd >= 0,
                        .device = device,
                        .stands_for = "",
                        .why = "" } };
        return raw_send_fds(r, &request, &fd, fd >= 0);
}

static void expect_sum(const struct value *v, float first, float step) {
        for (int i = 0; i < COUNT; i++)
                ck_assert_msg(v->at[i] == first + step * (float)i, "[%d] is %f", i, (double)v->at[i]);
}

/* Two replicas of one test, each with a value: on a device, or in host memory. */
struct pair {
        struct raw *r[2];
        struct raw_member m[2];
        struct value v[2];
};

static void pair_open(struct pair *p, struct host *h, const char *device0, const char *device1) {
        const char *devices[2] = { device0, device1 };
        uint64_t joins[2];
        for (int i = 0; i < 2; i++) {
                p->r[i] = raw_open(host_socket(h));
                struct request join = raw_join_request("pair", (uint32_t)i, 2);
                joins[i] = raw_send(p->r[i], &join);
        }
        for (int i = 0; i < 2; i++) {
                p->m[i] = raw_joined(p->r[i], joins[i]);
                p->v[i] = value_new(i ? 10 : 1);
                if (devices[i])
                        raw_expect(p->r[i], register_device(p->r[i], 1, p->v[i].fd, devices[i]), STATUS_OK);
                else
                        raw_buffer(p->r[i], 1, dup(p->v[i].fd), N_BYTES);
        }
}

static void pair_close(struct pair *p) {
        for (int i = 0; i < 2; i++) {
                raw_close(p->r[i]);
                value_free(&p->v[i]);
        }
}

static void pair_submit(struct pair *p, const char *key, uint64_t ret[2]) {
        for (int i = 0; i < 2; i++)
                ret[i] = raw_submit(p->r[i], &p->m[i], key, 1, COUNT);
}

static void pair_reduce(struct pair *p, const char *key, enum status status) {
        uint64_t requests[2];
        pair_submit(p, key, requests);
        for (int i = 0; i < 2; i++)
                raw_expect(p->r[i], requests[i], status);
}

/* --- what works --- */

START_TEST(N2_two_replicas_on_one_gpu) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct wanted gpu = await_gpu(r, "GPU:0", false);
        ck_assert_str_eq(gpu.uuid, fake_gpu_uuid(0));
        ck_assert_str_eq(gpu.paths, "vmm-made vmm-fd cuda-ipc host-copy");
        struct pair p;
        pair_open(&p, h, "GPU:0", fake_gpu_uuid(0));
        pair_reduce(&p, "a", STATUS_OK);
        expect_sum(&p.v[0], 11, 2);
        expect_sum(&p.v[1], 11, 2);
        ck_assert_uint_eq(fake->n_runs, 1);
        ck_assert_uint_eq(await_gpu(r, "GPU:0", false).n_tasks, 1);
        uint64_t imports = fake->n_imports;
        for (int i = 0; i < 100; i++)
                pair_reduce(&p, "again", STATUS_OK);
        ck_assert_uint_eq(fake->n_imports, imports); /* nothing is opened for what is known */
        pair_close(&p);
        raw_close(r);
        host_expect_counters_zero(h);
        ck_assert_uint_eq(fake->n_imports, fake->n_releases);
        host_stop(h);
}
END_TEST

START_TEST(N4_a_gpu_and_a_host_member_in_one_collective) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct pair p;
        await_gpu(r, "GPU:0", false);
        pair_open(&p, h, NULL, "GPU:0");
        pair_reduce(&p, "a", STATUS_OK);
        pair_reduce(&p, "b", STATUS_OK);
        expect_sum(&p.v[0], 22, 4);
        expect_sum(&p.v[1], 22, 4);
        ck_assert_uint_eq(fake->n_runs, 2);
        ck_assert_uint_eq(fake->n_imports, 2); /* host memory came once */
        pair_close(&p);
        raw_close(r);
        host_expect_counters_zero(h);
        ck_assert_uint_eq(fake->n_imports, fake->n_releases);
        host_stop(h);
}
END_TEST

START_TEST(E8_memory_that_tuttid_makes_and_how_each_buffer_is_reached) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct wanted w = { .type = ROW_BUFFER, .name = "vmm-made" };
        await_gpu(r, "GPU:0", false);
        const struct reply made = raw_expect(r, register_device(r, 7, -1, "GPU:0"), STATUS_OK);
        ck_assert_int_eq(made.type, REPLY_REGISTERED);
        ck_assert_uint_eq(made.registered.n_descriptors, 1);
        ck_assert_uint_eq(made.registered.size_bytes, 2u << 20);
        ck_assert_uint_eq(r->packet.n_fds, 1);
        float *at = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->packet.fds[0], 0);
        ck_assert_ptr_ne(at, MAP_FAILED);
        at[5] = 3;
        struct raw_member m = raw_join(r, "alone", 0, 1);
        raw_expect(r, raw_submit(r, &m, "a", 7, COUNT), STATUS_OK);
        ck_assert(at[5] == 3);
        ck_assert(status_has(r, &w));
        ck_assert_str_eq(w.describe, "GPU:0");
        munmap(at, N_BYTES);

        struct value v = value_new(0);
        const struct request staged = { .type = REQUEST_REGISTER,
                .reg = { .buffer = 8,
                        .size_bytes = N_BYTES,
                        .access = ACCESS_INOUT,
                        .kind = BUFFER_KIND_MEMFD,
                        .n_descriptors = 1,
                        .device = "",
                        .stands_for = fake_gpu_uuid(0),
                        .why = "pool memory" } };
        raw_expect(r, raw_send_fds(r, &staged, &v.fd, 1), STATUS_OK);
        w = (struct wanted){ .type = ROW_BUFFER, .name = "host-copy" };
        ck_assert(status_has(r, &w));
        ck_assert_str_eq(w.describe, "GPU:0");
        ck_assert_str_eq(w.why, "pool memory");
        value_free(&v);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- what is refused --- */

START_TEST(E9_an_unknown_device_is_refused_with_those_there_are) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 2, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct value v = value_new(0);
        await_gpu(r, "GPU:1", false);
        struct reply reply =
                raw_expect(r, register_device(r, 1, v.fd, "GPU-00000000-dead"), STATUS_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(reply.error->detail, fake_gpu_uuid(0)));
        ck_assert_ptr_nonnull(strstr(reply.error->detail, fake_gpu_uuid(1)));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        raw_expect(r, raw_submit(r, &m, "a", 1, COUNT), STATUS_NOT_FOUND); /* the id stays as failed */
        value_free(&v);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(E8_legacy_handles_are_off_where_they_are_said_to_be) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, "gpu.ipc=no");
        struct raw *r = raw_open(host_socket(h));
        const uint8_t handle[64] = { 1 };
        await_gpu(r, "GPU:0", false);
        const struct request ask = { .type = REQUEST_REGISTER,
                .reg = { .buffer = 1,
                        .size_bytes = N_BYTES,
                        .access = ACCESS_INOUT,
                        .kind = BUFFER_KIND_CUDA_IPC,
                        .device = "GPU:0",
                        .handle = handle,
                        .n_handle_bytes = sizeof(handle),
                        .stands_for = "",
                        .why = "" } };
        const struct reply reply = raw_expect(r, raw_send(r, &ask), STATUS_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(reply.error->detail, "gpu.ipc = yes"));
        struct wanted w = { .type = ROW_FALLBACK, .name = "cuda-ipc" };
        ck_assert(status_has(r, &w));
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(A11_a_device_that_fails_its_test_is_off_with_its_reason) {
        struct fake_gpu *fake = fake_gpu_new(2);
        fake->hide_device = 1;
        const char *args[] = { "--set", fake_gpu_setting(), NULL };
        struct host *h = host_start(args);
        struct raw *r = raw_open(host_socket(h));
        struct value v = value_new(0);
        await_gpu(r, "GPU:0", false);
        ck_assert_ptr_nonnull(strstr(await_gpu(r, "GPU:1", true).why, "self-test"));
        const struct reply reply = raw_expect(r, register_device(r, 1, v.fd, "GPU:1"), STATUS_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(reply.error->detail, "self-test"));
        raw_expect(r, register_device(r, 2, v.fd, "GPU:0"), STATUS_OK);
        value_free(&v);
        raw_close(r);
        host_stop(h);
}
END_TEST

/* A host without a driver serves everything else, and says why there is no GPU. */
START_TEST(a_host_without_a_driver_serves_and_says_so) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 0, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct wanted w = { .type = ROW_FALLBACK, .name = "gpu" };
        for (int i = 0; i < 500 && !strstr(w.why, "no NVIDIA driver"); i++, usleep(10000))
                ck_assert(status_has(r, &w));
        ck_assert_ptr_nonnull(strstr(w.why, "no NVIDIA driver"));
        struct value v = value_new(0);
        const struct reply reply = raw_expect(r, register_device(r, 1, v.fd, "GPU:0"), STATUS_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(reply.error->detail, "no NVIDIA driver"));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        raw_buffer(r, 2, dup(v.fd), N_BYTES);
        raw_expect(r, raw_submit(r, &m, "a", 2, COUNT), STATUS_OK);
        value_free(&v);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- what breaks --- */

static void expect_lost(struct pair *p, const uint64_t requests[2], const char *why) {
        for (int i = 0; i < 2; i++) {
                const struct reply reply = raw_expect(p->r[i], requests[i], STATUS_DEVICE_LOST);
                ck_assert_msg(strstr(reply.error->detail, why), "%s", reply.error->detail);
                ck_assert_ptr_nonnull(strstr(reply.error->detail, "undefined"));
                ck_assert(reply.error->outputs_undefined);
        }
}

static void await_runs(const struct fake_gpu *fake, uint32_t n) {
        for (int i = 0; i < 500 * unit_scale() && fake->n_runs < n; i++)
                usleep(10000);
        ck_assert_uint_ge(fake->n_runs, n);
}

/* A collective of host memory ends while the GPU process is away. */
static void expect_host_well(struct host *h) {
        struct raw *r = raw_open(host_socket(h));
        struct value v = value_new(4);
        struct raw_member m = raw_join(r, "bystander", 0, 1);
        raw_buffer(r, 1, dup(v.fd), N_BYTES);
        raw_expect(r, raw_submit(r, &m, "a", 1, COUNT), STATUS_OK);
        raw_close(r);
        value_free(&v);
}

/* How often the GPU process was started anew, as machines are told. The answer fits into one part. */
static uint32_t count_restarts(struct raw *r) {
        const struct reply reply = raw_expect(r, raw_query(r, WHAT_STATUS, "", ""), STATUS_OK);
        for (uint32_t i = 0; i < reply.rows.n_rows; i++)
                if (reply.rows.rows[i].type == ROW_DAEMON)
                        return reply.rows.rows[i].daemon.n_restarts;
        ck_abort_msg("no row of tuttid");
        return 0;
}

/* E14, E12. Serving again at most 5 s after death; asserted at ten times that. */
START_TEST(E14_a_gpu_process_that_is_killed) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct pair p;
        uint64_t requests[2];
        await_gpu(r, "GPU:0", false);
        ck_assert_uint_eq(count_restarts(r), 0);
        pair_open(&p, h, "GPU:0", NULL);
        fake->hold = 1;
        pair_submit(&p, "a", requests);
        await_runs(fake, 1);
        ck_assert_int_eq(kill((pid_t)fake->pid, SIGKILL), 0);
        uint64_t before_ns = clock_now_ns();
        expect_lost(&p, requests, "signal 9");
        fake->hold = 0;
        expect_host_well(h);
        float first = p.v[0].at[0] + p.v[1].at[0];
        pair_reduce(&p, "b", STATUS_OK); /* the same buffers, without registering again */
        ck_assert_uint_lt(clock_now_ns() - before_ns, 50 * NS_PER_S);
        ck_assert(p.v[0].at[0] == first);
        ck_assert_ptr_nonnull(strstr(await_gpu(r, "GPU:0", false).describe, "started anew 1 time"));
        ck_assert_uint_eq(count_restarts(r), 1);
        pair_close(&p);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* No process ever had it, so nobody has written: its members keep what they had. */
START_TEST(E14_what_no_process_began_has_written_nothing) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct pair p;
        uint64_t requests[2];
        await_gpu(r, "GPU:0", false);
        pair_open(&p, h, "GPU:0", "GPU:0");
        pair_reduce(&p, "a", STATUS_OK); /* one that was begun before says nothing of the next */
        float first = p.v[0].at[0];
        fake->crash_start = 1000;
        ck_assert_int_eq(kill((pid_t)fake->pid, SIGKILL), 0);
        for (int i = 0; i < 500 * unit_scale() && fake->n_starts < 2; i++)
                usleep(10000);
        ck_assert_uint_ge(fake->n_starts, 2);
        pair_submit(&p, "b", requests);
        for (int i = 0; i < 2; i++) {
                const struct reply reply = raw_expect(p.r[i], requests[i], STATUS_DEVICE_LOST);
                ck_assert_msg(strstr(reply.error->detail, "nothing was written"), "%s", reply.error->detail);
                ck_assert(!reply.error->outputs_undefined);
        }
        ck_assert(p.v[0].at[0] == first);
        pair_close(&p);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(E14_a_sticky_error) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct pair p;
        uint64_t requests[2];
        await_gpu(r, "GPU:0", false);
        pair_open(&p, h, "GPU:0", "GPU:0");
        fake->stick = 1;
        pair_submit(&p, "a", requests);
        expect_lost(&p, requests, "CUDA_ERROR_ILLEGAL_ADDRESS");
        pair_reduce(&p, "b", STATUS_OK);
        expect_sum(&p.v[1], 11, 2);
        ck_assert_uint_eq(fake->n_starts, 2);
        pair_close(&p);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(E14_a_call_that_hangs_costs_the_process_alone) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        struct pair p;
        uint64_t requests[2];
        await_gpu(r, "GPU:0", false);
        pair_open(&p, h, "GPU:0", "GPU:0");
        fake->hang = 1;
        pair_submit(&p, "a", requests);
        await_runs(fake, 1);
        uint64_t before_ns = clock_now_ns();
        expect_host_well(h);
        ck_assert_uint_lt(clock_now_ns() - before_ns, 2 * NS_PER_S);
        usleep(3500000);
        expect_lost(&p, requests, "no sign of life");
        pair_reduce(&p, "b", STATUS_OK);
        pair_close(&p);
        raw_close(r);
        host_stop(h);
}
END_TEST

static void expect_gone(pid_t pid) {
        for (int i = 0; i < 300 * unit_scale() && kill(pid, 0) == 0; i++)
                usleep(10000);
        ck_assert(kill(pid, 0) < 0 && errno == ESRCH);
}

/* P20: whatever way tuttid ends, nothing of it stays. */
START_TEST(E12_the_gpu_process_ends_with_tuttid) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, NULL);
        struct raw *r = raw_open(host_socket(h));
        await_gpu(r, "GPU:0", false);
        pid_t pid = (pid_t)fake->pid;
        host_kill9(h);
        expect_gone(pid);
        raw_close(r);
        host_start_again(h);
        r = raw_open(host_socket(h));
        await_gpu(r, "GPU:0", false);
        pid = (pid_t)fake->pid;
        raw_close(r);
        host_end(h);
        expect_gone(pid);
        host_stop(h);
}
END_TEST

/* --- order --- */

static uint64_t submit_with_signal(struct pair *p, int i, const char *key, uint64_t value) {
        const struct entry entry = raw_entry(1, COUNT);
        struct request submit = raw_submit_request(&p->m[i], key, &entry);
        submit.submit.signal = (struct msg_signal){ .slot = 3, .value = value };
        return raw_send(p->r[i], &submit);
}

static struct signal_slot *open_signals(struct raw *r) {
        const struct reply reply = raw_expect(r,
                raw_send(r, &(struct request){ .type = REQUEST_OPEN_SIGNALS,
                                    .open_signals = { ORDER_TIMELINE, "GPU:0" } }),
                STATUS_OK);
        ck_assert_int_eq(reply.signals.order, ORDER_TIMELINE);
        ck_assert_uint_eq(r->packet.n_fds, 1);
        int fd = memfd_open_anew(r->packet.fds[0], O_RDWR);
        void *page = mmap(
                NULL, SIGNAL_SLOTS * sizeof(struct signal_slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        ck_assert_ptr_ne(page, MAP_FAILED);
        return page;
}

START_TEST(a_run_waits_for_the_streams_that_bring_a_signal) {
        struct fake_gpu *fake;
        struct host *h = start(&fake, 1, "gpu.signal-timeout=300 ms");
        struct raw *r = raw_open(host_socket(h));
        struct pair p;
        uint64_t requests[2];
        await_gpu(r, "GPU:0", false);
        pair_open(&p, h, "GPU:0", "GPU:0");
        struct signal_slot *page = open_signals(p.r[1]);
        requests[0] = raw_submit(p.r[0], &p.m[0], "a", 1, COUNT);
        requests[1] = submit_with_signal(&p, 1, "a", 5);
        await_runs(fake, 1);
        expect_sum(&p.v[0], 1, 1); /* not yet */
        page[3].ready = 5;
        raw_expect(p.r[0], requests[0], STATUS_OK);
        raw_expect(p.r[1], requests[1], STATUS_OK);
        expect_sum(&p.v[0], 11, 2);
        ck_assert_uint_eq(page[3].done, 5);
        requests[0] = raw_submit(p.r[0], &p.m[0], "b", 1, COUNT);
        requests[1] = submit_with_signal(&p, 1, "b", 6); /* and never comes */
        const struct reply late = raw_expect(p.r[0], requests[0], STATUS_TIMEOUT);
        ck_assert_ptr_nonnull(strstr(late.error->detail, "the stream of R1"));
        raw_expect(p.r[1], requests[1], STATUS_TIMEOUT);
        for (int i = 0; i < 500 && page[3].done != 6; i++) /* who waits for it goes on */
                usleep(10000);
        ck_assert_uint_eq(page[3].done, 6);
        expect_sum(&p.v[0], 11, 2);
        munmap(page, SIGNAL_SLOTS * sizeof(*page));
        pair_close(&p);
        raw_close(r);
        host_expect_counters_zero(h);
        ck_assert_uint_eq(fake->n_imports, fake->n_releases);
        host_stop(h);
}
END_TEST

UNIT_MAIN("gpu", 60, N2_two_replicas_on_one_gpu, N4_a_gpu_and_a_host_member_in_one_collective,
        E8_memory_that_tuttid_makes_and_how_each_buffer_is_reached,
        E9_an_unknown_device_is_refused_with_those_there_are,
        E8_legacy_handles_are_off_where_they_are_said_to_be,
        A11_a_device_that_fails_its_test_is_off_with_its_reason, a_host_without_a_driver_serves_and_says_so,
        E14_a_gpu_process_that_is_killed, E14_what_no_process_began_has_written_nothing, E14_a_sticky_error,
        E14_a_call_that_hangs_costs_the_process_alone, E12_the_gpu_process_ends_with_tuttid,
        a_run_waits_for_the_streams_that_bring_a_signal)
