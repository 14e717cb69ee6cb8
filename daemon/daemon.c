/* Bells only set a flag: a check handle, which libuv calls after all events of an iteration, makes one turn
 * of the conductor for all of them; the timer makes its own. So everything that arrived together is handled
 * together, and nothing is handled inside a callback of the room that it came from. */
#include "daemon.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>
#include "backends/host/host.h"
#include "base/clock.h"
#include "base/log.h"
#include "conductor.h"
#include "confine.h"
#include "daemon-pace.h"
#include "service.h"
#include "worker.h"

#define OWN_DESCRIPTORS 256 /* what tuttid has open for itself, with room for guests who are turned away */
#define DRAIN_LIMIT_NS  (5 * NS_PER_S)
#define SLICE_NS        (NS_PER_MS / 10)
/* Signs of life in the time in which the manager wants one: the proof is one tick old, and a tick may be
 * late. */
#define WATCHDOG_TICKS 4

struct daemon {
        struct config settings; /* everybody else's is const */
        const struct config *config;
        const struct config_source *source;
        struct house house;
        struct conductor *conductor;
        struct service *service;
        uv_loop_t loop;
        uv_timer_t timer, drain, watchdog;
        uv_check_t check;
        uv_idle_t idle; /* runs while there is more to do at once: the loop then looks for news and does not
                           sleep */
        uv_signal_t term, interrupt, hangup;
        uv_pipe_t leash; /* a private tuttid's stdin */
        bool has_loop, has_leash, is_rung, is_ending;
        uint64_t timer_at_ns, drain_until_ns;
        struct pace pace;
        char why[512]; /* it cannot start; "": as errno says */
        char unconfined[CONFINE_WHY_BYTES];
        struct nursery *nursery; /* until the workers have it */
        char no_gpus[512];       /* why there is no nursery */
};

static void daemon_ring(void *data) {
        ((struct daemon *)data)->is_rung = true;
}

/* --- ending --- */

static void daemon_end(struct daemon *d, const char *why) {
        if (d->is_ending)
                return;
        d->is_ending = true;
        log_info("ending: %s", why);
        service_tell(d->service, "STOPPING=1\nSTATUS=Ending: %s.\n", why);
        d->drain_until_ns = clock_now_ns() + DRAIN_LIMIT_NS;
        listener_close(d->house.listener);
        conductor_drain(d->conductor, clock_now_ns());
        d->is_rung = true;
        uv_stop(&d->loop);
}

static void daemon_on_signal(uv_signal_t *handle, int number) {
        daemon_end(handle->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void daemon_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret) {
        static char sink[64];
        *ret = uv_buf_init(sink, sizeof(sink));
}

static void daemon_on_leash(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
        if (n < 0)
                daemon_end(stream->data, "its launcher has ended");
}

/* --- reloading --- */

static struct rendezvous_settings daemon_times(const struct config *c) {
        return (struct rendezvous_settings){ .default_timeout_ns = c->default_timeout_ns,
                .join_timeout_ns = c->join_timeout_ns,
                .stall_warn_ns = c->stall_warn_ns,
                .busy_max_ns = c->busy_max_ns };
}

static int daemon_override_quotas(struct quotas *quotas, const struct config *c) {
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < c->n_overrides; i++) {
                const struct quota_limits limits = config_limits_of(c, &c->overrides[i]);
                r = quotas_override(quotas, c->overrides[i].uid, &limits);
        }
        return r;
}

static void daemon_apply(struct daemon *d, const struct config *fresh) {
        struct config_changes changes;
        config_reload(&d->settings, fresh, &changes);
        const struct rendezvous_settings times = daemon_times(d->config);
        quotas_set_limits(d->house.quotas, &d->config->quota);
        if (daemon_override_quotas(d->house.quotas, d->config) < 0)
                log_error("memory is short: some users have everybody's limits and not their own; reload "
                          "again");
        rendezvous_set_times(d->house.rendezvous, &times);
        conductor_reconfigured(d->conductor, clock_now_ns());
        log_set_level(d->config->log_level);
        log_notice("reloaded: %s", changes.taken[0] ? changes.taken : "nothing has changed");
        if (changes.kept[0])
                log_warning("not reloaded: %s; restart tuttid to change it", changes.kept);
}

