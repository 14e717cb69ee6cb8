/* Rows over the wire and back, and what is too long for one packet: it goes in parts. */
#include "codec-journey.h"

/* --- rows --- */

/* The row after the journey. */
static const struct row *pass_row(const struct row *row) {
        struct reply r = reply_with_rows(row, 1), back = pass_reply(&r);
        ck_assert_uint_eq(back.rows.n_rows, 1);
        ck_assert_int_eq(back.rows.rows[0].type, row->type);
        return &back.rows.rows[0];
}

START_TEST(rows_of_the_daemon_and_its_devices) {
        struct row row = { .type = ROW_DAEMON };
        row.daemon = (struct row_daemon){ .version = "0.1.0",
                .socket = "/run/tutti/tuttid.sock",
                .isa = "avx512",
                .pid = 1,
                .uptime_ns = 2,
                .n_sessions = 3,
                .n_groups = 4,
                .n_stalled = 5,
                .n_collectives = 6,
                .n_failed = 7,
                .n_refused = 8,
                .n_ejected = 9,
                .mapped_bytes = 10,
                .n_buffers = 11,
                .n_pending = 12,
                .draining = true,
                .n_restarts = 17,
                .n_prepared = 18,
                .n_started = 19,
                .n_replayed = 20,
                .n_on_lane = 21,
                .n_passed = 22,
                .n_assisted = 23,
                .n_rings = 24,
                .n_regrets = 25,
                .sees_all = true };
        const struct row_daemon *a = &row.daemon, *b = &pass_row(&row)->daemon;
        SAME_STR(a, b, version);
        SAME_STR(a, b, socket);
        SAME_STR(a, b, isa);
        SAME(a, b, pid);
        SAME(a, b, uptime_ns);
        SAME(a, b, n_sessions);
        SAME(a, b, n_groups);
        SAME(a, b, n_stalled);
        SAME(a, b, n_collectives);
        SAME(a, b, n_failed);
        SAME(a, b, n_refused);
        SAME(a, b, n_ejected);
        SAME(a, b, mapped_bytes);
        SAME(a, b, n_buffers);
        SAME(a, b, n_pending);
        SAME(a, b, draining);
        SAME(a, b, sees_all);
        SAME(a, b, n_restarts);
        SAME(a, b, n_prepared);
        SAME(a, b, n_started);
        SAME(a, b, n_replayed);
        SAME(a, b, n_on_lane);
        SAME(a, b, n_passed);
        SAME(a, b, n_assisted);
        SAME(a, b, n_rings);
        SAME(a, b, n_regrets);

        struct row device = { .type = ROW_DEVICE };
        device.device = (struct row_device){ .name = "CPU:0",
                .describe = "2 workers",
                .why = "self-test",
                .n_workers = 2,
                .n_tasks = 3,
                .busy_ns = 4,
                .failing = true,
                .uuid = "GPU-0123",
                .paths = "vmm-made vmm-fd",
                .order = ORDER_TIMELINE };
        const struct row_device *c = &device.device, *d = &pass_row(&device)->device;
        SAME_STR(c, d, name);
        SAME_STR(c, d, describe);
        SAME_STR(c, d, why);
        SAME(c, d, n_workers);
        SAME(c, d, n_tasks);
        SAME(c, d, busy_ns);
        SAME(c, d, failing);
        SAME_STR(c, d, uuid);
        SAME_STR(c, d, paths);
        SAME(c, d, order);
}
END_TEST

