/* Groups and meetings made by hand, for rooms that only look at them. */
#pragma once

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "rendezvous.h"

struct made {
        struct group group;
        struct meeting meeting;
        struct error error;
        struct half *halves;   /* [world_size] */
        struct entry *entries; /* one of each half */
};

static inline struct made *made_new(uint64_t id, uint32_t uid, const char *name, uint32_t world_size) {
        struct made *made = calloc(1, sizeof(*made));
        ck_assert_ptr_nonnull(made);
        made->group = (struct group){
                .id = id, .uid = uid, .world_size = world_size, .state = GROUP_WHOLE, .epoch = 1
        };
        strcpy(made->group.job, "dp");
        strcpy(made->group.name, name);
        made->group.members = calloc(world_size, sizeof(*made->group.members));
        made->halves = calloc(world_size, sizeof(*made->halves));
        made->entries = calloc(world_size, sizeof(*made->entries));
        made->meeting.halves = calloc(world_size, sizeof(*made->meeting.halves));
        ck_assert(made->group.members && made->halves && made->entries && made->meeting.halves);
        for (uint32_t rank = 0; rank < world_size; rank++)
                made->group.members[rank] = (struct member){
                        .id = id * 10000 + rank, .group = &made->group, .rank = rank, .state = MEMBER_ALIVE
                };
        return made;
}

static inline void made_free(struct made *made) {
        free(made->group.members);
        free(made->halves);
        free(made->entries);
        free(made->meeting.halves);
        free(made);
}

/* A new meeting: reduce SUM of f32[n_elements], nobody there yet. */
static inline void made_begin(struct made *made, struct key key, uint64_t n_elements) {
        struct half **halves = made->meeting.halves;
        memset(halves, 0, made->group.world_size * sizeof(struct half *));
        made->meeting = (struct meeting){
                .group = &made->group, .key = key, .epoch = made->group.epoch, .halves = halves
        };
        for (uint32_t rank = 0; rank < made->group.world_size; rank++) {
                struct half *half = &made->halves[rank];
                made->entries[rank] = (struct entry){ .dtype = DTYPE_F32,
                        .layout = LAYOUT_DENSE,
                        .destination = DESTINATION_ALL,
                        .n_dims = 1,
                        .shape = { n_elements } };
                *half = (struct half){ .membership = made->group.members[rank].id,
                        .rank = rank,
                        .key = key,
                        .epoch = made->group.epoch,
                        .entries = &made->entries[rank],
                        .n_bytes = n_elements * sizeof(float),
                        .capacity = 1 };
                half->signature = (struct signature){ .kind = KIND_REDUCE, .op = OP_SUM, .n_entries = 1 };
        }
}

static inline void made_arrive(struct made *made, uint32_t rank, uint64_t at_ns) {
        struct meeting *m = &made->meeting;
        if (m->n_halves++ == 0)
                m->first_ns = at_ns;
        made->halves[rank].arrived_ns = at_ns;
        m->halves[rank] = &made->halves[rank];
        m->last_rank = rank;
        rankset_add(&m->have, rank);
}

/* The halves are there: it was sealed and has run to its end. */
static inline const struct meeting *made_done(struct made *made, uint64_t sealed_ns, uint64_t done_ns) {
        made->meeting.state = MEETING_ENDED;
        made->meeting.number = ++made->group.next_number;
        made->meeting.sealed_ns = sealed_ns;
        made->meeting.done_ns = done_ns;
        made->meeting.status = STATUS_OK;
        return &made->meeting;
}

/* It ended before it was sealed, because of `rank` (-1: nobody). */
static inline const struct meeting *made_failed(
        struct made *made, enum status status, int32_t rank, uint64_t done_ns) {
        error_init(&made->error, status);
        made->error.rank = rank;
        made->error.have = made->meeting.have;
        struct rankset world = rankset_first(made->group.world_size);
        made->error.missing = rankset_minus(&world, &made->meeting.have);
        made->meeting.state = MEETING_ENDED;
        made->meeting.done_ns = done_ns;
        made->meeting.status = status;
        made->meeting.error = &made->error;
        return &made->meeting;
}

static inline struct key made_key(const char *name) {
        struct key key;
        ck_assert(key_name(&key, name, strlen(name)));
        return key;
}
