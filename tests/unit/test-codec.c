/* Requests and replies over the wire and back: nothing is lost on the way. */
#include "codec-journey.h"

/* --- requests, every field --- */

START_TEST(hello) {
        struct request r = { .request = UINT64_MAX, .type = REQUEST_HELLO };
        r.hello = (struct msg_hello){ .min_version = 1,
                .secret = "s3cret",
                .max_version = 9,
                .client = "libtutti 0.1.0",
                .process = "train",
                .n_descriptors = 1,
                .may_be_handed_over = true };
        struct request back = pass_request(&r);
        SAME(&r.hello, &back.hello, min_version);
        SAME(&r.hello, &back.hello, max_version);
        SAME_STR(&r.hello, &back.hello, client);
        SAME_STR(&r.hello, &back.hello, process);
        SAME(&r.hello, &back.hello, n_descriptors);
        SAME_STR(&r.hello, &back.hello, secret);
        SAME(&r.hello, &back.hello, may_be_handed_over);
}
END_TEST

START_TEST(join) {
        struct request r = { .request = 2, .type = REQUEST_JOIN };
        r.join = (struct msg_join){ .job = "dp",
                .group = "train",
                .secret = "s3cret",
                .world_size = 1024,
                .rank = 1023,
                .join_timeout_ns = UINT64_MAX,
                .on_death = ON_DEATH_SHRINK,
                .on_leave = ON_LEAVE_ZERO_FILL,
                .has_default_timeout = true,
                .default_timeout_ns = 7,
                .brief_record = true };
        struct request back = pass_request(&r);
        SAME_STR(&r.join, &back.join, job);
        SAME_STR(&r.join, &back.join, group);
        SAME_STR(&r.join, &back.join, secret);
        SAME(&r.join, &back.join, world_size);
        SAME(&r.join, &back.join, rank);
        SAME(&r.join, &back.join, join_timeout_ns);
        SAME(&r.join, &back.join, on_death);
        SAME(&r.join, &back.join, on_leave);
        SAME(&r.join, &back.join, has_default_timeout);
        SAME(&r.join, &back.join, default_timeout_ns);
        SAME(&r.join, &back.join, brief_record);
}
END_TEST

START_TEST(a_join_that_resumes_P9) {
        struct request r = { .request = 2, .type = REQUEST_JOIN };
        r.join = (struct msg_join){ .job = "dp", .group = "train", .secret = "", .world_size = 1024 };
        r.join.resume_epoch = 3;
        r.join.resume_number = UINT64_MAX;
        r.join.resume_members = rankset_first(1024);
        rankset_add(&r.join.resume_lost, 1023);
        struct request back = pass_request(&r);
        SAME(&r.join, &back.join, resume_epoch);
        SAME(&r.join, &back.join, resume_number);
        ck_assert(rankset_is_equal(&back.join.resume_members, &r.join.resume_members));
        ck_assert(rankset_is_equal(&back.join.resume_lost, &r.join.resume_lost));
}
END_TEST

/* With keys at their longest, as many as the library sends at a time fit. */
START_TEST(reports_of_unfinished_requests_P9) {
        static struct page_report reports[256];
        char name[MAX_KEY_BYTES];
        memset(name, 'k', sizeof(name));
        for (uint32_t i = 0; i < 256; i++) {
                reports[i] = (struct page_report){ .request = UINT64_MAX - i,
                        .collective = UINT64_MAX,
                        .state = i % 4,
                        .status = i % N_STATUS,
                        .has_key = true,
                        .is_kept = i % 2,
                        .n_failed = UINT32_MAX };
                ck_assert(key_name(&reports[i].key, name, sizeof(name)));
        }
        reports[7].has_key = false;
        struct request r = { .request = 2, .type = REQUEST_PAGES, .pages = { 256, reports } };
        struct request back = pass_request(&r);
        ck_assert_uint_eq(back.pages.n_reports, 256);
        for (uint32_t i = 0; i < 256; i++) {
                const struct page_report *got = &back.pages.reports[i];
                SAME(&reports[i], got, request);
                SAME(&reports[i], got, collective);
                SAME(&reports[i], got, state);
                SAME(&reports[i], got, status);
                SAME(&reports[i], got, has_key);
                SAME(&reports[i], got, is_kept);
                SAME(&reports[i], got, n_failed);
                ck_assert(!got->has_key || key_is_equal(&got->key, &reports[i].key));
        }
}
END_TEST

