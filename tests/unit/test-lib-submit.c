/* Halves: what the library refuses itself, how many may be unfinished, and batches in parts. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "failing.h"
#include "lib-server.h"
#include "lib/region.h"
#include "lib/work.h"

static void assert_says(const char *text, const char *part) {
        ck_assert_msg(strstr(text, part), "\"%s\" is not in: %s", part, text);
}

/* --- refusals --- */

struct seen {
        uint64_t sequence;
        enum status refused;
        enum field field;
        uint32_t n_entries;
};

#define MAX_SEEN 64

struct record {
        struct seen seen[MAX_SEEN];
        int n;
};

/* Notes each submission; a refused one is answered as tuttid does. */
static void script_record(struct server *s) {
        struct record *record = s->arg;
        struct request r;
        server_greet_and_join(s);
        while (server_take_any(s, &r)) {
                if (r.type != REQUEST_SUBMIT) {
                        server_ok(s, r.request);
                        continue;
                }
                CHECK(record->n < MAX_SEEN);
                record->seen[record->n++] = (struct seen){ r.submit.key.sequence, r.submit.refused,
                        r.submit.refused_field, r.submit.n_part_entries };
                if (r.submit.refused == STATUS_OK)
                        server_done(s, r.request, 0);
                else
                        server_refuse(s, r.request, r.submit.refused, r.submit.refused_field,
                                "refused by the caller's own library");
        }
}

struct setting {
        struct record record;
        struct server *s;
        struct tutti *t;
        struct tutti_group *g;
        struct tutti_buffer *b;
        struct tutti_value v; /* f32[16], all of the buffer */
};

static struct setting *setting_new(void) {
        struct setting *x = calloc(1, sizeof(*x));
        ck_assert_ptr_nonnull(x);
        x->s = server_start(script_record, &x->record);
        x->t = client_open(x->s);
        x->g = client_join(x->t, 1, 2);
        ck_assert_int_eq(tutti_buffer_alloc(x->t, 64, &x->b), TUTTI_OK);
        x->v = TUTTI_VALUE(.buffer = x->b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 16 });
        return x;
}

static void setting_end(struct setting *x) {
        tutti_close(x->t);
        server_end(x->s);
        free(x);
}

/* The reduce of `v` is refused so, under the next number, and its error is the library's own. */
static void assert_refused(struct setting *x, const struct tutti_value *in, const struct tutti_value *out,
        enum tutti_status status, enum tutti_field field, const char *part) {
        ck_assert_int_eq(tutti_all_reduce(x->g, NULL, TUTTI_SUM, in, out), status);
        assert_says(tutti_error(), part);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->field, field);
        ck_assert_str_eq(e->group, "g");
        ck_assert_int_eq(e->rank, 1);
        const struct seen *last = &x->record.seen[x->record.n - 1];
        ck_assert_uint_eq(last->sequence, (uint64_t)x->record.n - 1);
        ck_assert_int_eq(last->refused, (enum status)status);
        ck_assert_int_eq(last->field, (enum field)field);
        ck_assert_uint_eq(last->n_entries, 0);
}

