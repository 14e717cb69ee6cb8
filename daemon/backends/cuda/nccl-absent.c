/* Built without nccl.h: there is no library, and it is said. */
#include <errno.h>
#include "backends/cuda/nccl-cliques.h"

void cliques_open(struct cuda *c) {
        cuda_add_fallback(c, "nccl", "tuttid-gpu was built without nccl.h");
}

void cliques_close(struct cuda *c) {
        (void)c;
}

void cliques_unload(struct cuda *c) {
        (void)c;
}

void cliques_poll(struct cuda *c) {
        (void)c;
}

enum clique_state clique_find(struct cuda *c, uint64_t devices, const char **ret_why) {
        (void)c;
        (void)devices;
        *ret_why = "tuttid-gpu was built without NCCL";
        return CLIQUE_FAILED;
}

uint64_t clique_n_aborts(struct cuda *c, uint64_t devices) {
        (void)c;
        (void)devices;
        return 0;
}

int clique_start(struct cuda *c, uint64_t devices, const struct clique_call *call) {
        (void)c;
        (void)devices;
        (void)call;
        return -ENOSYS;
}

void clique_abort(struct cuda *c, uint64_t devices, const char *why) {
        (void)c;
        (void)devices;
        (void)why;
}
