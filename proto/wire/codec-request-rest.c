/* Requests of a few fields: result objects, signals, what people do. */
#include "wire/codec-pb.h"

struct msg_make_result make_result_in(const Tutti__V1__MakeResult *m) {
        struct msg_make_result r = { .membership = m->membership,
                .size_bytes = m->size_bytes,
                .n_slots = m->n_slots,
                .word = m->word,
                .device = string_in(m->device) };
        r.has_key = key_in(m->key, &r.key);
        return r;
}

void make_result_out(const struct msg_make_result *r, Tutti__V1__MakeResult *m, Tutti__V1__Key *key) {
        tutti__v1__make_result__init(m);
        m->membership = r->membership;
        m->size_bytes = r->size_bytes;
        m->n_slots = r->n_slots;
        m->word = r->word;
        m->device = string_out(r->device);
        if (r->has_key) {
                key_out(&r->key, key);
                m->key = key;
        }
}

struct msg_release_result release_result_in(const Tutti__V1__ReleaseResult *m) {
        return (struct msg_release_result){
                .result = m->result, .membership = m->membership, .slot = m->slot, .detach = m->detach
        };
}

void release_result_out(const struct msg_release_result *r, Tutti__V1__ReleaseResult *m) {
        tutti__v1__release_result__init(m);
        m->result = r->result;
        m->membership = r->membership;
        m->slot = r->slot;
        m->detach = r->detach;
}

void open_signals_out(const struct msg_open_signals *o, Tutti__V1__OpenSignals *m) {
        tutti__v1__open_signals__init(m);
        m->order = (Tutti__V1__Order)o->order;
        m->device = string_out(o->device);
}

struct msg_control control_in(const Tutti__V1__Control *m) {
        return (struct msg_control){ .verb = (enum verb)known_or(
                                             (int)m->verb, VERB_LOG_LEVEL + 1, VERB_UNSPECIFIED),
                .job = string_in(m->job),
                .group = string_in(m->group),
                .text = string_in(m->text),
                .rank = m->rank,
                .has_user = m->has_user,
                .user = m->user };
}

void control_out(const struct msg_control *c, Tutti__V1__Control *m) {
        tutti__v1__control__init(m);
        m->verb = (Tutti__V1__Verb)c->verb;
        m->job = string_out(c->job);
        m->group = string_out(c->group);
        m->text = string_out(c->text);
        m->rank = c->rank;
        m->has_user = c->has_user;
        m->user = c->user;
}
