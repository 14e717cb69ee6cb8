/* Memory without a name that two processes share (memfd_create(2)). */
#pragma once

#include <stdbool.h>

/* One that may be sealed and never executed (kernels before 6.3 do not know the latter: there it is left
 * out). `flags` of memfd_create beside those. The descriptor, or negative errno. */
int memfd_new(const char *name, unsigned int flags);

/* The same memory, opened once more: for reading (O_RDONLY) or both (O_RDWR). Unlike the descriptor that
 * memfd_new returned it counts for memfd_is_had. Who has a lease of it is not waited for. The descriptor, or
 * negative errno. */
int memfd_open_anew(int fd, int access);

/* Whether anybody else has it: a descriptor that was opened anew, or a mapping made of one. `fd` is the one
 * of memfd_new, and there is no other copy of it. Where it cannot be told now (no descriptor left) somebody
 * has; where it can never be told (no leases) nobody has. */
bool memfd_is_had(int fd);
