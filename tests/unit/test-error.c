/* The sentences, to the letter: what happened, to whom, what to do next. Whoever changes one, changes it here
 * too.
 *
 * B1: group, op, field and each rank's value are there. B3: no text speaks of byte counts alone. B4: the
 * value of every replica. C3: each REPLICA_LOST and PEER_REFUSED names rank, pid, uid and the collective. */
#include "model/error.h"
#include <stdio.h>
#include <string.h>
#include "unit.h"

static struct rankset ranks_of(const char *list) {
        struct rankset s = { { 0 } };
        for (; *list; list++)
                rankset_add(&s, (unsigned int)(*list - '0'));
        return s;
}

static struct error about(enum status status, enum kind kind, const char *key) {
        struct error e;
        error_init(&e, status);
        e.kind = kind;
        strcpy(e.job, "dp");
        strcpy(e.group, "train");
        e.epoch = 3;
        e.world_size = 4;
        e.has_key = key && key_name(&e.key, key, strlen(key));
        return e;
}

static void add_report(
        struct error *e, uint32_t rank, uint32_t pid, enum process_state state, const char *last) {
        struct replica_report *r = &e->replicas[e->n_replicas++];
        *r = (struct replica_report){ .rank = rank, .pid = pid, .uid = 1000, .state = state };
        if (last) {
                r->has_last = key_name(&r->last_key, last, strlen(last));
                r->last_age_ns = 12500000000;
        }
}

static void add_class(struct error *e, const char *ranks, const char *value) {
        struct error_class *c = &e->classes[e->n_classes++];
        c->ranks = ranks_of(ranks);
        strcpy(c->value, value);
}

static void check_text(const struct error *e, const char *expected) {
        char text[ERROR_TEXT_BYTES];
        error_print(e, text, sizeof(text));
        ck_assert_str_eq(text, expected);
}

/* --- the meeting failed --- */

START_TEST(B1_B4_mismatch_names_the_field_and_each_value) {
        struct error e = about(STATUS_MISMATCH, KIND_REDUCE, "grad/7");
        e.field = FIELD_SHAPE;
        e.entry = 0;
        add_class(&e, "013", "f32[1024,10]");
        add_class(&e, "2", "f32[1000,10]");
        add_report(&e, 2, 4711, PROCESS_ALIVE, NULL);
        check_text(&e, "MISMATCH: reduce \"grad/7\" in dp/train (epoch 3): shape differs. "
                       "R0 R1 R3: f32[1024,10]; R2: f32[1000,10].\n"
                       "Nothing was reduced; the group can go on. R2 is pid 4711 (uid 1000).");
}
END_TEST

START_TEST(B11_mismatch_of_a_batch_names_the_entry) {
        struct error e = about(STATUS_MISMATCH, KIND_BATCH_REDUCE, "step");
        e.field = FIELD_DESTINATIONS;
        e.entry = 137;
        add_class(&e, "0", "all");
        add_class(&e, "1", "R0 R2");
        check_text(&e,
                "MISMATCH: batch_reduce \"step\" in dp/train (epoch 3): destinations of entry 137 differ. "
                "R0: all; R1: R0 R2.\n"
                "Nothing was reduced; the group can go on.");
}
END_TEST

START_TEST(B5_mismatch_of_the_kind) {
        struct error e = about(STATUS_MISMATCH, KIND_BROADCAST, "x");
        e.field = FIELD_KIND;
        add_class(&e, "0", "broadcast");
        add_class(&e, "1", "reduce");
        check_text(&e,
                "MISMATCH: broadcast \"x\" in dp/train (epoch 3): kind differs. R0: broadcast; R1: reduce.\n"
                "Nothing was broadcast; the group can go on.");
}
END_TEST

START_TEST(mismatch_of_a_join_is_the_newcomers_alone) {
        struct error e = about(STATUS_MISMATCH, KIND_UNSPECIFIED, NULL);
        e.epoch = 0;
        e.field = FIELD_WORLD_SIZE;
        error_set_detail(&e, "5 was asked for, the group has 4");
        check_text(&e, "MISMATCH: dp/train: world size: 5 was asked for, the group has 4.\n"
                       "Only this join was refused: ask for what the others asked for.");
}
END_TEST

