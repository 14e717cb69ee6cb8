/* What tuttictl --json prints is what docs/schema/ says, for answers of every kind; and a document that is
 * not is noticed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "ctl-answers.h"
#include "json.h"
#include "query.h"
#include "status.h"
#include "top.h"
#include "unit.h"
#include "views.h"

#define NO_JSONSCHEMA 77

static const struct tutti_answer status_answer = { sizeof(status_rows) / sizeof(*status_rows), status_rows };
static const struct tutti_answer stats_answer = { sizeof(stats_rows) / sizeof(*stats_rows), stats_rows };
static const struct tutti_answer quota_answer = { sizeof(quota_rows) / sizeof(*quota_rows), quota_rows };
static const struct tutti_answer record_answer = { sizeof(record_rows) / sizeof(*record_rows), record_rows };
static const struct tutti_answer empty;

static const struct status_view full_status = { &status_answer, &stats_answer },
                                no_status = { &empty, &empty };
static const struct health_view full_health = { &status_answer, &stats_answer, &quota_answer },
                                no_health = { &empty, &empty, &empty };
static const struct tutti_row_group train = { .job = "dp", .group = "train", .epoch = 3 };
static const struct dump_view full_dump = { &record_answer, &stats_answer, "dp", "train", "host1",
        1700000000 * S, &train },
                              no_dump = { &empty, &empty, "dp", "train", "host1", 0 };

/* 0: it is what the schema says; 1: it is not. */
static int check(const char *schema, json_t *document) {
        char command[512];
        FILE *checker;
        int status;

        ck_assert_ptr_nonnull(document);
        snprintf(command, sizeof(command), "python3 %s/tests/support/check-schema.py %s/docs/schema/%s.json",
                TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT, schema);
        checker = popen(command, "we");
        ck_assert_ptr_nonnull(checker);
        ck_assert_int_eq(json_dumpf(document, checker, 0), 0);
        status = pclose(checker);
        json_decref(document);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NO_JSONSCHEMA)
                unit_skip("python3-jsonschema is not installed");
        ck_assert(WIFEXITED(status));
        return WEXITSTATUS(status);
}

START_TEST(status_is_as_described_L2) {
        ck_assert_int_eq(check("status", status_json(&full_status)), 0);
        ck_assert_int_eq(check("status", status_json(&no_status)), 0);
}
END_TEST

static json_t *all_groups(void) {
        struct tutti_row
                rows[sizeof(status_rows) / sizeof(*status_rows) + sizeof(stats_rows) / sizeof(*stats_rows)];

        memcpy(rows, status_rows, sizeof(status_rows));
        memcpy(rows + sizeof(status_rows) / sizeof(*status_rows), stats_rows, sizeof(stats_rows));
        return groups_json(&(struct tutti_answer){ sizeof(rows) / sizeof(*rows), rows });
}

START_TEST(groups_are_as_described) {
        ck_assert_int_eq(check("groups", all_groups()), 0);
        ck_assert_int_eq(check("groups", groups_json(&empty)), 0);
}
END_TEST

START_TEST(health_is_as_described) {
        ck_assert_int_eq(check("health", health_json(&full_health)), 0);
        ck_assert_int_eq(check("health", health_json(&no_health)), 0);
}
END_TEST

START_TEST(stats_are_as_described) {
        ck_assert_int_eq(check("stats", stats_json(&stats_answer)), 0);
        ck_assert_int_eq(check("stats", stats_json(&empty)), 0);
}
END_TEST

START_TEST(quota_is_as_described_P18) {
        ck_assert_int_eq(check("quota", quota_json(&quota_answer)), 0);
        ck_assert_int_eq(check("quota", quota_json(&empty)), 0);
}
END_TEST

START_TEST(dump_is_as_described_L1) {
        ck_assert_int_eq(check("dump", dump_json(&full_dump)), 0);
        ck_assert_int_eq(check("dump", dump_json(&no_dump)), 0);
}
END_TEST

static const struct top_view full_top = { { &status_answer, &stats_answer },
        { &status_answer, &stats_answer }, S },
                             no_top = { { &empty, &empty }, { &empty, &empty }, 0 };
