/* What the processes that use the fake share with each other and with the test: counters, who holds which
 * device memory, faults to be struck, work to be held back. It is one file (FAKECUDA_CONTROL), mapped by all;
 * where none is named, a process has a page of its own.
 *
 * A process is alive as long as it has its slot's byte of the file locked (an open file description lock, so
 * that neither a namespace nor a recycled pid deceives): what a killed process held counts no more. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "calls.h"

enum {
        FAKE_MAX_DEVICES = 8,
        FAKE_MAX_PROCESSES = 64,
        FAKE_MAX_ALLOCATIONS = 8192,
        FAKE_MAX_FAULTS = 32,
        FAKE_MAX_HOLDS = 16,
        FAKE_NAME_BYTES = 16,
};

enum fake_action {
        FAKE_FAIL,   /* the call returns `code` */
        FAKE_STICKY, /* the call or its work breaks the context: `code` from then on */
        FAKE_HANG,   /* the call does not return while the fault stands */
        FAKE_STALL,  /* the call returns; its work does not begin while the fault stands */
        FAKE_SLOW,   /* the call, or its work in a stream, takes `ms` longer */
        FAKE_ASYNC, /* NCCL: the call returns; the communicator's state becomes `code`, its work never ends */
        FAKE_TRY,   /* the call first tries what a confined process may not do (escape.c) */
};

enum { FAKE_MAX_TRIES = 32 };

/* What came of one attempt. */
struct fake_try {
        char name[24];
        int32_t error; /* errno; 0: it was not refused */
        uint32_t must_work;
};

struct fake_fault {
        _Atomic uint32_t is_armed;
        uint32_t call; /* N_FAKE_CALLS: any of the driver's, but those that name errors */
        uint32_t action;
        int32_t code;
        uint32_t ms;
        uint32_t repeats;          /* not only the n-th call, every later one too */
        _Atomic int64_t n_left;    /* calls until it strikes */
        char who[FAKE_NAME_BYTES]; /* see fake_process_is */
};

struct fake_hold {
        _Atomic uint32_t is_armed;
        uint32_t call;             /* only work of this call; N_FAKE_CALLS: all */
        _Atomic int64_t n_allowed; /* pieces of work that may still pass */
        char who[FAKE_NAME_BYTES];
};

struct fake_process {
        _Atomic int32_t pid; /* 0: a slot never used */
        char name[FAKE_NAME_BYTES];
        _Atomic uint64_t calls[N_FAKE_CALLS];
        _Atomic uint32_t n_ipc_open; /* foreign memory handles that are open, each counted once */
        _Atomic uint32_t n_held;     /* pieces of work that a hold keeps from running, as last seen */
};

/* Physical memory of a device, while any living process holds it. */
struct fake_allocation {
        uint64_t id; /* 0: free */
        uint64_t n_bytes;
        uint64_t holders; /* bit i: process i */
        uint32_t device;
};

struct fake_page {
        _Atomic uint64_t magic;
        pthread_mutex_t lock; /* robust: processes are killed at any time */
        _Atomic uint64_t next_id;
        _Atomic uint32_t order;                    /* enum fakecuda_order */
        _Atomic uint64_t gone_calls[N_FAKE_CALLS]; /* of processes whose slot is another's now */
        struct fake_process processes[FAKE_MAX_PROCESSES];
        struct fake_allocation allocations[FAKE_MAX_ALLOCATIONS];
        struct fake_fault faults[FAKE_MAX_FAULTS];
        struct fake_hold holds[FAKE_MAX_HOLDS];
        struct fake_try tries[FAKE_MAX_TRIES];
        _Atomic uint32_t n_tries; /* set when all are there */
};

/* Maps the page of the file `path`, which is made where it is not there; NULL: a page of one's own. The
 * descriptor is for the functions below (-1 without a file). 0 or negative errno. */
int fake_page_map(const char *path, int *ret_fd, struct fake_page **ret);
void fake_page_unmap(int fd, struct fake_page *page);

void fake_page_lock(struct fake_page *page);
void fake_page_unlock(struct fake_page *page);

/* A slot for the calling process, locked until `fd` is closed; negative errno. */
int fake_page_join(struct fake_page *page, int fd);

/* Whether slot i belongs to a living process. `self`: one's own slot, or -1. */
bool fake_page_is_alive(int fd, int slot, int self);

/* What living processes hold of a device. Under the lock. */
uint64_t fake_page_bytes(const struct fake_page *page, int fd, int self, uint32_t device);

/* Notes that `self` holds n_bytes as `id`, or no more. Under the lock; false: no room left. */
bool fake_page_hold(struct fake_page *page, int self, const struct fake_allocation *what);
void fake_page_drop(struct fake_page *page, int self, uint64_t id);

/* Whether `who` means this process: "" is everybody, "#123" a pid, anything else the name of a program as the
 * kernel knows it (15 characters). */
bool fake_process_is(const struct fake_process *process, const char *who);
