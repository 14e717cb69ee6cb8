#include "print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "rows.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define S  (1000 * MS)

static struct word word(const char *format, ...) __attribute__((format(printf, 1, 2)));

static struct word word(const char *format, ...) {
        struct word w;
        va_list args;

        va_start(args, format);
        vsnprintf(w.s, sizeof(w.s), format, args);
        va_end(args);
        return w;
}

/* One decimal below ten, unless it is a zero. */
static struct word scaled(uint64_t n, uint64_t unit, const char *name) {
        uint64_t tenths = n / (unit / 10);

        if (tenths < 100 && tenths % 10)
                return word("%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, name);
        return word("%" PRIu64 " %s", tenths / 10, name);
}

struct word duration(uint64_t ns) {
        uint64_t s = ns / S;

        if (ns < US)
                return word("%" PRIu64 " ns", ns);
        if (ns < MS)
                return scaled(ns, US, "us");
        if (ns < S)
                return scaled(ns, MS, "ms");
        if (s < 60)
                return word("%" PRIu64 ".%" PRIu64 " s", s, ns / (S / 10) % 10);
        if (s < 3600)
                return word("%" PRIu64 " min %02" PRIu64 " s", s / 60, s % 60);
        if (s < 24 * 3600)
                return word("%" PRIu64 " h %02" PRIu64 " min", s / 3600, s / 60 % 60);
        return word("%" PRIu64 " d %02" PRIu64 ":%02" PRIu64, s / 86400, s / 3600 % 24, s / 60 % 60);
}

struct word bytes_text(uint64_t bytes) {
        static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
        unsigned int i = 0;

        if (bytes < 1024)
                return word("%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
        while (i + 1 < sizeof(units) / sizeof(*units) && bytes >> 10 * (i + 2))
                i++;

        unsigned int shift = 10 * (i + 1);
        uint64_t whole = bytes >> shift, tenths = (bytes & ((UINT64_C(1) << shift) - 1)) * 10 >> shift;

        if (whole < 10 && tenths)
                return word("%" PRIu64 ".%" PRIu64 " %s", whole, tenths, units[i]);
        return word("%" PRIu64 " %s", whole, units[i]);
}

struct word count(uint64_t n) {
        char digits[24];
        struct word w;
        size_t n_digits = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n), used = 0;

        for (size_t i = 0; i < n_digits; i++) {
                if (i && (n_digits - i) % 3 == 0)
                        w.s[used++] = ',';
                w.s[used++] = digits[i];
        }
        w.s[used] = '\0';
        return w;
}

struct word percent(uint64_t part, uint64_t whole) {
        if (!whole)
                return word("-");
        return word("%.0f %%", 100.0 * (double)part / (double)whole);
}

struct word kind_text(enum tutti_kind kind) {
        return kind == TUTTI_KIND_UNSPECIFIED ? word("-") : word("%s", tutti_kind_name(kind));
}

struct word op_text(enum tutti_op op) {
        return op == TUTTI_OP_UNSPECIFIED ? word("-") : word("%s", tutti_op_name(op));
}

struct word dtype_text(enum tutti_dtype dtype) {
        return dtype == TUTTI_DTYPE_UNSPECIFIED ? word("-") : word("%s", tutti_dtype_name(dtype));
}

void line_add(struct line *l, const char *format, ...) {
        size_t left = sizeof(l->s) - l->used;
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(l->s + l->used, left, format, args);
        va_end(args);
        if (n < 0)
                return;
        if ((size_t)n < left) {
                l->used += (size_t)n;
                return;
        }
        l->used = sizeof(l->s) - 1;
        memcpy(l->s + l->used - 3, "...", 4);
}

/* C0, DEL, and C1 in UTF-8 (c2 80 .. c2 9f). */
static bool is_control(const unsigned char *s) {
        return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] >= 0x80 && s[1] <= 0x9f);
}

