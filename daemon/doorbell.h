/* How events climb from the machines: a bell without data. Whoever hears it pulls until there is nothing
 * left. */
#pragma once

struct doorbell {
        void (*ring)(void *data);
        void *data;
};

static inline void doorbell_ring(const struct doorbell *bell) {
        bell->ring(bell->data);
}
