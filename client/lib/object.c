#include "lib/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "lib/arguments.h"
#include "lib/driver.h"
#include "lib/group.h"
#include "lib/patience.h"

/* --- life --- */

static void object_unmap(struct tutti_object *o) {
        if (o->data && o->device_bytes)
                driver_unmap(o->context, (uintptr_t)o->data, o->device_bytes);
        else if (o->data)
                munmap((void *)(uintptr_t)o->data, o->stride_bytes * o->n_slots);
        o->data = NULL;
}

void object_use(struct tutti_object *o) {
        o->n_uses++;
}

void object_end_use(struct tutti_object *o) {
        if (--o->n_uses == 0 && o->is_freed)
                free(o);
}

void object_hold(struct tutti_object *o, const struct msg_done *done) {
        if (done->result == o->id && done->slot < o->n_slots)
                o->held |= UINT64_C(1) << done->slot;
}

void object_give_back(struct tutti_object *o, uint32_t slot) {
        uint64_t bit = slot < o->n_slots ? UINT64_C(1) << slot : 0;
        if (o->is_freed || !(o->held & bit & ~o->unwanted))
                return;
        o->unwanted |= bit;
        o->t->n_unwanted++;
}

/* One that no other object of the connection has; of more than 64 the last have none. */
static uint32_t take_word(struct tutti *t) {
        pthread_mutex_lock(&t->lock);
        uint32_t word = t->object_words == UINT64_MAX ? 0 : (uint32_t)__builtin_ctzll(~t->object_words) + 1;
        if (word)
                t->object_words |= UINT64_C(1) << (word - 1);
        pthread_mutex_unlock(&t->lock);
        return word;
}

/* Under `lock`. */
static void put_word(struct tutti *t, uint32_t word) {
        if (word)
                t->object_words &= ~(UINT64_C(1) << (word - 1));
}

static void object_free(struct tutti_object *o) {
        object_unmap(o);
        list_unlink(&o->node);
        free(o);
}

void objects_free(struct tutti *t) {
        list_for_each_safe (it, tmp, &t->objects)
                object_free(list_entry(it, struct tutti_object, node));
}

/* --- making --- */

static enum status take_name(const struct tutti_object_args *args, struct key *ret, struct error *err) {
        size_t n = args->name ? strlen(args->name) : 0;
        if (n >= 1 && n < MAX_NAME_BYTES && key_name(ret, args->name, n))
                return STATUS_OK;
        return refuse(err, STATUS_INVALID, FIELD_KEY,
                "a result object has a name of 1 to %d bytes, this has %zu", MAX_NAME_BYTES - 1, n);
}

static enum status take_arguments(
        const struct tutti_object_args *given, struct msg_make_result *m, struct error *err) {
        struct tutti_object_args args;
        if (!given || !arguments_copy(&ARGUMENTS(&args), given, given->struct_size))
                return refuse(err, STATUS_INVALID, FIELD_SIZE,
                        "the arguments of a result object are needed; begin them with TUTTI_OBJECT or "
                        "tutti_object_args_init");
        m->has_key = true;
        m->size_bytes = args.n_bytes;
        m->n_slots = args.n_slots;
        m->device = args.device ? args.device : "";
        return take_name(&args, &m->key, err);
}

/* In the context that is current here, or of a host process without one not at all. */
static enum status object_map_device(
        struct tutti_object *o, const struct object_made *made, struct error *err) {
        struct driver_place place;
        uint64_t at;
        enum status status = driver_here(&place, err);
        if (status == STATUS_OK)
                status = driver_map_read_only(&place, made->fd, made->result.device_bytes, &at, err);
        if (status != STATUS_OK)
                return status;
        o->context = place.context;
        o->device_bytes = made->result.device_bytes;
        o->data = (const uint8_t *)(uintptr_t)at;
        return STATUS_OK;
}

static bool result_is_sound(const struct object_made *made, uint64_t *ret_bytes) {
        const struct msg_result *r = &made->result;
        return r->n_slots > 0 && r->n_slots <= 64 && r->size_bytes >= made->asked_bytes &&
               r->size_bytes <= r->stride_bytes &&
               !__builtin_mul_overflow(r->stride_bytes, (uint64_t)r->n_slots, ret_bytes) &&
               (r->device_bytes == 0 || r->device_bytes >= *ret_bytes);
}

