/* Who holds how much of the memory that tuttid maps, and in what pages.
 *
 * Buffers belong to connections, and rows tell of replicas: those of one process that report the same numbers
 * share a connection and count once. */
#include "views.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "query.h"
#include "rows.h"

#define ROW_FORMAT "%7s  %-16s %8s %9s %6s  "
#define INDENT     54 /* where the replicas of a line begin */

#define PAGES_FORMAT "%7s  %9s %9s  "
#define PAGES_GAP    13 /* from what pages they are to why */
#define PAGES_INDENT 42 /* where that begins */

/* Memory of one connection; `first` is its first replica's row. */
struct holder {
        const struct tutti_row_member *first;
};

static bool is_same(const struct tutti_row_member *a, const struct tutti_row_member *b) {
        return a == b || (a->pid && a->pid == b->pid && a->n_buffers == b->n_buffers &&
                                 a->mapped_bytes == b->mapped_bytes);
}

static int compare_bytes(const void *a, const void *b) {
        const struct holder *x = a, *y = b;

        if (x->first->mapped_bytes != y->first->mapped_bytes)
                return x->first->mapped_bytes > y->first->mapped_bytes ? -1 : 1;
        return (x->first > y->first) - (x->first < y->first);
}

static bool is_listed(const struct holder *holders, size_t n, const struct tutti_row_member *m) {
        for (size_t i = 0; i < n; i++)
                if (is_same(holders[i].first, m))
                        return true;
        return false;
}

/* The holders, the largest first; the caller frees. NULL: memory is short. */
static struct holder *find_holders(const struct tutti_answer *groups, size_t *ret_n) {
        struct holder *holders = calloc((groups ? groups->n_rows : 0) + 1, sizeof(*holders));
        const struct tutti_row *row = NULL;
        size_t n = 0;

        while (holders && (row = rows_next(groups, TUTTI_ROW_MEMBER, row)))
                if (row->member.n_buffers && !is_listed(holders, n, &row->member))
                        holders[n++].first = &row->member;
        if (holders)
                qsort(holders, n, sizeof(*holders), compare_bytes);
        *ret_n = n;
        return holders;
}

static const struct tutti_row_quota *find_quota(const struct tutti_answer *quota) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(quota, TUTTI_ROW_QUOTA, row)))
                if (strcmp(row->quota.name, "mapped-bytes") == 0)
                        return &row->quota;
        return NULL;
}

static void print_holder(const struct buffers_view *v, const struct holder *h, const struct page *page) {
        const struct tutti_row_quota *quota = find_quota(v->quota);
        const struct tutti_row *row = NULL;
        struct line process = { 0 }, replicas = { 0 };
        char pid[16] = "?";

        if (h->first->pid)
                snprintf(pid, sizeof(pid), "%u", h->first->pid);
        line_add_safe(&process, h->first->process);
        fprintf(page->out, ROW_FORMAT, pid, process.s, count(h->first->n_buffers).s,
                bytes_text(h->first->mapped_bytes).s,
                percent(h->first->mapped_bytes, quota ? quota->used : 0).s);
        while ((row = rows_next(v->groups, TUTTI_ROW_MEMBER, row))) {
                if (!is_same(h->first, &row->member))
                        continue;
                line_add(&replicas, replicas.used ? "  " : "");
                line_add_group(&replicas, row->member.job, row->member.group);
                line_add(&replicas, " R%u", row->member.rank);
        }
        page_wrap(page, INDENT, INDENT, replicas.s);
}

/* --- pages --- */

/* Of one connection, of one kind. */
struct page_run {
        const struct tutti_row_buffer *first;
        uint64_t n_bytes;
};

static bool is_of_pages(const struct tutti_row_buffer *b) {
        return !*b->device;
}

static bool is_alike(const struct tutti_row_buffer *a, const struct tutti_row_buffer *b) {
        return a->pid == b->pid && a->uid == b->uid && a->page_bytes == b->page_bytes &&
               strcmp(a->path, b->path) == 0 && strcmp(a->why, b->why) == 0;
}

/* Takes those that follow one another and are alike, from `*row` on; false: there are no more. */
static bool next_run(const struct tutti_answer *status, const struct tutti_row **row, struct page_run *ret) {
        *ret = (struct page_run){ 0 };
        while ((*row = rows_next(status, TUTTI_ROW_BUFFER, *row))) {
                if (!is_of_pages(&(*row)->buffer))
                        continue;
                if (!ret->first)
                        ret->first = &(*row)->buffer;
                const struct tutti_row *next = rows_next(status, TUTTI_ROW_BUFFER, *row);
                ret->n_bytes += (*row)->buffer.size_bytes;
                if (!next || !is_of_pages(&next->buffer) || !is_alike(ret->first, &next->buffer))
                        return true;
        }
        return false;
}

static void print_run(const struct page_run *run, const struct page *page) {
        char pid[16] = "?";
        struct line l = { 0 };

        if (run->first->pid)
                snprintf(pid, sizeof(pid), "%u", run->first->pid);
        line_add_safe(&l, run->first->path);
        if (*run->first->why) {
                line_add(&l, "%*s", l.used < PAGES_GAP ? (int)(PAGES_GAP - l.used) : 2, "");
                line_add_safe(&l, run->first->why);
        }
        fprintf(page->out, PAGES_FORMAT, pid, bytes_text(run->n_bytes).s,
                bytes_text(run->first->page_bytes).s);
        page_wrap(page, PAGES_INDENT - PAGES_GAP, PAGES_INDENT, l.s);
}

