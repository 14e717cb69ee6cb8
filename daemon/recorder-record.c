#include "recorder-record.h"

#include <string.h>

#define NOBODY UINT64_MAX

struct writer {
        uint8_t *at;
};

static void put(struct writer *w, uint64_t n) {
        for (; n >= 0x80; n >>= 7)
                *w->at++ = (uint8_t)(n | 0x80);
        *w->at++ = (uint8_t)n;
}

static void put_bytes(struct writer *w, const void *bytes, size_t n) {
        put(w, n);
        memcpy(w->at, bytes, n);
        w->at += n;
}

struct reader {
        const uint8_t *at;
};

static uint64_t get(struct reader *r) {
        uint64_t n = 0;
        for (unsigned int shift = 0;; shift += 7) {
                uint8_t byte = *r->at++;
                n |= (uint64_t)(byte & 0x7f) << shift;
                if (!(byte & 0x80))
                        return n;
        }
}

static uint64_t since(uint64_t now_ns, uint64_t then_ns) {
        return now_ns > then_ns ? now_ns - then_ns : 0;
}

static const struct half *first_half(const struct meeting *m) {
        for (uint32_t rank = 0; rank < m->group->world_size; rank++)
                if (m->halves[rank])
                        return m->halves[rank];
        return NULL;
}

/* Who is to blame, or -1. A TIMEOUT's rank is the one that waited: the missing are to blame. */
static int guilty_rank(const struct meeting *m) {
        if (m->status == STATUS_OK || !m->error)
                return -1;
        if (m->status == STATUS_TIMEOUT)
                return rankset_next(&m->error->missing, 0);
        return m->error->rank;
}

static void put_key(struct writer *w, const struct key *key) {
        put_bytes(w, key->bytes, key->n_bytes);
        if (!key->n_bytes)
                put(w, key->sequence);
}

/* What was asked for; of halves that disagree, the first rank's word. */
static void put_half(struct writer *w, const struct half *half) {
        put(w, half != NULL);
        if (!half)
                return;
        put(w, half->signature.kind);
        put(w, half->signature.op);
        put(w, half->signature.n_entries);
        put(w, half->signature.n_entries ? half->entries[0].dtype : DTYPE_UNSPECIFIED);
        put(w, half->n_bytes);
}

/* 0 is nobody, so that an absent rank takes one byte. */
static void put_arrivals(struct writer *w, const struct meeting *m) {
        put(w, m->group->world_size);
        for (uint32_t rank = 0; rank < m->group->world_size; rank++)
                put(w, m->halves[rank] ? since(m->halves[rank]->arrived_ns, m->first_ns) + 1 : 0);
}

static void put_set(struct writer *w, const struct rankset *set) {
        uint8_t bytes[MAX_WORLD / 8];
        size_t n = rankset_to_bytes(set, bytes);
        put_bytes(w, bytes, n);
}

size_t record_write(const struct meeting *m, uint8_t bytes[MAX_RECORD_BYTES]) {
        struct writer w = { .at = bytes };
        put(&w, m->epoch);
        put(&w, m->number);
        put(&w, m->status);
        put(&w, m->first_ns);
        put(&w, m->number ? since(m->sealed_ns, m->first_ns) + 1 : 0);
        put(&w, since(m->done_ns, m->first_ns));
        put(&w, m->last_rank);
        put(&w, (uint64_t)guilty_rank(m) + 1); /* 0: nobody */
        put_key(&w, &m->key);
        put_half(&w, first_half(m));
        put_set(&w, &m->have);
        put_arrivals(&w, m);
        return (size_t)(w.at - bytes);
}

static void get_key(struct reader *r, struct key *ret) {
        *ret = (struct key){ .n_bytes = (uint8_t)get(r) };
        memcpy(ret->bytes, r->at, ret->n_bytes);
        r->at += ret->n_bytes;
        if (!ret->n_bytes)
                ret->sequence = get(r);
}

static void get_half(struct reader *r, struct row_record *ret) {
        if (!get(r))
                return;
        ret->kind = (enum kind)get(r);
        ret->op = (enum op)get(r);
        ret->n_entries = (uint32_t)get(r);
        ret->dtype = (enum dtype)get(r);
        ret->bytes = get(r);
}

static void get_set(struct reader *r, struct rankset *ret) {
        size_t n = get(r);
        CHECK(rankset_from_bytes(r->at, n, ret));
        r->at += n;
}

