/* The journal's own protocol, of which systemd promises that it stays
 * (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/): a datagram of lines FIELD=value. Spoken here, as libsystemd
 * makes its socket when it is first needed, which may be after this process gave up making any (adr/0006). */
#pragma once

#include <stdbool.h>
#include "base/text.h"

/* Whether the journal reads this process's stderr. */
bool log_journal_reads_stderr(void);

/* A socket to the journal of this host; negative errno. */
int log_journal_open(void) MUST_USE;

/* One record of complete lines. Never blocks: 0 or negative errno, -EAGAIN when the journal is behind. */
int log_journal_send(int fd, const struct text *record) MUST_USE;
