#include "gpu/gpu-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/text.h"

/* --- memory --- */

static struct gpu_held *find_held(const struct gpu *g, uint64_t number) {
        struct gpu_held *h;
        HASH_FIND(hh, g->helds, &number, sizeof(number), h);
        return h;
}

static struct memory *find_memory(void *gpu, uint64_t number) {
        const struct gpu_held *h = find_held(gpu, number);
        return h ? h->chore.memory : NULL;
}

static void tell_chore(
        struct gpu *g, uint64_t number, enum status status, const char *why, const struct chore *made) {
        int fd = made ? made->fd : -1;
        g->out.chore_done = (struct worker_chore_done){
                .head = { .verb = WORKER_CHORE_DONE, .n_fds = fd >= 0, .ticket = number },
                .number = number,
                .n_bytes = made ? made->n_bytes : 0,
                .status = status
        };
        text_copy(g->out.chore_done.why, sizeof(g->out.chore_done.why), why);
        gpu_say(g, fd);
}

static struct gpu_held *held_new(struct gpu *g, const struct worker_import *ask, int fd) {
        struct gpu_held *h = calloc(1, sizeof(*h));
        bool is_in = true;
        if (!h)
                return NULL;
        h->number = ask->number;
        h->chore = (struct chore){ .kind = CHORE_IMPORT,
                .session = ask->session,
                .buffer = ask->buffer,
                .fd = fd,
                .read_fd = -1,
                .n_bytes = ask->n_bytes,
                .access = (enum access)ask->access,
                .path = (enum memory_path)ask->path,
                .device = ask->device,
                .handle_offset_bytes = ask->handle_offset_bytes };
        list_init(&h->chore.link);
        memcpy(h->chore.handle, ask->handle, sizeof(h->chore.handle));
        TABLE_ADD(g->helds, h, number, is_in);
        if (is_in)
                return h;
        free(h);
        return NULL;
}

static void held_free(struct gpu *g, struct gpu_held *h) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it loses its way in uthash */
        HASH_DEL(g->helds, h);
        fd_close(&h->chore.fd);
        free(h);
}

/* What was made for a worker before this one comes in as any allocation does. */
static bool held_bring(struct gpu *g, struct gpu_held *h) {
        const struct backend_ops *ops = g->backend->base.ops;
        bool is_made = h->chore.path == PATH_VMM_MADE && h->chore.fd < 0;
        if (is_made) {
                h->chore.kind = CHORE_MAKE;
                ops->make(&g->backend->base, &h->chore);
        } else {
                if (h->chore.path == PATH_VMM_MADE)
                        h->chore.path = PATH_VMM_FD;
                ops->import(&g->backend->base, &h->chore);
        }
        return is_made;
}

void gpu_import(struct gpu *g, const struct worker_import *ask, int fd) {
        if (find_held(g, ask->number)) {
                fd_close(&fd);
                gpu_end(g, 2);
                return;
        }
        struct gpu_held *h = held_new(g, ask, fd);
        if (!h) {
                fd_close(&fd);
                tell_chore(g, ask->number, STATUS_NO_MEMORY, "tuttid-gpu is short of memory", NULL);
                return;
        }
        bool is_made = held_bring(g, h);
        bool is_there = h->chore.status == STATUS_OK && h->chore.memory;
        tell_chore(g, h->number, h->chore.status, h->chore.why, is_made && is_there ? &h->chore : NULL);
        fd_close(&h->chore.fd); /* tuttid keeps its own */
        if (!is_there)
                held_free(g, h);
}

static void held_let_go(struct gpu *g, struct gpu_held *h) {
        h->chore.kind = CHORE_RELEASE;
        g->backend->base.ops->release(&g->backend->base, &h->chore);
        held_free(g, h);
}

void gpu_release(struct gpu *g, const struct worker_release *ask) {
        struct gpu_held *h = find_held(g, ask->number);
        if (h)
                held_let_go(g, h);
        tell_chore(g, ask->number, STATUS_OK, "", NULL);
}

/* --- runs --- */

static void task_free(struct gpu_task *t) {
        if (!t)
                return;
        worker_assembly_deinit(&t->assembly);
        free(t);
}

static void tell_sums(struct gpu *g, const struct gpu_task *t) {
        const struct plan *p = t->run.plan;
        for (uint32_t i = 0; t->assembly.head.has_sums && i < p->n_operands; i += WORKER_SUMS_A_PART) {
                uint32_t n = p->n_operands - i < WORKER_SUMS_A_PART ? p->n_operands - i : WORKER_SUMS_A_PART;
                g->out.head = (struct worker_head){ .verb = WORKER_SUMS, .ticket = t->ticket };
                g->out.sums.first = i;
                g->out.sums.n = n;
                for (uint32_t k = 0; k < n; k++)
                        g->out.sums.sums[k] = p->sums[i + k];
                gpu_say(g, -1);
        }
}

static void say_lengths(struct gpu *g, const struct gpu_task *t) {
        g->out.head = (struct worker_head){ .verb = WORKER_LENGTHS, .ticket = t->ticket };
        gpu_say(g, -1);
        g->out.lengths.n = 0;
}

