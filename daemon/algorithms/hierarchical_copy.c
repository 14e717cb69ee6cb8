/* Two levels of sums: what the devices of an island reach of each other is summed at the island's root, the
 * roots' sums are summed at one of them, and the total goes back the same way. TensorFlow built it for the
 * DGX-1; here it is for any number of devices and any links.
 *
 * Devices are those whose memory the replicas bring their values in; topology_islands divides them. For pack
 * number k the place of the total is device k modulo their number, which is also the root of its island; the
 * root of any other island is its member number k modulo its size. So the roots rotate, and packs spread the
 * load. The order of combination does not rotate: within an island that of the ranks, then that of the
 * islands. So the bits depend on values, ranks and links, and not on packs (order=tree).
 *
 * Four phases: (1) each root reduces its island into a partial result in the accumulation type; (2) the place
 * of the total reduces those and makes the result; (3) the other roots fetch it; (4) each device copies it
 * from its root to the outputs of its replicas. Where one root does not reach another, what it writes for it
 * lies in host memory.
 *
 * What lies between the phases is scratch, of which a plan takes no more than ROUND_BYTES for each island and
 * type at a time (a value with strides is not cut, and takes what it needs): larger batches go in rounds, one
 * behind the other. */
#include "algorithms/algorithm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "algorithms/packing.h"
#include "algorithms/places.h"
#include "model/device.h"

#define HOST_MEMORY 0 /* scratch that all reach */

struct tree {
        const struct problem *problem;
        struct plan *plan;
        uint32_t n_devices, n_islands;
        uint32_t devices[MAX_TOPOLOGY], islands[MAX_TOPOLOGY]; /* of each device */
};

/* A piece on its way through the phases. */
struct lot {
        struct pack_piece piece;
        enum dtype acc, out;
        uint32_t main; /* island: that of the total */
        uint32_t root[MAX_TOPOLOGY];
        struct operand partial[MAX_TOPOLOGY], total[MAX_TOPOLOGY]; /* by island */
        struct operand passed; /* the total in host memory, for roots that do not reach its place */
        bool has_passed;
};

/* --- who is where --- */

static uint32_t island_of(const struct tree *t, uint32_t device) {
        for (uint32_t d = 0; d < t->n_devices; d++)
                if (t->devices[d] == device)
                        return t->islands[d];
        CHECK(false);
        return 0;
}

static uint32_t n_members(const struct tree *t, uint32_t island) {
        uint32_t n = 0;
        for (uint32_t d = 0; d < t->n_devices; d++)
                n += t->islands[d] == island;
        CHECK(n > 0);
        return n;
}

static uint32_t member(const struct tree *t, uint32_t island, uint32_t k) {
        k %= n_members(t, island);
        for (uint32_t d = 0; d < t->n_devices; d++)
                if (t->islands[d] == island && k-- == 0)
                        return t->devices[d];
        CHECK(false);
        return 0;
}

static void choose_roots(const struct tree *t, struct lot *lot) {
        uint32_t k = lot->piece.pack, place = k % t->n_devices;
        lot->main = t->islands[place];
        for (uint32_t island = 0; island < t->n_islands; island++)
                lot->root[island] = island == lot->main ? t->devices[place] : member(t, island, k);
}

static bool reaches(const struct tree *t, uint32_t a, uint32_t b) {
        return topology_reaches(t->problem->topology, a, b);
}

/* --- scratch --- */

static int take_scratch(struct tree *t, struct lot *lot) {
        uint64_t n = lot->piece.n_elements;
        uint32_t place = lot->root[lot->main];
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < t->n_islands; i++) {
                bool is_near = reaches(t, place, lot->root[i]) && reaches(t, lot->root[i], place);
                lot->has_passed |= !is_near;
                r = plan_take_scratch(t->plan, is_near ? lot->root[i] : HOST_MEMORY,
                        n * dtype_bytes(lot->acc), &lot->partial[i]);
                if (r == 0)
                        r = plan_take_scratch(
                                t->plan, lot->root[i], n * dtype_bytes(lot->out), &lot->total[i]);
        }
        if (r == 0 && lot->has_passed)
                r = plan_take_scratch(t->plan, HOST_MEMORY, n * dtype_bytes(lot->out), &lot->passed);
        return r;
}

