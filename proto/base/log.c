#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/text.h"

#define LINE_BYTES 2048
#define WINDOW_NS  (60 * NS_PER_S)

static pthread_mutex_t sites_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t journal_once = PTHREAD_ONCE_INIT;
static bool stderr_is_journal;
static atomic_int current_level = LOG_LEVEL_INFO;

static const struct {
        const char *name;
        int priority; /* syslog(3), as sd-daemon(3) wants it in front of a line */
} levels[] = {
        [LOG_LEVEL_ERROR] = { "error", 3 },
        [LOG_LEVEL_WARNING] = { "warning", 4 },
        [LOG_LEVEL_NOTICE] = { "notice", 5 },
        [LOG_LEVEL_INFO] = { "info", 6 },
        [LOG_LEVEL_DEBUG] = { "debug", 7 },
};

void log_set_level(enum log_level level) {
        atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

enum log_level log_level(void) {
        return (enum log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

const char *log_level_name(enum log_level level) {
        return levels[level].name;
}

int log_level_parse(const char *name, enum log_level *ret) {
        for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
                if (strcmp(name, levels[i].name) == 0) {
                        *ret = (enum log_level)i;
                        return 0;
                }
        return -EINVAL;
}

int log_is_on(enum log_level level) {
        return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

/* systemd sets $JOURNAL_STREAM to "device:inode" of the stream it made; a stderr redirected since is another
 * one. */
static void look_for_journal(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;
        stderr_is_journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
                            fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

/* Whether the site may write now; then how many lines it had to leave out before. */
static bool take_turn(struct log_site *site, unsigned int *ret_left_out) {
        uint64_t now_ns = clock_now_ns();
        pthread_mutex_lock(&sites_lock);
        if (site->window_start_ns == 0 || now_ns - site->window_start_ns >= WINDOW_NS) {
                site->window_start_ns = now_ns;
                site->n_in_window = 0;
        }
        bool may = site->n_in_window < LOG_LINES_A_MINUTE;
        if (may) {
                site->n_in_window++;
                *ret_left_out = site->n_left_out;
                site->n_left_out = 0;
        } else
                site->n_left_out++;
        pthread_mutex_unlock(&sites_lock);
        return may;
}

/* One record is one line, whatever a client has put into a name. */
static void replace_control_bytes(char *s) {
        for (; *s; s++)
                if ((unsigned char)*s < 0x20 || *s == 0x7f)
                        *s = '?';
}

static void write_line(const char *line, size_t n_bytes) {
        /* One write, so that lines of several threads do not mix. Nobody is left to tell when it fails. */
        while (write(STDERR_FILENO, line, n_bytes) < 0 && errno == EINTR)
                ;
}

void log_write(struct log_site *site, enum log_level level, const char *format, ...) {
        unsigned int n_left_out;
        if (!log_is_on(level) || !take_turn(site, &n_left_out))
                return;
        int saved = errno;
        pthread_once(&journal_once, look_for_journal);

        char message[LINE_BYTES - 512],
                line[LINE_BYTES]; /* the rest: a program's name, how many were left out */
        va_list args;
        va_start(args, format);
        vsnprintf(message, sizeof(message), format, args);
        va_end(args);
        replace_control_bytes(message);

        struct text t;
        text_init(&t, line, sizeof(line));
        if (stderr_is_journal)
                text_add(&t, "<%d>", levels[level].priority);
        else
                text_add(&t, "%s: %s: ", program_invocation_short_name, levels[level].name);
        text_add(&t, "%s", message);
        if (n_left_out > 0)
                text_add(&t, " (%u more of these were left out)", n_left_out);
        text_add(&t, "\n");
        write_line(line, t.used);
        errno = saved;
}
