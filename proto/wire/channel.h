/* One packet with its descriptors over a SOCK_SEQPACKET socket. Used by both sides; knows nothing of
 * messages.
 *
 * Never blocks (MSG_DONTWAIT), never raises SIGPIPE. Descriptors arrive close-on-exec. Truncation is an error
 * of the peer, but for descriptors that find no place in this process: then the packet is whole without. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

#define MAX_PACKET_BYTES 65536
#define MAX_PACKET_FDS   16
#define MAX_RECEIVED_FDS 253 /* what the kernel lets a packet carry: SCM_MAX_FD */

struct packet {
        size_t n_bytes;
        uint32_t n_fds;
        bool is_short; /* it brought more, and this process has no descriptors for those: they are lost */
        int fds[MAX_RECEIVED_FDS]; /* owned by the packet until taken; -1 where taken */
};

/* Receives into `buf` of MAX_PACKET_BYTES. Returns 1 (a packet), 0 (end of file, also of a peer that had not
 * read everything; what it had sent comes before), -EAGAIN (nothing there), -EMSGSIZE (longer than the
 * buffer, or more than MAX_PACKET_FDS descriptors: the peer broke the protocol), or another negative errno.
 * Whatever it returns, *ret owns the descriptors that came: a stranger's can block when they are closed, so
 * that is for the caller to do. */
int channel_receive(int socket, void *buf, struct packet *ret) MUST_USE;

/* Sends one whole packet. 0, -EAGAIN (socket full: later), -EPIPE (gone), or another negative errno. The
 * descriptors stay the caller's. */
int channel_send(int socket, const void *buf, size_t n_bytes, const int *fds, uint32_t n_fds) MUST_USE;

/* Whether packets that lie unread in it bring descriptors (true when that cannot be known): closing the
 * socket closes them too. To be asked when nothing can arrive any more, after shutdown. */
bool channel_holds_fds(int socket);

/* Closes what nobody took. Only for descriptors of our own or of a peer whom we trust: closing a stranger's
 * can block. */
void packet_close_fds(struct packet *p);
