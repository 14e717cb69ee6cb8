/* Collectives: each rank's half is a piece of work in a stream of its device. A half that has come to the
 * head of its stream waits there for the others; the one that comes last does the arithmetic for all. */
#include <stdlib.h>
#include <string.h>
#include "communicator.h"

struct nccl_work {
        struct fake_work work;
        struct nccl_work *next; /* in a group */
        struct ncclComm *comm;
        struct fake_stream *stream;
        struct collective *collective;
        struct fake_verdict verdict;
        enum fake_call call;
        const void *from;
        void *to;
        size_t count;
        ncclDataType_t type;
        ncclRedOp_t op;
        int root;
        bool has_arrived;
};

struct collective {
        struct collective *next;
        uint64_t number;
        int n_arrived, n_left;    /* at the heads of streams; whose half is still there */
        bool is_claimed, is_done; /* by the half that does the arithmetic */
        bool is_wrong;            /* its halves differ, or one of them was aborted: it never ends */
        struct nccl_work *halves[MAX_RANKS];
};

enum { BUSY_NS = 200000 };

static __thread struct {
        int depth;
        struct nccl_work *works, **tail;
        struct ncclComm *inits[MAX_RANKS * 4];
        int n_inits;
        ncclResult_t error; /* of a call in the group */
} group;

/* --- in the streams --- */

static bool agree(const struct collective *c, int n_ranks) {
        const struct nccl_work *first = c->halves[0];
        for (int i = 1; i < n_ranks; i++) {
                const struct nccl_work *w = c->halves[i];
                if (w->call != first->call || w->count != first->count || w->type != first->type ||
                        w->op != first->op || w->root != first->root)
                        return false;
        }
        return true;
}

static void break_clique(struct clique *q) {
        for (int i = 0; i < q->n_ranks; i++)
                if (q->comms[i] && fake_comm_is_known(q->comms[i]))
                        q->comms[i]->error = ncclInvalidUsage;
}

/* Whether the half may pass: as the one that does the arithmetic, or because that is done, or aborted. */
static bool is_ready(struct fake_work *work) {
        struct nccl_work *w = (struct nccl_work *)work;
        struct collective *c = w->collective;
        int n_ranks = w->comm->clique->n_ranks;
        if (w->comm->is_ended)
                return true;
        if (w->comm->error != ncclSuccess || (w->verdict.stall && atomic_load(&w->verdict.stall->is_armed)))
                return false;
        if (!w->has_arrived) {
                w->has_arrived = true;
                if (++c->n_arrived == n_ranks && !agree(c, n_ranks)) {
                        c->is_wrong = true;
                        break_clique(w->comm->clique);
                }
        }
        return c->n_arrived == n_ranks && !c->is_wrong && (!c->is_claimed || c->is_done);
}

/* The data of all ranks at once. */
static void compute(void *argument) {
        const struct nccl_work *w = argument;
        const void *from[MAX_RANKS];
        void *to[MAX_RANKS];
        int n = w->comm->clique->n_ranks;
        for (int i = 0; i < n; i++) {
                const struct nccl_work *half = w->collective->halves[i];
                from[i] = half->from;
                to[i] = w->call == CALL_ncclReduce && i != w->root ? NULL : half->to;
        }
        if (w->call != CALL_ncclBroadcast) {
                struct nccl_reduction r = { w->type, w->op, n, w->count, from, to };
                fake_nccl_reduce(&r);
                return;
        }
        for (int i = 0; i < n; i++)
                memmove(to[i], from[w->root], w->count * fake_nccl_type_bytes(w->type));
}

static void run(struct fake_work *work) {
        struct nccl_work *w = (struct nccl_work *)work;
        struct collective *c = w->collective;
        pthread_mutex_lock(&fake.lock);
        bool is_mine = !w->comm->is_ended && !c->is_claimed && !c->is_wrong;
        c->is_claimed |= is_mine;
        pthread_mutex_unlock(&fake.lock);
        if (is_mine)
                fake_guarded(compute, w);
        pthread_mutex_lock(&fake.lock);
        c->is_done |= is_mine;
        pthread_cond_broadcast(&fake.changed);
        /* Two were ready at once: no half leaves before all is written, not even one that was aborted. */
        while (c->is_claimed ? !c->is_done : !w->comm->is_ended)
                fake_wait(FAKE_UNTIL_CHANGED);
        pthread_mutex_unlock(&fake.lock);
}