START_TEST(rows_of_groups) {
        struct row row = { .type = ROW_GROUP };
        row.group = (struct row_group){ .job = "dp",
                .group = "train",
                .uid = 1,
                .world_size = 2,
                .n_alive = 3,
                .n_waiting = 31,
                .awaited = { { 6 } },
                .n_pending = 4,
                .n_debts = 5,
                .epoch = 6,
                .n_done = 7,
                .n_failed = 8,
                .bytes = 9,
                .age_ns = 10,
                .last_done_age_ns = 11,
                .forming = true,
                .failed = true,
                .ended = true,
                .stalled = true,
                .on_death = ON_DEATH_SHRINK };
        const struct row_group *a = &row.group, *b = &pass_row(&row)->group;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME(a, b, uid);
        SAME(a, b, world_size);
        SAME(a, b, n_alive);
        SAME(a, b, n_pending);
        SAME(a, b, n_debts);
        SAME(a, b, n_waiting);
        ck_assert(rankset_is_equal(&a->awaited, &b->awaited));
        SAME(a, b, epoch);
        SAME(a, b, n_done);
        SAME(a, b, n_failed);
        SAME(a, b, bytes);
        SAME(a, b, age_ns);
        SAME(a, b, last_done_age_ns);
        SAME(a, b, forming);
        SAME(a, b, failed);
        SAME(a, b, ended);
        SAME(a, b, stalled);
        SAME(a, b, on_death);
}
END_TEST

START_TEST(rows_of_members) {
        struct row row = { .type = ROW_MEMBER };
        row.member = (struct row_member){ .job = "dp",
                .group = "train",
                .process = "digits",
                .busy = "checkpoint",
                .why = "its process ended",
                .waits = "rejoin",
                .waits_age_ns = 99,
                .rank = 1,
                .pid = 2,
                .uid = 3,
                .n_buffers = 4,
                .state = PROCESS_DEAD,
                .has_last = true,
                .lost = true,
                .last_key = key_of("grad/6"),
                .last_age_ns = 5,
                .n_submitted = 6,
                .n_last = 7,
                .n_joint = 8,
                .lateness_p50_ns = 9,
                .lateness_p99_ns = 10,
                .mapped_bytes = 11,
                .lost_age_ns = 12,
                .ended_epoch = 13,
                .loss = LOSS_DIED };
        const struct row_member *a = &row.member, *b = &pass_row(&row)->member;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME_STR(a, b, process);
        SAME_STR(a, b, busy);
        SAME_STR(a, b, why);
        SAME_STR(a, b, waits);
        SAME(a, b, waits_age_ns);
        SAME(a, b, rank);
        SAME(a, b, pid);
        SAME(a, b, uid);
        SAME(a, b, n_buffers);
        SAME(a, b, state);
        SAME(a, b, has_last);
        SAME(a, b, lost);
        SAME_KEY(a, b, last_key);
        SAME(a, b, last_age_ns);
        SAME(a, b, n_submitted);
        SAME(a, b, n_last);
        SAME(a, b, n_joint);
        SAME(a, b, ended_epoch);
        SAME(a, b, lateness_p50_ns);
        SAME(a, b, lateness_p99_ns);
        SAME(a, b, mapped_bytes);
        SAME(a, b, lost_age_ns);
        SAME(a, b, loss);
        row.member.has_last = false;
        ck_assert(!pass_row(&row)->member.has_last);
}
END_TEST

START_TEST(rows_of_what_is_pending) {
        struct replica_report reports[MAX_ERROR_REPLICAS];
        for (uint32_t i = 0; i < MAX_ERROR_REPLICAS; i++)
                reports[i] = report_of(i);
        struct row row = { .type = ROW_PENDING };
        row.pending = (struct row_pending){ .job = "dp",
                .group = "train",
                .key = key_sequence(17),
                .kind = KIND_BARRIER,
                .age_ns = 1,
                .bytes = 2,
                .world_size = 3,
                .have = set_of(4),
                .missing = set_of(5),
                .n_replicas = MAX_ERROR_REPLICAS,
                .replicas = reports,
                .running = true,
                .stalled = true };
        const struct row_pending *a = &row.pending, *b = &pass_row(&row)->pending;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME_KEY(a, b, key);
        SAME(a, b, kind);
        SAME(a, b, age_ns);
        SAME(a, b, bytes);
        SAME(a, b, world_size);
        SAME_SET(a, b, have);
        SAME_SET(a, b, missing);
        SAME(a, b, n_replicas);
        for (uint32_t i = 0; i < MAX_ERROR_REPLICAS; i++)
                check_report(&reports[i], &b->replicas[i]);
        SAME(a, b, running);
        SAME(a, b, stalled);
}
END_TEST

