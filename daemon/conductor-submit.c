/* Halves on their way to rendezvous: put together from their parts, checked, leased, held while their memory
 * is imported, refused; and given back. */
#include "conductor-internal.h"

#include <string.h>

void conductor_return_entries(struct conductor *c, struct half *half, uint32_t *n) {
        conductor_end_prepared(c, half);
        for (; *n > 0 && half->n_checked > 0; (*n)--) {
                struct entry *e = &half->entries[--half->n_checked];
                buffer_unlease(c->house.buffers, &e->input, &c->chores);
                buffer_unlease(c->house.buffers, &e->output, &c->chores);
                buffer_unlease(c->house.buffers, &e->sparse.indices, &c->chores);
                buffer_unlease(c->house.buffers, &e->sparse.output_indices, &c->chores);
                if (!half->object)
                        continue;
                result_end_use(c->house.results, &e->output, &c->chores);
                result_end_use(c->house.results, &e->sparse.output_indices, &c->chores);
        }
        if (half->n_checked > 0)
                return;
        half->object = NULL;
        conductor_end_signal(c, half);
}

static bool give_back_half(struct conductor *c, struct half *half, uint32_t *n) {
        conductor_return_entries(c, half, n);
        if (half->n_checked > 0)
                return false;
        rendezvous_half_free(c->house.rendezvous, half);
        return true;
}

void conductor_drop_half(struct conductor *c, struct half *half) {
        uint32_t n = SLICE_ENTRIES;
        c->work += half->n_checked < n ? half->n_checked : n;
        if (!give_back_half(c, half, &n))
                list_append(&c->dropped, &half->pool_link);
}

void conductor_give_back_dropped(struct conductor *c, uint32_t *n) {
        while (*n > 0 && !list_is_empty(&c->dropped)) {
                struct half *half = list_entry(c->dropped.next, struct half, pool_link);
                list_unlink(&half->pool_link);
                if (!give_back_half(c, half, n))
                        list_append(c->dropped.next, &half->pool_link);
        }
}

/* --- submissions --- */

/* Elements from the first to the last; signature_check has seen to it that they can be counted. */
static uint64_t input_extent(const struct entry *e) {
        struct view view;
        uint64_t extent;
        entry_view(e, &e->input, &view);
        CHECK(view_extent(&view, &extent));
        return extent;
}

/* Of all that it has room for. */
static uint64_t output_extent(const struct half *half, const struct entry *e) {
        struct view view;
        uint64_t extent;
        entry_output_view(&half->signature, e, &view);
        CHECK(view_extent(&view, &extent));
        return extent;
}

static enum status conductor_lease_input(
        struct conductor *c, const struct half *half, struct entry *e, const struct half_view *v) {
        struct sparse *sparse = e->layout == LAYOUT_SPARSE ? &e->sparse : NULL;
        if (!signature_reads(&half->signature, v->rank))
                return STATUS_OK;
        enum status status = buffer_lease(c->house.buffers, half->session, &e->input, BUFFER_READ,
                input_extent(e), dtype_bytes(e->dtype), &c->error);
        if (status == STATUS_OK && sparse)
                status = buffer_lease(c->house.buffers, half->session, &sparse->indices, BUFFER_READ,
                        e->shape[0], dtype_bytes(sparse->index_dtype), &c->error);
        return status;
}

static enum status conductor_lease_output(struct conductor *c, struct half *half, struct entry *e,
        struct place *output, const struct half_view *v) {
        bool is_of_rows = output == &e->output;
        enum dtype dtype = is_of_rows ? entry_output_dtype(e) : e->sparse.index_dtype;
        if (output->result != 0)
                return conductor_use_result(c, half, e, output, v);
        if (output->buffer != 0 && entry_has_destination(e, v->rank))
                return buffer_lease(c->house.buffers, half->session, output, BUFFER_WRITE,
                        is_of_rows ? output_extent(half, e) : e->output_extent, dtype_bytes(dtype),
                        &c->error);
        return STATUS_OK;
}