static void free_half(struct fake_work *work) {
        struct nccl_work *w = (struct nccl_work *)work;
        struct collective *c = w->collective, **at = &w->comm->clique->collectives;
        c->halves[w->comm->rank] = NULL;
        c->is_wrong |= !c->is_done;
        if (--c->n_left == 0) {
                while (*at != c)
                        at = &(*at)->next;
                *at = c->next;
                free(c);
        }
        fake_comm_unref(w->comm);
}

void fake_collectives_free(struct clique *q) {
        while (q->collectives) {
                struct collective *c = q->collectives;
                q->collectives = c->next;
                free(c);
        }
}

/* --- from the call to the stream --- */

/* The collective that is the next one for this rank. */
static struct collective *next_collective(struct ncclComm *comm) {
        struct collective *c = comm->clique->collectives;
        while (c && c->number != comm->n_collectives)
                c = c->next;
        if (!c)
                c = calloc(1, sizeof(*c));
        if (!c)
                return NULL;
        if (!c->n_left) {
                c->number = comm->n_collectives;
                c->n_left = comm->clique->n_ranks;
                c->next = comm->clique->collectives;
                comm->clique->collectives = c;
        }
        comm->n_collectives++;
        return c;
}

ncclResult_t fake_collective_submit(struct nccl_work *w) {
        w->collective = next_collective(w->comm);
        if (!w->collective) {
                free(w);
                return ncclSystemError;
        }
        w->collective->halves[w->comm->rank] = w;
        w->comm->n_works++;
        if (w->verdict.async)
                w->comm->error = (ncclResult_t)w->verdict.async->code;
        w->work = (struct fake_work){ .is_ready = is_ready, .run = run, .free = free_half };
        w->work.polls = w->verdict.stall != NULL;
        fake_verdict = w->verdict;
        fake_verdict.stall = NULL; /* looked at above, so that an abort ends it */
        w->comm->is_settled = w->comm->is_blocking;
        if (!w->comm->is_blocking)
                w->comm->busy_until_ns = fake_now_ns() + BUSY_NS;
        (void)fake_stream_add(w->stream, &w->work, w->call);
        return w->comm->is_blocking ? ncclSuccess : ncclInProgress;
}

static bool sees(const struct ncclComm *c, const void *pointer, size_t n_bytes, enum fake_use use) {
        const struct fake_range *range = fake_range_find((uintptr_t)pointer);
        return range && range->base + range->n_bytes - (uintptr_t)pointer >= n_bytes &&
               fake_range_allows(range, c->context->physical, use);
}

/* NCCL would wait for the other ranks in this very call, for ever, where one thread has several. */
static bool needs_group(const struct ncclComm *c) {
        for (int i = 0; i < c->clique->n_ranks; i++)
                if (i != c->rank && pthread_equal(c->clique->comms[i]->thread, pthread_self()))
                        return true;
        return false;
}

static ncclResult_t check_comm(const struct ncclComm *c, const struct fake_stream *stream) {
        if (!fake_comm_is_known(c))
                return fake_nccl_refuse(ncclInvalidArgument, "no communicator");
        if (c->error != ncclSuccess)
                return fake_nccl_refuse(c->error, "the communicator is broken");
        if (c->is_finalizing || fake_comm_state(c) != ncclSuccess || !c->is_settled)
                return fake_nccl_refuse(ncclInvalidUsage, "the communicator is not ready, or finalized");
        if (!stream || stream->context != c->context)
                return fake_nccl_refuse(
                        ncclInvalidArgument, "a stream of another device than the communicator's");
        if (!fake_group_is_open() && needs_group(c))
                return fake_nccl_refuse(ncclInvalidUsage, "several ranks of one thread, and no group");
        return ncclSuccess;
}

static ncclResult_t check(const struct nccl_work *w) {
        ncclResult_t r = check_comm(w->comm, w->stream);
        if (r != ncclSuccess)
                return r;
        size_t n_bytes = w->count * fake_nccl_type_bytes(w->type);
        bool is_root = w->comm->rank == w->root;
        if (!fake_nccl_type_bytes(w->type) || (unsigned int)w->op >= ncclNumOps || w->root < 0 ||
                w->root >= w->comm->clique->n_ranks)
                return fake_nccl_refuse(
                        ncclInvalidArgument, "a type, an operation or a root that there is not");
        bool reads = w->call != CALL_ncclBroadcast || is_root, writes = w->call != CALL_ncclReduce || is_root;
        if (n_bytes && ((reads && !sees(w->comm, w->from, n_bytes, FAKE_READ)) ||
                               (writes && !sees(w->comm, w->to, n_bytes, FAKE_WRITE))))
                return fake_nccl_refuse(ncclInvalidArgument, "memory that the device does not see");
        return ncclSuccess;
}

