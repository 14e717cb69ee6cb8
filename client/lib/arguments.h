/* Argument structs of callers that were compiled against an older or a newer tutti.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Copies a caller's struct of `given_bytes` (its struct_size) into ours of `known_bytes`. false: it is
 * shorter than the first version's, or sets what only a newer library knows. */
bool arguments_copy(void *known, size_t known_bytes, const void *given, size_t given_bytes);