static void get_arrivals(struct reader *r, uint64_t arrivals[MAX_WORLD], struct row_record *ret) {
        ret->n_arrivals = (uint32_t)get(r);
        for (uint32_t rank = 0; rank < ret->n_arrivals; rank++) {
                uint64_t n = get(r);
                arrivals[rank] = n ? n - 1 : NOBODY;
        }
        ret->arrival_ns = arrivals;
}

/* 0 says never; who was sealed at once, as a group of one is, gets the smallest time there is. */
static uint64_t get_sealed(struct reader *r) {
        uint64_t n = get(r);
        return n == 1 ? 1 : n ? n - 1 : 0;
}

void record_read(
        const uint8_t *bytes, uint64_t now_ns, uint64_t arrivals[MAX_WORLD], struct row_record *ret) {
        struct reader r = { .at = bytes };
        *ret = (struct row_record){ 0 };
        ret->epoch = get(&r);
        ret->collective = get(&r);
        ret->status = (enum status)get(&r);
        ret->age_ns = since(now_ns, get(&r));
        ret->sealed_ns = get_sealed(&r);
        ret->done_ns = get(&r);
        ret->last_rank = (uint32_t)get(&r);
        uint64_t guilty = get(&r);
        ret->has_guilty = guilty > 0;
        ret->guilty_rank = guilty ? (uint32_t)(guilty - 1) : 0;
        get_key(&r, &ret->key);
        get_half(&r, ret);
        get_set(&r, &ret->have);
        get_arrivals(&r, arrivals, ret);
}

/* --- a member --- */

/* With the 0 behind it, so that it need not be copied to be read. */
static void put_text(struct writer *w, const char *text) {
        size_t n = strnlen(text, MAX_MEMBER_TEXT - 1);
        put(w, n);
        memcpy(w->at, text, n);
        w->at[n] = '\0';
        w->at += n + 1;
}

static const char *get_text(struct reader *r) {
        size_t n = get(r);
        const char *text = (const char *)r->at;
        r->at += n + 1;
        return text;
}

/* 0: never. */
static void put_age(struct writer *w, uint64_t now_ns, uint64_t age_ns) {
        put(w, age_ns ? since(now_ns, age_ns) + 1 : 0);
}

/* Not 0 of what has been, so that readers know. */
static uint64_t get_age(struct reader *r, uint64_t now_ns) {
        uint64_t then = get(r);
        return then ? since(now_ns, then - 1) + !since(now_ns, then - 1) : 0;
}

size_t member_write(const struct row_member *m, uint64_t now_ns, uint8_t bytes[MAX_MEMBER_BYTES]) {
        struct writer w = { .at = bytes };
        put(&w, m->rank);
        put(&w, m->pid);
        put(&w, m->state);
        put(&w, m->lost ? (uint64_t)m->loss + 1 : 0);
        put_age(&w, now_ns, m->lost_age_ns);
        put(&w, m->n_submitted);
        put(&w, m->n_last);
        put(&w, m->n_joint);
        put(&w, m->lateness_p50_ns);
        put(&w, m->lateness_p99_ns);
        put_text(&w, m->process);
        put_text(&w, m->why);
        put_age(&w, now_ns, m->has_last ? m->last_age_ns + !m->last_age_ns : 0);
        if (m->has_last)
                put_key(&w, &m->last_key);
        return (size_t)(w.at - bytes);
}

size_t member_read(const uint8_t *bytes, uint64_t now_ns, struct row_member *ret) {
        struct reader r = { .at = bytes };
        ret->rank = (uint32_t)get(&r);
        ret->pid = (uint32_t)get(&r);
        ret->state = (enum process_state)get(&r);
        uint64_t loss = get(&r);
        ret->lost = loss > 0;
        ret->loss = loss ? (enum loss)(loss - 1) : LOSS_UNSPECIFIED;
        ret->lost_age_ns = get_age(&r, now_ns);
        ret->n_submitted = get(&r);
        ret->n_last = get(&r);
        ret->n_joint = get(&r);
        ret->lateness_p50_ns = get(&r);
        ret->lateness_p99_ns = get(&r);
        ret->process = get_text(&r);
        ret->why = get_text(&r);
        ret->last_age_ns = get_age(&r, now_ns);
        ret->has_last = ret->last_age_ns > 0;
        if (ret->has_last)
                get_key(&r, &ret->last_key);
        return (size_t)(r.at - bytes);
}
