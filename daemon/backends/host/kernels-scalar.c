/* The kernels for every processor of the architecture, and what the others are tested against. */
#include "backends/host/kernels-impl.h"