void line_add_safe(struct line *l, const char *s) {
        for (const unsigned char *c = (const unsigned char *)s; *c; c++)
                line_add(l, "%c", is_control(c) ? '?' : *c);
}

void line_add_group(struct line *l, const char *job, const char *group) {
        line_add_safe(l, job);
        line_add(l, "/");
        line_add_safe(l, group);
}

/* What a shell takes as it is. */
static bool is_plain(const char *s) {
        return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,-")] ==
               '\0';
}

void line_add_group_for_shell(struct line *l, const char *job, const char *group) {
        struct line name = { 0 };

        line_add_group(&name, job, group);
        if (name.s[0] == '-')
                line_add(l, "-- ");
        if (is_plain(name.s)) {
                line_add(l, "%s", name.s);
                return;
        }
        line_add(l, "'");
        for (const char *c = name.s; *c; c++)
                if (*c == '\'')
                        line_add(l, "'\\''");
                else
                        line_add(l, "%c", *c);
        line_add(l, "'");
}

void line_add_key(struct line *l, const char *key) {
        bool is_number = key[0] == '#' && key[1] && !key[1 + strspn(key + 1, "0123456789")];

        line_add(l, "%s", is_number ? "" : "\"");
        line_add_safe(l, key);
        line_add(l, "%s", is_number ? "" : "\"");
}

void line_add_ranks(struct line *l, const struct tutti_ranks *ranks) {
        const char *gap = "";

        for (uint32_t r = 0; r < TUTTI_MAX_WORLD; r++) {
                uint32_t last = r;

                if (!tutti_ranks_has(ranks, r))
                        continue;
                while (tutti_ranks_has(ranks, last + 1))
                        last++;
                if (last < r + 3)
                        last = r;
                line_add(l, "%sR%u", gap, r);
                if (last > r)
                        line_add(l, "-R%u", last);
                gap = " ";
                r = last;
        }
        if (!*gap)
                line_add(l, "nobody");
}

static void line_add_pid(struct line *l, uint32_t pid) {
        if (pid)
                line_add(l, "pid %u", pid);
        else
                line_add(l, "pid ?");
}

void line_add_replica(struct line *l, const struct tutti_replica *r) {
        if (r->state == TUTTI_ABSENT) {
                line_add(l, "R%u (has not joined)", r->rank);
                return;
        }
        line_add(l, "R%u (", r->rank);
        line_add_pid(l, r->pid);
        line_add(
                l, ", %s", r->state == TUTTI_STOPPED ? "alive, stopped" : tutti_process_state_name(r->state));
        if (r->busy && *r->busy) {
                line_add(l, ", busy: ");
                line_add_safe(l, r->busy);
        }
        if (r->last_key && *r->last_key) {
                line_add(l, "; last finished ");
                line_add_key(l, r->last_key);
                line_add(l, " %s ago)", duration(seconds_to_ns(r->last_age)).s);
        } else {
                line_add(l, "; finished nothing yet)");
        }
}

/* "CPU:" of "CPU:0"; the whole name where there is no number. */
static size_t class_length(const char *name) {
        const char *colon = strchr(name, ':');

        return colon ? (size_t)(colon + 1 - name) : strlen(name);
}

static bool is_same_class(const char *a, const char *b) {
        size_t n = class_length(a);

        return n == class_length(b) && strncmp(a, b, n) == 0;
}

static size_t length_before(const char *text, const char *part) {
        const char *at = strstr(text, part);
        return at ? (size_t)(at - text) : strlen(text);
}

static void line_add_device_run(struct line *l, const struct tutti_row_device *first, const char *last_name,
        uint32_t n_workers, const char *isa) {
        line_add_safe(l, first->name);
        if (strcmp(first->name, last_name) != 0)
                line_add(l, "-%s", last_name + class_length(last_name));
        if (strncmp(first->name, "CPU:", 4) == 0)
                line_add(l, " (%u worker%s, %s)", n_workers, n_workers == 1 ? "" : "s", isa);
        else if (*first->describe && strcmp(first->name, last_name) == 0)
                line_add(l, " (%s)", first->describe);
        else if (*first->describe) /* without what each has for itself: where it is, what it is linked to */
                line_add(l, " (%.*s)", (int)(length_before(first->describe, ", PCI ")), first->describe);
}

