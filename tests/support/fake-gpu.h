/* A tuttid-gpu without GPUs: the real program around a backend that keeps "device memory" in memfds and lets
 * the host's kernels do the work. A test steers it, and looks on, through a page that all its processes
 * share.
 *
 *     struct fake_gpu *fake = fake_gpu_new(2);
 *     host_start((const char *[]){ "--set", fake_gpu_setting(), NULL });
 *
 * Device memory is any memfd (kinds vmm-made and vmm-fd); a legacy handle is the path of one as text. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fake_gpu {
        /* What it shall do. */
        _Atomic uint32_t n_devices; /* 0: there is no driver */
        _Atomic uint32_t hold;      /* runs wait until it is 0 again */
        _Atomic uint32_t hang;      /* the n-th run or import from now on never returns; 0: none */
        _Atomic uint32_t crash;     /* the n-th run from now on kills the process */
        _Atomic uint32_t crash_import;
        _Atomic uint32_t stick;       /* the n-th run from now on breaks the backend */
        _Atomic uint32_t fail_import; /* the n-th import from now on is refused */
        _Atomic uint32_t crash_start; /* so many starts end at once */
        _Atomic uint32_t hide_device; /* the last device fails its test */
        /* What it did, over all its processes. */
        _Atomic uint32_t pid, n_starts, n_imports, n_releases, n_runs, n_makes;
        _Atomic uint64_t n_polls;
};

/* Before the first process is started: it is found by an environment variable. Goes with the test. */
struct fake_gpu *fake_gpu_new(uint32_t n_devices);
/* "gpu.worker=PATH": for `--set`. */
const char *fake_gpu_setting(void);
/* The program. */
const char *fake_gpu_path(void);
/* Of device k. */
const char *fake_gpu_uuid(uint32_t k);
