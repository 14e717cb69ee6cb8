/* The configuration is a table: one line for each key says what it is, where its value lives, what it may be,
 * what it is when nobody says anything, and what it does. Parsing, error texts, `--help` and the documents
 * are all made from it, so that they cannot contradict each other. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "config-internal.h"
#include "config-tuning.h"

/* sun_path less its terminator. */
#define MAX_SOCKET_PATH_BYTES 107

static uint64_t no_time(void) {
        return 0;
}

static uint64_t assistants_auto(void) {
        return LANE_ASSISTANTS_AUTO;
}

static uint64_t library_from_auto(void) {
        return LIBRARY_FROM_AUTO;
}

static uint64_t memory_total(void) {
        return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static const char *const isa_words[] = { "auto", "scalar", "avx2", "avx512", NULL };
static const char *const algorithm_words[] = { "auto", "one_device", "hierarchical_copy", "library", NULL };
static const char *const yes_words[] = { "yes", "no", NULL };
static const char *const gpu_words[] = { "auto", "no", NULL };
static const char *const ipc_words[] = { "auto", "yes", "no", NULL };
static const char *const order_words[] = { "auto", "events", "host", NULL };
static const char *const log_words[] = { "error", "warning", "notice", "info", "debug", NULL };

#define FIELD(f) .offset = offsetof(struct config, f), .rule.size = sizeof(((struct config *)NULL)->f)
#define HOUR     (UINT64_C(3600000000000))

/* In the order of config/tuttid.conf. */
static const struct config_key keys[] = {
        { "daemon.socket", .is_fixed = true, FIELD(socket), .rule.type = VALUE_PATH, .rule.min = 1,
                .rule.max = MAX_SOCKET_PATH_BYTES, .preset = "/run/tutti/tuttid.sock",
                .help = "The path of the socket where clients connect." },
        { "daemon.group", .is_fixed = true, FIELD(socket_group), .rule.type = VALUE_TEXT, .rule.max = 63,
                .preset = "",
                .help = "The system group whose members may connect; empty leaves the socket to its owner's "
                        "group." },
        { "daemon.log-level", FIELD(log_level), .rule.type = VALUE_WORD, .rule.words = log_words,
                .preset = "notice", .help = "The least important lines that are still logged." },
        { "daemon.admins", FIELD(admins), .rule.type = VALUE_USERS, .preset = "0",
                .help = "The users who may look at the groups and limits of all users, kick their replicas "
                        "and drain tuttid." },
        { "daemon.observers", FIELD(observers), .rule.type = VALUE_USERS, .preset = "tutti-exporter",
                .help = "The users who may look at the groups and limits of all users, and do nothing about "
                        "them." },
        { "daemon.confine", .is_fixed = true, FIELD(confine), .rule.type = VALUE_WORD,
                .rule.words = yes_words, .preset = "yes",
                .help = "Whether tuttid gives up, when it has started, the system calls that it does not "
                        "need." },
        { "cpu.devices", .is_fixed = true, FIELD(n_cpu_devices), .rule.type = VALUE_COUNT, .rule.min = 1,
                .rule.max = MAX_CPU_DEVICES, .preset = "1", .help = "Host devices: CPU:0 and so on." },
        { "cpu.workers", .is_fixed = true, FIELD(n_workers), .rule.type = VALUE_COUNT,
                .rule.max = MAX_WORKERS, .preset = "0",
                .help = "Threads that compute, of all host devices together; 0 is one per core." },
        { "cpu.chunk", .is_fixed = true, FIELD(chunk_bytes), .rule.type = VALUE_BYTES, .rule.min = 4096,
                .rule.max = UINT64_C(64) << 20, .rule.multiple_of = 64, .preset = "256 KiB",
                .help = "How much of each input a worker takes at a time; results do not depend on it." },
        { "cpu.isa", .is_fixed = true, FIELD(isa), .rule.type = VALUE_WORD, .rule.words = isa_words,
                .preset = "auto",
                .help = "The instruction set of the kernels; results do not depend on it." },
        { "lane.enabled", .is_fixed = true, FIELD(lane_enabled), .rule.type = VALUE_WORD,
                .rule.words = yes_words, .preset = "yes",
                .help = "Whether collectives that come again may be started in shared memory and run by a "
                        "thread that waits for them; no leaves them to packets." },
        { "lane.assistants", .is_fixed = true, FIELD(n_lane_assistants), .rule.type = VALUE_COUNT,
                .rule.max = 3, .rule.word = "auto", .rule.of_word = assistants_auto, .preset = "auto",
                .help = "Threads that help that one with large collectives, at most; auto is one less than "
                        "there are cores for tuttid." },
        { "lane.linger", .is_fixed = true, FIELD(lane_linger_ns), .rule.type = VALUE_DURATION,
                .rule.max = 1000000, .preset = "50 us",
                .help = "How long that thread yields for the next collective, where it usually comes so "
                        "soon, before it sleeps." },
        { "plan.algorithm", FIELD(plan_algorithm), .rule.type = VALUE_WORD, .rule.words = algorithm_words,
                .preset = "auto",
                .help = "How reductions are done that do not say it themselves, where that can be; auto goes "
                        "by the table." },
        { "plan.library-from", FIELD(plan_library_from_bytes), .rule.type = VALUE_BYTES,
                .rule.max = UINT64_C(1) << 50, .rule.word = "auto", .rule.of_word = library_from_auto,
                .preset = "auto",
                .help = "The size from which on the table gives a reduction over GPUs to their library; auto "
                        "is what was measured (plan.tuning), else 256 KiB." },
        { "plan.tuning", FIELD(plan_tuning), .rule.type = VALUE_PATH, .rule.max = 255,
                .preset = "/etc/tutti/tuning.conf",
                .help = "The file with what `tuttictl diag --tune` has measured; there need be none." },
        { "gpu.enabled", .is_fixed = true, FIELD(gpu_enabled), .rule.type = VALUE_WORD,
                .rule.words = gpu_words, .preset = "auto",
                .help = "Whether GPUs are looked for; they are served by a process of their own, "
                        "tuttid-gpu." },
        { "gpu.worker", .is_fixed = true, FIELD(gpu_worker), .rule.type = VALUE_PATH, .rule.max = 255,
                .preset = "",
                .help = "The path of tuttid-gpu; empty finds it beside tuttid or where it is installed." },
        { "gpu.ipc", .is_fixed = true, FIELD(gpu_ipc), .rule.type = VALUE_WORD, .rule.words = ipc_words,
                .preset = "auto",
                .help = "Whether legacy CUDA handles are taken, which anybody who has seen one can use; auto "
                        "does where tuttid serves one user." },
        { "gpu.order", FIELD(gpu_order), .rule.type = VALUE_WORD, .rule.words = order_words, .preset = "auto",
                .help = "The best order of streams that clients are offered; auto is the best that the GPUs "
                        "can." },
        { "gpu.signal-timeout", FIELD(signal_timeout_ns), .rule.type = VALUE_DURATION, .rule.min = 1000000,
                .rule.max = 24 * HOUR, .preset = "60 s",
                .help = "How long a collective that all have submitted waits for a client's stream." },
        { "gpu.hang-limit", .is_fixed = true, FIELD(hang_limit_ns), .rule.type = VALUE_DURATION,
                .rule.max = 24 * HOUR, .rule.word = "none", .rule.of_word = no_time, .preset = "30 s",
                .help = "How long a GPU may take for a collective that it could begin, and 10 s more for "
                        "each "
                        "GiB read and written; then tuttid-gpu is started anew. 0 is none." },
        { "time.default-timeout", FIELD(default_timeout_ns), .rule.type = VALUE_DURATION,
                .rule.max = 8760 * HOUR, .rule.word = "none", .rule.of_word = no_time, .preset = "600 s",
                .help = "How long a replica waits for the others when neither call nor group says it; 0 is "
                        "none." },
        { "time.join-timeout", FIELD(join_timeout_ns), .rule.type = VALUE_DURATION, .rule.min = 1000000,
                .rule.max = 24 * HOUR, .preset = "60 s",
                .help = "How long a join, rejoin or shrink waits for the others, unless it says so itself." },
        { "time.stall-warn", FIELD(stall_warn_ns), .rule.type = VALUE_DURATION, .rule.min = 10000000,
                .rule.max = 24 * HOUR, .preset = "5 s",
                .help = "The age from which on a collective that waits is reported as stalled." },
        { "time.busy-max", FIELD(busy_max_ns), .rule.type = VALUE_DURATION, .rule.max = 168 * HOUR,
                .preset = "1 h",
                .help = "How long a replica that says it is busy may stop the others' clocks." },
        { "quota.connections", FIELD(quota.connections), .rule.type = VALUE_COUNT, .rule.min = 1,
                .rule.max = 1048576, .preset = "256", .help = "Connections of one user." },
        { "quota.descriptors", FIELD(quota.descriptors), .rule.type = VALUE_COUNT, .rule.min = 1,
                .rule.max = 1048576, .preset = "4096",
                .help = "Descriptors that tuttid holds for one user." },
        { "quota.mapped-bytes", FIELD(quota.mapped_bytes), .rule.type = VALUE_BYTES, .rule.min = 4096,
                .rule.max = UINT64_C(1) << 50, .rule.word = "MemTotal", .rule.of_word = memory_total,
                .preset = "MemTotal",
                .help = "Memory of one user that tuttid has mapped, or made on GPUs, where it counts in the "
                        "driver's whole pieces." },
        { "quota.pending", FIELD(quota.pending), .rule.type = VALUE_COUNT, .rule.min = 1,
                .rule.max = UINT64_C(1) << 24, .preset = "65536",
                .help = "Submissions of one user that have not ended." },
        { "quota.groups", FIELD(quota.groups), .rule.type = VALUE_COUNT, .rule.min = 1, .rule.max = 1048576,
                .preset = "1024", .help = "Groups of one user." },
        { "quota.recorder-bytes", FIELD(quota.recorder_bytes), .rule.type = VALUE_BYTES, .rule.min = 65536,
                .rule.max = UINT64_C(1) << 40, .preset = "64 MiB",
                .help = "Memory for the flight records of one user's groups; at the limit fewer are kept." },
        { "quota.result-bytes", FIELD(quota.result_bytes), .rule.type = VALUE_BYTES,
                .rule.max = UINT64_C(1) << 50, .preset = "1 GiB",
                .help = "Memory of the result objects of one user, which tuttid provides; 0 allows none." },
        { "quota.reply-bytes", FIELD(quota.reply_bytes), .rule.type = VALUE_BYTES, .rule.min = 65536,
                .rule.max = UINT64_C(1) << 40, .preset = "64 MiB",
                .help = "Answers that one user's clients have not read yet; who makes them more is "
                        "ejected." },
        { "quota.memory-bytes", FIELD(quota.memory_bytes), .rule.type = VALUE_BYTES, .rule.min = 1 << 20,
                .rule.max = UINT64_C(1) << 50, .preset = "2 GiB",
                .help = "tuttid's own memory for one user's connections, groups, pending submissions and "
                        "plans." },
};

static void *field_of(const struct config_key *k, struct config *c) {
        return (char *)c + k->offset;
}

_Static_assert(ARRAY_SIZE(keys) <= MAX_CONFIG_KEYS, "raise it");

const struct config_key *config_key_at(size_t i) {
        return i < ARRAY_SIZE(keys) ? &keys[i] : NULL;
}

size_t config_key_index(const struct config_key *k) {
        return (size_t)(k - keys);
}

const struct config_key *config_find_key(const char *name) {
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (strcmp(keys[i].name, name) == 0)
                        return &keys[i];
        return NULL;
}

const char *config_isa_word(enum isa isa) {
        return isa_words[isa];
}

void config_init(struct config *c) {
        char buf[200];
        struct text why;
        memset(c, 0, sizeof(*c));
        text_init(&why, buf, sizeof(buf));
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (keys[i].rule.type == VALUE_USERS)
                        users_preset(keys[i].preset, NULL, field_of(&keys[i], c));
                else
                        CHECK(value_parse(&keys[i].rule, keys[i].preset, NULL, field_of(&keys[i], c), &why) ==
                                0);
}

void config_know_names(struct config *c, const struct user_names *names) {
        c->names = names;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (keys[i].rule.type == VALUE_USERS)
                        users_preset(keys[i].preset, names, field_of(&keys[i], c));
}

/* --- reloading --- */

static bool key_is_alike(const struct config_key *k, const struct config *a, const struct config *b) {
        const char *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;
        return k->rule.type == VALUE_TEXT || k->rule.type == VALUE_PATH ? strcmp(x, y) == 0
                                                                        : memcmp(x, y, k->rule.size) == 0;
}

void config_reload(struct config *c, const struct config *fresh, struct config_changes *ret) {
        struct text taken, kept;
        text_init(&taken, ret->taken, sizeof(ret->taken));
        text_init(&kept, ret->kept, sizeof(ret->kept));
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                const struct config_key *k = &keys[i];
                struct text *t = k->is_fixed ? &kept : &taken;
                if (key_is_alike(k, c, fresh))
                        continue;
                text_add(t, "%s%s", t->used ? ", " : "", k->name);
                if (!k->is_fixed)
                        memcpy(field_of(k, c), (const char *)fresh + k->offset, k->rule.size);
        }
        if (memcmp(&c->tuning, &fresh->tuning, sizeof(c->tuning)) != 0)
                text_add(&taken, "%sthe thresholds in plan.tuning", taken.used ? ", " : "");
        c->tuning = fresh->tuning;
        if (c->n_overrides == fresh->n_overrides &&
                memcmp(c->overrides, fresh->overrides, c->n_overrides * sizeof(*c->overrides)) == 0)
                return;
        text_add(&taken, "%squota.UID", taken.used ? ", " : "");
        c->n_overrides = fresh->n_overrides;
        memcpy(c->overrides, fresh->overrides, sizeof(c->overrides));
}