START_TEST(registration) {
        struct request r = { .request = 3, .type = REQUEST_REGISTER };
        r.reg = (struct msg_register){ .buffer = 1,
                .size_bytes = UINT64_MAX,
                .access = ACCESS_INOUT,
                .kind = BUFFER_KIND_CUDA_IPC,
                .n_descriptors = 1,
                .device = "GPU:7",
                .handle = (const uint8_t *)"sixty-four bytes",
                .n_handle_bytes = 16,
                .handle_offset_bytes = UINT64_MAX,
                .stands_for = "GPU-0123",
                .why = "no legacy handles here",
                .pages = PAGES_ORDINARY };
        struct request back = pass_request(&r);
        SAME(&r.reg, &back.reg, buffer);
        SAME(&r.reg, &back.reg, size_bytes);
        SAME(&r.reg, &back.reg, access);
        SAME(&r.reg, &back.reg, kind);
        SAME(&r.reg, &back.reg, n_descriptors);
        SAME_STR(&r.reg, &back.reg, device);
        SAME(&r.reg, &back.reg, handle_offset_bytes);
        SAME(&r.reg, &back.reg, n_handle_bytes);
        ck_assert_mem_eq(r.reg.handle, back.reg.handle, 16);
        SAME_STR(&r.reg, &back.reg, stands_for);
        SAME_STR(&r.reg, &back.reg, why);
        SAME(&r.reg, &back.reg, pages);
        r.reg.pages = PAGES_ORDINARY + 1; /* of a newer client */
        ck_assert_uint_eq(pass_request(&r).reg.pages, PAGES_UNSPECIFIED);
}
END_TEST

START_TEST(requests_of_one_number) {
        struct request r = { .request = 4, .type = REQUEST_LEAVE, .membership = UINT64_MAX - 1 };
        ck_assert_uint_eq(pass_request(&r).membership, UINT64_MAX - 1);
        r = (struct request){ .request = 4, .type = REQUEST_UNREGISTER, .buffer = 77 };
        ck_assert_uint_eq(pass_request(&r).buffer, 77);
}
END_TEST

START_TEST(rejoin_and_shrink) {
        static const enum request_type types[] = { REQUEST_REJOIN, REQUEST_SHRINK };
        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
                struct request r = { .request = 4,
                        .type = types[i],
                        .reform = { .membership = UINT64_MAX - i, .timeout_ns = 5 + i } };
                struct request back = pass_request(&r);
                SAME(&r.reform, &back.reform, membership);
                SAME(&r.reform, &back.reform, timeout_ns);
        }
}
END_TEST

START_TEST(abort_busy_and_query) {
        struct request r = { .request = 5, .type = REQUEST_ABORT };
        r.abort = (struct msg_abort){
                .membership = 9, .has_key = true, .key = key_sequence(0), .reason = "NaN"
        };
        struct request back = pass_request(&r);
        SAME(&r.abort, &back.abort, membership);
        SAME(&r.abort, &back.abort, has_key);
        SAME_KEY(&r.abort, &back.abort, key);
        SAME_STR(&r.abort, &back.abort, reason);
        r.type = REQUEST_BUSY;
        r.busy = (struct msg_busy){ .membership = 9, .why = "checkpoint", .duration_ns = 10 };
        back = pass_request(&r);
        SAME(&r.busy, &back.busy, membership);
        SAME_STR(&r.busy, &back.busy, why);
        SAME(&r.busy, &back.busy, duration_ns);
        r.type = REQUEST_QUERY;
        r.query = (struct msg_query){ .what = WHAT_QUOTA,
                .job = "dp",
                .group = "train",
                .has_user = true,
                .user = 1000,
                .devices = "GPU:0,GPU:1",
                .epoch = UINT64_MAX,
                .ended_members = true };
        back = pass_request(&r);
        SAME(&r.query, &back.query, what);
        SAME(&r.query, &back.query, has_user);
        SAME(&r.query, &back.query, user);
        SAME_STR(&r.query, &back.query, job);
        SAME_STR(&r.query, &back.query, group);
        SAME_STR(&r.query, &back.query, devices);
        SAME(&r.query, &back.query, epoch);
        SAME(&r.query, &back.query, ended_members);
}
END_TEST

