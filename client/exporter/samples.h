/* The samples of one metric, each series (its name and labels) once.
 *
 * Rows that no label tells apart, as those of two groups of a user whose job secrets differ, or of two
 * reasons that read alike, come together in one sample: a scrape in which a series occurs twice is refused as
 * a whole. Owned by the one who writes a scrape; one thread. */
#pragma once

#include <stdio.h>

/* What becomes of several values of one series. */
enum merge { MERGE_SUM, MERGE_MIN, MERGE_MAX };

struct samples;

struct samples *samples_new(void); /* NULL: memory is short */
void samples_free(struct samples *s);

/* Where the name and the labels of the next sample are written. */
FILE *samples_begin(struct samples *s);
void samples_end(struct samples *s, enum merge merge, double value);

/* In the order in which the series began; afterwards there are none. 0, or -ENOMEM where some are missing. */
int samples_write(struct samples *s, FILE *out);
