/* The other pages: groups, replicas, buffers, health, stats, quota, dump. Each is a pure function of answers,
 * as text and as JSON. */
#pragma once

#include <stdbool.h>
#include <jansson.h>
#include "print.h"

/* An answer to TUTTI_ADMIN_GROUPS. */
void groups_print(const struct tutti_answer *groups, const struct page *page);
json_t *groups_json(const struct tutti_answer *groups);

/* Also an answer to GROUPS: a line for each replica. */
void replicas_print(const struct tutti_answer *groups, const struct page *page);
json_t *replicas_json(const struct tutti_answer *groups);

/* Answers to GROUPS, QUOTA and STATUS: who holds how much memory, and what became of wishes for huge pages.
 */
struct buffers_view {
        const struct tutti_answer *groups, *quota, *status;
};
/* Neither prints anything when memory is short: -ENOMEM, NULL. */
int buffers_print(const struct buffers_view *v, const struct page *page);
json_t *buffers_json(const struct buffers_view *v);

/* An answer to TUTTI_ADMIN_STATS. */
void stats_print(const struct tutti_answer *stats, const struct page *page);
json_t *stats_json(const struct tutti_answer *stats);

/* An answer to TUTTI_ADMIN_QUOTA. */
void quota_print(const struct tutti_answer *quota, const struct page *page);
json_t *quota_json(const struct tutti_answer *quota);

/* A dump carries what one needs to read it elsewhere and later. */
struct dump_view {
        const struct tutti_answer *records, *groups; /* answers to DUMP and GROUPS, both of this group */
        const char *job, *group, *host;
        uint64_t taken_ns; /* Unix time of the answer */
};
/* Unix time of its first half. */
uint64_t dump_start_ns(const struct dump_view *v, const struct tutti_row_record *r);
/* How many records had gone before the oldest of this answer. */
uint64_t dump_dropped(const struct tutti_answer *records);
/* How many of the records that there were are missing. false: a tuttid that does not say. */
bool dump_missed(const struct tutti_answer *records, uint64_t *ret);
json_t *dump_missed_json(const struct tutti_answer *records); /* null where it does not say */
void dump_print(const struct dump_view *v, const struct page *page);
json_t *dump_json(const struct dump_view *v);

/* Answers to STATUS, STATS and QUOTA. */
struct health_view {
        const struct tutti_answer *status, *stats, *quota;
};

/* In rising order; NOTE is worth a line and no more. */
enum health_level { HEALTH_WELL, HEALTH_NOTE, HEALTH_WARNING, HEALTH_STALLED, HEALTH_FAILING };

struct finding {
        enum health_level level;
        const char *what;        /* "group", "replica", "device", "fallback", "quota", "tuttid" */
        const char *job, *group; /* NULL where it is about none */
        struct line text;
};

/* The next finding; *cursor begins with 0. */
bool health_next(const struct health_view *v, size_t *cursor, struct finding *ret);
/* The worst finding's. */
enum health_level health_level(const struct health_view *v);
int health_exit(enum health_level level);
void health_print(const struct health_view *v, const struct page *page);
json_t *health_json(const struct health_view *v);