/* --- steps --- */

static const struct entry *entry_of(const struct tree *t, const struct lot *lot) {
        return &t->problem->entries[0][lot->piece.entry];
}

/* `o`, which names a whole value, at the first element of the piece. */
static struct operand at_piece(const struct lot *lot, struct operand o, enum dtype dtype) {
        o.offset_bytes += lot->piece.first_element * dtype_bytes(dtype);
        return o;
}

static struct step *add_step(struct tree *t, const struct lot *lot, struct step step) {
        step.entry = lot->piece.entry;
        step.first_element = lot->piece.first_element;
        step.count = lot->piece.n_elements;
        return plan_add_step(t->plan, &step);
}

/* The shape of the whole entry, for steps that read or write it where it lies with strides. */
static void take_shape(const struct tree *t, const struct lot *lot, struct step *step) {
        if (!problem_has_strides(t->problem, lot->piece.entry))
                return;
        step->n_dims = entry_of(t, lot)->n_dims;
        memcpy(step->shape, entry_of(t, lot)->shape, sizeof(step->shape));
}

static bool is_in_island(const struct tree *t, uint32_t i, uint32_t island) {
        return island_of(t, problem_home(t->problem, i)) == island;
}

static int add_partial(struct tree *t, const struct lot *lot, uint32_t island) {
        const struct problem *problem = t->problem;
        const struct signature *s = problem->signature;
        const uint32_t e = lot->piece.entry;
        struct step step = { .kind = STEP_REDUCE,
                .device = lot->root[island],
                .op = s->op == OP_MEAN ? OP_SUM : s->op,
                .dtype = entry_of(t, lot)->dtype,
                .output_dtype = lot->acc,
                .has_weights = s->options.has_weight,
                .total_weight = s->options.has_weight ? problem_total_weight(problem) : 0,
                .check_numerics = s->options.check_numerics,
                .n_outputs = 1 };
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                step.n_inputs += is_in_island(t, i, island);
        take_shape(t, lot, &step);
        struct step *added = add_step(t, lot, step);
        if (!added)
                return -ENOMEM;
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                if (!is_in_island(t, i, island))
                        continue;
                plan_inputs(t->plan, added)[n] = at_piece(lot, problem_input(problem, i, e), step.dtype);
                if (step.n_dims)
                        problem_strides(&problem->entries[i][e], &problem->entries[i][e].input,
                                plan_strides(t->plan, added, n));
                n++;
        }
        plan_outputs(t->plan, added)[0] = lot->partial[island];
        if (step.n_dims) {
                packed_strides(entry_of(t, lot), plan_strides(t->plan, added, n));
                plan_simplify_step(t->plan);
        }
        return 0;
}

/* Partial results with weights have been weighed: each counts once, and a mean is divided by the weights. */
static int add_total(struct tree *t, const struct lot *lot) {
        const struct signature *s = t->problem->signature;
        const struct step step = { .kind = STEP_REDUCE,
                .device = lot->root[lot->main],
                .op = s->op,
                .dtype = lot->acc,
                .output_dtype = lot->out,
                .rounding = s->options.rounding,
                .has_weights = s->options.has_weight,
                .total_weight = s->options.has_weight ? problem_total_weight(t->problem) : 0,
                .divisor = s->op == OP_MEAN ? t->problem->divisor : 0,
                .n_inputs = t->n_islands,
                .n_outputs = 1u + lot->has_passed };
        struct step *added = add_step(t, lot, step);
        if (!added)
                return -ENOMEM;
        for (uint32_t i = 0; i < t->n_islands; i++) {
                plan_inputs(t->plan, added)[i] = lot->partial[i];
                plan_inputs(t->plan, added)[i].weight = s->options.has_weight;
        }
        plan_outputs(t->plan, added)[0] = lot->total[lot->main];
        if (lot->has_passed)
                plan_outputs(t->plan, added)[1] = lot->passed;
        return 0;
}

