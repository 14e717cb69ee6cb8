#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "page.h"

struct fakecuda {
        struct fake_page *page;
        int fd;
};

struct fakecuda *fakecuda_open(const char *path) {
        struct fakecuda *f = calloc(1, sizeof(*f));
        if (!f)
                return NULL;
        int r = fake_page_map(path, &f->fd, &f->page);
        if (r == 0)
                return f;
        free(f);
        errno = -r;
        return NULL;
}

void fakecuda_close(struct fakecuda *f) {
        if (!f)
                return;
        fake_page_unmap(f->fd, f->page);
        free(f);
}

static enum fake_call call_named(const char *name) {
        enum fake_call call = name ? fake_call_find(name, (unsigned int)strlen(name)) : N_FAKE_CALLS;
        if (name && call == N_FAKE_CALLS) {
                fprintf(stderr, "fakecuda: there is no call %s\n", name);
                abort();
        }
        return call;
}

static bool is_meant(const struct fake_process *process, const char *who) {
        return atomic_load(&process->pid) && fake_process_is(process, who ? who : "");
}

uint64_t fakecuda_calls(const struct fakecuda *f, const char *who, const char *call) {
        enum fake_call c = call_named(call);
        if (c == N_FAKE_CALLS)
                return 0;
        uint64_t n = who ? 0 : atomic_load(&f->page->gone_calls[c]);
        for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
                if (is_meant(&f->page->processes[i], who))
                        n += atomic_load(&f->page->processes[i].calls[c]);
        return n;
}

uint64_t fakecuda_bytes(const struct fakecuda *f, unsigned int device) {
        fake_page_lock(f->page);
        uint64_t n_bytes = fake_page_bytes(f->page, f->fd, -1, device);
        fake_page_unlock(f->page);
        return n_bytes;
}

static bool is_alive(const struct fakecuda *f, int slot, const char *who) {
        return is_meant(&f->page->processes[slot], who) && fake_page_is_alive(f->fd, slot, -1);
}

unsigned int fakecuda_ipc_open(const struct fakecuda *f, const char *who) {
        unsigned int n = 0;
        for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
                if (is_alive(f, i, who))
                        n += atomic_load(&f->page->processes[i].n_ipc_open);
        return n;
}

unsigned int fakecuda_processes(const struct fakecuda *f, const char *who) {
        unsigned int n = 0;
        for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
                n += is_alive(f, i, who);
        return n;
}

static void no_room(const char *what) {
        fprintf(stderr, "fakecuda: no room for another %s\n", what);
        abort();
}

void fakecuda_strike(struct fakecuda *f, const struct fakecuda_strike *strike) {
        struct fake_fault *fault = NULL;
        fake_page_lock(f->page);
        for (int i = 0; i < FAKE_MAX_FAULTS && !fault; i++)
                if (!atomic_load(&f->page->faults[i].is_armed))
                        fault = &f->page->faults[i];
        if (!fault)
                no_room("fault");
        fault->call = call_named(strike->call);
        fault->action = (uint32_t)strike->fault;
        fault->code = strike->code;
        fault->ms = strike->ms;
        fault->repeats = strike->repeats;
        atomic_store(&fault->n_left, strike->n ? strike->n : 1);
        snprintf(fault->who, sizeof(fault->who), "%s", strike->who ? strike->who : "");
        atomic_store(&fault->is_armed, 1);
        fake_page_unlock(f->page);
}

bool fakecuda_has_struck(const struct fakecuda *f) {
        for (int i = 0; i < FAKE_MAX_FAULTS; i++)
                if (atomic_load(&f->page->faults[i].is_armed) && atomic_load(&f->page->faults[i].n_left) > 0)
                        return false;
        return true;
}

bool fakecuda_try(const struct fakecuda *f, unsigned int i, struct fakecuda_attempt *ret) {
        if (i >= atomic_load(&f->page->n_tries))
                return false;
        const struct fake_try *t = &f->page->tries[i];
        *ret = (struct fakecuda_attempt){ .name = t->name, .error = t->error, .must_work = t->must_work };
        return true;
}

void fakecuda_clear(struct fakecuda *f) {
        for (int i = 0; i < FAKE_MAX_FAULTS; i++)
                atomic_store(&f->page->faults[i].is_armed, 0);
}

void fakecuda_set_order(struct fakecuda *f, enum fakecuda_order order) {
        atomic_store(&f->page->order, (uint32_t)order);
}

void fakecuda_hold(struct fakecuda *f, const char *who, const char *call) {
        struct fake_hold *hold = NULL;
        fake_page_lock(f->page);
        for (int i = 0; i < FAKE_MAX_HOLDS && !hold; i++)
                if (!atomic_load(&f->page->holds[i].is_armed))
                        hold = &f->page->holds[i];
        if (!hold)
                no_room("hold");
        hold->call = call_named(call);
        snprintf(hold->who, sizeof(hold->who), "%s", who ? who : "");
        atomic_store(&hold->n_allowed, 0);
        atomic_store(&hold->is_armed, 1);
        fake_page_unlock(f->page);
}

unsigned int fakecuda_held(const struct fakecuda *f, const char *who) {
        unsigned int n = 0;
        for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
                if (is_alive(f, i, who))
                        n += atomic_load(&f->page->processes[i].n_held);
        return n;
}

bool fakecuda_wait_held(const struct fakecuda *f, const char *who, unsigned int n, double seconds) {
        for (double waited = 0; waited < seconds; waited += 0.002) {
                if (fakecuda_held(f, who) >= n)
                        return true;
                nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        }
        return fakecuda_held(f, who) >= n;
}

void fakecuda_let(struct fakecuda *f, unsigned int n) {
        for (int i = 0; i < FAKE_MAX_HOLDS; i++)
                if (atomic_load(&f->page->holds[i].is_armed))
                        atomic_fetch_add(&f->page->holds[i].n_allowed, n);
}

void fakecuda_release(struct fakecuda *f) {
        for (int i = 0; i < FAKE_MAX_HOLDS; i++)
                atomic_store(&f->page->holds[i].is_armed, 0);
}
