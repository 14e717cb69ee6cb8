#include "replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A page for what the replicas tell each other besides gradients. */
struct notes {
        double times[4];
        uint8_t hash[SHA256_BYTES], lowest[SHA256_BYTES], highest[SHA256_BYTES];
};

static bool is_ok(const struct replica *r, enum tutti_status status, const char *doing) {
        if (status == TUTTI_OK)
                return true;
        if (r->progress)
                progress_interrupt(r->progress);
        if (r->group)
                fprintf(stderr, "digits: R%u: %s: %s\n", r->rank, doing, tutti_error());
        else
                fprintf(stderr, "digits: %s: %s\n", doing, tutti_error());
        return false;
}

static bool join(struct replica *r) {
        if (!is_ok(r, tutti_open(NULL, &r->tutti), "connecting"))
                return false;
        if (!is_ok(r, tutti_join(r->tutti, &TUTTI_JOIN(.group = "digits"), &r->group), "joining"))
                return false;
        r->rank = tutti_rank(r->group);
        r->world_size = tutti_world_size(r->group);
        return true;
}

static bool make_buffers(struct replica *r) {
        size_t n_bytes = r->net.n_parameters * sizeof(float);
        r->velocity = calloc(r->net.n_parameters, sizeof(float));
        if (!r->velocity) {
                fprintf(stderr, "digits: R%u: out of memory\n", r->rank);
                return false;
        }
        return is_ok(r, tutti_buffer_alloc(r->tutti, n_bytes, &r->parameters), "making a buffer") &&
               is_ok(r, tutti_buffer_alloc(r->tutti, n_bytes, &r->gradient), "making a buffer") &&
               is_ok(r, tutti_buffer_alloc(r->tutti, sizeof(struct notes), &r->notes), "making a buffer");
}

/* One entry of the batch for each tensor, in place. */
static void describe_gradient(struct replica *r) {
        for (int i = 0; i < NET_TENSORS; i++) {
                const struct tensor *t = &r->net.tensors[i];
                r->tensors[i] = TUTTI_VALUE(.buffer = r->gradient, .offset = t->first * sizeof(float),
                        .dtype = TUTTI_F32, .n_dims = t->n_dims, .shape = { t->shape[0], t->shape[1] });
                r->entries[i] = TUTTI_ENTRY(.input = &r->tensors[i], .output = &r->tensors[i]);
        }
}

bool replica_open(struct replica *r, uint32_t hidden) {
        memset(r, 0, sizeof(*r));
        net_init(&r->net, hidden);
        if (!join(r) || !make_buffers(r))
                return false;
        describe_gradient(r);
        return true;
}

/* Everybody begins where rank 0 begins. */
static bool share_parameters(struct replica *r) {
        struct tutti_value all = TUTTI_VALUE(.buffer = r->parameters, .dtype = TUTTI_F32, .n_dims = 1,
                .shape = { r->net.n_parameters });
        if (r->rank == 0)
                net_fill(&r->net, tutti_buffer_data(r->parameters));
        return is_ok(r, tutti_broadcast(r->group, "parameters", 0, &all), "sharing the parameters");
}

/* The gradients of all replicas meet in tuttid and come back as their mean. */
static bool join_gradients(struct replica *r) {
        double began = now_seconds();
        if (!is_ok(r, tutti_batch_reduce(r->group, "gradients", TUTTI_MEAN, r->entries, NET_TENSORS),
                    "joining the gradients"))
                return false;
        const struct tutti_result *result = tutti_last_result();
        r->spent.late += result->wait;
        r->spent.reduce += result->run;
        r->spent.wake += now_seconds() - began - result->wait - result->run;
        r->n_last[result->last_rank]++;
        return true;
}

