#include "algorithms/places.h"

#include <string.h>
#include "model/device.h"

uint32_t problem_index_of_rank(const struct problem *problem, uint32_t rank) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem->ranks[i] == rank)
                        return i;
        return NO_INDEX;
}

uint32_t problem_home(const struct problem *problem, uint32_t i) {
        if (problem->homes && problem->homes[i] < DEVICE_GPU && problem->device >= DEVICE_GPU)
                return problem->device;
        if (problem->homes)
                return problem->homes[i];
        return (uint32_t)((uint64_t)i * problem->n_devices / problem->n_ranks);
}

uint32_t problem_homes(const struct problem *problem, uint32_t devices[MAX_TOPOLOGY]) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                uint32_t home = problem_home(problem, i), at = 0;
                while (at < n && devices[at] < home)
                        at++;
                if (at < n && devices[at] == home)
                        continue;
                if (n == MAX_TOPOLOGY)
                        return 0;
                memmove(&devices[at + 1], &devices[at], (n++ - at) * sizeof(*devices));
                devices[at] = home;
        }
        return n;
}

uint32_t problem_worker(const struct problem *problem) {
        const struct options *options = &problem->signature->options;
        if (problem->is_bound)
                return problem->device;
        if (options->has_place)
                return options->place;
        if (problem->homes && kind_has_root(problem->signature->kind)) {
                uint32_t root = problem_index_of_rank(problem, problem->signature->root);
                return root == NO_INDEX ? problem->device : problem_home(problem, root);
        }
        return problem->device;
}

bool problem_is_far(const struct problem *problem, uint32_t device, uint32_t i) {
        return problem->homes && !topology_reaches(problem->topology, device, problem->homes[i]);
}

bool problem_is_near(const struct problem *problem, uint32_t device) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem_is_far(problem, device, i))
                        return false;
        return true;
}

bool problem_has_strides(const struct problem *problem, uint32_t e) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem->entries[i][e].input.n_strides || problem->entries[i][e].output.n_strides)
                        return true;
        return false;
}

static struct operand operand_at(const struct place *place, uint32_t rank) {
        return (struct operand){
                .memory = place->memory,
                .offset_bytes = place->span.offset_bytes,
                .buffer = place->buffer,
                .rank = rank,
        };
}

struct operand problem_input(const struct problem *problem, uint32_t i, uint32_t e) {
        const struct entry *entry = &problem->entries[i][e];
        struct operand o = operand_at(&entry->input, problem->ranks[i]);
        o.checksum = entry->input_checksum;
        if (problem->signature->options.has_weight)
                o.weight = problem->weights[i];
        return o;
}

struct operand problem_operand(const struct problem *problem, uint32_t i, const struct place *place) {
        struct operand o = operand_at(place, problem->ranks[i]);
        if (place->object) {
                o.result = place->result;
                o.offset_bytes += problem->slot_offset_bytes;
        }
        return o;
}

struct operand problem_output(const struct problem *problem, uint32_t i, uint32_t e) {
        return problem_operand(problem, i, &problem->entries[i][e].output);
}

static bool is_same_place(const struct place *a, const struct place *b) {
        return a->file == b->file && a->span.offset_bytes == b->span.offset_bytes;
}

bool problem_is_output(const struct problem *problem, uint32_t i, uint32_t e, const struct place *source) {
        const struct entry *entry = &problem->entries[i][e];
        if (entry->output.object)
                return i == 0;
        return entry->output.buffer && entry_has_destination(entry, problem->ranks[i]) &&
               !(source && is_same_place(source, &entry->output));
}

bool problem_has_output(const struct problem *problem, uint32_t e) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem_is_output(problem, i, e, NULL))
                        return true;
        return false;
}

void problem_strides(const struct entry *entry, const struct place *place, uint64_t *ret) {
        struct view view;
        entry_view(entry, place, &view);
        memcpy(ret, view.strides, view.n_dims * sizeof(*ret));
}

void packed_strides(const struct entry *entry, uint64_t *ret) {
        uint64_t run = 1;
        for (uint32_t d = entry->n_dims; d-- > 0; run *= entry->shape[d])
                ret[d] = run;
}

enum dtype accumulation_dtype(const struct signature *s, enum dtype dtype) {
        bool is_half = dtype == DTYPE_F16 || dtype == DTYPE_BF16;
        if (s->options.has_weight)
                return DTYPE_F64;
        if (s->op == OP_MEAN && dtype_is_integer(dtype))
                return dtype_bytes(dtype) < 8 ? DTYPE_I64 : DTYPE_UNSPECIFIED;
        if (is_half && (s->op == OP_SUM || s->op == OP_MEAN || s->op == OP_PROD))
                return DTYPE_F32;
        return dtype;
}

bool gpus_have_partials(const struct signature *s, enum dtype dtype) {
        enum dtype acc = accumulation_dtype(s, dtype);
        return acc == dtype || acc == DTYPE_F32;
}
