/* A list of users, as keys such as daemon.admins have it: names or uids, with blanks or commas between them.
 *
 * Pure: who a name belongs to is asked of the one who is given to ask. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"
#include "base/text.h"

#define MAX_NAMED_USERS 64

struct user_list {
        uint32_t n;
        uint32_t uids[MAX_NAMED_USERS]; /* 0 behind the last */
};

/* Who knows users by their names. */
struct user_names {
        /* 0, -ENOENT where there is no such user, or another negative errno where that cannot be known. */
        int (*find)(const char *name, uint32_t *ret_uid);
};

/* Reads `text`; where `names` is NULL, names are nobody's. 0, or -EINVAL with "what is wrong; what is
 * allowed" in `why` and *ret untouched. */
int users_parse(
        const char *text, const struct user_names *names, struct user_list *ret, struct text *why) MUST_USE;
/* A default, of one user: a name that nobody has is nobody. */
void users_preset(const char *name, const struct user_names *names, struct user_list *ret);
/* What is allowed, as "at most 64 users". */
void users_print_allowed(struct text *t);
bool users_have(const struct user_list *users, uint32_t uid);
