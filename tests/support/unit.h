/* One Check suite per test program, TAP on stdout. Each test runs in a process of its own with a time limit
 * and a directory of its own; a test fails when it leaves descriptors open.
 *
 * TUTTI_TEST_ONLY=name runs one test of the program (a pattern with * and ? runs several).
 * TUTTI_TEST_SCALE=4 multiplies all limits (for sanitizers and slow machines).
 * TUTTI_TEST_KEEP=1 keeps the directories. CK_FORK=no runs in one process, for a debugger. */
#pragma once

#include <check.h>
#include <stddef.h>

/* Runs the tests and returns main's exit code. `seconds`: limit of one test. */
int unit_main(const char *suite, const TTest *const *tests, size_t n_tests, double seconds);

/* main() for a file of START_TEST()s: UNIT_MAIN("rendezvous", 10, seals_when_the_last_half_is_in, ...) */
#define UNIT_MAIN(suite, seconds, ...)                                                                       \
        int main(void) {                                                                                     \
                const TTest *const tests[] = { __VA_ARGS__ };                                                \
                return unit_main((suite), tests, sizeof(tests) / sizeof(*tests), (seconds));                 \
        }

/* Prints why and ends the running test as skipped (TAP "# SKIP reason"). Only in the process of the test
 * itself. */
_Noreturn void unit_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What limits of time are to be multiplied with; 1 where nothing is said. */
double unit_scale(void);

/* An empty directory of the running test, short enough to hold a socket; TMPDIR points to it too. Removed
 * with all it holds after the test, however that ended. */
const char *unit_directory(void);

/* --- for a process that a test forks --- */

/* From here on this process is not the test itself but `name` ("rank 2"): a failed assertion is printed on
 * stderr, written into `failure` (memory shared with the test) unless a text is there, and ends the process
 * with exit code 1. */
void unit_become_child(const char *name, char *failure, size_t failure_bytes);

/* How many descriptors are open. */
int unit_count_descriptors(void);

/* Check's assertions report to the process that runs the tests, over a file that forked processes would
 * share; these sort the reports by who makes them. */
_Noreturn void unit_assert_failed(const char *file, int line, const char *expression, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
void unit_mark_point(const char *file, int line);
#ifndef UNIT_RAW_CHECK
#define _ck_assert_failed unit_assert_failed
#define _mark_point       unit_mark_point
#endif
