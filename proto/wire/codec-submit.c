/* Submissions, their entries and options: what most packets are. */
#include "wire/codec.h"

#include <errno.h>
#include <string.h>
#include "wire/codec-pb.h"

/* What a Request takes beside the entries of a submission: every field at its longest, rounded up. */
#define SUBMIT_HEAD_BYTES 768

/* --- entries --- */

static void place_in(const Tutti__V1__Place *m, struct place *ret) {
        if (!m)
                return;
        ret->buffer = m->buffer;
        ret->offset_bytes = m->offset_bytes;
        ret->n_strides = m->n_strides <= MAX_DIMS ? (uint32_t)m->n_strides : MAX_DIMS + 1;
        for (size_t i = 0; i < m->n_strides && i < MAX_DIMS; i++)
                ret->strides[i] = m->strides[i];
        ret->result = m->result;
}

/* What cannot be a destination stays DESTINATION_UNSPECIFIED, which is refused. */
static void destinations_in(const Tutti__V1__Destinations *m, struct entry *ret) {
        if (!m)
                return;
        switch (m->where_case) {
        case TUTTI__V1__DESTINATIONS__WHERE_ALL:
                if (m->all)
                        ret->destination = DESTINATION_ALL;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_RANK:
                ret->destination = DESTINATION_RANK;
                ret->destination_rank = m->rank;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_RANKS:
                if (ranks_in(&m->ranks, &ret->destination_ranks))
                        ret->destination = DESTINATION_RANKS;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_DEVICE:
                ret->destination = DESTINATION_DEVICE;
                ret->destination_device = device_parse(m->device);
                return;
        case TUTTI__V1__DESTINATIONS__WHERE_SAME:
                if (m->same)
                        ret->destination = DESTINATION_SAME;
                return;
        case TUTTI__V1__DESTINATIONS__WHERE__NOT_SET:
        case _TUTTI__V1__DESTINATIONS__WHERE__CASE_IS_INT_SIZE: return;
        }
}

/* `ret` is cleared. */
static void entry_in(const Tutti__V1__Entry *m, struct entry *ret) {
        ret->dtype = dtype_in((int)m->dtype);
        ret->output_dtype = dtype_in((int)m->output_dtype);
        ret->layout = m->sparse ? LAYOUT_SPARSE : LAYOUT_DENSE;
        ret->n_dims = m->n_shape <= MAX_DIMS ? (uint32_t)m->n_shape : MAX_DIMS + 1;
        for (size_t i = 0; i < m->n_shape && i < MAX_DIMS; i++)
                ret->shape[i] = m->shape[i];
        place_in(m->input, &ret->input);
        place_in(m->output, &ret->output);
        destinations_in(m->destinations, ret);
        ret->input_checksum = m->input_checksum;
        ret->output_extent = m->output_extent;
}

/* An entry's message with everything it refers to. */
struct entry_box {
        Tutti__V1__Entry message;
        Tutti__V1__Place input, output;
        Tutti__V1__Destinations destinations;
        uint8_t ranks[MAX_WORLD / 8];
        char device[DEVICE_NAME_BYTES];
};

static Tutti__V1__Place *place_out(const struct place *p, Tutti__V1__Place *m) {
        static uint64_t too_many[MAX_DIMS + 1];
        if (!place_is_there(p) && !p->offset_bytes && !p->n_strides)
                return NULL;
        tutti__v1__place__init(m);
        m->buffer = p->buffer;
        m->offset_bytes = p->offset_bytes;
        m->result = p->result;
        m->n_strides = p->n_strides <= MAX_DIMS ? p->n_strides : ARRAY_SIZE(too_many);
        m->strides = p->n_strides <= MAX_DIMS ? (uint64_t *)p->strides : too_many;
        return m;
}

static Tutti__V1__Destinations *destinations_out(const struct entry *e, struct entry_box *box) {
        Tutti__V1__Destinations *m = &box->destinations;
        tutti__v1__destinations__init(m);
        switch (e->destination) {
        case DESTINATION_ALL:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_ALL;
                m->all = 1;
                return m;
        case DESTINATION_RANK:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_RANK;
                m->rank = e->destination_rank;
                return m;
        case DESTINATION_RANKS:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_RANKS;
                m->ranks = ranks_out(&e->destination_ranks, box->ranks);
                return m;
        case DESTINATION_DEVICE:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_DEVICE;
                m->device = string_out(device_name(e->destination_device, box->device));
                return m;
        case DESTINATION_SAME:
                m->where_case = TUTTI__V1__DESTINATIONS__WHERE_SAME;
                m->same = 1;
                return m;
        case DESTINATION_UNSPECIFIED: break;
        }
        return NULL;
}

static void entry_out(const struct entry *e, struct entry_box *box) {
        static Tutti__V1__Sparse sparse = TUTTI__V1__SPARSE__INIT;
        static uint64_t too_many_dims[MAX_DIMS + 1];
        Tutti__V1__Entry *m = &box->message;
        tutti__v1__entry__init(m);
        m->dtype = (Tutti__V1__DType)e->dtype;
        m->output_dtype = (Tutti__V1__DType)e->output_dtype;
        m->n_shape = e->n_dims <= MAX_DIMS ? e->n_dims : ARRAY_SIZE(too_many_dims);
        m->shape = e->n_dims <= MAX_DIMS ? (uint64_t *)e->shape : too_many_dims;
        m->input = place_out(&e->input, &box->input);
        m->output = place_out(&e->output, &box->output);
        m->destinations = destinations_out(e, box);
        m->sparse = e->layout == LAYOUT_SPARSE ? &sparse : NULL;
        m->input_checksum = e->input_checksum;
        m->output_extent = e->output_extent;
}

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
        m->implementation = (Tutti__V1__Implementation)o->implementation;
        m->algorithm = string_out(algorithm_word(o->algorithm));
        m->device = string_out(o->has_place ? device_name(o->place, device) : "");
        m->num_packs = o->packing.num_packs;
        m->agg_small_grads_max_bytes = o->packing.small_bytes;
        m->agg_small_grads_max_group = o->packing.small_group;
        m->bytes_per_pack = o->packing.bytes_per_pack;
        m->priority = o->priority;
}

/* A set: one that is named twice counts once. */
static uint16_t axes_in(const uint32_t *axes, size_t n) {
        uint16_t set = 0;
        for (size_t i = 0; i < n; i++)
                set |= axes[i] < MAX_DIMS ? 1u << axes[i] : AXIS_BEYOND;
        return set;
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
        box->entries = arena_calloc(scratch, s->n_part_entries, sizeof(*box->entries));
        if (!box->list || !box->entries)
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
        m->axes = box->axes;
        for (uint32_t d = 0; d <= MAX_DIMS; d++)
                if (s->signature.axes >> d & 1)
                        box->axes[m->n_axes++] = d;
        if (s->has_key) {
                key_out(&s->key, &box->key);
                m->key = &box->key;
        }
        if (s->signal.value) {
                tutti__v1__signal__init(&box->signal);
                box->signal.slot = s->signal.slot;
                box->signal.value = s->signal.value;
                m->signal = &box->signal;
        }
        return true;
}
