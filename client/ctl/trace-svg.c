/* Time runs to the right, in bands of a few dozen collectives below each other, so that a thousand of them
 * can be read on one page and printed. Each band has its own scale; its heading says when it begins and what
 * it spans. A bar is at least a hair wide, so that nothing that happened is invisible. */
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "json.h"
#include "rows.h"

#define PAGE_WIDTH  1200
#define LEFT        90 /* of the bars: behind the names of the rows */
#define PLOT_WIDTH  (PAGE_WIDTH - LEFT - 20)
#define HEAD_HEIGHT 100
#define ROW_HEIGHT  18
#define BAND_HEAD   34 /* heading and collectives */
#define BAND_FOOT   26 /* axis */
#define STRIP       8  /* a collective's own bar */
#define HAIR        0.75

#define BAND_ITEMS 40
#define MAX_LANES  4 /* deeper ones are drawn over the last */
#define MAX_SHOWN  64
#define N_TICKS    5

struct drawing {
        const struct trace *t;
        FILE *out;
        uint32_t ranks[MAX_SHOWN], n_shown;
        double y; /* of the band at hand */
};

struct band {
        const struct trace_item *items;
        uint32_t n_items, n_lanes;
        uint64_t from_ns, to_ns;
};

/* --- text --- */

static void put_escaped(FILE *out, const char *s) {
        for (; *s; s++) {
                if (*s == '&')
                        fputs("&amp;", out);
                else if (*s == '<')
                        fputs("&lt;", out);
                else if (*s == '>')
                        fputs("&gt;", out);
                else if ((unsigned char)*s < 0x20 || *s == 0x7f)
                        fputc('?', out);
                else if (strncmp(s, "\xef\xbf\xbe", 3) == 0 || strncmp(s, "\xef\xbf\xbf", 3) == 0)
                        s += 2; /* no characters of XML */
                else
                        fputc(*s, out);
        }
}

/* Names come from clients. */
static void put_name(FILE *out, const char *name) {
        json_t *text = json_text(name); /* makes it UTF-8 */

        put_escaped(out, text ? json_string_value(text) : "?");
        json_decref(text);
}

static void put_clock(FILE *out, uint64_t unix_ns) {
        time_t s = (time_t)(unix_ns / 1000000000);
        struct tm tm;
        char text[32];

        localtime_r(&s, &tm);
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
        fprintf(out, "%s.%06u", text, (unsigned int)(unix_ns / 1000 % 1000000));
}

/* --- the head --- */

static double band_height(const struct drawing *d) {
        return BAND_HEAD + d->n_shown * (double)ROW_HEIGHT + BAND_FOOT;
}

static void put_style(FILE *out) {
        fputs("<style>\n"
              "text { font: 12px sans-serif; fill: #222 }\n"
              ".title { font-size: 16px; font-weight: bold }\n"
              ".small { font-size: 11px; fill: #555 }\n"
              ".rank { text-anchor: end }\n"
              ".tick { stroke: #ccc }\n"
              ".row { fill: #f4f4f4 }\n"
              ".late { fill: #e8710a }\n"
              ".wait { fill: #b9c6d6 }\n"
              ".run { fill: #188038 }\n"
              ".missing { fill: #fce8e6; stroke: #c5221f }\n"
              ".ok { fill: #5f6368 }\n"
              ".failed { fill: #c5221f }\n"
              "</style>\n",
                out);
}

static void put_legend(FILE *out) {
        static const struct {
                const char *class, *text;
                int x;
        } keys[] = {
                { "late", "late: the first was there, this one not yet", 0 },
                { "wait", "waits for the last", 300 },
                { "run", "runs", 470 },
                { "missing", "never came", 550 },
                { "failed", "failed", 660 },
        };

        for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
                fprintf(out,
                        "<rect class=\"%s\" x=\"%d\" y=\"70\" width=\"14\" height=\"10\"/>"
                        "<text x=\"%d\" y=\"79\">%s</text>\n",
                        keys[i].class, LEFT + keys[i].x, LEFT + keys[i].x + 20, keys[i].text);
}

static void put_summary(const struct drawing *d) {
        const struct trace_straggler s = trace_straggler(d->t);
        uint64_t missed;

        fprintf(d->out, "<text x=\"20\" y=\"48\">%s collective%s in %s", count(d->t->n_items).s,
                d->t->n_items == 1 ? "" : "s", duration(d->t->end_ns).s);
        if (dump_missed(d->t->dump->records, &missed) && missed)
                fprintf(d->out, "; %s more are missing", count(missed).s);
        if (s.n_joint)
                fprintf(d->out, "; R%u came last in %s of %s, usually %s after the first", s.rank,
                        count(s.n_last).s, count(s.n_joint).s, duration(s.median_ns).s);
        if (d->n_shown < d->t->world_size)
                fprintf(d->out, "; of %u replicas the %u latest are shown", d->t->world_size, d->n_shown);
        fputs("</text>\n", d->out);
}

