/* What the process says, looked at before it is believed. */
#include "worker-internal.h"

#include <errno.h>
#include <string.h>
#include "base/fd.h"
#include "base/log.h"

static void take_hello(struct workers *w, const struct worker_hello *hello) {
        char why[WORKER_TEXT_BYTES];
        if (w->state != WORKER_STARTING) {
                workers_lose(w, "it said hello twice");
        } else if (strcmp(hello->build, worker_build()) != 0) {
                snprintf(why, sizeof(why),
                        "tuttid-gpu is of another build (%s) than tuttid (%s); restart tuttid", hello->build,
                        worker_build());
                workers_give_up(w, why);
        } else {
                workers_enter(w, WORKER_TESTING);
                w->needs_settings = true;
                w->n_fallbacks = 0;
                for (uint32_t k = 0; k < w->n_devices; k++) /* until it is seen again */
                        text_copy(w->devices[k].why, sizeof(w->devices[k].why),
                                "it is gone since tuttid-gpu was started anew");
                workers_flush(w);
        }
}

/* GPU:k stays what it was when it was first seen: a plan names its devices by k. */
static void take_device(struct workers *w, const struct worker_device *d) {
        struct gpu_device *device = &w->devices[d->device];
        bool is_other =
                w->has_served && (d->device >= w->n_devices || strcmp(device->uuid, d->report.uuid) != 0);
        if (is_other) {
                if (d->device < w->n_devices)
                        snprintf(device->why, sizeof(device->why),
                                "another device stands in its place since tuttid-gpu was started anew; "
                                "restart "
                                "tuttid");
                return;
        }
        *device = d->report;
        if (!w->has_served && d->device >= w->n_devices)
                w->n_devices = d->device + 1;
}

static void take_fallback(struct workers *w, const struct gpu_fallback *f) {
        if (w->n_fallbacks == MAX_GPU_FALLBACKS)
                return;
        w->fallbacks[w->n_fallbacks++] = *f;
        log_warning("%s: %s", f->what, f->why);
}

static void take_ready(struct workers *w) {
        if (w->state != WORKER_TESTING) {
                workers_lose(w, "it was ready twice");
                return;
        }
        workers_enter(w, WORKER_SERVING);
        log_about(LOG_LEVEL_NOTICE, LOG_PID((uint32_t)w->pid), "tuttid-gpu (pid %d) serves %u GPU%s%s",
                (int)w->pid, w->n_devices, w->n_devices == 1 ? "" : "s", w->n_restarts ? " again" : "");
        w->has_served = true;
        w->lost_ns = WORKER_NEVER;
        w->why[0] = '\0';
        doorbell_ring(&w->bell);
}

static void take_off(struct workers *w, const struct worker_off *off) {
        w->culprit = off->head.ticket;
        if (off->is_final)
                workers_give_up(w, off->why);
        else
                workers_lose(w, "%s", off->why);
        w->culprit = 0;
}

static void take_sums(struct workers *w, const struct worker_sums *s) {
        struct task *t = workers_find_seat(w, s->head.ticket);
        if (!t || !t->plan.sums || s->first > t->plan.n_operands || s->n > t->plan.n_operands - s->first) {
                workers_lose(w, "it told checksums that nobody had asked for");
                return;
        }
        for (uint32_t i = 0; i < s->n; i++)
                t->plan.sums[s->first + i] = s->sums[i];
}

/* No more than have come in, and than every output has room for. */
static bool length_is_well(const struct plan *p, const struct worker_length *l) {
        const struct step *s = l->step < p->n_steps ? &p->steps[l->step] : NULL;
        return s && s->kind == STEP_ORDER && s->stage == ORDER_NUMBER && l->n_rows <= s->room &&
               l->n_rows <= s->bound * ORDER_BLOCK;
}

static void take_lengths(struct workers *w, const struct worker_lengths *l) {
        struct task *t = workers_find_seat(w, l->head.ticket);
        bool is_well = t != NULL;
        for (uint32_t i = 0; is_well && i < l->n; i++) {
                is_well = length_is_well(&t->plan, &l->lengths[i]);
                if (is_well)
                        plan_extents(&t->plan,
                                t->plan.steps[l->lengths[i].step].entry)[t->plan.extents_of_entry - 1] =
                                l->lengths[i].n_rows;
        }
        if (!is_well)
                workers_lose(w, "it told lengths that cannot be");
}

