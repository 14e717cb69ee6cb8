/* Results that tuttid tells wrongly, or not to the end: none is taken for an OK, and none leads the library
 * beyond an output, a slot or a group. */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/axes.h>
#include <tutti/merge.h>
#include <tutti/object.h>
#include <unistd.h>
#include "lib-server.h"
#include "lib/work.h"

#define N          10
#define SLOT_BYTES 4096

/* What is told of results; where a submission is not answered, its number stands here. */
struct story {
        uint64_t extent;
        uint32_t n_extents, slot, n_contributors;
        uint64_t size_bytes; /* of an object; 0: as asked */
        bool is_silent;
        atomic_uint_fast64_t unanswered;
};

static void answer_make(struct server *s, const struct request *r) {
        const struct story *story = s->arg;
        int fd = memfd_create("object", MFD_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, 2 * SLOT_BYTES), 0);
        server_reply_fd(s,
                &(struct reply){ .request = r->request,
                        .type = REPLY_RESULT,
                        .result = { .result = 50,
                                .n_descriptors = 1,
                                .size_bytes =
                                        story->size_bytes ? story->size_bytes : r->make_result.size_bytes,
                                .n_slots = 2,
                                .stride_bytes = SLOT_BYTES } },
                fd);
        close(fd);
}

static void answer_submit(struct server *s, const struct request *r) {
        static const uint64_t first = 0;
        struct story *story = s->arg;
        if (story->is_silent) {
                atomic_store(&story->unanswered, r->request);
                return;
        }
        server_reply(s, &(struct reply){ .request = r->request,
                                .type = REPLY_DONE,
                                .done = { .collective = 1,
                                        .contributors = rankset_first(story->n_contributors),
                                        .n_contributors = story->n_contributors,
                                        .result = 50,
                                        .slot = story->slot,
                                        .n_extents = story->n_extents,
                                        .extents = &story->extent,
                                        .firsts = &first } });
}

static void tell(struct server *s) {
        struct request r;
        server_greet_and_join(s);
        while (server_take_any(s, &r)) {
                if (r.type == REQUEST_GOODBYE)
                        continue;
                if (r.type == REQUEST_MAKE_RESULT)
                        answer_make(s, &r);
                else if (r.type == REQUEST_SUBMIT)
                        answer_submit(s, &r);
                else
                        server_ok(s, r.request);
        }
}