static void put_head(const struct drawing *d, uint32_t n_bands) {
        const struct dump_view *v = d->t->dump;
        double height = HEAD_HEIGHT + n_bands * band_height(d);

        fprintf(d->out,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
                "%.0f\">\n",
                PAGE_WIDTH, height, PAGE_WIDTH, height);
        put_style(d->out);
        fprintf(d->out,
                "<rect width=\"%d\" height=\"%.0f\" fill=\"#fff\"/>\n<text class=\"title\" x=\"20\" "
                "y=\"26\">",
                PAGE_WIDTH, height);
        put_name(d->out, v->job);
        fputc('/', d->out);
        put_name(d->out, v->group);
        fputs(" on ", d->out);
        put_name(d->out, v->host);
        fputs("</text>\n", d->out);
        put_summary(d);
        put_legend(d->out);
}

/* --- a band --- */

static double x_of(const struct band *b, uint64_t ns) {
        return LEFT + (double)PLOT_WIDTH * (double)(ns - b->from_ns) / (double)(b->to_ns - b->from_ns);
}

struct bar {
        const char *class;
        double y, height;
        uint64_t from_ns, to_ns; /* since the trace's begin */
};

static void put_bar(const struct drawing *d, const struct band *b, const struct bar *bar) {
        double x = x_of(b, bar->from_ns), width = x_of(b, bar->to_ns) - x;

        if (width < HAIR)
                width = HAIR;
        fprintf(d->out, "<rect class=\"%s\" x=\"%.3f\" y=\"%.2f\" width=\"%.3f\" height=\"%.2f\"/>",
                bar->class, x, bar->y, width, bar->height);
}

static void put_part_title(const struct drawing *d, const struct tutti_row_record *r, uint32_t rank,
        const struct trace_part *part) {
        fprintf(d->out, "<title>R%u ", rank);
        put_name(d->out, r->key);
        if (part->what == PART_MISSING)
                fprintf(d->out, ": never came in %s", duration(part->done_ns).s);
        else
                fprintf(d->out, ": late %s, waited %s, ran %s", duration(part->arrived_ns).s,
                        duration(part->sealed_ns - part->arrived_ns).s,
                        duration(part->done_ns - part->sealed_ns).s);
        fputs("</title>", d->out);
}

static void put_part(
        const struct drawing *d, const struct band *b, const struct trace_item *item, uint32_t row) {
        const struct tutti_row_record *r = item->record;
        const struct trace_part part = trace_part(r, d->ranks[row]);
        uint32_t lane = item->lane < b->n_lanes ? item->lane : b->n_lanes - 1;
        double height = (double)(ROW_HEIGHT - 2) / b->n_lanes;
        double y = d->y + BAND_HEAD + row * (double)ROW_HEIGHT + 1 + lane * height;
        uint64_t begin = item->begin_ns;
        const struct bar bars[] = {
                { "late", y, height, begin, begin + part.arrived_ns },
                { "wait", y, height, begin + part.arrived_ns, begin + part.sealed_ns },
                { "run", y, height, begin + part.sealed_ns, begin + part.done_ns },
        };

        if (part.what == PART_ABSENT)
                return;
        fprintf(d->out, "<g data-rank=\"%u\" data-collective=\"%" PRIu64 "\">", d->ranks[row], r->collective);
        put_part_title(d, r, d->ranks[row], &part);
        if (part.what == PART_MISSING)
                put_bar(d, b, &(struct bar){ "missing", y, height, begin, begin + part.done_ns });
        for (size_t i = 0; part.what == PART_CAME && i < sizeof(bars) / sizeof(*bars); i++)
                if (bars[i].to_ns > bars[i].from_ns)
                        put_bar(d, b, &bars[i]);
        fputs("</g>\n", d->out);
}

/* The collective's own bar, above the replicas. */
static void put_whole(const struct drawing *d, const struct band *b, const struct trace_item *item) {
        const struct tutti_row_record *r = item->record;
        struct line what = { 0 };

        line_add(&what, ": %s %s, %s after %s", kind_text(r->kind).s, bytes_text(r->bytes).s,
                tutti_status_name(r->status), duration(r->done_ns).s);
        fprintf(d->out, "<g data-collective=\"%" PRIu64 "\"><title>", r->collective);
        put_name(d->out, r->key);
        fprintf(d->out, "%s</title>", what.s);
        put_bar(d, b,
                &(struct bar){ r->status == TUTTI_OK ? "ok" : "failed", d->y + BAND_HEAD - STRIP - 2,
                        STRIP - 2, item->begin_ns, item->end_ns });
        fputs("</g>\n", d->out);
}

