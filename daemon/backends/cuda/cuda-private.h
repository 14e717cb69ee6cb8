/* What the files of the cuda backend share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/cuda/cuda-backend.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/kernels.h"
#include "base/list.h"

#define ON_HOST UINT32_MAX /* instead of a device's index: host memory that all devices reach */

struct cliques;
struct event_pool;
struct tenant;

struct cuda_device {
        uint32_t index; /* GPU:index; what it is, c->base.devices[index] tells; why[0] there: it is off */
        CUdevice handle;
        CUcontext context;
        CUmodule module;
        CUfunction functions[N_CUDA_KERNELS];
        /* What cannot wait behind a group's work goes here: the self-test, and letting go of who waits too
         * long. */
        CUstream own;
        uint32_t n_multiprocessors;
        uint64_t granularity; /* of memory that has descriptors; 0: it has none */
        uint64_t reach;       /* bit k: it may read and write GPU:k's memory; its own always */
        uint64_t links;       /* bit k: it reaches GPU:k over links of their own */
        bool has_read_only;   /* host memory is registered for reading alone */
        struct list events;   /* free ones */
        uint32_t n_events;
};

/* One stream for each device, which a group has while it has runs. */
struct lane {
        struct list link;
        uint64_t group;
        uint32_t n_runs;
        uint64_t seen;                     /* the poll in which a run of it was last looked at */
        CUstream streams[MAX_GPU_DEVICES]; /* made when they are needed */
};

/* Memory of ours for what lies between steps; kept for the next run. */
struct area {
        struct list link;
        uint32_t where; /* a device's index, or ON_HOST */
        uint64_t n_bytes;
        CUdeviceptr at;
        uint8_t *host; /* ON_HOST: where it is for us */
};

/* An allocation behind a legacy handle, opened once however many buffers lie in it. */
struct ipc_opening {
        struct list link;
        uint32_t device, n_users;
        uint8_t handle[MEMORY_HANDLE_BYTES];
        CUdeviceptr base;
        uint64_t n_bytes;
};

/* A buffer as the devices see it. */
struct cuda_memory {
        struct memory base; /* first */
        CUdeviceptr at;     /* its first byte */
        bool is_writable;
        uint32_t n_uses; /* runs under way that name it */
        bool is_released;
        /* PATH_VMM_MADE, PATH_VMM_FD */
        CUdeviceptr reserved;
        uint64_t n_reserved_bytes;
        bool is_mapped;
        CUmemGenericAllocationHandle physical;
        bool has_physical;
        /* PATH_CUDA_IPC */
        struct ipc_opening *opening;
        /* PATH_MEMFD */
        uint8_t *map;
        uint64_t n_map_bytes;
        bool is_pinned; /* otherwise runs copy it through memory of ours */
        /* PATH_EVENTS, which is mapped likewise and not pinned */
        struct event_pool *events;
};

struct cuda {
        struct gpu_backend base; /* first */
        struct gpu_options options;
        struct driver driver;
        uint32_t n_devices;
        struct cuda_device *devices; /* [n_devices] */
        CUcontext current;
        struct list idle_lanes, busy_lanes;
        uint32_t n_lanes;     /* both */
        struct list areas;    /* free ones */
        struct list openings; /* of legacy handles */
        struct list runs;     /* under way, in the order of their launch */
        struct list tenants;  /* users with runs under way */
        uint32_t n_tenants;
        bool is_shared;                   /* there are users beside the one who came last */
        const struct tenant *awaits_lane; /* who is next to have one; NULL: nobody waits */
        uint64_t bytes_under_way;         /* that they read and write */
        uint64_t n_polls;
        struct cliques *cliques; /* of the library; NULL: it is not there */
        char fallback_line[GPU_TEXT_BYTES + 40];
};

static inline struct cuda *cuda_of(struct backend *b) {
        return (struct cuda *)b;
}

static inline struct cuda_memory *cuda_memory_of(struct memory *m) {
        return (struct cuda_memory *)m;
}

