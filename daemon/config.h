/* What tuttid was told: const for everybody, made before anything else from defaults, file, environment and
 * options, in this order; who comes later wins.
 *
 * Owned by daemon.c, which alone changes it: between two turns, when it reloads. Floor 2: no I/O but reading
 * the file. What it names is looked for by config-host.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/check.h"
#include "base/log.h"
#include "config-users.h"
#include "isa.h"
#include "model/algorithm.h"

#define CONFIG_PATH_BYTES 256
#define MAX_CPU_DEVICES   64
#define MAX_WORKERS       64
#define MAX_OVERRIDES     64 /* users with limits of their own */
#define QUOTA_NOT_SAID    UINT64_MAX
#define LIBRARY_FROM_AUTO UINT64_MAX

/* Whether GPUs are looked for; whether legacy handles are taken: auto, where one user alone is served. */
enum gpu_enabled { GPU_AUTO, GPU_NO };
enum gpu_ipc { GPU_IPC_AUTO, GPU_IPC_YES, GPU_IPC_NO };
/* The best order of streams that clients are offered. */
enum gpu_order { GPU_ORDER_AUTO, GPU_ORDER_EVENTS, GPU_ORDER_HOST };

/* Whether tuttid confines itself, once it has started. */
enum confine { CONFINE_YES, CONFINE_NO };

/* Whether there is a lane. */
enum lane_enabled { LANE_YES, LANE_NO };
#define LANE_ASSISTANTS_AUTO UINT32_MAX

struct quota_limits {
        uint64_t connections, descriptors, mapped_bytes, pending, groups, recorder_bytes, result_bytes,
                reply_bytes, memory_bytes;
};

/* [quota.UID]: what it does not say (QUOTA_NOT_SAID) is as for everybody. */
struct quota_override {
        uint32_t uid;
        struct quota_limits limits;
};

struct config {
        char socket[CONFIG_PATH_BYTES];
        char socket_group[64];  /* "" : leave it */
        bool is_private;        /* ends when stdin's pipe closes */
        uint32_t n_cpu_devices; /* CPU:0 .. n-1 */
        uint32_t n_workers;     /* of all host devices together; 0: one per core */
        uint64_t chunk_bytes;   /* of each input, per chunk */
        enum isa isa;
        uint64_t default_timeout_ns, join_timeout_ns, stall_warn_ns,
                busy_max_ns; /* default_timeout 0: none */
        struct quota_limits quota;
        struct quota_override overrides[MAX_OVERRIDES];
        uint32_t n_overrides;
        enum algorithm_name plan_algorithm;  /* a wish; unspecified: auto */
        uint64_t plan_library_from_bytes;    /* LIBRARY_FROM_AUTO: as the tuning says */
        char plan_tuning[CONFIG_PATH_BYTES]; /* a file; "": none */
        struct tuning tuning;                /* what it held when it was read */
        struct user_list admins, observers;
        enum log_level log_level;
        enum confine confine;
        enum lane_enabled lane_enabled;
        uint32_t n_lane_assistants; /* at most; LANE_ASSISTANTS_AUTO: by the cores */
        uint64_t lane_linger_ns;
        enum gpu_enabled gpu_enabled;
        enum gpu_ipc gpu_ipc;
        enum gpu_order gpu_order;
        char gpu_worker[CONFIG_PATH_BYTES]; /* "": tuttid-gpu, beside tuttid or in libexecdir */
        uint64_t signal_timeout_ns;
        uint64_t hang_limit_ns;         /* 0: none */
        const struct user_names *names; /* of users, for who reads keys that name some; NULL: by uid alone */
};

/* As the file says it: "avx512". */
const char *config_isa_word(enum isa isa);

/* The defaults of docs and config/tuttid.conf; mapped_bytes is MemTotal. There are no `names`. */
void config_init(struct config *c);
/* From here on users may be named; those of defaults are looked up. Comes before all that is read. */
void config_know_names(struct config *c, const struct user_names *names);

/* Reads an INI file over `c`, which is untouched on failure; then `why` holds "file:line: key = value: what
 * is wrong; what is allowed". 0 or negative errno. */
int config_read(struct config *c, const char *path, char *why, size_t why_bytes) MUST_USE;

/* Sets one key ("quota.groups", "64") as the file would. 0 or -EINVAL with `why`. */
int config_set(struct config *c, const char *key, const char *value, char *why, size_t why_bytes) MUST_USE;

/* Takes each key that a variable of the environment gives (TUTTID_QUOTA_GROUPS=64) over `c`, which is
 * untouched on failure; then `why` names the variable in the place of the key. `environment` is as in
 * environ(7). How many were taken, or -EINVAL. */
int config_take_environment(
        struct config *c, const char *const *environment, char *why, size_t why_bytes) MUST_USE;
/* "TUTTID_QUOTA_GROUPS" of "quota.groups". */
void config_name_variable(const char *key, char *ret, size_t size);

/* Reads the tuning file that the keys name; there need be none. 0, or a negative errno with `why`. */
int config_read_tuning(struct config *c, char *why, size_t why_bytes) MUST_USE;

/* Checks what depends on several keys, and that the socket path fits (107 bytes). 0 or -EINVAL /
 * -ENAMETOOLONG with `why`. */
int config_check(const struct config *c, char *why, size_t why_bytes) MUST_USE;

/* Where a configuration came from, to read it again: defaults, file, environment, options. 0, or a negative
 * errno with `why`. */
struct config_source {
        int (*read)(const void *data, struct config *ret, char *why, size_t why_bytes);
        const void *data;
};

#define CONFIG_NAMES_BYTES 512

/* What a reload did: names of keys, with ", " between them. */
struct config_changes {
        char taken[CONFIG_NAMES_BYTES]; /* from now on as the new one says */
        char kept[CONFIG_NAMES_BYTES];  /* differ, and need a restart */
};

/* Takes from `fresh` what may change while tuttid runs. */
void config_reload(struct config *c, const struct config *fresh, struct config_changes *ret);
/* This uid stands in daemon.admins. */
bool config_is_admin(const struct config *c, uint32_t uid);
/* This user stands in daemon.observers. */
bool config_is_observer(const struct config *c, uint32_t uid);
/* The limits of the user of an override, whole. */
struct quota_limits config_limits_of(const struct config *c, const struct quota_override *o);

/* One key, for people. */
struct config_description {
        const char *key;    /* "quota.groups" */
        const char *preset; /* its default, as one would write it */
        const char *help;   /* one sentence */
        bool is_reloaded;   /* by SIGHUP; else it needs a restart */
        char allowed[160];  /* "1 ms to 24 h" */
};

/* Describes key `i`, in the order of the file; false behind the last. */
bool config_describe(size_t i, struct config_description *ret);

/* Every key with default, what is allowed, and help: for `tuttid --help` and docs/configuration.md. */
void config_print_reference(FILE *f);