static int add_passing(struct tree *t, const struct lot *lot, uint32_t island) {
        const struct step step = { .kind = STEP_COPY,
                .device = lot->root[island],
                .dtype = lot->out,
                .n_inputs = 1,
                .n_outputs = 1 };
        struct step *added = add_step(t, lot, step);
        if (!added)
                return -ENOMEM;
        bool is_near = reaches(t, lot->root[island], lot->root[lot->main]);
        plan_inputs(t->plan, added)[0] = is_near ? lot->total[lot->main] : lot->passed;
        plan_outputs(t->plan, added)[0] = lot->total[island];
        return 0;
}

/* Whether half `i` lives on this device, and receives. */
static bool receives_on(const struct tree *t, const struct lot *lot, uint32_t i, uint32_t device) {
        return problem_home(t->problem, i) == device &&
               problem_is_output(t->problem, i, lot->piece.entry, NULL);
}

static int add_delivery(struct tree *t, const struct lot *lot, uint32_t device) {
        const struct problem *problem = t->problem;
        const uint32_t e = lot->piece.entry;
        struct step step = { .kind = STEP_COPY, .device = device, .dtype = lot->out, .n_inputs = 1 };
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                step.n_outputs += receives_on(t, lot, i, device);
        if (step.n_outputs == 0)
                return 0;
        take_shape(t, lot, &step);
        struct step *added = add_step(t, lot, step);
        if (!added)
                return -ENOMEM;
        plan_inputs(t->plan, added)[0] = lot->total[island_of(t, device)];
        if (step.n_dims)
                packed_strides(entry_of(t, lot), plan_strides(t->plan, added, 0));
        for (uint32_t i = 0, n = 0; i < problem->n_ranks; i++) {
                if (!receives_on(t, lot, i, device))
                        continue;
                plan_outputs(t->plan, added)[n++] = at_piece(lot, problem_output(problem, i, e), lot->out);
                if (step.n_dims)
                        problem_strides(&problem->entries[i][e], &problem->entries[i][e].output,
                                plan_strides(t->plan, added, n));
        }
        if (step.n_dims)
                plan_simplify_step(t->plan);
        return 0;
}

/* --- phases --- */

enum phase { PHASE_PARTIAL, PHASE_TOTAL, PHASE_PASS, PHASE_DELIVER, N_PHASES };

static int add_phase(struct tree *t, const struct lot *lot, enum phase phase, uint32_t k) {
        switch (phase) {
        case PHASE_PARTIAL: return add_partial(t, lot, k);
        case PHASE_TOTAL: return add_total(t, lot);
        case PHASE_PASS: return k == lot->main ? 0 : add_passing(t, lot, k);
        case PHASE_DELIVER: return add_delivery(t, lot, t->devices[k]);
        case N_PHASES: break;
        }
        return 0;
}

/* Neighbouring steps are of one device, where that can be. */
static int add_round(struct tree *t, const struct lot *lots, uint32_t n) {
        const uint32_t n_parts[N_PHASES] = { t->n_islands, 1, t->n_islands, t->n_devices };
        int r = 0;
        for (enum phase phase = 0; r == 0 && phase < N_PHASES; phase++) {
                if (t->plan->n_steps > 0 && (phase != PHASE_PASS || t->n_islands > 1))
                        r = plan_join(t->plan);
                for (uint32_t k = 0; r == 0 && k < n_parts[phase]; k++)
                        for (uint32_t i = 0; r == 0 && i < n; i++)
                                r = add_phase(t, &lots[i], phase, k);
        }
        return r;
}

/* --- rounds --- */

#define MAX_LOTS 64

/* Takes the next lot off a piece; false: the round has no room for more. */
static bool cut_lot(const struct tree *t, struct pack_piece *rest, uint64_t *room, struct lot *ret) {
        const struct entry *entry = &t->problem->entries[0][rest->entry];
        *ret = (struct lot){ .piece = *rest,
                .acc = accumulation_dtype(t->problem->signature, entry->dtype),
                .out = entry_output_dtype(entry) };
        size_t acc = dtype_bytes(ret->acc), out = dtype_bytes(ret->out), each = acc > out ? acc : out;
        uint64_t n = rest->n_elements, most = *room / each;
        if (n > most && problem_has_strides(t->problem, rest->entry) && *room < ROUND_BYTES)
                return false;
        if (n > most && !problem_has_strides(t->problem, rest->entry))
                n = most;
        if (n == 0)
                return false;
        ret->piece.n_elements = n;
        rest->first_element += n;
        rest->n_elements -= n;
        *room -= n * each < *room ? n * each : *room;
        return true;
}

