/* The bytes are a sequence of joins, submissions, deaths and ticks; the model must agree after each. */
#include <stdio.h>
#include <stdlib.h>
#include "rendezvous-play.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct play_counts counts = { 0 };
        char why[256];
        if (rendezvous_play(data, size, &counts, why, sizeof(why)))
                return 0;
        fprintf(stderr, "%s\n", why);
        abort();
}
