#include "lib/frozen.h"
#include "lib/group.h"

#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "lib/arguments.h"
#include "lib/environment.h"
#include "lib/reconnect.h"
#include "lib/work.h"

/* What could not be brought to another tuttid is over. */
static enum tutti_status check_is_resumed(struct tutti_group *g) {
        pthread_mutex_lock(&g->t->lock);
        enum status status = g->lost_status;
        struct failure *lost = failure_ref(g->lost);
        pthread_mutex_unlock(&g->t->lock);
        return status == STATUS_OK ? TUTTI_OK : thread_fail_with(status, lost);
}

enum tutti_status group_check(struct tutti_group *g) {
        enum tutti_status status = connection_check(g->t);
        if (status == TUTTI_OK && reconnect_is_on(g->t))
                status = check_is_resumed(g);
        if (status != TUTTI_OK || !atomic_load(&g->has_left))
                return status;
        struct error e;
        error_init(&e, STATUS_LEFT);
        group_sign(g, &e);
        return thread_fail(&e);
}

void group_sign(const struct tutti_group *g, struct error *e) {
        memcpy(e->job, g->job, sizeof(e->job));
        memcpy(e->group, g->name, sizeof(e->group));
        e->epoch = g->epoch;
        e->rank = (int32_t)g->rank;
        e->world_size = g->world_size;
}

void group_destroy(struct tutti_group *g) {
        pthread_mutex_destroy(&g->numbering);
        call_deinit(&g->resuming);
        failure_unref(g->lost);
        free(g->failed);
        free(g->ended);
        free(g->reports);
        free(g);
}

void groups_free(struct tutti *t) {
        list_for_each_safe (it, tmp, &t->groups) {
                struct tutti_group *g = list_entry(it, struct tutti_group, node);
                call_drop(t, &g->resuming); /* it may still wait for an answer */
                frozen_free_all(g);
                group_destroy(g);
        }
}

uint64_t group_take_number(struct tutti_group *g, uint64_t *ret_epoch) {
        pthread_mutex_lock(&g->numbering);
        uint64_t number = g->next_sequence++;
        *ret_epoch = g->epoch;
        pthread_mutex_unlock(&g->numbering);
        return number;
}

/* --- joining --- */

static enum status take_name(
        const char *given, enum field field, char ret[MAX_NAME_BYTES], struct error *err) {
        size_t n = given ? strlen(given) : 0;
        if (n >= 1 && n < MAX_NAME_BYTES) {
                memcpy(ret, given, n + 1);
                return STATUS_OK;
        }
        refuse(err, n ? STATUS_LIMIT : STATUS_INVALID, field,
                "a name of 1 to %d bytes is needed, this has %zu", MAX_NAME_BYTES - 1, n);
        err->used = n;
        err->limit = MAX_NAME_BYTES - 1;
        return err->status;
}

/* A rank without a world size may as well be one that was forgotten. */
static enum status check_seat(const struct tutti_join_args *args, struct error *err) {
        if (args->rank < -1)
                return refuse(err, STATUS_INVALID, FIELD_RANK, "%d is no rank; -1 asks the environment",
                        args->rank);
        if (args->world_size < -1)
                return refuse(err, STATUS_INVALID, FIELD_WORLD_SIZE,
                        "%d is no world size; 0 and -1 ask the environment", args->world_size);
        if (args->world_size == 0 && args->rank > 0)
                return refuse(err, STATUS_INVALID, FIELD_WORLD_SIZE,
                        "rank %d is given and no world size; -1 takes it from the environment", args->rank);
        return STATUS_OK;
}

static enum status take_seat(const struct tutti_join_args *args, struct msg_join *m, struct error *err) {
        struct seat seat = { args->rank, args->world_size };
        if (args->world_size == 0)
                seat = (struct seat){ -1, -1 };
        enum status status = check_seat(args, err);
        if (status == STATUS_OK)
                status = environment_seat(&seat, err);
        if (status != STATUS_OK)
                return status;
        m->rank = (uint32_t)seat.rank;
        m->world_size = (uint32_t)seat.world_size;
        return STATUS_OK;
}

