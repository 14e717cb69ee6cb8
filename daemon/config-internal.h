/* What the files of the configuration share: the table of keys. Private to them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "config-value.h"
#include "config.h"

#define MAX_CONFIG_KEYS 64
#define MAX_KEY_TEXT    64 /* of a key, with its terminator */

struct config_key {
        const char *name;
        size_t offset; /* of its field in struct config */
        struct value_rule rule;
        const char *preset, *help;
        bool is_fixed; /* for as long as tuttid runs */
};

/* In the order of config/tuttid.conf; NULL behind the last. */
const struct config_key *config_key_at(size_t i);
size_t config_key_index(const struct config_key *k);
/* By "quota.groups"; NULL: there is none. */
const struct config_key *config_find_key(const char *name);
/* Of "quota.1000.groups", quota.groups and the uid; NULL: it is no limit of one user. */
const struct config_key *config_find_override_key(const char *name, uint32_t *ret_uid);