static bool train_step(struct replica *r, struct shard *shard, float *ret_loss) {
        const struct image *batch[DIGITS_BATCH];
        float *parameters = tutti_buffer_data(r->parameters), *gradient = tutti_buffer_data(r->gradient);

        double began = now_seconds();
        shard_next(shard, batch);
        *ret_loss = net_gradient(&r->net, parameters, batch, shard->n_batch, gradient);
        r->spent.compute += now_seconds() - began;

        if (!join_gradients(r))
                return false;

        began = now_seconds();
        net_update(&r->net, parameters, r->velocity, gradient);
        r->spent.compute += now_seconds() - began;
        return true;
}

bool replica_train(struct replica *r, struct shard *shard, uint32_t n_steps, struct progress *progress) {
        r->progress = progress;
        if (!share_parameters(r))
                return false;
        for (uint32_t step = 1; step <= n_steps; step++) {
                float loss;
                if (!train_step(r, shard, &loss))
                        return false;
                progress_step(progress, step, loss, r->spent.late + r->spent.reduce + r->spent.wake);
        }
        r->progress = NULL;
        return true;
}

static struct tutti_value hash_at(struct replica *r, size_t offset) {
        return TUTTI_VALUE(.buffer = r->notes, .offset = offset, .dtype = TUTTI_U8, .n_dims = 1,
                .shape = { SHA256_BYTES });
}

/* All hashes are equal if their smallest and their largest bytes are. */
bool replica_compare(struct replica *r, uint8_t ret_sha256[SHA256_BYTES]) {
        struct notes *notes = tutti_buffer_data(r->notes);
        struct tutti_value hash = hash_at(r, offsetof(struct notes, hash));
        struct tutti_value lowest = hash_at(r, offsetof(struct notes, lowest));
        struct tutti_value highest = hash_at(r, offsetof(struct notes, highest));

        sha256(tutti_buffer_data(r->parameters), r->net.n_parameters * sizeof(float), notes->hash);
        if (!is_ok(r, tutti_all_reduce(r->group, "lowest", TUTTI_MIN, &hash, &lowest), "comparing") ||
                !is_ok(r, tutti_all_reduce(r->group, "highest", TUTTI_MAX, &hash, &highest), "comparing"))
                return false;
        if (memcmp(notes->lowest, notes->highest, SHA256_BYTES) != 0) {
                fprintf(stderr,
                        "digits: R%u: the replicas' parameters differ. Here sha256 begins with "
                        "%02x%02x%02x%02x\n",
                        r->rank, notes->hash[0], notes->hash[1], notes->hash[2], notes->hash[3]);
                return false;
        }
        memcpy(ret_sha256, notes->hash, SHA256_BYTES);
        return true;
}

bool replica_average_times(struct replica *r, uint32_t n_steps, struct step_times *ret) {
        struct notes *notes = tutti_buffer_data(r->notes);
        struct tutti_value times = TUTTI_VALUE(.buffer = r->notes, .offset = offsetof(struct notes, times),
                .dtype = TUTTI_F64, .n_dims = 1, .shape = { 4 });

        notes->times[0] = r->spent.compute / n_steps;
        notes->times[1] = r->spent.late / n_steps;
        notes->times[2] = r->spent.reduce / n_steps;
        notes->times[3] = r->spent.wake / n_steps;
        if (!is_ok(r, tutti_all_reduce(r->group, "times", TUTTI_MEAN, &times, &times), "averaging the times"))
                return false;
        *ret = (struct step_times){
                .compute = notes->times[0],
                .late = notes->times[1],
                .reduce = notes->times[2],
                .wake = notes->times[3],
        };
        return true;
}

struct latest replica_latest(const struct replica *r) {
        struct latest latest = { .rank = 0 };
        uint32_t n = 0;
        for (uint32_t i = 0; i < r->world_size; i++) {
                n += r->n_last[i];
                if (r->n_last[i] > r->n_last[latest.rank])
                        latest.rank = i;
        }
        latest.share = n ? (double)r->n_last[latest.rank] / n : 0.0;
        return latest;
}

void replica_close(struct replica *r) {
        tutti_close(r->tutti); /* leaves the group and frees the buffers */
        free(r->velocity);
        memset(r, 0, sizeof(*r));
}
