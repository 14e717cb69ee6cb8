/* Communicators: how they are made, asked, and ended. All ranks of one are in this process, on a device each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "communicator.h"

enum {
        CONFIG_MAGIC = 0xcafebeef,
        READY_AFTER_NS = 1000000, /* so that a caller who does not ask whether it is ready is found out */
        BUSY_NS = 200000,
        DEFAULT_MEMORY = 64 << 20,
};

static struct clique *cliques;
static struct ncclComm *comms;
static uint64_t next_clique = 1;
static __thread char last_error[ERROR_BYTES];

/* --- errors --- */

ncclResult_t fake_nccl_refuse(ncclResult_t error, const char *why) {
        snprintf(last_error, sizeof(last_error), "%s", why);
        return error;
}

ncclResult_t fake_nccl_enter(enum fake_call call) {
        CUresult r = fake_enter(call, FAKE_NOTHING);
        if (r == CUDA_ERROR_NOT_PERMITTED)
                return fake_nccl_refuse(ncclInvalidUsage, "called from a host function");
        if (r != CUDA_SUCCESS)
                return fake_nccl_refuse((ncclResult_t)r, "a fault that a test asked for");
        if (!fake.is_init || fake.is_forked || fake.is_gone || atomic_load(&fake.sticky))
                return fake_nccl_leave(fake_nccl_refuse(ncclUnhandledCudaError, "the driver fails"));
        return ncclSuccess;
}

ncclResult_t fake_nccl_leave(ncclResult_t result) {
        (void)fake_leave(CUDA_SUCCESS);
        return result;
}

const char *ncclGetErrorString(ncclResult_t result) {
        static const char *const texts[] = { "no error", "unhandled cuda error", "unhandled system error",
                "internal error", "invalid argument", "invalid usage",
                "remote process exited or network error", "operation in progress" };
        return (unsigned int)result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
        return last_error;
}

ncclResult_t ncclGetVersion(int *version) {
        CUresult r = fake_enter(CALL_ncclGetVersion, FAKE_NOTHING);
        if (r != CUDA_SUCCESS)
                return fake_nccl_refuse((ncclResult_t)r, "a fault that a test asked for");
        if (!version)
                return fake_nccl_leave(ncclInvalidArgument);
        *version = NCCL_VERSION_CODE;
        return fake_nccl_leave(ncclSuccess);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *ret) {
        ncclResult_t r = fake_nccl_enter(CALL_ncclGetUniqueId);
        if (r != ncclSuccess)
                return r;
        memset(ret, 0, sizeof(*ret));
        memcpy(ret->internal, &next_clique, sizeof(next_clique));
        next_clique++;
        return fake_nccl_leave(ncclSuccess);
}

/* --- cliques --- */

static struct clique *find_clique(const ncclUniqueId *id, int n_ranks) {
        uint64_t number;
        memcpy(&number, id->internal, sizeof(number));
        struct clique *q = cliques;
        while (q && q->id != number)
                q = q->next;
        if (q)
                return q;
        q = calloc(1, sizeof(*q));
        if (!q)
                return NULL;
        *q = (struct clique){ .next = cliques, .id = number, .n_ranks = n_ranks };
        cliques = q;
        return q;
}

static void unref_clique(struct clique *q) {
        struct clique **at = &cliques;
        if (--q->n_refs)
                return;
        while (*at != q)
                at = &(*at)->next;
        *at = q->next;
        fake_collectives_free(q);
        free(q);
}

/* Two ranks on one device: an error of all. */
static bool has_duplicate(const struct clique *q) {
        for (int i = 0; i < q->n_ranks; i++)
                for (int k = 0; k < i; k++)
                        if (q->comms[i]->context == q->comms[k]->context)
                                return true;
        return false;
}

static void complete(struct clique *q) {
        bool is_bad = has_duplicate(q);
        q->ready_at_ns = fake_now_ns() + READY_AFTER_NS;
        for (int i = 0; i < q->n_ranks && is_bad; i++)
                q->comms[i]->error =
                        fake_nccl_refuse(ncclInvalidUsage, "two ranks of a communicator on one device");
        pthread_cond_broadcast(&fake.changed);
}

/* --- beginning --- */

bool fake_comm_is_known(const struct ncclComm *comm) {
        for (const struct ncclComm *c = comms; c; c = c->next)
                if (c == comm)
                        return true;
        return false;
}