START_TEST(what_the_library_refuses_its_peers_hear_under_the_same_number_P4) {
        struct setting *x = setting_new();
        struct tutti_value v;

        assert_refused(x, NULL, &x->v, TUTTI_INVALID, TUTTI_FIELD_BUFFER, "the input is NULL");
        v = x->v;
        v.struct_size = 0;
        assert_refused(x, &v, &x->v, TUTTI_INVALID, TUTTI_FIELD_SIZE, "TUTTI_VALUE");
        v = x->v;
        v.n_dims = 9;
        assert_refused(x, &v, &x->v, TUTTI_LIMIT, TUTTI_FIELD_SHAPE, "9 dimensions");
        v = x->v;
        v.buffer = NULL;
        assert_refused(x, &v, &v, TUTTI_INVALID, TUTTI_FIELD_BUFFER, "no buffer");
        v = x->v;
        v.shape[0] = 17;
        assert_refused(
                x, &v, &v, TUTTI_INVALID, TUTTI_FIELD_OFFSET, "does not fit into its buffer of 64 bytes");
        v = x->v;
        v.offset = 2;
        v.shape[0] = 1;
        assert_refused(x, &v, &v, TUTTI_INVALID, TUTTI_FIELD_OFFSET, "not aligned");
        v = x->v;
        v.n_dims = 2;
        v.shape[0] = v.shape[1] = UINT64_C(1) << 40;
        assert_refused(x, &v, &v, TUTTI_LIMIT, TUTTI_FIELD_SHAPE, "63 bits");
        v = x->v;
        v.shape[0] = 15;
        assert_refused(x, &x->v, &v, TUTTI_INVALID, TUTTI_FIELD_SHAPE, "differ in their shapes");
        ck_assert_int_eq(tutti_all_reduce(x->g, NULL, TUTTI_SUM, &x->v, &x->v), TUTTI_OK);
        ck_assert_uint_eq(x->record.seen[8].sequence, 8);
        ck_assert_int_eq(x->record.seen[8].refused, STATUS_OK);

        ck_assert_int_eq(tutti_reduce(x->g, NULL, TUTTI_SUM, &x->v, &x->v, NULL), TUTTI_INVALID);
        ck_assert_int_eq(x->record.seen[9].field, FIELD_DESTINATIONS);
        struct tutti_work *w;
        ck_assert_int_eq(
                tutti_barrier_start(x->g, NULL, &TUTTI_OPTIONS(.timeout = __builtin_nan("")), &w), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_INVALID);
        ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_TIMEOUT);
        ck_assert_int_eq(x->record.seen[10].field, FIELD_TIMEOUT);
        tutti_work_free(w);
        ck_assert_int_eq(
                tutti_barrier_start(x->g, NULL, &(struct tutti_options){ .timeout = 1 }, &w), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_INVALID);
        ck_assert_int_eq(x->record.seen[11].field, FIELD_OPTIONS);
        setting_end(x);
}
END_TEST

START_TEST(a_newer_header_may_only_set_what_this_library_knows) {
        struct setting *x = setting_new();
        struct {
                struct tutti_value v;
                uint64_t newer;
        } wide = { .v = x->v };
        wide.v.struct_size = sizeof(wide);
        ck_assert_int_eq(tutti_all_reduce(x->g, "a", TUTTI_SUM, &wide.v, &wide.v), TUTTI_OK);
        wide.newer = 1;
        ck_assert_int_eq(tutti_all_reduce(x->g, "b", TUTTI_SUM, &wide.v, &wide.v), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_SIZE);
        setting_end(x);
}
END_TEST

/* What came after the first version is 0 for a program that was compiled before. */
START_TEST(an_older_header_lacks_what_came_later) {
        struct setting *x = setting_new();
        struct tutti_value old = x->v;
        struct tutti_options options = TUTTI_OPTIONS(.check_numerics = 1, .check_inputs = 1);
        struct tutti_work *w;
        old.struct_size = offsetof(struct tutti_value, has_strides);
        old.has_strides = 1;
        old.memory = &old;
        options.struct_size = offsetof(struct tutti_options, check_inputs);
        ck_assert_int_eq(tutti_all_reduce_start(x->g, "a", TUTTI_SUM, &old, &old, &options, &w), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        old.struct_size--;
        ck_assert_int_eq(tutti_all_reduce(x->g, "b", TUTTI_SUM, &old, &old), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_SIZE);
        setting_end(x);
}
END_TEST

/* With a fresh connection for each call that fails, since pieces and lists are kept. */
START_TEST(plain_memory_that_cannot_be_staged_is_NO_MEMORY_and_stays_as_it_is) {
        unsigned int n = 1, n_refused = 0;
        for (bool has_failed = true; has_failed; n++) {
                struct setting *x = setting_new();
                float plain[16];
                for (int i = 0; i < 16; i++)
                        plain[i] = (float)i;
                struct tutti_value v =
                        TUTTI_VALUE(.memory = plain, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 16 });
                const struct tutti_options options = TUTTI_OPTIONS(.check_inputs = 1);
                struct tutti_work *w = NULL;
                failing_call_at(FAILING_MEMORY | FAILING_MMAP, n);
                enum tutti_status status = tutti_all_reduce_start(x->g, "a", TUTTI_SUM, &v, &v, &options, &w);
                if (status == TUTTI_OK)
                        status = tutti_work_wait(w, -1);
                has_failed = failing_has_failed();
                failing_call_at(0, 0);
                ck_assert_int_eq(status, has_failed ? TUTTI_NO_MEMORY : TUTTI_OK);
                for (int i = 0; i < 16; i++)
                        ck_assert_float_eq(plain[i], (float)i); /* the server reduces nothing */
                tutti_work_free(w);
                tutti_close(x->t);
                server_end(x->s);
                n_refused += has_failed && x->record.seen[0].refused == STATUS_NO_MEMORY;
                free(x);
        }
        ck_assert_uint_ge(n_refused, 4);
}
END_TEST