static void take_run_launched(struct workers *w, const struct worker_run_launched *l) {
        struct task *t = workers_find_seat(w, l->head.ticket);
        if (!t || !workers_is_out(t) || !list_is_empty(&t->launched_link)) {
                workers_lose(w, "it launched a run that it was not given");
                return;
        }
        list_append(&w->launched_tasks, &t->launched_link);
        doorbell_ring(&w->bell);
}

/* Whose memory has failed is one of those that it was given; nobody else is to suffer. false: it is none. */
static bool take_culprit(struct task *t, const struct worker_run_done *d) {
        if (d->status != STATUS_BAD_FD)
                return true;
        const struct memory *m = d->culprit > 0 && d->culprit <= t->plan.n_operands
                                         ? t->plan.operands[d->culprit - 1].memory
                                         : NULL;
        t->culprit_session = m ? m->session : 0;
        t->culprit_buffer = m ? m->buffer : 0;
        return m && m->session != 0;
}

static void take_run_done(struct workers *w, const struct worker_run_done *d) {
        struct task *t = workers_find_seat(w, d->head.ticket);
        if (!t || !workers_is_out(t)) {
                workers_lose(w, "it ended a run that it was not given");
                return;
        }
        if (!take_culprit(t, d)) {
                workers_lose(w, "it blamed memory that no client has for the end of a run");
                return;
        }
        workers_take_seat(w, d->head.ticket);
        t->started_ns = d->started_ns;
        t->done_ns = d->done_ns;
        t->found = d->found;
        t->late_signal = d->late_signal;
        t->is_untouched = d->is_untouched;
        uint32_t k = t->plan.device - DEVICE_GPU;
        if (k < w->n_devices) {
                w->stats[k].n_tasks++;
                w->stats[k].busy_ns += d->done_ns > d->started_ns ? d->done_ns - d->started_ns : 0;
        }
        workers_finish_task(w, t, (enum status)d->status, d->why);
}

/* Before it is ready it says nothing of work. */
static bool is_in_time(const struct workers *w, uint32_t verb) {
        if (verb == WORKER_CHORE_DONE || verb == WORKER_RUN_LAUNCHED || verb == WORKER_SUMS ||
                verb == WORKER_LENGTHS || verb == WORKER_RUN_DONE)
                return w->state == WORKER_SERVING;
        if (verb == WORKER_DEVICE || verb == WORKER_READY)
                return w->state == WORKER_TESTING;
        return true;
}

static void take_packet(struct workers *w, const union worker_packet *p, int *fd) {
        if (!is_in_time(w, p->head.verb)) {
                workers_lose(w, "it spoke out of turn");
                return;
        }
        switch ((enum worker_verb)p->head.verb) {
        case WORKER_HELLO: take_hello(w, &p->hello); return;
        case WORKER_DEVICE: take_device(w, &p->device); return;
        case WORKER_FALLBACK: take_fallback(w, &p->fallback.report); return;
        case WORKER_READY: take_ready(w); return;
        case WORKER_OFF: take_off(w, &p->off); return;
        case WORKER_CHORE_DONE: workers_answer(w, &p->chore_done, fd); return;
        case WORKER_RUN_LAUNCHED: take_run_launched(w, &p->run_launched); return;
        case WORKER_SUMS: take_sums(w, &p->sums); return;
        case WORKER_LENGTHS: take_lengths(w, &p->lengths); return;
        case WORKER_RUN_DONE: take_run_done(w, &p->run_done); return;
        case WORKER_PONG:
        case WORKER_SETTINGS:
        case WORKER_IMPORT:
        case WORKER_RELEASE:
        case WORKER_RUN:
        case WORKER_PART:
        case WORKER_PING: return;
        }
}

/* One packet; whether there may be more. */
static bool workers_read_one(struct workers *w) {
        struct packet packet;
        int r = channel_receive(w->socket, w->in->bytes, &packet);
        bool is_well = r > 0 && worker_check(w->in, packet.n_bytes, packet.n_fds, WORKER_END_GPU) == 0;
        if (is_well) {
                int none = -1;
                workers_note_life(w);
                take_packet(w, w->in, packet.n_fds ? &packet.fds[0] : &none);
        }
        packet_close_fds(&packet); /* of what nobody took: it comes from a process of our own */
        if (r > 0 && !is_well)
                workers_lose(w, "it spoke nonsense");
        else if (r == 0)
                workers_await_end(w);
        else if (r < 0 && r != -EAGAIN)
                workers_lose(w, "it cannot be understood: %s", strerror(-r));
        return is_well;
}

bool workers_read(struct workers *w) {
        for (int i = 0; i < WORKER_PACKETS; i++)
                if (w->socket < 0 || !workers_read_one(w))
                        return false;
        return true;
}
