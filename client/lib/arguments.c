#include "lib/arguments.h"

#include <stdint.h>
#include <string.h>

bool arguments_copy(const struct arguments *known, const void *given, size_t given_bytes) {
        const uint8_t *bytes = given;
        if (given_bytes < known->first_bytes)
                return false;
        for (size_t i = known->n_bytes; i < given_bytes; i++)
                if (bytes[i])
                        return false;
        memset(known->at, 0, known->n_bytes);
        memcpy(known->at, given, given_bytes < known->n_bytes ? given_bytes : known->n_bytes);
        return true;
}
