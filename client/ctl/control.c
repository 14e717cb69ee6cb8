/* What is done to replicas and to the log. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "query.h"
#include "rows.h"

/* --- kick --- */

/* Whether `text` is a rank: "3", or "R3" as pages print it. */
static bool read_rank(const char *text, uint32_t *ret) {
        char *end;

        text += *text == 'R';
        errno = 0;
        unsigned long rank = strtoul(text, &end, 10);
        if (*end || !isdigit((unsigned char)*text) || errno || rank >= TUTTI_MAX_WORLD)
                return false;
        *ret = (uint32_t)rank;
        return true;
}

static uint32_t pid_of(const struct tutti_answer *groups, const struct tutti_row_group *g, uint32_t rank) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next_of(groups, TUTTI_ROW_MEMBER, g->job, g->group, row)))
                if (row->member.rank == rank)
                        return row->member.pid;
        return 0;
}

static json_t *kick_json(const struct tutti_row_group *g, uint32_t rank, uint32_t pid) {
        json_t *j = json_object(), *whom = json_object();

        json_put(&whom, "job", json_text(g->job));
        json_put(&whom, "group", json_text(g->group));
        json_put(&whom, "rank", json_count(rank));
        json_put(&whom, "pid", pid ? json_count(pid) : json_null());
        json_put(&j, "kicked", whom);
        return j;
}

static int kick_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *groups = NULL;
        const struct tutti_row_group *g = NULL;
        struct line l = { 0 };
        uint32_t rank, pid;
        int r;

        if (!read_rank(q->second, &rank))
                return command_misused(q->command, "a rank is a number from 0 on, not %s", q->second);
        r = query_ask(q, TUTTI_ADMIN_GROUPS, NULL, NULL, &groups);
        if (r == 0)
                r = query_find_group(q, groups, &g);
        if (r != 0)
                return r;
        pid = pid_of(groups, g, rank);
        enum tutti_status status = tutti_admin_kick(q->t, g->job, g->group, rank, q->reason);
        if (status != TUTTI_OK)
                return query_refused(q, status);
        if (q->json)
                return query_put_json(q, kick_json(g, rank, pid), CTL_WELL);
        line_add_group(&l, g->job, g->group);
        if (pid)
                fprintf(q->page.out, "R%u (pid %u) of %s is kicked\n", rank, pid, l.s);
        else
                fprintf(q->page.out, "R%u of %s is kicked\n", rank, l.s);
        return CTL_WELL;
}

const struct command command_kick = {
        .name = "kick",
        .usage = "kick [--reason TEXT] [--json] [--socket PATH] [--user UID] JOB/GROUP RANK",
        .summary = "ends the connection of one replica, with all its memberships",
        .help = "Its peers get REPLICA_LOST, as by death, with who did it and the reason; by the group's\n"
                "on_death they go on or wait for a replacement. The process itself goes on.\n"
                "Within one's own groups; --user UID, for admins: within that user's.\n"
                "\n"
                "JOB/ may be left out where only one job has a group of that name.\n"
                "\n"
                "Exit: 0 done, 1 refused, or no such group or rank, 3 tuttid cannot be asked,\n"
                "77 not allowed.\n",
        .operand = CTL_OPERAND_REQUIRED,
        .second = "rank",
        .takes = CTL_TAKES_REASON,
        .query = kick_query,
};

/* --- log-level --- */

static const char *const levels[] = { "error", "warning", "notice", "info", "debug" };

static bool is_level(const char *word) {
        for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
                if (strcmp(levels[i], word) == 0)
                        return true;
        return false;
}

static int log_level_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *answer = NULL;
        const struct tutti_row *row;
        int r;

        if (q->operand && !is_level(q->operand))
                return command_misused(q->command, "there is no level %s", q->operand);
        enum tutti_status status = q->operand ? tutti_admin_log_level(q->t, q->operand) : TUTTI_OK;
        if (status != TUTTI_OK)
                return query_refused(q, status);
        r = query_ask(q, TUTTI_ADMIN_STATUS, NULL, NULL, &answer);
        if (r != 0)
                return r;
        row = rows_next(answer, TUTTI_ROW_DAEMON, NULL);
        const char *level = row ? row->daemon.log_level : "";
        if (q->json)
                return query_put_json(q, json_pack("{s:o}", "log_level", json_text(level)), CTL_WELL);
        fprintf(q->page.out, "%s\n", level);
        return CTL_WELL;
}

const struct command command_log_level = {
        .name = "log-level",
        .usage = "log-level [--json] [--socket PATH] [error|warning|notice|info|debug]",
        .summary = "which lines tuttid logs, and changes that at once",
        .help = "The level holds until tuttid reloads its configuration (SIGHUP) or ends. Lines of the GPU\n"
                "process keep the level that it was started with.\n"
                "For admins (daemon.admins) and the user that tuttid runs as; everybody may ask.\n"
                "\n"
                "Exit: 0 done, 1 refused, 3 tuttid cannot be asked, 77 not allowed.\n",
        .operand = CTL_OPERAND_WORD,
        .query = log_level_query,
};
