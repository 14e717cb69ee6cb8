/* Answers of a tuttid that has one group standing still, one well, one failed, one forming: what the pages of
 * tuttictl are tested with. */
#pragma once

#include <tutti/admin.h>

#define US UINT64_C(1000)
#define MS (1000 * US)
#define S  (1000 * MS)

#define ANSWER(rows_) ((struct tutti_answer){ .n_rows = sizeof(rows_) / sizeof(*(rows_)), .rows = (rows_) })

#define RANKS(bits)                                                                                          \
        {                                                                                                    \
                .words = {(bits) }                                                                           \
        }

static const struct tutti_replica missing_replicas[] = {
        { .rank = 3,
                .pid = 4711,
                .uid = 1000,
                .state = TUTTI_STOPPED,
                .last_key = "grad/6",
                .last_age = 12.5 },
};

static const struct tutti_replica busy_replicas[] = {
        { .rank = 0, .pid = 0, .uid = 1000, .state = TUTTI_ALIVE, .busy = "checkpoint" },
};

#define DAEMON_ROW                                                                                           \
        {                                                                                                    \
                .type = TUTTI_ROW_DAEMON, .daemon = {                                                        \
                        .version = "0.1.0",                                                                  \
                        .socket = "/run/tutti/tuttid.sock",                                                  \
                        .isa = "AVX-512",                                                                    \
                        .pid = 99,                                                                           \
                        .uptime_ns = (3 * 86400 + 4 * 3600 + 11 * 60) * S,                                   \
                        .n_sessions = 23,                                                                    \
                        .n_groups = 5,                                                                       \
                        .n_stalled = 1,                                                                      \
                        .n_collectives = 1234567,                                                            \
                        .n_failed = 3,                                                                       \
                        .n_refused = 2,                                                                      \
                        .n_ejected = 1,                                                                      \
                        .mapped_bytes = UINT64_C(3) << 29,                                                   \
                        .n_buffers = 12,                                                                     \
                        .n_pending = 4,                                                                      \
                }                                                                                            \
        }

#define DEVICE_ROW(name_, failing_, why_)                                                                    \
        {                                                                                                    \
                .type = TUTTI_ROW_DEVICE, .device = {                                                        \
                        .name = (name_),                                                                     \
                        .uuid = "",                                                                          \
                        .paths = "",                                                                         \
                        .describe = "AVX-512",                                                               \
                        .why = (why_),                                                                       \
                        .n_workers = 2,                                                                      \
                        .n_tasks = 17,                                                                       \
                        .busy_ns = 5 * MS,                                                                   \
                        .failing = (failing_),                                                               \
                }                                                                                            \
        }

static const struct tutti_holder result_holders[] = {
        { .rank = 2, .pid = 4002, .n_slots = 2, .state = TUTTI_STOPPED, .oldest_age_ns = 12300 * MS },
        { .rank = 4, .n_slots = 1, .state = TUTTI_ALIVE, .oldest_age_ns = 1 * MS },
};

/* A GPU's buffers. */
#define BUFFER_ROW(pid_, path_, why_)                                                                        \
        {                                                                                                    \
                .type = TUTTI_ROW_BUFFER, .buffer = {                                                        \
                        .pid = (pid_),                                                                       \
                        .uid = 1000,                                                                         \
                        .buffer = 3,                                                                         \
                        .size_bytes = 3 << 20,                                                               \
                        .device = "GPU:1",                                                                   \
                        .path = (path_),                                                                     \
                        .why = (why_),                                                                       \
                }                                                                                            \
        }

/* Memory for which huge pages were asked. */
#define PAGES_ROW(pid_, path_, page_bytes_, why_)                                                            \
        {                                                                                                    \
                .type = TUTTI_ROW_BUFFER, .buffer = {                                                        \
                        .pid = (pid_),                                                                       \
                        .uid = 1000,                                                                         \
                        .buffer = 4,                                                                         \
                        .size_bytes = 16 << 20,                                                              \
                        .device = "",                                                                        \
                        .path = (path_),                                                                     \
                        .why = (why_),                                                                       \
                        .page_bytes = (page_bytes_),                                                         \
                }                                                                                            \
        }

