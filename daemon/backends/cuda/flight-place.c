/* Where everything of a run is: which devices, how much of our own memory, which address each operand has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/flight.h"
#include "model/span.h"

#define ALIGNMENT UINT64_C(64)

static uint64_t align(uint64_t n) {
        return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* --- operands --- */

uint32_t flight_where(const struct flight *f, const struct operand *o) {
        const struct plan *plan = f->run->plan;
        if (o->scratch)
                return plan->scratch[o->scratch - 1].device < DEVICE_GPU
                               ? ON_HOST
                               : plan->scratch[o->scratch - 1].device - DEVICE_GPU;
        return o->memory->path == PATH_MEMFD ? ON_HOST : o->memory->device - DEVICE_GPU;
}

/* The bytes that operand number `i` may have, and where they begin. */
static CUdeviceptr base_of(const struct flight *f, const struct operand *o, uint64_t *ret_bytes) {
        const struct plan *plan = f->run->plan;
        if (o->scratch) {
                *ret_bytes = plan->scratch[o->scratch - 1].n_bytes;
                return f->scratch[o->scratch - 1]->at;
        }
        *ret_bytes = o->memory->n_bytes;
        return cuda_memory_of(o->memory)->at;
}

uint64_t flight_room_bytes(const struct flight *f, const struct operand *o) {
        uint64_t limit;
        (void)base_of(f, o, &limit);
        return o->offset_bytes < limit ? limit - o->offset_bytes : 0;
}

/* Planner and leases have seen to it that the step lies in the memory; were they wrong, we would write into a
 * stranger's. */
static int locate_one(struct cuda *c, struct flight *f, const struct step *s, uint32_t i, uint64_t *ret) {
        const struct operand *o = &f->run->plan->operands[s->first_operand + i];
        const uint32_t where = flight_where(f, o), by = flight_device(c, f, s)->index;
        uint64_t limit, n_bytes;
        CUdeviceptr base = base_of(f, o, &limit);
        struct span span;
        if (!plan_operand_bytes(f->run->plan, s, i, &n_bytes) ||
                o->offset_bytes % dtype_bytes(i < s->n_inputs ? s->dtype : s->output_dtype) ||
                !span_make(o->offset_bytes, n_bytes, 1, limit, &span))
                flight_fail(f, STATUS_INTERNAL, "an operand lies outside its buffer");
        else if (i >= s->n_inputs && !o->scratch && !cuda_memory_of(o->memory)->is_writable)
                flight_fail(f, STATUS_INTERNAL, "an output lies in memory that is for reading");
        else if (where != ON_HOST && s->kind != STEP_LIBRARY &&
                 !(c->devices[by].reach & UINT64_C(1) << where))
                flight_fail(f, STATUS_INTERNAL, "GPU:%u does not reach memory of GPU:%u", by, where);
        else {
                const struct stand_in *stand_in =
                        f->has_stand_ins ? &f->stand_ins[s->first_operand + i] : NULL;
                *ret = stand_in && stand_in->area ? stand_in->area->at : base + span.offset_bytes;
                return 0;
        }
        return -EINVAL;
}

int flight_locate(struct cuda *c, struct flight *f, const struct step *s, uint64_t *ret) {
        for (uint32_t i = 0; i < s->n_inputs + s->n_outputs; i++)
                if (locate_one(c, f, s, i, &ret[i]) < 0)
                        return -EINVAL;
        return 0;
}

/* --- devices --- */

static int add_set(struct cuda *c, struct flight *f, const struct step *s) {
        uint64_t set = 0;
        for (uint32_t i = 0; i < s->n_inputs + s->n_outputs; i++) {
                uint32_t where = flight_where(f, &f->run->plan->operands[s->first_operand + i]);
                if (where == ON_HOST || !cuda_device_of(c, DEVICE_GPU + where)) {
                        flight_fail(f, STATUS_INTERNAL, "the library works on memory of GPUs alone");
                        return -EINVAL;
                }
                set |= UINT64_C(1) << where;
        }
        f->devices |= set;
        for (uint32_t i = 0; i < f->n_sets; i++)
                if (f->sets[i] == set)
                        return 0;
        if (f->n_sets == MAX_SETS) {
                flight_fail(f, STATUS_INTERNAL, "a plan for more than %d sets of devices", MAX_SETS);
                return -EINVAL;
        }
        f->sets[f->n_sets++] = set;
        return 0;
}

static int find_lead(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        f->lead = cuda_device_of(c, plan->device);
        for (uint32_t i = 0; !f->lead && i < plan->n_steps; i++)
                f->lead = cuda_device_of(c, plan->steps[i].device);
        if (f->lead) {
                f->devices = UINT64_C(1) << f->lead->index;
                return 0;
        }
        flight_fail(f, STATUS_DEVICE_LOST, "the GPU of this collective is not there, or off");
        return -ENODEV;
}

