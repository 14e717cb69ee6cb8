/* Output of replicas, line by line: "R2 | text".
 *
 * A line goes to its sink whole, so that lines of several replicas never mix. Lines longer than the buffer
 * are broken. Without a label bytes stay as they are, and '\r' ends a piece as '\n' does, so that a progress
 * line moves on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "run-sink.h"

#define STREAM_LINE_BYTES 8192

/* A replica's stdout or stderr. */
struct stream {
        int fd; /* our end, -1: none; owned */
        struct sink *sink;
        char label[16]; /* "R2 | " or "" */
        bool ended_by_return;
        size_t used;
        char *buf; /* [STREAM_LINE_BYTES]; NULL: none */
};

/* Takes over `fd`. 0 or -ENOMEM (fd closed). */
int stream_open(struct stream *s, int fd, struct sink *sink, const char *label);
/* Puts the last, unfinished line out; fine when it is closed already. */
void stream_close(struct stream *s);
/* Puts out the lines that `bytes` complete. */
void stream_feed(struct stream *s, const char *bytes, size_t n);
/* Whether its sink has room for what one stream_read makes. */
bool stream_may_read(const struct stream *s);
/* Reads once what is there; closes at the end of the stream, and when its sink is broken, so that the writer
 * hears of it (SIGPIPE) as it would without us. */
void stream_read(struct stream *s);
