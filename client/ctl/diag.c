/* diag: three levels, each needs the one before. */
#include "diag.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "diag-tune.h"
#include "json.h"
#include "rows.h"

#define N_ROUND_TRIPS 100
#define SLOW_NS       UINT64_C(5000000) /* of a round trip, at its median */

struct diagnosis *diag_add(struct diag *d, unsigned int level, const char *check) {
        size_t i = d->n < DIAG_MAX_CHECKS ? d->n++ : DIAG_MAX_CHECKS - 1;

        memset(&d->checks[i], 0, sizeof(d->checks[i]));
        d->checks[i].check = check;
        d->levels[i] = level;
        return &d->checks[i];
}

static enum verdict worst_of(const struct diag *d) {
        enum verdict worst = VERDICT_FINE;

        for (size_t i = 0; i < d->n; i++)
                worst = d->checks[i].verdict > worst ? d->checks[i].verdict : worst;
        return worst;
}

static int exit_of(const struct diag *d) {
        enum verdict worst = worst_of(d);

        return worst >= VERDICT_FATAL ? CTL_FAILING : worst == VERDICT_FINDING ? CTL_WARNING : CTL_WELL;
}

/* --- level 1 --- */

static uint64_t now_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int by_size(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

static void check_round_trip(struct query *q, struct diag *d) {
        struct diagnosis *check = diag_add(d, 1, "round-trip");
        uint64_t times[N_ROUND_TRIPS];

        for (int i = 0; i < N_ROUND_TRIPS; i++) {
                struct tutti_answer *answer = NULL;
                uint64_t begun = now_ns();
                if (tutti_admin_ask(q->t, TUTTI_ADMIN_QUOTA, NULL, NULL, &answer) != TUTTI_OK) {
                        check->verdict = VERDICT_FATAL;
                        line_add_safe(&check->text, tutti_error());
                        line_add(&check->advice, "see tuttid's log");
                        return;
                }
                times[i] = now_ns() - begun;
                tutti_answer_free(answer);
        }
        qsort(times, N_ROUND_TRIPS, sizeof(*times), by_size);
        line_add(&check->text, "tuttid answers in %s (p50), %s (p99)", duration(times[N_ROUND_TRIPS / 2]).s,
                duration(times[N_ROUND_TRIPS * 99 / 100]).s);
        if (times[N_ROUND_TRIPS / 2] > SLOW_NS) {
                check->verdict = VERDICT_FINDING;
                line_add(&check->advice,
                        "give tuttid a core to run on: see its CPU limits, and what else runs here");
        }
}

static void check_access(struct diag *d, const struct host_facts *facts) {
        struct diagnosis *check = diag_add(d, 1, "access");
        struct stat st;

        if (stat(facts->socket, &st) < 0) {
                check->verdict = VERDICT_ABSENT;
                line_add(&check->text, "the socket cannot be looked at");
                return;
        }
        line_add(&check->text, "uid %u may connect; the socket is uid %u, gid %u, mode %04o", facts->uid,
                st.st_uid, st.st_gid, st.st_mode & 07777);
        if ((st.st_mode & 0002) && st.st_uid == 0) {
                check->verdict = VERDICT_NOTE;
                line_add(&check->advice,
                        "nothing, where every user of this host may use tuttid; else set daemon.group");
        }
}

static void check_quota(struct diag *d, const struct tutti_answer *quota) {
        struct diagnosis *check = diag_add(d, 1, "quota");
        const struct tutti_row *row = NULL;

        while ((row = rows_next(quota, TUTTI_ROW_QUOTA, row))) {
                const struct tutti_row_quota *r = &row->quota;
                if (!quota_is_near(r) && !r->n_refused)
                        continue;
                line_add(&check->text, "%suid %u: %" PRIu64 " of %" PRIu64 " ", check->text.used ? "; " : "",
                        r->uid, r->used, r->limit);
                line_add_safe(&check->text, r->name);
                if (r->n_refused)
                        line_add(&check->text, ", %" PRIu64 " refused", r->n_refused);
        }
        if (!check->text.used) {
                line_add(&check->text, "nobody is near a limit, nobody was refused");
                return;
        }
        check->verdict = VERDICT_NOTE;
        line_add(&check->advice, "`tuttictl quota`; limits are set in tuttid.conf, section [quota]");
}

static void add_doctor(struct diag *d, const struct doctor_view *v) {
        struct diagnosis one;

        for (size_t i = 0; doctor_check(v, i, &one); i++)
                *diag_add(d, 1, one.check) = one;
}

static uint32_t workers_of(const struct tutti_answer *status) {
        const struct tutti_row *row = rows_next(status, TUTTI_ROW_DEVICE, NULL);

        return row ? row->device.n_workers : 1;
}

/* It takes no replicas then; doctor's check says so. */
static bool is_draining(const struct tutti_answer *status) {
        const struct tutti_row *row = rows_next(status, TUTTI_ROW_DAEMON, NULL);

        return row && row->daemon.draining;
}

bool diag_deployment(struct query *q, struct diag *d) {
        struct doctor_asked asked;

        doctor_ask(q, &asked);
        add_doctor(d, &asked.view);
        bool is_reached = asked.view.reached == TUTTI_OK;
        if (is_reached) {
                d->n_workers = workers_of(asked.status);
                check_access(d, &asked.facts);
                check_quota(d, asked.quota);
                check_round_trip(q, d);
        }
        bool is_serving = is_reached && !is_draining(asked.status);
        doctor_asked_deinit(&asked);
        return is_serving && worst_of(d) < VERDICT_FATAL;
}

/* --- what is said --- */

static const char *const titles[] = { "", "deployment", "correctness", "bandwidth" };

static void print_level(const struct diag *d, unsigned int level, const struct page *page) {
        size_t n_silent = 0;

        fprintf(page->out, "%slevel %u: %s\n", level > 1 ? "\n" : "", level, titles[level]);
        for (int verdict = VERDICT_FATAL; verdict >= VERDICT_FINE; verdict--)
                for (size_t i = 0; i < d->n; i++) {
                        if (d->levels[i] != level || (int)d->checks[i].verdict != verdict)
                                continue;
                        if (level == 1 && verdict < VERDICT_NOTE)
                                n_silent++;
                        else
                                diagnosis_print(&d->checks[i], page);
                }
        if (n_silent)
                fprintf(page->out, "%zu more checks are fine (`tuttictl doctor` lists them)\n", n_silent);
}

static void print_verdict(const struct diag *d, unsigned int level, const struct page *page) {
        enum verdict worst = worst_of(d);
        unsigned int last = d->n ? d->levels[d->n - 1] : 0;

        fputc('\n', page->out);
        if (worst >= VERDICT_FATAL)
                page_label(page, TONE_BAD, "FAILED", 9);
        else if (worst == VERDICT_FINDING)
                page_label(page, TONE_WARN, "findings", 9);
        else
                page_label(page, TONE_GOOD, "passed", 9);
        if (last < level)
                fprintf(page->out, "level %u; what is above must be put right before more can be found out\n",
                        last);
        else
                fprintf(page->out, "level%s %s%u\n", level > 1 ? "s" : "", level > 1 ? "1 to " : "", level);
}

static json_t *diag_json(const struct diag *d) {
        json_t *j = json_object(), *array = json_array();

        for (size_t i = 0; i < d->n; i++) {
                json_t *one = diagnosis_json(&d->checks[i]);
                json_put(&one, "level", json_count(d->levels[i]));
                json_add(&array, one);
        }
        json_put(&j, "exit_code", json_count((uint64_t)exit_of(d)));
        json_put(&j, "verdict",
                json_string(exit_of(d) == CTL_FAILING   ? "failed"
                            : exit_of(d) == CTL_WARNING ? "findings"
                                                        : "passed"));
        json_put(&j, "level", json_count(d->n ? d->levels[d->n - 1] : 0));
        json_put(&j, "checks", array);
        return j;
}

/* Level after level, as far as they go. */
static void run_levels(struct query *q, struct diag *d, unsigned int level) {
        if (!diag_deployment(q, d) || level < 2)
                return;
        diag_correctness(d);
        if (worst_of(d) < VERDICT_FATAL && level >= 3)
                diag_bandwidth(d);
}

static int diag_query(struct query *q) {
        struct diag d = { .socket = q->socket };
        unsigned int level = q->level ? q->level : 2;
        int r = CTL_IO;

        d.checks = calloc(DIAG_MAX_CHECKS, sizeof(*d.checks));
        d.levels = calloc(DIAG_MAX_CHECKS, sizeof(*d.levels));
        if (!d.checks || !d.levels) {
                fprintf(stderr, "tuttictl: out of memory\n");
        } else {
                run_levels(q, &d, level);
                r = exit_of(&d);
                if (q->json)
                        r = query_put_json(q, diag_json(&d), r);
                for (unsigned int i = 1; !q->json && i <= d.levels[d.n - 1]; i++)
                        print_level(&d, i, &q->page);
                if (!q->json)
                        print_verdict(&d, level, &q->page);
        }
        free(d.checks);
        free(d.levels);
        return r;
}

static int diag_main(const struct command *self, int argc, char **argv) {
        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "--tune") == 0)
                        return diag_tune_main(self, argc, argv);
        return query_main(self, argc, argv);
}

