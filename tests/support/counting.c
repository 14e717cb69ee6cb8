/* Stands before the C library in a program that a test starts; for glibc, whose allocator has second names.
 */
#include "counting.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n_bytes);
void *__libc_memalign(size_t align, size_t n_bytes);

static struct counting *counting;

__attribute__((constructor)) static void begin(void) {
        const char *path = getenv(COUNTING_VARIABLE);
        int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (fd < 0)
                return;
        void *p = mmap(NULL, sizeof(*counting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (p != MAP_FAILED)
                counting = p;
}

/* --- the heap --- */

static void count_heap_call(const void *caller) {
        if (!counting)
                return;
        uint64_t n = atomic_fetch_add(&counting->n_heap_calls, 1);
        atomic_store(&counting->last_callers[n % 4], (uint64_t)(uintptr_t)caller);
}

void *malloc(size_t n_bytes) {
        count_heap_call(__builtin_return_address(0));
        return __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t size) {
        count_heap_call(__builtin_return_address(0));
        return __libc_calloc(n, size);
}

void *realloc(void *old, size_t n_bytes) {
        count_heap_call(__builtin_return_address(0));
        return __libc_realloc(old, n_bytes);
}

void *aligned_alloc(size_t align, size_t n_bytes) {
        count_heap_call(__builtin_return_address(0));
        return __libc_memalign(align, n_bytes);
}

int posix_memalign(void **ret, size_t align, size_t n_bytes) {
        count_heap_call(__builtin_return_address(0));
        *ret = __libc_memalign(align, n_bytes);
        return *ret ? 0 : ENOMEM;
}

/* --- mutexes --- */

static void count_mutex(uint64_t address) {
        for (int i = 0; i < COUNTING_MUTEXES; i++) {
                uint64_t there = atomic_load(&counting->mutexes[i].address);
                if (there == 0)
                        atomic_store(&counting->mutexes[i].address, there = address);
                if (there != address)
                        continue;
                atomic_fetch_add(&counting->mutexes[i].n, 1);
                return;
        }
        atomic_fetch_add(&counting->n_mutexes_lost, 1);
}

static void count_lock(const pthread_mutex_t *mutex) {
        if (!counting)
                return;
        if (syscall(SYS_gettid) == getpid())
                count_mutex((uint64_t)(uintptr_t)mutex);
        else
                atomic_fetch_add(&counting->n_locks_elsewhere, 1);
}

typedef int locker(pthread_mutex_t *mutex);

int pthread_mutex_lock(pthread_mutex_t *mutex) {
        static locker *_Atomic next;
        if (!next)
                next = (locker *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
        count_lock(mutex);
        return next(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
        static locker *_Atomic next;
        if (!next)
                next = (locker *)dlsym(RTLD_NEXT, "pthread_mutex_trylock");
        count_lock(mutex);
        return next(mutex);
}