static const struct tutti_row status_rows[] = {
        DAEMON_ROW,
        DEVICE_ROW("CPU:0", 0, ""),
        DEVICE_ROW("CPU:1", 0, ""),
        { .type = TUTTI_ROW_FALLBACK,
                .fallback = { .what = "host", .why = "unguarded: userfaultfd is denied (EPERM)" } },
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "dp",
                        .group = "eval",
                        .uid = 1000,
                        .world_size = 6,
                        .n_alive = 6,
                        .epoch = 1,
                        .n_done = 41200,
                        .bytes = UINT64_C(190) << 30,
                        .age_ns = 100 * S } },
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "dp",
                        .group = "train",
                        .uid = 1000,
                        .world_size = 4,
                        .n_alive = 4,
                        .n_pending = 3,
                        .n_debts = 1,
                        .epoch = 3,
                        .n_done = 7,
                        .n_failed = 2,
                        .bytes = 28 << 10,
                        .age_ns = 20 * S,
                        .last_done_age_ns = 12500 * MS,
                        .stalled = 1 } },
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "slow/job",
                        .group = "save",
                        .uid = 1000,
                        .world_size = 2,
                        .n_alive = 2,
                        .n_pending = 1,
                        .epoch = 1,
                        .age_ns = 9 * S } },
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "dp",
                        .group = "broken",
                        .uid = 1000,
                        .world_size = 3,
                        .n_alive = 2,
                        .epoch = 1,
                        .n_done = 9,
                        .age_ns = 60 * S,
                        .failed = 1 } },
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "dp",
                        .group = "new",
                        .uid = 1000,
                        .world_size = 8,
                        .n_alive = 2,
                        .age_ns = 3 * S,
                        .forming = 1,
                        .on_death = TUTTI_SHRINK } },
        { .type = TUTTI_ROW_PENDING,
                .pending = { .job = "dp",
                        .group = "train",
                        .key = "grad/7",
                        .kind = TUTTI_KIND_REDUCE,
                        .age_ns = 12400 * MS,
                        .bytes = 4096,
                        .world_size = 4,
                        .have = RANKS(0x7),
                        .missing = RANKS(0x8),
                        .n_replicas = 1,
                        .replicas = missing_replicas,
                        .stalled = 1 } },
        { .type = TUTTI_ROW_PENDING,
                .pending = { .job = "slow/job",
                        .group = "save",
                        .key = "#17",
                        .kind = TUTTI_KIND_BARRIER,
                        .age_ns = 2 * S,
                        .world_size = 2,
                        .have = RANKS(0x2),
                        .missing = RANKS(0x1),
                        .n_replicas = 1,
                        .replicas = busy_replicas } },
        { .type = TUTTI_ROW_RESULT,
                .result = { .job = "dp",
                        .group = "eval",
                        .name = "sums",
                        .device = "CPU:1",
                        .size_bytes = 4096,
                        .n_slots = 2,
                        .n_attached = 6,
                        .n_holders = 2,
                        .holders = result_holders } },
        BUFFER_ROW(4711, "vmm-fd", ""),
        BUFFER_ROW(4711, "vmm-fd", ""),
        BUFFER_ROW(0, "host-copy", "legacy handles are off"),
        { .type = TUTTI_ROW_GROUP_FALLBACK,
                .group_fallback = { .job = "dp",
                        .group = "eval",
                        .why = "NCCL was asked for, but host devices have no library",
                        .algorithm = "one_device",
                        .key = "grad",
                        .kind = TUTTI_KIND_REDUCE,
                        .uid = 1000,
                        .n = 41200,
                        .last_age_ns = 300 * MS } },
        { .type = TUTTI_ROW_GROUP_FALLBACK,
                .group_fallback = { .job = "dp",
                        .group = "eval",
                        .why = "",
                        .algorithm = "",
                        .key = "#8",
                        .kind = TUTTI_KIND_BATCH_REDUCE,
                        .uid = 1000,
                        .n = 1,
                        .last_age_ns = 2 * S } },
        PAGES_ROW(4711, "pool", 2 << 20, ""),
        PAGES_ROW(4711, "pool", 2 << 20, ""),
        PAGES_ROW(4711, "ordinary", 4096, "pages needed of the pool: 8, free: 0 of 16"),
        PAGES_ROW(0, "transparent", 2 << 20, "this kernel has no pool of 2 MiB pages"),
};

