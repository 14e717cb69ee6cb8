/* Puts a plan into streams. Each device's steps go to the group's stream there; what must wait for other
 * devices waits for their events. Nothing here waits: only the library may ask us to come again. */
#include <errno.h>
#include <string.h>
#include "backends/cuda/flight.h"
#include "backends/cuda/nccl-cliques.h"
#include "model/rankset.h"

#define MAX_OPERANDS (2 * MAX_WORLD)

/* --- devices among each other --- */

static int record(struct cuda *c, struct flight *f, struct cuda_device *d) {
        CUstream stream = flight_stream(c, f, d);
        int r = stream ? cuda_enter(c, d) : -EIO;
        return r < 0 ? r
                     : cuda_check(c, c->driver.cuEventRecord(f->events[d->index], stream), "cuEventRecord");
}

/* `d` goes on when `other` is where its event was recorded last. */
static int wait_for(
        struct cuda *c, struct flight *f, struct cuda_device *d, const struct cuda_device *other) {
        CUstream stream = flight_stream(c, f, d);
        int r = stream ? cuda_enter(c, d) : -EIO;
        if (r < 0)
                return r;
        return cuda_check(
                c, c->driver.cuStreamWaitEvent(stream, f->events[other->index], 0), "cuStreamWaitEvent");
}

static bool uses(const struct flight *f, uint32_t i) {
        return f->devices & UINT64_C(1) << i;
}

static int others_wait_for_lead(struct cuda *c, struct flight *f) {
        if (f->devices == UINT64_C(1) << f->lead->index)
                return 0;
        int r = record(c, f, f->lead);
        for (uint32_t i = 0; r == 0 && i < c->n_devices; i++)
                if (uses(f, i) && i != f->lead->index)
                        r = wait_for(c, f, &c->devices[i], f->lead);
        return r;
}

static int lead_waits_for_others(struct cuda *c, struct flight *f) {
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < c->n_devices; i++) {
                if (!uses(f, i) || i == f->lead->index)
                        continue;
                r = record(c, f, &c->devices[i]);
                if (r == 0)
                        r = wait_for(c, f, f->lead, &c->devices[i]);
        }
        return r;
}

static int join(struct cuda *c, struct flight *f) {
        int r = lead_waits_for_others(c, f);
        return r < 0 ? r : others_wait_for_lead(c, f);
}

/* --- begin and end --- */

static int copy(struct cuda *c, struct flight *f, uint32_t device, uint64_t to_from[2], uint64_t n_bytes) {
        CUstream stream = flight_stream(c, f, &c->devices[device]);
        int r = stream ? cuda_enter(c, &c->devices[device]) : -EIO;
        if (r < 0 || n_bytes == 0)
                return r;
        return cuda_check(
                c, c->driver.cuMemcpyAsync(to_from[0], to_from[1], n_bytes, stream), "cuMemcpyAsync");
}

/* The kernels look at what the gate was when the signals had come: all see the same, whenever they run. */
static int close_gate(struct cuda *c, struct flight *f) {
        uint64_t to_from[2] = { f->host->at + offsetof(struct gate, latched),
                f->host->at + offsetof(struct gate, abort) };
        int r = copy(c, f, f->lead->index, to_from, sizeof(uint32_t));
        to_from[1] = to_from[0];
        to_from[0] = f->host->at + offsetof(struct gate, stopped);
        return r < 0 || !f->may_stop ? r : copy(c, f, f->lead->index, to_from, sizeof(uint32_t));
}

/* Indices are all looked at, so that the first bad one is the same whichever is seen first. */
uint64_t flight_abort_at(const struct flight *f, const struct step *s) {
        if (f->may_stop && s->kind != STEP_INDICES)
                return f->host->at + offsetof(struct gate, stopped);
        return f->is_waiting ? f->host->at + offsetof(struct gate, latched) : 0;
}

