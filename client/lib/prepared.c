#include "lib/prepared.h"

#include <string.h>
#include "lib/connection.h"

/* --- telling halves apart --- */

static void print_bytes(struct sip *print, const void *data, size_t n) {
        const uint8_t *at = data;
        for (; n >= sizeof(uint64_t); n -= sizeof(uint64_t), at += sizeof(uint64_t)) {
                uint64_t word;
                memcpy(&word, at, sizeof(word));
                sip_word(print, word);
        }
        uint64_t rest = 0;
        memcpy(&rest, at, n);
        sip_word(print, rest);
}

/* Bytes between the fields count as well: they can make equal halves different, never different ones equal.
 */
struct sip print_of_half(const struct msg_submit *m, const struct entry *entries) {
        static const uint64_t seed[2] = { UINT64_C(0x74757474695f6861), UINT64_C(0x6c7665735f6f6e65) };
        struct sip print;
        sip_begin(&print, seed);
        sip_word(&print, m->membership);
        print_bytes(&print, &m->signature, sizeof(m->signature));
        for (uint32_t i = 0; i < m->signature.n_entries; i++)
                print_bytes(&print, &entries[i], sizeof(entries[i]));
        return print;
}

static struct remembered *find(struct memory_of_halves *memory, const struct sip *print) {
        for (size_t i = 0; i < MAX_REMEMBERED; i++) {
                struct remembered *r = &memory->items[i];
                if (atomic_load(&r->state) != REMEMBERED_NOTHING && sip_is_equal(&r->print, print))
                        return r;
        }
        return NULL;
}

/* --- making room --- */

/* tuttid need not answer for us. */
static void unprepare(struct tutti *t, uint64_t number) {
        struct request request = { .type = REQUEST_UNPREPARE, .prepared = number };
        struct error err;
        if (send_number(t, &request, NULL, &err) == STATUS_OK && send_may_go(t, NULL)) {
                bool is_sent = send_packet(t, &request, -1);
                CHECK(is_sent);
        }
}

/* Under `sending`. */
static void forget(struct tutti *t, struct remembered *r) {
        pthread_mutex_lock(&t->lock);
        int state = atomic_load(&r->state);
        uint64_t number = r->number;
        atomic_store(&r->state, REMEMBERED_NOTHING);
        pthread_mutex_unlock(&t->lock);
        if (state == REMEMBERED_KEPT)
                unprepare(t, number);
}

/* What tuttid was asked to keep, and has not said whether it does, is not given up. */
static struct remembered *make_room(struct tutti *t) {
        struct remembered *oldest = NULL;
        for (size_t i = 0; i < MAX_REMEMBERED; i++) {
                struct remembered *r = &t->halves.items[i];
                int state = atomic_load(&r->state);
                if (state == REMEMBERED_NOTHING)
                        return r;
                if (state != REMEMBERED_ASKED && (!oldest || r->last_use < oldest->last_use))
                        oldest = r;
        }
        if (oldest)
                forget(t, oldest);
        return oldest;
}

static void note_buffer(struct remembered *r, uint64_t buffer) {
        for (uint32_t i = 0; i < r->n_buffers && i < MAX_REMEMBERED_BUFFERS; i++)
                if (r->buffers[i] == buffer)
                        return;
        if (buffer == 0)
                return;
        if (r->n_buffers < MAX_REMEMBERED_BUFFERS)
                r->buffers[r->n_buffers] = buffer;
        r->n_buffers++;
}

static void note(
        struct tutti *t, const struct sip *print, const struct msg_submit *m, const struct entry *entries) {
        struct remembered *r = make_room(t);
        if (!r)
                return;
        pthread_mutex_lock(&t->lock);
        r->print = *print;
        r->number = 0;
        r->has_done = false;
        r->n_buffers = 0;
        r->result = 0;
        for (uint32_t i = 0; i < m->signature.n_entries; i++) {
                note_buffer(r, entries[i].input.buffer);
                note_buffer(r, entries[i].output.buffer);
                if (entries[i].output.result) /* one half goes to one */
                        r->result = entries[i].output.result;
        }
        r->last_use = ++t->halves.n_uses;
        atomic_store(&r->state, REMEMBERED_SEEN);
        pthread_mutex_unlock(&t->lock);
}

