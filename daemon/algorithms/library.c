/* The backend's own all-reduce (NCCL), over the devices whose memory the replicas bring their values in.
 *
 * Three phases. (1) Each device brings what it has into one contiguous value for each pack: replicas that
 * share the device are reduced in rank order, several values or ones with strides are laid end to end.
 * (2) One library step for each pack, from device to device. (3) Each device copies the result to the outputs
 * of its replicas; a mean is a sum until here, and divided once. Halves of a mean travel as f32, so that
 * their sum does not overflow. Where a pack is one value, every device has one replica with room for the
 * result, and nothing is to be divided, phase 2 alone is left, in place.
 *
 * The order of combination is the library's (order=library): the same for equal devices and shapes. */
#include "algorithms/algorithm.h"

#include <errno.h>
#include <string.h>
#include "algorithms/packing.h"
#include "algorithms/places.h"
#include "model/device.h"

struct fan {
        const struct problem *problem;
        struct plan *plan;
        uint32_t n_devices;
        uint32_t devices[MAX_TOPOLOGY];
        struct operand area[MAX_TOPOLOGY]; /* of each device: its scratch, where the next pack begins */
        bool is_first_phase;
};

/* A pack: neighbouring pieces of one list. */
struct pack {
        const struct pack_piece *pieces;
        uint32_t n_pieces;
        enum dtype dtype, wire, out; /* of the inputs, of what travels, of the outputs */
        uint64_t n_elements;
        bool is_direct; /* from input to output, without scratch */
        struct operand in[MAX_TOPOLOGY], result[MAX_TOPOLOGY];
};

static bool is_mean(const struct fan *f) {
        return f->problem->signature->op == OP_MEAN;
}

static uint32_t count_on(const struct fan *f, uint32_t device) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < f->problem->n_ranks; i++)
                n += problem_home(f->problem, i) == device;
        return n;
}

static bool can_be_direct(const struct fan *f, const struct pack *pack) {
        const uint32_t e = pack->pieces[0].entry;
        if (pack->n_pieces > 1 || is_mean(f) || f->problem->is_mixed || problem_has_strides(f->problem, e))
                return false;
        for (uint32_t i = 0; i < f->problem->n_ranks; i++)
                if (f->problem->homes && f->problem->homes[i] < DEVICE_GPU)
                        return false;
        for (uint32_t d = 0; d < f->n_devices; d++)
                if (count_on(f, f->devices[d]) != 1)
                        return false;
        for (uint32_t i = 0; i < f->problem->n_ranks; i++)
                if (!f->problem->entries[i][e].output.buffer || !problem_is_output(f->problem, i, e, NULL))
                        return false;
        return true;
}

static struct operand at_element(struct operand o, uint64_t element, enum dtype dtype) {
        o.offset_bytes += element * dtype_bytes(dtype);
        return o;
}

static void place_directly(const struct fan *f, struct pack *pack) {
        const struct pack_piece *piece = &pack->pieces[0];
        for (uint32_t i = 0, d; i < f->problem->n_ranks; i++) {
                for (d = 0; f->devices[d] != problem_home(f->problem, i); d++)
                        ;
                pack->in[d] = at_element(
                        problem_input(f->problem, i, piece->entry), piece->first_element, pack->dtype);
                pack->result[d] = at_element(
                        problem_output(f->problem, i, piece->entry), piece->first_element, pack->out);
        }
}

/* Where the pack lies on each device: packs lie side by side, in each phase the same. */
static int place_pack(struct fan *f, struct pack *pack) {
        struct operand taken;
        uint64_t n_bytes = pack->n_elements * dtype_bytes(pack->wire);
        pack->is_direct = can_be_direct(f, pack);
        if (pack->is_direct) {
                place_directly(f, pack);
                return 0;
        }
        for (uint32_t d = 0; d < f->n_devices; d++) {
                if (f->is_first_phase && plan_take_scratch(f->plan, f->devices[d], n_bytes, &taken) < 0)
                        return -ENOMEM;
                if (f->is_first_phase)
                        f->area[d].scratch = taken.scratch;
                pack->in[d] = pack->result[d] = f->area[d];          /* in place */
                f->area[d].offset_bytes += (n_bytes + 63) / 64 * 64; /* as plan_take_scratch aligns */
        }
        return 0;
}

/* --- steps --- */

struct leg {
        const struct pack *pack;
        const struct pack_piece *piece;
        uint64_t at; /* in the pack, in elements */
        uint32_t d;  /* which device */
};

static struct step begin_step(const struct fan *f, const struct leg *leg) {
        const struct entry *entry = &f->problem->entries[0][leg->piece->entry];
        struct step step = { .device = f->devices[leg->d],
                .entry = leg->piece->entry,
                .first_element = leg->piece->first_element,
                .count = leg->piece->n_elements };
        if (problem_has_strides(f->problem, leg->piece->entry)) {
                step.n_dims = entry->n_dims;
                memcpy(step.shape, entry->shape, sizeof(step.shape));
        }
        return step;
}

