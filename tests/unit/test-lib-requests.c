/* Joining, busy, abort, and the questions of tutti/admin.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "failing.h"
#include "lib-server.h"
#include "lib/connection.h"

/* --- joining --- */

static void script_join(struct server *s) {
        struct msg_join *seen = s->arg;
        server_greet(s);
        struct request r = server_take(s, REQUEST_JOIN);
        *seen = r.join;
        seen->job = strdup(r.join.job);
        seen->group = strdup(r.join.group);
        seen->secret = strdup(r.join.secret);
        server_refuse(s, r.request, STATUS_BUSY, FIELD_RANK, "rank 2 is taken");
        server_serve(s);
}

static void free_seen(struct msg_join *seen) {
        free((char *)seen->job);
        free((char *)seen->group);
        free((char *)seen->secret);
}

START_TEST(a_join_says_what_was_given) {
        struct msg_join seen;
        struct server *s = server_start(script_join, &seen);
        struct tutti *t = client_open(s);
        struct tutti_group *g = NULL;
        setenv("TUTTI_JOB_SECRET", "from the environment", 1);
        ck_assert_int_eq(tutti_join(t,
                                 &TUTTI_JOIN(.group = "g", .job = "j", .rank = 2, .world_size = 3,
                                         .join_timeout = 1.5, .default_timeout = -1, .on_death = TUTTI_SHRINK,
                                         .on_leave = TUTTI_ZERO_FILL, .secret = "given"),
                                 &g),
                TUTTI_BUSY);
        ck_assert_ptr_null(g);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "rank 2 is taken"));
        ck_assert_str_eq(seen.job, "j");
        ck_assert_str_eq(seen.group, "g");
        ck_assert_str_eq(seen.secret, "given");
        ck_assert_uint_eq(seen.rank, 2);
        ck_assert_uint_eq(seen.world_size, 3);
        ck_assert_uint_eq(seen.join_timeout_ns, 1500000000);
        ck_assert_int_eq(seen.has_default_timeout, true);
        ck_assert_uint_eq(seen.default_timeout_ns, 0);
        ck_assert_int_eq(seen.on_death, ON_DEATH_SHRINK);
        ck_assert_int_eq(seen.on_leave, ON_LEAVE_ZERO_FILL);
        tutti_close(t);
        server_end(s);
        free_seen(&seen);
}
END_TEST

START_TEST(a_join_takes_the_rest_from_the_environment) {
        struct msg_join seen;
        struct server *s = server_start(script_join, &seen);
        struct tutti *t = client_open(s);
        struct tutti_group *g = NULL;
        setenv("TUTTI_JOB", "run-1", 1);
        setenv("TUTTI_JOB_SECRET", "s", 1);
        setenv("TUTTI_RANK", "1", 1);
        setenv("TUTTI_WORLD_SIZE", "4", 1);
        ck_assert_int_eq(tutti_join(t, &TUTTI_JOIN(.group = "g"), &g), TUTTI_BUSY);
        ck_assert_str_eq(seen.job, "run-1");
        ck_assert_str_eq(seen.secret, "s");
        ck_assert_uint_eq(seen.rank, 1);
        ck_assert_uint_eq(seen.world_size, 4);
        ck_assert_int_eq(seen.has_default_timeout, false);
        ck_assert_uint_eq(seen.join_timeout_ns, 0);
        ck_assert_int_eq(seen.on_death, ON_DEATH_FAIL);
        ck_assert_int_eq(seen.on_leave, ON_LEAVE_CONTRIBUTORS);
        tutti_close(t);
        server_end(s);
        free_seen(&seen);
}
END_TEST

static void script_serve(struct server *s) {
        server_greet(s);
        server_serve(s);
}

