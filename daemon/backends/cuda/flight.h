/* A run under way: what it needs, and how far it is. Private to the cuda backend.
 *
 *     HELD -------> COMING -------> FEEDING -------> FED ------> GOING ------> over
 *       the host      host memory     steps go into    the         host memory
 *       waits for     is copied in,   streams; pauses  devices     is copied
 *       what streams  where it must   while NCCL does  work        back
 *       may not
 *
 * A run that brings signals may wait for them in its stream, so that nothing passes through the host. It is
 * held by the host instead where others would wait behind it: when it has a step of the library (whose
 * communicators all groups share), when host memory is to be copied first, when no lane is left, when one of
 * its group before it is not in the streams, or when many wait already. */
#pragma once

#include <stdatomic.h>
#include "backends/cuda/cuda-private.h"

/* As in tutti.proto, Signals. */
struct signal_words {
        _Atomic uint64_t ready, done;
};

/* In host memory, where host and devices see them. */
struct gate {
        _Atomic uint32_t abort; /* set by the host: the run is not to have an effect */
        uint32_t reserved[15];
        _Atomic uint32_t latched; /* what it was when the run's stream had seen all signals: this is what
                                     the kernels look at, so all of them see the same */
        uint32_t reserved_2[15];
        _Atomic uint32_t stopped; /* latched, or a device has found what the rest must not be run with */
        uint32_t reserved_3[15];
};

/* Where a step has its table and what its checks find, in the workspace of its device. */
struct step_place {
        uint64_t table, results;
};

/* Of one device: tables, then results; the same lies in host memory from `mirror` on. */
struct workspace {
        struct area *area; /* NULL: the device's steps need none */
        uint64_t n_table_bytes, n_result_bytes, mirror;
};

/* Host memory that could not be registered, as the devices see it. */
struct stand_in {
        struct area *area; /* NULL: the operand needs none */
        uint64_t n_bytes;
};

/* How far that is copied. */
struct copying {
        uint32_t step, index; /* of the operand in the step */
        uint64_t done;        /* of its bytes, or elements */
};

enum flight_phase { FLIGHT_HELD, FLIGHT_COMING, FLIGHT_FEEDING, FLIGHT_FED, FLIGHT_GOING };

#define MAX_SETS 8

struct flight {
        struct list link;
        struct run *run;
        enum flight_phase phase;
        struct lane *lane;
        struct cuda_device *lead; /* on whose stream signals are waited for and written */
        uint64_t devices;         /* that it uses, as bits */
        CUevent events[MAX_GPU_DEVICES];
        struct area *host; /* the gate, then the mirrors of the workspaces */
        struct workspace workspaces[MAX_GPU_DEVICES];
        struct area **scratch;      /* [plan->n_scratch] */
        struct step_place *places;  /* [plan->n_steps] */
        struct stand_in *stand_ins; /* [plan->n_operands]; NULL: all memory is registered */
        struct copying copying;
        uint64_t sets[MAX_SETS]; /* devices of the library's steps, each set once */
        uint32_t n_sets;
        uint32_t next_step;
        struct tenant *tenant; /* whose it is */
        bool is_counted;       /* it is at work, for him */
        bool has_stand_ins, has_refs;
        bool may_stop;               /* it has steps that find out whether the others may be run */
        bool is_waiting;             /* a stream waits for signals that the host has not seen yet */
        bool is_let_go;              /* it has waited too long, and goes on without effect */
        bool writes_done;            /* a stream will write the done values */
        bool is_begun;               /* streams have something of it */
        bool is_in_library;          /* the step at next_step is being handed to the library */
        bool has_failed;             /* its status is not OK, and it goes on only to be let go of */
        uint64_t n_aborts[MAX_SETS]; /* of the cliques, when it began */
        uint64_t launched_ns, fed_ns, let_go_ns;
        uint64_t working_ns; /* since when the devices could do it; 0: not yet, as far as is known */
        uint64_t most_bytes; /* that were under way since, all runs together */
};

static inline struct gate *flight_gate(const struct flight *f) {
        return (struct gate *)(void *)f->host->host;
}

/* The device that does a step: host processors have none of ours, so the lead does their part. */
struct cuda_device *flight_device(struct cuda *c, const struct flight *f, const struct step *s);
CUstream flight_stream(struct cuda *c, struct flight *f, struct cuda_device *d);
/* Ends it as `status` where nothing worse is known. */
PRINTF_LIKE(3, 4)
void flight_fail(struct flight *f, enum status status, const char *why, ...);
/* 0 or -EIO: sets the status. */
int flight_lose(struct cuda *c, struct flight *f, int r);

/* --- flight-place.c: where everything is --- */

