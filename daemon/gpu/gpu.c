#include "gpu/gpu-internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "confine.h"

#define SPIN_NS    (100 * 1000ull) /* after work was begun or has ended: looks again at once */
#define NAP_NS     (20 * 1000ull)  /* then sleeps for so long, and each time for twice as long */
#define MAX_NAP_NS (NS_PER_MS)     /* at most */
#define PACKETS    16              /* before runs are looked after again */

void gpu_end(struct gpu *g, int exit_code) {
        g->is_over = true;
        g->exit_code = exit_code;
}

void gpu_say(struct gpu *g, int fd) {
        struct pollfd p = { .fd = g->socket, .events = POLLOUT };
        int r;
        while ((r = channel_send(g->socket, g->out.bytes, worker_packet_bytes(&g->out), &fd, fd >= 0)) ==
                -EAGAIN)
                poll(&p, 1, -1);
        if (r < 0)
                gpu_end(g, 0); /* tuttid has gone */
}

/* --- the beginning --- */

static void say_hello(struct gpu *g) {
        g->out.hello = (struct worker_hello){ .head = { .verb = WORKER_HELLO } };
        text_copy(g->out.hello.build, sizeof(g->out.hello.build), worker_build());
        gpu_say(g, -1);
}

/* The one that it did not survive. */
static uint64_t ticket_of_culprit(const struct gpu *g) {
        const struct run *culprit = g->backend ? g->backend->broken_by : NULL;
        list_for_each (it, &g->running) {
                const struct gpu_task *t = list_entry(it, struct gpu_task, link);
                if (&t->run == culprit)
                        return t->ticket;
        }
        return 0;
}

static void say_off(struct gpu *g, bool is_final, const char *why) {
        g->out.off = (struct worker_off){ .head = { .verb = WORKER_OFF, .ticket = ticket_of_culprit(g) },
                .is_final = is_final };
        text_copy(g->out.off.why, sizeof(g->out.off.why), why);
        gpu_say(g, -1);
        gpu_end(g, 1);
}

/* Less than it could be, which is no reason not to serve (P15). */
static void say_unconfined(struct gpu *g, const char *why) {
        if (why[0] == '\0')
                return;
        g->out.fallback = (struct worker_fallback){ .head = { .verb = WORKER_FALLBACK } };
        text_copy(g->out.fallback.report.what, sizeof(g->out.fallback.report.what), "tuttid-gpu");
        text_copy(g->out.fallback.report.why, sizeof(g->out.fallback.report.why), why);
        gpu_say(g, -1);
}

static void say_what_there_is(struct gpu *g) {
        const struct gpu_backend *b = g->backend;
        for (uint32_t k = 0; k < b->n_devices; k++) {
                g->out.device = (struct worker_device){ .head = { .verb = WORKER_DEVICE },
                        .device = k,
                        .n_devices = b->n_devices,
                        .report = b->devices[k] };
                gpu_say(g, -1);
        }
        for (uint32_t i = 0; i < b->n_fallbacks; i++) {
                g->out.fallback = (struct worker_fallback){ .head = { .verb = WORKER_FALLBACK },
                        .report = b->fallbacks[i] };
                gpu_say(g, -1);
        }
}

static void say_ready(struct gpu *g) {
        g->out.head = (struct worker_head){ .verb = WORKER_READY };
        gpu_say(g, -1);
}

static bool is_final(int r) {
        return r == -ENOENT || r == -ENODEV || r == -ENOSYS;
}

static void set_up(struct gpu *g, const struct worker_settings *s, gpu_backend_maker *maker) {
        const struct gpu_options options = { .takes_ipc = s->takes_ipc,
                .test_limit_ns = s->test_limit_ns,
                .hang_limit_ns = s->hang_limit_ns };
        char why[WORKER_TEXT_BYTES] = "";
        if (g->backend) {
                gpu_end(g, 2);
                return;
        }
        log_set_level((enum log_level)s->log_level);
        char alone_why[CONFINE_WHY_BYTES], filter_why[CONFINE_WHY_BYTES];
        confine_from_others((enum confine)s->confine, alone_why);
        int r = maker(&g->backend, &options, why, sizeof(why));
        if (r < 0 || g->backend->n_devices == 0) {
                say_off(g, r == 0 || is_final(r), r < 0 ? why : "the driver is there, and no GPU");
                return;
        }
        confine_gpu((enum confine)s->confine, filter_why);
        say_what_there_is(g);
        say_unconfined(g, alone_why);
        say_unconfined(g, filter_why);
        say_ready(g);
}

