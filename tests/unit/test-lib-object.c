/* Result objects as libtutti sees them: what it asks for, what it gives back and when, and what it does not
 * believe. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "descriptors.h"
#include "lib-server.h"
#include "lib/object.h"
#include "lib/work.h"

#define PAGE 4096

/* Three pages long, the begin of each says which one it is. */
static int make_memory(void) {
        int fd = memfd_create("object", MFD_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, 3 * PAGE), 0);
        for (int i = 0; i < 3; i++)
                ck_assert_int_eq(pwrite(fd, &i, sizeof(i), i * PAGE), sizeof(i));
        return fd;
}

static const struct msg_result three_slots = {
        .result = 50, .n_descriptors = 1, .size_bytes = 100, .n_slots = 3, .stride_bytes = PAGE
};

static void answer_make(struct server *s, const struct msg_result *result, int fd) {
        struct request r = server_take(s, REQUEST_MAKE_RESULT);
        ck_assert_uint_eq(r.make_result.membership, 7);
        ck_assert(r.make_result.has_key);
        ck_assert_uint_eq(r.make_result.key.n_bytes, 4);
        ck_assert_int_eq(memcmp(r.make_result.key.bytes, "sums", 4), 0);
        server_reply_fd(
                s, &(struct reply){ .request = r.request, .type = REPLY_RESULT, .result = *result }, fd);
}

static void expect_release(struct server *s, uint32_t slot, bool detach) {
        struct request r = server_take(s, REQUEST_RELEASE_RESULT);
        ck_assert_uint_eq(r.release_result.membership, 7);
        ck_assert_uint_eq(r.release_result.result, 50);
        ck_assert_int_eq(r.release_result.detach, detach);
        ck_assert_uint_eq(r.release_result.slot, slot);
        server_ok(s, r.request);
}

/* A submission into the object ends in this slot. */
static void answer_submit(struct server *s, uint32_t slot) {
        struct request r = server_take(s, REQUEST_SUBMIT);
        ck_assert_uint_eq(r.submit.entries[0].output.result, 50);
        ck_assert_uint_eq(r.submit.entries[0].output.offset_bytes, 8);
        ck_assert_uint_eq(r.submit.entries[0].output.buffer, 0);
        server_reply(
                s, &(struct reply){ .request = r.request,
                           .type = REPLY_DONE,
                           .done = { .collective = 1, .n_contributors = 1, .result = 50, .slot = slot } });
}

static struct tutti_value value_of(struct tutti_object *o) {
        return TUTTI_VALUE(.object = o, .offset = 8, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 4 });
}

static void script_honest(struct server *s) {
        int fd = make_memory();
        server_greet_and_join(s);
        answer_make(s, &three_slots, fd);
        close(fd);
        server_ok(s, server_take(s, REQUEST_REGISTER).request);
        answer_submit(s, 2);
        expect_release(s, 2, false);
        answer_submit(s, 1);         /* nobody looks at how this one ended */
        expect_release(s, 1, false); /* so it is given back */
        answer_submit(s, 0);         /* freed before it has ended */
        expect_release(s, 0, false);
        answer_submit(s, 2); /* held to the end */
        expect_release(s, 0, true);
        server_serve(s);
}

START_TEST(what_is_held_is_given_back_once_and_what_nobody_saw_by_itself) {
        struct server *s = server_start(script_honest, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        struct tutti_object *o = NULL;
        struct tutti_buffer *b = NULL;
        struct tutti_work *w;
        ck_assert_int_eq(tutti_object_make(g, &TUTTI_OBJECT(.name = "sums", .n_bytes = 100), &o), TUTTI_OK);
        ck_assert_uint_eq(tutti_object_slots(o), 3);
        ck_assert_uint_eq(tutti_object_bytes(o), 100);
        for (uint32_t i = 0; i < 3; i++)
                ck_assert_uint_eq(*(const uint32_t *)tutti_object_data(o, i), i);
        ck_assert_ptr_null(tutti_object_data(o, 3));
        ck_assert_int_eq(tutti_buffer_alloc(t, 16, &b), TUTTI_OK);
        const struct tutti_value input =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 4 });
        const struct tutti_value output = value_of(o);
        ck_assert_int_eq(tutti_all_reduce(g, NULL, TUTTI_SUM, &input, &output), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->slot, 2);
        ck_assert_int_eq(tutti_object_release(o, 0), TUTTI_INVALID);
        ck_assert_int_eq(tutti_object_release(o, 64), TUTTI_INVALID);
        ck_assert_int_eq(tutti_object_release(o, 2), TUTTI_OK);
        ck_assert_int_eq(tutti_object_release(o, 2), TUTTI_INVALID);

        ck_assert_int_eq(tutti_all_reduce_start(g, NULL, TUTTI_SUM, &input, &output, NULL, &w), TUTTI_OK);
        while (!w->call.is_ended)
                ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
        tutti_work_free(w);
        ck_assert_int_eq(tutti_object_release(o, 1), TUTTI_INVALID);
        ck_assert_int_eq(tutti_all_reduce_start(g, NULL, TUTTI_SUM, &input, &output, NULL, &w), TUTTI_OK);
        tutti_work_free(w);
        while (o->n_uses > 0)
                ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
        ck_assert_uint_eq(t->n_unwanted, 0);
        ck_assert_int_eq(tutti_all_reduce(g, NULL, TUTTI_SUM, &input, &output), TUTTI_OK);
        tutti_object_free(o);
        tutti_object_free(NULL);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_refuses(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_MAKE_RESULT);
        server_refuse(s, r.request, STATUS_MISMATCH, FIELD_SIZE, "the result object \"sums\" is another");
        server_serve(s);
}