ncclResult_t fake_comm_state(const struct ncclComm *c) {
        const struct clique *q = c->clique;
        int64_t now = fake_now_ns();
        if (atomic_load(&fake.sticky))
                return ncclUnhandledCudaError;
        if (c->error != ncclSuccess)
                return c->error;
        if (c->stall && atomic_load(&c->stall->is_armed))
                return ncclInProgress;
        if (q->n_joined < q->n_ranks || now < q->ready_at_ns || now < c->busy_until_ns)
                return ncclInProgress;
        return c->is_finalizing && c->n_works ? ncclInProgress : ncclSuccess;
}

static ncclResult_t take_memory(struct ncclComm *c) {
        const char *text = getenv("FAKECUDA_NCCL_MEMORY");
        struct fake_allocation a = { .id = atomic_fetch_add(&fake.page->next_id, 1),
                .n_bytes = text ? strtoull(text, NULL, 10) : DEFAULT_MEMORY,
                .device = (uint32_t)c->context->physical };
        if (!fake_has_room(c->context->physical, a.n_bytes) || fake_charge(&a) != CUDA_SUCCESS)
                return fake_nccl_refuse(ncclUnhandledCudaError, "no device memory for a communicator");
        c->memory = a.id;
        return ncclSuccess;
}

static struct ncclComm *new_comm(int rank, const ncclConfig_t *config) {
        struct ncclComm *c = calloc(1, sizeof(*c));
        if (!c)
                return NULL;
        c->rank = rank;
        c->context = fake_current();
        c->thread = pthread_self();
        c->is_blocking = c->is_settled = !config || config->blocking != 0;
        c->stall = fake_verdict.stall;
        if (fake_verdict.async)
                c->error = (ncclResult_t)fake_verdict.async->code;
        return c;
}

static ncclResult_t join(struct clique *q, struct ncclComm *c) {
        if (q->n_ranks > MAX_RANKS || c->rank >= q->n_ranks || q->comms[c->rank])
                return fake_nccl_refuse(ncclInvalidArgument, "a rank that is taken, or is none");
        ncclResult_t r = take_memory(c);
        if (r != ncclSuccess)
                return r;
        c->clique = q;
        q->n_refs++;
        q->comms[c->rank] = c;
        c->next = comms;
        comms = c;
        if (++q->n_joined == q->n_ranks)
                complete(q);
        return ncclSuccess;
}

/* For communicators that block: until it is ready, or will never be. */
static ncclResult_t wait_ready(const struct ncclComm *c) {
        ncclResult_t r;
        while ((r = fake_comm_state(c)) == ncclInProgress)
                fake_wait(FAKE_A_MOMENT);
        return r;
}

static ncclResult_t check_init(const ncclComm_t *ret, int n_ranks, int rank, const ncclConfig_t *config) {
        if (!ret || n_ranks < 1 || rank < 0 || rank >= n_ranks)
                return fake_nccl_refuse(ncclInvalidArgument, "a rank that there is not");
        if (config && (config->magic != CONFIG_MAGIC || config->size < sizeof(size_t)))
                return fake_nccl_refuse(
                        ncclInvalidArgument, "a configuration without NCCL_CONFIG_INITIALIZER");
        if (fake_check_context() != CUDA_SUCCESS)
                return fake_nccl_refuse(ncclUnhandledCudaError, "no current context");
        return ncclSuccess;
}

/* The signature is NCCL's. */
ncclResult_t ncclCommInitRankConfig(
        ncclComm_t *ret, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
        ncclResult_t r = fake_nccl_enter(CALL_ncclCommInitRankConfig);
        if (r != ncclSuccess)
                return r;
        r = check_init(ret, n_ranks, rank, config);
        if (r != ncclSuccess)
                return fake_nccl_leave(r);
        struct clique *q = find_clique(&id, n_ranks);
        struct ncclComm *c = q ? new_comm(rank, config) : NULL;
        if (!c)
                return fake_nccl_leave(ncclSystemError);
        q->n_refs++; /* or it would go when joining fails */
        r = join(q, c);
        unref_clique(q);
        if (r != ncclSuccess) {
                free(c);
                return fake_nccl_leave(r);
        }
        *ret = c;
        if (fake_group_is_open())
                r = fake_group_add_init(c);
        else
                r = c->is_blocking ? wait_ready(c) : ncclInProgress;
        return fake_nccl_leave(r);
}

