#include "doctor.h"

#include <stdio.h>
#include <string.h>
#include "json.h"
#include "query.h"
#include "rows.h"

/* --- pages --- */

#define CHECK_COLUMNS 13

static const struct {
        const char *name;
        enum tone tone;
} verdicts[N_VERDICTS] = {
        [VERDICT_FINE] = { "fine", TONE_GOOD },
        [VERDICT_ABSENT] = { "absent", TONE_FAINT },
        [VERDICT_NOTE] = { "note", TONE_PLAIN },
        [VERDICT_FINDING] = { "finding", TONE_WARN },
        [VERDICT_FATAL] = { "FATAL", TONE_BAD },
};

void diagnosis_print(const struct diagnosis *d, const struct page *page) {
        struct line l = { 0 };

        line_add(&l, "%-*s", CHECK_COLUMNS, d->check);
        line_add(&l, "%s", d->text.s);
        page_label(page, verdicts[d->verdict].tone, verdicts[d->verdict].name, 9);
        page_wrap(page, 9, 9 + CHECK_COLUMNS, l.s);
        if (!d->advice.used)
                return;
        fprintf(page->out, "%*s-> ", 9 + CHECK_COLUMNS - 3, "");
        page_wrap(page, 9 + CHECK_COLUMNS, 9 + CHECK_COLUMNS, d->advice.s);
}

/* The worst first; within, in the order of the table. */
void doctor_print(const struct doctor_view *v, const struct page *page) {
        struct diagnosis d;

        for (int verdict = VERDICT_FATAL; verdict >= VERDICT_FINE; verdict--)
                for (size_t i = 0; doctor_check(v, i, &d); i++)
                        if ((int)d.verdict == verdict)
                                diagnosis_print(&d, page);
}

json_t *diagnosis_json(const struct diagnosis *d) {
        json_t *j = json_object();

        json_put(&j, "check", json_string(d->check));
        json_put(&j, "verdict",
                json_string(d->verdict == VERDICT_FATAL ? "fatal" : verdicts[d->verdict].name));
        json_put(&j, "text", json_text(d->text.s));
        json_put(&j, "advice", json_text_or_null(d->advice.s));
        return j;
}

json_t *doctor_json(const struct doctor_view *v) {
        json_t *j = json_object(), *array = json_array();
        struct diagnosis d;

        for (size_t i = 0; doctor_check(v, i, &d); i++)
                json_add(&array, diagnosis_json(&d));
        json_put(&j, "exit_code", json_count((uint64_t)doctor_exit(v)));
        json_put(&j, "socket", json_text(v->facts->socket));
        json_put(&j, "checks", array);
        return j;
}

/* --- the command --- */

/* Where tuttid is sought: with --socket there; "" when no place has a socket. */
static void find_socket(struct query *q, char *path, size_t size) {
        snprintf(path, size, "%s", q->socket ? q->socket : "");
        if (!q->socket && tutti_admin_socket_path(path, size) != TUTTI_OK)
                snprintf(path, size, "/run/tutti/tuttid.sock");
}

static void ask_tuttid(
        struct query *q, struct tutti_answer **status, struct tutti_answer **quota, struct doctor_view *v) {
        v->reached = tutti_open(q->socket, &q->t);
        if (v->reached == TUTTI_OK)
                v->reached = tutti_admin_ask(q->t, TUTTI_ADMIN_STATUS, NULL, NULL, status);
        if (v->reached == TUTTI_OK)
                v->reached = tutti_admin_ask(q->t, TUTTI_ADMIN_QUOTA, NULL, NULL, quota);
        v->status = *status;
        v->quota = *quota;
}

void doctor_ask(struct query *q, struct doctor_asked *ret) {
        const struct tutti_row *daemon;
        char socket[1024];

        memset(ret, 0, sizeof(*ret));
        ret->view.facts = &ret->facts;
        find_socket(q, socket, sizeof(socket));
        ask_tuttid(q, &ret->status, &ret->quota, &ret->view);
        snprintf(ret->why, sizeof(ret->why), "%s", ret->view.reached == TUTTI_OK ? "" : tutti_error());
        ret->view.why = ret->why;
        daemon = rows_next(ret->status, TUTTI_ROW_DAEMON, NULL);
        facts_look(&ret->facts, "", socket, daemon ? daemon->daemon.pid : 0);
}

void doctor_asked_deinit(struct doctor_asked *a) {
        tutti_answer_free(a->status);
        tutti_answer_free(a->quota);
}

static int doctor_query(struct query *q) {
        struct doctor_asked asked;
        int r;

        doctor_ask(q, &asked);
        r = doctor_exit(&asked.view);
        if (q->json)
                r = query_put_json(q, doctor_json(&asked.view), r);
        else
                doctor_print(&asked.view, &q->page);
        doctor_asked_deinit(&asked);
        return r;
}

const struct command command_doctor = {
        .name = "doctor",
        .usage = "doctor [--json] [--socket PATH]",
        .summary = "what on this host hinders tutti, and what to do about it",
        .help = "Checks the kernel's features, limits, huge pages, NUMA, IOMMU, GPU driver, containers,\n"
                "users, and whether tuttid can be asked. Run it where the trainers run: in their\n"
                "container, as their user. Notes change nothing.\n"
                "\n"
                "Exit: 0 fine, 1 findings, 2 tutti cannot run like this.\n",
        .takes = CTL_CONNECTS_ITSELF,
        .query = doctor_query,
};