START_TEST(a_refusal_is_the_callers) {
        struct server *s = server_start(script_refuses, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        struct tutti_object *o = NULL;
        ck_assert_int_eq(
                tutti_object_make(g, &TUTTI_OBJECT(.name = "sums", .n_bytes = 100), &o), TUTTI_MISMATCH);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "is another"));
        ck_assert_ptr_null(o);
        ck_assert_int_eq(tutti_object_make(NULL, NULL, &o), TUTTI_INVALID);
        ck_assert_int_eq(tutti_object_make(g, NULL, &o), TUTTI_INVALID);
        ck_assert_int_eq(tutti_object_release(NULL, 0), TUTTI_INVALID);
        ck_assert_uint_eq(tutti_object_bytes(NULL) + tutti_object_slots(NULL), 0);
        ck_assert_ptr_null(tutti_object_data(NULL, 0));
        tutti_close(t);
        server_end(s);
}
END_TEST

/* What a broken server may say of it; each is told, and detached from. */
static const struct msg_result broken[] = {
        { .result = 50, .n_descriptors = 1, .size_bytes = 100, .n_slots = 0, .stride_bytes = PAGE },
        { .result = 50, .n_descriptors = 1, .size_bytes = 100, .n_slots = 65, .stride_bytes = PAGE },
        { .result = 50, .n_descriptors = 1, .size_bytes = 100, .n_slots = 4, .stride_bytes = PAGE },
        { .result = 50, .n_descriptors = 1, .size_bytes = PAGE + 1, .n_slots = 2, .stride_bytes = PAGE },
        { .result = 50,
                .n_descriptors = 1,
                .size_bytes = 100,
                .n_slots = 2,
                .stride_bytes = UINT64_MAX / 2 + PAGE },
};

static void script_broken(struct server *s) {
        server_greet_and_join(s);
        for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
                int fd = make_memory();
                answer_make(s, &broken[i], fd);
                close(fd);
                expect_release(s, 0, true);
        }
        answer_make(s, &three_slots, -1); /* and no memory at all */
        struct request r;
        while (server_take_any(s, &r))
                ;
}

START_TEST(what_cannot_be_is_not_believed) {
        struct server *s = server_start(script_broken, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        struct tutti_object *o = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
                ck_assert_int_eq(tutti_object_make(g, &TUTTI_OBJECT(.name = "sums", .n_bytes = 100), &o),
                        TUTTI_INTERNAL);
                ck_assert_ptr_null(o);
        }
        ck_assert_int_eq(
                tutti_object_make(g, &TUTTI_OBJECT(.name = "sums", .n_bytes = 100), &o), TUTTI_DAEMON_LOST);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* Its memory comes when this process has no descriptor left for it. */
static void script_unreceived(struct server *s) {
        server_greet_and_join(s);
        answer_make(s, &three_slots, *(const int *)s->arg);
        expect_release(s, 0, true);
        answer_make(s, &three_slots, *(const int *)s->arg);
        server_serve(s);
}

START_TEST(P7_one_that_cannot_be_received_is_refused_and_given_back_and_nothing_else) {
        int fd = make_memory();
        struct server *s = server_start(script_unreceived, &fd);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        struct tutti_object *o = NULL;
        struct tutti_object_args args = TUTTI_OBJECT(.name = "sums", .n_bytes = 100);
        descriptors_run_out(getpid(), 0);
        ck_assert_int_eq(tutti_object_make(g, &args, &o), TUTTI_LIMIT);
        ck_assert_msg(strstr(tutti_error(), "the result object \"sums\" could not be received: this process "
                                            "has no descriptor left (RLIMIT_NOFILE = "),
                "%s", tutti_error());
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DESCRIPTOR);
        descriptors_are_back(getpid());
        ck_assert_int_eq(tutti_object_make(g, &args, &o), TUTTI_OK);
        ck_assert_uint_eq(*(const uint32_t *)tutti_object_data(o, 2), 2);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_close(t);
        server_end(s);
        close(fd);
}
END_TEST

UNIT_MAIN("lib-object", 20, what_is_held_is_given_back_once_and_what_nobody_saw_by_itself,
        P7_one_that_cannot_be_received_is_refused_and_given_back_and_nothing_else, a_refusal_is_the_callers,
        what_cannot_be_is_not_believed)