START_TEST(A1_timeout_names_whose_wait_who_is_there_and_who_is_missing) {
        struct error e = about(STATUS_TIMEOUT, KIND_REDUCE, "grad/7");
        e.rank = 0;
        e.age_ns = 2000000000;
        e.have = ranks_of("012");
        e.missing = ranks_of("3");
        add_report(&e, 3, 4711, PROCESS_ALIVE, "grad/6");
        check_text(&e,
                "TIMEOUT: reduce \"grad/7\" in dp/train (epoch 3): R0 waited 2.0 s, its limit. "
                "Here: R0 R1 R2; missing: R3 (pid 4711, uid 1000, alive; last finished \"grad/6\" 12.5 s "
                "ago).\n"
                "Nothing was reduced; the group can go on. Who comes to this use of the key from now on gets "
                "EXPIRED.");
}
END_TEST

START_TEST(A3_timeout_says_that_the_missing_is_stopped_and_why_it_is_busy) {
        struct error e = about(STATUS_TIMEOUT, KIND_BARRIER, NULL);
        e.has_key = true;
        e.key = key_sequence(17);
        e.rank = 1;
        e.age_ns = 71000;
        e.have = ranks_of("1");
        e.missing = ranks_of("0235");
        add_report(&e, 0, 4711, PROCESS_STOPPED, NULL);
        add_report(&e, 2, 0, PROCESS_UNKNOWN, "a");
        strcpy(e.replicas[1].busy, "checkpoint");
        check_text(&e,
                "TIMEOUT: barrier #17 in dp/train (epoch 3): R1 waited 71 us, its limit. Here: R1; missing: "
                "R0 (pid 4711, uid 1000, alive, stopped; has finished nothing yet), "
                "R2 (pid not visible, uid 1000, state unknown; last finished \"a\" 12.5 s ago; "
                "busy: \"checkpoint\") and R3 R5.\n"
                "Nobody passed the barrier; the group can go on. Who comes to this use of the key from now "
                "on "
                "gets EXPIRED.");
}
END_TEST

START_TEST(A7_timeout_of_a_join_names_who_never_came) {
        struct error e = about(STATUS_TIMEOUT, KIND_UNSPECIFIED, NULL);
        e.epoch = 0;
        e.rank = 0;
        e.age_ns = 1000000000;
        e.have = ranks_of("012");
        e.missing = ranks_of("3");
        add_report(&e, 3, 0, PROCESS_ABSENT, NULL);
        check_text(&e,
                "TIMEOUT: dp/train: R0 waited 1.0 s, its limit. Here: R0 R1 R2; missing: R3 (never joined).\n"
                "Start the missing replicas, or allow a longer join timeout.");
}
END_TEST

START_TEST(timeout_tells_the_difference_known_by_then) {
        struct error e = about(STATUS_TIMEOUT, KIND_REDUCE, "x");
        e.rank = 0;
        e.age_ns = 1500000000;
        e.have = ranks_of("01");
        e.missing = ranks_of("2");
        e.field = FIELD_OP;
        add_class(&e, "0", "SUM");
        add_class(&e, "1", "MEAN");
        check_text(&e,
                "TIMEOUT: reduce \"x\" in dp/train (epoch 3): R0 waited 1.5 s, its limit. "
                "Here: R0 R1; missing: R2. Known by then: op differs. R0: SUM; R1: MEAN.\n"
                "Nothing was reduced; the group can go on. Who comes to this use of the key from now on gets "
                "EXPIRED.");
}
END_TEST

