/* Knows whether this process is the one that made a handle, or a child that inherited it over fork. */
#pragma once

#include <stdbool.h>
#include "base/check.h"

struct fork_guard;

/* 0 or -ENOMEM. One page, which the kernel wipes in a child (MADV_WIPEONFORK). */
int fork_guard_new(struct fork_guard **ret) MUST_USE;
void fork_guard_free(struct fork_guard *g);

bool fork_guard_is_child(const struct fork_guard *g);
