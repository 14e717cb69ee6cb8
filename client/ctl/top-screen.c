/* The terminal of `top`: the alternate screen, redrawn in place; keys without echo. Whatever ends it, the
 * terminal is as it was before. A screen goes out in one write, so that it does not flicker over ssh. */
#include "top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ENTER    "\033[?1049h\033[?25l"
#define LEAVE    "\033[?25h\033[?1049l"
#define HOME     "\033[H"
#define END_LINE "\033[K\r\n"
#define END_ALL  "\033[J"

struct terminal {
        struct termios before;
        sigset_t unblocked;
};

static volatile sig_atomic_t ended_by, is_stopping;
static const struct terminal *volatile asks_from; /* while tuttid is asked: it may take its time */

static void terminal_leave(const struct terminal *t);

/* While tuttid is asked nobody looks at `ended_by`. */
static void on_end(int signal) {
        ended_by = signal;
        if (!asks_from)
                return;
        terminal_leave(asks_from);
        _exit(CTL_WELL);
}

static void on_stop(int signal) {
        is_stopping = 1;
}

static void on_resize(int signal) {
}

static void ending_signals(sigset_t *set) {
        static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

        sigemptyset(set);
        for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
                sigaddset(set, signals[i]);
}

/* Those that a wait is interrupted by, and only a wait or, to end, a question. */
static void watched_signals(sigset_t *set) {
        ending_signals(set);
        sigaddset(set, SIGTSTP);
        sigaddset(set, SIGWINCH);
}

static void watch_signals(void) {
        struct sigaction end = { .sa_handler = on_end }, stop = { .sa_handler = on_stop },
                         resize = { .sa_handler = on_resize };

        sigaction(SIGINT, &end, NULL);
        sigaction(SIGTERM, &end, NULL);
        sigaction(SIGHUP, &end, NULL);
        sigaction(SIGQUIT, &end, NULL);
        sigaction(SIGTSTP, &stop, NULL);
        sigaction(SIGWINCH, &resize, NULL);
}

static void put(const char *bytes, size_t n) {
        while (n) {
                ssize_t written = write(STDOUT_FILENO, bytes, n);

                if (written < 0 && errno == EINTR)
                        continue;
                if (written <= 0)
                        return;
                bytes += written;
                n -= (size_t)written;
        }
}

static void terminal_enter(struct terminal *t) {
        struct termios raw;

        tcgetattr(STDIN_FILENO, &t->before);
        raw = t->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
        put(ENTER, strlen(ENTER));
}

static void terminal_leave(const struct terminal *t) {
        put(LEAVE, strlen(LEAVE));
        tcsetattr(STDIN_FILENO, TCSANOW, &t->before);
}

static void terminal_size(uint32_t *lines, size_t *columns) {
        struct winsize size;

        *lines = 24;
        *columns = PAGE_COLUMNS;
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col) {
                *lines = size.ws_row;
                *columns = size.ws_col;
        }
}

/* How many bytes of the line fit into the columns; escapes and the insides of UTF-8 take none. */
static size_t fitting(const char *line, size_t n, size_t columns) {
        size_t i = 0;

        while (i < n) {
                if (line[i] == '\033') {
                        while (i < n && line[i] != 'm')
                                i++;
                } else if (((unsigned char)line[i] & 0xc0) != 0x80 && columns-- == 0) {
                        break;
                }
                i += i < n;
        }
        return i;
}

static void put_lines(FILE *out, const char *text, size_t columns) {
        fputs(HOME, out);
        while (*text) {
                size_t n = strcspn(text, "\n"), shown = fitting(text, n, columns);

                fprintf(out, "%.*s%s" END_LINE, (int)shown, text, shown < n ? "\033[0m" : "");
                text += n + (text[n] == '\n');
        }
        fputs("q ends" END_ALL, out);
}

static int draw(const struct query *q, const struct top_view *v) {
        char *text = NULL, *all = NULL;
        size_t n, n_all, columns;
        uint32_t lines;
        struct page page = q->page;
        FILE *out;

        terminal_size(&lines, &columns);
        page.out = open_memstream(&text, &n);
        if (!page.out)
                return -ENOMEM;
        top_print(v, &page, &(struct top_size){ lines > 3 ? lines - 1 : 2, (uint32_t)columns });
        fclose(page.out);
        out = open_memstream(&all, &n_all);
        if (out) {
                put_lines(out, text, columns);
                fclose(out);
                put(all, n_all);
        }
        free(text);
        free(all);
        return out ? 0 : -ENOMEM;
}

enum next { NEXT_LOOK, NEXT_DRAW, NEXT_END };

/* Until the time is over, a key, or a signal. A terminal that is gone ends it too. */
static enum next wait_for_next(const struct terminal *t, uint64_t ns) {
        struct timespec time = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
        struct pollfd keys = { .fd = STDIN_FILENO, .events = POLLIN };
        int r = ppoll(&keys, 1, &time, &t->unblocked);
        char key = 0;

        if (ended_by)
                return NEXT_END;
        if (r == 0)
                return NEXT_LOOK;
        if (r < 0)
                return NEXT_DRAW; /* a resize or a stop */
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q')
                return NEXT_END;
        return NEXT_LOOK;
}

/* As the shell's Ctrl-Z wants it: the terminal is given back meanwhile. */
static void stop_and_come_back(struct terminal *t) {
        is_stopping = 0;
        terminal_leave(t);
        raise(SIGSTOP);
        terminal_enter(t);
}

static enum tutti_status look(const struct query *q, const struct terminal *t, struct top_look *ret) {
        enum tutti_status status;
        sigset_t ending;

        ending_signals(&ending);
        asks_from = t;
        sigprocmask(SIG_UNBLOCK, &ending, NULL);
        status = top_take_look(q, ret);
        sigprocmask(SIG_BLOCK, &ending, NULL);
        asks_from = NULL;
        return status;
}

/* The first screen has no rates: they come with the second look. 0, -ENOMEM, or what libtutti said. */
static int watch(struct query *q, struct terminal *t, uint64_t interval_ns) {
        struct top_look before = { 0 }, now = { 0 };
        enum next next = NEXT_DRAW;
        int r = (int)look(q, t, &now);

        while (r == 0 && next != NEXT_END) {
                struct top_view v = before.status ? top_view_of(&before, &now) : top_view_of(&now, &now);

                r = draw(q, &v);
                if (r < 0)
                        break;
                next = wait_for_next(t, interval_ns);
                if (is_stopping)
                        stop_and_come_back(t);
                if (next != NEXT_LOOK)
                        continue;
                top_look_deinit(&before);
                before = now;
                now = (struct top_look){ 0 };
                r = (int)look(q, t, &now);
        }
        top_look_deinit(&before);
        top_look_deinit(&now);
        return r;
}

int top_watch(struct query *q, uint64_t interval_ns) {
        struct terminal t;
        sigset_t watched;
        int r;

        watched_signals(&watched);
        sigprocmask(SIG_BLOCK, &watched, &t.unblocked);
        watch_signals();
        terminal_enter(&t);
        r = watch(q, &t, interval_ns);
        terminal_leave(&t); /* before anything is said: the alternate screen takes its text with it */
        sigprocmask(SIG_SETMASK, &t.unblocked, NULL);
        if (r > 0)
                return query_report(q, (enum tutti_status)r);
        if (r < 0)
                fprintf(stderr, "tuttictl: %s\n", strerror(-r));
        return r < 0 ? CTL_IO : CTL_WELL;
}
