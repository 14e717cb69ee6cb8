/* Clients that lie about sizes, counts and offsets (O3), say everything in every wrong state, and say it
 * again (P17): what each lie is answered with, as tables; beside an honest group. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "meeting.h"
#include "raw.h"
#include "stage.h"
#include "unit.h"
#include "wire/codec.h"

#define BEYOND (UINT64_C(1) << 63)

/* --- lies about sizes, counts, offsets --- */

#define LIAR_BYTES 4096

static const struct lie {
        const char *name;
        enum dtype dtype;
        uint32_t n_dims;
        uint64_t shape[3];
        uint64_t buffer, offset;
        enum status status;
        uint32_t n_entries; /* 0: one */
} lies[] = {
        { "true", DTYPE_F32, 1, { 1024 }, 1, 0, STATUS_OK },
        { "one element too many", DTYPE_F32, 1, { 1025 }, 1, 0, STATUS_INVALID },
        { "one element behind", DTYPE_F32, 1, { 1024 }, 1, 4, STATUS_INVALID },
        { "offset at the end", DTYPE_F32, 1, { 1 }, 1, LIAR_BYTES, STATUS_INVALID },
        { "offset beyond", DTYPE_F32, 1, { 1 }, 1, BEYOND, STATUS_INVALID },
        { "offset that wraps", DTYPE_F32, 1, { 1024 }, 1, UINT64_MAX - 3, STATUS_INVALID },
        { "offset between elements", DTYPE_F32, 1, { 1 }, 1, 2, STATUS_INVALID },
        { "2^63 elements", DTYPE_U8, 1, { BEYOND }, 1, 0, STATUS_LIMIT },
        { "2^62 elements of two bytes", DTYPE_F16, 1, { BEYOND / 2 }, 1, 0, STATUS_LIMIT },
        { "2^64 - 1 elements", DTYPE_U8, 1, { UINT64_MAX }, 1, 0, STATUS_LIMIT },
        { "a product that wraps to one", DTYPE_U8, 3, { BEYOND, 2, 1 }, 1, 0, STATUS_LIMIT },
        { "2^63 times nothing", DTYPE_U8, 2, { BEYOND, 0 }, 1, 0, STATUS_OK },
        { "nine dimensions", DTYPE_U8, MAX_DIMS + 1, { 1 }, 1, 0, STATUS_LIMIT },
        { "no such buffer", DTYPE_F32, 1, { 1 }, 99, 0, STATUS_NOT_FOUND },
        { "no such type", N_DTYPE, 1, { 1 }, 1, 0, STATUS_UNSUPPORTED },
        { "65,537 entries", DTYPE_F32, 1, { 1 }, 1, 0, STATUS_LIMIT, MAX_ENTRIES + 1 },
        { "2^32 - 1 entries", DTYPE_F32, 1, { 1 }, 1, 0, STATUS_LIMIT, UINT32_MAX },
};

static struct request lie_request(const struct raw_member *m, const struct lie *l, struct entry *e) {
        *e = raw_entry(l->buffer, 1);
        e->dtype = l->dtype;
        e->n_dims = l->n_dims;
        memset(e->shape, 0, sizeof(e->shape));
        for (uint32_t i = 0; i < l->n_dims && i < 3; i++)
                e->shape[i] = l->shape[i];
        e->input.offset_bytes = e->output.offset_bytes = l->offset;
        struct request r = raw_submit_request(m, "lie", e);
        if (l->n_entries) {
                r.submit.signature.kind = KIND_BATCH_REDUCE;
                r.submit.signature.n_entries = l->n_entries;
        }
        return r;
}

START_TEST(O3_P17_lies_about_sizes_counts_and_offsets) {
        struct stage s;
        struct entry e;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        struct raw_member m = raw_join(r, "liar", 0, 1);
        raw_buffer(r, 1, raw_memfd(LIAR_BYTES), LIAR_BYTES);
        for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
                const struct request request = lie_request(&m, &lies[i], &e);
                const struct reply reply = raw_await(r, raw_send(r, &request));
                ck_assert_msg(reply.status == lies[i].status, "%s: %s, not %s", lies[i].name,
                        status_name(reply.status), status_name(lies[i].status));
                /* The group can go on. */
                raw_expect(r, raw_submit(r, &m, "true", 1, 16), STATUS_OK);
        }
        raw_close(r);
        stage_clear(&s);
}
END_TEST

static const struct size_lie {
        const char *name;
        uint64_t memfd, says;
        enum status status;
} size_lies[] = {
        { "true", 8192, 8192, STATUS_OK },
        { "less than there is", 8192, 4096, STATUS_OK },
        { "one byte more", 8192, 8193, STATUS_INVALID },
        { "nothing", 8192, 0, STATUS_OK },
        { "2^63", 8192, BEYOND, STATUS_QUOTA },
        { "2^64 - 1", 8192, UINT64_MAX, STATUS_QUOTA },
        { "of an empty memfd", 0, 4096, STATUS_INVALID },
};