START_TEST(starting_and_forgetting) {
        struct request r = { .request = 5, .type = REQUEST_START };
        r.start = (struct msg_start){ .prepared = UINT64_MAX,
                .membership = 9,
                .epoch = 2,
                .has_key = true,
                .key = key_sequence(77),
                .has_timeout = true,
                .timeout_ns = UINT64_MAX,
                .signal = { 4095, UINT64_MAX } };
        struct request back = pass_request(&r);
        SAME(&r.start, &back.start, prepared);
        SAME(&r.start, &back.start, membership);
        SAME(&r.start, &back.start, epoch);
        SAME(&r.start, &back.start, has_key);
        SAME_KEY(&r.start, &back.start, key);
        SAME(&r.start, &back.start, has_timeout);
        SAME(&r.start, &back.start, timeout_ns);
        SAME(&r.start, &back.start, signal.slot);
        SAME(&r.start, &back.start, signal.value);
        r.start = (struct msg_start){ .prepared = 1 };
        back = pass_request(&r);
        ck_assert(!back.start.has_key && back.start.signal.value == 0);
        r = (struct request){ .request = 6, .type = REQUEST_UNPREPARE, .prepared = 3 };
        back = pass_request(&r);
        ck_assert_uint_eq(back.prepared, 3);
}
END_TEST

static const struct request control = { .type = REQUEST_CONTROL,
        .request = 8,
        .control = { .verb = VERB_KICK,
                .job = "dp",
                .group = "train",
                .text = "it hangs",
                .rank = 3,
                .has_user = true,
                .user = 1000 } };

START_TEST(what_people_do) {
        const struct request back = pass_request(&control);
        SAME(&control.control, &back.control, verb);
        SAME_STR(&control.control, &back.control, job);
        SAME_STR(&control.control, &back.control, group);
        SAME_STR(&control.control, &back.control, text);
        SAME(&control.control, &back.control, rank);
        SAME(&control.control, &back.control, has_user);
        SAME(&control.control, &back.control, user);
        struct request unknown = control;
        unknown.control.verb = (enum verb)77;
        ck_assert_int_eq(pass_request(&unknown).control.verb, VERB_UNSPECIFIED);
}
END_TEST

START_TEST(what_this_version_does_not_do_is_known_by_its_type) {
        for (enum request_type type = REQUEST_PREPARE; type <= REQUEST_PAGES; type++) {
                struct request r = { .request = 6, .type = type };
                pass_request(&r);
        }
        struct request r = { .request = 6, .type = REQUEST_GOODBYE };
        pass_request(&r);
}
END_TEST

static void check_options(const struct options *a, const struct options *b) {
        SAME(a, b, rounding);
        SAME(a, b, has_weight);
        SAME(a, b, weight);
        SAME(a, b, check_numerics);
        SAME(a, b, check_overflow);
        SAME(a, b, check_inputs);
        SAME(a, b, reproducible);
        SAME(a, b, implementation);
        SAME(a, b, algorithm);
        SAME(a, b, has_place);
        SAME(a, b, place);
        SAME(a, b, packing.num_packs);
        SAME(a, b, packing.small_bytes);
        SAME(a, b, packing.small_group);
        SAME(a, b, packing.bytes_per_pack);
        SAME(a, b, priority);
}

