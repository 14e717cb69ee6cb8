/* What the files of the configuration share: the table of keys. Private to them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "config-value.h"
#include "config.h"

#define MAX_CONFIG_KEYS 64
#define MAX_KEY_TEXT    64 /* of a key, with its terminator */
#define MAX_NEAR_KEYS   3
#define CONFIG_FAR      5 /* changed letters */

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
/* The keys that are nearest to `name` and differ from it by less than `far` letters; how many. */
size_t config_near_keys(const char *name, unsigned int far, const struct config_key *ret[MAX_NEAR_KEYS]);
/* Sets a key as its rule has it. 0, or -EINVAL with what is wrong behind what stands in `why`. */
int config_set_key(
        struct config *c, const struct config_key *k, const char *value, struct text *why) MUST_USE;
/* "key = value: ", of which the value may be cut. */
void config_print_setting(const char *key, const char *value, struct text *why);