START_TEST(expired_tells_the_old_reason) {
        struct error e = about(STATUS_EXPIRED, KIND_REDUCE, "grad/7");
        e.cause = STATUS_TIMEOUT;
        e.rank = 0;
        e.age_ns = 310000000;
        check_text(&e, "EXPIRED: reduce \"grad/7\" in dp/train (epoch 3): this half came too late: the "
                       "collective had "
                       "ended with TIMEOUT 310 ms ago.\n"
                       "R0 had waited as long as its limit allows.\n"
                       "This submission joined nothing, and its buffers are unchanged. The key is free: its "
                       "next use is "
                       "a new collective.");
        e.missing = ranks_of("3");
        e.cause = STATUS_ABORTED;
        error_set_detail(&e, "loss is NaN");
        check_text(&e, "EXPIRED: reduce \"grad/7\" in dp/train (epoch 3): this half came too late: the "
                       "collective had "
                       "ended with ABORTED 310 ms ago.\n"
                       "R0 gave it up: \"loss is NaN\".\n"
                       "This submission joined nothing, and its buffers are unchanged. The key is free: its "
                       "next use is "
                       "a new collective.");
}
END_TEST

/* The second line of an EXPIRED. */
static void check_old_reason(const struct error *e, const char *expected) {
        char text[ERROR_TEXT_BYTES];
        error_print(e, text, sizeof(text));
        char *line = strchr(text, '\n') + 1;
        *strchr(line, '\n') = '\0';
        ck_assert_str_eq(line, expected);
}

START_TEST(expired_tells_every_kind_of_old_reason) {
        struct error e = about(STATUS_EXPIRED, KIND_REDUCE, "x");
        e.rank = 1;
        e.cause = STATUS_REPLICA_LOST;
        e.loss = LOSS_WENT;
        check_old_reason(&e, "R1 left the group.");
        e.cause = STATUS_PEER_REFUSED;
        e.field = FIELD_DTYPE;
        error_set_detail(&e, "c64 is not done");
        check_old_reason(&e, "the half of R1 was refused: dtype: c64 is not done.");
        e.cause = STATUS_INVALID;
        e.field = FIELD_ROOT;
        error_set_detail(&e, "root R1 has left; name another root");
        check_old_reason(&e, "root: root R1 has left; name another root.");
        e.cause = STATUS_TIMEOUT;
        e.detail[0] = '\0';
        e.missing = ranks_of("2");
        check_old_reason(&e, "R1 had waited as long as its limit allows, for R2.");
        e.cause = STATUS_MISMATCH;
        add_class(&e, "0", "root 0");
        add_class(&e, "1", "root 1");
        check_old_reason(&e, "root differs. R0: root 0; R1: root 1.");
}
END_TEST

START_TEST(A8_aborted_names_by_whom_and_why) {
        struct error e = about(STATUS_ABORTED, KIND_REDUCE, "x");
        e.rank = 0;
        add_report(&e, 0, 12, PROCESS_ALIVE, NULL);
        error_set_detail(&e, "loss is \"NaN\"");
        check_text(&e, "ABORTED: reduce \"x\" in dp/train (epoch 3): R0 (pid 12, uid 1000) gave it up: "
                       "\"loss is \\\"NaN\\\"\".\n"
                       "Nothing was reduced; the group can go on.");
}
END_TEST

START_TEST(C3_peer_refused_names_rank_status_and_field) {
        struct error e = about(STATUS_PEER_REFUSED, KIND_BATCH_REDUCE, "step");
        e.rank = 1;
        e.cause = STATUS_UNSUPPORTED;
        e.field = FIELD_DTYPE;
        e.entry = 3;
        add_report(&e, 1, 12, PROCESS_ALIVE, NULL);
        error_set_detail(&e, "c64 is not done");
        check_text(&e, "PEER_REFUSED: batch_reduce \"step\" in dp/train (epoch 3): the half of R1 (pid 12, "
                       "uid 1000) "
                       "was refused with UNSUPPORTED: dtype of entry 3: c64 is not done.\n"
                       "Nothing was reduced; the group can go on. The refused call is the one to correct.");
}
END_TEST

