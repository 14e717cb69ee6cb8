/* tuttid gives up what running does not take: when it has started, and before it has read a byte of a client.
 *
 * It gains no privileges any more (no_new_privs), and of the system calls only those in the list of
 * confine-seccomp.c are left to it, for all its threads: files are opened for reading alone, memory becomes
 * executable never, clone makes threads alone, and nothing makes sockets, programs or processes, or looks
 * into other processes. All else fails with EPERM, as if the host had denied it; nothing is ended by it.
 *
 * Built without libseccomp, or with a sanitizer, whose run time needs more, there is no filter, which is
 * said. */
#pragma once

#include "config.h"

#define CONFINE_WHY_BYTES 128

/* Confines this process, once its threads are there. "" in `why`: it is confined; else "unconfined: ..." why
 * not, for people. Going on without is the caller's choice: a fallback (P15), not an error. */
void confine(enum confine wanted, char why[CONFINE_WHY_BYTES]);

/* --- tuttid-gpu, which loads a driver of others and so keeps much more; two steps --- */

/* Before it has threads, and before the driver: it can neither trace nor open the memory of any process that
 * is not its own child (confine-gpu.c), and execute nothing. `why` as above; with CONFINE_NO "". */
void confine_from_others(enum confine wanted, char why[CONFINE_WHY_BYTES]);
/* When the driver has started and its devices are tested, before it is given anything of a client: what
 * confine-gpu-seccomp.c lists is taken from all its threads, and fails with EPERM. */
void confine_gpu(enum confine wanted, char why[CONFINE_WHY_BYTES]);

/* Load the filters for all threads: confine-seccomp.c and confine-gpu-seccomp.c, or where those cannot be
 * confine-absent.c. NULL, or what stands in the way, with errno where the kernel has refused. */
const char *confine_load_filter(void);
const char *confine_load_gpu_filter(void);