static enum status take_timeouts(const struct tutti_join_args *args, struct msg_join *m, struct error *err) {
        double join = args->join_timeout, each = args->default_timeout;
        if (!(join >= 0) || each != each)
                return refuse(err, STATUS_INVALID, FIELD_TIMEOUT,
                        "join_timeout is in seconds, 0 being tuttid's default, and default_timeout likewise");
        m->join_timeout_ns = join > 0 && join < 1e-9 ? 1 : ns_of_seconds(join);
        m->has_default_timeout = each != 0;
        if (each > 0 && each < 1e9)
                m->default_timeout_ns = each < 1e-9 ? 1 : ns_of_seconds(each);
        return STATUS_OK;
}

static enum status take_policies(const struct tutti_join_args *args, struct msg_join *m, struct error *err) {
        if (args->on_death != TUTTI_FAIL && args->on_death != TUTTI_SHRINK)
                return refuse(err, STATUS_INVALID, FIELD_OPTIONS,
                        "on_death is %d; TUTTI_FAIL and TUTTI_SHRINK are known", (int)args->on_death);
        if (args->on_leave != TUTTI_CONTRIBUTORS && args->on_leave != TUTTI_ZERO_FILL)
                return refuse(err, STATUS_INVALID, FIELD_OPTIONS,
                        "on_leave is %d; TUTTI_CONTRIBUTORS and TUTTI_ZERO_FILL are known",
                        (int)args->on_leave);
        m->on_death = args->on_death == TUTTI_SHRINK ? ON_DEATH_SHRINK : ON_DEATH_FAIL;
        m->on_leave = args->on_leave == TUTTI_ZERO_FILL ? ON_LEAVE_ZERO_FILL : ON_LEAVE_CONTRIBUTORS;
        return STATUS_OK;
}

static enum status take_arguments(
        const struct tutti_join_args *given, struct tutti_group *g, struct msg_join *m, struct error *err) {
        struct tutti_join_args args;
        if (!given || !arguments_copy(&ARGUMENTS_SINCE(&args, options), given, given->struct_size))
                return refuse(err, STATUS_INVALID, FIELD_SIZE,
                        "the arguments of a join are needed; begin them with TUTTI_JOIN or "
                        "tutti_join_args_init");
        enum status status = take_name(args.group, FIELD_GROUP, g->name, err);
        if (status == STATUS_OK)
                status =
                        args.job ? take_name(args.job, FIELD_JOB, g->job, err) : environment_job(g->job, err);
        if (status == STATUS_OK)
                status = take_seat(&args, m, err);
        if (status == STATUS_OK)
                status = take_timeouts(&args, m, err);
        if (status == STATUS_OK)
                status = take_policies(&args, m, err);
        if (status == STATUS_OK)
                status = options_take(args.options, &g->base, err);
        const char *secret = args.secret ? args.secret : secure_getenv("TUTTI_JOB_SECRET");
        m->secret = secret ? secret : "";
        m->job = g->job;
        m->group = g->name;
        m->brief_record = args.brief_record != 0;
        g->ask = *m;
        text_copy(g->secret, sizeof(g->secret), m->secret);
        g->ask.secret = g->secret;
        return status;
}

static enum tutti_status join(struct tutti *t, const struct tutti_join_args *args, struct tutti_group *g) {
        struct error err;
        struct request request = { .type = REQUEST_JOIN };
        if (take_arguments(args, g, &request.join, &err) != STATUS_OK)
                return thread_fail(&err);
        struct call call;
        call_init(&call, CALL_JOIN);
        enum tutti_status status = send_and_wait(t, &request, &call);
        if (status != TUTTI_OK)
                return status;
        g->t = t;
        call_init(&g->resuming, CALL_RESUME);
        g->membership = call.joined.membership;
        g->epoch = call.joined.epoch;
        g->rank = call.joined.rank;
        g->world_size = call.joined.world_size;
        pthread_mutex_init(&g->numbering, NULL);
        g->members = call.joined.members;
        pthread_mutex_lock(&t->lock);
        g->sent_in = call.ended_in;
        g->is_back = !t->reconnect || call.ended_in == t->reconnect->n_ends;
        list_append(&t->groups, &g->node);
        pthread_mutex_unlock(&t->lock);
        return TUTTI_OK;
}