START_TEST(C3_replica_lost_names_rank_pid_uid_last_key_and_collective) {
        struct error e = about(STATUS_REPLICA_LOST, KIND_REDUCE, "grad/8");
        e.rank = 2;
        e.loss = LOSS_DIED;
        e.age_ns = 4000000;
        e.have = ranks_of("013");
        add_report(&e, 2, 4711, PROCESS_DEAD, "grad/7");
        check_text(&e, "REPLICA_LOST: reduce \"grad/8\" in dp/train (epoch 3): R2 (pid 4711, uid 1000) ended "
                       "4 ms ago; "
                       "it last finished \"grad/7\" 12.5 s ago.\n"
                       "R0 R1 R3 got this error. The buffers are unchanged.\n"
                       "With on_death=fail the group takes nothing more until it is formed anew, by "
                       "tutti_rejoin together with a newcomer or by tutti_shrink without; with "
                       "on_death=shrink "
                       "it goes on without the lost.");
}
END_TEST

START_TEST(C3_replica_lost_says_how_and_whether_outputs_are_undefined) {
        struct error e = about(STATUS_REPLICA_LOST, KIND_REDUCE, "grad/8");
        e.rank = 2;
        e.loss = LOSS_EJECTED;
        e.outputs_undefined = true;
        error_set_detail(&e, "memory of its buffer 7 is a hole");
        add_report(&e, 2, 4711, PROCESS_ALIVE, NULL);
        check_text(&e, "REPLICA_LOST: reduce \"grad/8\" in dp/train (epoch 3): R2 (pid 4711, uid 1000) was "
                       "ejected by "
                       "tuttid; it had finished nothing. memory of its buffer 7 is a hole.\n"
                       "It had begun: its outputs are undefined, fill them anew before you use them.\n"
                       "With on_death=fail the group takes nothing more until it is formed anew, by "
                       "tutti_rejoin together with a newcomer or by tutti_shrink without; with "
                       "on_death=shrink "
                       "it goes on without the lost.");
}
END_TEST

START_TEST(C3_replica_lost_in_every_way_names_rank_pid_uid_and_collective) {
        for (enum loss loss = LOSS_UNSPECIFIED; loss <= LOSS_WENT; loss++) {
                char text[ERROR_TEXT_BYTES];
                struct error e = about(STATUS_REPLICA_LOST, KIND_REDUCE, "grad/8");
                e.loss = loss;
                add_report(&e, 2, 4711, PROCESS_DEAD, "grad/7");
                error_print(&e, text, sizeof(text));
                ck_assert_ptr_nonnull(
                        strstr(text, "reduce \"grad/8\" in dp/train (epoch 3): R2 (pid 4711, uid 1000) "));
                ck_assert_ptr_nonnull(strstr(text, "last finished \"grad/7\""));
        }
}
END_TEST

START_TEST(replica_lost_while_joining_and_without_a_report) {
        struct error e = about(STATUS_REPLICA_LOST, KIND_UNSPECIFIED, NULL);
        e.rank = 2;
        e.loss = LOSS_DISCONNECTED;
        check_text(&e, "REPLICA_LOST: dp/train (epoch 3): R2 (pid and uid not known) closed its connection.\n"
                       "Nothing goes on in this group until it is formed anew: join again, all together.");
}
END_TEST

/* --- this call was refused --- */

START_TEST(D18_invalid_says_what_and_what_to_do) {
        struct error e = about(STATUS_INVALID, KIND_REDUCE, "x");
        e.field = FIELD_OP;
        error_set_detail(&e, "there is no default op: say SUM, MEAN, MIN or MAX");
        check_text(&e, "INVALID: reduce \"x\" in dp/train (epoch 3): op: there is no default op: say SUM, "
                       "MEAN, MIN or "
                       "MAX.\n"
                       "Nothing was reduced; the group can go on. Correct the call and make it again.");
}
END_TEST

START_TEST(invalid_without_a_subject) {
        struct error e;
        error_init(&e, STATUS_OK);
        ck_assert_int_eq(error_set(&e, STATUS_INVALID, FIELD_JOB, "name the %s", "job"), STATUS_INVALID);
        check_text(&e, "INVALID: job: name the job.\nCorrect the call and make it again.");
}
END_TEST

