/* Lines for the people who run the host, on stderr (plain) or as journald records where the journal reads
 * stderr.
 *
 * Thread-safe. Each condition (call site) may write 20 lines a minute; what is left out is counted and said
 * in the next line that is written. A function either logs or returns an error, not both. */
#pragma once

#include "base/check.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

#define LOG_LINES_A_MINUTE 20

/* Bookkeeping of one call site; lives in a static of the macro below. */
struct log_site {
        unsigned long long window_start_ns;
        unsigned int n_in_window, n_left_out;
};

void log_set_level(enum log_level level);
enum log_level log_level(void);

const char *log_level_name(enum log_level level);

/* "error", "warning", "notice", "info", "debug" -> level; 0 or -EINVAL. */
int log_level_parse(const char *name, enum log_level *ret);

/* Whether lines of `level` are written; for messages that are costly to make. */
int log_is_on(enum log_level level);

void log_write(struct log_site *site, enum log_level level, const char *format, ...) PRINTF_LIKE(3, 4);

#define log_at(level, ...)                                                                                   \
        do {                                                                                                 \
                static struct log_site log_site_;                                                            \
                log_write(&log_site_, (level), __VA_ARGS__);                                                 \
        } while (0)

#define log_error(...)   log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...)  log_at(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)    log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)
