#include "run-output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLEAR_LINE  "\r\033[K"
#define READ_BYTES  8192
#define LABEL_BYTES sizeof(((struct stream *)0)->label)
/* Each byte may end a line; a piece of one may have been here before. */
#define ROOM_BYTES (READ_BYTES * (sizeof(CLEAR_LINE) + LABEL_BYTES + 1) + STREAM_LINE_BYTES)
_Static_assert(ROOM_BYTES <= SINK_BYTES, "an empty sink has room");

int stream_open(struct stream *s, int fd, struct sink *sink, const char *label) {
        *s = (struct stream){ .fd = fd, .sink = sink };
        strncpy(s->label, label, sizeof(s->label) - 1);
        s->buf = malloc(STREAM_LINE_BYTES);
        if (s->buf)
                return 0;
        close(fd);
        s->fd = -1;
        return -ENOMEM;
}

/* One piece of a line, with its end: "\n", "\r" or none. */
static void put(struct stream *s, const char *end) {
        char line[sizeof(CLEAR_LINE) + sizeof(s->label) + STREAM_LINE_BYTES + 2];
        size_t n = 0;

        if (s->sink->is_shared_terminal)
                n = (size_t)(stpcpy(line, CLEAR_LINE) - line);
        else if (*s->label && s->sink->is_mid_line)
                line[n++] = '\n';
        n += (size_t)(stpcpy(line + n, s->label) - (line + n));
        memcpy(line + n, s->buf, s->used);
        n += s->used;
        n += (size_t)(stpcpy(line + n, end) - (line + n));
        sink_write(s->sink, line, n);
        s->used = 0;
}

void stream_close(struct stream *s) {
        if (s->used)
                put(s, *s->label ? "\n" : "");
        free(s->buf);
        s->buf = NULL;
        if (s->fd >= 0)
                close(s->fd);
        s->fd = -1;
}

/* Behind a label every '\r' ends a line of its own, but "\r\n" ends one line, and an empty one before a '\r'
 * (as in
 * "\rstep 1\rstep 2") is none. */
static void feed_labelled(struct stream *s, char c) {
        bool is_end = c == '\n' || c == '\r', is_void = !s->used && (c == '\r' || s->ended_by_return);

        if (!is_end)
                s->buf[s->used++] = c;
        if ((is_end && !is_void) || s->used == STREAM_LINE_BYTES)
                put(s, "\n");
        s->ended_by_return = c == '\r';
}

static void feed_plain(struct stream *s, char c) {
        s->buf[s->used++] = c;
        if (c == '\n' || c == '\r' || s->used == STREAM_LINE_BYTES)
                put(s, "");
}

void stream_feed(struct stream *s, const char *bytes, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (*s->label)
                        feed_labelled(s, bytes[i]);
                else
                        feed_plain(s, bytes[i]);
}

bool stream_may_read(const struct stream *s) {
        return sink_has_room(s->sink, ROOM_BYTES);
}

void stream_read(struct stream *s) {
        char bytes[READ_BYTES];
        ssize_t n = read(s->fd, bytes, sizeof(bytes));

        if (n > 0)
                stream_feed(s, bytes, (size_t)n);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || s->sink->is_broken)
                stream_close(s);
}