START_TEST(rows_of_histograms) {
        static const uint64_t counts[] = { 1, 0, UINT64_MAX };
        struct row row = { .type = ROW_HISTOGRAM };
        row.histogram = (struct row_histogram){ .job = "dp",
                .group = "train",
                .uid = 1,
                .rank = 2,
                .measure = MEASURE_LATENESS,
                .kind = KIND_REDUCE,
                .n = 3,
                .sum_ns = 4,
                .bounds_from_ns = 5,
                .n_counts = ARRAY_SIZE(counts),
                .counts = counts };
        const struct row_histogram *a = &row.histogram, *b = &pass_row(&row)->histogram;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME(a, b, uid);
        SAME(a, b, rank);
        SAME(a, b, measure);
        SAME(a, b, kind);
        SAME(a, b, n);
        SAME(a, b, sum_ns);
        SAME(a, b, bounds_from_ns);
        ck_assert_uint_eq(b->n_counts, ARRAY_SIZE(counts));
        ck_assert_mem_eq(b->counts, counts, sizeof(counts));
}
END_TEST

START_TEST(rows_of_counters) {
        struct row row = { .type = ROW_STATS };
        row.stats = (struct row_stats){ .job = "dp",
                .group = "train",
                .kind = KIND_REDUCE,
                .n = 1,
                .n_failed = 2,
                .bytes = 3,
                .wait_p50_ns = 4,
                .wait_p99_ns = 5,
                .run_p50_ns = 6,
                .run_p99_ns = 7,
                .run_ns = 8,
                .wait_p999_ns = 9,
                .run_p999_ns = 10 };
        const struct row_stats *a = &row.stats, *b = &pass_row(&row)->stats;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME(a, b, kind);
        SAME(a, b, n);
        SAME(a, b, n_failed);
        SAME(a, b, bytes);
        SAME(a, b, wait_p50_ns);
        SAME(a, b, wait_p99_ns);
        SAME(a, b, run_p50_ns);
        SAME(a, b, run_p99_ns);
        SAME(a, b, run_ns);
        SAME(a, b, wait_p999_ns);
        SAME(a, b, run_p999_ns);

        struct row fallback = { .type = ROW_FALLBACK,
                .fallback = { .what = "guard", .why = "no userfaultfd" } };
        SAME_STR(&fallback.fallback, &pass_row(&fallback)->fallback, what);
        SAME_STR(&fallback.fallback, &pass_row(&fallback)->fallback, why);

        struct row quota = { .type = ROW_QUOTA,
                .quota = { .uid = 1, .name = "groups", .used = 2, .limit = 3, .n_refused = 4 } };
        const struct row_quota *c = &quota.quota, *d = &pass_row(&quota)->quota;
        SAME(c, d, uid);
        SAME_STR(c, d, name);
        SAME(c, d, used);
        SAME(c, d, limit);
        SAME(c, d, n_refused);

        struct row losses = { .type = ROW_LOSSES,
                .losses = { .uid = 1, .n_died = UINT64_MAX, .n_disconnected = 3, .n_ejected = 4 } };
        const struct row_losses *e = &losses.losses, *f = &pass_row(&losses)->losses;
        SAME(e, f, uid);
        SAME(e, f, n_died);
        SAME(e, f, n_disconnected);
        SAME(e, f, n_ejected);

        struct row none = { .type = ROW_NONE };
        pass_row(&none);
}
END_TEST

START_TEST(rows_of_size_classes) {
        struct row row = { .type = ROW_CLASS,
                .class = { .job = "dp",
                        .group = "train",
                        .kind = KIND_BATCH_REDUCE,
                        .op = OP_MEAN,
                        .from_bytes = 1,
                        .to_bytes = UINT64_MAX,
                        .n = 2,
                        .n_failed = 3,
                        .bytes = 4,
                        .run_ns = 5,
                        .wait_p50_ns = 6,
                        .wait_p99_ns = 7,
                        .wait_p999_ns = 8,
                        .run_p50_ns = 9,
                        .run_p99_ns = 10,
                        .run_p999_ns = 11 } };
        const struct row_class *a = &row.class, *b = &pass_row(&row)->class;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME(a, b, kind);
        SAME(a, b, op);
        SAME(a, b, from_bytes);
        SAME(a, b, to_bytes);
        SAME(a, b, n);
        SAME(a, b, n_failed);
        SAME(a, b, bytes);
        SAME(a, b, run_ns);
        SAME(a, b, wait_p50_ns);
        SAME(a, b, wait_p99_ns);
        SAME(a, b, wait_p999_ns);
        SAME(a, b, run_p50_ns);
        SAME(a, b, run_p99_ns);
        SAME(a, b, run_p999_ns);
}
END_TEST

