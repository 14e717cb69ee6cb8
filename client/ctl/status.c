/* Groups that stand still come first, then broken and forming ones, then the rest: the eye finds who is
 * missing without looking for it. */
#include "status.h"

#include <string.h>
#include "json.h"
#include "query.h"
#include "rows.h"

#define LABEL_COLUMNS 9
#define NAME_COLUMNS  28

static const struct {
        const char *label;
        enum tone tone;
} faces[N_FACES] = {
        [FACE_STALLED] = { "STALLED", TONE_BAD },
        [FACE_FAILED] = { "FAILED", TONE_BAD },
        [FACE_FORMING] = { "forming", TONE_WARN },
        [FACE_WAITING] = { "waiting", TONE_WARN },
        [FACE_OK] = { "ok", TONE_GOOD },
};

const char *group_face_label(enum group_face face) {
        return faces[face].label;
}

enum tone group_face_tone(enum group_face face) {
        return faces[face].tone;
}

/* Younger collectives are the ordinary way of things and not worth a line. */
#define WAITING_NS UINT64_C(1000000000)
#define IDLE_NS    UINT64_C(10000000000)

const struct tutti_row_pending *status_oldest(const struct status_view *v, const struct tutti_row_group *g) {
        const struct tutti_row *row = NULL;
        const struct tutti_row_pending *oldest = NULL;

        while ((row = rows_next_of(v->status, TUTTI_ROW_PENDING, g->job, g->group, row)))
                if (!oldest || row->pending.age_ns > oldest->age_ns)
                        oldest = &row->pending;
        return oldest;
}

bool status_is_stalled(const struct status_view *v, const struct tutti_row_group *g) {
        const struct tutti_row *row = NULL;

        if (g->stalled)
                return true;
        while ((row = rows_next_of(v->status, TUTTI_ROW_PENDING, g->job, g->group, row)))
                if (row->pending.stalled)
                        return true;
        return false;
}

unsigned int status_count_stalled(const struct status_view *v) {
        const struct tutti_row *row = NULL;
        unsigned int n = 0;

        while ((row = rows_next(v->status, TUTTI_ROW_GROUP, row)))
                n += status_is_stalled(v, &row->group);
        return n;
}

enum group_face status_face(const struct status_view *v, const struct tutti_row_group *g) {
        const struct tutti_row_pending *oldest = status_oldest(v, g);

        if (status_is_stalled(v, g))
                return FACE_STALLED;
        if (g->failed)
                return FACE_FAILED;
        if (g->forming)
                return FACE_FORMING;
        return oldest && oldest->age_ns >= WAITING_NS ? FACE_WAITING : FACE_OK;
}

static void print_head(const struct status_view *v, const struct page *page) {
        const struct tutti_row *row = rows_next(v->status, TUTTI_ROW_DAEMON, NULL);
        struct line l = { 0 };

        if (!row)
                return;
        line_add(&l, "tuttid %s   up %s   ", row->daemon.version, duration(row->daemon.uptime_ns).s);
        line_add_devices(&l, v->status);
        line_add(&l, "   %u client%s", row->daemon.n_sessions, row->daemon.n_sessions == 1 ? "" : "s");
        line_add(&l, "   %u group%s", row->daemon.n_groups, row->daemon.n_groups == 1 ? "" : "s");
        page_wrap(page, 0, LABEL_COLUMNS, l.s);
        if (row->daemon.draining) {
                page_label(page, TONE_WARN, "DRAINING", LABEL_COLUMNS);
                struct line why = { 0 };
                line_add_drain(&why, &row->daemon);
                page_wrap(page, LABEL_COLUMNS, LABEL_COLUMNS, why.s);
        }
}

static void print_devices(const struct status_view *v, const struct page *page) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->status, TUTTI_ROW_DEVICE, row))) {
                struct line l = { 0 };

                if (!row->device.failing)
                        continue;
                line_add(&l, "device %s: ", row->device.name);
                line_add_safe(&l, row->device.why);
                page_label(page, TONE_BAD, "FAILING", LABEL_COLUMNS);
                page_wrap(page, LABEL_COLUMNS, LABEL_COLUMNS, l.s);
        }
}

/* The next buffer that has to do with a device; others are of `tuttictl buffers`. */
static const struct tutti_row *next_of_device(const struct tutti_answer *a, const struct tutti_row *after) {
        do
                after = rows_next(a, TUTTI_ROW_BUFFER, after);
        while (after && !*after->buffer.device);
        return after;
}