START_TEST(submissions) {
        struct entry entries[DESTINATION_SAME + 1];
        for (unsigned int i = 0; i < ARRAY_SIZE(entries); i++)
                entries[i] = full_entry((enum destination)i);
        struct request r = submission(entries, ARRAY_SIZE(entries));
        r.submit.signature.options = all_options;
        r.submit.signature.root = UINT32_MAX;
        r.submit.signature.n_entries = 70000;
        r.submit.signature.axes = 1u << 0 | 1u << 7 | AXIS_BEYOND;
        r.submit.has_timeout = true;
        r.submit.timeout_ns = UINT64_MAX;
        r.submit.more = true;
        r.submit.refused = STATUS_QUOTA;
        r.submit.refused_field = FIELD_VERSION;
        r.submit.signal = (struct msg_signal){ UINT32_MAX, UINT64_MAX };
        r.submit.refused_detail = "the function is NULL";
        r.submit.prepare = UINT64_MAX - 1;
        memset(r.submit.signature.tag, 't', MAX_TAG_BYTES);
        struct request back = pass_request(&r);
        SAME(&r.submit, &back.submit, prepare);
        SAME(&r.submit, &back.submit, signal.slot);
        SAME(&r.submit, &back.submit, signal.value);
        SAME(&r.submit, &back.submit, membership);
        SAME(&r.submit, &back.submit, epoch);
        SAME(&r.submit, &back.submit, has_key);
        SAME_KEY(&r.submit, &back.submit, key);
        SAME(&r.submit, &back.submit, signature.kind);
        SAME(&r.submit, &back.submit, signature.axes);
        SAME(&r.submit, &back.submit, signature.op);
        SAME(&r.submit, &back.submit, signature.root);
        SAME(&r.submit, &back.submit, signature.n_entries);
        check_options(&r.submit.signature.options, &back.submit.signature.options);
        SAME(&r.submit, &back.submit, has_timeout);
        SAME(&r.submit, &back.submit, timeout_ns);
        SAME(&r.submit, &back.submit, n_part_entries);
        SAME(&r.submit, &back.submit, more);
        SAME(&r.submit, &back.submit, refused);
        SAME(&r.submit, &back.submit, refused_field);
        ck_assert_str_eq(back.submit.refused_detail, "the function is NULL");
        ck_assert_str_eq(back.submit.signature.tag, r.submit.signature.tag);
        for (unsigned int i = 0; i < ARRAY_SIZE(entries); i++)
                check_entry(&entries[i], &back.submit.entries[i]);
}
END_TEST

START_TEST(every_word_passes) {
        for (unsigned int i = 0; i < N_DTYPE; i++) {
                struct entry e = { .dtype = (enum dtype)i, .destination = DESTINATION_ALL };
                struct request r = submission(&e, 1);
                ck_assert_int_eq(pass_request(&r).submit.entries[0].dtype, (int)i);
        }
        for (unsigned int i = 0; i < N_STATUS; i++) {
                struct request r = submission(NULL, 0);
                r.submit.refused = (enum status)i;
                r.submit.refused_field = (enum field)i;
                r.submit.signature.kind = (enum kind)(i % N_KIND);
                r.submit.signature.op = (enum op)(i % N_OP);
                struct request back = pass_request(&r);
                SAME(&r.submit, &back.submit, refused);
                SAME(&r.submit, &back.submit, refused_field);
                SAME(&r.submit, &back.submit, signature.kind);
                SAME(&r.submit, &back.submit, signature.op);
        }
}
END_TEST

START_TEST(D18_a_submission_without_op_is_a_submission) {
        struct entry e = full_entry(DESTINATION_ALL);
        struct request r = submission(&e, 1);
        r.submit.signature.op = OP_UNSPECIFIED;
        ck_assert_int_eq(pass_request(&r).submit.signature.op, OP_UNSPECIFIED);
}
END_TEST

START_TEST(keys_pass_and_absent_ones_are_known) {
        struct request r = submission(NULL, 0);
        memset(r.submit.key.bytes, 0, MAX_KEY_BYTES);
        r.submit.key.n_bytes = MAX_KEY_BYTES;
        struct request back = pass_request(&r);
        SAME_KEY(&r.submit, &back.submit, key);
        r.submit.key = key_sequence(UINT64_MAX);
        back = pass_request(&r);
        ck_assert(back.submit.has_key);
        SAME_KEY(&r.submit, &back.submit, key);
        r.submit.key = key_sequence(0);
        ck_assert(pass_request(&r).submit.has_key);
        r.submit.has_key = false;
        ck_assert(!pass_request(&r).submit.has_key);
}
END_TEST

