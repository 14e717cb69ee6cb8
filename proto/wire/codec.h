/* Packets to messages and back; the only room that sees the generated protobuf types.
 *
 * Decoding allocates from the given arena alone (protobuf-c's unpacker included), so a packet cannot make us
 * take more than its bound, and never mallocs. Counts are bounded here; what the values mean is checked by
 * others. Not thread-safe per arena. */
#pragma once

#include <stddef.h>
#include "base/arena.h"
#include "wire/message.h"

/* An arena of this size decodes every packet that keeps the limits. */
#define CODEC_ARENA_BYTES (4u << 20)

/* tuttid's direction. 0; -EPROTO: not a message of ours; -E2BIG: beyond a bound of the protocol (arena,
 * counts). An entry with more than MAX_DIMS dimensions decodes with n_dims = MAX_DIMS + 1, a key of a wrong
 * length with has_key = false: their halves can be refused in peace. */
int codec_decode_request(
        const void *bytes, size_t n_bytes, struct arena *arena, struct request *ret) MUST_USE;

/* Encodes into `buf` of MAX_PACKET_BYTES; `scratch`, an arena of CODEC_ARENA_BYTES, is used and left as it
 * was. 0; -EMSGSIZE when it does not fit, and `buf` is untouched; -EINVAL when the packet would be empty
 * (nothing but zeros), which would look like an end of file. */
int codec_encode_reply(
        const struct reply *reply, struct arena *scratch, void *buf, size_t *ret_bytes) MUST_USE;

/* How many of the `n` rows fit into one packet beside the reply's head: at least 1 when n >= 1, at most
 * 1,024. */
uint32_t codec_rows_that_fit(const struct row *rows, uint32_t n, struct arena *scratch);

/* The client's direction, with the same bounds. Entries of a submission that fit into one packet:
 * codec_entries_that_fit, at most 512, so that nobody else waits long while one is read. */
int codec_encode_request(
        const struct request *request, struct arena *scratch, void *buf, size_t *ret_bytes) MUST_USE;
uint32_t codec_entries_that_fit(const struct entry *entries, uint32_t n, struct arena *scratch);

/* `error` points into the arena. */
int codec_decode_reply(const void *bytes, size_t n_bytes, struct arena *arena, struct reply *ret) MUST_USE;
