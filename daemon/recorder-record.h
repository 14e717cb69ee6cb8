/* One recorded collective as bytes: numbers of variable length (seven bits a byte, low ones first), so that
 * the record of a small group takes some 60 bytes and one of 1,024 replicas a few thousand.
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
