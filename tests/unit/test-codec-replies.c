/* Replies over the wire and back: nothing is lost on the way. */
#include "codec-journey.h"

/* --- replies, every field --- */

static void check_finding(const struct finding *a, const struct finding *b) {
        SAME(a, b, n);
        SAME(a, b, rank);
        SAME(a, b, entry);
        SAME(a, b, index);
}

START_TEST(welcome_joined_and_done) {
        struct reply r = { .request = 1, .type = REPLY_WELCOME, .more = true };
        r.welcome = (struct msg_welcome){ .version = 1,
                .server = "tuttid 0.1.0",
                .session = UINT64_MAX,
                .pid = 17,
                .n_descriptors = 1,
                .status_slots = STATUS_PAGE_SLOTS,
                .default_timeout_ns = 600,
                .max_world = MAX_WORLD,
                .max_entries = MAX_ENTRIES,
                .max_packet_bytes = MAX_PACKET_BYTES };
        struct reply back = pass_reply(&r);
        SAME(&r.welcome, &back.welcome, version);
        SAME_STR(&r.welcome, &back.welcome, server);
        SAME(&r.welcome, &back.welcome, session);
        SAME(&r.welcome, &back.welcome, pid);
        SAME(&r.welcome, &back.welcome, n_descriptors);
        SAME(&r.welcome, &back.welcome, status_slots);
        SAME(&r.welcome, &back.welcome, default_timeout_ns);
        SAME(&r.welcome, &back.welcome, max_world);
        SAME(&r.welcome, &back.welcome, max_entries);
        SAME(&r.welcome, &back.welcome, max_packet_bytes);

        r = (struct reply){ .request = 2, .type = REPLY_JOINED };
        r.joined = (struct msg_joined){ .membership = 5, .epoch = 6, .rank = 7, .world_size = 8 };
        rankset_add(&r.joined.members, 1023);
        back = pass_reply(&r);
        SAME(&r.joined, &back.joined, membership);
        SAME(&r.joined, &back.joined, epoch);
        SAME(&r.joined, &back.joined, rank);
        SAME(&r.joined, &back.joined, world_size);
        ck_assert(rankset_is_equal(&r.joined.members, &back.joined.members));

        r = (struct reply){ .request = 3, .type = REPLY_DONE };
        r.done = (struct msg_done){ .collective = 9,
                .contributors = set_of(1),
                .n_contributors = 500,
                .op = OP_MAX,
                .wait_ns = 10,
                .run_ns = 11,
                .last_rank = 12,
                .is_kept = true,
                .found = { .numerics = { .n = UINT64_MAX, .rank = 13, .entry = 14, .index = 1ull << 40 },
                        .overflow = { .n = 1, .rank = 15, .entry = 16, .index = 17 } } };
        back = pass_reply(&r);
        SAME(&r.done, &back.done, collective);
        SAME_SET(&r.done, &back.done, contributors);
        SAME(&r.done, &back.done, n_contributors);
        SAME(&r.done, &back.done, op);
        SAME(&r.done, &back.done, wait_ns);
        SAME(&r.done, &back.done, run_ns);
        SAME(&r.done, &back.done, last_rank);
        SAME(&r.done, &back.done, is_kept);
        check_finding(&r.done.found.numerics, &back.done.found.numerics);
        check_finding(&r.done.found.overflow, &back.done.found.overflow);

        r.done.found = (struct findings){ .overflow = { .n = 3, .index = 4 } };
        back = pass_reply(&r);
        ck_assert_uint_eq(back.done.found.numerics.n, 0);
        check_finding(&r.done.found.overflow, &back.done.found.overflow);
}
END_TEST

START_TEST(lengths_of_results_at_their_longest_fit_into_one_packet) {
        static uint64_t extents[MAX_PART_EXTENTS], firsts[MAX_PART_EXTENTS];
        struct reply r = { .request = UINT64_MAX, .type = REPLY_DONE, .more = true };
        r.done = (struct msg_done){ .collective = UINT64_MAX,
                .contributors = set_of(1),
                .n_contributors = UINT32_MAX,
                .op = OP_MAX,
                .wait_ns = UINT64_MAX,
                .run_ns = UINT64_MAX,
                .last_rank = UINT32_MAX,
                .found = { { UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX },
                        { UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX } },
                .result = UINT64_MAX,
                .slot = UINT32_MAX,
                .n_extents = MAX_PART_EXTENTS,
                .extents = extents,
                .firsts = firsts };
        for (uint32_t i = 0; i < MAX_PART_EXTENTS; i++) {
                extents[i] = UINT64_MAX - i;
                firsts[i] = UINT64_MAX - 2 * i;
        }
        struct reply back = pass_reply(&r);
        SAME(&r.done, &back.done, n_extents);
        ck_assert_mem_eq(back.done.extents, extents, sizeof(extents));
        ck_assert_mem_eq(back.done.firsts, firsts, sizeof(firsts));
}
END_TEST

static void check_error(const struct error *a, const struct error *b) {
        SAME(a, b, status);
        SAME(a, b, cause);
        SAME(a, b, field);
        SAME(a, b, loss);
        SAME(a, b, outputs_undefined);
        SAME(a, b, kind);
        SAME_STR(a, b, job);
        SAME_STR(a, b, group);
        SAME(a, b, has_key);
        SAME_KEY(a, b, key);
        SAME(a, b, epoch);
        SAME(a, b, entry);
        SAME(a, b, rank);
        SAME(a, b, world_size);
        SAME_SET(a, b, have);
        SAME_SET(a, b, missing);
        SAME(a, b, n_classes);
        for (uint32_t i = 0; i < a->n_classes; i++) {
                SAME_SET(a, b, classes[i].ranks);
                SAME_STR(a, b, classes[i].value);
        }
        SAME(a, b, n_replicas);
        for (uint32_t i = 0; i < a->n_replicas; i++)
                check_report(&a->replicas[i], &b->replicas[i]);
        SAME(a, b, age_ns);
        SAME(a, b, used);
        SAME(a, b, limit);
        SAME_STR(a, b, detail);
}

START_TEST(B4_the_fullest_error_passes_whole_and_fits) {
        struct error e = full_error(), bare;
        struct reply r = { .request = 8, .status = STATUS_MISMATCH, .error = &e };
        struct reply back = pass_reply(&r);
        ck_assert_ptr_nonnull(back.error);
        check_error(&e, back.error);
        ck_assert_uint_lt(n_packet, MAX_PACKET_BYTES / 8);
        char here[ERROR_TEXT_BYTES], there[ERROR_TEXT_BYTES];
        error_print(&e, here, sizeof(here));
        error_print(back.error, there, sizeof(there));
        ck_assert_str_eq(here, there);

        error_init(&bare, STATUS_BUSY);
        bare.key = key_sequence(0);
        r = (struct reply){ .request = 0, .status = STATUS_BUSY, .error = &bare };
        back = pass_reply(&r);
        check_error(&bare, back.error);
}
END_TEST

START_TEST(a_status_without_error_and_an_error_without_status) {
        struct error e = full_error();
        struct reply r = { .request = 8, .status = STATUS_NO_MEMORY };
        ck_assert_ptr_null(pass_reply(&r).error);
        r = (struct reply){ .request = 8, .status = STATUS_OK, .error = &e };
        ck_assert_ptr_null(pass_reply(&r).error);
}
END_TEST

UNIT_MAIN("codec-replies", 30, welcome_joined_and_done,
        lengths_of_results_at_their_longest_fit_into_one_packet, B4_the_fullest_error_passes_whole_and_fits,
        a_status_without_error_and_an_error_without_status)
