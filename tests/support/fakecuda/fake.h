/* Inside of the fake driver: the state of this process, and what its parts have in common.
 *
 * One mutex guards everything. A public function goes fake_enter - work - fake_leave; enter counts the call,
 * lets faults strike, refuses what every call refuses (not initialised, a sticky error, no context), and
 * takes the lock. Streams are run by one thread for each context (stream.c), which lets the lock go while
 * work runs. */
#pragma once

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>
#include "page.h"

#define FAKE_PUBLIC __attribute__((visibility("default")))

enum {
        FAKE_PAGE = 4096,
        FAKE_GRANULE = 2 << 20, /* of virtual memory management */
};

/* Handles that callers hold are numbers that never come again, so that a stale one is always recognised. */
enum fake_kind { FAKE_STREAM, FAKE_EVENT, FAKE_MODULE, FAKE_FUNCTION, FAKE_PHYSICAL };

struct fake_handle {
        uintptr_t id;
        enum fake_kind kind;
        UT_hash_handle hh;
};

struct fake_context {
        int device;   /* as this process numbers them */
        int physical; /* as the host numbers them */
        unsigned int n_users;
        uint32_t peers; /* bits of physical devices that cuCtxEnablePeerAccess named */
        struct fake_stream *streams;
        struct fake_stream *null_stream;
        pthread_t thread;
        bool is_ending;
        unsigned int n_held; /* its part of the process's n_held */
        int heap_fd;         /* what cuMemAlloc gives; each piece at an offset of its own, never used twice */
        uint64_t heap_end;
        uint64_t heap_id;
};

struct fake {
        pthread_mutex_t lock;
        pthread_cond_t changed; /* anything that somebody may wait for */
        _Atomic int sticky;     /* CUresult; 0 while all is well */
        bool is_init;
        bool is_forked;
        bool is_gone; /* the library is being closed */
        int n_devices;
        int n_physical;
        uint32_t reach[FAKE_MAX_DEVICES];   /* bit j of [i]: physical i may read j as a peer */
        uint32_t links[FAKE_MAX_DEVICES];   /* bit j of [i]: over links of their own */
        uint32_t dead[FAKE_MAX_DEVICES];    /* bit j of [i]: copies between i and j never end */
        uint32_t corrupt[FAKE_MAX_DEVICES]; /* bit j of [i]: copies between i and j flip a bit */
        bool has_ipc, has_vmm, has_memops;
        uint64_t total_bytes;
        struct fake_context contexts[FAKE_MAX_DEVICES]; /* primary ones, by device */
        struct fake_handle *handles;
        uintptr_t next_handle;
        uint64_t next_seq; /* of work, over all streams */
        struct fake_page *page;
        struct fake_process *process;
        int page_fd, slot;
};

extern struct fake fake;

/* --- fake.c: calls --- */

enum fake_needs { FAKE_NOTHING, FAKE_INIT, FAKE_CONTEXT };

CUresult fake_enter(enum fake_call call, enum fake_needs needs);
CUresult fake_leave(CUresult result);

/* Breaks all contexts of the process. Without the lock. */
void fake_stick(CUresult error);
void fake_stick_locked(CUresult error);

/* Waits for `changed`; where others can bring what is waited for, for 0.2 or 2 ms at most. */
enum fake_patience { FAKE_UNTIL_CHANGED, FAKE_A_MOMENT, FAKE_A_WHILE };
void fake_wait(enum fake_patience patience);

int64_t fake_now_ns(void);

void *fake_handle_new(enum fake_kind kind, size_t n_bytes);
void *fake_handle_find(enum fake_kind kind, const void *handle);
void fake_handle_retire(struct fake_handle *handle); /* no longer found; the memory stays its owner's */

/* The current context; NULL only where fake_enter was not asked for one. */
struct fake_context *fake_current(void);
/* The context that a handle means; NULL if none is alive. */
struct fake_context *fake_context_find(CUcontext context);
CUcontext fake_context_handle(const struct fake_context *context);
struct fake_context *fake_context_of_physical(int physical);

/* The current context is none that lives: INVALID_CONTEXT or CONTEXT_IS_DESTROYED. */
CUresult fake_check_context(void);

/* While a host function runs on this thread, calls are refused. */
extern __thread bool fake_is_in_host_function;

/* --- faults.c --- */

/* What faults say of this call. Without the lock; may not return for long. */
struct fake_verdict {
        CUresult result;
        struct fake_fault *stall; /* for work in a stream */
        struct fake_fault *sticky;
        struct fake_fault *async;
        uint32_t slow_ms;
};
struct fake_verdict fake_judge(enum fake_call call);
/* The verdict on the call that this thread is in. */
extern __thread struct fake_verdict fake_verdict;
/* Reads FAKECUDA_FAIL and its like. */
void fake_faults_init(void);
/* Whether work of `call` must not begin now; takes the allowance where it may. */
bool fake_is_held(enum fake_call call);
bool fake_takes_allowance(enum fake_call call);

/* --- escape.c --- */