/* Between two turns: nobody looks at the configuration meanwhile. */
static void daemon_on_hangup(uv_signal_t *handle, int number) {
        struct daemon *d = handle->data;
        struct config fresh;
        char why[512];
        (void)number;
        if (!d->source || d->is_ending || !d->conductor)
                return;
        service_tell(
                d->service, "RELOADING=1\nMONOTONIC_USEC=%llu\n", (unsigned long long)clock_now_ns() / 1000);
        if (d->source->read(d->source->data, &fresh, why, sizeof(why)) < 0)
                log_error("not reloaded, everything stays as it was: %s", why);
        else
                daemon_apply(d, &fresh);
        service_tell(d->service, "READY=1\n");
}

/* --- turning --- */

static void daemon_turn(struct daemon *d);

/* libuv runs timers before it polls: left to the check handle, this turn would wait for the next event. */
static void daemon_on_timer(uv_timer_t *timer) {
        struct daemon *d = timer->data;
        /* libuv reads a coarse clock: the timer may be early, and the same instant must set it again. */
        d->timer_at_ns = ALARM_NEVER;
        daemon_turn(d);
}

/* The one timer follows the first deadline; libuv counts in ms, so it is set to the ms after. */
static void daemon_set_timer(struct daemon *d, uint64_t now_ns) {
        uint64_t next_ns = conductor_next_ns(d->conductor), log_ns = log_next_ns();
        if (log_ns < next_ns)
                next_ns = log_ns;
        if (next_ns == d->timer_at_ns && next_ns > now_ns)
                return;
        d->timer_at_ns = next_ns;
        if (next_ns == ALARM_NEVER) {
                uv_timer_stop(&d->timer);
                return;
        }
        uv_update_time(&d->loop);
        /* Never 0: libuv would run such a timer again and again before it looks at anything else. */
        uint64_t delay_ms = next_ns > now_ns ? (next_ns - now_ns) / NS_PER_MS + 1 : 1;
        uv_timer_start(&d->timer, daemon_on_timer, delay_ms, 0);
}

static void daemon_on_idle(uv_idle_t *idle) {
        (void)idle;
}

static void daemon_turn(struct daemon *d) {
        d->is_rung = false;
        uint64_t now_ns = clock_now_ns();
        pace_begin(&d->pace, now_ns);
        bool is_more = conductor_turn(d->conductor, now_ns);
        log_settle(now_ns);
        daemon_set_timer(d, now_ns);
        uint64_t long_ns = pace_end(&d->pace, now_ns, clock_now_ns());
        if (long_ns)
                log_warning("the loop thread has worked for %llu ms at a stretch; everybody waited for it",
                        (unsigned long long)(long_ns / NS_PER_MS));
        d->is_rung |= is_more;
        if (is_more)
                uv_idle_start(&d->idle, daemon_on_idle);
        else
                uv_idle_stop(&d->idle);
}

static void daemon_on_check(uv_check_t *check) {
        struct daemon *d = check->data;
        if (d->is_rung && d->conductor) /* the loop runs a little while what failed to start is torn down */
                daemon_turn(d);
}

/* --- building --- */

/* A client's descriptors pass through ours: the soft limit of 1,024 is not enough. */
static void daemon_raise_descriptors(const struct config *c) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return;
        rlim_t soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (soft < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) < 0) {
                log_warning("the limit of descriptors stays as it is: %s", strerror(errno));
                limit.rlim_cur = soft;
        }
        if (limit.rlim_cur < c->quota.descriptors + OWN_DESCRIPTORS)
                log_warning("one user may fill the table of descriptors: quota.descriptors is %llu, and this "
                            "process may have %llu; raise LimitNOFILE, or lower the quota",
                        (unsigned long long)c->quota.descriptors, (unsigned long long)limit.rlim_cur);
}

static int daemon_build_loop(struct daemon *d) {
        int r = uv_loop_init(&d->loop);
        if (r < 0)
                return r;
        d->has_loop = true;
        d->timer_at_ns = ALARM_NEVER;
        uv_timer_init(&d->loop, &d->timer);
        uv_timer_init(&d->loop, &d->drain);
        uv_timer_init(&d->loop, &d->watchdog);
        uv_check_init(&d->loop, &d->check);
        uv_idle_init(&d->loop, &d->idle);
        d->timer.data = d->drain.data = d->watchdog.data = d->check.data = d->term.data = d->interrupt.data =
                d->hangup.data = d->leash.data = d;
        r = uv_signal_init(&d->loop, &d->term);
        if (r == 0)
                r = uv_signal_init(&d->loop, &d->interrupt);
        if (r == 0)
                r = uv_signal_start(&d->term, daemon_on_signal, SIGTERM);
        if (r == 0)
                r = uv_signal_start(&d->interrupt, daemon_on_signal, SIGINT);
        if (r == 0)
                r = uv_signal_init(&d->loop, &d->hangup);
        if (r == 0)
                r = uv_signal_start(&d->hangup, daemon_on_hangup, SIGHUP);
        return r < 0 ? r : uv_check_start(&d->check, daemon_on_check);
}

