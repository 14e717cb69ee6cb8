/* Programs that a test runs: tuttid, tuttictl, examples. */
#pragma once

#include <sys/types.h>

/* Where they stand: $TUTTI_DAEMON and $TUTTI_CTL, else in the directory that this test was built in. */
const char *program_tuttid(void);
const char *program_tuttictl(void);

/* Starts argv[0] (a path, no search), with these descriptors as stdout and stderr, no stdin. It is killed
 * when the test's process ends. */
pid_t program_spawn(const char *const *argv, int out_fd, int err_fd);

/* Waits. Its exit code, 128 + signal, or -1 when it has not ended after `seconds` (scaled); then it still
 * runs. */
int program_wait(pid_t pid, double seconds);

struct program {
        int code; /* as program_wait */
        char *out, *err;
};

/* Runs it to its end; a program that has not ended in time is killed and fails the test. */
void program_run(const char *const *argv, double seconds, struct program *ret);
void program_deinit(struct program *p);

/* All that stands in the file behind `fd`, terminated; the caller frees. */
char *program_read_all(int fd);