static const struct buffers_view full_buffers = { &stats_answer, &quota_answer, &status_answer },
                                 no_buffers = { &empty, &empty, &empty };

START_TEST(replicas_buffers_and_top_are_as_described) {
        ck_assert_int_eq(check("replicas", replicas_json(&stats_answer, NULL)), 0);
        ck_assert_int_eq(check("replicas", replicas_json(&empty, NULL)), 0);
        ck_assert_int_eq(check("buffers", buffers_json(&full_buffers)), 0);
        ck_assert_int_eq(check("buffers", buffers_json(&no_buffers)), 0);
        ck_assert_int_eq(check("top", top_json(&full_top)), 0);
        ck_assert_int_eq(check("top", top_json(&no_top)), 0);
}
END_TEST

START_TEST(errors_are_as_described_everywhere) {
        static const char *const schemas[] = { "status", "groups", "health", "stats", "quota", "dump",
                "trace", "top", "replicas", "buffers" };

        for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++)
                ck_assert_int_eq(check(schemas[i], json_error_object("NO_DAEMON", "nobody answers")), 0);
}
END_TEST

/* The check can fail: a field too many, one too few, one of another type. */
START_TEST(what_is_not_as_described_is_noticed) {
        json_t *more = status_json(&full_status), *less = status_json(&full_status),
               *other = status_json(&full_status);

        json_object_set_new(json_object_get(more, "tuttid"), "surprise", json_true());
        ck_assert_int_eq(check("status", more), 1);
        json_object_del(json_array_get(json_object_get(less, "groups"), 0), "age_ns");
        ck_assert_int_eq(check("status", less), 1);
        json_object_set_new(other, "stalled", json_string("1"));
        ck_assert_int_eq(check("status", other), 1);
}
END_TEST

static const json_t *at(const json_t *array, size_t i, const char *key) {
        return json_object_get(json_array_get(array, i), key);
}

START_TEST(status_holds_the_values_of_the_rows) {
        json_t *j = status_json(&full_status);
        const json_t *groups = json_object_get(j, "groups"), *pending = at(groups, 1, "oldest_pending"),
                     *missing = at(pending, 0, "missing_replicas");

        ck_assert_int_eq(json_integer_value(json_object_get(j, "stalled")), 1);
        ck_assert_str_eq(json_string_value(at(groups, 1, "state")), "stalled");
        ck_assert_int_eq(json_integer_value(at(groups, 1, "last_done_age_ns")), 12500000000);
        ck_assert(json_is_null(at(groups, 2, "last_done_age_ns")));
        ck_assert_int_eq(json_integer_value(at(groups, 0, "latest_rank")), 5);
        ck_assert_uint_eq(json_array_size(pending), 1);
        ck_assert_str_eq(json_string_value(at(pending, 0, "key")), "grad/7");
        ck_assert_int_eq(json_integer_value(at(pending, 0, "age_ns")), 12400000000);
        ck_assert_uint_eq(json_array_size(at(pending, 0, "have")), 3);
        ck_assert_int_eq(json_integer_value(json_array_get(at(pending, 0, "missing"), 0)), 3);
        ck_assert_int_eq(json_integer_value(at(missing, 0, "pid")), 4711);
        ck_assert_str_eq(json_string_value(at(missing, 0, "state")), "stopped");
        ck_assert_int_eq(json_integer_value(at(missing, 0, "last_age_ns")), 12500000000);
        ck_assert(json_is_null(at(at(at(groups, 2, "oldest_pending"), 0, "missing_replicas"), 0, "pid")));
        const json_t *results = at(groups, 0, "results"), *holders = at(results, 0, "holders");
        ck_assert_uint_eq(json_array_size(at(groups, 1, "results")), 0);
        ck_assert_str_eq(json_string_value(at(results, 0, "name")), "sums");
        ck_assert_int_eq(json_integer_value(at(results, 0, "free_slots")), 0);
        ck_assert_int_eq(json_integer_value(at(holders, 0, "rank")), 2);
        ck_assert_int_eq(json_integer_value(at(holders, 0, "results")), 2);
        ck_assert_int_eq(json_integer_value(at(holders, 0, "oldest_age_ns")), 12300000000);
        ck_assert(json_is_null(at(holders, 1, "pid")));
        const json_t *fallbacks = at(groups, 0, "fallbacks");
        ck_assert_uint_eq(json_array_size(at(groups, 1, "fallbacks")), 0);
        ck_assert_uint_eq(json_array_size(fallbacks), 2);
        ck_assert_str_eq(json_string_value(at(fallbacks, 0, "algorithm")), "one_device");
        ck_assert_int_eq(json_integer_value(at(fallbacks, 0, "collectives")), 41200);
        ck_assert_str_eq(json_string_value(at(fallbacks, 0, "last_key")), "grad");
        ck_assert_int_eq(json_integer_value(at(fallbacks, 0, "last_age_ns")), 300000000);
        ck_assert(json_is_null(at(fallbacks, 1, "why")));
        const json_t *buffers = json_object_get(j, "device_buffers");
        ck_assert_uint_eq(json_array_size(buffers), 3);
        ck_assert_str_eq(json_string_value(at(buffers, 1, "path")), "vmm-fd");
        ck_assert_int_eq(json_integer_value(at(buffers, 1, "bytes")), 3 << 20);
        ck_assert(json_is_null(at(buffers, 1, "why")));
        ck_assert(json_is_null(at(buffers, 2, "pid")));
        ck_assert_str_eq(json_string_value(at(buffers, 2, "why")), "legacy handles are off");
        json_decref(j);
}
END_TEST

