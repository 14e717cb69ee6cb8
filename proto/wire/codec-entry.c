/* The entries of a submission: one value each, dense or sparse. */
#include "wire/codec-pb.h"

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

static void sparse_in(const Tutti__V1__Sparse *m, struct entry *e) {
        struct sparse *ret = &e->sparse;
        if (!m)
                return;
        e->layout = LAYOUT_SPARSE;
        ret->index_dtype = dtype_in((int)m->index_dtype);
        ret->n_indices = m->n_indices;
        ret->n_dense_dims = m->n_dense_shape <= MAX_DIMS ? (uint32_t)m->n_dense_shape : MAX_DIMS + 1;
        for (size_t i = 0; i < m->n_dense_shape && i < MAX_DIMS; i++)
                ret->dense_shape[i] = m->dense_shape[i];
        place_in(m->indices, &ret->indices);
        place_in(m->output_indices, &ret->output_indices);
}

void entry_in(const Tutti__V1__Entry *m, struct entry *ret) {
        ret->dtype = dtype_in((int)m->dtype);
        ret->output_dtype = dtype_in((int)m->output_dtype);
        sparse_in(m->sparse, ret);
        ret->n_dims = m->n_shape <= MAX_DIMS ? (uint32_t)m->n_shape : MAX_DIMS + 1;
        for (size_t i = 0; i < m->n_shape && i < MAX_DIMS; i++)
                ret->shape[i] = m->shape[i];
        place_in(m->input, &ret->input);
        place_in(m->output, &ret->output);
        destinations_in(m->destinations, ret);
        ret->input_checksum = m->input_checksum;
        ret->output_extent = m->output_extent;
}

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

/* What there is too much of goes out as too much, for tuttid to refuse. */
static uint64_t too_many_dims[MAX_DIMS + 1];

static Tutti__V1__Sparse *sparse_out(const struct sparse *s, struct entry_box *box) {
        Tutti__V1__Sparse *m = &box->sparse;
        tutti__v1__sparse__init(m);
        m->index_dtype = (Tutti__V1__DType)s->index_dtype;
        m->n_indices = s->n_indices;
        m->n_dense_shape = s->n_dense_dims <= MAX_DIMS ? s->n_dense_dims : ARRAY_SIZE(too_many_dims);
        m->dense_shape = s->n_dense_dims <= MAX_DIMS ? (uint64_t *)s->dense_shape : too_many_dims;
        m->indices = place_out(&s->indices, &box->indices);
        m->output_indices = place_out(&s->output_indices, &box->output_indices);
        return m;
}

void entry_out(const struct entry *e, struct entry_box *box) {
        Tutti__V1__Entry *m = &box->message;
        tutti__v1__entry__init(m);
        m->dtype = (Tutti__V1__DType)e->dtype;
        m->output_dtype = (Tutti__V1__DType)e->output_dtype;
        m->n_shape = e->n_dims <= MAX_DIMS ? e->n_dims : ARRAY_SIZE(too_many_dims);
        m->shape = e->n_dims <= MAX_DIMS ? (uint64_t *)e->shape : too_many_dims;
        m->input = place_out(&e->input, &box->input);
        m->output = place_out(&e->output, &box->output);
        m->destinations = destinations_out(e, box);
        m->sparse = e->layout == LAYOUT_SPARSE ? sparse_out(&e->sparse, box) : NULL;
        m->input_checksum = e->input_checksum;
        m->output_extent = e->output_extent;
}
