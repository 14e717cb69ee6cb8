/* Completion for shells, written from the table of commands: their names, and the options that their usage
 * names, so that it cannot go astray. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "ctl.h"

enum shell { SHELL_BASH, SHELL_ZSH };

void completion_write(const struct command *const *commands, size_t n, enum shell shell, FILE *out);

/* One option of a usage line. */
struct usage_option {
        char name[32];   /* "--last" */
        char values[64]; /* "N"; "" when it takes none; "auto|all|none" */
};

/* The next option of `usage`; *cursor begins with `usage`. false: no more. */
bool usage_next_option(const char **cursor, struct usage_option *ret);