/* --- limits of one user: quota.UID.KEY --- */

const struct config_key *config_find_override_key(const char *name, uint32_t *ret_uid) {
        static const char section[] = "quota.";
        char plain[MAX_KEY_TEXT], *end;
        if (strncmp(name, section, strlen(section)) != 0 || name[strlen(section)] < '0' ||
                name[strlen(section)] > '9')
                return NULL;
        errno = 0;
        unsigned long uid = strtoul(name + strlen(section), &end, 10);
        if (errno || *end != '.' || uid > UINT32_MAX - 1)
                return NULL;
        snprintf(plain, sizeof(plain), "%s%s", section, end + 1);
        *ret_uid = (uint32_t)uid;
        return config_find_key(plain);
}

/* NULL: there are too many. */
static struct quota_override *take_override(struct config *c, uint32_t uid) {
        for (uint32_t i = 0; i < c->n_overrides; i++)
                if (c->overrides[i].uid == uid)
                        return &c->overrides[i];
        if (c->n_overrides == MAX_OVERRIDES)
                return NULL;
        struct quota_override *o = &c->overrides[c->n_overrides++];
        o->uid = uid;
        memset(&o->limits, 0xff, sizeof(o->limits)); /* QUOTA_NOT_SAID */
        return o;
}

static int set_override(
        struct config *c, const struct config_key *k, uint32_t uid, const char *value, struct text *why) {
        struct config trial = *c; /* a value that is wrong leaves no trace */
        struct quota_override *o = take_override(&trial, uid);
        if (!o) {
                text_add(why, "more than %d users have limits of their own.", MAX_OVERRIDES);
                return -EINVAL;
        }
        int r = value_parse(&k->rule, value, c->names,
                (char *)&o->limits + (k->offset - offsetof(struct config, quota)), why);
        if (r == 0)
                *c = trial;
        return r;
}

