#include <tutti/admin.h>

#include <string.h>
#include "lib/driver.h"
#include "lib/answer.h"
#include "lib/arguments.h"
#include "lib/axes.h"
#include "lib/connection.h"
#include "lib/environment.h"
#include "lib/options.h"

static enum tutti_status no_memory_for_answer(void) {
        return thread_say(
                STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "The answer does not fit into this process's memory");
}

/* A tuttid that knows no epochs of records has told of the newest one, whichever was asked for. */
static bool is_of_epoch(const struct tutti_answer *a, uint64_t epoch) {
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_DUMP)
                        return a->rows[i].dump.first_epoch <= epoch && epoch <= a->rows[i].dump.last_epoch;
        return false;
}

static enum tutti_status ask(
        struct tutti *t, const struct msg_query *query, struct answer *answer, struct tutti_answer **ret) {
        struct request request = { .type = REQUEST_QUERY, .query = *query };
        struct call call;
        call_init(&call, CALL_ROWS);
        call.answer = answer;
        enum tutti_status status = send_and_ask(t, &request, &call);
        if (status != TUTTI_OK)
                return status;
        *ret = answer_publish(answer);
        if (!*ret)
                return no_memory_for_answer();
        if (query->epoch && !is_of_epoch(*ret, query->epoch))
                return thread_say(STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                        "this tuttid tells of the newest record of a group alone; upgrade it");
        return TUTTI_OK;
}

static enum tutti_status ask_whole(
        struct tutti *t, const struct msg_query *query, struct tutti_answer **ret) {
        struct answer *answer = answer_new();
        if (!answer)
                return no_memory_for_answer();
        struct tutti_answer *published;
        enum tutti_status status = ask(t, query, answer, &published);
        if (status == TUTTI_OK)
                *ret = published;
        else
                answer_free(answer);
        return status;
}

enum tutti_status tutti_admin_ask(struct tutti *t, enum tutti_admin_what what, const char *job,
        const char *group, struct tutti_answer **ret) {
        return tutti_admin_ask_about(t, &TUTTI_ADMIN_QUESTION(.what = what, .job = job, .group = group), ret);
}

enum tutti_status tutti_admin_ask_about(
        struct tutti *t, const struct tutti_admin_question *question, struct tutti_answer **ret) {
        struct tutti_admin_question q;
        if (!t || !ret || !question || !arguments_copy(&ARGUMENTS(&q), question, question->struct_size))
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "asking tuttid needs a connection, a question and a place for the answer");
        enum tutti_status status = connection_check(t);
        if (status != TUTTI_OK)
                return status;
        const struct msg_query query = { .what = (enum what)q.what,
                .job = q.job ? q.job : "",
                .group = q.group ? q.group : "",
                .has_user = t->has_user,
                .user = t->user,
                .epoch = q.what == TUTTI_ADMIN_DUMP ? q.epoch : 0,
                .ended_members = q.ended_members != 0 };
        return ask_whole(t, &query, ret);
}

/* --- plans --- */

#define MAX_QUESTION_VALUES 256
#define MAX_DEVICES_CHARS   1024 /* of the wire's strings */

static void take_sparse(const struct tutti_value *v, struct entry *e) {
        e->layout = LAYOUT_SPARSE;
        e->sparse = (struct sparse){ .index_dtype = (enum dtype)v->indices->dtype,
                .n_dense_dims = v->n_dims,
                .n_indices = v->shape[0] };
        memcpy(e->sparse.dense_shape, e->shape, sizeof(e->shape));
        e->sparse.dense_shape[0] = v->dense_rows;
}

static enum status take_values(
        const struct tutti_plan_question *q, struct entry *entries, struct error *err) {
        if (q->n_values > MAX_QUESTION_VALUES)
                return refuse(err, STATUS_LIMIT, FIELD_BATCH_LENGTH, "a plan is shown of at most %d values",
                        MAX_QUESTION_VALUES);
        for (uint32_t i = 0; i < q->n_values; i++) {
                const struct tutti_value *v = &q->values[i];
                if (v->n_dims > TUTTI_MAX_DIMS)
                        return refuse(
                                err, STATUS_INVALID, FIELD_SHAPE, "value %u has %u dimensions", i, v->n_dims);
                entries[i] = (struct entry){
                        .dtype = (enum dtype)v->dtype, .destination = DESTINATION_ALL, .n_dims = v->n_dims
                };
                memcpy(entries[i].shape, v->shape, v->n_dims * sizeof(*v->shape));
                if (v->indices)
                        take_sparse(v, &entries[i]);
        }
        return STATUS_OK;
}

