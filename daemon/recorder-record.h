/* One recorded collective, or one member of an ended group, as bytes: numbers of variable length (seven bits
 * a byte, low ones first), so that the record of a small group takes some 60 bytes and one of 1,024 replicas
 * a few thousand.
 *
 * Pure. Private to recorder.c and its tests. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "model/rankset.h"
#include "rendezvous.h"
#include "wire/message.h"

/* Enough for every record: 17 numbers, a key, two sets... and an arrival for each rank. */
#define MAX_RECORD_BYTES (17 * 10 + MAX_KEY_BYTES + MAX_WORLD / 8 + 10 * MAX_WORLD)

/* Writes what is to be known of an ENDED meeting; returns the bytes. */
size_t record_write(const struct meeting *m, uint8_t bytes[MAX_RECORD_BYTES]);

/* Reads it back: all of *ret but job, group, dropped, shortened. `arrivals` is where ret->arrival_ns will
 * point. Only for what record_write wrote. */
void record_read(const uint8_t *bytes, uint64_t now_ns, uint64_t arrivals[MAX_WORLD], struct row_record *ret);

/* Enough for every member: 11 numbers, a key, why it went, its program. */
#define MAX_MEMBER_TEXT  128
#define MAX_MEMBER_BYTES (11 * 10 + MAX_KEY_BYTES + 2 * (2 + MAX_MEMBER_TEXT))

/* Writes what is to be known of a member whose group has ended; returns the bytes. */
size_t member_write(const struct row_member *m, uint64_t now_ns, uint8_t bytes[MAX_MEMBER_BYTES]);

/* Reads it back, into a *ret that is zero but for its strings: all but job, group, uid, ended_epoch. What its
 * strings point to stands in `bytes`. Returns how many of these it was. */
size_t member_read(const uint8_t *bytes, uint64_t now_ns, struct row_member *ret);