#define MEMBER(group_, process_, busy_, ...)                                                                 \
        {                                                                                                    \
                .type = TUTTI_ROW_MEMBER, .member = {                                                        \
                        .job = "dp",                                                                         \
                        .group = (group_),                                                                   \
                        .process = (process_),                                                               \
                        .busy = (busy_),                                                                     \
                        .why = "",                                                                           \
                        .uid = 1000,                                                                         \
                        __VA_ARGS__                                                                          \
                }                                                                                            \
        }

static const struct tutti_row stats_rows[] = {
        DAEMON_ROW,
        { .type = TUTTI_ROW_STATS,
                .stats = { .job = "dp",
                        .group = "eval",
                        .kind = TUTTI_KIND_REDUCE,
                        .n = 41200,
                        .n_failed = 2,
                        .bytes = UINT64_C(190) << 30,
                        .wait_p50_ns = 300 * US,
                        .wait_p99_ns = 2100 * US,
                        .run_p50_ns = 12 * US,
                        .run_p99_ns = 30 * US,
                        .run_ns = 600 * MS } },
        { .type = TUTTI_ROW_STATS,
                .stats = { .job = "dp",
                        .group = "eval",
                        .kind = TUTTI_KIND_BATCH_REDUCE,
                        .n = 1,
                        .bytes = 17,
                        .wait_p50_ns = 1 * MS,
                        .wait_p99_ns = 1 * MS,
                        .run_p50_ns = 900,
                        .run_p99_ns = 900,
                        .run_ns = 900 } },
        { .type = TUTTI_ROW_CLASS,
                .size_class = { .job = "dp",
                        .group = "eval",
                        .kind = TUTTI_KIND_REDUCE,
                        .op = TUTTI_MEAN,
                        .from_bytes = 4097,
                        .to_bytes = 65536,
                        .n = 41200,
                        .bytes = UINT64_C(190) << 30,
                        .run_ns = 600 * MS,
                        .wait_p50_ns = 300 * US,
                        .wait_p99_ns = 2100 * US,
                        .wait_p999_ns = 4 * MS,
                        .run_p50_ns = 12 * US,
                        .run_p99_ns = 30 * US,
                        .run_p999_ns = 50 * US } },
        { .type = TUTTI_ROW_CLASS,
                .size_class = { .job = "dp",
                        .group = "eval",
                        .kind = TUTTI_KIND_BATCH_REDUCE,
                        .op = TUTTI_SUM,
                        .from_bytes = (UINT64_C(256) << 20) + 1,
                        .to_bytes = UINT64_MAX,
                        .n = 1 } },
        MEMBER("eval", "train.py", "", .rank = 0, .pid = 4000, .state = TUTTI_ALIVE, .last_key = "#8",
                .last_age_ns = 2 * MS, .n_submitted = 41203, .n_last = 824, .n_joint = 41201,
                .lateness_p50_ns = 10 * US, .lateness_p99_ns = 90 * US, .n_buffers = 3,
                .mapped_bytes = 8 << 20),
        MEMBER("eval", "train.py", "", .rank = 5, .pid = 4005, .state = TUTTI_ALIVE, .last_key = "#8",
                .last_age_ns = 2 * MS, .n_submitted = 41203, .n_last = 40377, .n_joint = 41201,
                .lateness_p50_ns = 300 * US, .lateness_p99_ns = 2 * MS, .n_buffers = 1, .mapped_bytes = 4096),
        MEMBER("train", "train.py", "", .rank = 3, .pid = 4711, .state = TUTTI_STOPPED, .last_key = "grad/6",
                .last_age_ns = 12500 * MS, .n_submitted = 7),
        MEMBER("broken", "train.py", "", .rank = 0, .pid = 5000, .state = TUTTI_ALIVE, .last_key = ""),
        MEMBER("broken", "train.py", "", .rank = 1, .pid = 5001, .state = TUTTI_DEAD, .last_key = "",
                .lost = 1, .loss = TUTTI_DIED, .lost_age_ns = 4 * S),
        MEMBER("broken", "train.py", "", .rank = 2, .pid = 5002, .state = TUTTI_ALIVE, .last_key = "",
                .lost_age_ns = 2 * S),
        MEMBER("new", "train.py", "", .rank = 0, .pid = 6000, .state = TUTTI_ALIVE, .last_key = ""),
        MEMBER("new", "train.py", "loading data", .rank = 1, .state = TUTTI_ALIVE, .last_key = ""),
        MEMBER("new", "", "", .rank = 2, .state = TUTTI_ABSENT, .last_key = ""),
};

