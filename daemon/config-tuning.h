/* The tuning file: thresholds that `tuttictl diag --tune` has measured on this host (docs/configuration.md).
 *
 *     # tutti tuning 1
 *     library-from 2 524288
 *     library-from 4 131072
 *
 * One threshold a line: its name, how many GPUs, bytes. Read with the configuration, at the start and at each
 * reload. Pure but for the file. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/check.h"
#include "model/algorithm.h"

/* Of `ret` nothing is left as it was. 0 where there is no such file: nothing has been measured. -EINVAL, or
 * why it cannot be read, with a sentence that names file and line. */
int tuning_read(struct tuning *ret, const char *path, char *why, size_t why_bytes) MUST_USE;