START_TEST(O3_P17_lies_about_memory) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        for (size_t i = 0; i < ARRAY_SIZE(size_lies); i++) {
                const struct size_lie *l = &size_lies[i];
                enum status status =
                        raw_await(r, raw_register(r, i + 1, raw_memfd(l->memfd), l->says)).status;
                ck_assert_msg(status == l->status, "%s: %s, not %s", l->name, status_name(status),
                        status_name(l->status));
        }
        raw_close(r);
        stage_clear(&s);
}
END_TEST

static const struct join_lie {
        const char *name;
        uint32_t rank, world;
        enum status status;
} join_lies[] = {
        { "a world of none", 0, 0, STATUS_INVALID },
        { "a world of 1,025", 0, MAX_WORLD + 1, STATUS_INVALID },
        { "a world of 2^32 - 1", 0, UINT32_MAX, STATUS_INVALID },
        { "a rank outside", 2, 2, STATUS_INVALID },
        { "rank 2^32 - 1", UINT32_MAX, 2, STATUS_INVALID },
        { "alone", 0, 1, STATUS_OK },
};

START_TEST(O3_P17_lies_about_the_world) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        for (size_t i = 0; i < ARRAY_SIZE(join_lies); i++) {
                const struct join_lie *l = &join_lies[i];
                const struct request join = raw_join_request("liar", l->rank, l->world);
                enum status status = raw_await(r, raw_send(r, &join)).status;
                ck_assert_msg(status == l->status, "%s: %s, not %s", l->name, status_name(status),
                        status_name(l->status));
        }
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* --- everything in every state --- */

enum state { NEVER_JOINED, JOINED, FAILED, LEFT, GONE, N_STATE };

static const char *const state_names[] = {
        [NEVER_JOINED] = "never joined",
        [JOINED] = "joined",
        [FAILED] = "the group has lost a member",
        [LEFT] = "left",
        [GONE] = "said goodbye",
};

static const struct word {
        const char *name;
        enum request_type type;
        enum status status[N_STATE];
} words[] = {
        { "barrier", REQUEST_SUBMIT,
                { STATUS_NOT_FOUND, STATUS_OK, STATUS_REPLICA_LOST, STATUS_NOT_FOUND, STATUS_NOT_FOUND } },
        { "abort", REQUEST_ABORT,
                { STATUS_NOT_FOUND, STATUS_NOT_FOUND, STATUS_NOT_FOUND, STATUS_NOT_FOUND,
                        STATUS_NOT_FOUND } },
        { "busy", REQUEST_BUSY,
                { STATUS_NOT_FOUND, STATUS_OK, STATUS_OK, STATUS_NOT_FOUND, STATUS_NOT_FOUND } },
        { "unregister", REQUEST_UNREGISTER,
                { STATUS_NOT_FOUND, STATUS_NOT_FOUND, STATUS_NOT_FOUND, STATUS_NOT_FOUND,
                        STATUS_NOT_FOUND } },
        { "query", REQUEST_QUERY, { STATUS_OK, STATUS_OK, STATUS_OK, STATUS_OK, STATUS_OK } },
        { "leave", REQUEST_LEAVE,
                { STATUS_NOT_FOUND, STATUS_OK, STATUS_OK, STATUS_NOT_FOUND, STATUS_NOT_FOUND } },
};

/* A membership in that state; the connection is good for one word. */
static struct raw_member bring_into(enum state state, struct host *h, struct raw *r) {
        struct raw_member m = { 4711, 1 };
        if (state == NEVER_JOINED)
                return m;
        if (state != FAILED) {
                m = raw_join(r, "states", 0, 1);
        } else {
                struct raw *other = raw_open(host_socket(h));
                const struct request join = raw_join_request("states", 0, 2);
                uint64_t number = raw_send(r, &join);
                raw_join(other, "states", 1, 2);
                m = raw_joined(r, number);
                number = raw_barrier(r, &m, "until it is known");
                raw_close(other);
                raw_expect(r, number, STATUS_REPLICA_LOST);
        }
        if (state == LEFT)
                raw_expect(r,
                        raw_send(r, &(struct request){ .type = REQUEST_LEAVE, .membership = m.membership }),
                        STATUS_OK);
        if (state == GONE)
                raw_send(r, &(struct request){ .type = REQUEST_GOODBYE });
        return m;
}