static int daemon_build_leash(struct daemon *d) {
        if (!d->config->is_private)
                return 0;
        int r = uv_pipe_init(&d->loop, &d->leash, 0);
        if (r < 0)
                return r;
        d->has_leash = true;
        r = uv_pipe_open(&d->leash, STDIN_FILENO);
        return r < 0 ? r : uv_read_start((uv_stream_t *)&d->leash, daemon_on_alloc, daemon_on_leash);
}

/* tuttid-gpu: as configured, or beside tuttid. 0 or negative errno. */
static int daemon_find_gpu_worker(const struct config *c, char *path, size_t size) {
        if (c->gpu_worker[0] != '\0') {
                snprintf(path, size, "%s", c->gpu_worker);
                return 0;
        }
        ssize_t n = readlink("/proc/self/exe", path, size - 1);
        if (n < 0)
                return -errno;
        path[n] = '\0';
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash + 1 - path) + sizeof("tuttid-gpu") > size)
                return -ENAMETOOLONG;
        memcpy(slash + 1, "tuttid-gpu", sizeof("tuttid-gpu"));
        return 0;
}

/* Before there are threads: it is forked. That there are no GPUs is no error. */
static int daemon_build_nursery(struct daemon *d) {
        char path[1024];
        if (d->config->gpu_enabled == GPU_NO) {
                snprintf(d->no_gpus, sizeof(d->no_gpus), "gpu.enabled is no");
                return 0;
        }
        int r = daemon_find_gpu_worker(d->config, path, sizeof(path));
        if (r == 0 && access(path, X_OK) < 0)
                r = -errno;
        if (r == -ENOENT && d->config->gpu_worker[0] == '\0') {
                snprintf(d->no_gpus, sizeof(d->no_gpus),
                        "tuttid-gpu does not lie beside tuttid: it is built where the CUDA toolkit is");
                return 0;
        }
        if (r < 0) {
                snprintf(d->no_gpus, sizeof(d->no_gpus), "%.300s cannot be started: %s", path, strerror(-r));
                return 0;
        }
        return nursery_new(&d->nursery, path);
}

/* Handles are no capabilities: whoever has seen one can use it. */
static bool daemon_takes_ipc(const struct config *c) {
        bool is_for_one_user = c->is_private || (geteuid() != 0 && c->socket_group[0] == '\0');
        return c->gpu_ipc == GPU_IPC_YES || (c->gpu_ipc == GPU_IPC_AUTO && is_for_one_user);
}

static int daemon_build_lanes(struct daemon *d, const struct doorbell *bell) {
        const struct config *c = d->config;
        struct lanes_options options = { lanes_most_assistants(c->n_workers), c->lane_linger_ns };
        if (options.n_assistants > c->n_lane_assistants)
                options.n_assistants = c->n_lane_assistants;
        if (c->lane_enabled == LANE_NO)
                return 0;
        return lanes_new(&d->house.lanes, &d->loop, d->house.backend, bell, &options);
}

static int daemon_build_workers(struct daemon *d, const struct doorbell *bell) {
        const struct workers_setting setting = { .nursery = d->nursery,
                .why = d->no_gpus,
                .takes_ipc = daemon_takes_ipc(d->config),
                .log_level = d->config->log_level,
                .confine = d->config->confine,
                .hang_limit_ns = d->config->hang_limit_ns,
                .bell = *bell,
                .now_ns = clock_now_ns() };
        d->nursery = NULL;
        return workers_new(&d->house.workers, &d->loop, &setting);
}

