/* A scripted server in a thread, in place of tuttid: it answers what the script says, right or wrong. Packets
 * are made and read by the codec; there is one connection at a time. What serves allocates nothing (Check's
 * assertions do), so that a test may let the library's allocations fail meanwhile. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <tutti/tutti.h>
#include "unit.h"
#include "base/arena.h"
#include "wire/channel.h"
#include "wire/message.h"

struct server {
        char path[108];
        int listener, fd;
        int page_fd;
        struct page_slot *page;
        void (*script)(struct server *s);
        void *arg;
        pthread_t thread;
        struct packet packet; /* the last one, for its descriptors */
        struct arena arena, scratch;
        uint8_t in[MAX_PACKET_BYTES], out[MAX_PACKET_BYTES];
};

/* Listens at unit_directory()/tuttid.sock, and runs the script. */
struct server *server_start(void (*script)(struct server *s), void *arg);
/* Waits for the end of the script. */
void server_end(struct server *s);

/* --- in the script --- */

void server_accept(struct server *s);
/* Accepts, and answers hello with the status page. */
void server_greet(struct server *s);
/* The same on the connection that there is; the hello. */
struct request server_welcome(struct server *s);
/* Greets, and answers one join: membership 7, epoch 3, rank and world size as asked. */
void server_greet_and_join(struct server *s);

/* The next request, which must be of this type; good until the next call. Waits. */
struct request server_take(struct server *s, enum request_type type);
/* Any request; false: the client has closed. */
bool server_take_any(struct server *s, struct request *ret);

void server_reply(struct server *s, const struct reply *reply);
/* With a descriptor, which stays the caller's; -1: none. */
void server_reply_fd(struct server *s, const struct reply *reply, int fd);
void server_ok(struct server *s, uint64_t request);
/* With an error that has this field and detail. */
void server_refuse(
        struct server *s, uint64_t request, enum status status, enum field field, const char *detail);
/* A submission's end with OK. */
void server_done(struct server *s, uint64_t request, uint64_t collective);
void server_send_raw(struct server *s, const void *bytes, size_t n_bytes);
void server_hang_up(struct server *s);

/* Answers everything with OK until the client closes: submissions with their number in order, from 0. */
void server_serve(struct server *s);

/* --- in the test --- */

/* Connects to the server; fails the test if that fails. */
struct tutti *client_open(const struct server *s);
/* ... and joins group "g" of job "j" as rank `rank` of `n`. */
struct tutti_group *client_join(struct tutti *t, int32_t rank, int32_t n);