/* Takes a lease on every place that this replica reads or writes. */
static enum status conductor_lease_entry(
        struct conductor *c, struct half *half, struct entry *e, const struct half_view *v) {
        enum status status = conductor_lease_input(c, half, e, v);
        if (status != STATUS_OK)
                return status;
        if (e->destination == DESTINATION_SAME) {
                e->output = e->input;
                e->output.lease = NULL; /* it gets one of its own */
        }
        status = conductor_lease_output(c, half, e, &e->output, v);
        if (status != STATUS_OK || e->layout != LAYOUT_SPARSE)
                return status;
        half->n_sparse++;
        return conductor_lease_output(c, half, e, &e->sparse.output_indices, v);
}

static void half_note_device(struct half *half, const struct place *p) {
        if (!p->memory)
                return;
        if (p->memory->path == PATH_MEMFD)
                half->has_host_values = true;
        else if (half->device == 0)
                half->device = p->memory->device;
        else
                half->is_spread |= half->device != p->memory->device;
}

/* Up to `n` entries more: checked, leased, made ready to be compared. */
static enum status conductor_check_entries(
        struct conductor *c, struct half *half, const struct half_view *v, uint32_t n) {
        enum status status = STATUS_OK;
        for (; status == STATUS_OK && n > 0 && half->n_checked < half->signature.n_entries; n--) {
                uint32_t i = half->n_checked++;
                status = signature_check_entry(v, i);
                if (status != STATUS_OK)
                        break;
                status = conductor_lease_entry(c, half, &half->entries[i], v);
                half_note_device(half, &half->entries[i].input);
                half_note_device(half, &half->entries[i].output);
                half_note_device(half, &half->entries[i].sparse.indices);
                half_note_device(half, &half->entries[i].sparse.output_indices);
                if (status != STATUS_OK)
                        c->error.entry =
                                half->signature.n_entries > 1 || half->signature.kind == KIND_BATCH_REDUCE
                                        ? (int32_t)i
                                        : -1;
        }
        if (status == STATUS_OK && half->n_checked == half->signature.n_entries)
                status = conductor_use_signal(c, half);
        return status;
}

/* A slice of it; more of it is left while n_checked is below n_entries. */
static enum status conductor_check_half(struct conductor *c, struct half *half, const struct member *m) {
        uint64_t steps = VIEW_STEPS;
        const struct half_view v = { &half->signature, half->entries, m->rank, m->group->world_size,
                &c->error, &steps };
        uint32_t before = half->n_checked;
        enum status status = before == 0 ? signature_check_head(&v) : STATUS_OK;
        if (status == STATUS_OK)
                status = conductor_check_entries(c, half, &v, SLICE_ENTRIES);
        rendezvous_half_look(c->house.rendezvous, half, half->n_checked - before);
        c->work += half->n_checked - before;
        return status;
}

static enum status conductor_check_started(struct conductor *c, struct half *half) {
        enum status status = conductor_check_start(c, half);
        return status == STATUS_OK ? conductor_use_signal(c, half) : status;
}

/* Refused: the peers hear of it, the sender gets the reason. */
static void conductor_refuse_half(struct conductor *c, struct session *s, struct half *half) {
        enum status status = rendezvous_refuse(c->house.rendezvous, half, c->now_ns, &c->outcome, &c->error);
        stats_count_refusal(c->house.stats);
        conductor_say_done(c, half);
        conductor_reply_status(c, s, half->request, status, &c->error);
        conductor_drop_half(c, half);
}

/* Whether rendezvous can have it. */
static bool half_is_checked(const struct half *half) {
        return half->prepared || half->n_checked == half->signature.n_entries;
}

/* Keeps the half until the session is resumed; meanwhile it is not read. */
static void conductor_hold(struct conductor *c, struct session *s, struct half *half) {
        s->held = half;
        if (s->held_since_ns == 0)
                s->held_since_ns = c->now_ns;
        session_pause(s);
}

