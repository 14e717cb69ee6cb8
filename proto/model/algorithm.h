/* The ways to carry out a collective, as people name them. How they work: docs/algorithms.md. */
#pragma once

#include <stdint.h>

enum algorithm_name {
        ALGORITHM_UNSPECIFIED, /* what the table of choices says */
        ALGORITHM_ONE_DEVICE,
        ALGORITHM_HIERARCHICAL_COPY,
        ALGORITHM_LIBRARY,
        ALGORITHM_COLLECT, /* of a merge_call: nobody asks for it */
        ALGORITHM_GATHER,  /* of a gather: likewise */
        N_ALGORITHM,       /* a word that names none */
};

/* "one_device"; "" for unspecified, "?" for unknown values. Never NULL. */
const char *algorithm_word(enum algorithm_name algorithm);
/* "" and "auto" are unspecified; N_ALGORITHM: none of that name. */
enum algorithm_name algorithm_parse(const char *word);

/* From how many bytes on so many GPUs leave a reduction to their library. */
struct threshold {
        uint64_t n_gpus;
        uint64_t bytes;
};

#define MAX_TUNED_GPUS 64

/* What was measured on a host. */
struct tuning {
        uint64_t n;
        struct threshold thresholds[MAX_TUNED_GPUS]; /* each number of GPUs once */
};
