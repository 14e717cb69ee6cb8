/* Random sequences on the real rendezvous and on the model (tests/support/rendezvous-model.h): nobody may
 * notice which is which. */
#include <stdlib.h>
#include "model/status.h"
#include "rendezvous-play.h"
#include "unit.h"

#define SEED_BYTES 3000

/* xorshift64*: the same bytes for the same seed everywhere. */
static void fill(uint64_t seed, uint8_t *bytes, size_t n) {
        uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
        for (size_t i = 0; i < n; i++) {
                x ^= x >> 12;
                x ^= x << 25;
                x ^= x >> 27;
                bytes[i] = (uint8_t)(x * 0x2545f4914f6cdd1d >> 56);
        }
}

static void play_seeds(uint64_t first, uint64_t n, struct play_counts *counts) {
        uint8_t bytes[SEED_BYTES];
        char why[256];
        for (uint64_t seed = first; seed < first + n; seed++) {
                fill(seed, bytes, sizeof(bytes));
                if (!rendezvous_play(bytes, sizeof(bytes), counts, why, sizeof(why)))
                        ck_abort_msg("seed %llu: %s", (unsigned long long)seed, why);
        }
}

START_TEST(agrees_with_the_model_over_random_sequences) {
        static const enum status told[] = { STATUS_OK, STATUS_INVALID, STATUS_MISMATCH,
                STATUS_ALREADY_PENDING, STATUS_TIMEOUT, STATUS_EXPIRED, STATUS_ABORTED, STATUS_PEER_REFUSED,
                STATUS_REPLICA_LOST, STATUS_LEFT, STATUS_QUOTA, STATUS_BAD_FD, STATUS_NOT_FOUND, STATUS_BUSY,
                STATUS_DEVICE_LOST };
        struct play_counts counts = { 0 };
        play_seeds(1, 300, &counts);
        /* It must have met everything that can happen, or it has shown little. */
        for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++)
                ck_assert_msg(counts.n_told[told[i]] > 100, "%s was told %llu times", status_name(told[i]),
                        (unsigned long long)counts.n_told[told[i]]);
        ck_assert(counts.n_sealed > 1000 && counts.n_struck > 100 && counts.n_ejected > 100 &&
                  counts.n_over > 100);
        ck_assert_msg(counts.n_epochs > 1000 && counts.n_answered > 1000, "%llu epochs, %llu answers",
                (unsigned long long)counts.n_epochs, (unsigned long long)counts.n_answered);
}
END_TEST

START_TEST(agrees_on_short_sequences_too) {
        struct play_counts counts = { 0 };
        uint8_t bytes[64];
        char why[256];
        for (uint64_t seed = 1; seed <= 2000; seed++) {
                fill(seed, bytes, sizeof(bytes));
                if (!rendezvous_play(bytes, seed % sizeof(bytes), &counts, why, sizeof(why)))
                        ck_abort_msg("seed %llu: %s", (unsigned long long)seed, why);
        }
}
END_TEST

UNIT_MAIN("rendezvous-model", 60, agrees_with_the_model_over_random_sequences, agrees_on_short_sequences_too)
