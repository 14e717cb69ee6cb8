/* A client without libtutti: it says whatever the test wants said, right or wrong, packet by packet.
 *
 *     struct raw *r = raw_open(host_socket(h));
 *     struct raw_member m = raw_join(r, "train", 0, 1);
 *     raw_buffer(r, 1, raw_memfd(4096), 4096);
 *     raw_expect(r, raw_submit(r, &m, "a", 1, 16), STATUS_OK);
 *     raw_close(r);
 *
 * Everything here fails the test when it cannot do what it says; waits last five seconds (scaled) at most. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "wire/channel.h"
#include "wire/message.h"

struct raw {
        int fd;
        uint64_t next_request;
        struct packet packet; /* of the last reply, for its descriptors */
        struct arena arena, scratch;
        uint8_t in[MAX_PACKET_BYTES], out[MAX_PACKET_BYTES];
};

struct raw_member {
        uint64_t membership, epoch;
};

/* Connects and says nothing. */
struct raw *raw_connect(const char *socket);
/* Connects and is greeted. */
struct raw *raw_open(const char *socket);
/* NULL is fine. */
void raw_close(struct raw *r);

/* --- sending: waits while the socket is full. A peer that is gone is no failure. --- */

/* Request number 0 becomes the next one, and is returned. */
uint64_t raw_send(struct raw *r, const struct request *request);
uint64_t raw_send_fds(struct raw *r, const struct request *request, const int *fds, uint32_t n_fds);
/* false: the socket is full, or the peer gone. */
bool raw_try_send(struct raw *r, const struct request *request, const int *fds, uint32_t n_fds);
/* Any bytes, also none, with any number of descriptors below 254. */
void raw_send_bytes(struct raw *r, const void *bytes, size_t n_bytes, const int *fds, uint32_t n_fds);

/* --- receiving: good until the next call --- */

/* false: the connection has ended. */
bool raw_take(struct raw *r, struct reply *ret);
/* The answer to `request`, its last part; what else comes before is dropped. */
struct reply raw_await(struct raw *r, uint64_t request);
/* ... which must have this status. */
struct reply raw_expect(struct raw *r, uint64_t request, enum status status);
/* The last words have this status, and the connection ends. */
void raw_expect_ejected(struct raw *r, enum status status);
/* Waits until what was sent before has been handled: a turn of tuttid's loop may read connections in any
 * order. What comes before is dropped. */
void raw_settle(struct raw *r);
/* Whether nothing comes for so long (scaled). */
bool raw_is_silent(struct raw *r, double seconds);

/* --- what an honest client would say --- */

uint64_t raw_hello(struct raw *r);
struct request raw_join_request(const char *group, uint32_t rank, uint32_t world_size);
/* Waits for the group. */
struct raw_member raw_join(struct raw *r, const char *group, uint32_t rank, uint32_t world_size);
struct raw_member raw_joined(struct raw *r, uint64_t request);

/* Its pages are there. */
int raw_memfd(uint64_t n_bytes);
/* Registers inout, and takes the descriptor. */
uint64_t raw_register(struct raw *r, uint64_t buffer, int fd, uint64_t n_bytes);
/* ... and waits for the OK. */
void raw_buffer(struct raw *r, uint64_t buffer, int fd, uint64_t n_bytes);

/* All-reduce SUM of n floats, in place at the begin of a buffer. */
struct entry raw_entry(uint64_t buffer, uint64_t n);
struct request raw_submit_request(const struct raw_member *m, const char *key, const struct entry *entry);
uint64_t raw_submit(struct raw *r, const struct raw_member *m, const char *key, uint64_t buffer, uint64_t n);
uint64_t raw_barrier(struct raw *r, const struct raw_member *m, const char *key);
uint64_t raw_query(struct raw *r, enum what what, const char *job, const char *group);
struct key raw_key(const char *name);
/* A reduce of the first 16 floats of buffer 1, which is to be kept under this number; and that one again. */
uint64_t raw_submit_to_keep(struct raw *r, const struct raw_member *m, const char *key, uint64_t number);
uint64_t raw_start(struct raw *r, const struct raw_member *m, const char *key, uint64_t number);

/* --- what its user is charged --- */

uint64_t raw_used(struct raw *r, const char *quota);
/* Within two seconds (scaled) that much, and not more than two beyond: others of the user may be at work. */
void raw_expect_used(struct raw *r, const char *quota, uint64_t used);