/* --- cuda-backend.c --- */

/* What a call of the driver gave: 0, -ENOMEM, or -EIO. An error is logged in the driver's words, and one that
 * it keeps breaks the backend. */
int cuda_check(struct cuda *c, CUresult result, const char *call) MUST_USE;
/* The same of a call whose failure changes nothing for us: it is only logged. */
void cuda_note(struct cuda *c, CUresult result, const char *call);
void cuda_break(struct cuda *c, const char *why);
PRINTF_LIKE(3, 4)
void cuda_add_fallback(struct cuda *c, const char *what, const char *why, ...);
/* Makes the device's context the current one. 0 or negative errno. */
int cuda_enter(struct cuda *c, const struct cuda_device *d) MUST_USE;
/* Of a number as plans have it; NULL: no GPU of ours, or one that is off. */
struct cuda_device *cuda_device_of(struct cuda *c, uint32_t device);

/* --- devices.c --- */

/* All devices, those that are off too. 0, or a negative errno with a sentence. */
int cuda_devices_open(struct cuda *c, char *why, size_t why_bytes) MUST_USE;
void cuda_devices_close(struct cuda *c);
/* "GPU:0-GPU:3", whichever comes first. */
#define WAY_BYTES 32
void cuda_print_way(const struct cuda_device *a, const struct cuda_device *b, char text[WAY_BYTES]);
/* Once the ways are tested: fills in what each device reaches, and over what. */
void cuda_devices_report_ways(struct cuda *c);
void cuda_device_turn_off(struct cuda *c, struct cuda_device *d, const char *why);

CUevent cuda_event_take(struct cuda *c, struct cuda_device *d); /* NULL: none can be had */
void cuda_event_give(struct cuda *c, struct cuda_device *d, CUevent event);

int cuda_launch(struct cuda *c, struct cuda_device *d, CUstream stream, struct cuda_launch *launch) MUST_USE;

/* --- lanes.c --- */

/* The lane of the group, for one more run; NULL: all are taken, or -ENOMEM. */
struct lane *cuda_lane_take(struct cuda *c, uint64_t group);
void cuda_lane_give(struct cuda *c, struct lane *lane);
/* NULL: it cannot be made. */
CUstream cuda_lane_stream(struct cuda *c, struct lane *lane, struct cuda_device *d);
void cuda_lanes_close(struct cuda *c);

/* --- areas.c --- */

/* At least n_bytes at `where`; what is in it is unknown. NULL: it cannot be had. */
struct area *cuda_area_take(struct cuda *c, uint32_t where, uint64_t n_bytes);
void cuda_area_give(struct cuda *c, struct area *a);
void cuda_areas_close(struct cuda *c);

/* --- self-test.c --- */

/* Turns off what does not give back what was put in. */
void cuda_self_test(struct cuda *c);

/* --- memory.c, memory-device.c --- */

void cuda_import(struct backend *b, struct chore *chore);
void cuda_release(struct backend *b, struct chore *chore);
void cuda_make(struct backend *b, struct chore *chore);
void cuda_unmake(struct backend *b, struct chore *chore);
/* A run uses it, and uses it no more. */
void cuda_memory_ref(struct cuda_memory *m);
void cuda_memory_unref(struct cuda *c, struct cuda_memory *m);

PRINTF_LIKE(3, 4)
enum status cuda_refuse(struct chore *chore, enum status status, const char *format, ...);
enum status cuda_device_import(struct cuda *c, struct chore *chore, struct cuda_memory *m) MUST_USE;
enum status cuda_device_make(struct cuda *c, struct chore *chore, struct cuda_memory *m) MUST_USE;
void cuda_device_memory_close(struct cuda *c, struct cuda_memory *m);

/* --- run.c --- */

int cuda_run_launch(struct backend *b, struct run *run);
void cuda_run_poll(struct backend *b);
void cuda_runs_close(struct cuda *c);