/* Floor 2 and the machines, from the bottom up. */
static int daemon_build_rooms(struct daemon *d) {
        struct house *h = &d->house;
        const struct config *c = d->config;
        const struct doorbell bell = { .ring = daemon_ring, .data = d };
        struct rendezvous_settings settings = daemon_times(c);
        h->config = c;
        if (getrandom(settings.hash_seed, sizeof(settings.hash_seed), 0) != sizeof(settings.hash_seed))
                return errno ? -errno : -EIO;
        int r = quotas_new(&h->quotas, &c->quota);
        if (r == 0)
                r = daemon_override_quotas(h->quotas, c);
        if (r == 0)
                r = rendezvous_new(&h->rendezvous, &settings, h->quotas);
        if (r == 0)
                r = planner_new(&h->planner, c->n_cpu_devices, c->chunk_bytes);
        if (r == 0)
                r = host_backend_new(&h->backend, c->isa);
        if (r == 0 && (r = host_self_test(h->backend, d->why, sizeof(d->why))) < 0)
                return r;
        if (r == 0)
                r = engine_new(&h->engine, &d->loop, c, h->backend, &bell);
        if (r == 0)
                r = daemon_build_lanes(d, &bell);
        if (r == 0)
                r = daemon_build_workers(d, &bell);
        if (r == 0)
                r = buffers_new(&h->buffers, h->quotas);
        if (r == 0)
                r = results_new(&h->results, h->quotas);
        if (r == 0)
                r = signals_new(&h->signals, h->quotas);
        if (r == 0)
                r = loans_new(&h->loans, h->quotas);
        if (r == 0)
                r = sessions_new(&h->sessions, &d->loop, h->quotas, &bell);
        if (r == 0)
                r = recorder_new(&h->recorder, h->quotas);
        if (r == 0)
                r = stats_new(&h->stats, h->quotas);
        return r;
}

/* Our own socket goes to the manager, so that the tuttid after us can go on with it. */
static int daemon_build_listener(struct daemon *d) {
        int passed_on = service_take_socket(d->service, d->config->socket, d->why, sizeof(d->why));
        if (passed_on < 0 && passed_on != -ENOENT)
                return passed_on;
        const struct listener_setting setting = { .config = d->config,
                .bell = { .ring = daemon_ring, .data = d },
                .passed_on = passed_on < 0 ? -1 : passed_on,
                .is_kept_alive = service_is_managed(d->service) };
        int r = listener_new(&d->house.listener, &d->loop, &setting, d->why, sizeof(d->why));
        if (r == 0)
                service_claim_connections(d->service, d->config->socket);
        if (r == 0 && passed_on < 0)
                service_keep(d->service, listener_socket(d->house.listener));
        return r;
}

/* The loop thread has little to do and much that waits for it: it asks for slices of 0.1 ms instead of some
 * milliseconds, so that the scheduler lets it go before those that compute, tuttid's own workers among them
 * (Linux 6.12; before it this changes nothing). Behind the workers, which would inherit it. */
