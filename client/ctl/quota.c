/* What this user makes tuttid hold, and how much of it is allowed (P18). */
#include "views.h"

#include <string.h>
#include "json.h"
#include "query.h"
#include "rows.h"

#define NAME_COLUMNS 16
#define USE_FORMAT   " %12s %12s %7s"

static bool is_in_bytes(const struct tutti_row_quota *q) {
        size_t n = strlen(q->name), unit = strlen("bytes");

        return n >= unit && strcmp(q->name + n - unit, "bytes") == 0;
}

static struct word amount(const struct tutti_row_quota *q, uint64_t n) {
        return is_in_bytes(q) ? bytes_text(n) : count(n);
}

static void print_quota(const struct tutti_row_quota *q, const struct page *page) {
        bool is_near = quota_is_near(q);
        struct line name = { 0 };

        line_add_safe(&name, q->name);
        fputs("  ", page->out);
        page_label(page, is_near ? TONE_WARN : TONE_PLAIN, name.s, NAME_COLUMNS);
        fprintf(page->out, USE_FORMAT, amount(q, q->used).s, amount(q, q->limit).s,
                percent(q->used, q->limit).s);
        if (is_near)
                fprintf(page->out, "  %s the limit", q->used < q->limit ? "near" : "at");
        if (q->n_refused)
                fprintf(page->out, "%s%s refused", is_near ? ", " : "  ", count(q->n_refused).s);
        fputc('\n', page->out);
}

void quota_print(const struct tutti_answer *quota, const struct page *page) {
        const struct tutti_row *row = rows_next(quota, TUTTI_ROW_QUOTA, NULL);

        if (!row) {
                fprintf(page->out, "This tuttid names no limits.\n");
                return;
        }
        for (const struct tutti_row *before = NULL; row;
                before = row, row = rows_next(quota, TUTTI_ROW_QUOTA, row)) {
                if (!before || before->quota.uid != row->quota.uid)
                        fprintf(page->out, "uid %u\n  %-*s" USE_FORMAT "\n", row->quota.uid, NAME_COLUMNS,
                                "resource", "used", "limit", "share");
                print_quota(&row->quota, page);
        }
}

static json_t *one_json(const struct tutti_row_quota *q) {
        json_t *j = json_object();
        double share = q->limit ? 100.0 * (double)q->used / (double)q->limit : 0;

        json_put(&j, "name", json_text(q->name));
        json_put(&j, "unit", json_string(is_in_bytes(q) ? "bytes" : "count"));
        json_put(&j, "used", json_count(q->used));
        json_put(&j, "limit", json_count(q->limit));
        json_put(&j, "used_percent", q->limit ? json_real(share) : json_null());
        json_put(&j, "near_limit", json_boolean(quota_is_near(q)));
        json_put(&j, "refused", json_count(q->n_refused));
        return j;
}

/* The rows of one user stand together: from *row on, which moves behind them. */
static json_t *user_json(const struct tutti_answer *quota, const struct tutti_row **row) {
        json_t *j = json_object(), *resources = json_array();
        const struct tutti_row *first = *row;

        for (; *row && (*row)->quota.uid == first->quota.uid; *row = rows_next(quota, TUTTI_ROW_QUOTA, *row))
                json_add(&resources, one_json(&(*row)->quota));
        json_put(&j, "uid", first ? json_count(first->quota.uid) : json_null());
        json_put(&j, "resources", resources);
        return j;
}

json_t *quota_json(const struct tutti_answer *quota) {
        const struct tutti_row *row = rows_next(quota, TUTTI_ROW_QUOTA, NULL);
        json_t *j = user_json(quota, &row), *others = json_array();

        while (row)
                json_add(&others, user_json(quota, &row));
        json_put(&j, "others", others);
        return j;
}

static int quota_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *quota = NULL;
        int r = query_ask(q, TUTTI_ADMIN_QUOTA, NULL, NULL, &quota);

        if (r != 0)
                return r;
        if (q->json)
                return query_put_json(q, quota_json(quota), CTL_WELL);
        quota_print(quota, &q->page);
        return CTL_WELL;
}

const struct command command_quota = {
        .name = "quota",
        .usage = "quota [--json] [--socket PATH] [--user UID]",
        .summary = "what this user makes tuttid hold, and the limits; of an admin or an observer, what "
                   "everybody does",
        .help = "Who is at a limit gets QUOTA; other users do not notice. tuttictl's own connection and\n"
                "its descriptors count. Refused counts requests, also of those who have nothing here now\n"
                "(256 of them are remembered). Limits are set in tuttid.conf, section [quota].\n",
        .query = quota_query,
};
