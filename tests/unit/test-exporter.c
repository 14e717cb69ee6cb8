/* What Prometheus is told of rows as tuttid may send them. */
#include <stdlib.h>
#include <string.h>
#include <tutti/admin.h>
#include "metrics.h"
#include "unit.h"

#define GROUP_ROW(job_, uid_, world_)                                                                        \
        {                                                                                                    \
                .type = TUTTI_ROW_GROUP, .group = {                                                          \
                        .job = (job_),                                                                       \
                        .group = "train",                                                                    \
                        .uid = (uid_),                                                                       \
                        .world_size = (world_),                                                              \
                        .n_alive = 1,                                                                        \
                }                                                                                            \
        }

#define MEMBER_ROW(uid_, state_, ...)                                                                        \
        {                                                                                                    \
                .type = TUTTI_ROW_MEMBER, .member = {                                                        \
                        .job = "dp",                                                                         \
                        .group = "train",                                                                    \
                        .last_key = "k",                                                                     \
                        .uid = (uid_),                                                                       \
                        .state = (state_),                                                                   \
                        .n_last = 2,                                                                         \
                        __VA_ARGS__                                                                          \
                }                                                                                            \
        }

#define STATS_ROW(n_)                                                                                        \
        {                                                                                                    \
                .type = TUTTI_ROW_STATS, .stats = {                                                          \
                        .job = "dp",                                                                         \
                        .group = "train",                                                                    \
                        .kind = TUTTI_KIND_REDUCE,                                                           \
                        .n = (n_),                                                                           \
                        .bytes = 100,                                                                        \
                }                                                                                            \
        }

static const uint64_t counts[] = { 1, 0, 2 };

#define HISTOGRAM_ROW(uid_, measure_)                                                                        \
        {                                                                                                    \
                .type = TUTTI_ROW_HISTOGRAM, .histogram = {                                                  \
                        .job = "dp",                                                                         \
                        .group = "train",                                                                    \
                        .uid = (uid_),                                                                       \
                        .measure = (measure_),                                                               \
                        .kind = TUTTI_KIND_REDUCE,                                                           \
                        .n = 4,                                                                              \
                        .sum_ns = 1000,                                                                      \
                        .bounds_from_ns = 1000,                                                              \
                        .n_counts = 3,                                                                       \
                        .counts = counts,                                                                    \
                }                                                                                            \
        }

/* All that one user has, as often as it has groups of this name. */
struct own {
        struct tutti_row status[2], groups[2], stats[2], histograms[6];
        struct tutti_answer answers[4];
};

static void own_init(struct own *o, uint32_t uid, uint32_t n_groups, struct user_part *ret) {
        for (uint32_t i = 0; i < n_groups; i++) {
                o->status[i] = (struct tutti_row)GROUP_ROW("dp", uid, 3);
                o->groups[i] = (struct tutti_row)MEMBER_ROW(uid, TUTTI_ALIVE);
                o->stats[i] = (struct tutti_row)STATS_ROW(5);
                for (uint32_t k = 0; k < 3; k++)
                        o->histograms[3 * i + k] =
                                (struct tutti_row)HISTOGRAM_ROW(uid, TUTTI_MEASURE_WAIT + k);
        }
        o->answers[0] = (struct tutti_answer){ n_groups, o->status };
        o->answers[1] = (struct tutti_answer){ n_groups, o->groups };
        o->answers[2] = (struct tutti_answer){ n_groups, o->stats };
        o->answers[3] = (struct tutti_answer){ 3 * n_groups, o->histograms };
        *ret = (struct user_part){ uid, &o->answers[0], &o->answers[1], &o->answers[2], &o->answers[3] };
}

static char *text_of(const struct scrape *scrape) {
        char *text = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);
        ck_assert_ptr_nonnull(out);
        ck_assert_int_eq(metrics_write(scrape, out), 0);
        fclose(out);
        return text;
}

