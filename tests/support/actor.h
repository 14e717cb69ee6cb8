/* A replica as a bare connection of the test, which remembers what it has heard in whatever order that came.
 * Its buffers hold rank + 1 until a result is there.
 *
 * Where something does not hold, the test fails naming actor_where: what is being tried. */
#pragma once

#include "raw.h"
#include "unit.h"

extern char actor_where[160];

#define must(condition) ck_assert_msg((condition), "in \"%s\": %s does not hold", actor_where, #condition)

/* What became of a request. */
struct heard {
        uint64_t request;
        enum status status;
        uint64_t contributors; /* of the first 64 ranks */
        enum loss loss;
        int32_t rank;
        uint32_t pid;
        struct raw_member member; /* of a join */
};

struct actor {
        uint32_t rank;
        struct raw *raw;
        struct raw_member member;
        float *data[4];
        uint64_t sizes[4]; /* in elements */
        struct heard heard[16];
        unsigned int n_heard;
};

void actor_open(struct actor *a, const char *socket, uint32_t rank);
/* Says goodbye. One that was never opened is fine. */
void actor_close(struct actor *a);

/* Registers a buffer of n floats. */
void actor_buffer(struct actor *a, uint64_t buffer, uint64_t n);
/* The request's number. */
uint64_t actor_ask_to_join(struct actor *a, const char *group, uint32_t world_size, enum on_death on_death);
/* All-reduce of a whole buffer, in place; the request's number. */
uint64_t actor_submit(struct actor *a, const char *key, uint64_t buffer);

/* Waits for the answer; good until 15 others have come. */
const struct heard *actor_hear(struct actor *a, uint64_t request);
/* All that it has said so far is known to tuttid. */
void actor_expect_known(struct actor *a);
void actor_expect_status(const struct actor *a, const struct heard *h, enum status status);
/* Every element of the buffer. */
void actor_expect_data(const struct actor *a, uint64_t buffer, float value);
/* OK, with the sum over exactly these ranks (a bit each), with or without those of `maybe`. */
void actor_expect_sum(struct actor *a, uint64_t request, uint64_t buffer, uint64_t ranks, uint64_t maybe);
