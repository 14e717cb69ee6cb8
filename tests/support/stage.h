/* A tuttid and an honest group of two that meets again and again, for tests of those who mean harm: its
 * results stay right, and nobody makes it wait. */
#pragma once

#include "host.h"
#include "replica.h"

struct stage {
        struct host *h;
        struct replica *honest[2];
};

/* `args` of host_start. */
void stage_set(struct stage *s, const char *const *args);
/* The honest ones still meet; all end, and everything was given back. */
void stage_clear(struct stage *s);

/* Within five seconds (scaled) they meet again. */
void stage_expect_progress(void);
/* Between the two no meeting of theirs takes longer (scaled). */
void watch_begin(void);
void watch_end(double seconds);

/* How long their meetings took. */
struct pace {
        unsigned int n;
        double p50, p99, worst; /* s */
};

/* For so long (not scaled), and at least four meetings. */
struct pace stage_measure_pace(double seconds);

/* What tuttid holds at a moment when nobody but the honest ones is there. */
struct stage_mark {
        struct host_counters counters;
        int n_descriptors;
};

void stage_set_mark(const struct stage *s, struct stage_mark *ret);
/* Within two seconds (scaled) every counter, charge and descriptor is back there; `where` is for the failure.
 */
void stage_expect_mark(const struct stage *s, const struct stage_mark *mark, const char *where);
