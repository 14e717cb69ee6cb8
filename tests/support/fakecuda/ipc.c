/* Legacy handles of device memory. A handle names the process, its pid namespace, and the place in its heap,
 * which is a file beside the control file (without one, its descriptor under /proc). A handle of a process of
 * another pid namespace, or of one that has ended, is refused. */
#include "fake.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ticket {
        uint32_t magic;
        int32_t pid, fd;
        uint32_t physical;
        uint64_t inode, offset, n_bytes, id, pid_namespace;
};
enum { TICKET_MAGIC = 0x4d654d74 };
_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "it has to fit");

static uint64_t pid_namespace(void) {
        struct stat status;
        return stat("/proc/self/ns/pid", &status) < 0 ? 0 : status.st_ino;
}

/* Without a right over it. */
static bool is_alive(int pid) {
        char path[32];
        struct stat status;
        snprintf(path, sizeof(path), "/proc/%d", pid);
        return stat(path, &status) == 0;
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr pointer) {
        CUresult r = fake_enter(CALL_cuIpcGetMemHandle, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_range *range = fake_range_find(pointer);
        struct stat status;
        if (!fake.has_ipc)
                return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
        /* neither memory that was mapped, nor what another process made */
        if (!ret || !range || range->kind != FAKE_DEVICE_MEMORY ||
                fstat(range->context->heap_fd, &status) < 0)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        struct ticket t = { .magic = TICKET_MAGIC,
                .pid = getpid(),
                .fd = range->context->heap_fd,
                .physical = (uint32_t)range->owner,
                .inode = status.st_ino,
                .offset = range->offset,
                .n_bytes = range->n_bytes,
                .id = range->id,
                .pid_namespace = pid_namespace() };
        memset(ret, 0, sizeof(*ret));
        memcpy(ret, &t, sizeof(t));
        return fake_leave(CUDA_SUCCESS);
}

bool fake_heap_path(char *buf, size_t size, int pid, uint32_t physical) {
        const char *control = getenv("FAKECUDA_CONTROL");
        if (!control || !*control)
                return false;
        int n = snprintf(buf, size, "%s.heap-%d-%u", control, pid, physical);
        return n > 0 && (size_t)n < size;
}

static struct fake_range *find_open(const struct ticket *t) {
        struct fake_range *range;
        for (size_t i = 0; (range = fake_range_at(i)); i++)
                if (range->kind == FAKE_FOREIGN && range->id == t->id && range->context == fake_current())
                        return range;
        return NULL;
}

static CUresult map(const struct ticket *t, struct fake_range *ret) {
        char path[PATH_MAX];
        struct stat status;
        if (!fake_heap_path(path, sizeof(path), t->pid, t->physical))
                snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->pid, t->fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return CUDA_ERROR_INVALID_HANDLE;
        CUresult r = CUDA_SUCCESS;
        void *at = MAP_FAILED;
        if (fstat(fd, &status) < 0 || status.st_ino != t->inode)
                r = CUDA_ERROR_INVALID_HANDLE;
        else
                at = mmap(NULL, t->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)t->offset);
        close(fd);
        if (r == CUDA_SUCCESS && at == MAP_FAILED)
                r = CUDA_ERROR_MAP_FAILED;
        *ret = (struct fake_range){ .base = (uintptr_t)at,
                .n_bytes = t->n_bytes,
                .kind = FAKE_FOREIGN,
                .owner = (int)t->physical,
                .context = fake_current(),
                .id = t->id,
                .n_opens = 1 };
        return r;
}

static CUresult note(const struct fake_range *range) {
        size_t n_pages = (range->n_bytes + FAKE_PAGE - 1) / FAKE_PAGE;
        struct fake_allocation a = {
                .id = range->id, .n_bytes = n_pages * FAKE_PAGE, .device = (uint32_t)range->owner
        };
        CUresult r = fake_charge(&a);
        if (r == CUDA_SUCCESS && !fake_range_add(range)) {
                fake_uncharge(range->id);
                r = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (r != CUDA_SUCCESS)
                munmap((void *)range->base, range->n_bytes);
        else
                atomic_fetch_add(&fake.process->n_ipc_open, 1);
        return r;
}

static CUresult open_ticket(const struct ticket *t, CUdeviceptr *ret) {
        struct fake_context *c = fake_current();
        if (t->magic != TICKET_MAGIC || t->physical >= FAKE_MAX_DEVICES)
                return CUDA_ERROR_INVALID_HANDLE;
        if (t->pid == getpid())
                return CUDA_ERROR_INVALID_CONTEXT;
        if (t->pid_namespace != pid_namespace() || !is_alive(t->pid))
                return CUDA_ERROR_INVALID_HANDLE;
        uint32_t bit = 1u << t->physical;
        if ((int)t->physical != c->physical && !(fake.reach[c->physical] & bit))
                return CUDA_ERROR_MAP_FAILED;
        struct fake_range *known = find_open(t), range;
        if (known) {
                known->n_opens++;
                *ret = known->base;
                return CUDA_SUCCESS;
        }
        CUresult r = map(t, &range);
        if (r == CUDA_SUCCESS)
                r = note(&range);
        if (r != CUDA_SUCCESS)
                return r;
        if ((int)t->physical != c->physical)
                c->peers |= bit; /* as the flag asks for */
        *ret = range.base;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuIpcOpenMemHandle, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!fake.has_ipc)
                return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
        if (!ret || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        struct ticket t;
        memcpy(&t, &handle, sizeof(t));
        return fake_leave(open_ticket(&t, ret));
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr pointer) {
        CUresult r = fake_enter(CALL_cuIpcCloseMemHandle, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_range *range = fake_range_find(pointer);
        if (!range || range->base != pointer || range->kind != FAKE_FOREIGN)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        if (range->context != fake_current())
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        if (--range->n_opens)
                return fake_leave(CUDA_SUCCESS);
        munmap((void *)range->base, range->n_bytes);
        atomic_fetch_sub(&fake.process->n_ipc_open, 1);
        fake_uncharge(range->id);
        fake_range_remove(range);
        return fake_leave(CUDA_SUCCESS);
}
