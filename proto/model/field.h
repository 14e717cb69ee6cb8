/* Which part of a request an error is about. Values are those of tutti.proto. */
#pragma once

enum field {
        FIELD_UNSPECIFIED,
        FIELD_KIND,
        FIELD_OP,
        FIELD_ROOT,
        FIELD_DTYPE,
        FIELD_OUTPUT_DTYPE,
        FIELD_SHAPE,
        FIELD_LAYOUT,
        FIELD_DESTINATIONS,
        FIELD_BATCH_LENGTH,
        FIELD_OPTIONS,
        FIELD_WORLD_SIZE,
        FIELD_RANK,
        FIELD_BUFFER,
        FIELD_OFFSET,
        FIELD_STRIDES,
        FIELD_OVERLAP,
        FIELD_DATA,
        FIELD_KEY,
        FIELD_GROUP,
        FIELD_JOB,
        FIELD_ACCESS,
        FIELD_SIZE,
        FIELD_DESCRIPTOR,
        FIELD_ENTRIES,
        FIELD_TIMEOUT,
        FIELD_MEMBERSHIP,
        FIELD_VERSION,
        FIELD_AXIS = 30,
        FIELD_EXTENT = 31,
        FIELD_INDICES = 34,
        FIELD_INDEX_DTYPE = 35,
        FIELD_DENSE_SHAPE = 36,
        N_FIELD,
};

/* "shape", "output dtype", ...; "?" for unknown values. Never NULL. */
const char *field_name(enum field field);
