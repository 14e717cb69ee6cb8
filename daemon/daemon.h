/* The daemon as a whole: builds every part, owns the loop and its one timer, tears down in reverse. */
#pragma once

#include "config.h"

/* SIGHUP reads `source` again (NULL: nothing to read) and takes what may change while running; a source that
 * is wrong changes nothing. Runs until SIGTERM, SIGINT, or (private) the end of stdin. Returns main's exit
 * code: 0 ended as asked; 1 could not go on; 2 could not start (said on stderr). */
int daemon_run(const struct config *config, const struct config_source *source);
