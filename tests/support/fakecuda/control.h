/* For tests: looks into, and steers, the fake drivers (README.md) of all processes that were started with
 * FAKECUDA_CONTROL=path. Needs neither cuda.h nor the fake itself.
 *
 * `who` says whose fake is meant: NULL everybody's, "tuttid-gpu" that of the programs of this name (the first
 * 15 characters), "#123" that of pid 123. `call` is the name of a function ("cuMemcpyAsync"). A mistaken name
 * is a failure of the test: these functions abort. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fakecuda;

/* Makes the file or opens the one that is there. NULL with errno. */
struct fakecuda *fakecuda_open(const char *path);
void fakecuda_close(struct fakecuda *f);

/* --- looking --- */

/* How often it was called, by processes that are gone as well (where `who` is NULL or they still have a
 * slot). */
uint64_t fakecuda_calls(const struct fakecuda *f, const char *who, const char *call);

/* Device memory of a physical device that living processes hold, each allocation once. */
uint64_t fakecuda_bytes(const struct fakecuda *f, unsigned int device);

/* Open handles of foreign memory (cuIpcOpenMemHandle), of living processes. */
unsigned int fakecuda_ipc_open(const struct fakecuda *f, const char *who);

/* How many living processes have called cuInit. */
unsigned int fakecuda_processes(const struct fakecuda *f, const char *who);

/* What came of the i-th attempt of FAKECUDA_TRIES. false: there are no more, or none has been made. */
struct fakecuda_attempt {
        const char *name; /* "ptrace" */
        int error;        /* errno; 0: it was not refused */
        bool must_work;   /* the driver or NCCL needs it; all others must be refused */
};
bool fakecuda_try(const struct fakecuda *f, unsigned int i, struct fakecuda_attempt *ret);

/* --- faults --- */

enum fakecuda_fault {
        FAKECUDA_FAILS,  /* the call returns `code` (a CUresult or ncclResult_t) */
        FAKECUDA_STICKS, /* the call or its work breaks the process's contexts with `code` (0: illegal
                            address) */
        FAKECUDA_HANGS,  /* the call does not return until fakecuda_clear */
        FAKECUDA_STALLS, /* the call returns, its work does not begin until fakecuda_clear */
        FAKECUDA_SLOWS,  /* the call, or its work in a stream, takes `ms` longer */
        FAKECUDA_ASYNC,  /* NCCL: the call returns, then the communicator reports `code` */
        FAKECUDA_TRIES,  /* the call first tries what a confined process may not do: fakecuda_try */
};

struct fakecuda_strike {
        enum fakecuda_fault fault;
        const char *who;
        const char *call; /* NULL: any of the driver's, but those that name errors */
        unsigned int n;   /* from now on the n-th call of all who are meant (0: the next) */
        bool repeats;     /* that one and every later one */
        int code;
        unsigned int ms;
};

/* Up to 32 may stand. */
void fakecuda_strike(struct fakecuda *f, const struct fakecuda_strike *strike);

/* Whether every fault that stands has struck. */
bool fakecuda_has_struck(const struct fakecuda *f);

/* Ends all faults: what hung returns. */
void fakecuda_clear(struct fakecuda *f);

/* --- order of work --- */

/* Which of several streams whose next piece of work could run goes first. */
enum fakecuda_order { FAKECUDA_OLDEST, FAKECUDA_NEWEST, FAKECUDA_RANDOM };
void fakecuda_set_order(struct fakecuda *f, enum fakecuda_order order);

/* Holds work in streams back that comes from `call` (NULL: any, copies, records and waits alike). */
void fakecuda_hold(struct fakecuda *f, const char *who, const char *call);

/* How much work could run but for a hold, as the devices last saw it. */
unsigned int fakecuda_held(const struct fakecuda *f, const char *who);

/* Waits until that much is held; false after `seconds`. */
bool fakecuda_wait_held(const struct fakecuda *f, const char *who, unsigned int n, double seconds);

/* Lets n pieces pass every hold. */
void fakecuda_let(struct fakecuda *f, unsigned int n);

/* Ends all holds. */
void fakecuda_release(struct fakecuda *f);
