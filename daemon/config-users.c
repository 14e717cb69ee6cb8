#include "config-users.h"

#include <errno.h>
#include <string.h>

#define SEPARATORS " \t,"
/* useradd(8) takes 32 bytes; some directories have longer ones. */
#define MAX_NAME_BYTES 255

void users_print_allowed(struct text *t) {
        text_add(t, "names or uids of at most %d users, with blanks or commas between them", MAX_NAMED_USERS);
}

static int refuse(struct text *why) {
        text_add(why, "; use ");
        users_print_allowed(why);
        text_add(why, ".");
        return -EINVAL;
}

static bool is_number(const char *word) {
        return word[strspn(word, "0123456789")] == '\0';
}

static int parse_uid(const char *word, uint32_t *ret, struct text *why) {
        uint64_t n = 0;
        for (const char *c = word; *c && n <= UINT32_MAX; c++)
                n = n * 10 + (uint64_t)(*c - '0');
        if (n >= UINT32_MAX) { /* -1 is nobody's */
                text_add(why, "\"%.64s\" is no uid", word);
                return refuse(why);
        }
        *ret = (uint32_t)n;
        return 0;
}

static int parse_name(const char *word, const struct user_names *names, uint32_t *ret, struct text *why) {
        int r = names ? names->find(word, ret) : -ENOENT;
        if (r == 0)
                return 0;
        text_add(why, r == -ENOENT ? "this host has no user \"%.64s\"" : "user \"%.64s\" cannot be looked up",
                word);
        if (r != -ENOENT)
                text_add(why, " (%s)", strerror(-r));
        return refuse(why);
}

static int parse_user(const char *word, const struct user_names *names, uint32_t *ret, struct text *why) {
        return is_number(word) ? parse_uid(word, ret, why) : parse_name(word, names, ret, why);
}

void users_preset(const char *name, const struct user_names *names, struct user_list *ret) {
        char ignored[256];
        struct text why;
        text_init(&why, ignored, sizeof(ignored));
        *ret = (struct user_list){ 0 };
        ret->n = *name != '\0' && parse_user(name, names, &ret->uids[0], &why) == 0;
}

int users_parse(const char *text, const struct user_names *names, struct user_list *ret, struct text *why) {
        struct user_list list = { 0 };
        for (text += strspn(text, SEPARATORS); *text; text += strspn(text, SEPARATORS)) {
                char word[MAX_NAME_BYTES + 1];
                size_t n = strcspn(text, SEPARATORS);
                if (list.n == MAX_NAMED_USERS || n > MAX_NAME_BYTES) {
                        text_add(why, list.n == MAX_NAMED_USERS ? "too many users" : "a name is too long");
                        return refuse(why);
                }
                memcpy(word, text, n);
                word[n] = '\0';
                int r = parse_user(word, names, &list.uids[list.n], why);
                if (r < 0)
                        return r;
                list.n++;
                text += n;
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
