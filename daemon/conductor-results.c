/* Result objects: asked for, named by halves, taken when a collective is sealed, held when it has run. */
#include "conductor-internal.h"

/* --- requests --- */

/* A GPU by its name or UUID, which must serve now. */
static enum status find_gpu(struct conductor *c, const char *name, uint32_t *ret, struct error *err) {
        const struct workers *w = c->house.workers;
        uint32_t device = workers_find(w, name);
        *ret = 0;
        if (strncmp(name, "GPU", 3) != 0)
                return STATUS_OK;
        if (workers_is_starting(w))
                return error_set(err, STATUS_BUSY, FIELD_DESTINATIONS,
                        "the GPUs are still being tested; ask again soon");
        if (device == DEVICE_UNKNOWN || workers_why_off(w)[0] ||
                !(workers_device(w, device - DEVICE_GPU)->paths & 1u << PATH_VMM_MADE) ||
                workers_device(w, device - DEVICE_GPU)->why[0])
                return error_set(err, STATUS_INVALID, FIELD_DESTINATIONS,
                        "there is no device \"%.44s\" that serves and has memory with descriptors; `tuttictl "
                        "status` lists what there is",
                        name);
        *ret = device;
        return STATUS_OK;
}

static enum status conductor_attach(
        struct conductor *c, const struct session *s, const struct request *r, const struct member *m) {
        struct error *err = &c->error;
        if (c->is_draining)
                return error_set(err, STATUS_DRAINING, FIELD_UNSPECIFIED,
                        "tuttid is being stopped and takes nothing new");
        if (!m || m->state != MEMBER_ALIVE)
                return error_set(err, STATUS_NOT_FOUND, FIELD_MEMBERSHIP,
                        "a result object is made by a member of a whole group, and this membership is none");
        group_describe(m->group, err);
        uint32_t gpu;
        enum status status = find_gpu(c, r->make_result.device, &gpu, err);
        if (status != STATUS_OK)
                return status;
        const struct result_ask ask = { .session = s->id,
                .request = r->request,
                .membership = m->id,
                .group = m->group->id,
                .uid = s->uid,
                .rank = m->rank,
                .world_size = m->group->world_size,
                .n_devices = engine_n_devices(c->house.engine),
                .gpu = gpu,
                .granularity = gpu ? conductor_granularity(c, gpu) : 0,
                .words = s->lane ? lane_words(s->lane) : NULL,
                .make = &r->make_result };
        return result_attach(c->house.results, &ask, &c->chores, err);
}

void conductor_make_result(struct conductor *c, struct session *s, const struct request *r) {
        const struct member *m =
                rendezvous_find_member(c->house.rendezvous, s->id, r->make_result.membership);
        error_init(&c->error, STATUS_OK);
        enum status status = conductor_attach(c, s, r, m);
        if (status != STATUS_OK)
                conductor_reply_status(c, s, r->request, status, &c->error);
        conductor_answer_results(c);
}

void conductor_answer_results(struct conductor *c) {
        struct result_answer a;
        while (results_take_answer(c->house.results, &c->chores, &a)) {
                struct session *s = session_find(c->house.sessions, a.session);
                if (a.status == STATUS_OK) {
                        const struct reply reply = { .request = a.request,
                                .status = STATUS_OK,
                                .type = REPLY_RESULT,
                                .result = a.result };
                        conductor_reply_fd(c, s, &reply, a.fd);
                        continue;
                }
                error_init(&c->error, a.status);
                c->error.field = FIELD_SIZE;
                error_set_detail(&c->error, "%s", a.why);
                conductor_reply_status(c, s, a.request, a.status, &c->error);
        }
}

enum status conductor_release_result(
        struct conductor *c, struct session *s, const struct msg_release_result *ask) {
        error_init(&c->error, STATUS_OK);
        if (ask->detach)
                conductor_unprepare_results(c, s, ask->membership, ask->result);
        return result_release(c->house.results, s->id, ask, &c->chores, &c->error);
}

/* --- halves --- */

static struct result_user user_of(const struct half *half, uint32_t rank) {
        return (struct result_user){ .session = half->session, .membership = half->membership, .rank = rank };
}

bool conductor_may_go_to_object(const struct half *half) {
        const struct result_user user = user_of(half, half->rank);
        return !half->object || (result_device(half->object) == 0 && result_is_attached(half->object, &user));
}

struct slot_user *conductor_slot_user(const struct half *half) {
        const struct result_user user = user_of(half, half->rank);
        return result_slot_user(half->object, &user);
}

