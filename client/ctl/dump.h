/* Fetching the flight recorder of the group that the operand names: for dump and for trace. */
#pragma once

#include "query.h"
#include "views.h"

struct dump_answer {
        struct tutti_answer *groups, *records;
        char host[256];
        struct dump_view view; /* of the above */
};

/* Zero-initialised before. 0, or, reported, the exit code. */
int dump_ask(struct query *q, struct dump_answer *d);
void dump_answer_deinit(struct dump_answer *d);

#define _cleanup_dump_answer_ __attribute__((cleanup(dump_answer_deinit)))