START_TEST(quota_holds_the_values_of_the_rows_P18) {
        json_t *j = quota_json(&quota_answer);
        const json_t *resources = json_object_get(j, "resources");

        ck_assert_int_eq(json_integer_value(json_object_get(j, "uid")), 1000);
        ck_assert_uint_eq(json_array_size(resources), 3);
        ck_assert_str_eq(json_string_value(at(resources, 0, "name")), "connections");
        ck_assert_str_eq(json_string_value(at(resources, 0, "unit")), "count");
        ck_assert_int_eq(json_integer_value(at(resources, 0, "used")), 250);
        ck_assert_int_eq(json_integer_value(at(resources, 0, "limit")), 256);
        ck_assert(json_real_value(at(resources, 0, "used_percent")) == 97.65625);
        ck_assert(json_is_true(at(resources, 0, "near_limit")));
        ck_assert(json_is_false(at(resources, 1, "near_limit")));
        ck_assert_str_eq(json_string_value(at(resources, 2, "unit")), "bytes");
        ck_assert_int_eq(json_integer_value(at(resources, 2, "limit")), INT64_C(16) << 30);
        ck_assert(json_real_value(at(resources, 2, "used_percent")) == 9.375);
        json_decref(j);
}
END_TEST

START_TEST(dump_holds_the_values_of_the_rows) {
        json_t *j = dump_json(&full_dump);
        const json_t *records = json_object_get(j, "records"), *arrivals = at(records, 2, "arrived_after_ns");

        ck_assert_int_eq(json_integer_value(json_object_get(j, "dropped")), 12345);
        ck_assert(json_is_true(json_object_get(j, "shortened")));
        ck_assert_int_eq(json_integer_value(json_object_get(j, "missed")), 3);
        ck_assert_int_eq(json_integer_value(at(records, 1, "missed_before")), 0);
        ck_assert_int_eq(json_integer_value(at(records, 2, "missed_before")), 2);
        ck_assert_uint_eq(json_array_size(json_object_get(j, "members")), 1);
        ck_assert_uint_eq(json_array_size(records), 3);
        ck_assert_int_eq(json_integer_value(at(records, 0, "start_unix_ns")), 1699999980000000000);
        ck_assert_int_eq(json_integer_value(at(records, 0, "sealed_after_ns")), 300000);
        ck_assert(json_is_null(at(records, 1, "dtype")));
        ck_assert_str_eq(json_string_value(at(records, 2, "status")), "TIMEOUT");
        ck_assert(json_is_null(at(records, 2, "sealed_after_ns")));
        ck_assert_int_eq(json_integer_value(at(records, 2, "guilty_rank")), 3);
        ck_assert_uint_eq(json_array_size(arrivals), 4);
        ck_assert_int_eq(json_integer_value(json_array_get(arrivals, 1)), 5000);
        ck_assert(json_is_null(json_array_get(arrivals, 3)));
        json_decref(j);
}
END_TEST

