#include "backends/cuda/nccl-cliques.h"
#include <dlfcn.h>
#include <errno.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"

/* The first with names for communicators is 2.27; older ones take the configuration without. */
#define LEAST_VERSION NCCL_VERSION(2, 18, 1)

#define NCCL_CALLS(X)                                                                                        \
        X(ncclGetVersion)                                                                                    \
        X(ncclGetUniqueId)                                                                                   \
        X(ncclCommInitRankConfig)                                                                            \
        X(ncclGroupStart)                                                                                    \
        X(ncclGroupEnd)                                                                                      \
        X(ncclAllReduce)                                                                                     \
        X(ncclReduce)                                                                                        \
        X(ncclBroadcast)                                                                                     \
        X(ncclCommAbort)                                                                                     \
        X(ncclCommGetAsyncError)                                                                             \
        X(ncclGetErrorString)                                                                                \
        X(ncclGetLastError)

struct clique {
        struct list link;
        uint64_t devices;
        uint32_t n_ranks;
        ncclComm_t comms[MAX_GPU_DEVICES]; /* [n_ranks], in the order of the devices */
        enum clique_state state;
        bool is_begun;   /* it has communicators, ready or not; otherwise it is made when it is asked for */
        bool is_handing; /* MAKING, because a collective is being handed to it */
        uint64_t n_aborts, making_since_ns;
        char name[48]; /* NCCL keeps the pointer while it makes it */
        char why[GPU_TEXT_BYTES];
};

#define NCCL_MEMBER(name) __typeof__(&(name)) name;
struct cliques {
        void *library;
        NCCL_CALLS(NCCL_MEMBER)
        int version;
        struct list all;
};
#undef NCCL_MEMBER

/* --- the library --- */

static bool find_functions(struct cliques *q, const char **ret_missing) {
#define NCCL_WANTED(name) { #name, offsetof(struct cliques, name) },
        static const struct {
                const char *name;
                size_t offset;
        } wanted[] = { NCCL_CALLS(NCCL_WANTED) };
#undef NCCL_WANTED
        for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
                void *function = dlsym(q->library, wanted[i].name);
                *ret_missing = wanted[i].name;
                if (!function)
                        return false;
                memcpy((char *)q + wanted[i].offset, &function, sizeof(function));
        }
        return true;
}

static bool open_library(struct cuda *c, struct cliques *q) {
        const char *path = c->options.nccl_path ? c->options.nccl_path : "libnccl.so.2", *missing;
        q->library = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (!q->library)
                cuda_add_fallback(c, "nccl", "not there: %s", *path ? dlerror() : "switched off");
        else if (!find_functions(q, &missing))
                cuda_add_fallback(c, "nccl", "too old: it has no %s", missing);
        else if (q->ncclGetVersion(&q->version) != ncclSuccess || q->version < LEAST_VERSION)
                cuda_add_fallback(c, "nccl", "too old: version code %d, the least is %d", q->version,
                        (int)LEAST_VERSION);
        else
                return true;
        if (q->library)
                dlclose(q->library);
        return false;
}

void cliques_open(struct cuda *c) {
        struct cliques *q = calloc(1, sizeof(*q));
        /* All of a communicator's ranks are in this process: its bootstrap needs no other interface. */
        if (!q || setenv("NCCL_SOCKET_IFNAME", "lo", 0) < 0 || !open_library(c, q)) {
                free(q);
                return;
        }
        list_init(&q->all);
        c->cliques = q;
        for (uint32_t i = 0; i < c->n_devices; i++)
                c->base.devices[i].has_library = !c->base.devices[i].why[0];
}

/* --- making --- */

static struct clique *find(struct cuda *c, uint64_t devices) {
        list_for_each (it, &c->cliques->all) {
                struct clique *k = list_entry(it, struct clique, link);
                if (k->devices == devices)
                        return k;
        }
        return NULL;
}

static const char *words_of(struct cuda *c, ncclComm_t comm, ncclResult_t r) {
        const char *last = c->cliques->ncclGetLastError(comm);
        return last && *last ? last : c->cliques->ncclGetErrorString(r);
}

static void note_failure(struct cuda *c, struct clique *k, ncclResult_t r, const char *call) {
        snprintf(k->why, sizeof(k->why), "NCCL: %s: %s", call, words_of(c, k->comms[0], r));
        log_warning("%s (%s)", k->why, k->name);
}

static void end_ranks(struct cuda *c, struct clique *k) {
        for (uint32_t i = 0; i < k->n_ranks; i++) {
                if (!k->comms[i])
                        continue;
                ncclResult_t r = c->cliques->ncclCommAbort(k->comms[i]);
                if (r != ncclSuccess && r != ncclInProgress)
                        log_warning("NCCL: ncclCommAbort: %s", c->cliques->ncclGetErrorString(r));
        }
        k->n_ranks = 0;
        k->is_begun = k->is_handing = false;
        c->current = NULL; /* it may have changed it */
}

