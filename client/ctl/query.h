/* The road of every command that asks tuttid something: options, connection, answer, text or JSON, exit code.
 */
#pragma once

#include <stdbool.h>
#include <jansson.h>
#include <tutti/admin.h>
#include "ctl.h"
#include "print.h"

struct query {
        const struct command *command;
        const char *socket, *operand, *second, *reason; /* NULL: not given */
        bool json, svg, has_user, undo, wait;
        uint32_t user;        /* whose things are asked about */
        uint32_t last;        /* 0: not given */
        uint64_t epoch;       /* 0: not given */
        uint64_t interval_ns; /* 0: not given */
        unsigned int level;   /* 0: not given */
        struct tutti *t;
        struct page page;
};

/* Reads options, connects, calls command->query. */
int query_main(const struct command *self, int argc, char **argv);

/* Reports what libtutti said of the last call; returns the exit code. */
int query_report(struct query *q, enum tutti_status status);

/* The same of something that tuttid was to do: CTL_WARNING where it answered and did not do it. */
int query_refused(struct query *q, enum tutti_status status);

/* 0 with *ret, which the caller frees (tutti_answer_free); else the error was reported and the exit code is
 * returned. */
int query_ask(struct query *q, enum tutti_admin_what what, const char *job, const char *group,
        struct tutti_answer **ret);

/* The same of all groups, also with the members of those that have ended. */
int query_ask_groups(struct query *q, struct tutti_answer **ret);
/* The same of the one that the operand names: all its lives in *ret, and in *ret_group the newest of them. */
int query_ask_group(struct query *q, struct tutti_answer **ret, const struct tutti_row_group **ret_group);

/* Resolves the operand among the groups of `groups`. 0 or, reported, CTL_WARNING. */
int query_find_group(struct query *q, const struct tutti_answer *groups, const struct tutti_row_group **ret);

/* Writes `root` and frees it; `exit_code`, or CTL_IO when it is NULL (memory) or cannot be written. */
int query_put_json(struct query *q, json_t *root, int exit_code);

static inline void answer_cleanup(struct tutti_answer **a) {
        tutti_answer_free(*a);
}

#define _cleanup_answer_ __attribute__((cleanup(answer_cleanup)))