static int find_devices(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        int r = find_lead(c, f);
        for (uint32_t i = 0; r == 0 && i < plan->n_steps; i++) {
                const struct step *s = &plan->steps[i];
                if (s->kind == STEP_LIBRARY)
                        r = add_set(c, f, s);
                else if (s->kind != STEP_JOIN && s->device >= DEVICE_GPU && !cuda_device_of(c, s->device)) {
                        flight_fail(
                                f, STATUS_DEVICE_LOST, "GPU:%u is not there, or off", s->device - DEVICE_GPU);
                        r = -ENODEV;
                } else if (s->kind != STEP_JOIN)
                        f->devices |= UINT64_C(1) << flight_device(c, f, s)->index;
        }
        return r;
}

/* --- our own memory --- */

static uint64_t table_bytes(const struct step *s) {
        static const double some = 1;
        if (flight_is_sparse(s))
                return flight_sparse_table_bytes(s);
        const struct cuda_step step = { .work = s->kind == STEP_COPY ? CUDA_COPY : CUDA_REDUCE,
                .n_inputs = s->n_inputs,
                .n_outputs = s->n_outputs,
                .n_dims = s->n_dims,
                .n_folds = s->n_folds,
                .weights = s->has_weights ? &some : NULL };
        return s->kind != STEP_LIBRARY ? cuda_step_table_bytes(&step) : 0;
}

/* What the checks of a step write: counts of each input, sums of each input, one count. */
static uint64_t result_bytes(const struct step *s) {
        if (flight_is_sparse(s))
                return flight_sparse_result_bytes(s);
        if (!s->check_numerics && !s->check_inputs && !s->check_overflow)
                return 0;
        return s->n_inputs * (sizeof(struct cuda_count) + sizeof(uint64_t)) + sizeof(struct cuda_count);
}

static void lay_out(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        for (uint32_t i = 0; i < plan->n_steps; i++) {
                const struct step *s = &plan->steps[i];
                if (s->kind == STEP_JOIN)
                        continue;
                f->may_stop |= s->kind == STEP_INDICES;
                struct workspace *w = &f->workspaces[flight_device(c, f, s)->index];
                f->places[i] = (struct step_place){ .table = w->n_table_bytes, .results = w->n_result_bytes };
                w->n_table_bytes += align(table_bytes(s));
                w->n_result_bytes += align(result_bytes(s));
        }
}

uint64_t *flight_table(struct cuda *c, const struct flight *f, const struct step *s, uint64_t *ret_at) {
        const struct workspace *w = &f->workspaces[flight_device(c, f, s)->index];
        uint64_t offset = f->places[s - f->run->plan->steps].table;
        *ret_at = w->area->at + offset;
        return (uint64_t *)(void *)(f->host->host + w->mirror + offset);
}

uint64_t flight_results_at(struct cuda *c, const struct flight *f, const struct step *s) {
        const struct workspace *w = &f->workspaces[flight_device(c, f, s)->index];
        return w->area->at + w->n_table_bytes + f->places[s - f->run->plan->steps].results;
}

static bool take_workspaces(struct cuda *c, struct flight *f) {
        uint64_t n_host = sizeof(struct gate);
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct workspace *w = &f->workspaces[i];
                w->mirror = n_host;
                n_host += w->n_table_bytes + w->n_result_bytes;
                if (w->n_table_bytes + w->n_result_bytes == 0)
                        continue;
                w->area = cuda_area_take(c, i, w->n_table_bytes + w->n_result_bytes);
                if (!w->area)
                        return false;
        }
        f->host = cuda_area_take(c, ON_HOST, n_host);
        if (f->host)
                memset(f->host->host, 0, n_host);
        return f->host != NULL;
}

static bool take_scratch(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        for (uint32_t i = 0; i < plan->n_scratch; i++) {
                const struct scratch *s = &plan->scratch[i];
                if (s->device >= DEVICE_GPU && !cuda_device_of(c, s->device))
                        return false;
                f->scratch[i] = cuda_area_take(
                        c, s->device < DEVICE_GPU ? ON_HOST : s->device - DEVICE_GPU, s->n_bytes);
                if (!f->scratch[i])
                        return false;
        }
        return true;
}

/* Where the run tells how many rows an output has, as many as come in. */
static bool stand_in_bytes(const struct plan *plan, const struct step *s, uint32_t i, uint64_t *ret) {
        return plan_is_open(s, i) ? plan_rows_bytes(plan, s, i, plan_most_rows(s), ret)
                                  : plan_operand_bytes(plan, s, i, ret);
}