/* The whole line of this series, and it alone, stands in the text once. */
static void expect_line(const char *text, const char *line) {
        const char *found = strstr(text, line);
        ck_assert_msg(found && found[strlen(line)] == '\n' && (found == text || found[-1] == '\n'),
                "no line %s in\n%s", line, text);
        ck_assert_msg(!strstr(found + 1, line), "twice: %s", line);
}

static void expect_no_series_twice(const char *text) {
        char *copy = strdup(text), *series[1000], *save;
        size_t n = 0;
        for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                if (*line == '#')
                        continue;
                ck_assert_uint_lt(n, 1000);
                *strrchr(line, ' ') = '\0';
                for (size_t i = 0; i < n; i++)
                        ck_assert_str_ne(series[i], line);
                series[n++] = line;
        }
        free(copy);
}

#define TRAIN "tutti_job=\"dp\",group=\"train\",uid="

START_TEST(users_whose_groups_have_one_name_have_series_of_their_own) {
        struct scrape scrape = { .status = TUTTI_OK, .n_users = 2 };
        struct own own[2];
        own_init(&own[0], 1000, 1, &scrape.users[0]);
        own_init(&own[1], 1001, 1, &scrape.users[1]);
        char *text = text_of(&scrape);
        expect_no_series_twice(text);
        expect_line(text, "tutti_replica_came_last_total{" TRAIN "\"1001\",rank=\"0\"} 2");
        expect_line(text, "tutti_group_collectives_total{" TRAIN "\"1000\",kind=\"reduce\",result=\"ok\"} 5");
        expect_line(text, "tutti_group_read_bytes_total{" TRAIN "\"1001\",kind=\"reduce\"} 100");
        expect_line(text, "tutti_collective_run_seconds_count{" TRAIN "\"1001\",kind=\"reduce\"} 4");
        expect_line(text, "tutti_replica_lateness_seconds_count{" TRAIN "\"1000\",rank=\"0\"} 4");
        free(text);
}
END_TEST

START_TEST(groups_that_differ_in_their_secret_alone_come_together) {
        struct scrape scrape = { .status = TUTTI_OK, .n_users = 1 };
        struct own own;
        own_init(&own, 1000, 2, &scrape.users[0]);
        char *text = text_of(&scrape);
        expect_no_series_twice(text);
        expect_line(text, "tutti_group_world_size{" TRAIN "\"1000\"} 6");
        expect_line(text, "tutti_replica_up{" TRAIN "\"1000\",rank=\"0\"} 1");
        expect_line(
                text, "tutti_group_collectives_total{" TRAIN "\"1000\",kind=\"reduce\",result=\"ok\"} 10");
        expect_line(text,
                "tutti_collective_wait_seconds_bucket{" TRAIN "\"1000\",kind=\"reduce\",le=\"2e-06\"} 2");
        expect_line(text,
                "tutti_collective_wait_seconds_bucket{" TRAIN "\"1000\",kind=\"reduce\",le=\"+Inf\"} 8");
        free(text);
}
END_TEST

START_TEST(a_name_cannot_spoil_a_scrape) {
        static const struct {
                const char *name, *shown;
        } names[] = {
                { "gr\xc3\xbc\xc3\x9f \xf0\x9f\x99\x82", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x99\x82" },
                { "a\"b\\c\nd", "a\\\"b\\\\c\\nd" },
                { "\xff\xc3 \xe2\x82", "?? ??" },
                { "\xed\xa0\x80\xc0\xaf", "?????" },
                { "\x1b[31m\x7f\r", "?[31m??" },
                { "\xc2\x9b"
                  "31m",
                        "?31m" },
        };
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
                const struct tutti_row group = GROUP_ROW(names[i].name, 7, 3);
                struct tutti_answer status = { 1, &group };
                struct scrape scrape = {
                        .status = TUTTI_OK, .n_users = 1, .users = { { .uid = 7, .status = &status } }
                };
                char line[256], *text = text_of(&scrape);
                snprintf(line, sizeof(line),
                        "tutti_group_world_size{tutti_job=\"%s\",group=\"train\",uid=\"7\"} 3",
                        names[i].shown);
                expect_line(text, line);
                free(text);
        }
}
END_TEST