static void conductor_submit(struct conductor *c, struct session *s, struct half *half) {
        c->has_worked = true;
        const struct member *m = rendezvous_find_member(c->house.rendezvous, s->id, half->membership);
        error_init(&c->error, STATUS_OK);
        enum status status = STATUS_OK;
        if (c->is_draining)
                status = error_set(&c->error, STATUS_DRAINING, FIELD_UNSPECIFIED,
                        "tuttid is being stopped and takes nothing new");
        else if (s->n_unfinished == STATUS_PAGE_SLOTS)
                status = error_set(&c->error, STATUS_LIMIT, FIELD_UNSPECIFIED,
                        "%d submissions of this connection are unfinished; wait for some of them",
                        STATUS_PAGE_SLOTS);
        else if (m && m->state == MEMBER_ALIVE && half->prepared)
                status = conductor_check_started(c, half);
        else if (m && m->state == MEMBER_ALIVE)
                status = conductor_check_half(c, half, m);
        if (status != STATUS_OK) {
                conductor_refuse_half(c, s, half);
                return;
        }
        if (m && m->state == MEMBER_ALIVE && !half_is_checked(half)) {
                conductor_hold(c, s, half);
                session_mark(c->house.sessions, s, SESSION_RESUMED); /* goes on in its turn */
                return;
        }
        status = rendezvous_submit(c->house.rendezvous, half, c->now_ns, &c->outcome, &c->error);
        if (status == STATUS_OK) {
                s->n_unfinished++;
                return;
        }
        conductor_probe(c, m ? m->group : NULL, m ? c->error.n_replicas : 0, c->error.replicas);
        conductor_say_done(c, half);
        conductor_reply_status(c, s, half->request, status, &c->error);
        conductor_drop_half(c, half);
}

/* Whole now: waits for the imports that the client sent before it, then goes on. */
static void conductor_submit_or_hold(struct conductor *c, struct session *s, struct half *half) {
        if (!buffers_is_importing(c->house.buffers, s->id)) {
                conductor_submit(c, s, half);
                return;
        }
        conductor_hold(c, s, half);
}

/* Like a packet: meanwhile a collective of its group may have ended, and the lane have taken over. */
void conductor_handle_held(struct conductor *c, struct session *s) {
        if (!s->held)
                return;
        conductor_leave_lane(c, s);
        conductor_settle_before_packet(c);
        struct half *half = s->held;
        s->held = NULL;
        half->held_ns = c->now_ns - s->held_since_ns;
        conductor_submit(c, s, half);
        if (s->held)
                return;
        s->held_since_ns = 0;
        session_resume(c->house.sessions, s);
}

/* What a half and a refused one have in common: whose it is, and what it asks for. */
static void half_fill(struct half *half, const struct session *s, const struct request *r) {
        const struct msg_submit *ask = &r->submit;
        half->session = s->id;
        half->request = r->request;
        half->membership = ask->membership;
        half->epoch = ask->epoch;
        half->key = ask->key;
        half->signature = ask->signature;
        half->has_timeout = ask->has_timeout;
        half->timeout_ns = ask->timeout_ns;
        half->signal = ask->signal;
        half->prepare = ask->prepare;
}

