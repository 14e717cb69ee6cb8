/* What tuttid and tuttid-gpu say to each other (docs/adr/0007): plain structs, a packet each, over a
 * SOCK_SEQPACKET pair, with descriptors beside them. Pure: nothing here reads or writes a socket.
 *
 *     tuttid                                tuttid-gpu
 *                                 <- HELLO  at once, so that a build that does not fit is known before all
 *     SETTINGS ->                           opens the driver, tests its devices
 *                                <- DEVICE  one each
 *                              <- FALLBACK  one each
 *                                 <- READY  or OFF, with the reason, and it ends
 *     IMPORT ->           <- CHORE_DONE     memory, by a number that tuttid gives and never uses twice
 *     RELEASE ->          <- CHORE_DONE
 *     RUN, PART... ->   <- RUN_LAUNCHED     a plan, in parts of at most a packet; of one with events of
 * clients
 *                         <- SUMS, RUN_DONE
 *     PING ->             <- PONG
 *
 * What is sent is handled in that order; runs end in any order. Both ends are of one build, which HELLO
 * proves (its struct never changes); so there are no versions, and structs travel as they lie in memory. But
 * each end looks at what it gets as if a stranger had sent it: a wrong packet is -EPROTO, and whoever gets
 * one closes the socket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "backends/backend.h"
#include "backends/gpu-report.h"
#include "base/check.h"
#include "plan.h"
#include "wire/channel.h"

#define WORKER_BUILD_BYTES    64
#define WORKER_WHY_BYTES      160
#define WORKER_TEXT_BYTES     512
#define WORKER_MAX_RECORDS    (UINT32_C(1) << 23) /* of one kind in a plan */
#define WORKER_PART_BYTES     (MAX_PACKET_BYTES - 64)
#define WORKER_SUMS_A_PART    4096
#define WORKER_LENGTHS_A_PART 2048

enum worker_verb {
        /* tuttid's */
        WORKER_SETTINGS = 1,
        WORKER_IMPORT,
        WORKER_RELEASE,
        WORKER_RUN,
        WORKER_PART,
        WORKER_PING,
        /* tuttid-gpu's */
        WORKER_HELLO,
        WORKER_DEVICE,
        WORKER_FALLBACK,
        WORKER_READY,
        WORKER_OFF,
        WORKER_CHORE_DONE,
        WORKER_RUN_LAUNCHED,
        WORKER_SUMS,
        WORKER_LENGTHS,
        WORKER_RUN_DONE,
        WORKER_PONG,
};

/* What every packet begins with. */
struct worker_head {
        uint32_t verb;
        uint32_t n_fds;  /* that come with it */
        uint64_t ticket; /* of a chore, a run or a ping: the answer has the same; 0: none is expected */
};

struct worker_hello {
        struct worker_head head;
        char build[WORKER_BUILD_BYTES];
};

struct worker_settings {
        struct worker_head head;
        uint32_t takes_ipc; /* legacy handles are taken */
        uint32_t log_level;
        uint32_t confine; /* enum confine: whether it shall confine itself */
        uint32_t reserved;
        uint64_t test_limit_ns; /* for each device and path of the self-test */
        uint64_t hang_limit_ns; /* for a plan, once it could run; 0: none */
};

/* Descriptors: 1, but for PATH_CUDA_IPC (none) and PATH_VMM_MADE: none asks to make it, and CHORE_DONE brings
 * the descriptor; 1 is what was made for a worker that has ended. */
struct worker_import {
        struct worker_head head;
        uint64_t number, session, buffer, n_bytes;
        uint64_t handle_offset_bytes;
        uint32_t path, access, device;
        uint32_t reserved;
        uint8_t handle[MEMORY_HANDLE_BYTES];
};

/* Of what is unknown or could not be imported: nothing happens, and it is done. */
struct worker_release {
        struct worker_head head;
        uint64_t number;
};

/* A plan is coming: so many records of each kind, by PARTs, one kind after the other. */
struct worker_run {
        struct worker_head head;
        uint64_t group, limit_ns, chunk_bytes;
        uint32_t device, order;
        uint32_t n_signals, n_scratch, n_steps, n_operands, n_strides, has_sums;
        uint32_t user, is_shared; /* there are other users as well */
        uint32_t n_lengths;       /* entries, where the lengths of results are told */
        uint32_t reserved;
};

enum worker_record {
        RECORD_SIGNALS,
        RECORD_SCRATCH,
        RECORD_STEPS,
        RECORD_OPERANDS,
        RECORD_STRIDES,
        N_RECORD
};

struct worker_part {
        struct worker_head head;
        uint32_t record, n_records;
        uint32_t first, reserved;           /* the first one's index */
        uint8_t records[WORKER_PART_BYTES]; /* as many as there are */
};

struct worker_ping {
        struct worker_head head;
};

