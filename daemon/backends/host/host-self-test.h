/* What tuttid tries on itself before it says that it is ready. Private to the host backend and its tests. */
#pragma once

#include "backends/host/kernels.h"

/* Whether `reduce` gives the known answers with this instruction set. NULL, or the name of the first rule
 * that does not hold: "f16 MEAN". */
const char *self_test_numbers(enum isa isa, void (*reduce)(enum isa isa, const struct kernel_call *call));