/* Phase 1, of one piece: sums of halves for a mean are left in f32. */
static int add_gathering(struct fan *f, const struct leg *leg) {
        const struct problem *problem = f->problem;
        const enum op op = problem->signature->op;
        const uint32_t e = leg->piece->entry;
        struct step step = begin_step(f, leg);
        step.n_inputs = count_on(f, f->devices[leg->d]);
        step.n_outputs = 1;
        step.dtype = leg->pack->dtype;
        step.output_dtype = leg->pack->wire;
        step.kind = step.n_inputs > 1 || step.dtype != step.output_dtype ? STEP_REDUCE : STEP_COPY;
        if (step.kind == STEP_REDUCE)
                step.op = op == OP_MEAN ? OP_SUM : op;
        struct step *added = plan_add_step(f->plan, &step);
        if (!added)
                return -ENOMEM;
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                if (problem_home(problem, i) != step.device)
                        continue;
                plan_inputs(f->plan, added)[n] =
                        at_element(problem_input(problem, i, e), leg->piece->first_element, step.dtype);
                if (step.n_dims)
                        problem_strides(&problem->entries[i][e], &problem->entries[i][e].input,
                                plan_strides(f->plan, added, n));
                n++;
        }
        plan_outputs(f->plan, added)[0] = at_element(leg->pack->in[leg->d], leg->at, leg->pack->wire);
        if (step.n_dims) {
                packed_strides(&problem->entries[0][e], plan_strides(f->plan, added, n));
                plan_simplify_step(f->plan);
        }
        return 0;
}

/* Phase 3, of one piece. */
static int add_delivery(struct fan *f, const struct leg *leg) {
        const struct problem *problem = f->problem;
        const uint32_t e = leg->piece->entry;
        struct step step = begin_step(f, leg);
        step.kind = is_mean(f) ? STEP_REDUCE : STEP_COPY;
        step.op = is_mean(f) ? OP_MEAN : OP_UNSPECIFIED;
        step.divisor = is_mean(f) ? problem->divisor : 0;
        step.dtype = leg->pack->wire;
        step.output_dtype = leg->pack->out;
        step.n_inputs = 1;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                step.n_outputs +=
                        problem_home(problem, i) == step.device && problem_is_output(problem, i, e, NULL);
        struct step *added = step.n_outputs ? plan_add_step(f->plan, &step) : NULL;
        if (!added)
                return step.n_outputs ? -ENOMEM : 0;
        plan_inputs(f->plan, added)[0] = at_element(leg->pack->result[leg->d], leg->at, leg->pack->wire);
        if (step.n_dims)
                packed_strides(&problem->entries[0][e], plan_strides(f->plan, added, 0));
        for (uint32_t i = 0, n = 0; i < problem->n_ranks; i++) {
                if (problem_home(problem, i) != step.device || !problem_is_output(problem, i, e, NULL))
                        continue;
                plan_outputs(f->plan, added)[n++] =
                        at_element(problem_output(problem, i, e), leg->piece->first_element, leg->pack->out);
                if (step.n_dims)
                        problem_strides(&problem->entries[i][e], &problem->entries[i][e].output,
                                plan_strides(f->plan, added, n));
        }
        if (step.n_dims)
                plan_simplify_step(f->plan);
        return 0;
}

static int add_library(struct fan *f, const struct pack *pack) {
        const enum op op = f->problem->signature->op;
        const struct step step = { .kind = STEP_LIBRARY,
                .device = f->devices[0],
                .op = op == OP_MEAN ? OP_SUM : op,
                .dtype = pack->wire,
                .n_inputs = f->n_devices,
                .n_outputs = f->n_devices,
                .entry = pack->pieces[0].entry,
                .first_element = pack->pieces[0].first_element,
                .count = pack->n_elements };
        struct step *added = plan_add_step(f->plan, &step);
        if (!added)
                return -ENOMEM;
        memcpy(plan_inputs(f->plan, added), pack->in, f->n_devices * sizeof(struct operand));
        memcpy(plan_outputs(f->plan, added), pack->result, f->n_devices * sizeof(struct operand));
        return 0;
}

/* --- packs --- */

static int add_legs(
        struct fan *f, const struct pack *pack, int (*add)(struct fan *f, const struct leg *leg)) {
        int r = 0;
        struct leg leg = { .pack = pack };
        for (leg.d = 0; r == 0 && leg.d < f->n_devices; leg.d++) {
                leg.at = 0;
                for (uint32_t k = 0; r == 0 && k < pack->n_pieces; k++) {
                        leg.piece = &pack->pieces[k];
                        r = add(f, &leg);
                        leg.at += leg.piece->n_elements;
                }
        }
        return r;
}

