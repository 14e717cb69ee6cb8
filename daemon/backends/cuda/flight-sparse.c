/* Steps of sparse values. What ends a run before anything is written is found on the device, long after the
 * host has put everything into its streams: so the kernels set a word at which all that writes looks, and the
 * host reads what was found when the run is through. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include "backends/cuda/flight.h"
#include "backends/cuda/kernels-sparse.h"
#include "model/rankset.h"

/* Inputs: rows of each rank, and what is sorted; outputs of each rank. */
#define MAX_OPERANDS (2 * MAX_WORLD + SCATTER_ORDER)

bool flight_is_sparse(const struct step *s) {
        return s->kind == STEP_INDICES || s->kind == STEP_ORDER || s->kind == STEP_SCATTER_ADD;
}

static bool is_stage(const struct step *s, enum order_stage stage) {
        return s->kind == STEP_ORDER && s->stage == stage;
}

uint64_t flight_sparse_table_bytes(const struct step *s) {
        if (s->kind == STEP_SCATTER_ADD)
                return cuda_join_table_bytes(s->n_inputs - SCATTER_ORDER, s->n_outputs);
        return is_stage(s, ORDER_WRITE) ? s->n_outputs * sizeof(uint64_t) : 0;
}

uint64_t flight_sparse_result_bytes(const struct step *s) {
        if (s->kind == STEP_INDICES)
                return sizeof(struct cuda_bad_index);
        return is_stage(s, ORDER_NUMBER) ? sizeof(uint64_t) : 0;
}

static uint64_t stop_at(const struct flight *f) {
        return f->host->at + offsetof(struct gate, stopped);
}

static int launch_all(
        struct cuda *c, struct flight *f, const struct step *s, struct cuda_launch *launches, int n) {
        struct cuda_device *d = flight_device(c, f, s);
        CUstream stream = flight_stream(c, f, d);
        int r = n < 0 ? n : stream ? 0 : -EIO;
        for (int i = 0; r == 0 && i < n; i++)
                r = cuda_launch(c, d, stream, &launches[i]);
        return r;
}

/* Rows that lie in the memory of every output, whatever the run finds. */
static uint64_t rows_that_fit(const struct flight *f, const struct step *s) {
        const struct operand *outputs = plan_outputs(f->run->plan, s);
        uint64_t least = UINT64_MAX, size = dtype_bytes(s->output_dtype);
        for (uint32_t i = 0; i < s->n_outputs; i++) {
                uint64_t width = s->kind == STEP_SCATTER_ADD ? s->row_elements : 1,
                         stride = s->kind == STEP_SCATTER_ADD ? outputs[i].row_stride : 1,
                         n = flight_room_bytes(f, &outputs[i]) / size;
                uint64_t rows = n < width ? 0 : stride ? (n - width) / stride + 1 : UINT64_MAX;
                least = rows < least ? rows : least;
        }
        return least;
}

/* --- feeding --- */

static int feed_indices(struct cuda *c, struct flight *f, const struct step *s) {
        struct cuda_launch launches[CUDA_INDICES_LAUNCHES];
        uint64_t operands[2];
        if (flight_locate(c, f, s, operands) < 0)
                return -EINVAL;
        const struct cuda_indices indices = { .dtype = s->dtype,
                .from = operands[0],
                .to = operands[1],
                .n = s->count,
                .bound = s->bound,
                .found = flight_results_at(c, f, s),
                .stop = stop_at(f),
                .abort = flight_abort_at(f, s),
                .n_multiprocessors = flight_device(c, f, s)->n_multiprocessors };
        return launch_all(c, f, s, launches, cuda_indices_prepare(&indices, launches));
}

/* To each output. */
static int feed_write(struct cuda *c, struct flight *f, const struct step *s, struct cuda_order *order,
        const uint64_t *operands) {
        uint64_t n_bytes = flight_sparse_table_bytes(s);
        uint64_t *table = flight_table(c, f, s, &order->table);
        order->dtype = s->output_dtype;
        order->numbers = operands[1];
        order->room = rows_that_fit(f, s);
        order->n_table = s->n_outputs;
        memcpy(table, operands + s->n_inputs, n_bytes);
        return flight_send_table(c, f, s, n_bytes);
}