START_TEST(bytes_that_are_no_text_do_not_spoil_a_document) {
        const char name[] = { 'a', (char)0xff, 'b', 0 };
        json_t *text = json_text(name), *most = json_count(UINT64_MAX);

        ck_assert_str_eq(json_string_value(text), "a?b");
        ck_assert_int_eq(json_integer_value(most), INT64_MAX);
        json_decref(text);
        json_decref(most);
}
END_TEST

/* A control character of UTF-8 (CSI) moves a terminal as one of ASCII does. */
START_TEST(a_document_is_ascii_whatever_names_hold) {
        char *text = NULL;
        size_t n;
        struct query q = { .page = { .out = open_memstream(&text, &n) } };
        json_t *root = json_object(), *read;

        ck_assert_ptr_nonnull(q.page.out);
        json_put(&root, "job",
                json_text("gr\xc3\xbc\xc3\x9f\xc2\x9b"
                          "31m"));
        ck_assert_int_eq(query_put_json(&q, root, 7), 7);
        fclose(q.page.out);
        for (size_t i = 0; i < n; i++)
                ck_assert_uint_lt((unsigned char)text[i], 0x80);
        read = json_loads(text, 0, NULL);
        ck_assert_str_eq(json_string_value(json_object_get(read, "job")), "gr\xc3\xbc\xc3\x9f\xc2\x9b"
                                                                          "31m");
        json_decref(read);
        free(text);
}
END_TEST

static int calls_left, n_held;

static void *failing_malloc(size_t n) {
        void *p = calls_left-- > 0 ? malloc(n) : NULL;

        n_held += p != NULL;
        return p;
}

static void counting_free(void *p) {
        n_held -= p != NULL;
        free(p);
}

/* Memory fails at the n-th call, n upward until all passes: no document, nothing leaked, nothing freed twice.
 */
static void fail_each_call(json_t *(*make)(void)) {
        json_t *j = NULL;
        int n;

        for (n = 0; !j; n++) {
                calls_left = n;
                j = make();
                ck_assert_msg(j || n_held == 0, "%d pieces are left after call %d failed", n_held, n);
        }
        ck_assert_int_gt(n, 50);
        json_decref(j);
        ck_assert_int_eq(n_held, 0);
}

static json_t *full_status_json(void) {
        return status_json(&full_status);
}

static json_t *full_dump_json(void) {
        return dump_json(&full_dump);
}

static json_t *full_health_json(void) {
        return health_json(&full_health);
}

static json_t *full_stats_json(void) {
        return stats_json(&stats_answer);
}

static json_t *full_quota_json(void) {
        return quota_json(&quota_answer);
}

static json_t *full_top_json(void) {
        return top_json(&full_top);
}

static json_t *full_replicas_json(void) {
        return replicas_json(&stats_answer, NULL);
}

static json_t *full_buffers_json(void) {
        return buffers_json(&full_buffers);
}

START_TEST(short_memory_gives_no_half_document) {
        json_set_alloc_funcs(failing_malloc, counting_free);
        fail_each_call(full_status_json);
        fail_each_call(full_dump_json);
        fail_each_call(full_stats_json);
        fail_each_call(all_groups);
        fail_each_call(full_health_json);
        fail_each_call(full_quota_json);
        fail_each_call(full_top_json);
        fail_each_call(full_replicas_json);
        fail_each_call(full_buffers_json);
}
END_TEST

UNIT_MAIN("ctl-json", 30, status_is_as_described_L2, groups_are_as_described, health_is_as_described,
        stats_are_as_described, quota_is_as_described_P18, dump_is_as_described_L1,
        replicas_buffers_and_top_are_as_described, errors_are_as_described_everywhere,
        what_is_not_as_described_is_noticed, status_holds_the_values_of_the_rows,
        quota_holds_the_values_of_the_rows_P18, dump_holds_the_values_of_the_rows,
        bytes_that_are_no_text_do_not_spoil_a_document, a_document_is_ascii_whatever_names_hold,
        short_memory_gives_no_half_document)