START_TEST(wrong_arguments_of_a_join_are_refused_here) {
        static const char long_name[] = "0123456789012345678901234567890123456789012345678901234567890123";
        struct server *s = server_start(script_serve, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = NULL;
        const struct {
                struct tutti_join_args args;
                enum tutti_status status;
                enum tutti_field field;
        } wrong[] = {
                { { 0 }, TUTTI_INVALID, TUTTI_FIELD_SIZE },
                { TUTTI_JOIN(.job = "j"), TUTTI_INVALID, TUTTI_FIELD_GROUP },
                { TUTTI_JOIN(.group = "", .job = "j"), TUTTI_INVALID, TUTTI_FIELD_GROUP },
                { TUTTI_JOIN(.group = long_name, .job = "j"), TUTTI_LIMIT, TUTTI_FIELD_GROUP },
                { TUTTI_JOIN(.group = "g"), TUTTI_INVALID, TUTTI_FIELD_JOB },
                { TUTTI_JOIN(.group = "g", .job = "j"), TUTTI_INVALID, TUTTI_FIELD_RANK },
                { TUTTI_JOIN(.group = "g", .job = "j", .rank = 1), TUTTI_INVALID, TUTTI_FIELD_WORLD_SIZE },
                { TUTTI_JOIN(.group = "g", .job = "j", .rank = -2, .world_size = 2), TUTTI_INVALID,
                        TUTTI_FIELD_RANK },
                { TUTTI_JOIN(.group = "g", .job = "j", .world_size = -2), TUTTI_INVALID,
                        TUTTI_FIELD_WORLD_SIZE },
                { TUTTI_JOIN(.group = "g", .job = "j", .world_size = 1, .join_timeout = -1), TUTTI_INVALID,
                        TUTTI_FIELD_TIMEOUT },
                { TUTTI_JOIN(.group = "g", .job = "j", .world_size = 1, .on_death = (enum tutti_on_death)5),
                        TUTTI_INVALID, TUTTI_FIELD_OPTIONS },
                { TUTTI_JOIN(.group = "g", .job = "j", .world_size = 1, .on_leave = (enum tutti_on_leave)5),
                        TUTTI_INVALID, TUTTI_FIELD_OPTIONS },
        };
        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
                ck_assert_msg(
                        tutti_join(t, &wrong[i].args, &g) == wrong[i].status, "%zu: %s", i, tutti_error());
                ck_assert_int_eq(tutti_error_info()->field, wrong[i].field);
        }
        ck_assert_int_eq(tutti_join(t, NULL, &g), TUTTI_INVALID);
        ck_assert_int_eq(tutti_join(NULL, &TUTTI_JOIN(.group = "g"), &g), TUTTI_INVALID);
        struct tutti_join_args args;
        tutti_join_args_init(&args);
        args.group = "g";
        args.job = "j";
        args.world_size = 1;
        ck_assert_int_eq(tutti_join(t, &args, &g), TUTTI_OK);
        ck_assert_ptr_nonnull(g);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- busy and abort --- */

static void script_words(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_BUSY);
        ck_assert_uint_eq(r.busy.membership, 7);
        ck_assert_str_eq(r.busy.why, "checkpoint");
        ck_assert_uint_eq(r.busy.duration_ns, 10000000000);
        server_ok(s, r.request);
        r = server_take(s, REQUEST_ABORT);
        ck_assert_uint_eq(r.abort.membership, 7);
        ck_assert_str_eq(r.abort.reason, "loss is NaN");
        ck_assert_uint_eq(r.abort.key.n_bytes, 6);
        ck_assert_mem_eq(r.abort.key.bytes, "grad/7", 6);
        server_refuse(s, r.request, STATUS_NOT_FOUND, FIELD_KEY, "nobody has submitted it");
        server_serve(s);
}