static void object_fill(struct tutti_object *o, const struct msg_result *r) {
        o->id = r->result;
        o->slot_bytes = r->size_bytes;
        o->stride_bytes = r->stride_bytes;
        o->n_slots = r->n_slots;
}

static int object_map(struct tutti_object *o, const struct object_made *made) {
        struct stat st;
        uint64_t n_bytes;
        if (!result_is_sound(made, &n_bytes))
                return -EPROTO;
        if (fstat(made->fd, &st) < 0 || (uint64_t)st.st_size < n_bytes)
                return -EPROTO;
        void *data = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, made->fd, 0);
        if (data == MAP_FAILED)
                return -errno;
        o->data = data;
        return 0;
}

static void send_release(struct tutti *t, const struct msg_release_result *m) {
        struct error err;
        struct request request = { .type = REQUEST_RELEASE_RESULT, .release_result = *m };
        (void)!send_request(t, &request, NULL, -1, &err); /* a lost connection has released everything */
}

static void detach(struct tutti *t, uint64_t membership, uint64_t id) {
        send_release(
                t, &(struct msg_release_result){ .membership = membership, .result = id, .detach = true });
}

/* Maps it; otherwise why not is the thread's error. */
static enum status object_reach(struct tutti_object *o, const struct object_made *made) {
        uint64_t n_bytes;
        struct error err;
        if (made->fd < 0) {
                char what[MAX_NAME_BYTES + 32];
                snprintf(what, sizeof(what), "the result object \"%s\"", o->name);
                refuse_no_descriptor(&err, what);
                return (enum status)thread_fail(&err);
        }
        if (made->result.device_bytes && result_is_sound(made, &n_bytes)) {
                enum status status = object_map_device(o, made, &err);
                return status == STATUS_OK ? status : (enum status)thread_fail(&err);
        }
        int r = object_map(o, made);
        if (r == 0)
                return STATUS_OK;
        return (enum status)thread_say(r == -ENOMEM ? STATUS_NO_MEMORY : STATUS_INTERNAL, FIELD_SIZE,
                "the result object \"%s\" cannot be mapped: %s", o->name, strerror(-r));
}

/* The answer is there: mapped, and then one of the connection's. */
static enum tutti_status object_take(
        struct tutti_group *g, struct tutti_object *o, const struct object_made *made) {
        o->t = g->t;
        o->membership = g->membership;
        list_init(&o->node);
        object_fill(o, &made->result);
        enum status status = object_reach(o, made);
        if (status != STATUS_OK) {
                detach(g->t, g->membership, made->result.result);
                return (enum tutti_status)status;
        }
        pthread_mutex_lock(&g->t->lock);
        list_append(&g->t->objects, &o->node);
        pthread_mutex_unlock(&g->t->lock);
        return TUTTI_OK;
}

static enum tutti_status object_ask(
        struct tutti_group *g, const struct tutti_object_args *args, struct tutti_object *o) {
        struct error err;
        struct request request = { .type = REQUEST_MAKE_RESULT, .make_result.membership = g->membership };
        if (take_arguments(args, &request.make_result, &err) != STATUS_OK) {
                group_sign(g, &err);
                return thread_fail(&err);
        }
        request.make_result.word = o->word;
        memcpy(o->name, request.make_result.key.bytes, request.make_result.key.n_bytes);
        struct call call;
        struct object_made made = { .asked_bytes = request.make_result.size_bytes, .fd = -1 };
        call_init(&call, CALL_OBJECT);
        call.made = &made;
        enum tutti_status status = send_and_wait(g->t, &request, &call);
        if (status == TUTTI_OK)
                status = object_take(g, o, &made);
        fd_close(&made.fd);
        return status;
}

enum tutti_status tutti_object_make(
        struct tutti_group *g, const struct tutti_object_args *args, struct tutti_object **ret) {
        if (!g || !ret)
                return thread_say(STATUS_INVALID, FIELD_MEMBERSHIP,
                        "tutti_object_make needs a group and a place for the result object");
        enum tutti_status status = group_check(g);
        if (status != TUTTI_OK)
                return status;
        CLEANUP_FREE struct tutti_object *o = calloc(1, sizeof(*o));
        if (!o)
                return thread_say(
                        STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "%zu bytes for a handle are needed", sizeof(*o));
        struct patience patience = { 0 };
        o->word = take_word(g->t);
        do
                status = object_ask(g, args, o);
        while (status == TUTTI_BUSY && patience_lasts(&patience));
        if (status == TUTTI_OK) {
                *ret = take_pointer(o);
                return status;
        }
        pthread_mutex_lock(&g->t->lock);
        put_word(g->t, o->word);
        pthread_mutex_unlock(&g->t->lock);
        return status;
}

