#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        MAGIC = 0x7fa4ec0da001,
        BYTE_OF_MAKING = 1 << 28, /* locks of bytes far behind the page */
        BYTE_OF_PROCESSES,
};

#define NAME_CUDA(name, version) #name,
#define NAME_NCCL(name)          #name,
static const char *const names[] = { FAKE_CUDA_CALLS(NAME_CUDA) FAKE_NCCL_CALLS(NAME_NCCL) };

const char *fake_call_name(enum fake_call call) {
        return call < N_FAKE_CALLS ? names[call] : "any call";
}

enum fake_call fake_call_find(const char *name, unsigned int n_chars) {
        if (n_chars == 6 && !strncmp(name, "launch", 6))
                return CALL_cuLaunchKernel;
        for (unsigned int i = 0; i < N_FAKE_CALLS; i++)
                if (strlen(names[i]) == n_chars && !strncmp(names[i], name, n_chars))
                        return (enum fake_call)i;
        return N_FAKE_CALLS;
}

static int lock_byte(int fd, int command, short type, off_t byte) {
        struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
        int r;
        do
                r = fcntl(fd, command, &lock);
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return -errno;
        return command == F_OFD_GETLK && lock.l_type != F_UNLCK;
}

static int make(struct fake_page *page) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        int r = pthread_mutex_init(&page->lock, &attributes);
        pthread_mutexattr_destroy(&attributes);
        atomic_store(&page->next_id, 1);
        atomic_store(&page->magic, MAGIC);
        return -r;
}

static int map(int fd, struct fake_page **ret) {
        int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
        if (fd >= 0 && ftruncate(fd, sizeof(struct fake_page)) < 0)
                return -errno;
        struct fake_page *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, flags, fd, 0);
        if (page == MAP_FAILED)
                return -errno;
        int r = atomic_load(&page->magic) == MAGIC ? 0 : make(page);
        if (r < 0)
                munmap(page, sizeof(*page));
        else
                *ret = page;
        return r;
}

int fake_page_map(const char *path, int *ret_fd, struct fake_page **ret) {
        *ret_fd = -1;
        if (!path)
                return map(-1, ret);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        int r = lock_byte(fd, F_OFD_SETLKW, F_WRLCK, BYTE_OF_MAKING);
        if (r == 0)
                r = map(fd, ret);
        (void)lock_byte(fd, F_OFD_SETLK, F_UNLCK, BYTE_OF_MAKING);
        if (r < 0)
                close(fd);
        else
                *ret_fd = fd;
        return r;
}

void fake_page_unmap(int fd, struct fake_page *page) {
        munmap(page, sizeof(*page));
        if (fd >= 0)
                close(fd);
}

void fake_page_lock(struct fake_page *page) {
        if (pthread_mutex_lock(&page->lock) == EOWNERDEAD)
                pthread_mutex_consistent(&page->lock);
}

void fake_page_unlock(struct fake_page *page) {
        pthread_mutex_unlock(&page->lock);
}

/* What an earlier process of this slot left. */
static void sweep(struct fake_page *page, int slot) {
        struct fake_process *process = &page->processes[slot];
        for (int i = 0; i < N_FAKE_CALLS; i++)
                atomic_fetch_add(&page->gone_calls[i], atomic_exchange(&process->calls[i], 0));
        atomic_store(&process->n_ipc_open, 0);
        atomic_store(&process->n_held, 0);
        for (int i = 0; i < FAKE_MAX_ALLOCATIONS; i++) {
                struct fake_allocation *a = &page->allocations[i];
                a->holders &= ~(UINT64_C(1) << slot);
                if (!a->holders)
                        a->id = 0;
        }
}

static void name_process(struct fake_process *process) {
        memset(process->name, 0, sizeof(process->name));
        FILE *file = fopen("/proc/self/comm", "re");
        if (file) {
                if (fgets(process->name, sizeof(process->name), file))
                        process->name[strcspn(process->name, "\n")] = 0;
                fclose(file);
        }
        atomic_store(&process->pid, getpid());
}

int fake_page_join(struct fake_page *page, int fd) {
        int slot = -EBUSY;
        fake_page_lock(page);
        /* slots never used first, so that tests can still read what the dead have called */
        for (int pass = 0; pass < 2 && slot < 0; pass++)
                for (int i = 0; i < FAKE_MAX_PROCESSES && slot < 0; i++)
                        if ((pass || !atomic_load(&page->processes[i].pid)) &&
                                (fd < 0 || lock_byte(fd, F_OFD_SETLK, F_WRLCK, BYTE_OF_PROCESSES + i) == 0))
                                slot = i;
        if (slot >= 0) {
                sweep(page, slot);
                name_process(&page->processes[slot]);
        }
        fake_page_unlock(page);
        return slot;
}

bool fake_page_is_alive(int fd, int slot, int self) {
        return slot == self ||
               (fd >= 0 && lock_byte(fd, F_OFD_GETLK, F_WRLCK, BYTE_OF_PROCESSES + slot) == 1);
}

uint64_t fake_page_bytes(const struct fake_page *page, int fd, int self, uint32_t device) {
        uint64_t alive = 0, n_bytes = 0;
        for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
                if (atomic_load(&page->processes[i].pid) && fake_page_is_alive(fd, i, self))
                        alive |= UINT64_C(1) << i;
        for (int i = 0; i < FAKE_MAX_ALLOCATIONS; i++) {
                const struct fake_allocation *a = &page->allocations[i];
                if (a->id && a->device == device && (a->holders & alive))
                        n_bytes += a->n_bytes;
        }
        return n_bytes;
}

static struct fake_allocation *find(struct fake_page *page, uint64_t id) {
        for (int i = 0; i < FAKE_MAX_ALLOCATIONS; i++)
                if (page->allocations[i].id == id)
                        return &page->allocations[i];
        return NULL;
}

bool fake_page_hold(struct fake_page *page, int self, const struct fake_allocation *what) {
        struct fake_allocation *a = find(page, what->id);
        if (!a) {
                a = find(page, 0);
                if (!a)
                        return false;
                *a = *what;
                a->holders = 0;
        }
        a->holders |= UINT64_C(1) << self;
        return true;
}

void fake_page_drop(struct fake_page *page, int self, uint64_t id) {
        struct fake_allocation *a = find(page, id);
        if (!a)
                return;
        a->holders &= ~(UINT64_C(1) << self);
        if (!a->holders)
                a->id = 0;
}

bool fake_process_is(const struct fake_process *process, const char *who) {
        if (!who[0])
                return true;
        if (who[0] == '#')
                return atoi(who + 1) == atomic_load(&process->pid);
        return !strncmp(who, process->name, FAKE_NAME_BYTES - 1);
}