START_TEST(strings_are_never_null) {
        struct request r = { .request = 1, .type = REQUEST_JOIN };
        struct request back = pass_request(&r);
        ck_assert_str_eq(back.join.job, "");
        ck_assert_str_eq(back.join.group, "");
        ck_assert_str_eq(back.join.secret, "");
        r.type = REQUEST_HELLO;
        r.hello = (struct msg_hello){ 0 };
        ck_assert_str_eq(pass_request(&r).hello.process, "");
}
END_TEST

/* --- the seeds of the fuzzer --- */

#define CORPUS TUTTI_SOURCE_ROOT "/tests/fuzz/corpus/codec"

static const struct request make_result = { .request = 5,
        .type = REQUEST_MAKE_RESULT,
        .make_result = { .membership = 1,
                .has_key = true,
                .key = { .n_bytes = 4, .bytes = "sums" },
                .size_bytes = UINT64_MAX,
                .n_slots = UINT32_MAX,
                .word = 64,
                .device = "CPU:1" } },
                            release_result = { .request = 5,
                                    .type = REQUEST_RELEASE_RESULT,
                                    .release_result = { 1, 2, 3, true } };

START_TEST(result_objects_are_made_released_and_told) {
        struct request m = pass_request(&make_result);
        const struct msg_make_result *a = &make_result.make_result, *b = &m.make_result;
        SAME(a, b, membership);
        SAME(a, b, has_key);
        SAME_KEY(a, b, key);
        SAME(a, b, size_bytes);
        SAME(a, b, n_slots);
        SAME(a, b, word);
        SAME_STR(a, b, device);
        struct request r = pass_request(&release_result);
        SAME(&release_result.release_result, &r.release_result, result);
        SAME(&release_result.release_result, &r.release_result, membership);
        SAME(&release_result.release_result, &r.release_result, slot);
        SAME(&release_result.release_result, &r.release_result, detach);
        const struct reply made = {
                .request = 5, .type = REPLY_RESULT, .result = { 1, 100, 4096, 1, 2, 8192 }
        };
        struct reply back = pass_reply(&made);
        SAME(&made.result, &back.result, result);
        SAME(&made.result, &back.result, size_bytes);
        SAME(&made.result, &back.result, stride_bytes);
        SAME(&made.result, &back.result, device_bytes);
        SAME(&made.result, &back.result, n_descriptors);
        SAME(&made.result, &back.result, n_slots);
        const struct reply done = { .request = 5, .type = REPLY_DONE, .done = { .result = 7, .slot = 3 } };
        back = pass_reply(&done);
        SAME(&done.done, &back.done, result);
        SAME(&done.done, &back.done, slot);
}
END_TEST

static const struct request open_signals = { .request = 5,
        .type = REQUEST_OPEN_SIGNALS,
        .open_signals = { ORDER_TIMELINE, "GPU-0123" } },
                            register_ipc = { .request = 5,
                                    .type = REQUEST_REGISTER,
                                    .reg = { .buffer = 2,
                                            .size_bytes = 4096,
                                            .access = ACCESS_INOUT,
                                            .kind = BUFFER_KIND_CUDA_IPC,
                                            .device = "GPU-0123",
                                            .handle = (const uint8_t *)"handle",
                                            .n_handle_bytes = 6,
                                            .handle_offset_bytes = 512 } };
static const struct reply registered = { .request = 5,
        .type = REPLY_REGISTERED,
        .registered = { 1, 2u << 20 } },
                          signals = { .request = 5,
                                  .type = REPLY_SIGNALS,
                                  .signals = { ORDER_EVENTS, 1, SIGNAL_SLOTS, "", SIGNAL_EVENTS } },
                          lane = { .request = 5, .type = REPLY_LANE, .more = true, .lane = { 1, 2 } },
                          launched = { .request = 5, .type = REPLY_LAUNCHED, .more = true },
                          hand_over = { .type = REPLY_HAND_OVER };

