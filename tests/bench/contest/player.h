/* One replica of one library in the contest: what all libraries play, and how it is timed.
 *
 * A player program is this and a `struct library`. contest.py starts N of them (mpirun does, for MPI), which
 * meet in a file that all map (stage.h); rank 0 writes one line of JSON for each cell. Every cell is checked
 * for right values before it is timed. */
#ifndef PLAYER_H
#define PLAYER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum verb {
        VERB_ALL_REDUCE, /* from one memory to another */
        VERB_ALL_REDUCE_IN_PLACE,
        VERB_REDUCE,    /* to rank 0 */
        VERB_BROADCAST, /* from rank 0, in place */
        VERB_BATCH,     /* all-reduce of many values in place, in one go */
        N_VERBS
};

/* What is played: SUM of f32. The values of a batch lie in one memory, each at a multiple of 64 bytes. */
struct work {
        enum verb verb;
        uint32_t n_values;
        const size_t *counts, *offsets; /* [n_values], in elements */
        size_t n_elements;              /* the last one's end */
};

struct library {
        const char *name;
        /* Joins: from the environment (RANK, WORLD_SIZE) or by the library's own launcher. */
        void (*open)(uint32_t *ret_rank, uint32_t *ret_n);
        /* Memory for this work. ret_out only where the verb is not in place; ret_result: where the result is
         * read, when that is not known before each run: NULL, and `result` tells. */
        void (*prepare)(const struct work *w, float **ret_in, float **ret_out);
        void (*run)(const struct work *w);
        /* Where the last run left the result; NULL: where the verb says. */
        const float *(*result)(const struct work *w);
        void (*finish)(const struct work *w);
        void (*close)(void);
};

int player_main(int argc, char **argv, const struct library *library);

/* A sentence and exit 1. */
void player_die(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#endif
