#include <tutti/admin.h>

#include "lib/answer.h"
#include "lib/connection.h"
#include "lib/environment.h"

static enum tutti_status no_memory_for_answer(void) {
        return thread_say(
                STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "The answer does not fit into this process's memory");
}

static enum tutti_status ask(
        struct tutti *t, const struct msg_query *query, struct answer *answer, struct tutti_answer **ret) {
        struct request request = { .type = REQUEST_QUERY, .query = *query };
        struct call call;
        call_init(&call, CALL_ROWS);
        call.answer = answer;
        enum tutti_status status = send_and_wait(t, &request, &call);
        if (status != TUTTI_OK)
                return status;
        *ret = answer_publish(answer);
        return *ret ? TUTTI_OK : no_memory_for_answer();
}

enum tutti_status tutti_admin_ask(struct tutti *t, enum tutti_admin_what what, const char *job,
        const char *group, struct tutti_answer **ret) {
        if (!t || !ret)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "tutti_admin_ask needs a connection and a place for the answer");
        enum tutti_status status = connection_check(t);
        if (status != TUTTI_OK)
                return status;
        struct answer *answer = answer_new();
        if (!answer)
                return no_memory_for_answer();
        const struct msg_query query = { .what = (enum what)what,
                .job = job ? job : "",
                .group = group ? group : "",
                .has_user = t->has_user,
                .user = t->user };
        struct tutti_answer *published;
        status = ask(t, &query, answer, &published);
        if (status == TUTTI_OK)
                *ret = published;
        else
                answer_free(answer);
        return status;
}

enum tutti_status tutti_admin_set_user(struct tutti *t, uint32_t uid) {
        if (!t)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "the connection is NULL");
        t->has_user = true;
        t->user = uid;
        return TUTTI_OK;
}

enum tutti_status tutti_admin_socket_path(char *buf, size_t size) {
        struct error err;
        if (!buf || !size)
                return thread_say(STATUS_INVALID, FIELD_SIZE, "there is no room for the path");
        if (environment_socket_path(buf, size, &err) != STATUS_OK)
                return thread_fail(&err);
        return TUTTI_OK;
}