/* A half without entries, to be refused in its sender's name. */
static void conductor_refuse_ask(struct conductor *c, struct session *s, const struct request *r) {
        const struct msg_submit *ask = &r->submit;
        if (ask->more)
                s->discarded = r->request;
        struct half *half = ask->has_key ? rendezvous_half_new(c->house.rendezvous, 0) : NULL;
        if (!half) {
                if (ask->has_key)
                        error_set(
                                &c->error, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
                signals_set_done(c->house.signals, s->id, &ask->signal, &c->chores);
                conductor_reply_status(c, s, r->request, c->error.status, &c->error);
                return;
        }
        half_fill(half, s, r);
        half->signature.n_entries = 0;
        conductor_refuse_half(c, s, half);
}

/* What can be said of a submission by its first packet. */
static enum status conductor_check_ask(struct conductor *c, const struct msg_submit *ask) {
        error_init(&c->error, STATUS_OK);
        if (!ask->has_key)
                return error_set(&c->error, STATUS_INVALID, FIELD_KEY,
                        "the key is missing, empty or longer than %d bytes", MAX_KEY_BYTES);
        if (ask->refused != STATUS_OK)
                return error_set(&c->error, ask->refused, ask->refused_field, "%s",
                        ask->refused_detail && ask->refused_detail[0]
                                ? ask->refused_detail
                                : "refused by the caller's own library");
        if (ask->signature.n_entries > MAX_ENTRIES)
                return error_set(&c->error, STATUS_LIMIT, FIELD_ENTRIES,
                        "%u entries; the limit is %d: use several batches", ask->signature.n_entries,
                        MAX_ENTRIES);
        return STATUS_OK;
}

/* NULL: c->error says why. It is charged from its first part on, whatever becomes of it. */
static struct half *conductor_new_half(
        struct conductor *c, const struct session *s, const struct request *r) {
        const struct msg_submit *ask = &r->submit;
        struct half *half = rendezvous_half_new(c->house.rendezvous, ask->signature.n_entries);
        if (!half) {
                error_set(&c->error, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
                return NULL;
        }
        half_fill(half, s, r);
        if (rendezvous_half_charge(c->house.rendezvous, half, s->uid, &c->error) == STATUS_OK)
                return half;
        rendezvous_half_free(c->house.rendezvous, half);
        return NULL;
}

/* Adds a part's entries. When the last part is in, the half goes on. */
static void conductor_assemble(struct conductor *c, struct session *s, const struct msg_submit *part) {
        struct half *half = s->assembly;
        if (part->n_part_entries > half->signature.n_entries - s->n_assembled ||
                (!part->more && part->n_part_entries != half->signature.n_entries - s->n_assembled)) {
                conductor_eject(c, s, STATUS_INVALID,
                        "request %llu announces %u entries and brings another number",
                        (unsigned long long)half->request, half->signature.n_entries);
                return;
        }
        if (part->n_part_entries > 0)
                memcpy(half->entries + s->n_assembled, part->entries,
                        part->n_part_entries * sizeof(*part->entries));
        s->n_assembled += part->n_part_entries;
        c->work += part->n_part_entries;
        if (part->more)
                return;
        s->assembly = NULL;
        conductor_submit_or_hold(c, s, half);
}

void conductor_handle_submit(struct conductor *c, struct session *s, const struct request *r) {
        const struct msg_submit *ask = &r->submit;
        if (s->discarded == r->request) {
                if (!ask->more)
                        s->discarded = 0;
                return;
        }
        if (s->assembly) { /* of this request: conductor_handle has looked */
                conductor_assemble(c, s, ask);
                return;
        }
        if (conductor_check_ask(c, ask) != STATUS_OK) {
                conductor_refuse_ask(c, s, r);
                return;
        }
        s->assembly = conductor_new_half(c, s, r);
        s->n_assembled = 0;
        if (s->assembly) {
                conductor_assemble(c, s, ask);
                return;
        }
        conductor_refuse_ask(c, s, r);
}

void conductor_handle_start(
        struct conductor *c, struct session *s, const struct request *r, uint64_t held_ns) {
        bool is_known;
        if (!r->start.has_key) {
                error_init(&c->error, STATUS_OK);
                error_set(&c->error, STATUS_INVALID, FIELD_KEY,
                        "the key is missing, empty or longer than %d bytes", MAX_KEY_BYTES);
        }
        struct half *half = r->start.has_key ? conductor_new_start(c, s, r, &is_known) : NULL;
        if (!half) {
                signals_set_done(c->house.signals, s->id, &r->start.signal, &c->chores);
                conductor_reply_status(c, s, r->request, c->error.status, &c->error);
                return;
        }
        if (!is_known) {
                conductor_refuse_half(c, s, half);
                return;
        }
        c->n_started++;
        half->held_ns = held_ns;
        conductor_submit(c, s, half);
}