START_TEST(P15_rows_of_what_a_group_did_not_get) {
        struct row row = { .type = ROW_GROUP_FALLBACK,
                .group_fallback = { .job = "dp",
                        .group = "train",
                        .why = "NCCL was asked for, but host devices have no library",
                        .algorithm = "one_device",
                        .uid = 1000,
                        .n = UINT64_MAX,
                        .last_age_ns = 3,
                        .kind = KIND_BATCH_REDUCE,
                        .key = key_of("grad/7") } };
        const struct row_group_fallback *a = &row.group_fallback, *b = &pass_row(&row)->group_fallback;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME_STR(a, b, why);
        SAME_STR(a, b, algorithm);
        SAME(a, b, uid);
        SAME(a, b, n);
        SAME(a, b, last_age_ns);
        SAME(a, b, kind);
        ck_assert(key_is_equal(&a->key, &b->key));
}
END_TEST

START_TEST(E8_rows_of_buffers) {
        struct row buffer = { .type = ROW_BUFFER,
                .buffer = { .pid = 4711,
                        .uid = 1000,
                        .buffer = UINT64_MAX,
                        .size_bytes = UINT64_MAX - 1,
                        .device = "GPU:1",
                        .path = "host-copy",
                        .why = "legacy handles are off",
                        .page_bytes = UINT64_C(1) << 30 } };
        const struct row_buffer *a = &buffer.buffer, *b = &pass_row(&buffer)->buffer;
        SAME(a, b, pid);
        SAME(a, b, uid);
        SAME(a, b, buffer);
        SAME(a, b, size_bytes);
        SAME(a, b, page_bytes);
        SAME_STR(a, b, device);
        SAME_STR(a, b, path);
        SAME_STR(a, b, why);
}
END_TEST

START_TEST(A12_rows_of_result_objects) {
        static const struct row_holder holders[] = {
                { .rank = 1023,
                        .pid = 4711,
                        .n_slots = 64,
                        .state = PROCESS_STOPPED,
                        .oldest_age_ns = UINT64_MAX },
                { .rank = 1, .pid = 0, .n_slots = 1, .state = PROCESS_DEAD, .oldest_age_ns = 1 },
        };
        struct row result = { .type = ROW_RESULT,
                .result = { .job = "dp",
                        .group = "train",
                        .name = "sums",
                        .device = "CPU:1",
                        .size_bytes = UINT64_MAX,
                        .n_slots = 64,
                        .n_free = 1,
                        .n_attached = 1024,
                        .n_holders = 2,
                        .holders = holders } };
        const struct row_result *x = &result.result, *y = &pass_row(&result)->result;
        SAME_STR(x, y, job);
        SAME_STR(x, y, group);
        SAME_STR(x, y, name);
        SAME_STR(x, y, device);
        SAME(x, y, size_bytes);
        SAME(x, y, n_slots);
        SAME(x, y, n_free);
        SAME(x, y, n_attached);
        SAME(x, y, n_holders);
        for (int i = 0; i < 2; i++) {
                SAME(x, y, holders[i].rank);
                SAME(x, y, holders[i].pid);
                SAME(x, y, holders[i].n_slots);
                SAME(x, y, holders[i].state);
                SAME(x, y, holders[i].oldest_age_ns);
        }
}
END_TEST

