/* Where the launcher's output goes: its own stdout or stderr, which somebody reads, or does not.
 *
 * Nothing here waits. What cannot be written at once is kept in a bounded buffer until sink_flush; who writes
 * much asks for room first. A description that others share is not made non-blocking; of a pipe or a terminal
 * a description of our own is opened. Single-threaded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define SINK_BYTES (256 * 1024)

struct sink {
        int fd;  /* given; not owned */
        int own; /* the same opened again, -1: it could not be; owned */
        bool is_socket, is_file;
        bool is_shared_terminal; /* somebody writes to this terminal directly: clear his unfinished line first
                                  */
        bool is_broken;          /* nobody reads any more */
        bool is_mid_line;
        int error;     /* of the first write whose bytes were dropped (a full disk); 0: none */
        bool has_said; /* the launcher has told of it */
        size_t used;
        char buf[SINK_BYTES];
};

void sink_init(struct sink *s, int fd);
/* What is still kept is dropped. */
void sink_deinit(struct sink *s);

/* What there is no room for is dropped. */
void sink_write(struct sink *s, const char *bytes, size_t n);
/* Whether `n` bytes can be taken. A broken one takes, and forgets, all. */
bool sink_has_room(const struct sink *s, size_t n);
/* Writes what can be written now. */
void sink_flush(struct sink *s);
/* The descriptor to wait for (POLLOUT) before the next flush; -1: nothing is kept. */
int sink_poll_fd(const struct sink *s);
