#include "model/field.h"

static const char *const names[N_FIELD] = {
        [FIELD_UNSPECIFIED] = "unspecified",
        [FIELD_KIND] = "kind",
        [FIELD_OP] = "op",
        [FIELD_ROOT] = "root",
        [FIELD_DTYPE] = "dtype",
        [FIELD_OUTPUT_DTYPE] = "output dtype",
        [FIELD_SHAPE] = "shape",
        [FIELD_LAYOUT] = "layout",
        [FIELD_DESTINATIONS] = "destinations",
        [FIELD_BATCH_LENGTH] = "batch length",
        [FIELD_OPTIONS] = "options",
        [FIELD_WORLD_SIZE] = "world size",
        [FIELD_RANK] = "rank",
        [FIELD_BUFFER] = "buffer",
        [FIELD_OFFSET] = "offset",
        [FIELD_STRIDES] = "strides",
        [FIELD_OVERLAP] = "overlap",
        [FIELD_DATA] = "data",
        [FIELD_KEY] = "key",
        [FIELD_GROUP] = "group",
        [FIELD_JOB] = "job",
        [FIELD_ACCESS] = "access",
        [FIELD_SIZE] = "size",
        [FIELD_DESCRIPTOR] = "descriptor",
        [FIELD_ENTRIES] = "entries",
        [FIELD_TIMEOUT] = "timeout",
        [FIELD_MEMBERSHIP] = "membership",
        [FIELD_VERSION] = "version",
        [FIELD_AXIS] = "axis",
        [FIELD_EXTENT] = "extent",
        [FIELD_INDICES] = "indices",
        [FIELD_INDEX_DTYPE] = "index dtype",
        [FIELD_DENSE_SHAPE] = "dense shape",
};

const char *field_name(enum field field) {
        return (unsigned int)field < N_FIELD && names[field] ? names[field] : "?";
}
