/* Assumptions of ours (never of a client's input): checked in every build, and an abort with file, line and
 * expression when wrong. */
#pragma once

#include <stddef.h>

_Noreturn void check_failed(const char *expression, const char *file, int line);

#define CHECK(expression) ((expression) ? (void)0 : check_failed(#expression, __FILE__, __LINE__))

#define MUST_USE          __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define ARRAY_SIZE(a)     (sizeof(a) / sizeof(*(a)))
