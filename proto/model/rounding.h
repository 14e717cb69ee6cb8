/* How a MEAN of integers comes back to their type. */
#pragma once

enum rounding { ROUNDING_UNSPECIFIED, ROUNDING_TRUNC, ROUNDING_FLOOR, ROUNDING_NEAREST };

const char *rounding_name(enum rounding rounding); /* "trunc", ...; never NULL */