enum tutti_status tutti_admin_plan(
        struct tutti *t, const struct tutti_plan_question *question, struct tutti_answer **ret) {
        static _Thread_local struct entry entries[MAX_QUESTION_VALUES];
        struct tutti_plan_question q;
        struct half_options options;
        struct error err;
        uint16_t axes = 0;
        if (!t || !ret || !question ||
                !arguments_copy(&ARGUMENTS_SINCE(&q, axes), question, question->struct_size))
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "tutti_admin_plan needs a connection, a question that begins with "
                        "TUTTI_PLAN_QUESTION, and a place for the answer");
        enum tutti_status checked = connection_check(t);
        if (checked != TUTTI_OK)
                return checked;
        enum status status = options_take(q.options, &options, &err);
        if (status == STATUS_OK && q.devices && strlen(q.devices) > MAX_DEVICES_CHARS)
                status = refuse(&err, STATUS_LIMIT, FIELD_SIZE,
                        "the names of the devices have more than %d bytes", MAX_DEVICES_CHARS);
        if (status == STATUS_OK)
                status = axes_take(&(struct axes_given){ q.axes, q.n_axes }, q.n_values ? &q.values[0] : NULL,
                        &axes, &err);
        if (status == STATUS_OK)
                status = take_values(&q, entries, &err);
        if (status != STATUS_OK)
                return thread_fail(&err);
        const struct msg_query query = { .what = WHAT_PLAN,
                .job = "",
                .group = "",
                .has_shape = true,
                .world_size = q.world_size,
                .devices = q.devices ? q.devices : "",
                .shape = { .signature = { .kind = (enum kind)q.kind,
                                   .op = (enum op)q.op,
                                   .root = q.root,
                                   .options = options.options,
                                   .n_entries = q.n_values,
                                   .axes = axes },
                        .n_part_entries = q.n_values,
                        .entries = entries } };
        return ask_whole(t, &query, ret);
}

/* --- what people do --- */

static enum tutti_status control(struct tutti *t, const struct msg_control *ask) {
        if (!t)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "the connection is NULL");
        enum tutti_status status = connection_check(t);
        if (status != TUTTI_OK)
                return status;
        struct request request = { .type = REQUEST_CONTROL, .control = *ask };
        request.control.has_user = t->has_user;
        request.control.user = t->user;
        struct call call;
        call_init(&call, CALL_PLAIN);
        return send_and_ask(t, &request, &call);
}

enum tutti_status tutti_admin_drain(struct tutti *t) {
        return control(t, &(struct msg_control){ .verb = VERB_DRAIN, .job = "", .group = "", .text = "" });
}

enum tutti_status tutti_admin_undrain(struct tutti *t) {
        return control(t, &(struct msg_control){ .verb = VERB_UNDRAIN, .job = "", .group = "", .text = "" });
}

enum tutti_status tutti_admin_kick(
        struct tutti *t, const char *job, const char *group, uint32_t rank, const char *why) {
        if (!job || !group)
                return thread_say(
                        STATUS_INVALID, FIELD_GROUP, "tutti_admin_kick needs the names of job and group");
        return control(t, &(struct msg_control){ .verb = VERB_KICK,
                                  .job = job,
                                  .group = group,
                                  .text = why ? why : "",
                                  .rank = rank });
}

enum tutti_status tutti_admin_log_level(struct tutti *t, const char *level) {
        return control(
                t, &(struct msg_control){
                           .verb = VERB_LOG_LEVEL, .job = "", .group = "", .text = level ? level : "" });
}

enum tutti_status tutti_admin_set_user(struct tutti *t, uint32_t uid) {
        if (!t)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "the connection is NULL");
        t->has_user = true;
        t->user = uid;
        return TUTTI_OK;
}

enum tutti_status tutti_admin_use_gpu(const char *uuid) {
        struct error err;
        if (!uuid)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "there is no name of a GPU");
        return driver_use(uuid, &err) == STATUS_OK ? TUTTI_OK : thread_fail(&err);
}

enum tutti_status tutti_admin_socket_path(char *buf, size_t size) {
        struct error err;
        if (!buf || !size)
                return thread_say(STATUS_INVALID, FIELD_SIZE, "there is no room for the path");
        if (environment_socket_path(buf, size, &err) != STATUS_OK)
                return thread_fail(&err);
        return TUTTI_OK;
}