/* Finds out devices, sets, sizes; takes areas. 0, or a negative errno with the status set. */
int flight_prepare(struct cuda *c, struct flight *f) MUST_USE;
void flight_give_back(struct cuda *c, struct flight *f);
/* Device addresses of a step's operands, [n_inputs + n_outputs]. 0 or -EINVAL with the status set. */
int flight_locate(struct cuda *c, struct flight *f, const struct step *s, uint64_t *ret) MUST_USE;
/* The index of the device whose memory an operand is in, or ON_HOST. */
uint32_t flight_where(const struct flight *f, const struct operand *o);
/* From its first byte to the end of its memory. */
uint64_t flight_room_bytes(const struct flight *f, const struct operand *o);
/* A step's table: where it is filled, in the mirror, and where it will be on the device. */
uint64_t *flight_table(struct cuda *c, const struct flight *f, const struct step *s, uint64_t *ret_at);
/* Where its checks write what they find. */
uint64_t flight_results_at(struct cuda *c, const struct flight *f, const struct step *s);
/* What the checks found, once the results are in the mirrors. A run that must not have gone on fails. */
void flight_read_results(struct cuda *c, struct flight *f);

/* --- flight-sparse.c: steps of sparse values --- */

bool flight_is_sparse(const struct step *s);
uint64_t flight_sparse_table_bytes(const struct step *s);
uint64_t flight_sparse_result_bytes(const struct step *s);
int flight_feed_sparse(struct cuda *c, struct flight *f, const struct step *s) MUST_USE;
/* What the step has found, at `results`. */
void flight_read_sparse(struct flight *f, const struct step *s, const void *results);

/* --- flight-stand-in.c: host memory that is not registered --- */

/* A slice of it: whether it is complete now, or has failed, by the hand of f->run->culprit. */
bool flight_copy_in(struct flight *f) MUST_USE;
bool flight_copy_out(struct flight *f) MUST_USE;

/* --- flight-signals.c --- */

/* Whether the host sees all ready; otherwise *ret is the first that is not. */
bool flight_is_ready(struct cuda *c, const struct flight *f, uint32_t *ret);
/* Whether a client has recorded an event of a process before this one: what it stands for is not known. */
bool flight_is_stale(struct cuda *c, const struct flight *f);
int flight_wait_on_stream(struct cuda *c, struct flight *f) MUST_USE;
int flight_write_done_on_stream(struct cuda *c, struct flight *f) MUST_USE;
/* Behind what the lead's event stands for: those who brought events may wait for theirs. */
int flight_record_done_events(struct cuda *c, struct flight *f) MUST_USE;
/* Whatever the end was: who waits for `done` goes on. */
void flight_write_done(struct cuda *c, struct flight *f);
/* The stream goes on, and its kernels do nothing. */
void flight_let_go(struct cuda *c, struct flight *f);
/* Whether every page can be waited for on this run's streams. */
bool flight_can_wait(struct cuda *c, const struct flight *f);

/* --- tenants.c: users in turn --- */

/* Runs that may wait for their clients in streams, all together; what waits has a lane of its own. */
#define MAX_WAITING 16

/* It is one of its user's from now on. false: memory is short. */
bool tenant_join(struct cuda *c, struct flight *f) MUST_USE;
void tenant_leave(struct cuda *c, struct flight *f);
/* It could be put into streams: whether it is its turn. If not, it is its user's next one. */
bool tenant_has_turn(struct cuda *c, struct flight *f);
/* It has looked for a lane: f->lane says with what success. */
void tenant_found_lane(struct cuda *c, const struct flight *f);
/* It lies in streams, and waits for no client any more. */
void tenant_works(const struct cuda *c, struct flight *f);
/* Whether it may wait for its client in a stream, and not here. */
bool tenant_may_wait_on_device(const struct cuda *c, const struct flight *f);

/* --- flight-watch.c --- */

/* At each poll, of all runs in the order of their launch: breaks the backend when it is at work for longer
 * than any honest work takes. */
void flight_watch_hang(struct cuda *c, struct flight *f);
/* How long that is where so much is under way. */
uint64_t flight_hang_limit_ns(const struct cuda *c, uint64_t n_bytes);

/* --- flight-feed.c --- */

enum flight_fed { FED_ALL, FED_PAUSED, FED_FAILED };
enum flight_fed flight_feed(struct cuda *c, struct flight *f);
/* The word at which the step's kernels look before they write; 0: none. */
uint64_t flight_abort_at(const struct flight *f, const struct step *s);
/* Brings the first bytes of the step's table to its device. */
int flight_send_table(struct cuda *c, struct flight *f, const struct step *s, uint64_t n_bytes) MUST_USE;
