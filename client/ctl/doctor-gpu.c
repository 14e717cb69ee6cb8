/* GPUs, what tuttid makes of them, and what stands in their way. Without one all of it is absent. */
#include "doctor.h"

#include <inttypes.h>
#include <string.h>
#include "rows.h"

#define MIB               (UINT64_C(1) << 20)
#define MEMLOCK_IS_PLENTY (256 * MIB)

static bool has_driver(const struct doctor_view *v) {
        return *v->facts->nvidia_driver != '\0';
}

static void say_absent(struct diagnosis *d, const char *why) {
        d->verdict = VERDICT_ABSENT;
        line_add(&d->text, "%s", why);
}

void doctor_iommu(const struct doctor_view *v, struct diagnosis *d) {
        const struct host_facts *f = v->facts;

        if (!f->n_iommus) {
                say_absent(d, "no IOMMU is in use");
                return;
        }
        line_add(&d->text, "%u IOMMU%s", f->n_iommus, f->n_iommus == 1 ? "" : "s");
        if (!f->iommu_translates) {
                line_add(&d->text, ", passing addresses through");
        } else if (!f->n_nvidia_gpus) {
                line_add(&d->text, ", translating; no GPU whose transfers it could slow");
        } else {
                d->verdict = VERDICT_NOTE;
                line_add(&d->text,
                        " translating addresses: transfers between GPUs may go through main memory, or fail");
                line_add(&d->advice, "on bare metal boot with iommu=pt");
        }
}

void doctor_gpu_driver(const struct doctor_view *v, struct diagnosis *d) {
        const struct host_facts *f = v->facts;

        if (!has_driver(v) && !f->n_nvidia_gpus) {
                say_absent(d, "no NVIDIA GPU; none is needed");
        } else if (!has_driver(v)) {
                d->verdict = VERDICT_FINDING;
                line_add(&d->text, "%u NVIDIA GPU%s, and no driver is loaded", f->n_nvidia_gpus,
                        f->n_nvidia_gpus == 1 ? "" : "s");
                line_add(&d->advice, "install the driver, or `modprobe nvidia`");
        } else if (*f->nvidia_file) {
                d->verdict = VERDICT_FINDING;
                line_add(&d->text, "NVIDIA driver %s, but %s cannot be opened (%s)", f->nvidia_driver,
                        f->nvidia_file, doctor_error_name(f->e_nvidia_file));
                line_add(&d->advice, "%s",
                        *f->container ? "give the container its GPUs (`--gpus all`)"
                                      : "see who owns /dev/nvidia* (`nvidia-modprobe -u -c 0` makes what is "
                                        "missing); DeviceAllow= of a unit can hide it");
        } else {
                line_add(&d->text, "NVIDIA driver %s; its files can be opened", f->nvidia_driver);
        }
}

/* --- what tuttid says --- */

static const struct tutti_row_device *next_gpu(
        const struct doctor_view *v, const struct tutti_row **previous) {
        while ((*previous = rows_next(v->status, TUTTI_ROW_DEVICE, *previous)))
                if (strncmp((*previous)->device.name, "GPU:", 4) == 0)
                        return &(*previous)->device;
        return NULL;
}

static const struct tutti_row_fallback *find_fallback(const struct doctor_view *v, const char *what) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->status, TUTTI_ROW_FALLBACK, row)))
                if (strcmp(row->fallback.what, what) == 0)
                        return &row->fallback;
        return NULL;
}

static void report_no_gpus(const struct doctor_view *v, struct diagnosis *d) {
        const struct tutti_row_fallback *off = find_fallback(v, "gpu");

        if (!off) {
                say_absent(d, "tuttid is told to serve no GPUs (gpu.enabled)");
                return;
        }
        d->verdict = VERDICT_FINDING;
        line_add(&d->text, "tuttid serves no GPU: ");
        line_add_safe(&d->text, off->why);
        line_add(&d->advice,
                "put that right and start tuttid again (its log says more), or set gpu.enabled = no");
}

void doctor_gpu_worker(const struct doctor_view *v, struct diagnosis *d) {
        const struct tutti_row *row = NULL;
        const struct tutti_row_device *gpu;
        uint32_t n = 0;

        if (!has_driver(v) || !v->status) {
                say_absent(d, has_driver(v) ? "which GPUs tuttid serves cannot be seen" : "no GPU to serve");
                return;
        }
        for (; (gpu = next_gpu(v, &row)); n++) {
                if (!gpu->failing)
                        continue;
                d->verdict = VERDICT_FINDING;
                line_add(&d->text, "%s%s is off: ", d->text.used ? "; " : "", gpu->name);
                line_add_safe(&d->text, gpu->why);
        }
        if (n == 0)
                report_no_gpus(v, d);
        else if (d->verdict == VERDICT_FINDING)
                line_add(&d->advice, "see `dmesg | grep -i xid` and `nvidia-smi -q`; the others are served");
        else
                line_add(&d->text, "tuttid serves %u GPU%s", n, n == 1 ? "" : "s");
}