START_TEST(busy_and_abort_say_what_was_given) {
        struct server *s = server_start(script_words, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(tutti_busy(g, "checkpoint", 10), TUTTI_OK);
        ck_assert_int_eq(tutti_abort(g, "grad/7", "loss is NaN"), TUTTI_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "nobody has submitted it"));
        ck_assert_int_eq(tutti_busy(g, "x", -1), TUTTI_INVALID);
        /* A request that no packet holds. */
        char *reason = calloc(1, MAX_PACKET_BYTES + 1);
        memset(reason, 'x', MAX_PACKET_BYTES);
        ck_assert_int_eq(tutti_abort(g, "k", reason), TUTTI_LIMIT);
        free(reason);
        ck_assert(list_is_empty(&t->others));
        ck_assert_int_eq(tutti_busy(g, "x", 0), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- answers --- */

#define N_ROWS 1000

static void script_rows(struct server *s) {
        static struct replica_report report = { .rank = 3,
                .pid = 4711,
                .state = PROCESS_STOPPED,
                .has_last = true,
                .last_key = { .sequence = 6 },
                .last_age_ns = 12500000000 };
        static uint64_t arrivals[] = { 0, 17, UINT64_MAX };
        struct row rows[4] = {
                { .type = ROW_DAEMON,
                        .daemon = { .version = "0.1.0",
                                .socket = "/s",
                                .isa = "AVX2",
                                .pid = 9,
                                .draining = true } },
                { .type = ROW_PENDING,
                        .pending = { .job = "dp",
                                .group = "train",
                                .key = key_sequence(7),
                                .kind = KIND_REDUCE,
                                .missing = { { 8 } },
                                .n_replicas = 1,
                                .replicas = &report,
                                .stalled = true } },
                { .type = ROW_RECORD,
                        .record = { .job = "dp",
                                .group = "train",
                                .kind = KIND_BARRIER,
                                .status = STATUS_TIMEOUT,
                                .n_arrivals = 3,
                                .arrival_ns = arrivals } },
                { .type = ROW_QUOTA,
                        .quota = { .uid = 1000, .name = "connections", .used = 3, .limit = 256 } },
        };
        key_name(&rows[2].record.key, "grad/7", 6);
        server_greet(s);
        struct request r = server_take(s, REQUEST_QUERY);
        ck_assert_int_eq(r.query.what, WHAT_STATUS);
        ck_assert_str_eq(r.query.job, "dp");
        ck_assert_str_eq(r.query.group, "");
        for (int i = 0; i < N_ROWS; i++)
                server_reply(s, &(struct reply){ .request = r.request,
                                        .status = STATUS_OK,
                                        .more = i + 1 < N_ROWS,
                                        .type = REPLY_ROWS,
                                        .rows = { .rows = rows, .n_rows = 4 } });
        r = server_take(s, REQUEST_QUERY);
        server_refuse(s, r.request, STATUS_NOT_FOUND, FIELD_GROUP, "no such group");
        server_serve(s);
}

START_TEST(an_answer_in_parts_is_copied_whole) {
        struct server *s = server_start(script_rows, NULL);
        struct tutti *t = client_open(s);
        struct tutti_answer *a = NULL, *none = NULL;
        ck_assert_int_eq(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, "dp", NULL, &a), TUTTI_OK);
        ck_assert_int_eq(tutti_admin_ask(t, TUTTI_ADMIN_DUMP, "dp", "x", &none), TUTTI_NOT_FOUND);
        ck_assert_ptr_null(none);
        tutti_close(t); /* the answer lives on */
        server_end(s);
        ck_assert_uint_eq(a->n_rows, 4 * N_ROWS);
        const struct tutti_row *rows = &a->rows[4 * (N_ROWS - 1)];
        ck_assert_int_eq(rows[0].type, TUTTI_ROW_DAEMON);
        ck_assert_str_eq(rows[0].daemon.version, "0.1.0");
        ck_assert_str_eq(rows[0].daemon.isa, "AVX2");
        ck_assert_uint_eq(rows[0].daemon.pid, 9);
        ck_assert_int_eq(rows[0].daemon.draining, 1);
        ck_assert_int_eq(rows[1].type, TUTTI_ROW_PENDING);
        ck_assert_str_eq(rows[1].pending.key, "#7");
        ck_assert(tutti_ranks_has(&rows[1].pending.missing, 3));
        ck_assert_uint_eq(rows[1].pending.n_replicas, 1);
        ck_assert_uint_eq(rows[1].pending.replicas[0].pid, 4711);
        ck_assert_str_eq(rows[1].pending.replicas[0].last_key, "#6");
        ck_assert_ptr_null(rows[1].pending.replicas[0].busy);
        ck_assert_str_eq(rows[2].record.key, "grad/7");
        ck_assert_int_eq(rows[2].record.status, TUTTI_TIMEOUT);
        ck_assert_uint_eq(rows[2].record.n_arrivals, 3);
        ck_assert_uint_eq(rows[2].record.arrival_ns[1], 17);
        ck_assert_uint_eq(rows[2].record.arrival_ns[2], UINT64_MAX);
        ck_assert_str_eq(rows[3].quota.name, "connections");
        ck_assert_uint_eq(rows[3].quota.limit, 256);
        tutti_answer_free(a);
        tutti_answer_free(NULL);
}
END_TEST

static void script_some_rows(struct server *s) {
        const struct row rows[2] = { { .type = ROW_FALLBACK,
                                             .fallback = { "unguarded", "userfaultfd is denied" } },
                { .type = ROW_DEVICE, .device = { "CPU:0", "2 workers", "", .n_workers = 2 } } };
        struct request r;
        server_greet(s);
        while (server_take_any(s, &r))
                if (r.type == REQUEST_QUERY)
                        server_reply(s, &(struct reply){ .request = r.request,
                                                .status = STATUS_OK,
                                                .type = REPLY_ROWS,
                                                .rows = { .rows = rows, .n_rows = 2 } });
}

START_TEST(an_answer_without_memory_is_NO_MEMORY_and_leaves_nothing) {
        struct server *s = server_start(script_some_rows, NULL);
        struct tutti *t = client_open(s);
        unsigned int n = 1;
        for (bool has_failed = true; has_failed; n++) {
                struct tutti_answer *a = NULL;
                failing_at(n);
                enum tutti_status status = tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a);
                has_failed = failing_has_failed();
                failing_at(0);
                ck_assert_int_eq(status, has_failed ? TUTTI_NO_MEMORY : TUTTI_OK);
                ck_assert(has_failed == (a == NULL));
                tutti_answer_free(a);
        }
        ck_assert_uint_ge(n, 4);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- a tuttid that says nothing --- */

/* A long answer whose parts come late, nothing, and then again something. */
static void script_silence(struct server *s) {
        struct request r;
        server_greet(s);
        r = server_take(s, REQUEST_QUERY);
        for (int part = 0; part < 3; part++) {
                const struct row row = { .type = ROW_FALLBACK, .fallback = { "a", "b" } };
                sleep(part > 0 ? 6 : 0);
                server_reply(s, &(struct reply){ .request = r.request,
                                        .status = STATUS_OK,
                                        .more = part < 2,
                                        .type = REPLY_ROWS,
                                        .rows = { .rows = &row, .n_rows = 1 } });
        }
        server_take(s, REQUEST_CONTROL);
        server_serve(s);
}

START_TEST(a_question_is_not_waited_for_for_ever) {
        struct server *s = server_start(script_silence, NULL);
        struct tutti *t = client_open(s);
        struct tutti_answer *a = NULL;
        ck_assert_int_eq(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        ck_assert_uint_eq(a->n_rows, 3);
        tutti_answer_free(a);
        ck_assert_int_eq(tutti_admin_drain(t), TUTTI_NO_DAEMON);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "has not answered for 10 s"));
        ck_assert_int_eq(tutti_admin_undrain(t), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- the record of one epoch --- */

/* Three tuttids: one from before records had epochs, one that tells of that epoch, one that has no such
 * record. */
static void script_epochs(struct server *s) {
        const struct row rows[] = { { .type = ROW_DUMP, .dump = { .missed = 1 } },
                { .type = ROW_DUMP, .dump = { .first_epoch = 2, .last_epoch = 4, .ended = true } } };
        server_greet(s);
        for (int i = 0; i < 2; i++) {
                struct request r = server_take(s, REQUEST_QUERY);
                ck_assert_uint_eq(r.query.epoch, 3);
                server_reply(s, &(struct reply){ .request = r.request,
                                        .status = STATUS_OK,
                                        .type = REPLY_ROWS,
                                        .rows = { .rows = &rows[i], .n_rows = 1 } });
        }
        struct request r = server_take(s, REQUEST_QUERY);
        ck_assert_uint_eq(r.query.epoch, 0); /* it is a matter of dumps */
        ck_assert(r.query.ended_members);
        server_refuse(s, r.request, STATUS_NOT_FOUND, FIELD_GROUP, "no such group");
        server_serve(s);
}

START_TEST(C8_another_epoch_than_that_which_was_asked_for_is_no_answer) {
        struct server *s = server_start(script_epochs, NULL);
        struct tutti *t = client_open(s);
        struct tutti_answer *a = NULL;
        struct tutti_admin_question q =
                TUTTI_ADMIN_QUESTION(.what = TUTTI_ADMIN_DUMP, .job = "dp", .group = "x", .epoch = 3);
        ck_assert_int_eq(tutti_admin_ask_about(t, &q, &a), TUTTI_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "the newest record of a group alone"));
        ck_assert_int_eq(tutti_admin_ask_about(t, &q, &a), TUTTI_OK);
        ck_assert_uint_eq(a->rows[0].dump.first_epoch, 2);
        ck_assert_uint_eq(a->rows[0].dump.last_epoch, 4);
        ck_assert_int_eq(a->rows[0].dump.ended, 1);
        tutti_answer_free(a);
        q.what = TUTTI_ADMIN_GROUPS;
        q.ended_members = 1;
        ck_assert_int_eq(tutti_admin_ask_about(t, &q, &a), TUTTI_NOT_FOUND);
        q.struct_size = 1;
        ck_assert_int_eq(tutti_admin_ask_about(t, &q, &a), TUTTI_INVALID);
        ck_assert_int_eq(tutti_admin_ask_about(t, NULL, &a), TUTTI_INVALID);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- opening without memory --- */

/* Hangs up on everybody. */
static void script_hang_up(struct server *s) {
        const _Atomic bool *stop = s->arg;
        while (!*stop) {
                struct request r;
                server_accept(s);
                server_take_any(s, &r);
                server_hang_up(s);
        }
}

START_TEST(every_call_that_fails_while_opening_is_told) {
        _Atomic bool stop = false;
        struct server *s = server_start(script_hang_up, (void *)&stop);
        unsigned int n = 1;
        for (bool has_failed = true; has_failed; n++) {
                struct tutti *t = NULL;
                failing_call_at(FAILING_MEMORY | FAILING_MMAP | FAILING_FCNTL, n);
                enum tutti_status status = tutti_open(s->path, &t);
                has_failed = failing_has_failed();
                failing_call_at(0, 0);
                ck_assert_ptr_null(t);
                ck_assert_int_ne(status, TUTTI_OK);
                ck_assert_int_eq(tutti_error_info()->status, status);
                ck_assert_ptr_nonnull(strstr(tutti_error(), tutti_status_name(status)));
        }
        ck_assert_uint_ge(n, 4);
        stop = true; /* and one more, to be hung up on */
        struct tutti *t;
        ck_assert_int_eq(tutti_open(s->path, &t), TUTTI_NO_DAEMON);
        server_end(s);
}
END_TEST

UNIT_MAIN("lib-requests", 60, a_join_says_what_was_given, a_join_takes_the_rest_from_the_environment,
        wrong_arguments_of_a_join_are_refused_here, busy_and_abort_say_what_was_given,
        an_answer_in_parts_is_copied_whole, C8_another_epoch_than_that_which_was_asked_for_is_no_answer,
        an_answer_without_memory_is_NO_MEMORY_and_leaves_nothing, a_question_is_not_waited_for_for_ever,
        every_call_that_fails_while_opening_is_told)