START_TEST(rows_of_the_flight_recorder) {
        static uint64_t arrivals[MAX_WORLD];
        for (size_t i = 0; i < MAX_WORLD; i++)
                arrivals[i] = i % 2 ? UINT64_MAX : i;
        struct row row = { .type = ROW_RECORD };
        row.record = (struct row_record){ .job = "dp",
                .group = "train",
                .epoch = 1,
                .collective = 2,
                .key = key_of("grad/7"),
                .kind = KIND_REDUCE,
                .op = OP_SUM,
                .dtype = DTYPE_BF16,
                .bytes = 3,
                .n_entries = 4,
                .status = STATUS_REPLICA_LOST,
                .age_ns = 5,
                .sealed_ns = 6,
                .done_ns = 7,
                .have = set_of(8),
                .last_rank = 9,
                .guilty_rank = 10,
                .has_guilty = true,
                .n_arrivals = MAX_WORLD,
                .arrival_ns = arrivals,
                .dropped = 11,
                .shortened = true,
                .missed = 77 };
        const struct row_record *a = &row.record, *b = &pass_row(&row)->record;
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME(a, b, epoch);
        SAME(a, b, collective);
        SAME_KEY(a, b, key);
        SAME(a, b, kind);
        SAME(a, b, op);
        SAME(a, b, dtype);
        SAME(a, b, bytes);
        SAME(a, b, n_entries);
        SAME(a, b, status);
        SAME(a, b, age_ns);
        SAME(a, b, sealed_ns);
        SAME(a, b, done_ns);
        SAME_SET(a, b, have);
        SAME(a, b, last_rank);
        SAME(a, b, guilty_rank);
        SAME(a, b, has_guilty);
        SAME(a, b, n_arrivals);
        ck_assert_int_eq(memcmp(b->arrival_ns, arrivals, sizeof(arrivals)), 0);
        SAME(a, b, dropped);
        SAME(a, b, shortened);
        SAME(a, b, missed);
}
END_TEST

/* --- parts --- */

/* Sends all entries in parts; every part but the last is as full as it can be. */
static void check_parts_of_entries(const struct entry *entries, uint32_t n) {
        uint32_t done = 0;
        begin();
        while (done < n) {
                struct request back;
                uint32_t n_fit = codec_entries_that_fit(entries + done, n - done, &scratch);
                ck_assert_uint_gt(n_fit, 0);
                struct request r = submission(entries + done, n_fit);
                memset(r.submit.key.bytes, 'k', MAX_KEY_BYTES);
                r.request = r.submit.membership = r.submit.epoch = r.submit.timeout_ns = UINT64_MAX;
                r.submit.key.n_bytes = MAX_KEY_BYTES;
                r.submit.signature = (struct signature){ .kind = KIND_BATCH_REDUCE,
                        .op = OP_MAX,
                        .root = UINT32_MAX,
                        .options = all_options,
                        .n_entries = n,
                        .axes = 2 * AXIS_BEYOND - 1 };
                r.submit.has_timeout = r.submit.more = true;
                r.submit.refused = STATUS_INTERNAL;
                r.submit.refused_field = FIELD_VERSION;
                ck_assert_int_eq(codec_encode_request(&r, &scratch, packet, &n_packet), 0);
                arena_reset(&arena);
                ck_assert_int_eq(codec_decode_request(packet, n_packet, &arena, &back), 0);
                ck_assert_uint_eq(back.submit.n_part_entries, n_fit);
                check_entry(&entries[done + n_fit - 1], &back.submit.entries[n_fit - 1]);
                done += n_fit;
        }
        end();
}

START_TEST(the_largest_batch_goes_in_parts) {
        struct entry *entries = calloc(MAX_ENTRIES, sizeof(*entries));
        ck_assert_ptr_nonnull(entries);
        for (size_t i = 0; i < MAX_ENTRIES; i++)
                entries[i] = full_entry((enum destination)(i % (DESTINATION_SAME + 1)));
        check_parts_of_entries(entries, 2000);
        for (size_t i = 0; i < MAX_ENTRIES; i++) /* the smallest that a broadcast can bring */
                entries[i] = (struct entry){
                        .dtype = DTYPE_F32, .destination = DESTINATION_ALL, .output.buffer = 1
                };
        check_parts_of_entries(entries, MAX_ENTRIES);
        memset(entries, 0, MAX_ENTRIES * sizeof(*entries));
        check_parts_of_entries(entries, MAX_ENTRIES);
        ck_assert_uint_eq(codec_entries_that_fit(entries, 0, &scratch), 0);
        free(entries);
}
END_TEST