static int clear_results(struct cuda *c, struct flight *f, uint32_t i) {
        const struct workspace *w = &f->workspaces[i];
        CUstream stream = flight_stream(c, f, &c->devices[i]);
        int r = stream ? cuda_enter(c, &c->devices[i]) : -EIO;
        if (r < 0 || w->n_result_bytes == 0)
                return r;
        return cuda_check(c,
                c->driver.cuMemsetD8Async(w->area->at + w->n_table_bytes, 0, w->n_result_bytes, stream),
                "cuMemsetD8Async");
}

static int begin(struct cuda *c, struct flight *f) {
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < c->n_devices; i++)
                if (uses(f, i) && f->workspaces[i].area)
                        r = clear_results(c, f, i);
        if (r == 0 && f->is_waiting)
                r = flight_wait_on_stream(c, f);
        if (r == 0 && f->is_waiting)
                r = close_gate(c, f);
        return r < 0 ? r : others_wait_for_lead(c, f);
}

static int fetch_results(struct cuda *c, struct flight *f, uint32_t i) {
        const struct workspace *w = &f->workspaces[i];
        if (!w->area)
                return 0;
        uint64_t to_from[2] = { f->host->at + w->mirror + w->n_table_bytes, w->area->at + w->n_table_bytes };
        return copy(c, f, i, to_from, w->n_result_bytes);
}

static int finish(struct cuda *c, struct flight *f) {
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < c->n_devices; i++)
                if (uses(f, i))
                        r = fetch_results(c, f, i);
        if (r == 0)
                r = lead_waits_for_others(c, f);
        /* With stand-ins the outputs are not there yet. */
        if (r == 0 && !f->has_stand_ins && flight_can_wait(c, f))
                r = flight_write_done_on_stream(c, f);
        if (r == 0)
                r = record(c, f, f->lead);
        return r < 0 || f->has_stand_ins ? r : flight_record_done_events(c, f);
}

/* --- a kernel --- */

static void describe_step(struct cuda *c, struct flight *f, const struct step *s, struct cuda_step *ret) {
        const struct plan *plan = f->run->plan;
        struct cuda_device *d = flight_device(c, f, s);
        *ret = (struct cuda_step){ .work = s->kind == STEP_COPY ? CUDA_COPY : CUDA_REDUCE,
                .op = s->op,
                .rounding = s->rounding,
                .divisor = s->divisor,
                .total_weight = s->total_weight,
                .dtype = s->dtype,
                .output_dtype = s->output_dtype == DTYPE_UNSPECIFIED ? s->dtype : s->output_dtype,
                .count = s->count,
                .n_inputs = s->n_inputs,
                .n_outputs = s->n_outputs,
                .n_dims = s->n_dims,
                .shape = s->shape,
                .strides = s->n_dims ? plan_strides(plan, s, 0) : NULL,
                .n_folds = s->n_folds,
                .folds = s->n_folds ? plan_fold(plan, s, 0) : NULL,
                .n_multiprocessors = d->n_multiprocessors,
                .abort = flight_abort_at(f, s) };
}

static void point_to_results(
        struct cuda *c, const struct flight *f, const struct step *s, struct cuda_step *ret) {
        if (!f->workspaces[flight_device(c, f, s)->index].area)
                return;
        uint64_t at = flight_results_at(c, f, s);
        uint64_t sums = at + s->n_inputs * sizeof(struct cuda_count);
        ret->nonfinite = s->check_numerics ? at : 0;
        ret->sums = s->check_inputs ? sums : 0;
        ret->wrapped = s->check_overflow ? sums + s->n_inputs * sizeof(uint64_t) : 0;
}

/* The table is filled by cuda_step_prepare, in the mirror. */
static void point_to_table(
        struct cuda *c, const struct flight *f, const struct step *s, struct cuda_step *ret) {
        if (cuda_step_table_bytes(ret) > 0)
                ret->table = flight_table(c, f, s, &ret->table_at);
}

