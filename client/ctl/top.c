#include "top.h"

#include <string.h>
#include <time.h>
#include <unistd.h>
#include "json.h"
#include "rows.h"

#define DEFAULT_INTERVAL_NS UINT64_C(1000000000)

#define NAME_COLUMNS 22
#define MORE_COLUMNS 106 /* on a wide terminal */
#define ROW_FORMAT   "%8s %10s %8s %8s%s%s\n"
#define NO_LIMIT     UINT32_MAX

/* --- rates --- */

static const struct tutti_row_group *group_before(const struct top_view *v, const struct tutti_row_group *g) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->before.status, TUTTI_ROW_GROUP, row)))
                if (strcmp(row->group.job, g->job) == 0 && strcmp(row->group.group, g->group) == 0)
                        return &row->group;
        return NULL;
}

static double rate(const struct top_view *v, uint64_t now, uint64_t before) {
        if (!v->interval_ns)
                return 0;
        /* It was formed anew meanwhile: it counts from 0 again. */
        return (double)(now >= before ? now - before : now) * 1e9 / (double)v->interval_ns;
}

static double ops_rate(const struct top_view *v, const struct tutti_row_group *g) {
        const struct tutti_row_group *before = group_before(v, g);

        return rate(v, g->n_done, before ? before->n_done : 0);
}

static double bytes_rate(const struct top_view *v, const struct tutti_row_group *g) {
        const struct tutti_row_group *before = group_before(v, g);

        return rate(v, g->bytes, before ? before->bytes : 0);
}

/* Of the kind that the group does most. */
static const struct tutti_row_stats *main_kind(const struct top_view *v, const struct tutti_row_group *g) {
        const struct tutti_row_stats *most = NULL;
        const struct tutti_row *row = NULL;

        while ((row = rows_next_of(v->now.stats, TUTTI_ROW_STATS, g->job, g->group, row)))
                if (!most || row->stats.n > most->n)
                        most = &row->stats;
        return most;
}

static double busy_share(const struct top_view *v, const struct tutti_row_device *d) {
        const struct tutti_row *row = NULL;
        double busy_ns = 0;

        while ((row = rows_next(v->before.status, TUTTI_ROW_DEVICE, row)))
                if (strcmp(row->device.name, d->name) == 0 && d->busy_ns >= row->device.busy_ns)
                        busy_ns = (double)(d->busy_ns - row->device.busy_ns);
        if (!v->interval_ns || !d->n_workers)
                return 0;
        busy_ns /= (double)v->interval_ns * d->n_workers;
        return busy_ns < 1 ? busy_ns : 1;
}

/* --- a screen --- */

/* Lines that may still be written, and the groups that found no room. */
struct screen {
        const struct page *page;
        uint32_t n_left, n_hidden, name_columns;
};

static bool screen_has_room(struct screen *s) {
        if (s->n_left > 1) { /* the last is for what is hidden */
                if (s->n_left != NO_LIMIT)
                        s->n_left--;
                return true;
        }
        return false;
}

static struct word rounded(double n) {
        return count((uint64_t)(n + 0.5));
}

static void print_head(const struct top_view *v, struct screen *s) {
        const struct tutti_row *daemon = rows_next(v->now.status, TUTTI_ROW_DAEMON, NULL), *row = NULL;
        double ops = 0, bytes = 0;
        struct line l = { 0 };

        if (daemon && screen_has_room(s))
                fprintf(s->page->out, "tuttid %s  up %s  %u client%s  %u group%s  %u stalled%s\n",
                        daemon->daemon.version, duration(daemon->daemon.uptime_ns).s,
                        daemon->daemon.n_sessions, daemon->daemon.n_sessions == 1 ? "" : "s",
                        daemon->daemon.n_groups, daemon->daemon.n_groups == 1 ? "" : "s",
                        status_count_stalled(&v->now), daemon->daemon.draining ? "  DRAINING" : "");
        while ((row = rows_next(v->now.status, TUTTI_ROW_GROUP, row))) {
                ops += ops_rate(v, &row->group);
                bytes += bytes_rate(v, &row->group);
        }
        line_add(&l, "%s ops/s  %s/s", rounded(ops).s, bytes_text((uint64_t)bytes).s);
        while ((row = rows_next(v->now.status, TUTTI_ROW_DEVICE, row)))
                line_add(&l, "  %s %.0f %% busy", row->device.name, 100 * busy_share(v, &row->device));
        if (screen_has_room(s))
                fprintf(s->page->out, "%s\n", l.s);
        if (screen_has_room(s))
                fputc('\n', s->page->out);
        if (screen_has_room(s))
                fprintf(s->page->out, "%-9s%-*s" ROW_FORMAT, "", (int)s->name_columns, "group", "ops/s",
                        "bytes/s", "wait p50", "run p50", "  ", "latest");
}