static void put_band_head(const struct drawing *d, const struct band *b) {
        fprintf(d->out, "<text class=\"small\" x=\"%d\" y=\"%.1f\">", LEFT, d->y + 14);
        fprintf(d->out, "collective %" PRIu64, b->items[0].record->collective);
        if (b->n_items > 1)
                fprintf(d->out, " to %" PRIu64, b->items[b->n_items - 1].record->collective);
        fputs(" from ", d->out);
        put_clock(d->out, d->t->start_unix_ns + b->from_ns);
        fprintf(d->out, ", %s</text>\n", duration(b->to_ns - b->from_ns).s);
}

static void put_rows(const struct drawing *d) {
        for (uint32_t row = 0; row < d->n_shown; row++) {
                double y = d->y + BAND_HEAD + row * (double)ROW_HEIGHT;

                if (row % 2 == 0)
                        fprintf(d->out,
                                "<rect class=\"row\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n",
                                LEFT, y, PLOT_WIDTH, ROW_HEIGHT);
                fprintf(d->out, "<text class=\"rank\" x=\"%d\" y=\"%.1f\">R%u</text>\n", LEFT - 8, y + 13,
                        d->ranks[row]);
        }
}

static void put_axis(const struct drawing *d, const struct band *b) {
        double top = d->y + BAND_HEAD, bottom = top + d->n_shown * (double)ROW_HEIGHT;

        for (int i = 0; i <= N_TICKS; i++) {
                double x = LEFT + (double)PLOT_WIDTH * i / N_TICKS;
                uint64_t ns = (b->to_ns - b->from_ns) / N_TICKS * (uint64_t)i;

                fprintf(d->out, "<line class=\"tick\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x,
                        x, top, bottom + 4);
                fprintf(d->out, "<text class=\"small\" x=\"%.1f\" y=\"%.1f\"%s>+%s</text>\n", x, bottom + 15,
                        i == N_TICKS ? " text-anchor=\"end\"" : "", duration(ns).s);
        }
}

static void put_band(const struct drawing *d, const struct band *b) {
        put_band_head(d, b);
        put_rows(d);
        put_axis(d, b);
        for (uint32_t i = 0; i < b->n_items; i++) {
                put_whole(d, b, &b->items[i]);
                for (uint32_t row = 0; row < d->n_shown; row++)
                        put_part(d, b, &b->items[i], row);
        }
}

static struct band band_at(const struct trace *t, uint32_t first) {
        struct band b = { .items = &t->items[first],
                .n_items = t->n_items - first < BAND_ITEMS ? t->n_items - first : BAND_ITEMS,
                .from_ns = t->items[first].begin_ns };

        for (uint32_t i = 0; i < b.n_items; i++) {
                b.to_ns = b.items[i].end_ns > b.to_ns ? b.items[i].end_ns : b.to_ns;
                b.n_lanes = b.items[i].lane >= b.n_lanes ? b.items[i].lane + 1 : b.n_lanes;
        }
        b.to_ns = b.to_ns > b.from_ns ? b.to_ns : b.from_ns + 1;
        b.n_lanes = b.n_lanes < MAX_LANES ? b.n_lanes : MAX_LANES;
        return b;
}

/* --- which replicas --- */

struct score {
        uint32_t rank;
        uint64_t late_ns;
};

static int compare_late(const void *a, const void *b) {
        const struct score *x = a, *y = b;

        if (x->late_ns != y->late_ns)
                return x->late_ns > y->late_ns ? -1 : 1;
        return (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_rank(const void *a, const void *b) {
        const uint32_t *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

/* All, or of many those that were late longest; who never came was late until the end. */
static void choose_ranks(struct drawing *d) {
        struct score scores[TUTTI_MAX_WORLD] = { { 0, 0 } };
        uint32_t world = d->t->world_size < TUTTI_MAX_WORLD ? d->t->world_size : TUTTI_MAX_WORLD;

        for (uint32_t rank = 0; rank < world; rank++) {
                scores[rank].rank = rank;
                for (uint32_t i = 0; i < d->t->n_items; i++) {
                        const struct trace_part part = trace_part(d->t->items[i].record, rank);

                        scores[rank].late_ns += part.what == PART_CAME      ? part.arrived_ns
                                                : part.what == PART_MISSING ? part.done_ns
                                                                            : 0;
                }
        }
        qsort(scores, world, sizeof(*scores), compare_late);
        d->n_shown = world < MAX_SHOWN ? world : MAX_SHOWN;
        for (uint32_t i = 0; i < d->n_shown; i++)
                d->ranks[i] = scores[i].rank;
        qsort(d->ranks, d->n_shown, sizeof(*d->ranks), compare_rank);
}

int trace_write_svg(const struct trace *t, FILE *out) {
        struct drawing d = { .t = t, .out = out, .y = HEAD_HEIGHT };

        choose_ranks(&d);
        put_head(&d, (t->n_items + BAND_ITEMS - 1) / BAND_ITEMS);
        for (uint32_t first = 0; first < t->n_items && !ferror(out); first += BAND_ITEMS) {
                struct band b = band_at(t, first);

                put_band(&d, &b);
                d.y += band_height(&d);
        }
        fputs("</svg>\n", out);
        return 0;
}