/* --- asking --- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *ret) {
        ncclResult_t r = fake_nccl_enter(CALL_ncclCommGetAsyncError);
        if (r != ncclSuccess)
                return r;
        if (!fake_comm_is_known(comm) || !ret)
                return fake_nccl_leave(fake_nccl_refuse(ncclInvalidArgument, "no communicator"));
        *ret = fake_comm_state(comm);
        comm->is_settled |= *ret == ncclSuccess;
        return fake_nccl_leave(ncclSuccess);
}

static ncclResult_t ask(const struct ncclComm *comm, enum fake_call call, int *ret) {
        ncclResult_t r = fake_nccl_enter(call);
        if (r != ncclSuccess)
                return r;
        if (!fake_comm_is_known(comm) || !ret)
                return fake_nccl_leave(fake_nccl_refuse(ncclInvalidArgument, "no communicator"));
        *ret = call == CALL_ncclCommCount      ? comm->clique->n_ranks
               : call == CALL_ncclCommUserRank ? comm->rank
                                               : comm->context->device;
        return fake_nccl_leave(ncclSuccess);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *ret) {
        return ask(comm, CALL_ncclCommCount, ret);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *ret) {
        return ask(comm, CALL_ncclCommCuDevice, ret);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *ret) {
        return ask(comm, CALL_ncclCommUserRank, ret);
}

/* --- ending --- */

static void free_if_over(struct ncclComm *c) {
        if (!c->is_ended || c->n_works)
                return;
        unref_clique(c->clique);
        free(c);
}

void fake_comm_unref(struct ncclComm *comm) {
        comm->n_works--;
        free_if_over(comm);
}

static void end_comm(struct ncclComm *c) {
        struct ncclComm **at = &comms;
        while (*at != c)
                at = &(*at)->next;
        *at = c->next;
        c->is_ended = true;
        fake_uncharge(c->memory);
        pthread_cond_broadcast(&fake.changed);
        free_if_over(c);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
        ncclResult_t r = fake_nccl_enter(CALL_ncclCommFinalize);
        if (r != ncclSuccess)
                return r;
        if (!fake_comm_is_known(comm) || comm->is_finalizing)
                return fake_nccl_leave(
                        fake_nccl_refuse(ncclInvalidArgument, "no communicator, or finalized already"));
        r = fake_comm_state(comm);
        if (r != ncclSuccess)
                return fake_nccl_leave(
                        fake_nccl_refuse(ncclInvalidUsage, "the communicator is busy or broken"));
        comm->is_finalizing = true;
        comm->busy_until_ns = fake_now_ns() + BUSY_NS;
        return fake_nccl_leave(comm->is_blocking ? wait_ready(comm) : ncclInProgress);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
        ncclResult_t r = fake_nccl_enter(CALL_ncclCommDestroy);
        if (r != ncclSuccess)
                return r;
        if (!fake_comm_is_known(comm))
                return fake_nccl_leave(fake_nccl_refuse(ncclInvalidArgument, "no communicator"));
        while (comm->n_works && !atomic_load(&fake.sticky)) /* as NCCL: it is flushed first */
                fake_wait(FAKE_A_MOMENT);
        end_comm(comm);
        return fake_nccl_leave(ncclSuccess);
}

/* Also where the driver is broken: what could be freed without it is freed. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
        CUresult r = fake_enter(CALL_ncclCommAbort, FAKE_NOTHING);
        if (r != CUDA_SUCCESS)
                return fake_nccl_refuse((ncclResult_t)r, "a fault that a test asked for");
        if (!fake_comm_is_known(comm))
                return fake_nccl_leave(fake_nccl_refuse(ncclInvalidArgument, "no communicator"));
        end_comm(comm);
        return fake_nccl_leave(ncclSuccess);
}

static unsigned int works_left(void) {
        unsigned int n = 0;
        for (const struct clique *q = cliques; q; q = q->next)
                n += q->n_refs;
        return n;
}

/* When the library is closed: what is in streams still has to pass through it. Not for ever: the program may
 * have left a stream that waits. */
__attribute__((destructor)) static void end(void) {
        pthread_mutex_lock(&fake.lock);
        while (comms)
                end_comm(comms);
        for (int64_t until = fake_now_ns() + 1000000000;
                works_left() && fake_now_ns() < until && !fake.is_gone;)
                fake_wait(FAKE_A_MOMENT);
        pthread_mutex_unlock(&fake.lock);
}
