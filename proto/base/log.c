#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log-journal.h"
#include "base/text.h"

#define MESSAGE_BYTES 2048
#define LINE_BYTES    (MESSAGE_BYTES + 128) /* and a program's name */
#define RECORD_BYTES  (MESSAGE_BYTES + 1536)
#define WINDOW_NS     (60 * NS_PER_S)

/* Of every site, also. */
static pthread_mutex_t sites_lock = PTHREAD_MUTEX_INITIALIZER;
static struct log_site *closed_sites;
static atomic_uint n_closed; /* for who need not take the lock */
static atomic_int current_level = LOG_LEVEL_INFO;
/* Set once, by log_open, before there are threads. */
static bool stderr_is_journal;
static int journal = -1;

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

void log_open(void) {
        if (journal >= 0)
                return;
        stderr_is_journal = log_journal_reads_stderr();
        if (stderr_is_journal) /* without it the journal still has the lines, by stderr */
                journal = log_journal_open();
}

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

/* --- what a line says --- */

static const struct log_about about_nothing;

/* `part` as a word of its own: R2 is not named by R21. */
static bool is_named(const char *message, const char *part) {
        size_t n = strlen(part);
        for (const char *p = message; (p = strstr(p, part)); p++)
                if ((p == message || !isalnum((unsigned char)p[-1])) && !isalnum((unsigned char)p[n]))
                        return true;
        return false;
}

static void add_unnamed(const char *message, const char *part, struct text *t) {
        if (!is_named(message, part))
                text_add(t, "%s%s", t->used ? " " : "", part);
}

static uint32_t n_replicas_of(const struct log_about *a) {
        return a->n_replicas < LOG_MAX_REPLICAS ? a->n_replicas : LOG_MAX_REPLICAS;
}

/* What the message does not name of `about`. */
static void find_unnamed(const struct log_about *about, const char *message, struct text *ret) {
        char part[160];
        if (about->group) {
                snprintf(part, sizeof(part), "%s/%s", about->job, about->group);
                add_unnamed(message, part, ret);
        }
        if (about->key)
                add_unnamed(message, about->key, ret);
        for (uint32_t i = 0; i < n_replicas_of(about); i++) {
                const struct log_replica *who = &about->replicas[i];
                snprintf(part, sizeof(part), "R%d", who->rank);
                if (who->rank >= 0)
                        add_unnamed(message, part, ret);
                snprintf(part, sizeof(part), "pid %u", who->pid);
                if (who->pid > 0)
                        add_unnamed(message, part, ret);
        }
}

/* One record is one line, whatever a client has put into a name. */
static void replace_control_bytes(char *s) {
        for (; *s; s++)
                if ((unsigned char)*s < 0x20 || *s == 0x7f)
                        *s = '?';
}

static void format_message(
        const struct log_about *about, const char *format, va_list args, struct text *ret) {
        char message[MESSAGE_BYTES - 512], rest[500];
        struct text unnamed;
        vsnprintf(message, sizeof(message), format, args);
        text_init(&unnamed, rest, sizeof(rest));
        find_unnamed(about, message, &unnamed);
        text_add(ret, rest[0] ? "%s [%s]" : "%s%s", message, rest);
        replace_control_bytes(ret->buf);
}

/* --- where it goes --- */

static void write_stderr(enum log_level level, const char *message) {
        char line[LINE_BYTES];
        struct text t;
        text_init(&t, line, sizeof(line));
        if (stderr_is_journal)
                text_add(&t, "<%d>", levels[level].priority);
        else
                text_add(&t, "%s: %s: ", program_invocation_short_name, levels[level].name);
        text_add(&t, "%s\n", message);
        /* One write, so that lines of several threads do not mix. Nobody is left to tell when it fails. */
        while (write(STDERR_FILENO, line, t.used) < 0 && errno == EINTR)
                ;
}

static void add_field(struct text *t, const char *field, const char *value) {
        size_t begin = t->used;
        text_add(t, "%s=%s", field, value);
        replace_control_bytes(t->buf + begin);
        text_add(t, "\n");
}

static void add_number(struct text *t, const char *field, long long value) {
        char number[24];
        snprintf(number, sizeof(number), "%lld", value);
        add_field(t, field, number);
}

static void make_record(
        enum log_level level, const struct log_about *about, const char *message, struct text *ret) {
        char group[160];
        add_field(ret, "MESSAGE", message);
        add_number(ret, "PRIORITY", levels[level].priority);
        add_field(ret, "SYSLOG_IDENTIFIER", program_invocation_short_name);
        if (about->group) {
                snprintf(group, sizeof(group), "%s/%s", about->job, about->group);
                add_field(ret, "TUTTI_GROUP", group);
        }
        if (about->key)
                add_field(ret, "TUTTI_KEY", about->key);
        for (uint32_t i = 0; i < n_replicas_of(about); i++) {
                if (about->replicas[i].rank >= 0)
                        add_number(ret, "TUTTI_RANK", about->replicas[i].rank);
                if (about->replicas[i].pid > 0)
                        add_number(ret, "TUTTI_PID", about->replicas[i].pid);
        }
}

