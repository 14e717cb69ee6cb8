/* Submissions and their options: what most packets are. */
#include "wire/codec.h"

#include <errno.h>
#include <string.h>
#include "wire/codec-pb.h"

/* What a Request takes beside the entries of a submission: every field at its longest, rounded up. */
#define SUBMIT_HEAD_BYTES 768

uint32_t codec_entries_that_fit(const struct entry *entries, uint32_t n, struct arena *scratch) {
        struct entry_box box;
        size_t left = MAX_PACKET_BYTES - SUBMIT_HEAD_BYTES;
        uint32_t i = 0;
        for (; i < n && i < MAX_PART_ENTRIES; i++) {
                entry_out(&entries[i], &box);
                size_t n_bytes = pb_element_bytes(&box.message.base);
                if (n_bytes > left)
                        break;
                left -= n_bytes;
        }
        return i;
}

/* --- submissions --- */

static void options_in(const Tutti__V1__Options *m, struct options *ret) {
        *ret = (struct options){ 0 };
        if (!m)
                return;
        ret->rounding = known_or((int)m->rounding, ROUNDING_NEAREST + 1, ROUNDING_NEAREST + 1);
        ret->has_weight = m->has_weight;
        ret->weight = m->weight;
        ret->check_numerics = m->check_numerics;
        ret->check_overflow = m->check_overflow;
        ret->check_inputs = m->check_inputs;
        ret->reproducible = m->reproducible;
        ret->coalesce = m->coalesce;
        ret->implementation =
                known_or((int)m->implementation, IMPLEMENTATION_NCCL + 1, IMPLEMENTATION_NCCL + 1);
        ret->algorithm = algorithm_parse(m->algorithm);
        ret->has_place = m->device[0] != '\0';
        ret->place = ret->has_place ? device_parse(m->device) : 0;
        ret->packing = (struct packing){ .num_packs = m->num_packs,
                .small_bytes = m->agg_small_grads_max_bytes,
                .small_group = m->agg_small_grads_max_group,
                .bytes_per_pack = m->bytes_per_pack };
        ret->priority = m->priority;
}

static void options_out(const struct options *o, Tutti__V1__Options *m, char device[DEVICE_NAME_BYTES]) {
        tutti__v1__options__init(m);
        m->rounding = (Tutti__V1__Rounding)o->rounding;
        m->has_weight = o->has_weight;
        m->weight = o->weight;
        m->check_numerics = o->check_numerics;
        m->check_overflow = o->check_overflow;
        m->check_inputs = o->check_inputs;
        m->reproducible = o->reproducible;
        m->coalesce = o->coalesce;
        m->implementation = (Tutti__V1__Implementation)o->implementation;
        m->algorithm = string_out(algorithm_word(o->algorithm));
        m->device = string_out(o->has_place ? device_name(o->place, device) : "");
        m->num_packs = o->packing.num_packs;
        m->agg_small_grads_max_bytes = o->packing.small_bytes;
        m->agg_small_grads_max_group = o->packing.small_group;
        m->bytes_per_pack = o->packing.bytes_per_pack;
        m->priority = o->priority;
}

int submit_in(const Tutti__V1__Submit *m, struct arena *arena, struct msg_submit *ret) {
        if (m->n_entries > MAX_PART_ENTRIES)
                return -E2BIG;
        struct entry *entries = arena_calloc(arena, m->n_entries, sizeof(*entries));
        const char *tag = string_in(m->tag);
        if (!entries || strlen(tag) > MAX_TAG_BYTES)
                return -E2BIG;
        for (size_t i = 0; i < m->n_entries; i++)
                entry_in(m->entries[i], &entries[i]);
        *ret = (struct msg_submit){ .membership = m->membership,
                .epoch = m->epoch,
                .signature = { .kind = kind_in((int)m->kind),
                        .op = op_in((int)m->op),
                        .root = m->root,
                        .n_entries = m->batch_length,
                        .axes = axes_in(m->axes, m->n_axes) },
                .has_timeout = m->has_timeout,
                .timeout_ns = m->timeout_ns,
                .n_part_entries = (uint32_t)m->n_entries,
                .entries = entries,
                .more = m->more,
                .refused = status_in((int)m->refused),
                .refused_field = field_in((int)m->refused_field),
                .refused_detail = string_in(m->refused_detail),
                .prepare = m->prepare };
        if (m->signal)
                ret->signal = (struct msg_signal){ m->signal->slot, m->signal->value };
        text_copy(ret->signature.tag, sizeof(ret->signature.tag), tag);
        ret->has_key = key_in(m->key, &ret->key);
        options_in(m->options, &ret->signature.options);
        return 0;
}

static bool entries_out(const struct msg_submit *s, struct arena *scratch, struct submit_box *box) {
        box->list = arena_calloc(scratch, s->n_part_entries, sizeof(*box->list));
        if (!box->list)
                return false;
        box->entries = arena_alloc(scratch, s->n_part_entries * sizeof(*box->entries));
        if (!box->entries)
                return false;
        for (uint32_t i = 0; i < s->n_part_entries; i++) {
                entry_out(&s->entries[i], &box->entries[i]);
                box->list[i] = &box->entries[i].message;
        }
        return true;
}

bool submit_out(const struct msg_submit *s, struct arena *scratch, struct submit_box *box) {
        Tutti__V1__Submit *m = &box->message;
        tutti__v1__submit__init(m);
        if (!entries_out(s, scratch, box))
                return false;
        options_out(&s->signature.options, &box->options, box->device);
        m->membership = s->membership;
        m->epoch = s->epoch;
        m->kind = (Tutti__V1__Kind)s->signature.kind;
        m->op = (Tutti__V1__Op)s->signature.op;
        m->root = s->signature.root;
        m->options = protobuf_c_message_get_packed_size(&box->options.base) ? &box->options : NULL;
        m->has_timeout = s->has_timeout;
        m->timeout_ns = s->timeout_ns;
        m->batch_length = s->signature.n_entries;
        m->n_entries = s->n_part_entries;
        m->entries = box->list;
        m->more = s->more;
        m->refused = (Tutti__V1__Status)s->refused;
        m->refused_field = (Tutti__V1__Field)s->refused_field;
        m->refused_detail = string_out(s->refused_detail ? s->refused_detail : "");
        m->tag = string_out(s->signature.tag);
        m->prepare = s->prepare;
        m->n_axes = axes_out(s->signature.axes, m->axes = box->axes);
        if (s->has_key) {
                key_out(&s->key, &box->key);
                m->key = &box->key;
        }
        if (s->signal.value)
                m->signal = signal_out(&s->signal, &box->signal);
        return true;
}