/* Tries what a confined tuttid-gpu may not do, and what it must still be able to; notes it on the page. */
void fake_try_all(struct fake_page *page);

/* --- device.c --- */

CUresult fake_devices_init(void);
int fake_physical(int device); /* -1 for none */
/* All that the context has ends; the lock is let go meanwhile. */
void fake_context_end(struct fake_context *context);

/* --- errors.c --- */

int fake_error_named(const char *name, size_t n_chars); /* a number as well; -1 for none */

/* --- range.c: what lies where --- */

enum fake_range_kind {
        FAKE_DEVICE_MEMORY,
        FAKE_MAPPED,     /* cuMemMap */
        FAKE_FOREIGN,    /* cuIpcOpenMemHandle */
        FAKE_HOST,       /* cuMemHostAlloc */
        FAKE_REGISTERED, /* cuMemHostRegister */
};

struct fake_range {
        uintptr_t base;
        size_t n_bytes;
        enum fake_range_kind kind;
        int owner;                      /* physical device; -1: host */
        struct fake_context *context;   /* that allocated, opened or registered it; NULL: any */
        uint32_t readers, writers;      /* of MAPPED: physical devices */
        unsigned int flags;             /* of HOST and REGISTERED: CU_MEMHOST... */
        uint64_t id;                    /* of the allocation */
        uint64_t buffer_id;             /* of the range */
        uint64_t offset;                /* of DEVICE_MEMORY in its context's heap */
        unsigned int n_opens;           /* of FOREIGN */
        struct fake_physical *physical; /* of MAPPED */
};

/* The range that holds the address; NULL for none. Good until the next add or remove. */
struct fake_range *fake_range_find(uintptr_t address);
struct fake_range *fake_range_at(size_t index); /* in order of addresses; NULL past the end */
bool fake_range_overlaps(uintptr_t base, size_t n_bytes);
bool fake_range_add(const struct fake_range *range);
void fake_range_remove(struct fake_range *range);

void fake_ranges_end(void);

enum fake_use { FAKE_READ, FAKE_WRITE };
bool fake_range_allows(const struct fake_range *range, int physical, enum fake_use use);

/* --- memory.c --- */

/* Frees what a context that ends still has. */
void fake_memory_end(struct fake_context *context);
/* Notes on the page that this process holds the allocation (counted: several times), or one time less. */
CUresult fake_charge(const struct fake_allocation *what);
void fake_uncharge(uint64_t id);
/* Whether the device still has that much. */
bool fake_has_room(int physical, uint64_t n_bytes);

/* --- ipc.c --- */

/* The file in which the process `pid` has what cuMemAlloc gives of that device; false: there is no control
 * file that it would lie beside. */
bool fake_heap_path(char *buf, size_t size, int pid, uint32_t physical);

/* --- vmm.c --- */

struct fake_physical {
        struct fake_handle handle;
        uint64_t id;
        size_t n_bytes;
        int owner, fd;
        unsigned int n_handles, n_mappings;
        CUmemAllocationProp properties;
};
void fake_physical_unmap(struct fake_range *range);
void fake_vmm_end(void);

/* --- stream.c --- */

struct fake_work {
        struct fake_work *next;
        struct fake_stream *stream;
        uint64_t seq;
        enum fake_call call;
        bool (*is_ready)(struct fake_work *work); /* under the lock; NULL: always */
        void (*run)(struct fake_work *work);      /* without the lock; NULL: nothing to do */
        void (*free)(struct fake_work *work);     /* under the lock; also of work that never ran */
        bool polls;                               /* others may make it ready without telling */
        struct fake_fault *stall, *sticky;
        int64_t not_before_ns;
};

struct fake_stream {
        struct fake_handle handle;
        struct fake_context *context;
        struct fake_stream *next;
        struct fake_work *head, **tail;
        uint64_t n_added, n_done;
        unsigned int flags;
        int priority;
        bool is_destroyed, is_running;
};

/* The stream that a caller's handle means in the current context; NULL for one that is none. */
struct fake_stream *fake_stream_find(CUstream stream);

/* Puts `work` behind what the stream has; on failure it is freed. */
CUresult fake_stream_add(struct fake_stream *stream, struct fake_work *work, enum fake_call call);

/* Waits until what the stream has now is done. */
CUresult fake_stream_drain(struct fake_stream *stream);

CUresult fake_streams_begin(struct fake_context *context);
void fake_streams_end(struct fake_context *context); /* drops what has not run; lets the lock go meanwhile */

/* --- guard.c --- */

void fake_guard_begin(void);
void fake_guard_end(void);
/* Runs it; a bad access ends it, and breaks the contexts. */
void fake_guarded(void (*run)(void *), void *argument);

/* --- module.c --- */

struct fake_kernel;
struct fake_module;

struct fake_function {
        struct fake_handle handle;
        const struct fake_kernel *kernel;
        struct fake_context *context;
        struct fake_module *module;
        int max_dynamic_bytes;
};
/* Of the context; NULL: libraries, which belong to none. */
void fake_modules_end(const struct fake_context *context);

/* --- event.c --- */

void fake_events_end(const struct fake_context *context);