enum tutti_status tutti_join(struct tutti *t, const struct tutti_join_args *args, struct tutti_group **ret) {
        if (!t || !ret)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "tutti_join needs a connection and a place for the group");
        enum tutti_status status = connection_check(t);
        if (status != TUTTI_OK)
                return status;
        CLEANUP_FREE struct tutti_group *g = calloc(1, sizeof(*g));
        if (!g)
                return thread_say(
                        STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "%zu bytes for a handle are needed", sizeof(*g));
        list_init(&g->node);
        list_init(&g->prepared);
        status = join(t, args, g);
        if (status == TUTTI_OK)
                *ret = take_pointer(g);
        return status;
}

/* --- leaving --- */

static enum tutti_status no_group(void) {
        return thread_say(STATUS_INVALID, FIELD_MEMBERSHIP, "the group is NULL");
}

/* Where tuttid is away there is nobody to tell: the membership ends here, and is not resumed, or only to be
 * left. */
static bool group_leave_while_away(struct tutti_group *g) {
        struct tutti *t = g->t;
        pthread_mutex_lock(&t->lock);
        bool is_away = !g->is_back;
        if (is_away)
                resume_leave(t, g);
        pthread_mutex_unlock(&t->lock);
        return is_away;
}

/* A tuttid that is still being told of it makes it a member: that this ends at once is worth a short wait.
 * Otherwise Leave is sent by whoever waits, tests or dispatches when the answer has come. */
static void group_await_parting(struct tutti_group *g) {
        struct tutti *t = g->t;
        pthread_mutex_lock(&t->lock);
        bool is_parting = g->parting != PARTING_NONE && !t->is_lost;
        if (is_parting)
                connection_wait(t, &g->resuming, deadline_in(QUIET_SECONDS));
        pthread_mutex_unlock(&t->lock);
        if (is_parting)
                reconnect_go_on(t);
}

enum tutti_status tutti_leave(struct tutti_group *g) {
        if (!g)
                return no_group();
        enum tutti_status status = group_check(g);
        if (status != TUTTI_OK)
                return status;
        if (group_leave_while_away(g)) {
                group_await_parting(g);
                return TUTTI_OK;
        }
        struct call call;
        struct request request = { .type = REQUEST_LEAVE, .membership = g->membership };
        call_init(&call, CALL_PLAIN);
        call.group = g;
        status = send_and_wait(g->t, &request, &call);
        if (status == TUTTI_OK)
                atomic_store(&g->has_left, true);
        return status;
}

void group_leave_quietly(struct tutti_group *g) {
        struct tutti *t = g->t;
        struct call call;
        struct error err;
        struct request request = { .type = REQUEST_LEAVE, .membership = g->membership };
        if (atomic_load(&g->has_left) || group_leave_while_away(g) || atomic_exchange(&g->has_left, true) ||
                !send_has_room(t, QUIET_SECONDS))
                return;
        call_init(&call, CALL_PLAIN);
        call.group = g;
        if (send_request(t, &request, &call, -1, &err) != STATUS_OK)
                return;
        pthread_mutex_lock(&t->lock);
        connection_wait(t, &call, deadline_in(QUIET_SECONDS));
        call_drop(t, &call);
        pthread_mutex_unlock(&t->lock);
        call_deinit(&call);
}

void tutti_group_free(struct tutti_group *g) {
        if (!g || fork_guard_is_child(g->t->guard))
                return;
        struct tutti *t = g->t;
        group_leave_quietly(g);
        group_await_parting(g);
        frozen_end_all(g);
        pthread_mutex_lock(&t->lock);
        resume_forget_group(t, g);
        bool stays = g->is_freed = g->parting != PARTING_NONE;
        if (!stays)
                list_unlink(&g->node);
        pthread_mutex_unlock(&t->lock);
        if (!stays)
                group_destroy(g);
}

/* --- in between --- */

