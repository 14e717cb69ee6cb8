/* A process that runs out of descriptors, and has some again. One at a time. */
#pragma once

#include <sys/types.h>

/* From here on `pid` has room for `n` more, and for those that it closes. */
void descriptors_run_out(pid_t pid, unsigned int n);
/* Its limit is what it was. */
void descriptors_are_back(pid_t pid);