static bool is_alike(const struct tutti_row_buffer *a, const struct tutti_row_buffer *b) {
        return a->pid == b->pid && a->uid == b->uid && strcmp(a->device, b->device) == 0 &&
               strcmp(a->path, b->path) == 0 && strcmp(a->why, b->why) == 0;
}

/* One line for buffers that follow one another and are reached alike. A copy is slower than it could be. */
static void print_memory_run(
        const struct page *page, const struct tutti_row_buffer *b, uint32_t n, uint64_t n_bytes) {
        struct line l = { 0 };

        if (b->pid)
                line_add(&l, "pid %u: ", b->pid);
        line_add(&l, "%u buffer%s of ", n, n == 1 ? "" : "s");
        line_add_safe(&l, b->device);
        line_add(&l, ", %s, by ", bytes_text(n_bytes).s);
        line_add_safe(&l, b->path);
        if (*b->why) {
                line_add(&l, ": ");
                line_add_safe(&l, b->why);
        }
        page_label(page, strcmp(b->path, "host-copy") == 0 ? TONE_WARN : TONE_PLAIN, "memory", LABEL_COLUMNS);
        page_wrap(page, LABEL_COLUMNS, LABEL_COLUMNS, l.s);
}

static void print_memory(const struct tutti_answer *status, const struct page *page) {
        const struct tutti_row *row = next_of_device(status, NULL);

        while (row) {
                const struct tutti_row_buffer *first = &row->buffer;
                uint64_t n_bytes = 0;
                uint32_t n = 0;

                for (; row && is_alike(first, &row->buffer); n++) {
                        n_bytes += row->buffer.size_bytes;
                        row = next_of_device(status, row);
                }
                print_memory_run(page, first, n, n_bytes);
        }
}

static void print_fallbacks(const struct status_view *v, const struct page *page) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->status, TUTTI_ROW_FALLBACK, row))) {
                struct line l = { 0 };

                line_add_safe(&l, row->fallback.what);
                line_add(&l, ": ");
                line_add_safe(&l, row->fallback.why);
                page_label(page, TONE_WARN, "fallback", LABEL_COLUMNS);
                page_wrap(page, LABEL_COLUMNS, LABEL_COLUMNS, l.s);
        }
}

void line_add_group_fallback(struct line *l, const struct tutti_row_group_fallback *f) {
        line_add_group(l, f->job, f->group);
        line_add(l, ": ");
        if (*f->why) {
                line_add_safe(l, f->why);
                line_add(l, "; %s does it", f->algorithm);
        } else {
                line_add(l, "other reasons than these");
        }
        line_add(l, ": %s time%s, last %s ", count(f->n).s, f->n == 1 ? "" : "s", kind_text(f->kind).s);
        line_add_key(l, f->key);
        line_add(l, " %s ago", duration(f->last_age_ns).s);
}

static void print_group_fallbacks(const struct status_view *v, const struct page *page) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->status, TUTTI_ROW_GROUP_FALLBACK, row))) {
                struct line l = { 0 };

                line_add_group_fallback(&l, &row->group_fallback);
                page_label(page, TONE_WARN, "fallback", LABEL_COLUMNS);
                page_wrap(page, LABEL_COLUMNS, LABEL_COLUMNS, l.s);
        }
}

void line_add_unreported(struct line *l, const struct tutti_row_pending *p) {
        struct tutti_ranks rest = p->missing;
        uint64_t any = 0;

        for (uint32_t i = 0; i < p->n_replicas; i++)
                if (p->replicas[i].rank < TUTTI_MAX_WORLD)
                        rest.words[p->replicas[i].rank / 64] &= ~(UINT64_C(1) << p->replicas[i].rank % 64);
        for (size_t i = 0; i < sizeof(rest.words) / sizeof(*rest.words); i++)
                any |= rest.words[i];
        if (!any)
                return;
        line_add(l, "%s", p->n_replicas ? "and " : "");
        line_add_ranks(l, &rest);
}

static void print_missing_line(const struct page *page, const struct line *l, bool is_first) {
        fputs("  ", page->out);
        page_label(page, TONE_BAD, is_first ? "MISSING " : "", 8);
        page_wrap(page, 10, 10, l->s);
}

static void print_missing(const struct page *page, const struct tutti_row_pending *p) {
        struct line rest = { 0 };

        if (p->running)
                return;
        for (uint32_t i = 0; i < p->n_replicas; i++) {
                struct line l = { 0 };

                line_add_replica(&l, &p->replicas[i]);
                print_missing_line(page, &l, i == 0);
        }
        line_add_unreported(&rest, p);
        if (rest.used)
                print_missing_line(page, &rest, p->n_replicas == 0);
}

