/* Output of replicas, line by line: "R2 | text".
 *
 * A line is put out by one write, so that lines of several replicas never mix. Lines longer than the buffer
 * are broken. Without a label bytes stay as they are, and '\r' ends a piece as '\n' does, so that a progress
 * line moves on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define STREAM_LINE_BYTES 8192

/* Where lines go. Not owned. */
struct sink {
        int fd;
        bool is_shared_terminal; /* somebody writes to this terminal directly: clear his unfinished line first
                                  */
        bool is_broken;          /* a write failed: nobody reads any more */
        bool is_mid_line;
};

/* A replica's stdout or stderr. */
struct stream {
        int fd; /* our end, -1: none; owned */
        struct sink *sink;
        char label[16]; /* "R2 | " or "" */
        bool ended_by_return;
        size_t used;
        char *buf; /* [STREAM_LINE_BYTES]; NULL: none */
};

void sink_init(struct sink *s, int fd);
void sink_write(struct sink *s, const char *bytes, size_t n);

/* Takes over `fd`. 0 or -ENOMEM (fd closed). */
int stream_open(struct stream *s, int fd, struct sink *sink, const char *label);
/* Puts the last, unfinished line out; fine when it is closed already. */
void stream_close(struct stream *s);
/* Puts out the lines that `bytes` complete. */
void stream_feed(struct stream *s, const char *bytes, size_t n);
/* Reads once what is there; closes at the end of the stream, and when its sink is broken, so that the writer
 * hears of it (SIGPIPE) as it would without us. */
void stream_read(struct stream *s);
/* Reads and closes a stream whose writers have ended. Somebody who still holds it is not waited for. */
void stream_finish(struct stream *s);
