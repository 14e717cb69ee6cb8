/* Which algorithm does a collective: a table of (collective, size, where the values are, what the devices can
 * do), and who may say otherwise. Private to the planner; pure. */
#pragma once

#include "algorithms/algorithm.h"
#include "model/error.h"
#include "planner.h"

struct choice {
        const struct algorithm *algorithm;
        const char *why;            /* the end of a sentence */
        char fallback[192];         /* a wish that is not met, and why; "": none */
        struct signature signature; /* as it is carried out: with what the choice adds to the options */
};

/* Of a problem that has a topology. In this order: the options' algorithm, which is a demand (UNSUPPORTED,
 * field OPTIONS, where it cannot be met); `reproducible`, which leaves order=rank alone; the options'
 * implementation and the configuration's algorithm, which are wishes (where they cannot be met the choice
 * goes on and says so; so does a demand of a hint that it leaves no room for); the table. Kinds other than
 * reductions go by the table. UNSUPPORTED, field KIND: no algorithm does it. INVALID, field OPTIONS: the
 * device that is to reduce is not there. */
enum status planner_choose(const struct plan_rules *rules, const struct problem *problem, struct choice *ret,
        struct error *err) MUST_USE;

/* Into a plan that was reset. */
void choice_note(const struct choice *choice, struct plan *plan);
