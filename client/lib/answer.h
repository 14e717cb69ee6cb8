/* Collects the rows of a query's reply, part by part, into memory of its own. */
#pragma once

#include <stdbool.h>
#include <tutti/admin.h>
#include "base/check.h"
#include "wire/message.h"

struct answer;

/* NULL when there is no memory. */
struct answer *answer_new(void);
void answer_free(struct answer *a);

/* Copies them, with all they point to. Where memory ends, that is remembered and nothing more is taken. */
void answer_add(struct answer *a, const struct row *rows, uint32_t n_rows);

/* What tutti/admin.h shows; NULL when memory did not suffice. Lives as long as the answer. */
struct tutti_answer *answer_publish(struct answer *a) MUST_USE;