static void print_pages(const struct buffers_view *v, const struct page *page) {
        const struct tutti_row *row = NULL;
        struct page_run run;

        for (bool is_first = true; next_run(v->status, &row, &run); is_first = false) {
                if (is_first)
                        fprintf(page->out, PAGES_FORMAT "pages        why\n", "pid", "bytes", "page");
                print_run(&run, page);
        }
}

static json_t *run_json(const struct page_run *run) {
        json_t *j = json_object();

        json_put(&j, "pid", run->first->pid ? json_count(run->first->pid) : json_null());
        json_put(&j, "uid", json_count(run->first->uid));
        json_put(&j, "bytes", json_count(run->n_bytes));
        json_put(&j, "page_bytes", json_count(run->first->page_bytes));
        json_put(&j, "pages", json_text(run->first->path));
        json_put(&j, "why", json_text_or_null(run->first->why));
        return j;
}

static json_t *pages_json(const struct tutti_answer *status) {
        const struct tutti_row *row = NULL;
        struct page_run run;
        json_t *j = json_array();

        while (next_run(status, &row, &run))
                json_add(&j, run_json(&run));
        return j;
}

/* --- all --- */

int buffers_print(const struct buffers_view *v, const struct page *page) {
        const struct tutti_row_quota *quota = find_quota(v->quota);
        size_t n;
        struct holder *holders = find_holders(v->groups, &n);

        if (!holders)
                return -ENOMEM;
        if (quota) {
                fprintf(page->out, "%s mapped", bytes_text(quota->used).s);
                fprintf(page->out, " of %s allowed (%s)\n", bytes_text(quota->limit).s,
                        percent(quota->used, quota->limit).s);
        }
        if (n)
                fprintf(page->out, ROW_FORMAT "%s\n", "pid", "process", "buffers", "mapped", "share",
                        "replicas");
        else
                fprintf(page->out, "No buffers of yours.\n");
        for (size_t i = 0; i < n; i++)
                print_holder(v, &holders[i], page);
        free(holders);
        print_pages(v, page);
        return 0;
}

static json_t *holder_json(const struct buffers_view *v, const struct holder *h) {
        json_t *j = json_object(), *replicas = json_array();
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->groups, TUTTI_ROW_MEMBER, row)))
                if (is_same(h->first, &row->member)) {
                        json_t *replica = json_object();

                        json_put(&replica, "job", json_text(row->member.job));
                        json_put(&replica, "group", json_text(row->member.group));
                        json_put(&replica, "rank", json_count(row->member.rank));
                        json_add(&replicas, replica);
                }
        json_put(&j, "pid", h->first->pid ? json_count(h->first->pid) : json_null());
        json_put(&j, "process", json_text_or_null(h->first->process));
        json_put(&j, "buffers", json_count(h->first->n_buffers));
        json_put(&j, "mapped_bytes", json_count(h->first->mapped_bytes));
        json_put(&j, "replicas", replicas);
        return j;
}

json_t *buffers_json(const struct buffers_view *v) {
        const struct tutti_row_quota *quota = find_quota(v->quota);
        size_t n;
        struct holder *holders = find_holders(v->groups, &n);
        json_t *j = holders ? json_object() : NULL, *array = json_array();

        for (size_t i = 0; holders && i < n; i++)
                json_add(&array, holder_json(v, &holders[i]));
        free(holders);
        json_put(&j, "mapped_bytes", quota ? json_count(quota->used) : json_null());
        json_put(&j, "mapped_bytes_limit", quota ? json_count(quota->limit) : json_null());
        json_put(&j, "holders", array);
        json_put(&j, "huge_pages", pages_json(v->status));
        return j;
}

static int buffers_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *groups = NULL, *quota = NULL, *status = NULL;
        struct buffers_view v;
        int r = query_ask(q, TUTTI_ADMIN_GROUPS, NULL, NULL, &groups);

        if (r == 0)
                r = query_ask(q, TUTTI_ADMIN_QUOTA, NULL, NULL, &quota);
        if (r == 0)
                r = query_ask(q, TUTTI_ADMIN_STATUS, NULL, NULL, &status);
        if (r != 0)
                return r;
        v = (struct buffers_view){ groups, quota, status };
        if (q->json)
                return query_put_json(q, buffers_json(&v), CTL_WELL);
        r = buffers_print(&v, &q->page);
        if (r < 0)
                fprintf(stderr, "tuttictl: %s\n", strerror(-r));
        return r < 0 ? CTL_IO : CTL_WELL;
}

const struct command command_buffers = {
        .name = "buffers",
        .usage = "buffers [--json] [--socket PATH] [--user UID]",
        .summary = "who holds how much of the memory that tuttid maps",
        .help = "The largest holders first; share is of what this user has mapped. A connection's buffers\n"
                "serve all its replicas. What belongs to no replica (yet) is in the total alone. Below them\n"
                "stands memory for which huge pages were asked: which it lies in, and why in no others.\n",
        .query = buffers_query,
};