static struct tutti_value floats(float *f, uint64_t n) {
        return TUTTI_VALUE(.memory = f, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
}

/* --- lengths --- */

/* There is room for N, and behind it is what must stay. */
static void gather(struct story *story, enum tutti_status wanted) {
        struct server *s = server_start(tell, story);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        float in[N] = { 0 }, out[2 * N];
        uint64_t extent = 99;
        for (size_t i = 0; i < 2 * N; i++)
                out[i] = 7;
        const struct tutti_value input = floats(in, N), output = floats(out, N);
        ck_assert_int_eq(tutti_all_gather(g, "k", 0, &input, &output, &extent), wanted);
        if (wanted == TUTTI_OK)
                ck_assert_uint_eq(extent, N);
        else
                ck_assert_msg(strstr(tutti_error(), "a result that is longer than its output"), "%s",
                        tutti_error());
        for (size_t i = 0; i < 2 * N; i++)
                ck_assert_float_eq(out[i], wanted == TUTTI_OK && i < N ? 0 : 7);
        tutti_close(t);
        server_end(s);
}

START_TEST(a_result_that_is_longer_than_its_output_is_not_believed) {
        gather(&(struct story){ .n_contributors = 2, .n_extents = 1, .extent = N }, TUTTI_OK);
        gather(&(struct story){ .n_contributors = 2, .n_extents = 1, .extent = N + 1 }, TUTTI_DAEMON_LOST);
        gather(&(struct story){ .n_contributors = 2, .n_extents = 1, .extent = UINT64_MAX / 4 + 1 },
                TUTTI_DAEMON_LOST);
}
END_TEST

/* As a status page tells it to who comes back to a tuttid that was restarted. */
static void end_without_an_answer(struct tutti *t, struct tutti_work *w) {
        pthread_mutex_lock(&t->lock);
        call_end(t, &w->call, STATUS_OK, NULL);
        pthread_mutex_unlock(&t->lock);
}

START_TEST(an_end_with_OK_without_the_lengths_of_results_is_OUTPUT_LOST) {
        struct story story = { .is_silent = true };
        struct server *s = server_start(tell, &story);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        float in[N] = { 0 }, out[N] = { 7 };
        uint64_t extent;
        struct tutti_work *w;
        const struct tutti_value input = floats(in, N), output = floats(out, N);
        ck_assert_int_eq(tutti_all_gather_start(g, "k", 0, &input, &output, NULL, &w), TUTTI_OK);
        while (!atomic_load(&story.unanswered))
                usleep(1000);
        end_without_an_answer(t, w);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OUTPUT_LOST);
        ck_assert_int_eq(tutti_work_error(w)->outputs_undefined, 1);
        ck_assert_ptr_nonnull(strstr(tutti_work_error(w)->text, "it was done, but"));
        ck_assert_int_eq(tutti_work_extent(w, 0, &extent, NULL), TUTTI_OUTPUT_LOST);
        ck_assert_float_eq(out[0], 7);
        tutti_work_free(w);
        /* Where no length was open, it is as good as an answer. */
        atomic_store(&story.unanswered, 0);
        ck_assert_int_eq(tutti_barrier_start(g, "b", NULL, &w), TUTTI_OK);
        while (!atomic_load(&story.unanswered))
                usleep(1000);
        end_without_an_answer(t, w);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- result objects --- */

START_TEST(a_slot_that_its_object_does_not_have_is_not_believed) {
        for (uint32_t slot = 1; slot < 3; slot++) {
                struct story story = { .slot = slot, .n_contributors = 2 };
                struct server *s = server_start(tell, &story);
                struct tutti *t = client_open(s);
                struct tutti_group *g = client_join(t, 0, 2);
                struct tutti_object *o = NULL;
                float in[N] = { 0 };
                const struct tutti_object_args args = TUTTI_OBJECT(.name = "sums", .n_bytes = sizeof(in));
                ck_assert_int_eq(tutti_object_make(g, &args, &o), TUTTI_OK);
                const struct tutti_value input = floats(in, N);
                struct tutti_value output = floats(NULL, N);
                output.object = o;
                ck_assert_int_eq(tutti_all_reduce(g, "k", TUTTI_SUM, &input, &output),
                        slot < 2 ? TUTTI_OK : TUTTI_DAEMON_LOST);
                if (slot == 2)
                        ck_assert_ptr_nonnull(strstr(tutti_error(), "a slot that its result object"));
                tutti_close(t);
                server_end(s);
        }
}
END_TEST

START_TEST(an_object_that_is_smaller_than_asked_is_refused) {
        struct story story = { .size_bytes = 99 };
        struct server *s = server_start(tell, &story);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_object *o = NULL;
        ck_assert_int_eq(
                tutti_object_make(g, &TUTTI_OBJECT(.name = "sums", .n_bytes = 100), &o), TUTTI_INTERNAL);
        ck_assert_ptr_null(o);
        ck_assert_int_eq(tutti_object_make(g, &TUTTI_OBJECT(.name = "sums", .n_bytes = 99), &o), TUTTI_OK);
        ck_assert_uint_eq(tutti_object_bytes(o), 99);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- who takes part --- */

static enum tutti_status look_at_all(struct tutti_merge *m, void *userdata) {
        uint32_t *n_runs = userdata;
        ++*n_runs;
        for (uint32_t rank = 0; rank < TUTTI_MAX_WORLD; rank++)
                if (tutti_ranks_has(tutti_merge_ranks(m), rank))
                        ck_assert_float_eq(*(const float *)tutti_merge_value(m, rank, 0), 0);
        return TUTTI_OK;
}

START_TEST(ranks_beyond_the_group_take_no_part_in_a_merge_call) {
        static const uint32_t told[] = { 2, 0, 3, TUTTI_MAX_WORLD };
        for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++) {
                struct story story = { .n_contributors = told[i] };
                struct server *s = server_start(tell, &story);
                struct tutti *t = client_open(s);
                struct tutti_group *g = client_join(t, 0, 2);
                uint32_t n_runs = 0;
                float in = 1;
                const struct tutti_value input = TUTTI_VALUE(.memory = &in, .dtype = TUTTI_F32);
                ck_assert_int_eq(
                        tutti_merge_call(g, &TUTTI_MERGE(.key = "k", .fn = look_at_all, .userdata = &n_runs,
                                                    .inputs = &input, .n_inputs = 1)),
                        told[i] == 2 ? TUTTI_OK : TUTTI_INTERNAL);
                ck_assert_uint_eq(n_runs, told[i] == 2);
                tutti_close(t);
                server_end(s);
        }
}
END_TEST

UNIT_MAIN("lib-lies", 30, a_result_that_is_longer_than_its_output_is_not_believed,
        an_end_with_OK_without_the_lengths_of_results_is_OUTPUT_LOST,
        a_slot_that_its_object_does_not_have_is_not_believed, an_object_that_is_smaller_than_asked_is_refused,
        ranks_beyond_the_group_take_no_part_in_a_merge_call)