static bool is_wanted(const struct problem *problem, uint32_t e) {
        return problem_has_output(problem, e) || problem->signature->options.check_numerics;
}

/* Scratch of a round begins where that of the one before did. */
static void rewind_scratch(struct plan *plan, uint64_t most[MAX_SCRATCH]) {
        for (uint32_t i = 0; i < plan->n_scratch; i++) {
                if (plan->scratch[i].n_bytes > most[i])
                        most[i] = plan->scratch[i].n_bytes;
                plan->scratch[i].n_bytes = most[i];
        }
}

static int build_rounds(struct tree *t, struct packs *packs, struct lot *lots) {
        uint64_t most[MAX_SCRATCH] = { 0 };
        for (uint32_t at = 0; at < packs->n_pieces;) {
                uint64_t room = ROUND_BYTES;
                uint32_t n = 0;
                int r = 0;
                for (uint32_t i = 0; i < t->plan->n_scratch; i++)
                        t->plan->scratch[i].n_bytes = 0;
                while (r == 0 && n < MAX_LOTS && at < packs->n_pieces) {
                        if (packs->pieces[at].n_elements == 0 ||
                                !is_wanted(t->problem, packs->pieces[at].entry)) {
                                at++;
                                continue;
                        }
                        if (!cut_lot(t, &packs->pieces[at], &room, &lots[n]))
                                break;
                        choose_roots(t, &lots[n]);
                        r = take_scratch(t, &lots[n++]);
                }
                if (r == 0 && n > 0)
                        r = add_round(t, lots, n);
                rewind_scratch(t->plan, most);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int hierarchical_build(const struct problem *problem, struct plan *plan) {
        struct tree t = { .problem = problem, .plan = plan };
        struct packs packs = { 0 };
        t.n_devices = problem_homes(problem, t.devices);
        t.n_islands = topology_islands(problem->topology, t.devices, t.n_devices, t.islands);
        plan->device = t.devices[0];
        struct lot *lots = calloc(MAX_LOTS, sizeof(*lots));
        int r = lots ? packs_make(&packs, problem) : -ENOMEM;
        if (r == 0)
                r = build_rounds(&t, &packs, lots);
        packs_deinit(&packs);
        free(lots);
        return r;
}

static const char *hierarchical_unfit(const struct problem *problem) {
        const struct signature *s = problem->signature;
        uint32_t devices[MAX_TOPOLOGY], n_devices = problem_homes(problem, devices);
        if (s->kind != KIND_REDUCE && s->kind != KIND_BATCH_REDUCE)
                return "it does reductions alone";
        if (s->axes)
                return "it does not reduce over axes";
        if (problem->n_sparse)
                return "sparse values are laid together, for which one device is enough";
        if (s->options.check_inputs)
                return "check_inputs reads each input once, as a whole";
        if (s->options.check_overflow)
                return "check_overflow looks at all inputs of an element at once";
        if (n_devices == 0)
                return "there are too many devices";
        if (problem->is_spread)
                return "a replica has values on several GPUs";
        for (uint32_t e = 0; e < s->n_entries; e++)
                if (accumulation_dtype(s, problem->entries[0][e].dtype) == DTYPE_UNSPECIFIED)
                        return "partial sums for a mean of 64-bit integers have no type to travel in";
        for (uint32_t e = 0; devices[n_devices - 1] >= DEVICE_GPU && e < s->n_entries; e++)
                if (!gpus_have_partials(s, problem->entries[0][e].dtype))
                        return "GPUs have no kernel for partial sums of this dtype";
        return NULL;
}

const struct algorithm algorithm_hierarchical_copy = {
        .name = ALGORITHM_HIERARCHICAL_COPY,
        .order = ORDER_TREE,
        .unfit = hierarchical_unfit,
        .build = hierarchical_build,
};
