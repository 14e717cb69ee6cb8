/* Looking through an answer: by type, by group, by name. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <tutti/admin.h>

/* The next row of this type; `after` NULL begins, NULL ends. An answer of NULL has no rows. */
const struct tutti_row *rows_next(
        const struct tutti_answer *a, enum tutti_row_type type, const struct tutti_row *after);
/* The same, of one group: MEMBER, PENDING and STATS rows. */
const struct tutti_row *rows_next_of(const struct tutti_answer *a, enum tutti_row_type type, const char *job,
        const char *group, const struct tutti_row *after);

/* The next MEMBER row of this life of a group: of the one that is there, or of one that has ended. */
const struct tutti_row *rows_next_member(
        const struct tutti_answer *a, const struct tutti_row_group *g, const struct tutti_row *after);

/* The GROUP row of the life of this group that a record is of; also one that has ended since the rows were
 * told. Each life begins behind the last epoch of the one before. NULL: there is none, or `about` is. */
const struct tutti_row_group *rows_find_life(const struct tutti_answer *groups, const char *job,
        const char *group, const struct tutti_row_dump *about);

/* The first of its group among the rows of this type? */
bool rows_is_first_of(const struct tutti_answer *a, enum tutti_row_type type, const struct tutti_row *row);

/* JOB and GROUP of a row that has them. */
const char *row_job(const struct tutti_row *row);
const char *row_group(const struct tutti_row *row);

/* The member that comes last most (by median lateness), NULL when none has been late to anything. */
const struct tutti_row_member *rows_latest_member(
        const struct tutti_answer *a, const char *job, const char *group);

/* It is lost, or has left: how its process is does not matter to the group. */
bool member_is_gone(const struct tutti_row_member *m);

/* This rank's half came. */
bool record_has_arrival(const struct tutti_row_record *r, uint32_t rank);
/* All halves came and agreed. */
bool record_is_sealed(const struct tutti_row_record *r);

/* At nine tenths of a limit or more: QUOTA comes soon. */
bool quota_is_near(const struct tutti_row_quota *q);

enum name_match { NAME_FOUND, NAME_ABSENT, NAME_AMBIGUOUS };

/* Finds the group that a person means by "JOB/GROUP", or by "GROUP" where only one job has it; of its lives
 * the one that is there, else the one that ended last. Names are compared with the groups there are, so that
 * slashes in either part do no harm. */
enum name_match rows_match_name(
        const struct tutti_answer *groups, const char *name, const struct tutti_row_group **ret);

uint64_t seconds_to_ns(double s);