/* Who keeps results to itself: worth a line when no slot is left for the next, or after a while. */
static void print_holder(
        const struct page *page, const struct tutti_row_result *r, const struct tutti_holder *h) {
        struct line l = { 0 };

        line_add(&l, "R%u (pid ", h->rank);
        if (h->pid)
                line_add(&l, "%u, ", h->pid);
        else
                line_add(&l, "?, ");
        line_add(&l, "%s) holds %u result%s of \"", tutti_process_state_name(h->state), h->n_slots,
                h->n_slots == 1 ? "" : "s");
        line_add_safe(&l, r->name);
        line_add(&l, "\", oldest %s; %u of %u free", duration(h->oldest_age_ns).s, r->n_free, r->n_slots);
        fputs("  ", page->out);
        page_label(page, r->n_free ? TONE_PLAIN : TONE_BAD, "HOLDING ", 8);
        page_wrap(page, 10, 10, l.s);
}

static void print_holders(
        const struct status_view *v, const struct page *page, const struct tutti_row_group *g) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next_of(v->status, TUTTI_ROW_RESULT, g->job, g->group, row)))
                for (uint32_t i = 0; i < row->result.n_holders; i++) {
                        const struct tutti_holder *h = &row->result.holders[i];

                        if (row->result.n_free == 0 || h->oldest_age_ns >= WAITING_NS)
                                print_holder(page, &row->result, h);
                }
}

static void line_add_pending(
        struct line *l, const struct tutti_row_group *g, const struct tutti_row_pending *p) {
        line_add(l, "  %s ", kind_text(p->kind).s);
        line_add_key(l, p->key);
        line_add(l, "  %s %s", p->running ? "running" : "waiting", duration(p->age_ns).s);
        if (!p->running) {
                line_add(l, "  have ");
                line_add_ranks(l, &p->have);
        }
        if (!p->running && p->kind == TUTTI_KIND_MERGE_RESULT) { /* all others come at once */
                line_add(l, "  the merge function runs on ");
                line_add_ranks(l, &p->missing);
        }
        if (g->n_pending > 1)
                line_add(l, "  +%u more", g->n_pending - 1);
}

/* Per second of the time in which it was at work: idle time since the last result does not count. */
static void line_add_rates(struct line *l, const struct tutti_row_group *g) {
        uint64_t busy_ns = g->age_ns - (g->last_done_age_ns < g->age_ns ? g->last_done_age_ns : g->age_ns);
        double seconds = (double)busy_ns / 1e9;

        if (!g->n_done || busy_ns == 0) {
                line_add(l, "  nothing finished yet");
                return;
        }
        if (g->last_done_age_ns > IDLE_NS)
                line_add(l, "  idle %s  (%s done)", duration(g->last_done_age_ns).s, count(g->n_done).s);
        else
                line_add(l, "  %s ops/s  %s/s", count((uint64_t)((double)g->n_done / seconds + 0.5)).s,
                        bytes_text((uint64_t)((double)g->bytes / seconds)).s);
}

#define MAX_NAMED 8

uint32_t line_add_losses(struct line *l, const struct tutti_answer *stats, const struct tutti_row_group *g,
        const char *begin) {
        const struct tutti_row *row = NULL;
        uint32_t n = 0;

        while ((row = rows_next_of(stats, TUTTI_ROW_MEMBER, g->job, g->group, row))) {
                if (!row->member.lost || n++ >= MAX_NAMED)
                        continue;
                line_add(l, "%s R%u (pid %u, %s %s ago)", n == 1 ? begin : "", row->member.rank,
                        row->member.pid, tutti_loss_name(row->member.loss),
                        duration(row->member.lost_age_ns).s);
        }
        if (n > MAX_NAMED)
                line_add(l, " and %u more", n - MAX_NAMED);
        return n;
}

/* Of a group that goes on without some of its replicas. */
static void line_add_absent(struct line *l, const struct status_view *v, const struct tutti_row_group *g) {
        if (g->n_alive >= g->world_size)
                return;
        line_add(l, "  %u of %u", g->n_alive, g->world_size);
        line_add_losses(l, v->stats, g, "  lost:");
}

static void line_add_flow(struct line *l, const struct status_view *v, const struct tutti_row_group *g) {
        const struct tutti_row_member *latest = rows_latest_member(v->stats, g->job, g->group);

        line_add_absent(l, v, g);
        line_add_rates(l, g);
        if (g->n_failed)
                line_add(l, "  %s failed", count(g->n_failed).s);
        if (latest)
                line_add(l, "  latest R%u (+%s p50)", latest->rank, duration(latest->lateness_p50_ns).s);
}