/* false: the journal is behind; waiting for it would stop whoever logs. */
static bool deliver(enum log_level level, const struct log_about *about, const char *message) {
        char bytes[RECORD_BYTES];
        struct text record;
        if (journal < 0) {
                write_stderr(level, message);
                return true;
        }
        text_init(&record, bytes, sizeof(bytes));
        make_record(level, about, message, &record);
        int r = log_journal_send(journal, &record);
        if (r < 0 && r != -EAGAIN)
                write_stderr(level, message);
        return r != -EAGAIN;
}

/* --- how many lines --- */

static void take_place(struct log_site *site, uint64_t now_ns) {
        site->written_ns[site->n_written++ % LOG_LINES_A_MINUTE] = now_ns;
}

static void site_close(struct log_site *site, uint64_t now_ns) {
        site->closed_until_ns = now_ns + WINDOW_NS;
        site->next_closed = closed_sites;
        closed_sites = site;
        atomic_fetch_add(&n_closed, 1);
}

static void site_open(struct log_site *site, uint64_t now_ns) {
        struct log_site **p = &closed_sites;
        while (*p != site)
                p = &(*p)->next_closed;
        *p = site->next_closed;
        atomic_fetch_sub(&n_closed, 1);
        memset(site->written_ns, 0, sizeof(site->written_ns));
        site->closed_until_ns = 0;
        site->n_left_out = 0;
        if (now_ns != LOG_NEVER)
                take_place(site, now_ns);
}

/* Whether the site may write now. */
static bool take_turn(struct log_site *site, enum log_level level) {
        uint64_t now_ns = clock_now_ns();
        log_settle(now_ns);
        pthread_mutex_lock(&sites_lock);
        site->level = level;
        uint64_t oldest_ns = site->written_ns[site->n_written % LOG_LINES_A_MINUTE];
        bool is_open = site->closed_until_ns == 0;
        if (is_open && oldest_ns != 0 && now_ns < oldest_ns + WINDOW_NS) {
                site_close(site, now_ns);
                is_open = false;
        }
        if (is_open)
                take_place(site, now_ns);
        else
                site->n_left_out++;
        pthread_mutex_unlock(&sites_lock);
        return is_open;
}

static void note_line(struct log_site *site, const char *message, bool was_delivered) {
        pthread_mutex_lock(&sites_lock);
        text_copy(site->like, sizeof(site->like), message);
        if (!was_delivered) {
                site->n_left_out++;
                if (site->closed_until_ns == 0)
                        site_close(site, clock_now_ns());
        }
        pthread_mutex_unlock(&sites_lock);
}

void log_write(
        struct log_site *site, enum log_level level, const struct log_about *about, const char *format, ...) {
        if (!log_is_on(level))
                return;
        int saved = errno;
        if (take_turn(site, level)) {
                char message[MESSAGE_BYTES];
                struct text t;
                va_list args;
                text_init(&t, message, sizeof(message));
                va_start(args, format);
                format_message(about ? about : &about_nothing, format, args, &t);
                va_end(args);
                note_line(site, message, deliver(level, about ? about : &about_nothing, message));
        }
        errno = saved;
}

/* The first site whose time is over opens: 0 and how much it had to leave out, or -ENOENT. */
static int open_one(uint64_t now_ns, struct log_site *ret) {
        int r = -ENOENT;
        pthread_mutex_lock(&sites_lock);
        for (struct log_site *s = closed_sites; s; s = s->next_closed)
                if (now_ns >= s->closed_until_ns) {
                        *ret = *s;
                        site_open(s, now_ns);
                        r = 0;
                        break;
                }
        pthread_mutex_unlock(&sites_lock);
        return r;
}

void log_settle(uint64_t now_ns) {
        struct log_site site;
        if (atomic_load(&n_closed) == 0)
                return;
        while (open_one(now_ns, &site) == 0) {
                char message[sizeof(site.like) + 80];
                snprintf(message, sizeof(message), "%u more of these were not written: %s", site.n_left_out,
                        site.like);
                (void)deliver(site.level, &about_nothing, message);
        }
}

uint64_t log_next_ns(void) {
        uint64_t next_ns = LOG_NEVER;
        if (atomic_load(&n_closed) == 0)
                return next_ns;
        pthread_mutex_lock(&sites_lock);
        for (const struct log_site *s = closed_sites; s; s = s->next_closed)
                if (s->closed_until_ns < next_ns)
                        next_ns = s->closed_until_ns;
        pthread_mutex_unlock(&sites_lock);
        return next_ns;
}
