#include "config-value.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"

struct unit {
        const char *name;
        uint64_t factor;
};

/* Growing, so that the last one that divides a value prints it best. */
static const struct unit byte_units[] = {
        { "bytes", 1 },
        { "KiB", UINT64_C(1) << 10 },
        { "MiB", UINT64_C(1) << 20 },
        { "GiB", UINT64_C(1) << 30 },
        { "TiB", UINT64_C(1) << 40 },
        { NULL, 0 },
};

static const struct unit time_units[] = {
        { "ns", 1 },
        { "us", 1000 },
        { "ms", NS_PER_MS },
        { "s", NS_PER_S },
        { "min", 60 * NS_PER_S },
        { "h", 3600 * NS_PER_S },
        { NULL, 0 },
};

static const struct unit no_units[] = { { NULL, 0 } };

static const struct unit *units_of(enum value_type type) {
        switch (type) {
        case VALUE_BYTES: return byte_units;
        case VALUE_DURATION: return time_units;
        case VALUE_COUNT:
        case VALUE_TEXT:
        case VALUE_USERS:
        case VALUE_WORD: break;
        }
        return no_units;
}

static void print_number(const struct value_rule *rule, uint64_t value, struct text *t) {
        const struct unit *best = NULL;
        for (const struct unit *u = units_of(rule->type); u->name; u++)
                if (value && value % u->factor == 0)
                        best = u;
        if (best)
                text_add(t, "%llu %s", (unsigned long long)(value / best->factor), best->name);
        else
                text_add(t, "%llu", (unsigned long long)value);
}

static void print_range(const struct value_rule *rule, struct text *t) {
        print_number(rule, rule->min, t);
        text_add(t, " to ");
        print_number(rule, rule->max, t);
        if (rule->multiple_of)
                text_add(t, ", in steps of %llu", (unsigned long long)rule->multiple_of);
        if (rule->word)
                text_add(t, ", or \"%s\"", rule->word);
}

static void print_words(const struct value_rule *rule, struct text *t) {
        for (const char *const *w = rule->words; *w; w++)
                text_add(t, "%s%s", w == rule->words ? "" : w[1] ? ", " : " or ", *w);
}

/* What may stand there, as advice behind "use". */
static const char *advice(enum value_type type) {
        switch (type) {
        case VALUE_BYTES: return "a number of bytes or KiB, MiB, GiB, TiB";
        case VALUE_DURATION: return "a number of ns, us, ms, s, min or h";
        case VALUE_COUNT:
        case VALUE_TEXT:
        case VALUE_USERS:
        case VALUE_WORD: break;
        }
        return "a whole number";
}

static bool is_digit(char c) {
        return c >= '0' && c <= '9';
}

static bool is_space(char c) {
        return c == ' ' || c == '\t';
}

/* The digits at *text, which moves behind them and the blanks that follow. false: more than 64 bits. */
static bool take_digits(const char **text, uint64_t *ret) {
        uint64_t n = 0;
        bool fits = true;
        for (; is_digit(**text); (*text)++)
                fits = fits && !__builtin_mul_overflow(n, 10u, &n) &&
                       !__builtin_add_overflow(n, (uint64_t)(**text - '0'), &n);
        while (is_space(**text))
                (*text)++;
        *ret = n;
        return fits;
}

/* The factor of `name`, or 0. No unit at all means bytes or pieces, but never a time: 600 of what? */
static uint64_t factor_of(const struct value_rule *rule, const char *name, uint64_t number) {
        if (!*name)
                return rule->type != VALUE_DURATION || number == 0;
        for (const struct unit *u = units_of(rule->type); u->name; u++)
                if (strcmp(u->name, name) == 0)
                        return u->factor;
        return 0;
}

static int refuse_unit(const struct value_rule *rule, const char *unit, struct text *why) {
        if (*unit)
                text_add(why, "unknown unit \"%.32s\"", unit);
        else
                text_add(why, "the unit is missing");
        text_add(why, "; use %s.", advice(rule->type));
        return -EINVAL;
}

static int refuse_number(const struct value_rule *rule, const char *what, struct text *why) {
        text_add(why, "%s; use ", what);
        print_range(rule, why);
        text_add(why, ".");
        return -EINVAL;
}

static int parse_digits(const struct value_rule *rule, const char *text, uint64_t *ret, struct text *why) {
        const char *unit = text;
        uint64_t n;
        if (!is_digit(*text))
                return refuse_number(rule, "not a whole number", why);
        bool fits = take_digits(&unit, &n);
        uint64_t factor = factor_of(rule, unit, n);
        if (!factor)
                return refuse_unit(rule, unit, why);
        fits = fits && !__builtin_mul_overflow(n, factor, &n);
        if (!fits || n < rule->min || n > rule->max || (rule->multiple_of && n % rule->multiple_of))
                return refuse_number(rule, "out of range", why);
        *ret = n;
        return 0;
}

static int parse_number(const struct value_rule *rule, const char *text, void *field, struct text *why) {
        uint64_t value = 0;
        if (rule->word && strcmp(text, rule->word) == 0) {
                value = rule->of_word();
        } else {
                int r = parse_digits(rule, text, &value, why);
                if (r < 0)
                        return r;
        }
        if (rule->size == sizeof(uint32_t))
                *(uint32_t *)field = (uint32_t)value;
        else
                *(uint64_t *)field = value;
        return 0;
}

static int parse_text(const struct value_rule *rule, const char *text, char *field, struct text *why) {
        size_t n = strlen(text);
        if (n < rule->min || n > rule->max || n >= rule->size) {
                text_add(why, "has %zu bytes; use %llu to %llu.", n, (unsigned long long)rule->min,
                        (unsigned long long)rule->max);
                return -EINVAL;
        }
        memcpy(field, text, n + 1);
        return 0;
}

static int parse_word(const struct value_rule *rule, const char *text, void *field, struct text *why) {
        for (int i = 0; rule->words[i]; i++) {
                if (strcmp(text, rule->words[i]) == 0) {
                        memcpy(field, &i, sizeof(i));
                        return 0;
                }
        }
        text_add(why, "unknown word; use ");
        print_words(rule, why);
        text_add(why, ".");
        return -EINVAL;
}

int value_parse(const struct value_rule *rule, const char *text, void *field, struct text *why) {
        switch (rule->type) {
        case VALUE_TEXT: return parse_text(rule, text, field, why);
        case VALUE_COUNT:
        case VALUE_BYTES:
        case VALUE_DURATION: return parse_number(rule, text, field, why);
        case VALUE_WORD: return parse_word(rule, text, field, why);
        case VALUE_USERS: return users_parse(text, rule->unknown_users, field, why);
        }
        return -EINVAL;
}

void value_print_allowed(const struct value_rule *rule, struct text *t) {
        switch (rule->type) {
        case VALUE_TEXT:
                text_add(t, "text of %llu to %llu bytes", (unsigned long long)rule->min,
                        (unsigned long long)rule->max);
                return;
        case VALUE_WORD: print_words(rule, t); return;
        case VALUE_USERS: text_add(t, "names or uids, with blanks between them"); return;
        case VALUE_COUNT:
        case VALUE_BYTES:
        case VALUE_DURATION: print_range(rule, t); return;
        }
}
