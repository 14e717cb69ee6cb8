/* What happens now: rates between two looks at tuttid. */
#pragma once

#include <stdint.h>
#include <jansson.h>
#include "print.h"
#include "query.h"
#include "status.h"

/* Two pairs of answers and the time between them. */
struct top_view {
        struct status_view before, now;
        uint64_t interval_ns;
};

struct top_size {
        uint32_t lines, columns;
};

/* At most so many lines; groups that do not fit are counted on the last. Columns beyond 80 are for names. */
void top_print(const struct top_view *v, const struct page *page, const struct top_size *size);
json_t *top_json(const struct top_view *v);

struct top_look {
        struct tutti_answer *status, *stats;
        uint64_t at_ns; /* CLOCK_MONOTONIC */
};

/* Frees what it held, and asks again. */
enum tutti_status top_take_look(const struct query *q, struct top_look *look);
void top_look_deinit(struct top_look *look);
struct top_view top_view_of(const struct top_look *before, const struct top_look *now);

/* Draws on the terminal until "q" or a signal. Returns the exit code. */
int top_watch(struct query *q, uint64_t interval_ns);