enum phase { PHASE_GATHER, PHASE_LIBRARY, PHASE_DELIVER, N_PHASES };

static int build_pack(struct fan *f, struct pack *pack, enum phase phase) {
        int r = place_pack(f, pack);
        if (r < 0)
                return r;
        if (phase == PHASE_LIBRARY)
                return add_library(f, pack);
        if (pack->is_direct)
                return 0;
        return add_legs(f, pack, phase == PHASE_GATHER ? add_gathering : add_delivery);
}

static uint32_t take_pack(const struct fan *f, const struct packs *packs, uint32_t at, struct pack *ret) {
        const struct pack_piece *first = &packs->pieces[at];
        const struct entry *entry = &f->problem->entries[0][first->entry];
        uint32_t n = 0;
        *ret = (struct pack){ .pieces = first, .dtype = entry->dtype, .wire = entry->dtype };
        if (is_mean(f))
                ret->wire = accumulation_dtype(f->problem->signature, entry->dtype);
        ret->out = entry_output_dtype(entry);
        for (; at + n < packs->n_pieces && first[n].pack == first->pack; n++)
                ret->n_elements += first[n].n_elements;
        return ret->n_pieces = n;
}

static int build_phase(struct fan *f, const struct packs *packs, enum phase phase) {
        int r = 0;
        struct pack pack;
        f->is_first_phase = phase == PHASE_GATHER;
        for (uint32_t d = 0; d < f->n_devices; d++)
                f->area[d].offset_bytes = 0;
        for (uint32_t at = 0; r == 0 && at < packs->n_pieces;) {
                at += take_pack(f, packs, at, &pack);
                r = build_pack(f, &pack, phase);
        }
        return r;
}

static int build_phases(struct fan *f, const struct packs *packs) {
        int r = 0;
        for (enum phase phase = 0; r == 0 && phase < N_PHASES; phase++) {
                /* Nothing was gathered where all packs are direct: then nothing is to be delivered. */
                bool has_more = phase == PHASE_LIBRARY ? f->plan->n_steps > 0 : f->plan->n_scratch > 0;
                if (phase != PHASE_GATHER && has_more)
                        r = plan_join(f->plan);
                if (r == 0)
                        r = build_phase(f, packs, phase);
        }
        return r;
}

static int library_build(const struct problem *problem, struct plan *plan) {
        struct fan f = { .problem = problem, .plan = plan };
        struct packs packs = { 0 };
        f.n_devices = problem_homes(problem, f.devices);
        plan->device = f.devices[0];
        int r = packs_make(&packs, problem);
        if (r == 0)
                r = build_phases(&f, &packs);
        packs_deinit(&packs);
        return r;
}

static bool library_has_dtype(enum dtype dtype) {
        return dtype_is_float(dtype) || dtype == DTYPE_U8 || dtype == DTYPE_I8 || dtype == DTYPE_U32 ||
               dtype == DTYPE_I32 || dtype == DTYPE_U64 || dtype == DTYPE_I64;
}

static const char *library_unfit(const struct problem *problem) {
        const struct signature *s = problem->signature;
        uint32_t devices[MAX_TOPOLOGY], n = problem_homes(problem, devices);
        if (!problem->topology->has_library)
                return problem->topology->why_no_library;
        if (s->kind != KIND_REDUCE && s->kind != KIND_BATCH_REDUCE)
                return "it does reductions alone";
        if (s->axes)
                return "the library does not reduce over axes";
        if (problem->n_sparse)
                return "it has no sparse values";
        if (n == 0 || devices[0] < DEVICE_GPU)
                return "all values are in host memory";
        if (problem->is_spread)
                return "a replica has values on several GPUs";
        if (s->op == OP_UNSPECIFIED || s->op > OP_MAX)
                return "the library has no such op";
        if (s->options.has_weight || s->options.check_numerics || s->options.check_overflow ||
                s->options.check_inputs)
                return "the library knows neither weights nor checks";
        for (uint32_t d = 0; d < n; d++)
                if (topology_find(problem->topology, devices[d]) == NO_PLACE)
                        return "a device is off";
        for (uint32_t e = 0; e < s->n_entries; e++) {
                enum dtype dtype = problem->entries[0][e].dtype;
                if (!library_has_dtype(dtype) || (s->op == OP_MEAN && !dtype_is_float(dtype)))
                        return "the library does not do this dtype";
                if (s->op == OP_MEAN && !gpus_have_partials(s, dtype))
                        return "GPUs have no kernel for partial sums of this dtype";
        }
        return NULL;
}

const struct algorithm algorithm_library = {
        .name = ALGORITHM_LIBRARY,
        .order = ORDER_LIBRARY,
        .unfit = library_unfit,
        .build = library_build,
};
