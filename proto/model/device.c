#include "model/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INDEX 999999

static bool parse_index(const char *s, uint32_t *ret) {
        size_t n = strspn(s, "0123456789");
        if (n == 0 || n > 6 || s[n] != '\0' || (s[0] == '0' && n > 1))
                return false;
        *ret = (uint32_t)strtoul(s, NULL, 10);
        return true;
}

uint32_t device_parse(const char *name) {
        uint32_t index;
        if (strncmp(name, "CPU:", 4) == 0 && parse_index(name + 4, &index))
                return index;
        if (strncmp(name, "GPU:", 4) == 0 && parse_index(name + 4, &index))
                return DEVICE_GPU + index;
        return DEVICE_UNKNOWN;
}

const char *device_name(uint32_t device, char buf[DEVICE_NAME_BYTES]) {
        bool is_gpu = device >= DEVICE_GPU;
        uint32_t index = is_gpu ? device - DEVICE_GPU : device;
        if (index > MAX_INDEX)
                snprintf(buf, DEVICE_NAME_BYTES, "?");
        else
                snprintf(buf, DEVICE_NAME_BYTES, "%s:%" PRIu32, is_gpu ? "GPU" : "CPU", index);
        return buf;
}

void device_print(uint32_t device, struct text *t) {
        char name[DEVICE_NAME_BYTES];
        text_add(t, "%s", device == DEVICE_UNKNOWN ? "an unknown device" : device_name(device, name));
}