static bool take_stand_in(struct cuda *c, struct flight *f, const struct step *s, uint32_t i) {
        const struct operand *o = &f->run->plan->operands[s->first_operand + i];
        struct stand_in *stand_in = &f->stand_ins[s->first_operand + i];
        if (o->scratch || o->memory->path != PATH_MEMFD || cuda_memory_of(o->memory)->is_pinned ||
                s->count == 0)
                return true;
        if (!stand_in_bytes(f->run->plan, s, i, &stand_in->n_bytes))
                return false;
        stand_in->area = cuda_area_take(c, ON_HOST, stand_in->n_bytes);
        f->has_stand_ins = true;
        return stand_in->area != NULL;
}

static bool take_stand_ins(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        for (uint32_t i = 0; i < plan->n_steps; i++)
                for (uint32_t k = 0; k < plan->steps[i].n_inputs + plan->steps[i].n_outputs; k++)
                        if (!take_stand_in(c, f, &plan->steps[i], k))
                                return false;
        return true;
}

static bool take_memory(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        f->scratch = calloc(plan->n_scratch + 1, sizeof(struct area *));
        f->places = calloc(plan->n_steps + 1, sizeof(*f->places));
        f->stand_ins = calloc(plan->n_operands + 1, sizeof(*f->stand_ins));
        if (!f->scratch || !f->places || !f->stand_ins)
                return false;
        lay_out(c, f);
        return take_workspaces(c, f) && take_scratch(c, f) && take_stand_ins(c, f);
}

static bool take_events(struct cuda *c, struct flight *f) {
        for (uint32_t i = 0; i < c->n_devices; i++) {
                if (!(f->devices & UINT64_C(1) << i))
                        continue;
                f->events[i] = cuda_event_take(c, &c->devices[i]);
                if (!f->events[i])
                        return false;
        }
        return true;
}

int flight_prepare(struct cuda *c, struct flight *f) {
        int r = find_devices(c, f);
        if (r < 0)
                return r;
        if (take_memory(c, f) && take_events(c, f))
                return 0;
        flight_fail(f, c->base.is_broken ? STATUS_DEVICE_LOST : STATUS_INTERNAL, "%s",
                c->base.is_broken ? c->base.broken_why : "the GPU has no memory left for this collective");
        return -ENOMEM;
}

void flight_give_back(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        for (uint32_t i = 0; i < c->n_devices; i++) {
                cuda_area_give(c, f->workspaces[i].area);
                if (f->events[i])
                        cuda_event_give(c, &c->devices[i], f->events[i]);
        }
        for (uint32_t i = 0; f->scratch && i < plan->n_scratch; i++)
                cuda_area_give(c, f->scratch[i]);
        for (uint32_t i = 0; f->stand_ins && i < plan->n_operands; i++)
                cuda_area_give(c, f->stand_ins[i].area);
        cuda_area_give(c, f->host);
        cuda_lane_give(c, f->lane);
        free(f->scratch);
        free(f->places);
        free(f->stand_ins);
}

/* --- results --- */

static void note_numerics(struct flight *f, const struct step *s, const struct cuda_count *counts) {
        const struct operand *inputs = plan_inputs(f->run->plan, s);
        for (uint32_t i = 0; i < s->n_inputs; i++) {
                const struct findings found = { .numerics = { .n = counts[i].n,
                                                        .rank = inputs[i].rank,
                                                        .entry = s->entry,
                                                        .index = cuda_count_first(&counts[i]) } };
                if (counts[i].n > 0)
                        findings_add(&f->run->found, &found);
        }
}

static void note_overflow(struct flight *f, const struct step *s, const struct cuda_count *count) {
        const struct findings found = {
                .overflow = { .n = count->n, .entry = s->entry, .index = cuda_count_first(count) }
        };
        if (count->n > 0)
                findings_add(&f->run->found, &found);
}

void flight_read_results(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        for (uint32_t i = 0; i < plan->n_steps; i++) {
                const struct step *s = &plan->steps[i];
                if (s->kind == STEP_JOIN || result_bytes(s) == 0)
                        continue;
                const struct workspace *w = &f->workspaces[flight_device(c, f, s)->index];
                const uint8_t *at = f->host->host + w->mirror + w->n_table_bytes + f->places[i].results;
                if (flight_is_sparse(s)) {
                        flight_read_sparse(f, s, at);
                        continue;
                }
                const struct cuda_count *counts = (const struct cuda_count *)(const void *)at;
                const uint64_t *sums = (const uint64_t *)(const void *)(counts + s->n_inputs);
                if (s->check_numerics)
                        note_numerics(f, s, counts);
                for (uint32_t k = 0; s->check_inputs && plan->sums && k < s->n_inputs; k++)
                        plan->sums[s->first_operand + k] += sums[k];
                if (s->check_overflow)
                        note_overflow(f, s, (const struct cuda_count *)(const void *)(sums + s->n_inputs));
        }
        if (findings_forbid(&f->run->found))
                flight_fail(f, STATUS_INVALID, "nothing was written");
}
