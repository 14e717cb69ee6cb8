/* Lines for the people who run the host, on stderr, or as records of the journal where the journal reads
 * stderr.
 *
 * Thread-safe. Each condition (call site) may write 20 lines in any minute. The line after them closes it for
 * a minute; what comes meanwhile is counted, and one line says how many they were. A function either logs or
 * returns an error, not both. */
#pragma once

#include <stdint.h>
#include "base/check.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

#define LOG_LINES_A_MINUTE 20
#define LOG_NEVER          UINT64_MAX

/* Bookkeeping of one call site; lives in a static of the macros below, all zero at first. */
struct log_site {
        uint64_t written_ns[LOG_LINES_A_MINUTE]; /* when its last lines were, a ring; 0: never */
        uint64_t closed_until_ns;                /* 0: it is open */
        uint32_t n_written, n_left_out;
        enum log_level level;
        char like[160]; /* the begin of its last line */
        struct log_site *next_closed;
};

/* One whom a line is about. */
struct log_replica {
        int32_t rank; /* -1: none is known */
        uint32_t pid; /* 0: none is known */
};

#define LOG_MAX_REPLICAS 8 /* more of them are not told */

/* What a line is about, as far as it is known. A line names all of it: what is not in its text already is
 * added in brackets at its end; the journal has it also in the fields TUTTI_GROUP, TUTTI_KEY, TUTTI_RANK and
 * TUTTI_PID. */
struct log_about {
        const char *job, *group; /* both or none */
        const char *key;         /* as key_print writes it; NULL: none */
        const struct log_replica *replicas;
        uint32_t n_replicas;
};

/* About a process, of which nothing else is known. */
#define LOG_PID(number)                                                                                      \
        (&(struct log_about){                                                                                \
                .replicas = &(struct log_replica){ .rank = -1, .pid = (number) }, .n_replicas = 1 })

/* Finds out where lines go, and connects to the journal: before this process gives up the right to make
 * sockets. Without it lines go to stderr. */
void log_open(void);

void log_set_level(enum log_level level);
enum log_level log_level(void);

const char *log_level_name(enum log_level level);

/* "error", "warning", "notice", "info", "debug" -> level; 0 or -EINVAL. */
int log_level_parse(const char *name, enum log_level *ret);

/* Whether lines of `level` are written; for messages that are costly to make. */
int log_is_on(enum log_level level);

/* `about` NULL: nothing of the kind. */
void log_write(struct log_site *site, enum log_level level, const struct log_about *about, const char *format,
        ...) PRINTF_LIKE(4, 5);

/* The first instant at which log_settle has something to say; LOG_NEVER: none. */
uint64_t log_next_ns(void);
/* Of each condition whose minute is over by now_ns: how many lines were not written. LOG_NEVER, at the end of
 * a process: of all. */
void log_settle(uint64_t now_ns);

#define log_about(level, about, ...)                                                                         \
        do {                                                                                                 \
                static struct log_site log_site_;                                                            \
                log_write(&log_site_, (level), (about), __VA_ARGS__);                                        \
        } while (0)
#define log_at(level, ...) log_about((level), NULL, __VA_ARGS__)

#define log_error(...)   log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...)  log_at(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)    log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)