static void tell_lengths(struct gpu *g, const struct gpu_task *t) {
        const struct plan *p = t->run.plan;
        struct worker_lengths *l = &g->out.lengths;
        l->n = l->reserved = 0;
        for (uint32_t i = 0; i < p->n_steps; i++) {
                const struct step *s = &p->steps[i];
                if (s->kind != STEP_ORDER || s->stage != ORDER_NUMBER)
                        continue;
                l->lengths[l->n++] =
                        (struct worker_length){ .step = i, .n_rows = *plan_extents(p, s->entry) };
                if (l->n < WORKER_LENGTHS_A_PART)
                        continue;
                say_lengths(g, t);
        }
        if (l->n > 0)
                say_lengths(g, t);
}

static void tell_run(struct gpu *g, const struct gpu_task *t) {
        const struct run *r = &t->run;
        if (r->status == STATUS_OK) {
                tell_sums(g, t);
                tell_lengths(g, t);
        }
        g->out.run_done = (struct worker_run_done){ .head = { .verb = WORKER_RUN_DONE, .ticket = t->ticket },
                .status = r->status,
                .late_signal = r->late_signal,
                .culprit = r->culprit,
                .is_untouched = r->is_untouched,
                .started_ns = r->started_ns,
                .done_ns = r->done_ns,
                .found = r->found };
        text_copy(g->out.run_done.why, sizeof(g->out.run_done.why), r->why);
        gpu_say(g, -1);
}

static bool tell_launch(struct gpu *g, struct gpu_task *t) {
        if (!t->run.is_launched || t->is_launch_told || t->run.is_over)
                return false;
        t->is_launch_told = true;
        g->out.head = (struct worker_head){ .verb = WORKER_RUN_LAUNCHED, .ticket = t->ticket };
        gpu_say(g, -1);
        return true;
}

static void refuse_run(struct gpu *g, struct gpu_task *t, enum status status, const char *why) {
        t->run.status = status;
        t->run.is_untouched = true;
        text_copy(t->run.why, sizeof(t->run.why), why);
        tell_run(g, t);
        task_free(t);
}

/* It is whole. */
static void launch(struct gpu *g, struct gpu_task *t) {
        if (t->assembly.missing) {
                refuse_run(g, t, STATUS_INTERNAL,
                        "some of its memory could not be brought to the GPUs; the log of "
                        "tuttid says why");
                return;
        }
        t->run.plan = &t->assembly.plan;
        t->run.group = t->assembly.head.group;
        t->run.user = t->assembly.head.user;
        t->run.is_shared = t->assembly.head.is_shared;
        t->run.limit_ns = t->assembly.head.limit_ns;
        t->run.signals = t->assembly.signals;
        t->run.n_signals = t->assembly.head.n_signals;
        list_init(&t->run.link);
        list_append(&g->running, &t->link);
        int r = g->backend->base.ops->launch(&g->backend->base, &t->run);
        if (r < 0)
                t->run.is_over = true;
}

void gpu_begin_run(struct gpu *g, const struct worker_run *ask) {
        struct gpu_task *t = g->arriving ? NULL : calloc(1, sizeof(*t));
        if (!t) {
                gpu_end(g, 2);
                return;
        }
        list_init(&t->link);
        t->ticket = ask->head.ticket;
        worker_assembly_init(&t->assembly);
        g->arriving = t;
        if (worker_assembly_begin(&t->assembly, ask) < 0)
                gpu_end(g, 2);
}

void gpu_add_part(struct gpu *g, const struct worker_part *part) {
        const struct worker_memories memories = { .find = find_memory, .data = g };
        struct gpu_task *t = g->arriving;
        int r = t ? worker_assembly_add(&t->assembly, part, &memories) : -EPROTO;
        if (r < 0)
                gpu_end(g, 2);
        if (r <= 0)
                return;
        g->arriving = NULL;
        launch(g, t);
}

bool gpu_tell_runs(struct gpu *g) {
        bool is_any = false;
        list_for_each_safe (it, next, &g->running) {
                struct gpu_task *t = list_entry(it, struct gpu_task, link);
                is_any |= tell_launch(g, t);
                if (!t->run.is_over || (g->backend->is_broken && t->run.status == STATUS_DEVICE_LOST))
                        continue; /* the latter is told by the end of this process, before anything else is
                                     sent here */
                list_unlink(&t->link);
                tell_run(g, t);
                task_free(t);
                is_any = true;
        }
        return is_any;
}

/* What still runs is left to the end of the process: it may never end. */
void gpu_let_go(struct gpu *g) {
        struct gpu_held *h, *next;
        task_free(g->arriving);
        g->arriving = NULL;
        if (!g->backend || g->backend->is_broken || !list_is_empty(&g->running))
                return;
        HASH_ITER (hh, g->helds, h, next)
                held_let_go(g, h);
        g->backend->base.ops->free(&g->backend->base);
        g->backend = NULL;
}