START_TEST(signals_are_opened_and_device_memory_is_registered) {
        struct request r = pass_request(&open_signals);
        SAME(&open_signals.open_signals, &r.open_signals, order);
        SAME_STR(&open_signals.open_signals, &r.open_signals, device);
        struct reply back = pass_reply(&registered);
        SAME(&registered.registered, &back.registered, n_descriptors);
        SAME(&registered.registered, &back.registered, size_bytes);
        back = pass_reply(&signals);
        SAME(&signals.signals, &back.signals, order);
        SAME(&signals.signals, &back.signals, n_descriptors);
        SAME(&signals.signals, &back.signals, n_slots);
        SAME_STR(&signals.signals, &back.signals, why);
        SAME(&signals.signals, &back.signals, n_events);
        back = pass_reply(&launched);
        ck_assert_int_eq(back.type, REPLY_LAUNCHED);
        ck_assert(back.more && back.request == 5);
}
END_TEST

START_TEST(a_lane_is_opened_and_rung) {
        struct request r = { .request = 5, .type = REQUEST_OPEN_LANE };
        pass_request(&r);
        r.type = REQUEST_RING;
        pass_request(&r);
        const struct reply back = pass_reply(&lane);
        ck_assert(back.type == REPLY_LANE && back.more);
        SAME(&lane.lane, &back.lane, n_descriptors);
        SAME(&lane.lane, &back.lane, n_slots);
}
END_TEST

START_TEST(a_connection_is_handed_over) {
        const struct reply back = pass_reply(&hand_over);
        ck_assert_int_eq(back.type, REPLY_HAND_OVER);
        ck_assert_int_eq(back.status, STATUS_OK);
        ck_assert_uint_eq(back.request, 0);
}
END_TEST

START_TEST(an_order_that_is_not_known_is_the_plainest) {
        struct request r = open_signals;
        r.open_signals.order = (enum stream_order)(ORDER_EVENTS + 1);
        ck_assert_int_eq(pass_request(&r).open_signals.order, ORDER_HOST);
        struct reply reply = signals;
        reply.signals.order = (enum stream_order)1000;
        ck_assert_int_eq(pass_reply(&reply).signals.order, ORDER_HOST);
        struct request none = submission(NULL, 0);
        none.submit.signal = (struct msg_signal){ 7, 0 };
        ck_assert_uint_eq(pass_request(&none).submit.signal.slot, 0);
}
END_TEST

/* The seed that stands in the corpus is the packet that is made today; with TUTTI_WRITE_CORPUS it is written.
 */
static void check_seed(const char *name) {
        static uint8_t stored[MAX_PACKET_BYTES];
        char path[512];
        snprintf(path, sizeof(path), CORPUS "/%s", name);
        FILE *f = fopen(path, getenv("TUTTI_WRITE_CORPUS") ? "w+" : "r");
        ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
        if (getenv("TUTTI_WRITE_CORPUS")) {
                ck_assert_uint_eq(fwrite(packet, 1, n_packet, f), n_packet);
                rewind(f);
        }
        size_t n = fread(stored, 1, sizeof(stored), f);
        fclose(f);
        ck_assert_uint_eq(n, n_packet);
        ck_assert_int_eq(memcmp(stored, packet, n), 0);
}

static void check_seed_request(const char *name, struct request r) {
        r.request = 5;
        pass_request(&r);
        check_seed(name);
}

