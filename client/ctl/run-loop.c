#include "run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

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

void launch_turn(struct launch *l, int timeout_ms) {
        uint32_t n = l->n_streams;

        for (uint32_t i = 0; i < n; i++)
                l->polls[i] = (struct pollfd){ .fd = l->streams[i].fd, .events = POLLIN };
        l->polls[n] = (struct pollfd){ .fd = l->tuttid.stream.fd, .events = POLLIN };
        l->polls[n + 1] = (struct pollfd){ .fd = l->signal_fd, .events = POLLIN };
        if (poll(l->polls, n + 2, until_kill_ms(l, timeout_ms)) > 0) {
                for (uint32_t i = 0; i < n; i++)
                        if (l->polls[i].revents)
                                stream_read(&l->streams[i]);
                if (l->polls[n].revents)
                        stream_read(&l->tuttid.stream);
                if (l->polls[n + 1].revents)
                        take_signals(l);
        }
        kill_when_due(l);
}