static const struct tutti_row quota_rows[] = {
        { .type = TUTTI_ROW_QUOTA,
                .quota = { .uid = 1000, .name = "connections", .used = 250, .limit = 256 } },
        { .type = TUTTI_ROW_QUOTA, .quota = { .uid = 1000, .name = "groups", .used = 5, .limit = 1024 } },
        { .type = TUTTI_ROW_QUOTA,
                .quota = { .uid = 1000,
                        .name = "mapped-bytes",
                        .used = UINT64_C(3) << 29,
                        .limit = UINT64_C(16) << 30 } },
};

static const uint64_t arrivals_good[] = { 0, 12 * US, 71 * US, 300 * US };
static const uint64_t arrivals_bad[] = { 0, 5 * US, 9 * US, UINT64_MAX };

#define RECORD(...)                                                                                          \
        {                                                                                                    \
                .type = TUTTI_ROW_RECORD, .record = {                                                        \
                        .job = "dp",                                                                         \
                        .group = "train",                                                                    \
                        .epoch = 3,                                                                          \
                        __VA_ARGS__                                                                          \
                }                                                                                            \
        }

static const struct tutti_row record_rows[] = {
        RECORD(.key = "grad/6", .collective = 40, .kind = TUTTI_KIND_REDUCE, .op = TUTTI_MEAN,
                .dtype = TUTTI_F32, .bytes = 4096, .n_entries = 1, .status = TUTTI_OK, .age_ns = 20 * S,
                .sealed_ns = 300 * US, .done_ns = 312 * US, .have = RANKS(0xf), .last_rank = 3,
                .n_arrivals = 4, .arrival_ns = arrivals_good, .dropped = 12345),
        RECORD(.key = "all", .collective = 41, .kind = TUTTI_KIND_BATCH_REDUCE, .op = TUTTI_SUM,
                .bytes = 17 << 20, .n_entries = 300, .status = TUTTI_OK, .age_ns = 19 * S,
                .sealed_ns = 300 * US, .done_ns = 3300 * US, .have = RANKS(0xf), .last_rank = 3,
                .n_arrivals = 4, .arrival_ns = arrivals_good, .dropped = 12346),
        RECORD(.key = "grad/7", .collective = 42, .kind = TUTTI_KIND_REDUCE, .op = TUTTI_MEAN,
                .dtype = TUTTI_F32, .bytes = 4096, .n_entries = 1, .status = TUTTI_TIMEOUT, .age_ns = 10 * S,
                .done_ns = 2 * S, .have = RANKS(0x7), .last_rank = 2, .has_guilty = 1, .guilty_rank = 3,
                .n_arrivals = 4, .arrival_ns = arrivals_bad, .dropped = 12347, .shortened = 1, .missed = 2),
        { .type = TUTTI_ROW_DUMP, .dump = { .missed = 3 } },
};
