/* A list in the order of the series' beginnings, and a table of places in it, by hash. */
#include "samples.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PLACES 256 /* a power of two */

struct sample {
        char *series;
        double value;
};

struct samples {
        FILE *next; /* writes into `text` */
        char *text;
        size_t n_text;
        struct sample *list; /* [n_places / 2] */
        size_t n;
        size_t *places; /* [n_places]: 1 + where in the list, 0: none */
        size_t n_places;
        bool is_short_of_memory;
};

struct samples *samples_new(void) {
        struct samples *s = calloc(1, sizeof(*s));
        if (s && !(s->next = open_memstream(&s->text, &s->n_text))) {
                free(s);
                return NULL;
        }
        return s;
}

static void drop_all(struct samples *s) {
        for (size_t i = 0; i < s->n; i++)
                free(s->list[i].series);
        s->n = 0;
        if (s->places)
                memset(s->places, 0, s->n_places * sizeof(*s->places));
}

void samples_free(struct samples *s) {
        if (!s)
                return;
        drop_all(s);
        fclose(s->next);
        free(s->text);
        free(s->list);
        free(s->places);
        free(s);
}

FILE *samples_begin(struct samples *s) {
        rewind(s->next);
        return s->next;
}

/* FNV-1a. */
static uint64_t hash(const char *text) {
        uint64_t h = UINT64_C(0xcbf29ce484222325);
        for (; *text; text++)
                h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
        return h;
}

/* The place of this series, or the free one where it belongs. */
static size_t *find_place(struct samples *s, const char *series) {
        size_t at = hash(series) & (s->n_places - 1);
        while (s->places[at] && strcmp(s->list[s->places[at] - 1].series, series) != 0)
                at = (at + 1) & (s->n_places - 1);
        return &s->places[at];
}

static bool grow(struct samples *s) {
        size_t n_places = s->n_places ? 2 * s->n_places : FIRST_PLACES;
        size_t *places = calloc(n_places, sizeof(*places));
        struct sample *list = places ? realloc(s->list, n_places / 2 * sizeof(*list)) : NULL;
        if (!list) {
                free(places);
                return false;
        }
        free(s->places);
        s->places = places;
        s->n_places = n_places;
        s->list = list;
        for (size_t i = 0; i < s->n; i++)
                *find_place(s, list[i].series) = i + 1;
        return true;
}

static double merged(enum merge merge, double a, double b) {
        switch (merge) {
        case MERGE_SUM: return a + b;
        case MERGE_MIN: return a < b ? a : b;
        case MERGE_MAX: break;
        }
        return a > b ? a : b;
}

static bool add(struct samples *s, enum merge merge, double value) {
        if (s->n == s->n_places / 2 && !grow(s))
                return false;
        size_t *place = find_place(s, s->text);
        if (*place) {
                double *known = &s->list[*place - 1].value;
                *known = merged(merge, *known, value);
                return true;
        }
        char *series = strdup(s->text);
        if (!series)
                return false;
        s->list[s->n++] = (struct sample){ series, value };
        *place = s->n;
        return true;
}

void samples_end(struct samples *s, enum merge merge, double value) {
        fputc('\0', s->next);
        if (fflush(s->next) != 0 || !add(s, merge, value))
                s->is_short_of_memory = true;
}

int samples_write(struct samples *s, FILE *out) {
        for (size_t i = 0; i < s->n; i++)
                fprintf(out, "%s %.17g\n", s->list[i].series, s->list[i].value);
        drop_all(s);
        return s->is_short_of_memory ? -ENOMEM : 0;
}