static void line_add_lost(struct line *l, const struct status_view *v, const struct tutti_row_group *g) {
        line_add(l, "  on_death=fail");
        line_add_losses(l, v->stats, g, ", and lost:"); /* nobody, where newcomers have all ranks */
}

void line_add_reform(struct line *l, const struct tutti_row_group *g) {
        uint64_t any = 0;

        if (g->restored)
                line_add(l, "  carried over a restart of tuttid");
        if (!g->n_waiting)
                return;
        line_add(l, "  %u wait%s for a new epoch", g->n_waiting, g->n_waiting == 1 ? "s" : "");
        for (size_t i = 0; i < sizeof(g->awaited.words) / sizeof(*g->awaited.words); i++)
                any |= g->awaited.words[i];
        if (!any)
                return;
        line_add(l, ", missing ");
        line_add_ranks(l, &g->awaited);
}

static void line_add_forming(struct line *l, const struct status_view *v, const struct tutti_row_group *g) {
        struct tutti_ranks missing = { { 0 } };
        const struct tutti_row *row = NULL;

        for (uint32_t r = 0; r < g->world_size; r++)
                tutti_ranks_add(&missing, r);
        while ((row = rows_next_of(v->stats, TUTTI_ROW_MEMBER, g->job, g->group, row)))
                if (row->member.state != TUTTI_ABSENT && !row->member.lost &&
                        row->member.rank < TUTTI_MAX_WORLD)
                        missing.words[row->member.rank / 64] &= ~(UINT64_C(1) << row->member.rank % 64);
        line_add(l, "  %u of %u have joined in %s, not yet ", g->n_alive, g->world_size,
                duration(g->age_ns).s);
        line_add_ranks(l, &missing);
}

static void print_group(const struct status_view *v, const struct page *page, const struct tutti_row_group *g,
        enum group_face face, int name_columns) {
        const struct tutti_row_pending *oldest = status_oldest(v, g);
        bool waits = oldest && (face == FACE_STALLED || face == FACE_WAITING);
        struct line name = { 0 }, l = { 0 };

        line_add_group(&name, g->job, g->group);
        page_label(page, faces[face].tone, faces[face].label, LABEL_COLUMNS);
        fprintf(page->out, "%-*s", name_columns, name.s);
        if (waits) {
                line_add_pending(&l, g, oldest);
                line_add_absent(&l, v, g);
        } else if (face == FACE_FAILED) {
                line_add_lost(&l, v, g);
        } else if (face == FACE_FORMING) {
                line_add_forming(&l, v, g);
        } else {
                line_add_flow(&l, v, g);
        }
        line_add_reform(&l, g);
        page_wrap(page, LABEL_COLUMNS + (name.used > (size_t)name_columns ? name.used : (size_t)name_columns),
                LABEL_COLUMNS, l.s);
        if (waits)
                print_missing(page, oldest);
        print_holders(v, page, g);
}

/* Wide enough for the names there are, so that columns meet; a very long name runs over. */
static int name_columns(const struct status_view *v) {
        const struct tutti_row *row = NULL;
        size_t widest = 0;

        while ((row = rows_next(v->status, TUTTI_ROW_GROUP, row))) {
                size_t n = strlen(row->group.job) + 1 + strlen(row->group.group);

                if (n > widest && n <= NAME_COLUMNS)
                        widest = n;
        }
        return (int)widest;
}

static const struct tutti_row_group *first_stalled(const struct status_view *v) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->status, TUTTI_ROW_GROUP, row)))
                if (status_is_stalled(v, &row->group))
                        return &row->group;
        return NULL;
}

static void print_foot(const struct status_view *v, const struct page *page) {
        const struct tutti_row_group *g = first_stalled(v);
        struct line l = { 0 };

        if (!g)
                return;
        line_add(&l, "%u stalled. `tuttictl dump ", status_count_stalled(v));
        line_add_group_for_shell(&l, g->job, g->group);
        line_add(&l, "` shows its last collectives.");
        page_wrap(page, 0, 0, l.s);
}

void status_print(const struct status_view *v, const struct page *page) {
        int columns = name_columns(v);

        print_head(v, page);
        fputc('\n', page->out);
        print_devices(v, page);
        for (enum group_face face = 0; face < N_FACES; face++) {
                const struct tutti_row *row = NULL;

                while ((row = rows_next(v->status, TUTTI_ROW_GROUP, row)))
                        if (!row->group.ended && status_face(v, &row->group) == face)
                                print_group(v, page, &row->group, face, columns);
        }
        print_memory(v->status, page);
        print_fallbacks(v, page);
        print_group_fallbacks(v, page);
        if (!rows_next(v->status, TUTTI_ROW_GROUP, NULL))
                fprintf(page->out, "No groups of yours.\n");
        print_foot(v, page);
}