int flight_send_table(struct cuda *c, struct flight *f, const struct step *s, uint64_t n_bytes) {
        uint64_t at;
        if (n_bytes == 0)
                return 0;
        uint8_t *table = (uint8_t *)(void *)flight_table(c, f, s, &at);
        uint64_t to_from[2] = { at, f->host->at + (uint64_t)(table - f->host->host) };
        return copy(c, f, flight_device(c, f, s)->index, to_from, n_bytes);
}

static int feed_kernel(struct cuda *c, struct flight *f, const struct step *s) {
        uint64_t operands[MAX_OPERANDS];
        double weights[MAX_WORLD];
        struct cuda_step step;
        struct cuda_launch launches[CUDA_STEP_LAUNCHES];
        struct cuda_device *d = flight_device(c, f, s);
        CUstream stream = flight_stream(c, f, d);
        if (!stream || s->n_inputs > MAX_WORLD || s->n_outputs > MAX_WORLD)
                return -EINVAL;
        if (flight_locate(c, f, s, operands) < 0)
                return -EINVAL;
        describe_step(c, f, s, &step);
        step.operands = operands;
        for (uint32_t i = 0; s->has_weights && i < s->n_inputs; i++)
                weights[i] = plan_inputs(f->run->plan, s)[i].weight;
        step.weights = s->has_weights ? weights : NULL;
        point_to_results(c, f, s, &step);
        point_to_table(c, f, s, &step);
        int n = cuda_step_prepare(&step, launches);
        if (n < 0) {
                flight_fail(
                        f, STATUS_INTERNAL, "no kernel for %s of %s", op_name(s->op), dtype_name(s->dtype));
                return n;
        }
        int r = n > 0 ? flight_send_table(c, f, s, cuda_step_table_bytes(&step)) : 0;
        for (int i = 0; r == 0 && i < n; i++)
                r = cuda_launch(c, d, stream, &launches[i]);
        return r;
}

/* --- the library --- */

/* With one input it is a broadcast, with one output a reduction to there. */
static void describe_call(struct cuda *c, struct flight *f, const struct step *s, struct clique_call *ret,
        uint64_t *ret_devices) {
        uint64_t operands[2 * MAX_GPU_DEVICES];
        *ret_devices = 0;
        if (s->n_inputs + s->n_outputs > ARRAY_SIZE(operands) || flight_locate(c, f, s, operands) < 0)
                return;
        *ret = (struct clique_call){ .verb = s->n_inputs == 1 && s->n_outputs > 1   ? CLIQUE_BROADCAST
                                             : s->n_outputs == 1 && s->n_inputs > 1 ? CLIQUE_REDUCE
                                                                                    : CLIQUE_ALL_REDUCE,
                .op = s->op == OP_MEAN ? OP_SUM : s->op,
                .dtype = s->dtype,
                .count = s->count };
        for (uint32_t i = 0; i < s->n_inputs + s->n_outputs; i++) {
                uint32_t where = flight_where(f, &f->run->plan->operands[s->first_operand + i]);
                CUdeviceptr *at = i < s->n_inputs ? ret->in : ret->out;
                at[where] = operands[i];
                ret->streams[where] = flight_stream(c, f, &c->devices[where]);
                *ret_devices |= UINT64_C(1) << where;
                if (ret->verb == CLIQUE_BROADCAST ? i == 0 : i == s->n_inputs)
                        ret->root = where;
        }
}

static enum flight_fed start_library(struct cuda *c, struct flight *f, const struct step *s) {
        struct clique_call call;
        const char *why;
        uint64_t devices;
        describe_call(c, f, s, &call, &devices);
        if (!devices)
                return FED_FAILED;
        enum clique_state state = clique_find(c, devices, &why);
        if (state == CLIQUE_MAKING)
                return FED_PAUSED;
        if (state == CLIQUE_READY && clique_start(c, devices, &call) == 0) {
                f->is_in_library = true;
                return FED_PAUSED;
        }
        flight_fail(f, c->base.is_broken ? STATUS_DEVICE_LOST : STATUS_ABORTED, "%s; outputs undefined", why);
        return FED_FAILED;
}

