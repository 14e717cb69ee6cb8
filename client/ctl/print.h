/* How numbers, names and lines look to people: 80 columns, colours only where they help.
 *
 * Pure but for the FILE they write to. Names that come from clients are made harmless for terminals here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tutti/admin.h>

#define PAGE_COLUMNS 80

/* A short text, returned by value: printf("%s", duration(ns).s). */
struct word {
        char s[40];
};

/* "812 ns", "71 us", "2.1 ms", "12.4 s", "5 min 07 s", "1 h 02 min", "3 d 04:11". */
struct word duration(uint64_t ns);
/* "17 bytes", "64 KiB", "1.5 GiB". */
struct word bytes_text(uint64_t bytes);
/* "1,234,567". */
struct word count(uint64_t n);
/* "41 %" of `whole`; "-" when that is 0. */
struct word percent(uint64_t part, uint64_t whole);
/* As libtutti names it, "-" for unspecified. */
struct word kind_text(enum tutti_kind kind);
struct word op_text(enum tutti_op op);
struct word dtype_text(enum tutti_dtype dtype);

/* A line under construction. What does not fit is cut and ends in "...". */
struct line {
        char s[1024];
        size_t used;
};

void line_add(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Control characters become '?', so that a name cannot move the cursor. */
void line_add_safe(struct line *l, const char *s);
/* JOB/GROUP. */
void line_add_group(struct line *l, const char *job, const char *group);
/* In quotes where a shell wants them. */
void line_add_group_for_shell(struct line *l, const char *job, const char *group);
/* "grad/7" in quotes, or #17, the number of a sequence. */
void line_add_key(struct line *l, const char *key);
/* "R0 R1 R3", runs of four and more as "R4-R9"; "nobody" when empty. */
void line_add_ranks(struct line *l, const struct tutti_ranks *ranks);
/* `R3 (pid 4711, alive, stopped; last finished "grad/6" 12.5 s ago)`. */
void line_add_replica(struct line *l, const struct tutti_replica *r);
/* What it means that tuttid is draining, and who did it. */
void line_add_drain(struct line *l, const struct tutti_row_daemon *d);
/* "CPU:0-1 (4 workers, AVX-512), GPU:0-7 (H100)". */
void line_add_devices(struct line *l, const struct tutti_answer *a);

enum tone { TONE_PLAIN, TONE_GOOD, TONE_WARN, TONE_BAD, TONE_FAINT };

struct page {
        FILE *out;
        bool colours;
};

/* On a terminal, unless NO_COLOR is set or TERM is dumb. */
struct page page_of(FILE *out);
/* `text` in its tone, padded to `width`. */
void page_label(const struct page *p, enum tone tone, const char *text, int width);
/* Continues at `column` and ends the line. Lines are broken, indented by `indent`, where two blanks divide
 * items, and within an item only when it does not fit into a line. */
void page_wrap(const struct page *p, size_t column, size_t indent, const char *text);