static void *wait_for_plain(void *work) {
        return tutti_work_wait(work, -1) == TUTTI_OK ? work : NULL;
}

/* The server reduces nothing, so what comes home is the input. */
START_TEST(plain_outputs_are_home_in_every_thread_that_has_seen_the_end) {
        struct setting *x = setting_new();
        static float in[50000], out[50000];
        struct tutti_value from =
                TUTTI_VALUE(.memory = in, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 50000 });
        for (int round = 0; round < 20; round++) {
                pthread_t threads[3];
                struct tutti_work *w;
                void *seen;
                for (int i = 0; i < 50000; i++)
                        in[i] = out[i] = (float)(i + round);
                ck_assert_int_eq(
                        tutti_all_reduce_start(x->g, "a", TUTTI_SUM, &from, &from, NULL, &w), TUTTI_OK);
                for (int i = 0; i < 3; i++)
                        ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_plain, w), 0);
                ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
                ck_assert_mem_eq(in, out, sizeof(in));
                in[7] = -1; /* ours again: nobody writes it once more */
                for (int i = 0; i < 3; i++) {
                        ck_assert_int_eq(pthread_join(threads[i], &seen), 0);
                        ck_assert_ptr_eq(seen, w);
                }
                ck_assert_float_eq(in[7], -1);
                tutti_work_free(w);
        }
        setting_end(x);
}
END_TEST

START_TEST(a_key_that_cannot_be_sent_is_refused_by_the_work_alone) {
        struct setting *x = setting_new();
        struct tutti_work *w;
        char key[130];
        memset(key, 'k', sizeof(key) - 1);
        key[129] = '\0';
        ck_assert_int_eq(tutti_barrier(x->g, ""), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KEY);
        ck_assert_int_eq(tutti_barrier_start(x->g, key, NULL, &w), TUTTI_OK);
        ck_assert_int_eq(tutti_work_test(w), TUTTI_INVALID);
        assert_says(tutti_work_error(w)->text, "1 to 128 bytes");
        tutti_work_free(w);
        key[128] = '\0';
        ck_assert_int_eq(tutti_barrier(x->g, key), TUTTI_OK);
        ck_assert_int_eq(x->record.n, 1);
        ck_assert_int_eq(tutti_barrier(NULL, "k"), TUTTI_INVALID);
        ck_assert_int_eq(tutti_barrier_start(x->g, "k", NULL, NULL), TUTTI_INVALID);
        ck_assert_int_eq(tutti_abort(x->g, NULL, "why"), TUTTI_INVALID);
        setting_end(x);
}
END_TEST

START_TEST(a_half_without_memory_is_refused_to_the_peers_too) {
        struct setting *x = setting_new();
        /* The work, then the list of its buffers; nothing is left over from an earlier one. */
        failing_call_at(FAILING_MEMORY, 1);
        enum tutti_status status = tutti_all_reduce(x->g, NULL, TUTTI_SUM, &x->v, &x->v);
        bool has_failed = failing_has_failed();
        failing_call_at(0, 0);
        ck_assert(has_failed);
        ck_assert_int_eq(status, TUTTI_NO_MEMORY);
        failing_call_at(FAILING_MEMORY, 2);
        status = tutti_all_reduce(x->g, NULL, TUTTI_SUM, &x->v, &x->v);
        failing_call_at(0, 0);
        ck_assert_int_eq(status, TUTTI_NO_MEMORY);
        ck_assert_int_eq(tutti_all_reduce(x->g, NULL, TUTTI_SUM, &x->v, &x->v), TUTTI_OK);
        ck_assert_int_eq(x->record.n, 3);
        for (uint64_t i = 0; i < 3; i++) {
                ck_assert_uint_eq(x->record.seen[i].sequence, i);
                ck_assert_int_eq(x->record.seen[i].refused, i < 2 ? STATUS_NO_MEMORY : STATUS_OK);
        }
        setting_end(x);
}
END_TEST

static void script_other_end(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_SUBMIT);
        server_refuse(s, r.request, STATUS_EXPIRED, FIELD_UNSPECIFIED, "");
        server_serve(s);
}