const struct command command_diag = {
        .name = "diag",
        .usage = "diag [--level 1|2|3 | --tune [--tuning FILE] [--up-to BYTES]] [--json] [--socket PATH]",
        .summary = "whether tuttid is well deployed, right, and as fast as this machine allows",
        .help = "  level 1  deployment: what doctor checks, access, quotas, how fast tuttid answers\n"
                "  level 2  correctness: every op on every dtype through tuttid, by three replicas of\n"
                "           diag's own, compared with plain code (a second)\n"
                "  level 3  bandwidth: a reduction of 64 MiB beside plain code that moves as much; it\n"
                "           takes 512 MiB and all of tuttid's cores for some seconds\n"
                "\n"
                "Levels 1 and 2 unless --level says otherwise; each level runs those before. Nothing of\n"
                "the trainers' is touched. A drained tuttid takes no replicas: then it ends with level 1.\n"
                "\n"
                "--tune measures instead what thresholds tuttid should have on this host: it reduces sizes "
                "up\n"
                "to BYTES (67108864) over 2, 4, ... GPUs, by one kernel and by NCCL, and writes to FILE\n"
                "(/etc/tutti/tuning.conf) from which size on NCCL is faster. tuttid reads it when it is\n"
                "started or reloaded (plan.tuning). Takes the GPUs while it runs: best when the host is "
                "idle.\n"
                "Exit code 0 also where there is nothing to tune.\n"
                "\n"
                "Exit: 0 passed, 1 findings, 2 wrong results, or tutti cannot run like this.\n",
        .takes = CTL_CONNECTS_ITSELF | CTL_TAKES_LEVEL,
        .query = diag_query,
        .main = diag_main,
};