/* A mean is the library's sum, divided once by us, where it came to. */
static int divide(struct cuda *c, struct flight *f, const struct step *s) {
        const struct plan *plan = f->run->plan;
        uint64_t operands[2 * MAX_GPU_DEVICES];
        int r = s->op == OP_MEAN ? flight_locate(c, f, s, operands) : 0;
        for (uint32_t i = s->n_inputs; s->op == OP_MEAN && r == 0 && i < s->n_inputs + s->n_outputs; i++) {
                struct cuda_device *d = &c->devices[flight_where(f, &plan->operands[s->first_operand + i])];
                const uint64_t in_place[] = { operands[i], operands[i] };
                const struct cuda_step step = { .work = CUDA_REDUCE,
                        .op = OP_MEAN,
                        .divisor = s->divisor,
                        .dtype = s->dtype,
                        .output_dtype = s->dtype,
                        .count = s->count,
                        .n_inputs = 1,
                        .n_outputs = 1,
                        .operands = in_place,
                        .n_multiprocessors = d->n_multiprocessors };
                struct cuda_launch launches[CUDA_STEP_LAUNCHES];
                CUstream stream = flight_stream(c, f, d);
                int n = stream ? cuda_step_prepare(&step, launches) : -EIO;
                r = n < 0 ? n : 0;
                for (int k = 0; r == 0 && k < n; k++)
                        r = cuda_launch(c, d, stream, &launches[k]);
        }
        return r;
}

static enum flight_fed finish_library(struct cuda *c, struct flight *f, const struct step *s) {
        struct clique_call call;
        const char *why;
        uint64_t devices;
        describe_call(c, f, s, &call, &devices);
        enum clique_state state = devices ? clique_find(c, devices, &why) : CLIQUE_FAILED;
        if (state == CLIQUE_MAKING)
                return FED_PAUSED;
        f->is_in_library = false;
        return state == CLIQUE_READY && flight_lose(c, f, divide(c, f, s)) == 0 ? FED_ALL : FED_FAILED;
}

static enum flight_fed feed_library(struct cuda *c, struct flight *f, const struct step *s) {
        enum flight_fed fed = f->is_in_library ? FED_PAUSED : start_library(c, f, s);
        return f->is_in_library ? finish_library(c, f, s) : fed;
}

/* --- all of it --- */

static enum flight_fed feed_step(struct cuda *c, struct flight *f, const struct step *s) {
        switch (s->kind) {
        case STEP_JOIN: return flight_lose(c, f, join(c, f)) < 0 ? FED_FAILED : FED_ALL;
        case STEP_COPY:
        case STEP_REDUCE: return flight_lose(c, f, feed_kernel(c, f, s)) < 0 ? FED_FAILED : FED_ALL;
        case STEP_LIBRARY: return feed_library(c, f, s);
        case STEP_SCATTER_ADD:
        case STEP_INDICES:
        case STEP_ORDER: return flight_lose(c, f, flight_feed_sparse(c, f, s)) < 0 ? FED_FAILED : FED_ALL;
        }
        return FED_FAILED;
}

enum flight_fed flight_feed(struct cuda *c, struct flight *f) {
        const struct plan *plan = f->run->plan;
        if (!f->is_begun && flight_lose(c, f, begin(c, f)) < 0)
                return FED_FAILED;
        f->is_begun = true;
        while (f->next_step < plan->n_steps) {
                enum flight_fed fed = feed_step(c, f, &plan->steps[f->next_step]);
                if (fed != FED_ALL)
                        return fed;
                f->next_step++;
        }
        return flight_lose(c, f, finish(c, f)) < 0 ? FED_FAILED : FED_ALL;
}