START_TEST(unsupported_lists_what_works) {
        struct error e = about(STATUS_UNSUPPORTED, KIND_BATCH_REDUCE, "x");
        e.field = FIELD_DTYPE;
        e.entry = 1;
        error_set_detail(&e, "c64 is not done; what works: %s", "SUM");
        check_text(&e, "UNSUPPORTED: batch_reduce \"x\" in dp/train (epoch 3): dtype of entry 1: c64 is not "
                       "done; what "
                       "works: SUM.\n"
                       "Nothing was reduced; the group can go on. Ask for something that this version does.");
}
END_TEST

START_TEST(B7_already_pending_leaves_the_first_unharmed) {
        struct error e = about(STATUS_ALREADY_PENDING, KIND_REDUCE, "x");
        e.rank = 0;
        e.age_ns = 12000000;
        check_text(&e, "ALREADY_PENDING: reduce \"x\" in dp/train (epoch 3): R0 has already submitted this "
                       "key 12 ms "
                       "ago, and that use has not ended.\n"
                       "The first submission goes on unharmed. Wait for it before you use the key again, or "
                       "use another "
                       "key.");
}
END_TEST

START_TEST(O4_quota_says_which_how_much_and_the_limit) {
        struct error e;
        error_init(&e, STATUS_QUOTA);
        error_set_detail(&e, "groups");
        e.used = 1024;
        e.limit = 1024;
        check_text(&e, "QUOTA: groups: this user has 1024 of 1024.\n"
                       "Give some back, or ask whoever runs this host for a higher limit.");
}
END_TEST

START_TEST(limit_says_how_much) {
        struct error e = about(STATUS_LIMIT, KIND_REDUCE, "x");
        e.used = 9;
        e.limit = 8;
        e.field = FIELD_SHAPE;
        error_set_detail(&e, "too many dimensions; join neighbouring ones");
        check_text(&e, "LIMIT: reduce \"x\" in dp/train (epoch 3): shape: too many dimensions; join "
                       "neighbouring ones. 9 "
                       "asked, at most 8.\n"
                       "Nothing was reduced; the group can go on. This limit is the same for everybody: ask "
                       "for less.");
}
END_TEST

START_TEST(busy_names_the_pid_in_the_way) {
        struct error e = about(STATUS_BUSY, KIND_UNSPECIFIED, NULL);
        e.field = FIELD_RANK;
        error_set_detail(&e, "rank 2 is taken");
        add_report(&e, 2, 4711, PROCESS_ALIVE, NULL);
        check_text(&e, "BUSY: dp/train (epoch 3): rank: rank 2 is taken. In the way: R2 (pid 4711, uid 1000, "
                       "alive; has "
                       "finished nothing yet).\n"
                       "End what is in the way, or wait until it has ended, and try again.");
        struct error running = about(STATUS_BUSY, KIND_REDUCE, "x");
        error_set_detail(&running, "it already runs");
        check_text(&running, "BUSY: reduce \"x\" in dp/train (epoch 3): it already runs.\n"
                             "Wait until it has ended; it goes on unharmed.");
}
END_TEST

/* --- the rest of the list --- */