/* --- the loop --- */

static void obey(struct gpu *g, int *fd, gpu_backend_maker *maker) {
        if (!g->backend && g->in.head.verb != WORKER_SETTINGS) {
                gpu_end(g, 2);
                return;
        }
        switch ((enum worker_verb)g->in.head.verb) {
        case WORKER_SETTINGS: set_up(g, &g->in.settings, maker); return;
        case WORKER_IMPORT: gpu_import(g, &g->in.import, fd_take(fd)); return;
        case WORKER_RELEASE: gpu_release(g, &g->in.release); return;
        case WORKER_RUN: gpu_begin_run(g, &g->in.run); return;
        case WORKER_PART: gpu_add_part(g, &g->in.part); return;
        case WORKER_PING:
                g->out.head = (struct worker_head){ .verb = WORKER_PONG };
                gpu_say(g, -1);
                return;
        case WORKER_HELLO:
        case WORKER_DEVICE:
        case WORKER_FALLBACK:
        case WORKER_READY:
        case WORKER_OFF:
        case WORKER_CHORE_DONE:
        case WORKER_RUN_LAUNCHED:
        case WORKER_SUMS:
        case WORKER_LENGTHS:
        case WORKER_RUN_DONE:
        case WORKER_PONG: break;
        }
        gpu_end(g, 2);
}

/* One packet; false: there is none. */
static bool read_one(struct gpu *g, gpu_backend_maker *maker) {
        struct packet packet;
        int none = -1;
        int r = channel_receive(g->socket, g->in.bytes, &packet);
        if (r == -EAGAIN)
                return false;
        if (r <= 0)
                gpu_end(g, r == 0 ? 0 : 2);
        else if (worker_check(&g->in, packet.n_bytes, packet.n_fds, WORKER_END_TUTTID) < 0)
                gpu_end(g, 2);
        else
                obey(g, packet.n_fds ? &packet.fds[0] : &none, maker);
        packet_close_fds(&packet);
        return !g->is_over;
}

/* Whether anything was there. */
static bool work(struct gpu *g, gpu_backend_maker *maker) {
        bool is_any = false;
        for (int i = 0; i < PACKETS && read_one(g, maker); i++)
                is_any = true;
        if (g->backend && !list_is_empty(&g->running)) {
                g->backend->base.ops->poll(&g->backend->base);
                is_any |= gpu_tell_runs(g);
        }
        if (g->backend && g->backend->is_broken && !g->is_over)
                say_off(g, false, g->backend->broken_why);
        return is_any;
}

/* With nothing under way only the log may have something to say. */
static int idle_ms(void) {
        uint64_t next_ns = log_next_ns(), now_ns = clock_now_ns();
        if (next_ns == LOG_NEVER)
                return -1;
        return next_ns > now_ns ? (int)((next_ns - now_ns) / NS_PER_MS) + 1 : 0;
}

/* Until tuttid says something, or it is time to look after the runs. */
static void nap(const struct gpu *g, uint64_t quiet_ns, uint64_t *nap_ns) {
        struct pollfd p = { .fd = g->socket, .events = POLLIN };
        if (list_is_empty(&g->running)) {
                poll(&p, 1, idle_ms());
                return;
        }
        if (quiet_ns < SPIN_NS) {
                *nap_ns = NAP_NS;
                return;
        }
        const struct timespec limit = { .tv_nsec = (long)*nap_ns };
        ppoll(&p, 1, &limit, NULL);
        *nap_ns = *nap_ns * 2 < MAX_NAP_NS ? *nap_ns * 2 : MAX_NAP_NS;
}

int gpu_serve(int socket, gpu_backend_maker *maker) {
        struct gpu *g = calloc(1, sizeof(*g));
        if (!g)
                return 1;
        g->socket = socket;
        list_init(&g->running);
        say_hello(g);
        uint64_t active_ns = clock_now_ns(), nap_ns = NAP_NS;
        while (!g->is_over) {
                bool is_active = work(g, maker);
                uint64_t now_ns = clock_now_ns();
                log_settle(now_ns);
                if (is_active)
                        active_ns = now_ns;
                else if (!g->is_over)
                        nap(g, now_ns - active_ns, &nap_ns);
        }
        gpu_let_go(g);
        log_settle(LOG_NEVER);
        int exit_code = g->exit_code;
        free(g);
        return exit_code;
}
