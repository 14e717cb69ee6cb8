/* Users in turn on GPUs (P21). A stream cannot be taken back, and a device does what lies in its streams as
 * it likes: so whoever shares GPUs with others has little there at a time, and what has no turn yet is held
 * by the host. Then a newcomer waits for one run of each of the others, and for no queue.
 *
 * At work are runs that lie in streams and wait for no client. On each device a user who is alone may have
 * two, or as many as read and write ALONE_BYTES, which keeps it busy; among others one, or as many small ones
 * as read and write SHARED_BYTES. Runs of one user on one device get their turn in the order in which they
 * were ready: a large one is not passed by small ones for ever.
 *
 * Lanes are few: while somebody waits for one, nobody else puts more into those that he has. */
#include <stdlib.h>
#include "backends/cuda/flight.h"

#define ALONE_BYTES  (UINT64_C(1) << 30)
#define SHARED_BYTES (UINT64_C(64) << 20)
/* Up to so much a run may wait for its client in its stream though others are there; MAX_WAITING of them are
 * what may begin at once. */
#define SMALL_BYTES (SHARED_BYTES / MAX_WAITING)

/* What a user has on a device. */
struct share {
        uint32_t n_at_work;
        uint64_t bytes_at_work;
        /* Ready, and the first without a turn. It is so on all devices that it uses, or on none: so no two
         * wait for each other. */
        const struct flight *next;
};

struct tenant {
        struct list link;
        uint32_t user, n_runs; /* all of his */
        struct share shares[MAX_GPU_DEVICES];
};

static uint64_t bytes_of(const struct flight *f) {
        return f->run->plan->moved_bytes;
}

static bool uses(const struct flight *f, uint32_t i) {
        return f->devices & UINT64_C(1) << i;
}

bool tenant_join(struct cuda *c, struct flight *f) {
        struct tenant *t = NULL;
        list_for_each (it, &c->tenants)
                if (list_entry(it, struct tenant, link)->user == f->run->user)
                        t = list_entry(it, struct tenant, link);
        if (!t) {
                t = calloc(1, sizeof(*t));
                if (!t)
                        return false;
                t->user = f->run->user;
                list_init(&t->link);
                list_append(&c->tenants, &t->link);
                c->n_tenants++;
        }
        t->n_runs++;
        f->tenant = t;
        c->is_shared = f->run->is_shared;
        return true;
}

void tenant_leave(struct cuda *c, struct flight *f) {
        struct tenant *t = f->tenant;
        if (!t)
                return;
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct share *s = &t->shares[i];
                if (f->is_counted && uses(f, i)) {
                        s->n_at_work--;
                        s->bytes_at_work -= bytes_of(f);
                }
                if (s->next == f)
                        s->next = NULL;
        }
        if (c->awaits_lane == t)
                c->awaits_lane = NULL; /* whoever still does says so again */
        f->tenant = NULL;
        if (--t->n_runs > 0)
                return;
        list_unlink(&t->link);
        c->n_tenants--;
        free(t);
}

static bool is_alone(const struct cuda *c) {
        return c->n_tenants == 1 && !c->is_shared;
}

static bool has_room(const struct cuda *c, const struct share *s, const struct flight *f) {
        uint64_t bytes = s->bytes_at_work + bytes_of(f);
        return is_alone(c) ? s->n_at_work < 2 || bytes <= ALONE_BYTES
                           : s->n_at_work < 1 || bytes <= SHARED_BYTES;
}

bool tenant_has_turn(struct cuda *c, struct flight *f) {
        struct tenant *t = f->tenant;
        bool has_turn = true;
        if (c->awaits_lane && c->awaits_lane != t)
                return false;
        for (uint32_t i = 0; i < c->n_devices; i++)
                if (uses(f, i) && t->shares[i].next && t->shares[i].next != f)
                        return false;
        for (uint32_t i = 0; i < c->n_devices; i++)
                has_turn &= !uses(f, i) || has_room(c, &t->shares[i], f);
        for (uint32_t i = 0; i < c->n_devices; i++)
                if (uses(f, i))
                        t->shares[i].next = has_turn ? NULL : f;
        return has_turn;
}

void tenant_found_lane(struct cuda *c, const struct flight *f) {
        if (!f->lane && !c->awaits_lane)
                c->awaits_lane = f->tenant;
        else if (f->lane && c->awaits_lane == f->tenant)
                c->awaits_lane = NULL;
}

void tenant_works(const struct cuda *c, struct flight *f) {
        if (f->is_counted)
                return;
        f->is_counted = true;
        for (uint32_t i = 0; i < c->n_devices; i++) {
                if (!uses(f, i))
                        continue;
                f->tenant->shares[i].n_at_work++;
                f->tenant->shares[i].bytes_at_work += bytes_of(f);
        }
}

bool tenant_may_wait_on_device(const struct cuda *c, const struct flight *f) {
        return is_alone(c) || bytes_of(f) <= SMALL_BYTES;
}
