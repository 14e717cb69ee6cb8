/* SHA-256 (FIPS 180-4) of a piece of memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

void sha256(const void *data, size_t n_bytes, uint8_t ret[SHA256_BYTES]);