static int feed_order(struct cuda *c, struct flight *f, const struct step *s) {
        struct cuda_launch launch;
        uint64_t operands[MAX_OPERANDS];
        if (s->n_outputs > MAX_WORLD || flight_locate(c, f, s, operands) < 0)
                return -EINVAL;
        struct cuda_order order = { .stage = s->stage,
                .dtype = s->dtype,
                .from = operands[0],
                .to = operands[1],
                .n = s->count,
                .run = s->run,
                .abort = flight_abort_at(f, s),
                .n_multiprocessors = flight_device(c, f, s)->n_multiprocessors };
        int r = 0;
        if (s->stage == ORDER_COUNT || s->stage == ORDER_NUMBER)
                order.numbers = operands[1];
        if (s->stage == ORDER_NUMBER) {
                order.n = s->bound;
                order.room = s->room;
                order.found = flight_results_at(c, f, s);
                order.stop = stop_at(f);
        }
        if (s->stage == ORDER_WRITE)
                r = feed_write(c, f, s, &order, operands);
        return r < 0 ? r
                     : launch_all(c, f, s, &launch, cuda_order_prepare(&order, &launch) < 0 ? -EINVAL : 1);
}

static int feed_rows(struct cuda *c, struct flight *f, const struct step *s) {
        const struct operand *inputs = plan_inputs(f->run->plan, s), *outputs = plan_outputs(f->run->plan, s);
        const uint32_t n_halves = s->n_inputs - SCATTER_ORDER;
        struct cuda_launch launches[CUDA_JOIN_LAUNCHES];
        uint64_t operands[MAX_OPERANDS], strides[MAX_WORLD];
        struct cuda_half_rows halves[MAX_WORLD];
        if (n_halves > MAX_WORLD || s->n_outputs > MAX_WORLD || flight_locate(c, f, s, operands) < 0)
                return -EINVAL;
        for (uint32_t i = 0; i < n_halves; i++)
                halves[i] = (struct cuda_half_rows){ .address = operands[i],
                        .first_row = inputs[i].first_row,
                        .stride_bytes = inputs[i].row_stride * dtype_bytes(s->dtype) };
        for (uint32_t i = 0; i < s->n_outputs; i++)
                strides[i] = outputs[i].row_stride;
        struct cuda_join join = { .op = s->op,
                .dtype = s->dtype,
                .divisor = s->divisor,
                .pairs = operands[n_halves],
                .numbers = operands[n_halves + 1],
                .places = operands[n_halves + 2],
                .n_pairs = s->count / s->row_elements,
                .row_elements = s->row_elements,
                .room = rows_that_fit(f, s),
                .halves = halves,
                .n_halves = n_halves,
                .n_outputs = s->n_outputs,
                .outputs = operands + s->n_inputs,
                .strides = strides,
                .abort = flight_abort_at(f, s),
                .n_multiprocessors = flight_device(c, f, s)->n_multiprocessors };
        join.table = flight_table(c, f, s, &join.table_at);
        int n = cuda_join_prepare(&join, launches);
        int r = n < 0 ? n : flight_send_table(c, f, s, flight_sparse_table_bytes(s));
        return r < 0 ? r : launch_all(c, f, s, launches, n);
}

int flight_feed_sparse(struct cuda *c, struct flight *f, const struct step *s) {
        if (s->count == 0)
                return 0;
        if (s->kind == STEP_INDICES)
                return feed_indices(c, f, s);
        return s->kind == STEP_ORDER ? feed_order(c, f, s) : feed_rows(c, f, s);
}

/* --- what was found --- */

static void note_index(struct flight *f, const struct step *s, const struct cuda_bad_index *found) {
        const struct bad_index bad = { .n = found->count.n,
                .rank = plan_inputs(f->run->plan, s)[0].rank,
                .entry = s->entry,
                .position = cuda_count_first(&found->count),
                .value = found->value,
                .bound = s->bound };
        if (bad.n > 0)
                findings_add(&f->run->found, &(struct findings){ .bad_index = bad });
}

static void note_length(struct flight *f, const struct step *s, uint64_t length) {
        const struct plan *plan = f->run->plan;
        const struct short_output is_short = {
                .needed = length, .room = s->room, .rank = s->room_rank, .entry = s->entry
        };
        plan_extents(plan, s->entry)[plan->extents_of_entry - 1] = length;
        if (length > s->room)
                findings_add(&f->run->found, &(struct findings){ .short_output = is_short });
}

void flight_read_sparse(struct flight *f, const struct step *s, const void *results) {
        if (s->kind == STEP_INDICES)
                note_index(f, s, results);
        else if (is_stage(s, ORDER_NUMBER))
                note_length(f, s, *(const uint64_t *)results);
}