struct worker_device {
        struct worker_head head;
        uint32_t device; /* k of GPU:k */
        uint32_t n_devices;
        struct gpu_device report;
};

struct worker_fallback {
        struct worker_head head;
        struct gpu_fallback report;
};

struct worker_ready {
        struct worker_head head;
};

/* Its ticket: of the run that broke it, where one is known. */
struct worker_off {
        struct worker_head head;
        uint32_t is_final; /* nothing to be gained by starting it again: no driver, another build */
        char why[WORKER_TEXT_BYTES];
};

/* Descriptors: 1 where memory was made. */
struct worker_chore_done {
        struct worker_head head;
        uint64_t number;
        uint64_t n_bytes; /* made: what there is */
        uint32_t status;
        char why[WORKER_WHY_BYTES];
};

/* The done events of its clients have been recorded; at most once, before SUMS. */
struct worker_run_launched {
        struct worker_head head;
};

/* The checksums of inputs from operand `first` on, before RUN_DONE. */
struct worker_sums {
        struct worker_head head;
        uint32_t first, n;
        uint64_t sums[WORKER_SUMS_A_PART];
};

/* How many rows the results have that only the run could tell, by the steps that have counted them, before
 * RUN_DONE. */
struct worker_lengths {
        struct worker_head head;
        uint32_t n, reserved;
        struct worker_length {
                uint32_t step, reserved;
                uint64_t n_rows;
        } lengths[WORKER_LENGTHS_A_PART];
};

struct worker_run_done {
        struct worker_head head;
        uint32_t status, late_signal;
        uint32_t culprit; /* BAD_FD: an operand's number, from 1 on */
        uint32_t is_untouched;
        uint64_t started_ns, done_ns;
        struct findings found;
        char why[WORKER_WHY_BYTES];
};

/* A packet as it was received, aligned for all. */
union worker_packet {
        struct worker_head head;
        struct worker_hello hello;
        struct worker_settings settings;
        struct worker_import import;
        struct worker_release release;
        struct worker_run run;
        struct worker_part part;
        struct worker_device device;
        struct worker_fallback fallback;
        struct worker_off off;
        struct worker_chore_done chore_done;
        struct worker_run_launched run_launched;
        struct worker_sums sums;
        struct worker_lengths lengths;
        struct worker_run_done run_done;
        uint8_t bytes[MAX_PACKET_BYTES];
};

enum worker_end { WORKER_END_TUTTID, WORKER_END_GPU };

/* The build that this end is of: compared before anything else. */
const char *worker_build(void);

/* Whether a packet of `n_bytes` with `n_fds` descriptors is one that `sender` may send: known, of the right
 * length, every number in it in its range, every text terminated. 0 or -EPROTO. */
int worker_check(
        const union worker_packet *p, size_t n_bytes, uint32_t n_fds, enum worker_end sender) MUST_USE;

/* How long a packet is that is to be sent. */
size_t worker_packet_bytes(const union worker_packet *p);

/* --- a plan, taken apart --- */

/* The plan that a run has, and what goes with it. */
struct worker_parcel {
        uint64_t ticket, group, limit_ns;
        uint32_t user;
        bool is_shared;
        const struct plan *plan; /* frozen; its memories have their numbers in `remote` */
        const struct signal *signals;
        uint32_t n_signals;
};

/* Where it is: all 0 at first. */
struct worker_cursor {
        bool has_head;
        uint32_t record, next;
};

/* Makes the next packet of it; false when all have been made. -E2BIG is told by worker_fits. */
bool worker_next_part(const struct worker_parcel *p, struct worker_cursor *c, union worker_packet *ret);
/* Whether that was the last one. */
bool worker_is_whole(const struct worker_cursor *c);
/* Whether it can travel at all. */
bool worker_fits(const struct worker_parcel *p);

/* --- and put together again --- */

struct worker_assembly {
        struct worker_run head;
        struct plan plan; /* frozen when it is whole */
        struct signal *signals;
        uint32_t record, next; /* what is awaited */
        bool is_open;
        uint64_t missing; /* the number of a memory that is not there; 0: all are */
};

/* Whose memory has this number; NULL: nobody's. */
struct worker_memories {
        struct memory *(*find)(void *data, uint64_t number);
        void *data;
};

void worker_assembly_init(struct worker_assembly *a);
void worker_assembly_deinit(struct worker_assembly *a);
/* Both of packets that worker_check has passed. 0: more is to come; 1: whole (where `missing` is 0, every
 * operand lies within its memory); -EPROTO; -ENOMEM. */
int worker_assembly_begin(struct worker_assembly *a, const struct worker_run *run) MUST_USE;
int worker_assembly_add(struct worker_assembly *a, const struct worker_part *part,
        const struct worker_memories *memories) MUST_USE;
