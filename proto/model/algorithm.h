/* The ways to carry out a collective, as people name them. How they work: docs/algorithms.md. */
#pragma once

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