void line_add_drain(struct line *l, const struct tutti_row_daemon *d) {
        if (!d->drained_by || !*d->drained_by) {
                line_add(l, "it is being stopped and takes nothing new");
                return;
        }
        line_add(l, "no new groups, by ");
        line_add_safe(l, d->drained_by);
        line_add(l, "; %u group%s left", d->n_groups_left, d->n_groups_left == 1 ? "" : "s");
}

void line_add_devices(struct line *l, const struct tutti_answer *a) {
        const struct tutti_row *daemon = rows_next(a, TUTTI_ROW_DAEMON, NULL), *row = NULL;
        const char *gap = "";

        row = rows_next(a, TUTTI_ROW_DEVICE, NULL);
        while (row) {
                const struct tutti_row_device *first = &row->device;
                const char *last_name = first->name;
                uint32_t n_workers = first->n_workers;

                while ((row = rows_next(a, TUTTI_ROW_DEVICE, row)) &&
                        is_same_class(first->name, row->device.name)) {
                        last_name = row->device.name;
                        n_workers += row->device.n_workers;
                }
                line_add(l, "%s", gap);
                line_add_device_run(l, first, last_name, n_workers, daemon ? daemon->daemon.isa : "?");
                gap = "   ";
        }
}

struct page page_of(FILE *out) {
        const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

        return (struct page){
                .out = out,
                .colours = isatty(fileno(out)) && !(no_color && *no_color) &&
                           !(term && strcmp(term, "dumb") == 0),
        };
}

static const char *tone_code(enum tone tone) {
        switch (tone) {
        case TONE_PLAIN: return "";
        case TONE_GOOD: return "\033[32m";
        case TONE_WARN: return "\033[33m";
        case TONE_BAD: return "\033[1;31m";
        case TONE_FAINT: return "\033[2m";
        }
        return "";
}

void page_label(const struct page *p, enum tone tone, const char *text, int width) {
        bool coloured = p->colours && tone != TONE_PLAIN;

        fprintf(p->out, "%s%-*s%s", coloured ? tone_code(tone) : "", width, text, coloured ? "\033[0m" : "");
}

struct wrap {
        FILE *out;
        size_t column, indent;
};

/* Puts `n` bytes after `blanks`, or on a line of their own. */
static void put_piece(struct wrap *w, size_t blanks, const char *piece, size_t n) {
        if (w->column > w->indent && w->column + blanks + n > PAGE_COLUMNS) {
                fprintf(w->out, "\n%*s", (int)w->indent, "");
                w->column = w->indent;
                blanks = 0;
        }
        fprintf(w->out, "%*s%.*s", (int)blanks, "", (int)n, piece);
        w->column += blanks + n;
}

static void put_words(struct wrap *w, size_t blanks, const char *item, size_t n) {
        while (n) {
                size_t word_bytes = strcspn(item, " "), next = word_bytes + 1;

                if (word_bytes >= n)
                        word_bytes = next = n;
                put_piece(w, blanks, item, word_bytes);
                blanks = 1;
                item += next;
                n -= next;
        }
}

/* Bytes up to the next gap of two blanks, or to the end. */
static size_t item_length(const char *s) {
        const char *gap = strstr(s, "  ");

        return gap ? (size_t)(gap - s) : strlen(s);
}

void page_wrap(const struct page *p, size_t column, size_t indent, const char *text) {
        struct wrap w = { p->out, column, indent };

        while (*text) {
                size_t blanks = strspn(text, " "), n = item_length(text + blanks);

                text += blanks;
                if (indent + n <= PAGE_COLUMNS)
                        put_piece(&w, blanks, text, n);
                else
                        put_words(&w, blanks, text, n);
                text += n;
        }
        fputc('\n', p->out);
}
