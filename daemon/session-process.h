/* What /proc says of the process behind a session. Loop thread; no state. */
#pragma once

#include <stdint.h>

/* The pid of a pidfd, from fdinfo; 0 when it is none. */
uint32_t process_of_pidfd(int fd);

/* The letter behind the name in /proc/PID/stat; the name may hold anything, so the last parenthesis counts.
 */
char process_state_letter(uint32_t pid);