/* It could not be made: who asks next tries again. */
static void give_up(struct cuda *c, struct clique *k) {
        end_ranks(c, k);
        k->state = CLIQUE_FAILED;
}

static ncclResult_t begin_ranks(struct cuda *c, struct clique *k) {
        struct cliques *q = c->cliques;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;
        ncclResult_t r = q->ncclGetUniqueId(&id), end;
        config.blocking = 0;
        config.commName = k->name;
        if (r != ncclSuccess)
                return r;
        r = q->ncclGroupStart();
        if (r != ncclSuccess)
                return r;
        k->n_ranks = 0;
        for (uint32_t i = 0; i < c->n_devices && (r == ncclSuccess || r == ncclInProgress); i++) {
                if (!(k->devices & UINT64_C(1) << i))
                        continue;
                r = cuda_enter(c, &c->devices[i]) < 0
                            ? ncclUnhandledCudaError
                            : q->ncclCommInitRankConfig(&k->comms[k->n_ranks],
                                      __builtin_popcountll(k->devices), id, (int)k->n_ranks, &config);
                k->n_ranks++;
        }
        end = q->ncclGroupEnd();
        return r == ncclSuccess || r == ncclInProgress ? end : r;
}

static void make(struct cuda *c, struct clique *k) {
        k->state = CLIQUE_MAKING;
        k->is_begun = true;
        k->making_since_ns = clock_now_ns();
        k->why[0] = '\0';
        memset(k->comms, 0, sizeof(k->comms));
        ncclResult_t r = begin_ranks(c, k);
        c->current = NULL;
        if (r == ncclSuccess || r == ncclInProgress)
                return;
        note_failure(c, k, r, "ncclCommInitRankConfig");
        give_up(c, k);
}

/* What its communicators say; of several, what is worst. */
static ncclResult_t state_of(struct cuda *c, const struct clique *k) {
        ncclResult_t worst = ncclSuccess;
        for (uint32_t i = 0; i < k->n_ranks; i++) {
                ncclResult_t state = ncclSuccess;
                ncclResult_t r =
                        k->comms[i] ? c->cliques->ncclCommGetAsyncError(k->comms[i], &state) : ncclInProgress;
                if (r != ncclSuccess)
                        state = r;
                if (state == ncclInProgress && worst == ncclSuccess)
                        worst = state;
                else if (state != ncclSuccess && state != ncclInProgress)
                        return state;
        }
        return worst;
}

static bool is_being_made(const struct clique *k) {
        return k->state == CLIQUE_MAKING && !k->is_handing;
}

static void check_time(struct cuda *c, struct clique *k) {
        if (!is_being_made(k) || clock_now_ns() - k->making_since_ns <= c->options.library_limit_ns)
                return;
        snprintf(k->why, sizeof(k->why), "NCCL: no communicators in time");
        give_up(c, k);
}

static void look_after(struct cuda *c, struct clique *k) {
        ncclResult_t r = state_of(c, k);
        if (r == ncclInProgress) {
                check_time(c, k);
                return;
        }
        if (r == ncclSuccess) {
                k->state = CLIQUE_READY;
                k->is_handing = false;
                return;
        }
        note_failure(c, k, r, "asynchronous error");
        if (is_being_made(k))
                give_up(c, k);
        else
                clique_abort(c, k->devices, k->why);
}

void cliques_poll(struct cuda *c) {
        if (!c->cliques || c->base.is_broken)
                return;
        list_for_each (it, &c->cliques->all) {
                struct clique *k = list_entry(it, struct clique, link);
                if (k->is_begun)
                        look_after(c, k);
        }
}

static struct clique *find_or_add(struct cuda *c, uint64_t devices) {
        struct clique *k = find(c, devices);
        if (k)
                return k;
        k = calloc(1, sizeof(*k));
        if (!k)
                return NULL;
        k->devices = devices;
        k->state = CLIQUE_MAKING;
        snprintf(k->name, sizeof(k->name), "tutti-%llx", (unsigned long long)devices);
        list_append(&c->cliques->all, &k->link);
        return k;
}

enum clique_state clique_find(struct cuda *c, uint64_t devices, const char **ret_why) {
        struct clique *k = c->cliques ? find_or_add(c, devices) : NULL;
        *ret_why = c->cliques ? "tuttid-gpu is short of memory" : "NCCL is not there";
        if (!k)
                return CLIQUE_FAILED;
        *ret_why = k->why;
        if (!k->is_begun && k->state != CLIQUE_FAILED)
                make(c, k);
        if (k->state != CLIQUE_FAILED)
                return k->state;
        k->state = CLIQUE_MAKING; /* when it is asked for again */
        return CLIQUE_FAILED;
}

