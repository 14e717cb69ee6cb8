/* A scrape as Prometheus text (exposition format 0.0.4). Names and units as Prometheus asks for: base units,
 * _total for counters, one HELP and TYPE for each. Pure but for the stream. */
#pragma once

#include <stdio.h>
#include "scrape.h"

/* 0, or -ENOMEM when something is missing. */
int metrics_write(const struct scrape *scrape, FILE *out);

/* Of every metric: its name, its type and what it is, one a line, for docs. */
void metrics_list(FILE *out);
