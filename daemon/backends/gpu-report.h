/* What a backend of GPUs tells of its devices once it has tested them: plain values, which tuttid-gpu passes
 * on to tuttid, and tuttid to whoever asks for its status. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/backend.h"

#define MAX_GPU_DEVICES   64
#define MAX_GPU_FALLBACKS 64
#define GPU_UUID_BYTES    44 /* "GPU-" and 36 characters */
#define GPU_TEXT_BYTES    160

struct gpu_device {
        char uuid[GPU_UUID_BYTES];     /* as nvidia-smi prints it */
        char name[64];                 /* "NVIDIA H100 80GB HBM3" */
        char describe[GPU_TEXT_BYTES]; /* one line for people: compute capability, memory, driver */
        char why[GPU_TEXT_BYTES];      /* why it is off: it failed its test; "": it serves */
        uint64_t n_bytes;              /* of its memory */
        uint64_t granularity;          /* of what is made there: a power of two; 0: nothing can be */
        uint32_t paths;                /* 1 << enum memory_path, for each kind of memory that it takes */
        uint32_t peers[2];             /* bit k % 32 of peers[k / 32]: it reads and writes GPU:k's memory */
        uint32_t nvlinks[2];           /* those of them that it reaches over links of their own */
        char ways[GPU_TEXT_BYTES];     /* the same for people: "NVLink to 1,2,3,4"; "": over none */
        bool has_timeline;             /* its streams wait for values in memory, and write them */
        bool has_library;              /* NCCL is there for it */
        bool has_events;               /* it has events between processes */
};

/* Something is less than it could be (P15). */
struct gpu_fallback {
        char what[32]; /* "GPU:0-GPU:1", "nccl", "pinned" */
        char why[GPU_TEXT_BYTES];
};

/* What a backend of GPUs is told. */
struct gpu_options {
        bool takes_ipc;            /* legacy handles */
        uint64_t test_limit_ns;    /* for each device and path of the self-test */
        const char *cuda_path;     /* of the driver; NULL: libcuda.so.1 as the linker finds it */
        const char *nccl_path;     /* NULL: libnccl.so.2; "": none */
        uint64_t hang_limit_ns;    /* for any other plan, once it could run, where it is small; 0: none */
        uint64_t library_limit_ns; /* for a collective of NCCL, once it runs; 0: 60 s */
};

/* What such a backend is to the program around it (daemon/gpu/), which owns it and calls it on one thread:
 * begins with `base`, and is filled by its maker (backends/cuda/cuda.h: cuda_backend_new) when the self-test
 * is over. launch never blocks for a client; poll is called again and again while something is under way. */
struct gpu_backend {
        struct backend base;
        uint32_t n_devices;
        struct gpu_device devices[MAX_GPU_DEVICES]; /* GPU:k is devices[k] */
        uint32_t n_fallbacks;
        struct gpu_fallback fallbacks[MAX_GPU_FALLBACKS];
        /* A sticky error, or a driver that has gone: every run has been given back as DEVICE_LOST, nothing
         * more can be done, and the process is to end. */
        bool is_broken;
        char broken_why[GPU_TEXT_BYTES];
        const struct run *broken_by; /* the one that did not end; NULL: nobody knows */
};