static ncclResult_t begin(const struct nccl_work *like, cudaStream_t stream) {
        ncclResult_t r = fake_nccl_enter(like->call);
        if (r != ncclSuccess)
                return r;
        struct nccl_work *w = malloc(sizeof(*w));
        if (!w)
                return fake_nccl_leave(ncclSystemError);
        *w = *like;
        w->verdict = fake_verdict;
        w->stream = fake_current() ? fake_stream_find((CUstream)stream) : NULL;
        r = check(w);
        if (r == ncclSuccess)
                r = fake_group_is_open() ? fake_group_add(w) : fake_collective_submit(w);
        else
                free(w);
        if (fake_group_is_open() && r != ncclSuccess && r != ncclInProgress)
                group.error = r;
        return fake_nccl_leave(r);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
        ncclComm_t comm, cudaStream_t stream) {
        struct nccl_work w = { .comm = comm,
                .call = CALL_ncclAllReduce,
                .from = from,
                .to = to,
                .count = count,
                .type = type,
                .op = op };
        return begin(&w, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
        int root, ncclComm_t comm, cudaStream_t stream) {
        struct nccl_work w = { .comm = comm,
                .call = CALL_ncclReduce,
                .from = from,
                .to = to,
                .count = count,
                .type = type,
                .op = op,
                .root = root };
        return begin(&w, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
        ncclComm_t comm, cudaStream_t stream) {
        struct nccl_work w = { .comm = comm,
                .call = CALL_ncclBroadcast,
                .from = from,
                .to = to,
                .count = count,
                .type = type,
                .root = root };
        return begin(&w, stream);
}

/* --- groups --- */

bool fake_group_is_open(void) {
        return group.depth > 0;
}

ncclResult_t fake_group_add(struct nccl_work *work) {
        work->next = NULL;
        *group.tail = work;
        group.tail = &work->next;
        return ncclSuccess;
}

ncclResult_t fake_group_add_init(struct ncclComm *comm) {
        if (group.n_inits == sizeof(group.inits) / sizeof(*group.inits))
                return fake_nccl_refuse(ncclInvalidUsage, "too many communicators in a group");
        group.inits[group.n_inits++] = comm;
        return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
        ncclResult_t r = fake_nccl_enter(CALL_ncclGroupStart);
        if (r != ncclSuccess)
                return r;
        if (group.depth++ == 0) {
                group.works = NULL;
                group.tail = &group.works;
                group.n_inits = 0;
                group.error = ncclSuccess;
        }
        return fake_nccl_leave(ncclSuccess);
}

static ncclResult_t finish_inits(void) {
        ncclResult_t r = ncclSuccess;
        for (int i = 0; i < group.n_inits; i++) {
                const struct ncclComm *c = group.inits[i];
                if (!c->is_blocking)
                        return ncclInProgress;
                while ((r = fake_comm_state(c)) == ncclInProgress)
                        fake_wait(FAKE_A_MOMENT);
                if (r != ncclSuccess)
                        return r;
        }
        return r;
}

static ncclResult_t finish_works(void) {
        ncclResult_t r = ncclSuccess;
        while (group.works) {
                struct nccl_work *w = group.works;
                group.works = w->next;
                if (group.error != ncclSuccess) { /* all or nothing */
                        free(w);
                        continue;
                }
                ncclResult_t one = fake_collective_submit(w);
                r = one != ncclSuccess ? one : r;
        }
        return group.error != ncclSuccess ? group.error : r;
}

/* As NCCL: a group whose end fails is over, and nothing of it was begun. */
static ncclResult_t abandon_group(ncclResult_t error) {
        if (!group.depth || --group.depth)
                return error;
        group.error = error;
        return finish_works();
}

ncclResult_t ncclGroupEnd(void) {
        ncclResult_t r = fake_nccl_enter(CALL_ncclGroupEnd);
        if (r != ncclSuccess)
                return abandon_group(r);
        if (!group.depth)
                return fake_nccl_leave(fake_nccl_refuse(ncclInvalidUsage, "no group to end"));
        if (--group.depth)
                return fake_nccl_leave(ncclSuccess);
        r = finish_inits();
        ncclResult_t works = finish_works();
        return fake_nccl_leave(r == ncclSuccess ? works : r);
}