static uint64_t said_or(uint64_t said, uint64_t other) {
        return said == QUOTA_NOT_SAID ? other : said;
}

struct quota_limits config_limits_of(const struct config *c, const struct quota_override *o) {
        const struct quota_limits *own = &o->limits, *all = &c->quota;
        return (struct quota_limits){ .connections = said_or(own->connections, all->connections),
                .descriptors = said_or(own->descriptors, all->descriptors),
                .mapped_bytes = said_or(own->mapped_bytes, all->mapped_bytes),
                .pending = said_or(own->pending, all->pending),
                .groups = said_or(own->groups, all->groups),
                .recorder_bytes = said_or(own->recorder_bytes, all->recorder_bytes),
                .result_bytes = said_or(own->result_bytes, all->result_bytes),
                .reply_bytes = said_or(own->reply_bytes, all->reply_bytes),
                .memory_bytes = said_or(own->memory_bytes, all->memory_bytes) };
}

bool config_is_admin(const struct config *c, uint32_t uid) {
        return users_have(&c->admins, uid);
}

bool config_is_observer(const struct config *c, uint32_t uid) {
        return users_have(&c->observers, uid);
}

/* --- setting --- */

static void blame_key(const char *key, struct text *why) {
        const struct config_key *near[MAX_NEAR_KEYS];
        size_t n = config_near_keys(key, CONFIG_FAR, near);
        text_add(why, "unknown key; ");
        for (size_t i = 0; i < n; i++)
                text_add(why, "%s%s", i ? " or " : "did you mean ", near[i]->name);
        text_add(why, n ? "?" : "tuttid --help lists all of them.");
}

