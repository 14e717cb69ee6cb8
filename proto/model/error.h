/* Why a request ended as it did, as data, and the one function that makes the sentence for people from it.
 *
 * A plain value without pointers: it is kept, copied and sent. Around 6 KiB, so it is made only when
 * something went wrong. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "model/field.h"
#include "model/key.h"
#include "model/op.h"
#include "model/rankset.h"
#include "model/status.h"

#define MAX_SECRET_BYTES   64 /* of a job, with its terminator */
#define MAX_NAME_BYTES     64 /* of a job or group, with its terminator */
#define MAX_ERROR_CLASSES  8
#define MAX_ERROR_REPLICAS 8

enum loss { LOSS_UNSPECIFIED, LOSS_DIED, LOSS_DISCONNECTED, LOSS_EJECTED, LOSS_WENT };

enum process_state { PROCESS_UNKNOWN, PROCESS_ALIVE, PROCESS_STOPPED, PROCESS_DEAD, PROCESS_ABSENT };

/* MISMATCH: these ranks say this. */
struct error_class {
        struct rankset ranks;
        char value[128];
};

/* What is known of a missing or guilty replica. */
struct replica_report {
        uint32_t rank, pid, uid; /* pid 0: not visible from here */
        enum process_state state;
        bool has_last;
        struct key last_key; /* what it last finished */
        uint64_t last_age_ns;
        char busy[64]; /* why, while it says it is busy; else "" */
};

struct error {
        enum status status; /* what the receiver of this error is told */
        enum status cause;  /* EXPIRED: why the collective had ended; PEER_REFUSED: the status of the refused
                               half */
        enum field field;
        enum loss loss;
        bool outputs_undefined;
        enum kind kind;
        char job[MAX_NAME_BYTES], group[MAX_NAME_BYTES];
        bool has_key;
        struct key key;
        uint64_t epoch;
        int32_t entry; /* of a batch; -1: none */
        int32_t rank;  /* the one it is about; -1: none */
        uint32_t world_size;
        struct rankset have, missing;
        uint32_t n_classes;
        struct error_class classes[MAX_ERROR_CLASSES];
        uint32_t n_replicas;
        struct replica_report replicas[MAX_ERROR_REPLICAS];
        uint64_t age_ns; /* how long it waited, or how long ago it happened */
        uint64_t used, limit;
        char detail[384]; /* a name, a reason given by a member, advice */
};

/* All zero but entry and rank, which are -1. */
void error_init(struct error *e, enum status status);

/* Sets `detail`, cut where it must be. */
void error_set_detail(struct error *e, const char *format, ...) PRINTF_LIKE(2, 3);

/* Sets status, field and detail; returns the status, so that a check ends with `return error_set(...)`. */
enum status error_set(struct error *e, enum status status, enum field field, const char *format, ...)
        PRINTF_LIKE(4, 5);

#define ERROR_TEXT_BYTES 4096

/* The sentences: what happened, to whom, what to do next. Two to four lines, no trailing newline. Each status
 * of the list has its own; every REPLICA_LOST names rank, pid, uid, what it last finished, and the
 * collective. */
void error_print(const struct error *e, char *buf, size_t size);

const char *process_state_name(enum process_state state); /* "alive", "stopped", ... */
const char *loss_name(enum loss loss);                    /* "died", "disconnected", ... */
