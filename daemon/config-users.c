#include "config-users.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#define BETWEEN          " \t,"
#define MAX_NAME_LETTERS 63

/* The word at *text, which moves behind it; false: there is none. One that is too long is cut to what is no
 * name either. */
static bool take_word(const char **text, char word[MAX_NAME_LETTERS + 2]) {
        *text += strspn(*text, BETWEEN);
        size_t n = strcspn(*text, BETWEEN), kept = n > MAX_NAME_LETTERS ? MAX_NAME_LETTERS + 1 : n;
        memcpy(word, *text, kept);
        word[kept] = '\0';
        *text += n;
        return n > 0;
}

/* A number is a uid, also of a user whom nobody has named. */
static bool find_uid(const char *word, uint32_t *ret) {
        const struct passwd *user;
        char *end;
        errno = 0;
        unsigned long uid = strtoul(word, &end, 10);
        if (*word >= '0' && *word <= '9' && *end == '\0') {
                *ret = (uint32_t)uid;
                return !errno && uid < UINT32_MAX;
        }
        if (strlen(word) > MAX_NAME_LETTERS || !(user = getpwnam(word)))
                return false;
        *ret = user->pw_uid;
        return true;
}

int users_parse(const char *text, enum unknown_users unknown, struct user_list *ret, struct text *why) {
        struct user_list list = { 0 };
        char word[MAX_NAME_LETTERS + 2];
        while (take_word(&text, word)) {
                uint32_t uid;
                if (!find_uid(word, &uid)) {
                        if (unknown == UNKNOWN_USERS_ARE_NOBODY)
                                continue;
                        text_add(why,
                                "no user \"%s\" on this host; use names or uids, with blanks between them.",
                                word);
                        return -EINVAL;
                }
                if (users_have(&list, uid))
                        continue;
                if (list.n == MAX_USERS_A_KEY) {
                        text_add(why, "more than %d users.", MAX_USERS_A_KEY);
                        return -EINVAL;
                }
                list.uids[list.n++] = uid;
        }
        *ret = list;
        return 0;
}

bool users_have(const struct user_list *users, uint32_t uid) {
        for (uint32_t i = 0; i < users->n; i++)
                if (users->uids[i] == uid)
                        return true;
        return false;
}