/* "GPU:0-GPU:1". */
static bool is_path(const char *what) {
        return strncmp(what, "GPU:", 4) == 0 && strstr(what, "-GPU:");
}

void doctor_gpu_paths(const struct doctor_view *v, struct diagnosis *d) {
        const struct tutti_row *row = NULL;
        uint32_t n_gpus = 0;

        while (v->status && next_gpu(v, &row))
                n_gpus++;
        if (n_gpus < 2) {
                say_absent(d, "no two GPUs that tuttid serves");
                return;
        }
        while ((row = rows_next(v->status, TUTTI_ROW_FALLBACK, row))) {
                if (!is_path(row->fallback.what))
                        continue;
                line_add(&d->text, "%s%s: ", d->text.used ? "; " : "", row->fallback.what);
                line_add_safe(&d->text, row->fallback.why);
        }
        if (!d->text.used) {
                line_add(&d->text, "GPUs reach each other's memory");
                return;
        }
        d->verdict = VERDICT_NOTE;
        line_add(&d->advice,
                "results are the same, slower. `nvidia-smi topo -p2p rw` says what the hardware can; a path "
                "that failed its test points to an IOMMU or ACS that is on (boot with iommu=pt)");
}

/* --- memory --- */

void doctor_gpu_memory(const struct doctor_view *v, struct diagnosis *d) {
        const struct tutti_row *row = NULL;
        const struct tutti_row_device *gpu;

        if (!has_driver(v)) {
                say_absent(d, "no GPU memory to share");
        } else if (v->facts->has_own_pids) {
                d->verdict = VERDICT_NOTE;
                line_add(&d->text,
                        "a pid namespace of its own: memory of cudaMalloc cannot be opened across it, memory "
                        "with descriptors can");
                line_add(&d->advice,
                        "take memory that tuttid makes (tutti_cuda_buffer_alloc), or that the allocator can "
                        "export (PyTorch: expandable_segments); neither needs --pid=host");
        } else if (v->status && (gpu = next_gpu(v, &row))) {
                line_add(&d->text, "%s takes %s, and copies through host memory", gpu->name, gpu->paths);
        } else {
                line_add(&d->text, "nothing here keeps GPU memory from being shared");
        }
}

/* The limit that counts: of tuttid, which tuttid-gpu inherits, else of this process. */
void doctor_memlock(const struct doctor_view *v, struct diagnosis *d) {
        const struct host_facts *f = v->facts;
        const uint64_t limit = f->daemon_memlock_bytes ? f->daemon_memlock_bytes : f->memlock_bytes;
        const char *whose = f->daemon_memlock_bytes ? "tuttid" : "a process here";
        const struct tutti_row_fallback *unpinned = v->status ? find_fallback(v, "pinned") : NULL;

        if (!has_driver(v)) {
                say_absent(d, "no GPU that needs pinned memory");
                return;
        }
        if (limit == UINT64_MAX)
                line_add(&d->text, "%s may lock all the memory it wants", whose);
        else
                line_add(&d->text, "%s may lock %s of memory", whose, bytes_text(limit).s);
        if (unpinned) {
                line_add(&d->text, "; tuttid could not pin: ");
                line_add_safe(&d->text, unpinned->why);
        }
        if (!unpinned && limit >= MEMLOCK_IS_PLENTY)
                return;
        d->verdict = unpinned ? VERDICT_FINDING : VERDICT_NOTE;
        line_add(&d->advice,
                "start tuttid with LimitMEMLOCK=infinity (`--ulimit memlock=-1`): host memory that cannot be "
                "pinned is copied once more");
}

/* --- two processes on one GPU (ADR 0007) --- */

void doctor_mps(const struct doctor_view *v, struct diagnosis *d) {
        const struct host_facts *f = v->facts;

        if (f->is_mps_stale) {
                d->verdict = VERDICT_FINDING;
                line_add(&d->text, "MPS has left its pipes, and has ended: CUDA may wait for it in vain");
                line_add(&d->advice, "start it (`nvidia-cuda-mps-control -d`), or remove its directory");
        } else if (f->has_mps) {
                line_add(
                        &d->text, "MPS runs: on a GPU tuttid-gpu and trainers that use it work side by side");
        } else if (!has_driver(v)) {
                say_absent(d, "no MPS control daemon");
        } else {
                d->verdict = VERDICT_NOTE;
                line_add(&d->text,
                        "no MPS: tuttid-gpu and a trainer take turns on a GPU; while the trainer's kernels "
                        "run, a collective waits for its time slice");
                line_add(&d->advice,
                        "for collectives beside kernels start `nvidia-cuda-mps-control -d`, and tuttid and "
                        "trainers with the same user and CUDA_MPS_PIPE_DIRECTORY; results are the same");
        }
}
