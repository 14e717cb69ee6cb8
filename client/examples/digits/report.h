/* What the person at the terminal sees. All of it goes to stdout; rank 0 alone speaks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "net.h"

/* Seconds of CLOCK_MONOTONIC. */
double now_seconds(void);

/* The line that says how far the training is: written over and over on a terminal, every 100 steps elsewhere.
 */
struct progress {
        bool is_on, is_terminal;
        bool is_open; /* the line on the terminal waits to be written over */
        uint32_t n_steps;
        double began, shown; /* seconds; when the training began, when the line was last written */
        double loss;         /* smoothed */
};

enum progress_kind { PROGRESS_OFF, PROGRESS_ON };
void progress_begin(struct progress *p, enum progress_kind kind, uint32_t n_steps);
/* `step` (from 1) is done; `waiting`: seconds spent in collectives so far. */
void progress_step(struct progress *p, uint32_t step, double loss, double waiting);
/* Something else is to be written: leaves the line as it is. */
void progress_interrupt(struct progress *p);

/* Seconds, on average over steps and replicas. */
struct step_times {
        double compute; /* gradient and update */
        double late;    /* from the own submission to the last one */
        double reduce;  /* from there to the complete result */
        double wake;    /* the rest of the call: there and back */
};

/* Who was how often last. */
struct latest {
        uint32_t rank;
        double share;
};

void report_begin(const struct net *net, uint32_t n_replicas, uint32_t n_images);
void report_accuracy(double accuracy, double alone_accuracy, double difference);
void report_identity(uint32_t n_replicas, const uint8_t *sha256);
void report_times(const struct step_times *times, const struct latest *latest);
