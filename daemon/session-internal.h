/* What the files of a session share: session.c (its life and what it hears), session-send.c (what it says).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "base/heap.h"
#include "base/list.h"
#include "base/table.h"
#include "base/turns.h"
#include "session-page.h"
#include "session.h"

/* Packets that the socket had no room for, one behind another: a client that reads nothing makes many small
 * ones, and its end must not take as many calls of free(). */
struct outgoing {
        struct list link;
        struct charge memory;
        size_t capacity, begin, end; /* of bytes[]; what lies in [begin, end) is to be sent */
        uint8_t bytes[];
};

/* Stands before its bytes. */
struct parcel {
        uint32_t n_bytes;
        int fd; /* -1, or the one descriptor that goes with it, owned */
        struct charge descriptor;
};

struct connection {
        struct session session; /* first: what others see */
        struct sessions *sessions;
        int socket, pidfd;
        uv_poll_t io, death;
        bool has_io, has_death, is_paused, is_eof, is_closing;
        bool has_missed; /* something came while it was paused */
        int watched;     /* enum uv_poll_event: what io is started for */
        uint32_t n_open_handles;
        struct list outgoing;
        size_t queued_bytes;
        struct loan *page;
        struct alarm linger;
        struct list ready_link, all_link;
        struct charge connection, descriptors;
        UT_hash_handle hh;
};

struct sessions {
        uv_loop_t *loop;
        struct quotas *quotas;
        struct doorbell bell;
        struct connection *by_id;
        struct list all;
        struct turns ready; /* struct connection.ready_link */
        struct heap lingering;
        uint32_t n, n_ready;
        uint64_t last_id;
};

static inline struct connection *connection_of(const struct session *session) {
        return (struct connection *)(void *)(uintptr_t)session;
}

/* What the socket is watched for: reading unless paused or over, writing while something waits. A pause alone
 * changes nothing until something comes in it: most are over before. */
void connection_watch(struct connection *c);
/* Sends what waits, as far as the socket takes it. */
void connection_flush(struct connection *c);
/* One batch of what waits, unlinked: it is sent by nobody any more. */
void outgoing_free(struct outgoing *o);
