/* Devices as people name them: "CPU:0", "GPU:3". A plain number that is compared and sent around; which ones
 * there are, others know. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* CPU:k is k; GPU:k is DEVICE_GPU + k. */
#define DEVICE_GPU     UINT32_C(0x40000000)
#define DEVICE_UNKNOWN UINT32_MAX /* no name of a device */

#define DEVICE_NAME_BYTES 16

/* DEVICE_UNKNOWN: neither CPU:k nor GPU:k with k below a million. */
uint32_t device_parse(const char *name);

/* "CPU:1"; "an unknown device" for DEVICE_UNKNOWN. */
void device_print(uint32_t device, struct text *t);
/* "CPU:1", as device_parse reads it; "?" for DEVICE_UNKNOWN. Returns `buf`. */
const char *device_name(uint32_t device, char buf[DEVICE_NAME_BYTES]);