/* As JSON would: everything is about reduce "x" in dp/train, detail "why". */
static const struct {
        enum status status;
        const char *expected;
} rest[] = {
        { STATUS_OK, "done." },
        { STATUS_PENDING, "not ended yet. why.\nNothing has changed: wait or test again." },
        { STATUS_CANCELLED,
                "this process ended its wait. why.\nThe half stays submitted and its buffers stay in use "
                "until the collective ends." },
        { STATUS_LEFT, "the membership of R1 has ended by leave. why.\nJoin a group again to take part." },
        { STATUS_OUTPUT_LOST,
                "it was begun in place, and is not known to have been done when tuttid ended. why.\n"
                "Its outputs hold neither the old nor the new values: fill them anew before you submit it "
                "again." },
        { STATUS_PERMISSION,
                "why.\nNothing was reduced; the group can go on. Ask whoever runs this host for access." },
        { STATUS_VERSION, "this library and this tuttid have no protocol version in common. why.\n"
                          "Upgrade the older of the two." },
        { STATUS_BAD_FD,
                "why.\nNothing was reduced; the group can go on. Use memory from tutti_buffer_alloc, or a "
                "memfd opened for reading and writing that carries no write seal." },
        { STATUS_NOT_FOUND,
                "why.\nNothing was reduced; the group can go on. It has ended, or it was never there: check "
                "the name." },
        { STATUS_NO_MEMORY,
                "memory is short. why.\nNothing was reduced; the group can go on. Give some back or ask for "
                "less, and try again." },
        { STATUS_FORKED, "this handle was inherited over fork. why.\nA child may only close it: open a "
                         "connection of its "
                         "own after fork." },
        { STATUS_NO_DAEMON,
                "no tuttid answers. why.\nStart tuttid, point TUTTI_SOCKET to its socket, or run under "
                "`tuttictl run --private`." },
        { STATUS_DAEMON_LOST,
                "tuttid has ended, or has closed this connection. why.\nYour memory stays mapped and "
                "yours. Open a new connection and join again." },
        { STATUS_DRAINING,
                "tuttid is being stopped and takes nothing new. why.\nWhat was submitted before still runs. "
                "Connect again when tuttid is back." },
        { STATUS_DEVICE_LOST,
                "the device that was to do it is lost. why.\nNothing was reduced; the group can go on. Use "
                "another device until tuttid has tested it again." },
        { STATUS_INTERNAL,
                "tutti has made a mistake of its own, not you. why.\nNothing was reduced; the group can go "
                "on. Please report it, together with tuttid's log." },
};

START_TEST(the_rest_of_the_list) {
        for (size_t i = 0; i < ARRAY_SIZE(rest); i++) {
                char expected[1024];
                struct error e = about(rest[i].status, KIND_REDUCE, "x");
                e.rank = 1;
                error_set_detail(&e, "why");
                snprintf(expected, sizeof(expected), "%s: reduce \"x\" in dp/train (epoch 3): %s",
                        status_name(rest[i].status), rest[i].expected);
                check_text(&e, expected);
        }
}
END_TEST

/* Texts of all statuses about the same thing. */
static void print_bare(enum status status, char text[ERROR_TEXT_BYTES]) {
        struct error e = about(status, KIND_REDUCE, "x");
        e.rank = 1;
        error_print(&e, text, ERROR_TEXT_BYTES);
}

START_TEST(every_status_has_sentences_of_its_own) {
        static char texts[N_STATUS][ERROR_TEXT_BYTES];
        for (unsigned int i = 0; i < N_STATUS; i++) {
                print_bare((enum status)i, texts[i]);
                size_t head = strlen(status_name((enum status)i));
                ck_assert_int_eq(strncmp(texts[i], status_name((enum status)i), head), 0);
                ck_assert_int_ne(texts[i][strlen(texts[i]) - 1], '\n');
                ck_assert_int_eq(texts[i][strlen(texts[i]) - 1], '.');
                for (unsigned int j = 0; j < i; j++)
                        ck_assert_str_ne(texts[i] + head, texts[j] + strlen(status_name((enum status)j)));
        }
}
END_TEST

START_TEST(B3_no_text_speaks_of_bytes) {
        char text[ERROR_TEXT_BYTES];
        for (unsigned int i = 0; i < N_STATUS; i++) {
                print_bare((enum status)i, text);
                ck_assert_ptr_null(strstr(text, "byte"));
        }
}
END_TEST

START_TEST(an_unknown_status_is_a_mistake_of_ours) {
        struct error e;
        error_init(&e, (enum status)200);
        check_text(&e, "?: tutti has made a mistake of its own, not you.\nPlease report it, together with "
                       "tuttid's log.");
}
END_TEST

/* --- hostile names, narrow places --- */