START_TEST(the_corpus_holds_one_packet_of_each_kind) {
        struct entry entries[DESTINATION_SAME + 1];
        struct error e = full_error();
        struct replica_report report = report_of(2);
        static const uint64_t arrivals[] = { 0, 5, UINT64_MAX };
        struct row rows[ROW_LOSSES + 1] = { { 0 } };
        const struct row_holder holder = { .rank = 2, .pid = 4711, .n_slots = 2, .state = PROCESS_ALIVE };
        for (unsigned int i = 0; i < ARRAY_SIZE(entries); i++)
                entries[i] = full_entry((enum destination)i);
        struct request submit = submission(entries, ARRAY_SIZE(entries));
        submit.submit.signature.options = all_options;
        check_seed_request("submit", submit);
        check_seed_request("hello", (struct request){ .type = REQUEST_HELLO,
                                            .hello = { 1, 1, "libtutti 0.1.0", "train", 1, "", true } });
        check_seed_request("join", (struct request){ .type = REQUEST_JOIN,
                                           .join = { .job = "dp", .group = "train", .world_size = 4 } });
        check_seed_request("register", (struct request){ .type = REQUEST_REGISTER,
                                               .reg = { 1, 4096, ACCESS_IN, BUFFER_KIND_MEMFD, 1, "" } });
        check_seed_request(
                "register_pages", (struct request){ .type = REQUEST_REGISTER,
                                          .reg = { 1, 4096, ACCESS_INOUT, BUFFER_KIND_MEMFD, 1, "",
                                                  .why = "none free", .pages = PAGES_TRANSPARENT } });
        check_seed_request(
                "abort", (struct request){ .type = REQUEST_ABORT, .abort = { 1, true, key_of("x"), "NaN" } });
        check_seed_request("query",
                (struct request){ .type = REQUEST_QUERY, .query = { WHAT_DUMP, "dp", "", false, 0 } });
        check_seed_request("query_epoch",
                (struct request){ .type = REQUEST_QUERY, .query = { WHAT_DUMP, "dp", "", .epoch = 2 } });
        check_seed_request("query_plan", (struct request){ .type = REQUEST_QUERY,
                                                 .query = { .what = WHAT_PLAN,
                                                         .job = "",
                                                         .group = "",
                                                         .has_shape = true,
                                                         .world_size = 4,
                                                         .devices = "GPU:0,GPU:1",
                                                         .shape = submit.submit } });
        check_seed_request("control", control);
        check_seed_request("make_result", make_result);
        check_seed_request("release_result", release_result);
        check_seed_request("open_signals", open_signals);
        check_seed_request("register_ipc", register_ipc);
        check_seed_request("open_lane", (struct request){ .type = REQUEST_OPEN_LANE });
        check_seed_request("ring", (struct request){ .type = REQUEST_RING });
        submit.submit.signal = (struct msg_signal){ 4095, 7 };
        check_seed_request("submit_signal", submit);

        struct reply error = { .request = 5, .status = STATUS_MISMATCH, .error = &e };
        pass_reply(&error);
        check_seed("error");
        for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++)
                rows[i].type = (enum row_type)i;
        rows[ROW_PENDING].pending.n_replicas = 1;
        rows[ROW_PENDING].pending.replicas = &report;
        rows[ROW_RECORD].record.n_arrivals = ARRAY_SIZE(arrivals);
        rows[ROW_RECORD].record.arrival_ns = arrivals;
        rows[ROW_RESULT].result.n_holders = 1;
        rows[ROW_RESULT].result.holders = &holder;
        rows[ROW_PLAN].plan = (struct row_plan){ .algorithm = "one_device", .text = "reduce", .n_steps = 1 };
        struct reply all_rows = reply_with_rows(rows, ARRAY_SIZE(rows));
        pass_reply(&all_rows);
        check_seed("rows");
        struct reply done = {
                .request = 5, .type = REPLY_DONE, .done = { .collective = 1, .contributors = set_of(1) }
        };
        pass_reply(&done);
        check_seed("done");
        struct reply result = { .request = 5, .type = REPLY_RESULT, .result = { 1, 100, 4096, 1, 2 } };
        pass_reply(&result);
        check_seed("result");
        pass_reply(&registered);
        check_seed("registered");
        pass_reply(&signals);
        check_seed("signals");
        pass_reply(&lane);
        check_seed("lane");
        pass_reply(&hand_over);
        check_seed("hand_over");
}
END_TEST

UNIT_MAIN("codec", 30, hello, join, a_join_that_resumes_P9, reports_of_unfinished_requests_P9, registration,
        requests_of_one_number, rejoin_and_shrink, abort_busy_and_query, what_people_do,
        starting_and_forgetting, what_this_version_does_not_do_is_known_by_its_type, submissions,
        every_word_passes, D18_a_submission_without_op_is_a_submission, keys_pass_and_absent_ones_are_known,
        strings_are_never_null, result_objects_are_made_released_and_told,
        signals_are_opened_and_device_memory_is_registered, an_order_that_is_not_known_is_the_plainest,
        a_lane_is_opened_and_rung, a_connection_is_handed_over, the_corpus_holds_one_packet_of_each_kind)