/* --- giving back --- */

/* Under `lock`. */
static bool object_drop(struct tutti_object *o, uint32_t slot) {
        uint64_t bit = slot < o->n_slots ? UINT64_C(1) << slot : 0;
        if (!(o->held & bit))
                return false;
        o->held &= ~bit;
        return true;
}

/* Under `lock`: without a packet. What is started or sent behind it finds the slot given back. */
static bool turn_bit(struct tutti_object *o, uint32_t slot) {
        struct lane_slot *page = o->t->lane.slot;
        if (!page || !o->word)
                return false;
        atomic_fetch_xor_explicit(&page->given_back[o->word - 1], UINT64_C(1) << slot, memory_order_release);
        return true;
}

enum tutti_status tutti_object_release(struct tutti_object *o, uint32_t slot) {
        if (!o)
                return thread_say(STATUS_INVALID, FIELD_BUFFER, "the result object is NULL");
        enum tutti_status status = connection_check(o->t);
        if (status != TUTTI_OK)
                return status;
        pthread_mutex_lock(&o->t->lock);
        bool was_held = object_drop(o, slot);
        bool is_told = was_held && turn_bit(o, slot);
        pthread_mutex_unlock(&o->t->lock);
        if (!was_held)
                return thread_say(STATUS_INVALID, FIELD_BUFFER,
                        "slot %u of the result object \"%s\" is not held here: it was released, or no "
                        "collective has written it",
                        slot, o->name);
        if (is_told)
                return TUTTI_OK;
        send_release(o->t,
                &(struct msg_release_result){ .membership = o->membership, .result = o->id, .slot = slot });
        return TUTTI_OK;
}

/* Under `lock`: the next slot that nobody wants, as a request. */
static bool take_unwanted(struct tutti *t, struct msg_release_result *ret) {
        list_for_each (it, &t->objects) {
                struct tutti_object *o = list_entry(it, struct tutti_object, node);
                if (!o->unwanted)
                        continue;
                uint32_t slot = (uint32_t)__builtin_ctzll(o->unwanted);
                o->unwanted &= o->unwanted - 1;
                *ret = (struct msg_release_result){
                        .membership = o->membership, .result = o->id, .slot = slot
                };
                t->n_unwanted--;
                if (object_drop(o, slot) && !turn_bit(o, slot))
                        return true;
        }
        return false;
}

void objects_reap(struct tutti *t) {
        for (;;) {
                struct msg_release_result m;
                pthread_mutex_lock(&t->lock);
                bool is_any = t->n_unwanted > 0 && take_unwanted(t, &m);
                pthread_mutex_unlock(&t->lock);
                if (!is_any)
                        return;
                send_release(t, &m);
        }
}

void tutti_object_free(struct tutti_object *o) {
        if (!o || fork_guard_is_child(o->t->guard))
                return;
        struct tutti *t = o->t;
        forget_object(t, o->id);
        object_unmap(o); /* first, so that nothing of it lingers in tuttid */
        detach(t, o->membership, o->id);
        pthread_mutex_lock(&t->lock);
        list_unlink(&o->node);
        recall_forget(t, NULL, o);
        t->n_unwanted -= (uint32_t)__builtin_popcountll(o->unwanted);
        o->is_freed = true;
        put_word(t, o->word);
        bool is_used = o->n_uses > 0;
        pthread_mutex_unlock(&t->lock);
        if (!is_used)
                free(o);
}

/* --- looking --- */

const void *tutti_object_data(const struct tutti_object *o, uint32_t slot) {
        return o && slot < o->n_slots ? o->data + o->stride_bytes * slot : NULL;
}

size_t tutti_object_bytes(const struct tutti_object *o) {
        return o ? o->slot_bytes : 0;
}

uint32_t tutti_object_slots(const struct tutti_object *o) {
        return o ? o->n_slots : 0;
}