/* Cut to its column, between two characters: what stands below must not move. */
static void line_cut(struct line *l, size_t columns) {
        size_t n = columns - 3;

        if (l->used <= columns)
                return;
        while (n > 0 && ((unsigned char)l->s[n] & 0xc0) == 0x80)
                n--;
        memcpy(l->s + n, "...", 4);
        l->used = n + 3;
}

/* Names that are too long begin alike more often than they end alike. */
static void name_cut(struct line *l, size_t columns) {
        size_t from = l->used + 3 - columns;

        if (l->used <= columns)
                return;
        while (((unsigned char)l->s[from] & 0xc0) == 0x80)
                from++;
        memmove(l->s + 3, l->s + from, l->used - from + 1);
        memcpy(l->s, "...", 3);
        l->used += 3 - from;
}

static void print_missing(const struct top_view *v, const struct tutti_row_group *g, struct screen *s) {
        const struct tutti_row_pending *oldest = status_oldest(&v->now, g);
        struct line l = { 0 };

        if (!oldest || !screen_has_room(s))
                return;
        line_add(&l, "%s %s", oldest->running ? "running" : "waiting", duration(oldest->age_ns).s);
        if (!oldest->running)
                line_add(&l, "  missing ");
        if (!oldest->running && oldest->n_replicas)
                line_add_replica(&l, &oldest->replicas[0]);
        else if (!oldest->running)
                line_add_ranks(&l, &oldest->missing);
        if (oldest->n_replicas > 1)
                line_add(&l, " and %u more", oldest->n_replicas - 1);
        line_add(&l, "  ");
        line_add_key(&l, oldest->key);
        line_cut(&l, PAGE_COLUMNS - 9 + s->name_columns - NAME_COLUMNS);
        fprintf(s->page->out, "%9s%s\n", "", l.s);
}

static void print_group(const struct top_view *v, const struct tutti_row_group *g, struct screen *s) {
        const struct tutti_row_member *latest = rows_latest_member(v->now.stats, g->job, g->group);
        const struct tutti_row_stats *kind = main_kind(v, g);
        enum group_face face = status_face(&v->now, g);
        struct line name = { 0 }, who = { 0 };

        if (!screen_has_room(s)) {
                s->n_hidden++;
                return;
        }
        line_add_group(&name, g->job, g->group);
        name_cut(&name, s->name_columns);
        if (latest)
                line_add(&who, "R%u +%s", latest->rank, duration(latest->lateness_p50_ns).s);
        page_label(s->page, group_face_tone(face), group_face_label(face), 9);
        fprintf(s->page->out, "%-*s" ROW_FORMAT, (int)s->name_columns, name.s, rounded(ops_rate(v, g)).s,
                bytes_text((uint64_t)bytes_rate(v, g)).s, kind ? duration(kind->wait_p50_ns).s : "-",
                kind ? duration(kind->run_p50_ns).s : "-", who.used ? "  " : "", who.s);
        if (face == FACE_STALLED || face == FACE_WAITING)
                print_missing(v, g, s);
}

/* With room for what a name may be. */
static uint32_t name_columns_of(const struct top_size *size) {
        uint32_t more = size->columns > PAGE_COLUMNS ? size->columns - PAGE_COLUMNS : 0;

        return NAME_COLUMNS + (more < MORE_COLUMNS ? more : MORE_COLUMNS);
}

void top_print(const struct top_view *v, const struct page *page, const struct top_size *size) {
        struct screen s = { .page = page, .n_left = size->lines, .name_columns = name_columns_of(size) };

        print_head(v, &s);
        for (enum group_face face = 0; face < N_FACES; face++) {
                const struct tutti_row *row = NULL;

                while ((row = rows_next(v->now.status, TUTTI_ROW_GROUP, row)))
                        if (!row->group.ended && status_face(&v->now, &row->group) == face)
                                print_group(v, &row->group, &s);
        }
        if (!rows_next(v->now.status, TUTTI_ROW_GROUP, NULL) && screen_has_room(&s))
                fprintf(page->out, "No groups of yours.\n");
        if (s.n_hidden)
                fprintf(page->out, "... and %u more group%s\n", s.n_hidden, s.n_hidden == 1 ? "" : "s");
}

/* --- JSON --- */

static const char *const face_names[N_FACES] = {
        [FACE_STALLED] = "stalled",
        [FACE_FAILED] = "failed",
        [FACE_FORMING] = "forming",
        [FACE_WAITING] = "waiting",
        [FACE_OK] = "ok",
};

static json_t *device_json(const struct top_view *v, const struct tutti_row_device *d) {
        json_t *j = json_object();

        json_put(&j, "name", json_text(d->name));
        json_put(&j, "workers", json_count(d->n_workers));
        json_put(&j, "busy_percent", json_real(100 * busy_share(v, d)));
        return j;
}