START_TEST(a_replica_that_has_left_is_not_up) {
        static const struct tutti_row rows[] = { MEMBER_ROW(7, TUTTI_ALIVE, .rank = 0),
                MEMBER_ROW(7, TUTTI_ALIVE, .rank = 1, .lost_age_ns = 5),
                MEMBER_ROW(7, TUTTI_STOPPED, .rank = 2) };
        struct tutti_answer groups = { 3, rows };
        struct scrape scrape = {
                .status = TUTTI_OK, .n_users = 1, .users = { { .uid = 7, .groups = &groups } }
        };
        char *text = text_of(&scrape);
        expect_line(text, "tutti_replica_up{" TRAIN "\"7\",rank=\"0\"} 1");
        expect_line(text, "tutti_replica_up{" TRAIN "\"7\",rank=\"1\"} 0");
        expect_line(text, "tutti_replica_up{" TRAIN "\"7\",rank=\"2\"} 0");
        expect_line(text, "tutti_replica_lost{" TRAIN "\"7\",rank=\"1\"} 0");
        ck_assert_ptr_null(strstr(text, "tutti_replica_last_event_age_seconds{" TRAIN "\"7\",rank=\"1\"}"));
        free(text);
}
END_TEST

START_TEST(a_fallback_makes_one_series_whatever_it_counts) {
        static const struct tutti_row rows[][2] = {
                { { .type = TUTTI_ROW_FALLBACK, .fallback = { "huge-pages", "2 MiB in 1 region; pid 17" } },
                        { .type = TUTTI_ROW_FALLBACK, .fallback = { "host", "unguarded" } } },
                { { .type = TUTTI_ROW_FALLBACK, .fallback = { "huge-pages", "3 GiB in 9 regions; pid 18" } },
                        { .type = TUTTI_ROW_FALLBACK, .fallback = { "host", "unguarded" } } },
        };
        struct tutti_answer status[] = { { 2, rows[0] }, { 2, rows[1] } };
        struct scrape scrape = { .status = TUTTI_OK,
                .n_users = 2,
                .users = { { .uid = 7, .status = &status[0] }, { .uid = 8, .status = &status[1] } } };
        char *text = text_of(&scrape);
        expect_line(text, "tutti_fallback{what=\"huge-pages\",why=\"memory for which huge pages were asked "
                          "lies in others\"} 1");
        expect_line(text, "tutti_fallback{what=\"host\",why=\"unguarded\"} 1");
        free(text);
}
END_TEST

START_TEST(losses_are_told_of_each_user_also_where_there_are_none) {
        static const struct tutti_row rows[] = {
                { .type = TUTTI_ROW_QUOTA, .quota = { 7, "groups", 1, 2, 0 } },
                { .type = TUTTI_ROW_LOSSES, .losses = { 7, 3, 2, 1 } },
                { .type = TUTTI_ROW_LOSSES, .losses = { .uid = 8 } },
        };
        struct tutti_answer quota = { 3, rows };
        char *text = text_of(&(struct scrape){ .status = TUTTI_OK, .quota = &quota });
        expect_line(text, "tutti_replicas_lost_total{uid=\"7\",reason=\"died\"} 3");
        expect_line(text, "tutti_replicas_lost_total{uid=\"7\",reason=\"disconnected\"} 2");
        expect_line(text, "tutti_replicas_lost_total{uid=\"7\",reason=\"ejected\"} 1");
        expect_line(text, "tutti_replicas_lost_total{uid=\"8\",reason=\"died\"} 0");
        free(text);
}
END_TEST

UNIT_MAIN("exporter", 10, a_fallback_makes_one_series_whatever_it_counts, a_replica_that_has_left_is_not_up,
        users_whose_groups_have_one_name_have_series_of_their_own,
        groups_that_differ_in_their_secret_alone_come_together, a_name_cannot_spoil_a_scrape,
        losses_are_told_of_each_user_also_where_there_are_none)
