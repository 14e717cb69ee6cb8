/* `tuttictl diag --tune`: measures on the tuttid that runs what its thresholds should be, and writes them
 * where it reads them (plan.tuning; docs/configuration.md tells the format). The host's reductions have no
 * thresholds; those of several GPUs have one, the size from which on their library (NCCL) is faster than one
 * kernel over peer access.
 *
 * For each number of GPUs it is a job of so many processes, a replica on each GPU, which this command starts
 * and which share the GPUs with whatever else runs there: best on an idle host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "query.h"

#define TUNING_PATH   "/etc/tutti/tuning.conf"
#define TUNE_MOST     (UINT64_C(64) << 20)
#define TUNE_LEAST    UINT64_C(4096)
#define MAX_TUNE_GPUS 64

struct diag_tune_ask {
        const char *socket;   /* NULL: where libtutti looks */
        const char *path;     /* of the file that is written */
        uint64_t up_to_bytes; /* the largest size that is measured: TUNE_LEAST to 1 GiB */
};

/* Reports in `q`'s way (q->json, q->page); needs no connection in it. The exit code: CTL_WELL also where
 * there is nothing to tune, which it says; CTL_FAILING when a measurement failed: the file is as it was;
 * CTL_IO. */
int diag_tune(struct query *q, const struct diag_tune_ask *ask);

/* The command's main function when --tune is among its arguments. */
int diag_tune_main(const struct command *self, int argc, char **argv);
