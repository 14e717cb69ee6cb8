/* One packet with its descriptors over a SOCK_SEQPACKET socket. Used by both sides; knows nothing of
 * messages.
 *
 * Never blocks (MSG_DONTWAIT), never raises SIGPIPE. Descriptors arrive close-on-exec. Truncation is an error
 * of the peer, and what arrived with it is closed. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

#define MAX_PACKET_BYTES 65536
#define MAX_PACKET_FDS   16

struct packet {
        size_t n_bytes;
        uint32_t n_fds;
        int fds[MAX_PACKET_FDS]; /* owned by the packet until taken; -1 where taken */
};

/* Receives into `buf` of MAX_PACKET_BYTES. Returns 1 (a packet), 0 (end of file; also when
 * the peer had not read everything: what it had sent comes before), -EAGAIN (nothing there),
 * -EMSGSIZE (longer than the buffer, or descriptors cut: the peer broke the protocol; all is closed), or
 * another negative errno. */
int channel_receive(int socket, void *buf, struct packet *ret) MUST_USE;

/* Sends one whole packet. 0, -EAGAIN (socket full: later), -EPIPE (gone), or another negative errno. The
 * descriptors stay the caller's. */
int channel_send(int socket, const void *buf, size_t n_bytes, const int *fds, uint32_t n_fds) MUST_USE;

/* Closes what nobody took. Only for descriptors of our own or of a peer whom we trust: closing a stranger's
 * can block. */
void packet_close_fds(struct packet *p);