static struct request word_of(enum request_type type, const struct raw_member *m) {
        struct request r = { .type = type };
        switch ((int)type) {
        case REQUEST_SUBMIT: return raw_submit_request(m, "word", NULL);
        case REQUEST_ABORT: r.abort = (struct msg_abort){ m->membership, true, raw_key("word"), "" }; break;
        case REQUEST_BUSY: r.busy = (struct msg_busy){ m->membership, "", 1 }; break;
        case REQUEST_UNREGISTER: r.buffer = 7; break;
        case REQUEST_QUERY: r.query = (struct msg_query){ WHAT_QUOTA, "", "" }; break;
        case REQUEST_LEAVE: r.membership = m->membership; break;
        }
        return r;
}

static void say_in(struct host *h, enum state state, const struct word *w) {
        struct raw *r = raw_open(host_socket(h));
        const struct raw_member m = bring_into(state, h, r);
        const struct request request = word_of(w->type, &m);
        enum status status = raw_await(r, raw_send(r, &request)).status;
        ck_assert_msg(status == w->status[state], "%s when %s: %s, not %s", w->name, state_names[state],
                status_name(status), status_name(w->status[state]));
        raw_send(r, &(struct request){ .type = REQUEST_GOODBYE });
        raw_close(r);
        host_expect_sessions(h, 2);
}

START_TEST(P17_every_message_in_every_state) {
        struct stage s;
        stage_set(&s, NULL);
        stage_expect_progress(); /* the honest ones are there, and can be counted */
        for (int state = 0; state < N_STATE; state++)
                for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                        say_in(s.h, (enum state)state, &words[i]);
        stage_clear(&s);
}
END_TEST

/* --- the same bytes again --- */

#define MAX_RECORD 8

struct record {
        uint8_t bytes[MAX_RECORD][1024];
        size_t n_bytes[MAX_RECORD];
        int n;
};

static void record_request(struct record *rec, struct raw *r, const struct request *request) {
        struct request numbered = *request;
        numbered.request = (uint64_t)rec->n + 10;
        ck_assert_int_lt(rec->n, MAX_RECORD);
        ck_assert_int_eq(codec_encode_request(&numbered, &r->scratch, r->out, &rec->n_bytes[rec->n]), 0);
        memcpy(rec->bytes[rec->n], r->out, rec->n_bytes[rec->n]);
        rec->n++;
}

static enum status replay(const struct record *rec, struct raw *r, int i) {
        raw_send_bytes(r, rec->bytes[i], rec->n_bytes[i], NULL, 0);
        return raw_await(r, (uint64_t)i + 10).status;
}

static const enum status first_time[] = { STATUS_OK, STATUS_OK, STATUS_OK, STATUS_OK };
/* The membership is another one now, and the old one is over. */
static const enum status second_time[] = { STATUS_OK, STATUS_NOT_FOUND, STATUS_NOT_FOUND, STATUS_OK };
/* Elsewhere nothing of it exists. */
static const enum status elsewhere[] = { STATUS_OK, STATUS_NOT_FOUND, STATUS_NOT_FOUND, STATUS_OK };

static void replay_all(const struct record *rec, struct raw *r, const enum status *expected) {
        for (int i = 0; i < rec->n; i++) {
                enum status status = replay(rec, r, i);
                ck_assert_msg(status == expected[i], "packet %d: %s, not %s", i, status_name(status),
                        status_name(expected[i]));
        }
}

START_TEST(P17_recorded_packets_said_again_do_what_they_say_now) {
        static struct record rec;
        struct stage s;
        stage_set(&s, NULL);
        stage_expect_progress(); /* the honest ones are there, and can be counted */
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        /* The number that the next membership gets is known from the last one. */
        struct raw_member m = raw_join(a, "before", 0, 1);
        m.membership += 2; /* one is the group's */
        const struct request join = raw_join_request("again", 0, 1),
                             barrier = raw_submit_request(&m, "k", NULL),
                             leave = { .type = REQUEST_LEAVE, .membership = m.membership },
                             query = { .type = REQUEST_QUERY, .query = { WHAT_QUOTA, "", "" } };
        record_request(&rec, a, &join);
        record_request(&rec, a, &barrier);
        record_request(&rec, a, &leave);
        record_request(&rec, a, &query);
        replay_all(&rec, a, first_time);
        replay_all(&rec, a, second_time);
        raw_close(a);
        host_expect_sessions(s.h, 3);
        replay_all(&rec, b, elsewhere);
        raw_hello(b); /* but a hello is said once */
        raw_expect_ejected(b, STATUS_INVALID);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

UNIT_MAIN("hostile-lies", 30, O3_P17_lies_about_sizes_counts_and_offsets, O3_P17_lies_about_memory,
        O3_P17_lies_about_the_world, P17_every_message_in_every_state,
        P17_recorded_packets_said_again_do_what_they_say_now)
