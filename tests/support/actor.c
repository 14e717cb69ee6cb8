#include "actor.h"

#include <sys/mman.h>

char actor_where[160];

void actor_open(struct actor *a, const char *socket, uint32_t rank) {
        *a = (struct actor){ .rank = rank, .raw = raw_open(socket) };
}

void actor_buffer(struct actor *a, uint64_t buffer, uint64_t n) {
        int fd = raw_memfd(n * sizeof(float));
        a->data[buffer] = mmap(NULL, n * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        must(a->data[buffer] != MAP_FAILED);
        for (uint64_t i = 0; i < n; i++)
                a->data[buffer][i] = (float)(a->rank + 1);
        a->sizes[buffer] = n;
        raw_buffer(a->raw, buffer, fd, n * sizeof(float));
}

uint64_t actor_ask_to_join(struct actor *a, const char *group, uint32_t world_size, enum on_death on_death) {
        struct request join = raw_join_request(group, a->rank, world_size);
        join.join.on_death = on_death;
        return raw_send(a->raw, &join);
}

uint64_t actor_submit(struct actor *a, const char *key, uint64_t buffer) {
        return raw_submit(a->raw, &a->member, key, buffer, a->sizes[buffer]);
}

void actor_close(struct actor *a) {
        if (!a->raw)
                return;
        raw_send(a->raw, &(struct request){ .type = REQUEST_GOODBYE });
        raw_close(a->raw);
        for (size_t i = 0; i < ARRAY_SIZE(a->data); i++)
                if (a->data[i])
                        munmap(a->data[i], a->sizes[i] * sizeof(float));
        *a = (struct actor){ 0 };
}

static void note(struct actor *a, const struct reply *r) {
        struct heard *h = &a->heard[a->n_heard++ % ARRAY_SIZE(a->heard)];
        *h = (struct heard){ .request = r->request, .status = r->status, .rank = -1 };
        if (r->status == STATUS_OK && r->type == REPLY_JOINED)
                h->member = (struct raw_member){ r->joined.membership, r->joined.epoch };
        if (r->status == STATUS_OK && r->type == REPLY_DONE)
                h->contributors = r->done.contributors.words[0];
        if (!r->error)
                return;
        h->loss = r->error->loss;
        h->rank = r->error->rank;
        if (r->error->n_replicas)
                h->pid = r->error->replicas[0].pid;
}

/* Answers come in any order. */
const struct heard *actor_hear(struct actor *a, uint64_t request) {
        struct reply reply;
        for (;;) {
                for (size_t i = 0; i < ARRAY_SIZE(a->heard); i++)
                        if (a->heard[i].request == request)
                                return &a->heard[i];
                ck_assert_msg(
                        raw_take(a->raw, &reply), "in \"%s\": R%u was hung up on", actor_where, a->rank);
                note(a, &reply);
        }
}

/* All that it has said so far is known to tuttid. */
void actor_expect_known(struct actor *a) {
        must(actor_hear(a, raw_query(a->raw, WHAT_QUOTA, "", ""))->status == STATUS_OK);
}

void actor_expect_data(const struct actor *a, uint64_t buffer, float value) {
        uint64_t i = 0;
        while (i < a->sizes[buffer] && a->data[buffer][i] == value)
                i++;
        ck_assert_msg(i == a->sizes[buffer], "in \"%s\": R%u has %g at %llu, not %g", actor_where, a->rank,
                (double)a->data[buffer][i], (unsigned long long)i, (double)value);
}

void actor_expect_status(const struct actor *a, const struct heard *h, enum status status) {
        ck_assert_msg(h->status == status, "in \"%s\": R%u heard %s, not %s", actor_where, a->rank,
                status_name(h->status), status_name(status));
}

void actor_expect_sum(struct actor *a, uint64_t request, uint64_t buffer, uint64_t ranks, uint64_t maybe) {
        const struct heard *h = actor_hear(a, request);
        float sum = 0;
        actor_expect_status(a, h, STATUS_OK);
        ck_assert_msg((h->contributors & ~maybe) == (ranks & ~maybe),
                "in \"%s\": R%u heard of contributors %llx, not %llx", actor_where, a->rank,
                (unsigned long long)h->contributors, (unsigned long long)ranks);
        for (uint32_t rank = 0; rank < 64; rank++)
                sum += h->contributors >> rank & 1 ? (float)(rank + 1) : 0;
        actor_expect_data(a, buffer, sum);
}