void config_print_setting(const char *key, const char *value, struct text *why) {
        text_add(why, "%.100s = %.120s%s: ", key, value, strlen(value) > 120 ? "..." : "");
}

/* Who writes down the default means what the default is. */
int config_set_key(struct config *c, const struct config_key *k, const char *value, struct text *why) {
        if (k->rule.type != VALUE_USERS || strcmp(value, k->preset) != 0)
                return value_parse(&k->rule, value, c->names, field_of(k, c), why);
        users_preset(value, c->names, field_of(k, c));
        return 0;
}

int config_set(struct config *c, const char *key, const char *value, char *why, size_t why_bytes) {
        const struct config_key *k = config_find_key(key);
        struct text t;
        text_init(&t, why, why_bytes);
        uint32_t uid = 0;
        const struct config_key *of_user = k ? NULL : config_find_override_key(key, &uid);
        config_print_setting(key, value, &t);
        if (!k && !of_user) {
                blame_key(key, &t);
                return -EINVAL;
        }
        int r = of_user ? set_override(c, of_user, uid, value, &t) : config_set_key(c, k, value, &t);
        if (r == 0)
                why[0] = '\0';
        return r;
}

int config_read_tuning(struct config *c, char *why, size_t why_bytes) {
        return tuning_read(&c->tuning, c->plan_tuning, why, why_bytes);
}

int config_check(const struct config *c, char *why, size_t why_bytes) {
        size_t n = strnlen(c->socket, sizeof(c->socket));
        if (n > MAX_SOCKET_PATH_BYTES) {
                snprintf(why, why_bytes, "socket path has %zu bytes, the limit is %d: %s", n,
                        MAX_SOCKET_PATH_BYTES, c->socket);
                return -ENAMETOOLONG;
        }
        return 0;
}

/* --- the documents --- */

bool config_describe(size_t i, struct config_description *ret) {
        struct text t;
        if (i >= ARRAY_SIZE(keys))
                return false;
        *ret = (struct config_description){ .key = keys[i].name,
                .preset = keys[i].preset,
                .help = keys[i].help,
                .is_reloaded = !keys[i].is_fixed };
        text_init(&t, ret->allowed, sizeof(ret->allowed));
        value_print_allowed(&keys[i].rule, &t);
        return true;
}

void config_print_reference(FILE *f) {
        struct config_description d;
        for (size_t i = 0; config_describe(i, &d); i++)
                fprintf(f, "  %s = %s\n      %s\n      (%s%s)\n", d.key, d.preset, d.help, d.allowed,
                        d.is_reloaded ? "" : "; needs a restart");
}