static void daemon_ask_for_short_slices(void) {
        struct {
                uint32_t n_bytes, policy;
                uint64_t flags;
                int32_t nice;
                uint32_t priority;
                uint64_t runtime_ns, deadline_ns, period_ns;
        } attr = { 0 };
        if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0 || attr.policy != SCHED_OTHER)
                return;
        attr.n_bytes = sizeof(attr);
        attr.runtime_ns = SLICE_NS;
        (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static int daemon_build(struct daemon *d) {
        daemon_raise_descriptors(d->config);
        int r = service_new(&d->service);
        if (r == 0)
                r = daemon_build_nursery(d);
        if (r == 0)
                r = daemon_build_loop(d);
        if (r == 0)
                r = daemon_build_leash(d);
        if (r == 0)
                r = daemon_build_rooms(d);
        if (r < 0) {
                log_error("cannot start: %s", d->why[0] ? d->why : strerror(-r));
                return r;
        }
        r = daemon_build_listener(d);
        if (r < 0) {
                log_error("%s", d->why);
                return r;
        }
        daemon_ask_for_short_slices();
        confine(d->config->confine, d->unconfined); /* nobody was let in yet */
        d->house.unconfined = d->unconfined;
        d->house.service = d->service;
        r = conductor_new(&d->conductor, &d->house, clock_now_ns());
        if (r < 0)
                log_error("cannot start: %s", strerror(-r));
        else
                conductor_take_kept(d->conductor, clock_now_ns());
        return r;
}

static void daemon_say_ready(const struct daemon *d) {
        char text[128];
        d->house.backend->ops->describe(d->house.backend, text, sizeof(text));
        log_info("tuttid " TUTTI_VERSION " serves %s: %u host device%s, %s", d->config->socket,
                d->config->n_cpu_devices, d->config->n_cpu_devices == 1 ? "" : "s", text);
        const char *fallback = d->house.backend->ops->fallback(d->house.backend);
        if (fallback)
                log_warning("%s", fallback);
        if (d->unconfined[0] != '\0')
                log_warning("%s", d->unconfined);
        service_tell(d->service, "READY=1\nSTATUS=Serving %s: %u host device%s, %s.\n", d->config->socket,
                d->config->n_cpu_devices, d->config->n_cpu_devices == 1 ? "" : "s", text);
}

/* --- the watchdog --- */

/* That this runs is the proof that the loop turns; that the workers live is theirs to say. */
static void daemon_on_watchdog(uv_timer_t *timer) {
        struct daemon *d = timer->data;
        if (engine_workers_have_answered(d->house.engine))
                service_tell(d->service, "WATCHDOG=1\n");
        else
                log_warning("a worker has given no sign of life since the last tick of the watchdog");
        engine_ask_workers(d->house.engine);
}

static void daemon_start_watchdog(struct daemon *d) {
        uint64_t every_ms = service_watchdog_ns(d->service) / NS_PER_MS / WATCHDOG_TICKS;
        if (service_watchdog_ns(d->service) == 0)
                return;
        engine_ask_workers(d->house.engine);
        uv_timer_start(&d->watchdog, daemon_on_watchdog, every_ms, every_ms ? every_ms : 1);
}

/* --- tearing down --- */

static void daemon_on_drain(uv_timer_t *timer) {
        ((struct daemon *)timer->data)->is_rung = true;
}

/* What runs runs to its end and is told; then the sessions end; then the memory goes. */
static void daemon_drain(struct daemon *d) {
        bool is_told = false;
        uv_timer_start(&d->drain, daemon_on_drain, 5, 5);
        while (clock_now_ns() < d->drain_until_ns) {
                if (conductor_is_idle(d->conductor)) {
                        if (is_told)
                                break;
                        conductor_end_all(d->conductor, clock_now_ns());
                        is_told = true;
                }
                uv_run(&d->loop, UV_RUN_ONCE);
        }
        if (!is_told)
                conductor_end_all(d->conductor, clock_now_ns());
        uv_timer_stop(&d->drain);
}

static void daemon_close_handle(uv_handle_t *handle, void *data) {
        if (!uv_is_closing(handle))
                uv_close(handle, NULL);
}

static void daemon_tear_down(struct daemon *d) {
        struct house *h = &d->house;
        d->is_ending = true; /* a signal now changes nothing any more */
        if (h->listener)
                listener_close(h->listener);
        if (d->conductor)
                daemon_drain(d);
        bool is_stuck = false;
        if (h->lanes)
                lanes_stop(h->lanes);
        if (d->has_loop)
                uv_timer_stop(&d->watchdog);
        if (h->engine) {
                engine_stop(h->engine);
                is_stuck = engine_is_stuck(h->engine);
        }
        if (h->workers)
                workers_stop(h->workers);
        if (d->conductor)
                while (conductor_turn(d->conductor, clock_now_ns())) /* what has just been finished */
                        ;
        if (d->has_loop) {
                uv_run(&d->loop, UV_RUN_NOWAIT);
                uv_walk(&d->loop, daemon_close_handle, NULL);
                uv_run(&d->loop, UV_RUN_DEFAULT);
        }
        conductor_free(d->conductor);
        listener_free(h->listener);
        stats_free(h->stats);
        recorder_free(h->recorder);
        sessions_free(h->sessions);
        lanes_free(h->lanes);
        loans_free(h->loans);
        results_free(h->results);
        signals_free(h->signals);
        buffers_free(h->buffers);
        engine_free(h->engine);
        workers_free(h->workers);
        nursery_free(d->nursery);
        if (h->backend)
                h->backend->ops->free(h->backend);
        planner_free(h->planner);
        rendezvous_free(h->rendezvous);
        if (!is_stuck) /* else a charge of what does not close is left */
                quotas_free(h->quotas);
        if (d->has_loop)
                uv_loop_close(&d->loop);
        service_free(d->service);
        uv_library_shutdown();
}

int daemon_run(const struct config *config, const struct config_source *source) {
        struct daemon *d = calloc(1, sizeof(*d));
        if (!d) {
                log_error("cannot start: short of memory");
                return 2;
        }
        d->settings = *config;
        d->config = &d->settings;
        d->source = source;
        signal(SIGPIPE, SIG_IGN);
        signal(SIGCHLD, SIG_IGN); /* the nursery is the one child, and tells its end otherwise */
        int r = daemon_build(d);
        if (r == 0) {
                daemon_say_ready(d);
                daemon_start_watchdog(d);
                uv_run(&d->loop, UV_RUN_DEFAULT);
        }
        daemon_tear_down(d);
        log_settle(LOG_NEVER);
        free(d);
        return r < 0 ? 2 : 0;
}
