/* The other pages: groups, replicas, buffers, health, stats, quota, dump. Each is a pure function of answers,
 * as text and as JSON. */
#pragma once

#include <stdbool.h>
#include <jansson.h>
#include "print.h"

/* An answer to TUTTI_ADMIN_GROUPS, with the members of ended groups. */
void groups_print(const struct tutti_answer *groups, const struct page *page);
json_t *groups_json(const struct tutti_answer *groups);

/* A line of `groups`, which other pages have too. */
void member_print(const struct tutti_row_member *m, const struct page *page);

/* Also an answer to GROUPS: a line for each replica. Of all groups that are there (`ended` NULL), or of this
 * one that has ended. */
void replicas_print(
        const struct tutti_answer *groups, const struct tutti_row_group *ended, const struct page *page);
json_t *replicas_json(const struct tutti_answer *groups, const struct tutti_row_group *ended);

/* What became of a group that somebody asks about: job, group, epoch, and what is known of it. */
json_t *json_ended(const struct tutti_row_group *g);
/* "dp/train (epoch 3) ended 12 s ago: 1,234 done, 64 KiB". */
void line_add_ended(struct line *l, const struct tutti_row_group *g);
/* "`tuttictl dump --epoch 3 dp/train`". */
void line_add_dump(struct line *l, const char *verb, const struct tutti_row_group *g);
/* The same on a line of its own. */
void print_dump_hint(const char *verb, const struct tutti_row_group *g, const struct page *page);

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
/* Of one group that has ended: what its record still tells, in an answer to GROUPS. */
void stats_print_ended(
        const struct tutti_answer *groups, const struct tutti_row_group *g, const struct page *page);
json_t *stats_json_ended(const struct tutti_answer *groups, const struct tutti_row_group *g);

/* An answer to TUTTI_ADMIN_QUOTA. */
void quota_print(const struct tutti_answer *quota, const struct page *page);
json_t *quota_json(const struct tutti_answer *quota);

/* A dump carries what one needs to read it elsewhere and later. */
struct dump_view {
        const struct tutti_answer *records, *groups; /* answers to DUMP and, with ended members, GROUPS */
        const char *job, *group, *host;
        uint64_t taken_ns;                  /* Unix time of the answer */
        const struct tutti_row_group *life; /* of `groups`: which the record is of; NULL: of none of these */
};
/* Unix time of its first half. */
uint64_t dump_start_ns(const struct dump_view *v, const struct tutti_row_record *r);
/* What is known of the record; NULL: a tuttid that does not say. */
const struct tutti_row_dump *dump_about(const struct dump_view *v);
/* Puts first_epoch, last_epoch and ended: null where it does not say. */
void dump_put_about(json_t **j, const struct dump_view *v);
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
