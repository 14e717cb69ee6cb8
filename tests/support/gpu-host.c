#include "gpu-host.h"

#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "unit.h"

struct fakecuda *gpu_control;
struct fakecuda_functions gpu_cu;

struct host *gpu_host_start(const char *n_devices, const char *const *arguments) {
        static char path[300];
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        setenv("FAKECUDA_CONTROL", path, 1);
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        setenv("LD_LIBRARY_PATH", fakecuda_directory(), 1);
        gpu_control = fakecuda_open(path);
        ck_assert_ptr_nonnull(gpu_control);
        return host_start(arguments);
}

void gpu_host_stop(struct host *h) {
        host_expect_counters_zero(h);
        host_stop(h);
        for (unsigned int i = 0; i < 8; i++)
                ck_assert_uint_eq(fakecuda_bytes(gpu_control, i), 0);
        fakecuda_close(gpu_control);
}

static void ok(CUresult r) {
        ck_assert_int_eq(r, CUDA_SUCCESS);
}

void gpu_use_device(int k) {
        CUdevice device;
        CUcontext context;
        fakecuda_load(&gpu_cu);
        ok(gpu_cu.cuInit(0));
        ok(gpu_cu.cuDeviceGet(&device, k));
        ok(gpu_cu.cuDevicePrimaryCtxRetain(&context, device));
        ok(gpu_cu.cuCtxSetCurrent(context));
}

struct tutti_buffer *gpu_take_buffer(struct tutti *t, size_t count) {
        struct tutti_buffer *b = NULL;
        enum tutti_status status = TUTTI_BUSY;
        for (int i = 0; status == TUTTI_BUSY && i < 1000 * unit_scale(); i++) {
                status = tutti_cuda_buffer_alloc(t, count * sizeof(float), &b);
                if (status == TUTTI_BUSY)
                        usleep(10000);
        }
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        return b;
}

static CUdeviceptr at(struct tutti_buffer *b) {
        return (CUdeviceptr)(uintptr_t)tutti_buffer_data(b);
}

void gpu_fill(struct tutti_buffer *b, float first) {
        static float values[GPU_COUNT];
        for (int i = 0; i < GPU_COUNT; i++)
                values[i] = first + (float)i;
        ok(gpu_cu.cuMemcpyHtoD(at(b), values, sizeof(values)));
}

void gpu_expect(struct tutti_buffer *b, float first, float step) {
        static float values[GPU_COUNT];
        ok(gpu_cu.cuMemcpyDtoH(values, at(b), sizeof(values)));
        for (int i = 0; i < GPU_COUNT; i++)
                ck_assert_msg(values[i] == first + step * (float)i, "[%d] is %f", i, (double)values[i]);
}

enum tutti_status gpu_reduce(struct tutti_group *g, const char *key, struct tutti_buffer *b, size_t count) {
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { count });
        return tutti_all_reduce(g, key, TUTTI_SUM, &v, &v);
}

void gpu_leave(struct replica *me, struct tutti_buffer *b) {
        tutti_buffer_free(b);
        tutti_close(me->t);
        me->t = NULL;
        void *library;
        while ((library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
                ck_assert_int_eq(dlclose(library), 0);
                ck_assert_int_eq(dlclose(library), 0);
        }
}

/* The parent of `pid`, as the kernel tells; -1: it has gone. */
static int parent_of(int pid) {
        char path[64], line[256];
        int parent = -1;
        snprintf(path, sizeof(path), "/proc/%d/status", pid);
        FILE *f = fopen(path, "re");
        while (f && parent < 0 && fgets(line, sizeof(line), f))
                if (sscanf(line, "PPid: %d", &parent) != 1)
                        parent = -1;
        if (f)
                fclose(f);
        return parent;
}

static bool is_worker(int pid) {
        char path[64], name[32] = "";
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *f = fopen(path, "re");
        if (f && !fgets(name, sizeof(name), f))
                name[0] = '\0';
        if (f)
                fclose(f);
        return strcmp(name, "tuttid-gpu\n") == 0;
}

/* tuttid's nursery is its child, tuttid-gpu the nursery's. */
static int find_worker(int tuttid) {
        int found = 0;
        DIR *dir = opendir("/proc");
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e && !found; e = readdir(dir)) {
                int pid = atoi(e->d_name);
                if (pid > 0 && is_worker(pid) && parent_of(parent_of(pid)) == tuttid)
                        found = pid;
        }
        closedir(dir);
        return found;
}

int gpu_worker_pid(const struct host *h) {
        for (int i = 0; i < 1000 * unit_scale(); i++) {
                int pid = find_worker(host_pid(h));
                if (pid && fakecuda_processes(gpu_control, "tuttid-gpu"))
                        return pid;
                usleep(10000);
        }
        ck_abort_msg("there is no tuttid-gpu");
        return 0;
}
