/* What lies in memory that tuttid and a client share, beside their buffers: wire format, as packets are.
 * Nothing in it is state: who reads copies, validates, then uses (P17). */
#pragma once

#include <stdint.h>
#include "model/key.h"

#define STATUS_PAGE_SLOTS 4096

#define SIGNAL_SLOTS  4096
#define SIGNAL_EVENTS 64 /* slots that have events */

/* One slot of the signal page (wire format, little-endian). */
struct signal_slot {
        _Atomic uint64_t ready; /* written by the client's stream: what the half reads is there */
        _Atomic uint64_t done;  /* written by tuttid: the half has ended */
};

#define EVENT_HANDLE_BYTES 64

/* Behind the slots, where order is by events (wire format, little-endian). */
struct signal_events {
        _Atomic uint64_t maker; /* whose they are; 0: there are none. By tuttid-gpu, after the handles */
        _Atomic uint64_t
                recorded[SIGNAL_EVENTS]; /* the maker of the ready event that the client has recorded */
        uint8_t ready[SIGNAL_EVENTS][EVENT_HANDLE_BYTES], done[SIGNAL_EVENTS][EVENT_HANDLE_BYTES];
};

#define SIGNAL_PAGE_BYTES  (SIGNAL_SLOTS * sizeof(struct signal_slot))
#define SIGNAL_EVENT_BYTES (SIGNAL_PAGE_BYTES + sizeof(struct signal_events))

/* One slot of the status page (wire format, little-endian): slot = request mod STATUS_PAGE_SLOTS. Written by
 * tuttid alone. */
enum page_state { PAGE_FREE, PAGE_BEGUN, PAGE_DONE, PAGE_FAILED };

struct page_slot {
        _Atomic uint64_t request;
        _Atomic uint64_t collective;
        _Atomic uint32_t state; /* enum page_state; written last */
        _Atomic uint32_t
                status; /* PAGE_FAILED: enum status; of EXPIRED its cause stands above, from bit 16 on */
};

#define STATUS_PAGE_BYTES (STATUS_PAGE_SLOTS * sizeof(struct page_slot))

/* What a client starts without a packet (wire format, little-endian): one memfd for each connection that asks
 * for it, sealed SHRINK, GROW and SEAL. Written by the client alone. */
#define LANE_KEY_WORDS  (MAX_KEY_BYTES / sizeof(uint64_t))
#define LANE_WORDS      64
#define LANE_PAGE_BYTES 4096

struct lane_slot {
        _Atomic uint64_t start; /* how many there have been; written last */
        _Atomic uint64_t request, prepared, membership, epoch;
        _Atomic uint64_t key_bytes; /* 0: its number is key[0] */
        _Atomic uint64_t key[LANE_KEY_WORDS];
        /* Bit s is turned over when slot s of the result object that was asked for with this word (counted
         * from 1) is given back. */
        _Atomic uint64_t given_back[LANE_WORDS];
        _Atomic uint64_t has_timeout, timeout_ns; /* of the start, as in a packet */
};

/* Behind the slots of the status page, by tuttid alone. */
struct lane_board {
        _Atomic uint32_t is_open;    /* 0: what is started by the lane waits for a packet of the client */
        _Atomic uint32_t is_watched; /* 0: who starts something rings */
        _Atomic uint64_t passed;     /* the last start that is answered by a packet */
        /* Of the last that was run on the lane, before its slot of the status page says `done`. */
        _Atomic uint64_t wait_ns, run_ns, done_ns, last_rank;
        _Atomic uint64_t slot; /* of the result object that it goes to */
};

#define STATUS_MEMFD_BYTES (STATUS_PAGE_BYTES + 4096)
