/* The floating-point state that the numbers need: round to nearest, subnormals kept, no traps. Libraries
 * built with -ffast-math change it when they are loaded. host-float-x86.c or host-float-any.c. */
#pragma once

#include <fenv.h>

struct float_state {
        fenv_t other; /* what fenv.h saves, where that is what we use */
        unsigned int control;
        int is_changed;
};

/* Makes it so, and says what to give to float_state_leave. */
void float_state_enter(struct float_state *ret_before);
void float_state_leave(const struct float_state *before);