START_TEST(a_refused_half_that_pays_a_debt_hears_of_the_debt_P3) {
        struct server *s = server_start(script_other_end, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        ck_assert_int_eq(tutti_all_reduce(g, "k", TUTTI_SUM, NULL, NULL), TUTTI_EXPIRED);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- how many may be unfinished --- */

static void script_hold(struct server *s) {
        static uint64_t requests[2 * STATUS_PAGE_SLOTS];
        server_greet_and_join(s);
        for (int i = 0; i < STATUS_PAGE_SLOTS; i++)
                requests[i] = server_take(s, REQUEST_SUBMIT).request;
        struct request r = server_take(s, REQUEST_SUBMIT); /* one too many: no slot of the page for it */
        ck_assert_int_eq(r.submit.refused, STATUS_LIMIT);
        server_refuse(s, r.request, STATUS_LIMIT, FIELD_UNSPECIFIED, "");
        /* All but the first end; it keeps its slot, which the next ones pass over. */
        for (int i = 1; i < STATUS_PAGE_SLOTS; i++)
                server_done(s, requests[i], (uint64_t)i);
        uint64_t last = r.request;
        for (int i = 0; i < STATUS_PAGE_SLOTS + 10; i++) {
                r = server_take(s, REQUEST_SUBMIT);
                ck_assert_uint_gt(r.request, last);
                ck_assert_uint_ne(r.request % STATUS_PAGE_SLOTS, requests[0] % STATUS_PAGE_SLOTS);
                last = r.request;
                server_done(s, r.request, 0);
        }
        server_done(s, requests[0], 0);
        server_serve(s);
}

START_TEST(one_submission_more_than_the_page_has_slots_is_LIMIT_P9) {
        static struct tutti_work *works[STATUS_PAGE_SLOTS];
        struct server *s = server_start(script_hold, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        for (int i = 0; i < STATUS_PAGE_SLOTS; i++)
                ck_assert_int_eq(tutti_barrier_start(g, NULL, NULL, &works[i]), TUTTI_OK);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_LIMIT);
        ck_assert_uint_eq(tutti_error_info()->limit, STATUS_PAGE_SLOTS);
        for (int i = 1; i < STATUS_PAGE_SLOTS; i++) {
                ck_assert_int_eq(tutti_work_wait(works[i], -1), TUTTI_OK);
                tutti_work_free(works[i]);
        }
        for (int i = 0; i < STATUS_PAGE_SLOTS + 10; i++)
                ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(works[0], -1), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void reduce_without_memory(struct setting *x, const struct tutti_value *v) {
        int n_ok = tutti_all_reduce(x->g, NULL, TUTTI_SUM, v, v) == TUTTI_OK;
        failing_call_at(FAILING_MEMORY | FAILING_MMAP, 1);
        for (int i = 0; i < 20; i++)
                n_ok += tutti_all_reduce(x->g, NULL, TUTTI_SUM, v, v) == TUTTI_OK;
        bool has_failed = failing_has_failed();
        failing_call_at(0, 0);
        ck_assert_int_eq(n_ok, 21);
        ck_assert(!has_failed);
}

START_TEST(after_warm_up_a_synchronous_collective_takes_no_memory) {
        struct setting *x = setting_new();
        float plain[16] = { 0 };
        struct tutti_value v = x->v;
        reduce_without_memory(x, &v);
        v.buffer = NULL;
        v.memory = plain;
        reduce_without_memory(x, &v);
        setting_end(x);
}
END_TEST

/* --- batches --- */

#define N_BATCH 5000

struct batch_seen {
        uint32_t n_parts, n_entries, n_wrong, n_between;
};

static void script_batch(struct server *s) {
        struct batch_seen *seen = s->arg;
        struct request r;
        uint64_t open = 0;
        server_greet_and_join(s);
        while (server_take_any(s, &r)) {
                if (r.type != REQUEST_SUBMIT) {
                        seen->n_between += open != 0;
                        server_ok(s, r.request);
                        continue;
                }
                if (r.submit.signature.kind == KIND_BARRIER) {
                        seen->n_between += open != 0;
                        server_done(s, r.request, 0);
                        continue;
                }
                seen->n_wrong += open && open != r.request;
                open = r.submit.more ? r.request : 0;
                seen->n_parts++;
                for (uint32_t i = 0; i < r.submit.n_part_entries; i++) {
                        const struct entry *e = &r.submit.entries[i];
                        uint64_t k = seen->n_entries++;
                        seen->n_wrong += e->n_dims != 1 || e->shape[0] != k % 3 + 1;
                        seen->n_wrong += e->dtype != (k % 2 ? DTYPE_F32 : DTYPE_F64);
                        seen->n_wrong += e->destination != (k % 5 ? DESTINATION_ALL : DESTINATION_RANK);
                        seen->n_wrong += e->input.buffer == 0 || e->input.offset_bytes % 64 != 0;
                }
                if (!r.submit.more)
                        server_done(s, r.request, 77);
        }
}

static void *barriers(void *arg) {
        for (uintptr_t i = 0; i < 200; i++)
                if (tutti_barrier(arg, NULL) != TUTTI_OK)
                        return (void *)(i + 1);
        return NULL;
}

START_TEST(a_long_batch_goes_in_parts_that_nothing_comes_between) {
        static struct tutti_value values[N_BATCH];
        static struct tutti_entry entries[N_BATCH];
        static struct tutti_buffer *buffers[N_BATCH];
        struct batch_seen seen = { 0 };
        struct server *s = server_start(script_batch, &seen);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        for (uint32_t i = 0; i < N_BATCH; i++) {
                ck_assert_int_eq(tutti_buffer_alloc(t, 24, &buffers[i]), TUTTI_OK);
                values[i] = TUTTI_VALUE(.buffer = buffers[i], .dtype = i % 2 ? TUTTI_F32 : TUTTI_F64,
                        .n_dims = 1, .shape = { i % 3 + 1 });
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i],
                        .destinations = { .where = i % 5 ? TUTTI_TO_ALL : TUTTI_TO_RANK, .rank = 1 });
        }
        pthread_t thread;
        void *failed;
        ck_assert_int_eq(pthread_create(&thread, NULL, barriers, g), 0);
        ck_assert_int_eq(tutti_batch_reduce(g, "all", TUTTI_SUM, entries, N_BATCH), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->collective, 77);
        ck_assert_int_eq(pthread_join(thread, &failed), 0);
        ck_assert_ptr_null(failed);
        ck_assert_uint_eq(seen.n_entries, N_BATCH);
        ck_assert_uint_ge(seen.n_parts, 2);
        ck_assert_uint_eq(seen.n_wrong, 0);
        ck_assert_uint_eq(seen.n_between, 0);

        entries[4321].input = NULL;
        ck_assert_int_eq(tutti_batch_reduce(g, "all", TUTTI_SUM, entries, N_BATCH), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->entry, 4321);
        tutti_close(t);
        server_end(s);
}
END_TEST

START_TEST(odd_batches_are_refused) {
        struct setting *x = setting_new();
        struct tutti_entry entries[2] = { TUTTI_ENTRY(.input = &x->v, .output = &x->v),
                TUTTI_ENTRY(.input = &x->v, .output = &x->v) };
        ck_assert_int_eq(tutti_batch_reduce(x->g, NULL, TUTTI_SUM, NULL, 2), TUTTI_INVALID);
        ck_assert_int_eq(x->record.seen[0].field, FIELD_ENTRIES);
        ck_assert_int_eq(
                tutti_batch_reduce(x->g, NULL, TUTTI_SUM, entries, TUTTI_MAX_ENTRIES + 1), TUTTI_LIMIT);
        ck_assert_int_eq(x->record.seen[1].field, FIELD_BATCH_LENGTH);
        entries[1].struct_size++;
        ck_assert_int_eq(tutti_batch_reduce(x->g, NULL, TUTTI_SUM, entries, 2), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->entry, 1);
        ck_assert_int_eq(x->record.seen[2].field, FIELD_ENTRIES);
        entries[1].struct_size--;
        ck_assert_int_eq(tutti_batch_reduce(x->g, NULL, TUTTI_SUM, entries, 2), TUTTI_OK);
        /* An empty one is tuttid's to refuse. */
        ck_assert_int_eq(tutti_batch_reduce(x->g, NULL, TUTTI_SUM, NULL, 0), TUTTI_OK);
        ck_assert_int_eq(x->record.seen[4].refused, STATUS_OK);
        setting_end(x);
}
END_TEST

UNIT_MAIN("lib-submit", 30, what_the_library_refuses_its_peers_hear_under_the_same_number_P4,
        a_newer_header_may_only_set_what_this_library_knows, an_older_header_lacks_what_came_later,
        plain_memory_that_cannot_be_staged_is_NO_MEMORY_and_stays_as_it_is,
        plain_outputs_are_home_in_every_thread_that_has_seen_the_end,
        a_key_that_cannot_be_sent_is_refused_by_the_work_alone,
        a_half_without_memory_is_refused_to_the_peers_too,
        a_refused_half_that_pays_a_debt_hears_of_the_debt_P3,
        one_submission_more_than_the_page_has_slots_is_LIMIT_P9,
        after_warm_up_a_synchronous_collective_takes_no_memory,
        a_long_batch_goes_in_parts_that_nothing_comes_between, odd_batches_are_refused)