static json_t *group_json(const struct top_view *v, const struct tutti_row_group *g) {
        const struct tutti_row_member *latest = rows_latest_member(v->now.stats, g->job, g->group);
        const struct tutti_row_pending *oldest = status_oldest(&v->now, g);
        const struct tutti_row_stats *kind = main_kind(v, g);
        json_t *j = json_object();

        json_put(&j, "job", json_text(g->job));
        json_put(&j, "group", json_text(g->group));
        json_put(&j, "state", json_string(face_names[status_face(&v->now, g)]));
        json_put(&j, "ops_per_second", json_real(ops_rate(v, g)));
        json_put(&j, "bytes_per_second", json_real(bytes_rate(v, g)));
        json_put(&j, "wait_p50_ns", kind ? json_count(kind->wait_p50_ns) : json_null());
        json_put(&j, "run_p50_ns", kind ? json_count(kind->run_p50_ns) : json_null());
        json_put(&j, "latest_rank", latest ? json_count(latest->rank) : json_null());
        json_put(&j, "latest_lateness_p50_ns", latest ? json_count(latest->lateness_p50_ns) : json_null());
        json_put(&j, "oldest_pending", oldest ? json_pending(oldest) : json_null());
        return j;
}

json_t *top_json(const struct top_view *v) {
        const struct tutti_row *daemon = rows_next(v->now.status, TUTTI_ROW_DAEMON, NULL), *row = NULL;
        json_t *j = json_object(), *devices = json_array(), *groups = json_array();

        while ((row = rows_next(v->now.status, TUTTI_ROW_DEVICE, row)))
                json_add(&devices, device_json(v, &row->device));
        while ((row = rows_next(v->now.status, TUTTI_ROW_GROUP, row)))
                json_add(&groups, group_json(v, &row->group));
        json_put(&j, "interval_ns", json_count(v->interval_ns));
        json_put(&j, "tuttid", daemon ? json_daemon(&daemon->daemon) : json_null());
        json_put(&j, "devices", devices);
        json_put(&j, "groups", groups);
        return j;
}

/* --- looking --- */

void top_look_deinit(struct top_look *look) {
        tutti_answer_free(look->status);
        tutti_answer_free(look->stats);
        *look = (struct top_look){ 0 };
}

enum tutti_status top_take_look(const struct query *q, struct top_look *look) {
        enum tutti_status status;
        struct timespec now;

        top_look_deinit(look);
        clock_gettime(CLOCK_MONOTONIC, &now);
        look->at_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        status = tutti_admin_ask(q->t, TUTTI_ADMIN_STATUS, NULL, NULL, &look->status);
        if (status == TUTTI_OK)
                status = tutti_admin_ask(q->t, TUTTI_ADMIN_STATS, NULL, NULL, &look->stats);
        return status;
}

struct top_view top_view_of(const struct top_look *before, const struct top_look *now) {
        return (struct top_view){ { before->status, before->stats }, { now->status, now->stats },
                now->at_ns - before->at_ns };
}

static void sleep_ns(uint64_t ns) {
        struct timespec left = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

        while (nanosleep(&left, &left) < 0)
                ;
}

static int print_view(struct query *q, const struct top_view *v) {
        int exit_code = status_count_stalled(&v->now) ? CTL_WARNING : CTL_WELL;

        if (q->json)
                return query_put_json(q, top_json(v), exit_code);
        top_print(v, &q->page, &(struct top_size){ NO_LIMIT, PAGE_COLUMNS });
        return exit_code;
}

static int print_once(struct query *q, uint64_t interval_ns) {
        struct top_look before = { 0 }, now = { 0 };
        enum tutti_status status = top_take_look(q, &before);
        struct top_view v;
        int r;

        if (status == TUTTI_OK) {
                sleep_ns(interval_ns);
                status = top_take_look(q, &now);
        }
        v = top_view_of(&before, &now);
        r = status == TUTTI_OK ? print_view(q, &v) : query_report(q, status);
        top_look_deinit(&before);
        top_look_deinit(&now);
        return r;
}

static int top_query(struct query *q) {
        uint64_t interval_ns = q->interval_ns ? q->interval_ns : DEFAULT_INTERVAL_NS;

        if (q->json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
                return print_once(q, interval_ns);
        return top_watch(q, interval_ns);
}

const struct command command_top = {
        .name = "top",
        .usage = "top [--json] [--interval SECONDS] [--socket PATH] [--user UID]",
        .summary = "what happens now, live: rates, waiting, who is latest",
        .help = "Looks every second, unless --interval says how often; q ends. Rates are those between two\n"
                "looks; wait, run and latest are medians since the group was formed. Groups that stand\n"
                "still come first, with whom they wait for.\n"
                "\n"
                "Where standard output is no terminal, and with --json, it looks twice, writes once and\n"
                "ends: with 1 when something stands still, as status does.\n",
        .takes = CTL_TAKES_INTERVAL,
        .query = top_query,
};
