/* What the launcher's environment says: where tuttid is, which job this is, which rank of how many we are. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "model/error.h"

/* sun_path less its terminator. */
#define MAX_SOCKET_PATH_BYTES 107

/* $TUTTI_SOCKET, else the first that exists of /run/tutti/tuttid.sock and
 * $XDG_RUNTIME_DIR/tutti/tuttid.sock. One that cannot be looked at counts as there: what connecting says of
 * it is the answer. NO_DAEMON: none exists (`buf` holds the places looked at); LIMIT: longer than
 * MAX_SOCKET_PATH_BYTES or `size`. Nowhere else is ever looked. */
enum status environment_socket_path(char *buf, size_t size, struct error *err) MUST_USE;

/* LIMIT when a socket address cannot hold `path`. */
enum status socket_path_check(const char *path, struct error *err) MUST_USE;

/* TUTTI_RECONNECT in seconds; 0 where it is not set. INVALID: it is no such number. */
enum status environment_reconnect(double *ret, struct error *err) MUST_USE;

/* TUTTI_YIELD, which is in us; `ret` as it is where it is not set. INVALID: it is no such number. */
enum status environment_yield(uint64_t *ret_ns, struct error *err) MUST_USE;

/* TUTTI_HUGE_PAGES, which is yes or no; no where it is not set. INVALID: it is something else. */
enum status environment_huge_pages(bool *ret, struct error *err) MUST_USE;

/* TUTTI_JOB, else TORCHELASTIC_RUN_ID (unless "none"), MASTER_ADDR:MASTER_PORT, PMIX_NAMESPACE,
 * SLURM_JOB_ID.SLURM_STEP_ID. INVALID when there is none; LIMIT when it is too long. */
enum status environment_job(char ret[MAX_NAME_BYTES], struct error *err) MUST_USE;

struct seat {
        int32_t rank, world_size; /* -1: to be found */
};

/* Fills what is -1 from the first launcher that is there: TUTTI, torchrun, Open MPI, PMI, SLURM. INVALID:
 * none is there, or a number of it is malformed; UNSUPPORTED: its world spans several hosts. */
enum status environment_seat(struct seat *seat, struct error *err) MUST_USE;
