#include "run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* Somebody who still holds a stream whose writers have ended is not waited for longer. */
#define LOOK_MS    100
#define GIVE_UP_NS UINT64_C(1000000000)

uint64_t monotonic_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void launch_say(struct launch *l, const char *format, ...) {
        char line[1024];
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(line, sizeof(line) - 1, format, args);
        va_end(args);
        if (n < 0)
                return;
        if ((size_t)n > sizeof(line) - 2)
                n = (int)sizeof(line) - 2;
        line[n] = '\n';
        if (l->err.is_shared_terminal)
                sink_write(&l->err, "\r\033[K", 4);
        sink_write(&l->err, line, (size_t)n + 1);
}

/* Ctrl-Z reaches the launcher alone: it takes the replicas along. */
static void stop_together(struct launch *l) {
        replicas_signal(l, SIGSTOP);
        raise(SIGSTOP);
        replicas_signal(l, SIGCONT);
}

static bool is_to_end(int signal) {
        return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

static void take_signals(struct launch *l) {
        struct signalfd_siginfo info;

        while (read(l->signal_fd, &info, sizeof(info)) == sizeof(info)) {
                int signal = (int)info.ssi_signo;

                if (signal == SIGCHLD) {
                        replicas_reap(l);
                } else if (signal == SIGTSTP) {
                        stop_together(l);
                } else {
                        l->last_signal = signal;
                        if (is_to_end(signal))
                                l->told_ns = monotonic_ns();
                        replicas_signal(l, signal);
                }
        }
}

static int until_kill_ms(const struct launch *l, int timeout_ms) {
        uint64_t now = monotonic_ns();
        int left_ms;

        if (!l->kill_at_ns)
                return timeout_ms;
        left_ms = l->kill_at_ns > now ? (int)((l->kill_at_ns - now) / 1000000) + 1 : 0;
        return timeout_ms < 0 || left_ms < timeout_ms ? left_ms : timeout_ms;
}

static void kill_when_due(struct launch *l) {
        if (!l->kill_at_ns || monotonic_ns() < l->kill_at_ns)
                return;
        l->kill_at_ns = 0;
        for (uint32_t i = 0; i < l->n_started; i++)
                if (!l->replicas[i].is_over)
                        launch_say(l, "tuttictl: R%u (pid %d) has not ended within %.3g s: killing it.", i,
                                (int)l->replicas[i].pid, (double)l->options->grace_ns / 1e9);
        replicas_signal(l, SIGKILL);
}

/* --- one turn --- */

static void wait_for(struct pollfd *p, int fd, short events) {
        *p = (struct pollfd){ .fd = fd, .events = events };
}

/* A stream whose sink is full waits with what it has, and its writer in the end too. */
static void wait_for_stream(struct pollfd *p, const struct stream *s) {
        wait_for(p, s->fd >= 0 && stream_may_read(s) ? s->fd : -1, POLLIN);
}

static void read_stream(const struct pollfd *p, struct stream *s) {
        if (p->revents && stream_may_read(s))
                stream_read(s);
}

static void say_dropped(struct launch *l, struct sink *s, const char *name) {
        if (!s->error || s->has_said)
                return;
        s->has_said = true;
        launch_say(l, "tuttictl run: %s cannot be written: %s. What it has no room for is dropped.", name,
                strerror(s->error));
}

void launch_turn(struct launch *l, int timeout_ms) {
        uint32_t n = l->n_streams;
        struct pollfd *more = l->polls + n;

        for (uint32_t i = 0; i < n; i++)
                wait_for_stream(&l->polls[i], &l->streams[i]);
        wait_for_stream(&more[0], &l->tuttid.stream);
        wait_for(&more[1], l->signal_fd, POLLIN);
        wait_for(&more[2], sink_poll_fd(&l->out), POLLOUT);
        wait_for(&more[3], sink_poll_fd(&l->err), POLLOUT);
        if (poll(l->polls, n + LAUNCH_MORE_POLLS, until_kill_ms(l, timeout_ms)) > 0) {
                if (more[1].revents)
                        take_signals(l);
                if (more[2].revents)
                        sink_flush(&l->out);
                if (more[3].revents)
                        sink_flush(&l->err);
                for (uint32_t i = 0; i < n; i++)
                        read_stream(&l->polls[i], &l->streams[i]);
                read_stream(&more[0], &l->tuttid.stream);
        }
        say_dropped(l, &l->out, "standard output");
        say_dropped(l, &l->err, "standard error");
        kill_when_due(l);
}

/* --- the end --- */

/* Whoever reads slowly is waited for as any program would wait for him; but not by one who is told to end. */
static bool has_given_up(const struct launch *l, uint64_t began_ns) {
        uint64_t since_ns = l->told_ns > began_ns ? l->told_ns : began_ns;

        return l->told_ns && monotonic_ns() - since_ns > GIVE_UP_NS;
}

static void finish_stream(struct launch *l, struct stream *s, uint64_t began_ns) {
        while (s->fd >= 0) {
                struct pollfd p = { .fd = s->fd, .events = POLLIN };

                if (has_given_up(l, began_ns))
                        break;
                if (!stream_may_read(s))
                        launch_turn(l, LOOK_MS);
                else if (poll(&p, 1, LOOK_MS) > 0)
                        stream_read(s);
                else
                        break;
        }
        stream_close(s);
}

void launch_finish(struct launch *l) {
        uint64_t began_ns = monotonic_ns();

        for (uint32_t i = 0; i < l->n_streams; i++)
                finish_stream(l, &l->streams[i], began_ns);
        finish_stream(l, &l->tuttid.stream, began_ns);
        while ((l->out.used || l->err.used) && !has_given_up(l, began_ns))
                launch_turn(l, LOOK_MS);
}
