/* What the filters of tuttid and tuttid-gpu have in common: how one is made, and loaded for all threads. */
#pragma once

#include <seccomp.h>
#include <stdint.h>

/* `otherwise`: what becomes of a call that no rule names. `add_rules` puts the rules in: 0 or negative errno.
 * NULL, or what stands in the way, with errno where there is one. */
const char *confine_load(uint32_t otherwise, int (*add_rules)(scmp_filter_ctx filter));
