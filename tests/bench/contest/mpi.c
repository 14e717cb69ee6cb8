/* MPI in the contest. $CONTEST_LIBRARY names it, $CONTEST_BATCH how it does a batch, which it has no call
 * for: "each", one call after the other, or "fused", by hand: copied into one memory, reduced, copied back.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include "player.h"

static float *in, *out, *fused;
static int is_fused;

static void open_mpi(uint32_t *ret_rank, uint32_t *ret_n) {
        int rank, n;
        MPI_Init(NULL, NULL);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &n);
        *ret_rank = (uint32_t)rank;
        *ret_n = (uint32_t)n;
}

/* Touched, so that no page is made while it is timed. */
static float *memory(size_t n) {
        float *p = aligned_alloc(4096, (n * sizeof(float) + 4095) / 4096 * 4096 + 4096);
        if (!p)
                player_die("memory");
        memset(p, 0, n * sizeof(float));
        return p;
}

static void prepare(const struct work *w, float **ret_in, float **ret_out) {
        *ret_in = in = memory(w->n_elements);
        if (w->verb == VERB_ALL_REDUCE || w->verb == VERB_REDUCE)
                *ret_out = out = memory(w->n_elements);
        if (w->verb == VERB_BATCH && is_fused)
                fused = memory(w->n_elements);
}

static void run_fused(const struct work *w) {
        size_t end = 0;
        for (uint32_t i = 0; i < w->n_values; end += w->counts[i++])
                memcpy(fused + end, in + w->offsets[i], w->counts[i] * sizeof(float));
        MPI_Allreduce(MPI_IN_PLACE, fused, (int)end, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        end = 0;
        for (uint32_t i = 0; i < w->n_values; end += w->counts[i++])
                memcpy(in + w->offsets[i], fused + end, w->counts[i] * sizeof(float));
}

static void run_batch(const struct work *w) {
        if (is_fused) {
                run_fused(w);
                return;
        }
        for (uint32_t i = 0; i < w->n_values; i++)
                MPI_Allreduce(MPI_IN_PLACE, in + w->offsets[i], (int)w->counts[i], MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD);
}

static void run(const struct work *w) {
        int n = (int)w->n_elements;
        switch (w->verb) {
        case VERB_ALL_REDUCE: MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
        case VERB_ALL_REDUCE_IN_PLACE:
                MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                break;
        case VERB_REDUCE: MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); break;
        case VERB_BROADCAST: MPI_Bcast(in, n, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
        case VERB_BATCH: run_batch(w); break;
        case N_VERBS: break;
        }
}

static void finish(const struct work *w) {
        (void)w;
        free(in);
        free(out);
        free(fused);
        in = out = fused = NULL;
}

static void close_mpi(void) {
        MPI_Finalize();
}

int main(int argc, char **argv) {
        const char *name = getenv("CONTEST_LIBRARY"), *batch = getenv("CONTEST_BATCH");
        const struct library library = { .name = name ? name : "MPI",
                .open = open_mpi,
                .prepare = prepare,
                .run = run,
                .finish = finish,
                .close = close_mpi };
        is_fused = batch && strcmp(batch, "fused") == 0;
        return player_main(argc, argv, &library);
}