uint64_t clique_n_aborts(struct cuda *c, uint64_t devices) {
        const struct clique *k = c->cliques ? find(c, devices) : NULL;
        return k ? k->n_aborts : 0;
}

/* --- the end of one --- */

void clique_abort(struct cuda *c, uint64_t devices, const char *why) {
        list_for_each (it, &c->cliques->all) {
                struct clique *k = list_entry(it, struct clique, link);
                if (!(k->devices & devices) || !k->is_begun)
                        continue;
                log_warning("NCCL: communicators %s are aborted: %s", k->name, why);
                end_ranks(c, k);
                k->n_aborts++;
                make(c, k);
        }
}

void cliques_close(struct cuda *c) {
        if (!c->cliques)
                return;
        list_for_each_safe (it, tmp, &c->cliques->all) {
                struct clique *k = list_entry(it, struct clique, link);
                end_ranks(c, k);
                list_unlink(&k->link);
                free(k);
        }
}

void cliques_unload(struct cuda *c) {
        if (!c->cliques)
                return;
        dlclose(c->cliques->library);
        free(c->cliques);
        c->cliques = NULL;
}

/* --- collectives --- */

static bool find_dtype(enum dtype dtype, ncclDataType_t *ret) {
        static const int types[N_DTYPE] = { [DTYPE_U8] = ncclUint8 + 1,
                [DTYPE_I8] = ncclInt8 + 1,
                [DTYPE_U32] = ncclUint32 + 1,
                [DTYPE_I32] = ncclInt32 + 1,
                [DTYPE_U64] = ncclUint64 + 1,
                [DTYPE_I64] = ncclInt64 + 1,
                [DTYPE_F16] = ncclFloat16 + 1,
                [DTYPE_BF16] = ncclBfloat16 + 1,
                [DTYPE_F32] = ncclFloat32 + 1,
                [DTYPE_F64] = ncclFloat64 + 1 };
        *ret = (ncclDataType_t)(types[dtype] - 1);
        return types[dtype] != 0;
}

static bool find_op(enum op op, ncclRedOp_t *ret) {
        static const int ops[N_OP] = { [OP_SUM] = ncclSum + 1,
                [OP_PROD] = ncclProd + 1,
                [OP_MIN] = ncclMin + 1,
                [OP_MAX] = ncclMax + 1 };
        *ret = (ncclRedOp_t)(ops[op] - 1);
        return ops[op] != 0;
}

/* A broadcast is of bytes. */
static ncclResult_t call_rank(struct cuda *c, const struct clique *k, uint32_t rank, uint32_t device,
        const struct clique_call *call) {
        struct cliques *q = c->cliques;
        const void *in = (const void *)(uintptr_t)call->in[device];
        void *out = (void *)(uintptr_t)call->out[device];
        int root = __builtin_popcountll(k->devices & ((UINT64_C(1) << call->root) - 1));
        ncclDataType_t type = ncclUint8;
        ncclRedOp_t op = ncclSum;
        if (call->verb != CLIQUE_BROADCAST && (!find_dtype(call->dtype, &type) || !find_op(call->op, &op)))
                return ncclInvalidArgument;
        switch (call->verb) {
        case CLIQUE_ALL_REDUCE:
                return q->ncclAllReduce(
                        in, out, call->count, type, op, k->comms[rank], call->streams[device]);
        case CLIQUE_REDUCE:
                return q->ncclReduce(
                        in, out, call->count, type, op, root, k->comms[rank], call->streams[device]);
        case CLIQUE_BROADCAST:
                return q->ncclBroadcast(in, out, call->count * dtype_bytes(call->dtype), type, root,
                        k->comms[rank], call->streams[device]);
        }
        return ncclInvalidArgument;
}

int clique_start(struct cuda *c, uint64_t devices, const struct clique_call *call) {
        struct clique *k = find(c, devices);
        CHECK(k && k->state == CLIQUE_READY);
        ncclResult_t r = c->cliques->ncclGroupStart(), end;
        uint32_t rank = 0;
        for (uint32_t i = 0; i < c->n_devices && (r == ncclSuccess || r == ncclInProgress); i++) {
                if (!(devices & UINT64_C(1) << i))
                        continue;
                r = cuda_enter(c, &c->devices[i]) < 0 ? ncclUnhandledCudaError
                                                      : call_rank(c, k, rank, i, call);
                rank++;
        }
        end = c->cliques->ncclGroupEnd();
        c->current = NULL;
        if (r == ncclSuccess || r == ncclInProgress)
                r = end;
        if (r == ncclInProgress) {
                k->state = CLIQUE_MAKING;
                k->is_handing = true;
        }
        if (r == ncclSuccess || r == ncclInProgress)
                return 0;
        note_failure(c, k, r, "collective");
        clique_abort(c, devices, k->why);
        return -EIO;
}