static json_t *group_fallback_json(const struct tutti_row_group_fallback *f) {
        json_t *j = json_object();

        json_put(&j, "why", json_text_or_null(f->why));
        json_put(&j, "algorithm", json_text_or_null(f->algorithm));
        json_put(&j, "collectives", json_count(f->n));
        json_put(&j, "last_kind", json_text(kind_text(f->kind).s));
        json_put(&j, "last_key", json_text(f->key));
        json_put(&j, "last_age_ns", json_count(f->last_age_ns));
        return j;
}

static json_t *group_with_pending(const struct status_view *v, const struct tutti_row_group *g) {
        const struct tutti_row_member *latest = rows_latest_member(v->stats, g->job, g->group);
        const struct tutti_row *row = NULL;
        json_t *j = json_group(g), *pending = json_array(), *results = json_array(),
               *fallbacks = json_array();

        while ((row = rows_next_of(v->status, TUTTI_ROW_PENDING, g->job, g->group, row)))
                json_add(&pending, json_pending(&row->pending));
        json_put(&j, "latest_rank", latest ? json_count(latest->rank) : json_null());
        json_put(&j, "latest_lateness_p50_ns", latest ? json_count(latest->lateness_p50_ns) : json_null());
        row = NULL;
        while ((row = rows_next_of(v->status, TUTTI_ROW_RESULT, g->job, g->group, row)))
                json_add(&results, json_result(&row->result));
        json_put(&j, "oldest_pending", pending);
        json_put(&j, "results", results);
        row = NULL;
        while ((row = rows_next_of(v->status, TUTTI_ROW_GROUP_FALLBACK, g->job, g->group, row)))
                json_add(&fallbacks, group_fallback_json(&row->group_fallback));
        json_put(&j, "fallbacks", fallbacks);
        return j;
}

static json_t *fallback_json(const struct tutti_row_fallback *f) {
        json_t *j = json_object();

        json_put(&j, "what", json_text(f->what));
        json_put(&j, "why", json_text(f->why));
        return j;
}

json_t *status_json(const struct status_view *v) {
        json_t *j = json_object(), *devices = json_array(), *fallbacks = json_array(), *groups = json_array(),
               *buffers = json_array();
        const struct tutti_row *daemon = rows_next(v->status, TUTTI_ROW_DAEMON, NULL), *row = NULL;

        while ((row = rows_next(v->status, TUTTI_ROW_DEVICE, row)))
                json_add(&devices, json_device(&row->device));
        while ((row = rows_next(v->status, TUTTI_ROW_FALLBACK, row)))
                json_add(&fallbacks, fallback_json(&row->fallback));
        while ((row = rows_next(v->status, TUTTI_ROW_GROUP, row)))
                json_add(&groups, group_with_pending(v, &row->group));
        json_put(&j, "stalled", json_count(status_count_stalled(v)));
        json_put(&j, "tuttid", daemon ? json_daemon(&daemon->daemon) : json_null());
        while ((row = next_of_device(v->status, row)))
                json_add(&buffers, json_buffer(&row->buffer));
        json_put(&j, "devices", devices);
        json_put(&j, "device_buffers", buffers);
        json_put(&j, "fallbacks", fallbacks);
        json_put(&j, "groups", groups);
        return j;
}

static int status_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *status = NULL, *stats = NULL;
        struct status_view v;
        int r = query_ask(q, TUTTI_ADMIN_STATUS, NULL, NULL, &status);

        if (r == 0)
                r = query_ask(q, TUTTI_ADMIN_STATS, NULL, NULL, &stats);
        if (r != 0)
                return r;
        v = (struct status_view){ status, stats };
        r = status_count_stalled(&v) ? CTL_WARNING : CTL_WELL;
        if (q->json)
                return query_put_json(q, status_json(&v), r);
        status_print(&v, &q->page);
        return r;
}

const struct command command_status = {
        .name = "status",
        .usage = "status [--json] [--socket PATH] [--user UID]",
        .summary = "who is missing, and how tuttid and its groups are",
        .help = "Groups that stand still come first, with the replicas they wait for.\n"
                "Rates are means over the time since the group was formed.\n"
                "\n"
                "Exit: 0 nothing stands still, 1 something does, 3 tuttid cannot be asked, 77 not allowed.\n",
        .query = status_query,
};