void group_begin_epoch(struct tutti_group *g, const struct msg_joined *joined) {
        pthread_mutex_lock(&g->numbering);
        bool is_new = joined->epoch > g->epoch;
        if (is_new) {
                g->epoch = joined->epoch;
                g->next_sequence = 0;
        }
        pthread_mutex_unlock(&g->numbering);
        if (!is_new)
                return;
        g->members = joined->members;
        g->lost_members = (struct rankset){ { 0 } };
        g->last_number = 0;
        g->n_failed = 0;
        g->is_forgetful = false;
}

static enum tutti_status form_anew(struct tutti_group *g, enum request_type type, double timeout) {
        if (!g)
                return no_group();
        enum tutti_status status = group_check(g);
        if (status != TUTTI_OK)
                return status;
        if (!(timeout >= 0))
                return thread_say(STATUS_INVALID, FIELD_TIMEOUT,
                        "the timeout is in seconds, 0 being tuttid's join timeout; %f is neither", timeout);
        struct call call;
        struct request request = { .type = type,
                .reform = { .membership = g->membership,
                        .timeout_ns = timeout > 0 && timeout < 1e-9 ? 1 : ns_of_seconds(timeout) } };
        call_init(&call, CALL_JOIN);
        call.group = g;
        return send_and_wait(g->t, &request, &call);
}

enum tutti_status tutti_rejoin(struct tutti_group *g, double timeout) {
        return form_anew(g, REQUEST_REJOIN, timeout);
}

enum tutti_status tutti_shrink(struct tutti_group *g, double timeout) {
        return form_anew(g, REQUEST_SHRINK, timeout);
}

uint32_t tutti_rank(const struct tutti_group *g) {
        return g ? g->rank : 0;
}

uint32_t tutti_world_size(const struct tutti_group *g) {
        return g ? g->world_size : 0;
}

uint64_t tutti_epoch(const struct tutti_group *g) {
        return g ? g->epoch : 0;
}

/* The next tuttid would not know of it. */
static void note_busy(struct tutti_group *g, const char *why, uint64_t duration_ns) {
        uint64_t until_ns;
        pthread_mutex_lock(&g->t->lock);
        text_copy(g->busy_why, sizeof(g->busy_why), why);
        if (__builtin_add_overflow(clock_now_ns(), duration_ns, &until_ns))
                until_ns = UINT64_MAX;
        atomic_store(&g->busy_until_ns, duration_ns ? until_ns : 0);
        pthread_mutex_unlock(&g->t->lock);
}

enum tutti_status tutti_busy(struct tutti_group *g, const char *why, double seconds) {
        if (!g)
                return no_group();
        enum tutti_status status = group_check(g);
        if (status != TUTTI_OK)
                return status;
        if (!(seconds >= 0))
                return thread_say(STATUS_INVALID, FIELD_TIMEOUT,
                        "busy is for so many seconds, and 0 ends it; %f is neither", seconds);
        struct call call;
        struct request request = { .type = REQUEST_BUSY,
                .busy = { .membership = g->membership,
                        .why = why ? why : "",
                        .duration_ns = seconds > 0 && seconds < 1e-9 ? 1 : ns_of_seconds(seconds) } };
        call_init(&call, CALL_PLAIN);
        call.group = g;
        status = send_and_wait(g->t, &request, &call);
        if (status == TUTTI_OK && reconnect_is_on(g->t))
                note_busy(g, request.busy.why, request.busy.duration_ns);
        return status;
}

enum tutti_status tutti_abort(struct tutti_group *g, const char *key, const char *reason) {
        if (!g)
                return no_group();
        enum tutti_status status = group_check(g);
        if (status != TUTTI_OK)
                return status;
        struct call call;
        struct request request = { .type = REQUEST_ABORT,
                .abort = { .membership = g->membership, .has_key = true, .reason = reason ? reason : "" } };
        if (!key_name(&request.abort.key, key ? key : "", key ? strlen(key) : 0))
                return thread_say(STATUS_INVALID, FIELD_KEY, "a key of 1 to %d bytes is needed, this has %zu",
                        MAX_KEY_BYTES, key ? strlen(key) : 0);
        call_init(&call, CALL_PLAIN);
        call.group = g;
        return send_and_wait(g->t, &request, &call);
}
