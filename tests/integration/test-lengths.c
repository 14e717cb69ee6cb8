/* A gather tells each replica the lengths of all its results. Where these are many, they are told a
 * packet at a time, between what others ask (P21), and each member still hears all of its own. */
#include <signal.h>
#include <stdio.h>
#include "host.h"
#include "raw.h"
#include "unit.h"
#include "wire/codec.h"

#define N_RANKS   16
#define N_ENTRIES 16384
#define N_TRIES   10

struct crowd {
        struct raw *raw[N_RANKS];
        struct raw_member members[N_RANKS];
        uint64_t asked[N_RANKS];
};

static void crowd_join(struct crowd *c, const char *socket, const char *name) {
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                const struct request join = raw_join_request(name, rank, N_RANKS);
                c->raw[rank] = raw_open(socket);
                c->asked[rank] = raw_send(c->raw[rank], &join);
        }
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                c->members[rank] = raw_joined(c->raw[rank], c->asked[rank]);
                raw_buffer(c->raw[rank], 1, raw_memfd(4096), 4096);
        }
}

static void crowd_close(struct crowd *c) {
        for (uint32_t rank = 0; rank < N_RANKS; rank++)
                raw_close(c->raw[rank]);
}

/* Of entry i rank r brings a row where (i + r) is a multiple of N_RANKS, and has room for a row. */
static void submit(struct crowd *c, uint32_t rank) {
        static struct entry entries[N_ENTRIES];
        struct raw *r = c->raw[rank];
        for (uint32_t i = 0; i < N_ENTRIES; i++) {
                entries[i] = raw_entry(1, (i + rank) % N_RANKS == 0);
                entries[i].output.offset_bytes = 4;
                entries[i].output_extent = 1;
                entries[i].n_dims = 2;
                entries[i].shape[1] = 0; /* rows of nothing: they have a number, and no place */
        }
        c->asked[rank] = r->next_request++;
        for (uint32_t done = 0; done < N_ENTRIES;) {
                struct request part = raw_submit_request(&c->members[rank], "rows", &entries[done]);
                uint32_t n = codec_entries_that_fit(&entries[done], N_ENTRIES - done, &r->scratch);
                part.request = c->asked[rank];
                part.submit.signature.kind = KIND_GATHER;
                part.submit.signature.op = OP_UNSPECIFIED;
                part.submit.signature.axes = 1;
                part.submit.signature.n_entries = N_ENTRIES;
                part.submit.n_part_entries = n;
                part.submit.more = (done += n) < N_ENTRIES;
                raw_send(r, &part);
        }
}

/* How many lengths a rank hears of, each of them 1, with its own row at the beginning of it. */
static uint32_t hear_all(struct crowd *c, uint32_t rank, struct reply *reply) {
        uint32_t n = 0;
        for (;;) {
                ck_assert_uint_eq(reply->request, c->asked[rank]);
                ck_assert_msg(reply->status == STATUS_OK, "%s", reply->error ? reply->error->detail : "?");
                for (uint32_t i = 0; i < reply->done.n_extents; i++, n++) {
                        ck_assert_uint_eq(reply->done.extents[i], 1);
                        ck_assert_uint_eq(reply->done.firsts[i], rank > (N_RANKS - n % N_RANKS) % N_RANKS);
                }
                if (!reply->more)
                        return n;
                ck_assert(raw_take(c->raw[rank], reply));
        }
}

/* Whether somebody else was answered after the first had heard a part, and before the last had. */
static bool was_answered_between(struct crowd *c, struct raw *other) {
        struct reply reply;
        for (uint32_t rank = 0; rank < N_RANKS; rank++)
                submit(c, rank);
        ck_assert(raw_take(c->raw[0], &reply));
        raw_settle(other);
        bool was_between = raw_is_silent(c->raw[N_RANKS - 1], 0);
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                if (rank > 0)
                        ck_assert(raw_take(c->raw[rank], &reply));
                ck_assert_uint_eq(hear_all(c, rank, &reply), N_ENTRIES);
        }
        return was_between;
}

START_TEST(P21_a_quarter_million_lengths_are_told_between_what_others_ask) {
        struct host *h = host_start(NULL);
        struct raw *other = raw_open(host_socket(h));
        bool was_between = false;
        for (int i = 0; i < N_TRIES && !was_between; i++) {
                struct crowd c;
                char name[32];
                snprintf(name, sizeof(name), "crowd %d", i);
                crowd_join(&c, host_socket(h), name);
                was_between = was_answered_between(&c, other);
                crowd_close(&c);
        }
        ck_assert_msg(was_between, "who asked meanwhile was answered after all of them");
        raw_close(other);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* Those who are told last have gone meanwhile; the first hears all of its own, and nothing is left. */
START_TEST(P21_who_goes_while_lengths_are_told_harms_nobody) {
        struct host *h = host_start(NULL);
        struct crowd c;
        struct reply reply;
        crowd_join(&c, host_socket(h), "crowd");
        for (uint32_t rank = 0; rank < N_RANKS; rank++)
                submit(&c, rank);
        ck_assert(raw_take(c.raw[0], &reply));
        for (uint32_t rank = 1; rank < N_RANKS; rank++) {
                raw_close(c.raw[rank]);
                c.raw[rank] = NULL;
        }
        ck_assert_uint_eq(hear_all(&c, 0, &reply), N_ENTRIES);
        crowd_close(&c);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* tuttid is stopped meanwhile: what has run is told. */
START_TEST(P21_who_stops_tuttid_while_lengths_are_told_takes_none_away) {
        struct host *h = host_start(NULL);
        struct crowd c;
        struct reply reply;
        crowd_join(&c, host_socket(h), "crowd");
        for (uint32_t rank = 0; rank < N_RANKS; rank++)
                submit(&c, rank);
        ck_assert(raw_take(c.raw[0], &reply));
        ck_assert_int_eq(kill(host_pid(h), SIGTERM), 0);
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                if (rank > 0)
                        ck_assert(raw_take(c.raw[rank], &reply));
                ck_assert_uint_eq(hear_all(&c, rank, &reply), N_ENTRIES);
        }
        crowd_close(&c);
        host_stop(h);
}
END_TEST

UNIT_MAIN("lengths", 60, P21_a_quarter_million_lengths_are_told_between_what_others_ask,
        P21_who_goes_while_lengths_are_told_harms_nobody,
        P21_who_stops_tuttid_while_lengths_are_told_takes_none_away)