/* --- */

/* A barrier, or dense values of registered memory, or of whatever slot is next. */
static bool may_come_again(const struct msg_submit *m, const struct entry *entries) {
        const struct signature *s = &m->signature;
        if (m->refused != STATUS_OK || s->n_entries > MAX_PREPARED_ENTRIES || s->options.check_inputs ||
                s->axes)
                return false;
        if (s->kind == KIND_BARRIER)
                return true;
        if (s->n_entries == 0)
                return false;
        if (s->kind != KIND_REDUCE && s->kind != KIND_BATCH_REDUCE && s->kind != KIND_BROADCAST)
                return false;
        for (uint32_t i = 0; i < s->n_entries; i++)
                if (entries[i].layout != LAYOUT_DENSE)
                        return false;
        return true;
}

struct remembering remember(
        struct tutti *t, const struct msg_submit *m, const struct entry *entries, const struct sip *print) {
        const struct remembering nothing = { 0 };
        if (t->halves.is_off || !may_come_again(m, entries))
                return nothing;
        struct remembered *r = find(&t->halves, print);
        if (!r) {
                note(t, print, m, entries);
                return nothing;
        }
        pthread_mutex_lock(&t->lock);
        r->last_use = ++t->halves.n_uses;
        int state = atomic_load(&r->state);
        if (state == REMEMBERED_SEEN) {
                r->number = ++t->halves.last_number;
                atomic_store(&r->state, REMEMBERED_ASKED);
        }
        const struct remembering ret = { .start = state == REMEMBERED_KEPT ? r : NULL, .number = r->number };
        pthread_mutex_unlock(&t->lock);
        return state == REMEMBERED_SEEN || state == REMEMBERED_KEPT ? ret : nothing;
}

void remember_end(struct tutti *t, uint64_t number, bool is_kept) {
        for (size_t i = 0; i < MAX_REMEMBERED; i++) {
                struct remembered *r = &t->halves.items[i];
                if (atomic_load(&r->state) == REMEMBERED_ASKED && r->number == number)
                        atomic_store(&r->state, is_kept ? REMEMBERED_KEPT : REMEMBERED_DECLINED);
        }
}

void remember_done(struct tutti *t, uint64_t number, const struct msg_done *done) {
        for (size_t i = 0; i < MAX_REMEMBERED; i++) {
                struct remembered *r = &t->halves.items[i];
                if (atomic_load(&r->state) != REMEMBERED_KEPT || r->number != number)
                        continue;
                r->done = *done;
                r->has_done = true;
        }
}

static bool uses_buffer(const struct remembered *r, uint64_t buffer) {
        if (r->n_buffers > MAX_REMEMBERED_BUFFERS)
                return true;
        for (uint32_t i = 0; i < r->n_buffers; i++)
                if (r->buffers[i] == buffer)
                        return true;
        return false;
}

/* Of a buffer, or of an object; 0: of none. */
static void forget_place(struct tutti *t, uint64_t buffer, uint64_t result) {
        pthread_mutex_lock(&t->sending);
        for (size_t i = 0; i < MAX_REMEMBERED; i++) {
                struct remembered *r = &t->halves.items[i];
                int state = atomic_load(&r->state);
                if (state == REMEMBERED_NOTHING || state == REMEMBERED_ASKED)
                        continue;
                if (result ? r->result == result : uses_buffer(r, buffer))
                        forget(t, r);
        }
        pthread_mutex_unlock(&t->sending);
}

void forget_buffer(struct tutti *t, uint64_t buffer) {
        forget_place(t, buffer, 0);
}

void forget_object(struct tutti *t, uint64_t result) {
        forget_place(t, 0, result);
}

void forget_all(struct tutti *t) {
        for (size_t i = 0; i < MAX_REMEMBERED; i++)
                atomic_store(&t->halves.items[i].state, REMEMBERED_NOTHING);
}