START_TEST(rows_go_in_parts) {
        static uint64_t arrivals[MAX_WORLD];
        static struct row rows[3000];
        memset(arrivals, 0xff, sizeof(arrivals));
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                rows[i] = (struct row){ .type = i < 100 ? ROW_RECORD : ROW_FALLBACK };
                if (i < 100) {
                        rows[i].record.n_arrivals = MAX_WORLD;
                        rows[i].record.arrival_ns = arrivals;
                }
        }
        begin();
        unsigned int n_parts = 0;
        for (uint32_t done = 0; done < ARRAY_SIZE(rows);) {
                uint32_t n_fit = codec_rows_that_fit(rows + done, ARRAY_SIZE(rows) - done, &scratch);
                ck_assert_uint_gt(n_fit, 0);
                n_parts++;
                struct reply back, r = reply_with_rows(rows + done, n_fit);
                r.request = UINT64_MAX;
                r.more = true;
                ck_assert_int_eq(codec_encode_reply(&r, &scratch, packet, &n_packet), 0);
                arena_reset(&arena);
                ck_assert_int_eq(codec_decode_reply(packet, n_packet, &arena, &back), 0);
                ck_assert_uint_eq(back.rows.n_rows, n_fit);
                done += n_fit;
        }
        ck_assert_uint_le(n_parts, 20); /* 5 records of a full world each, then a thousand small rows each */
        ck_assert_uint_eq(codec_rows_that_fit(rows, 0, &scratch), 0);
        end();
}
END_TEST

START_TEST(what_does_not_fit_is_refused_and_the_packet_untouched) {
        static char reason[MAX_PACKET_BYTES];
        struct entry *entries = calloc(MAX_ENTRIES, sizeof(*entries));
        ck_assert_ptr_nonnull(entries);
        begin();
        for (size_t i = 0; i < MAX_ENTRIES; i++)
                entries[i] = full_entry(DESTINATION_RANKS);
        memset(packet, GUARD, sizeof(packet));
        n_packet = 17;
        struct request r = submission(entries, MAX_ENTRIES);
        ck_assert_int_eq(codec_encode_request(&r, &scratch, packet, &n_packet), -EMSGSIZE);
        r.submit.n_part_entries = 1000;
        ck_assert_int_eq(codec_encode_request(&r, &scratch, packet, &n_packet), -EMSGSIZE);
        memset(reason, 'r', sizeof(reason) - 1);
        r = (struct request){ .request = 1, .type = REQUEST_ABORT, .abort = { .reason = reason } };
        ck_assert_int_eq(codec_encode_request(&r, &scratch, packet, &n_packet), -EMSGSIZE);
        ck_assert_uint_eq(n_packet, 17);
        for (size_t i = 0; i < sizeof(packet); i++)
                ck_assert_uint_eq(packet[i], GUARD);
        end();
        free(entries);
}
END_TEST

START_TEST(an_empty_packet_is_never_made) {
        struct request nothing = { .type = REQUEST_NONE };
        struct reply no_reply = { .type = REPLY_NONE };
        begin();
        ck_assert_int_eq(codec_encode_request(&nothing, &scratch, packet, &n_packet), -EINVAL);
        ck_assert_int_eq(codec_encode_reply(&no_reply, &scratch, packet, &n_packet), -EINVAL);
        end();
}
END_TEST

UNIT_MAIN("codec-rows", 30, rows_of_the_daemon_and_its_devices, rows_of_groups, rows_of_members,
        rows_of_what_is_pending, rows_of_counters, rows_of_size_classes, P15_rows_of_what_a_group_did_not_get,
        rows_of_histograms, E8_rows_of_buffers, A12_rows_of_result_objects, rows_of_the_flight_recorder,
        the_largest_batch_goes_in_parts, rows_go_in_parts,
        what_does_not_fit_is_refused_and_the_packet_untouched, an_empty_packet_is_never_made)
