/* A list of users as a key of the configuration says it: names or uids, with blanks or commas between them.
 *
 * Asks the host's user database, when it is parsed and never later. Private to config and its tests. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/text.h"

#define MAX_USERS_A_KEY 64

/* Zero: nobody. */
struct user_list {
        uint32_t n;
        uint32_t uids[MAX_USERS_A_KEY];
};

/* What becomes of a name that this host does not know: nobody asked for what a default names. */
enum unknown_users { UNKNOWN_USERS_ARE_WRONG, UNKNOWN_USERS_ARE_NOBODY };

/* 0, or -EINVAL with "what is wrong; what is allowed" in `why` and *ret untouched. */
int users_parse(
        const char *text, enum unknown_users unknown, struct user_list *ret, struct text *why) MUST_USE;

bool users_have(const struct user_list *users, uint32_t uid);