/* Named by the half, so it must exist, and the object must live there. */
static enum status conductor_check_device(
        struct conductor *c, const struct result *object, const struct entry *e) {
        char wanted[DEVICE_NAME_BYTES], there[DEVICE_NAME_BYTES], last[DEVICE_NAME_BYTES];
        uint32_t n = engine_n_devices(c->house.engine);
        device_name(e->destination_device, wanted);
        if (e->destination != DESTINATION_DEVICE || e->destination_device == result_device(object))
                return STATUS_OK;
        if (e->destination_device == DEVICE_UNKNOWN ||
                (e->destination_device >= n && e->destination_device < DEVICE_GPU))
                return error_set(&c->error, STATUS_INVALID, FIELD_DESTINATIONS,
                        "there is no device %s; this tuttid has CPU:0%s%s", wanted, n > 1 ? " to " : "",
                        n > 1 ? device_name(n - 1, last) : "");
        return error_set(&c->error, STATUS_INVALID, FIELD_DESTINATIONS,
                "the destination is %s, and the result object lives on %s; make it there", wanted,
                device_name(result_device(object), there));
}

/* Elements of the slot that an output takes; UINT64_MAX: more than can be counted. */
static uint64_t extent_in_slot(const struct half_view *v, const struct entry *e, const struct place *output) {
        uint64_t count, n_bytes;
        if (output == &e->sparse.output_indices)
                return e->output_extent;
        struct entry shaped = *e;
        entry_output_shape(v->signature, e, shaped.shape);
        CHECK(entry_count(&shaped, &count)); /* its half's check has seen to that */
        if (v->signature->kind != KIND_MERGE_CALL || count == 0)
                return count;
        if (__builtin_mul_overflow(entry_part_bytes(e), (uint64_t)(v->world_size - 1), &n_bytes) ||
                __builtin_add_overflow(count, n_bytes / dtype_bytes(e->dtype), &count))
                return UINT64_MAX;
        return count;
}

enum status conductor_use_result(struct conductor *c, struct half *half, const struct entry *e,
        struct place *output, const struct half_view *v) {
        const struct result_user user = user_of(half, v->rank);
        enum dtype dtype = output == &e->output ? entry_output_dtype(e) : e->sparse.index_dtype;
        enum status status = result_use(
                c->house.results, &user, output, extent_in_slot(v, e, output), dtype_bytes(dtype), &c->error);
        if (status != STATUS_OK)
                return status;
        if (half->object && half->object != output->object)
                status = error_set(&c->error, STATUS_INVALID, FIELD_DESTINATIONS,
                        "a collective goes to one result object, and this half names two; use two batches");
        else
                status = conductor_check_device(c, output->object, e);
        if (!half->object)
                half->object = output->object;
        return status;
}

/* --- sealed, and ended --- */

static struct result *object_of(const struct meeting *m) {
        return m->halves[rankset_next(&m->have, 0)]->object;
}

/* It holds values, or is asked to reduce. A merge function reads where the values are laid side by side,
 * whoever reduces otherwise. */
static bool is_for_gpu(const struct problem *problem) {
        const struct options *o = &problem->signature->options;
        return problem->device >= DEVICE_GPU ||
               (o->has_place && o->place >= DEVICE_GPU && problem->signature->kind != KIND_MERGE_CALL);
}

enum status conductor_go_to_object(struct conductor *c, const struct meeting *m, struct problem *problem) {
        const struct result *object = object_of(m);
        if (!object)
                return STATUS_OK;
        if (is_for_gpu(problem) && result_device(object) < DEVICE_GPU) {
                error_init(&c->error, STATUS_UNSUPPORTED);
                return error_set(&c->error, STATUS_UNSUPPORTED, FIELD_DESTINATIONS,
                        "what a GPU reduces cannot go to a result object of the host, which the GPU process "
                        "may "
                        "not write; make it on a GPU, or take buffers for the outputs");
        }
        if (problem->signature->kind == KIND_MERGE_CALL && result_device(object) >= DEVICE_GPU) {
                error_init(&c->error, STATUS_UNSUPPORTED);
                return error_set(&c->error, STATUS_UNSUPPORTED, FIELD_DESTINATIONS,
                        "a merge function reads everybody's values in host memory, and this result object is "
                        "on a GPU");
        }
        problem->device = result_device(object);
        problem->is_bound = problem->device >= DEVICE_GPU;
        if (problem->is_bound)
                conductor_reach(c, &c->homes, problem);
        return STATUS_OK;
}

enum status conductor_take_slot(struct conductor *c, struct meeting *m, uint64_t *ret_offset_bytes) {
        struct result *object = object_of(m);
        struct rankset holders;
        *ret_offset_bytes = 0;
        if (!object)
                return STATUS_OK;
        m->has_slot = result_take_slot(object, &m->slot);
        if (m->has_slot) {
                *ret_offset_bytes = result_slot_offset(object, m->slot);
                return STATUS_OK;
        }
        error_init(&c->error, STATUS_BUSY);
        enum status status = result_say_busy(object, c->now_ns, &holders, &c->error);
        group_add_reports(m->group, &holders, c->now_ns, &c->error);
        return status;
}

void conductor_end_slot(struct conductor *c, struct meeting *m) {
        struct result *object = m->has_slot ? object_of(m) : NULL;
        if (!object)
                return;
        result_end_slot(object, m->slot, c->now_ns);
        if (m->status != STATUS_OK)
                return;
        rankset_for_each (rank, &m->have) {
                const struct result_user user = user_of(m->halves[rank], (uint32_t)rank);
                result_hold(object, m->slot, &user);
        }
}