START_TEST(names_cannot_forge_a_line) {
        struct error e = about(STATUS_ABORTED, KIND_REDUCE, "k\n\"");
        strcpy(e.group, "tr\nain");
        strcpy(e.job, "\x1b[2J");
        strcpy(e.detail, "a\nOK: all is well");
        e.rank = 0;
        check_text(&e, "ABORTED: reduce \"k\\x0a\\\"\" in ?[2J/tr?ain (epoch 3): R0 gave it up: "
                       "\"a\\x0aOK: all is well\".\n"
                       "Nothing was reduced; the group can go on.");
        error_set_detail(&e, "two\nlines");
        ck_assert_str_eq(e.detail, "two?lines");
}
END_TEST

START_TEST(the_fullest_error_stays_inside_its_buffer) {
        struct error e = about(STATUS_TIMEOUT, KIND_REDUCE, "x");
        char text[ERROR_TEXT_BYTES + 16];
        memset(&e.have, 0x55, sizeof(e.have));
        memset(&e.missing, 0xaa, sizeof(e.missing));
        e.n_replicas = UINT32_MAX;
        e.n_classes = UINT32_MAX;
        for (unsigned int i = 0; i < MAX_ERROR_CLASSES; i++) {
                memset(&e.classes[i].ranks, 0x55, sizeof(e.have));
                memset(e.classes[i].value, 'v', sizeof(e.classes[i].value) - 1);
        }
        memset(text, 0x7e, sizeof(text));
        error_print(&e, text, ERROR_TEXT_BYTES);
        ck_assert_uint_eq(strlen(text), ERROR_TEXT_BYTES - 1);
        for (size_t i = ERROR_TEXT_BYTES; i < sizeof(text); i++)
                ck_assert_int_eq(text[i], 0x7e);
        error_print(&e, text, 8);
        ck_assert_str_eq(text, "TIMEOUT");
}
END_TEST

START_TEST(details_are_cut_where_they_must_be) {
        struct error e;
        char long_text[1000];
        error_init(&e, STATUS_OK);
        memset(long_text, 'a', sizeof(long_text) - 1);
        long_text[sizeof(long_text) - 1] = '\0';
        error_set_detail(&e, "%s", long_text);
        ck_assert_uint_eq(strlen(e.detail), sizeof(e.detail) - 1);
        ck_assert_int_eq(e.entry, -1);
        ck_assert_int_eq(e.rank, -1);
}
END_TEST

UNIT_MAIN("error", 5, B1_B4_mismatch_names_the_field_and_each_value, B11_mismatch_of_a_batch_names_the_entry,
        B5_mismatch_of_the_kind, mismatch_of_a_join_is_the_newcomers_alone,
        A1_timeout_names_whose_wait_who_is_there_and_who_is_missing,
        A3_timeout_says_that_the_missing_is_stopped_and_why_it_is_busy,
        A7_timeout_of_a_join_names_who_never_came, timeout_tells_the_difference_known_by_then,
        expired_tells_the_old_reason, expired_tells_every_kind_of_old_reason,
        A8_aborted_names_by_whom_and_why, C3_peer_refused_names_rank_status_and_field,
        C3_replica_lost_names_rank_pid_uid_last_key_and_collective,
        C3_replica_lost_says_how_and_whether_outputs_are_undefined,
        C3_replica_lost_in_every_way_names_rank_pid_uid_and_collective,
        replica_lost_while_joining_and_without_a_report, D18_invalid_says_what_and_what_to_do,
        invalid_without_a_subject, unsupported_lists_what_works, B7_already_pending_leaves_the_first_unharmed,
        O4_quota_says_which_how_much_and_the_limit, limit_says_how_much, busy_names_the_pid_in_the_way,
        the_rest_of_the_list, every_status_has_sentences_of_its_own, B3_no_text_speaks_of_bytes,
        an_unknown_status_is_a_mistake_of_ours, names_cannot_forge_a_line,
        the_fullest_error_stays_inside_its_buffer, details_are_cut_where_they_must_be)
