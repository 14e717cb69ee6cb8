/* Plays a sequence of bytes on the real rendezvous and on the model, step by step, and compares after each:
 * who was told what, what was sealed, what is pending, owed, stalled; at the end nothing may be charged. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a run has met, so that a test can see that it met everything. */
struct play_counts {
        uint64_t n_steps, n_told[32], n_sealed, n_struck, n_ejected, n_over, n_epochs, n_answered;
};

/* false: they differ, and `why` says where. Adds to *counts. */
bool rendezvous_play(const uint8_t *bytes, size_t n, struct play_counts *counts, char *why, size_t why_bytes);
