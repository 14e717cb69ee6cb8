#include "rendezvous-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/large.h"

void outcome_init(struct outcome *o) {
        list_init(&o->sealed);
        list_init(&o->ended);
        list_init(&o->formed);
        list_init(&o->unformed);
        list_init(&o->ejected);
        list_init(&o->stalled);
        list_init(&o->struck);
        list_init(&o->answered);
        list_init(&o->over);
        o->n_looked = 0;
}

bool outcome_is_empty(const struct outcome *o) {
        return list_is_empty(&o->sealed) && list_is_empty(&o->ended) && list_is_empty(&o->formed) &&
               list_is_empty(&o->unformed) && list_is_empty(&o->ejected) && list_is_empty(&o->stalled) &&
               list_is_empty(&o->struck) && list_is_empty(&o->answered) && list_is_empty(&o->over);
}

void outcome_put(struct list *list, struct list *link) {
        list_unlink(link);
        list_append(list, link);
}

uint64_t deadline_after(uint64_t now_ns, uint64_t timeout_ns) {
        uint64_t at_ns;
        if (timeout_ns == 0 || __builtin_add_overflow(now_ns, timeout_ns, &at_ns))
                return ALARM_NEVER;
        return at_ns;
}

/* --- life --- */

static bool make_table(struct rendezvous *r) {
        int table_oom_ = 0;
        struct meeting *sentinel = &r->sentinel;
        HASH_ADD_KEYPTR_BYHASHVALUE(hh, r->meetings, &sentinel->hash_key, 0, 0, sentinel);
        return !table_oom_;
}

void rendezvous_set_times(struct rendezvous *r, const struct rendezvous_settings *settings) {
        r->settings.default_timeout_ns = settings->default_timeout_ns;
        r->settings.join_timeout_ns = settings->join_timeout_ns;
        r->settings.stall_warn_ns = settings->stall_warn_ns;
        r->settings.busy_max_ns = settings->busy_max_ns;
}

int rendezvous_new(
        struct rendezvous **ret, const struct rendezvous_settings *settings, struct quotas *quotas) {
        struct rendezvous *r = calloc(1, sizeof(*r));
        if (!r)
                return -ENOMEM;
        r->settings = *settings;
        r->quotas = quotas;
        list_init(&r->groups);
        list_init(&r->over);
        for (size_t i = 0; i < N_HALF_CLASSES; i++)
                list_init(&r->halves[i]);
        list_init(&r->buried);
        if (clocks_init(&r->clocks) < 0 || !make_table(r)) {
                clocks_deinit(&r->clocks);
                free(r);
                return -ENOMEM;
        }
        *ret = r;
        return 0;
}

static void free_circles(struct rendezvous *r, struct list *circles) {
        list_for_each_safe (it, tmp, circles) {
                circle_free(r, list_entry(it, struct circle, all_link));
        }
}

static void free_half_pool(struct list *pool) {
        struct list *link;
        while ((link = list_take_first(pool)))
                rendezvous_half_unmake(list_entry(link, struct half, pool_link));
}

void rendezvous_free(struct rendezvous *r) {
        struct half *half;
        if (!r)
                return;
        free_circles(r, &r->groups);
        free_circles(r, &r->over);
        while ((half = rendezvous_take_buried(r))) {
                charge_release(&half->memory);
                rendezvous_half_unmake(half);
        }
        CHECK(!r->parties && !r->members);
        for (size_t i = 0; i < N_HALF_CLASSES; i++)
                free_half_pool(&r->halves[i]);
        clocks_deinit(&r->clocks);
        HASH_DEL(r->meetings, &r->sentinel);
        free(r);
}

/* In front: what was used last is still in the cache. */
static void pool_put(struct list *pool, struct list *link) {
        list_append(pool->next, link);
}

/* --- halves: in pools by how many entries they have room for --- */

static unsigned int half_class(uint32_t n_entries) {
        return n_entries <= 1 ? 0 : 32 - (unsigned int)__builtin_clz(n_entries - 1);
}

static size_t half_bytes(uint32_t capacity) {
        size_t n_marks = capacity > DIGEST_ENTRIES ? capacity / MARK_ENTRIES : 0; /* a power of two */
        return sizeof(struct half) + capacity * sizeof(struct entry) + n_marks * sizeof(uint64_t);
}

size_t rendezvous_half_bytes(uint32_t n_entries) {
        return half_bytes(1u << half_class(n_entries));
}

static bool half_is_large(uint32_t capacity) {
        return half_bytes(capacity) >= LARGE_HALF_BYTES;
}

static struct half *half_take(struct rendezvous *r, unsigned int class) {
        struct list *link = list_take_first(&r->halves[class]);
        size_t n_bytes = half_bytes(1u << class);
        if (!link)
                return half_is_large(1u << class) ? large_map(n_bytes) : malloc(n_bytes);
        r->pooled_bytes -= n_bytes;
        return list_entry(link, struct half, pool_link);
}

void rendezvous_half_unmake(struct half *half) {
        if (half_is_large(half->capacity))
                large_unmap(half, half_bytes(half->capacity));
        else
                free(half);
}

struct half *rendezvous_half_new(struct rendezvous *r, uint32_t n_entries) {
        if (n_entries > MAX_ENTRIES)
                return NULL;
        unsigned int class = half_class(n_entries);
        struct half *half = half_take(r, class);
        if (!half)
                return NULL;
        memset(half, 0, sizeof(*half));
        half->entries = (struct entry *)(void *)(half + 1);
        half->capacity = 1u << class;
        half->marks = (uint64_t *)(void *)(half->entries + half->capacity);
        list_init(&half->pool_link);
        return half;
}

enum status rendezvous_half_charge(struct rendezvous *r, struct half *half, uint32_t uid, struct error *err) {
        if (half->charge.user)
                return STATUS_OK;
        uint32_t n_entries = half->signature.n_entries;
        uint64_t n_begun = (n_entries + QUOTA_ENTRIES_BEGUN - 1ull) / QUOTA_ENTRIES_BEGUN;
        enum status status =
                quota_charge(r->quotas, &half->memory, uid, QUOTA_MEMORY_BYTES, half_bytes(n_entries), err);
        if (status == STATUS_OK)
                status = quota_charge(
                        r->quotas, &half->charge, uid, QUOTA_PENDING, n_begun ? n_begun : 1, err);
        if (status != STATUS_OK)
                charge_release(&half->memory);
        return status;
}

struct half *rendezvous_take_half(struct rendezvous *r, struct meeting *m, uint32_t rank) {
        struct half *half = m->halves[rank], *stand_in = rendezvous_half_new(r, 0);
        if (!stand_in)
                return NULL;
        const uint32_t capacity = stand_in->capacity;
        *stand_in = *half;
        stand_in->capacity = capacity;
        stand_in->n_checked = 0;
        stand_in->memory = (struct charge){ 0 };
        list_init(&stand_in->pool_link);
        half->charge = (struct charge){ 0 };
        m->halves[rank] = stand_in;
        if (m->reference == half)
                m->reference = stand_in;
        return half;
}

struct half *rendezvous_take_buried(struct rendezvous *r) {
        struct list *link = list_take_first(&r->buried);
        return link ? list_entry(link, struct half, pool_link) : NULL;
}

void rendezvous_half_free(struct rendezvous *r, struct half *half) {
        if (!half)
                return;
        charge_release(&half->charge);
        list_unlink(&half->pool_link);
        size_t n_bytes = half_bytes(half->capacity);
        bool has_room = r->pooled_bytes + n_bytes <= MAX_POOLED_BYTES;
        if (!has_room && half_is_large(half->capacity)) {
                list_append(&r->buried, &half->pool_link);
                return;
        }
        charge_release(&half->memory);
        if (!has_room) {
                rendezvous_half_unmake(half);
                return;
        }
        r->pooled_bytes += n_bytes;
        pool_put(&r->halves[half_class(half->capacity)], &half->pool_link);
}

/* --- keys and meetings --- */

uint32_t secret_hash(const struct rendezvous *r, const void *data, size_t n) {
        return (uint32_t)sip_hash(r->settings.hash_seed, data, n);
}

/* A number has no name, and a name has a byte at least: the two never collide. With the epoch, for what an
 * older one has sealed may still run. */
void lookup_make(
        const struct rendezvous *r, const struct group *g, const struct key *key, struct lookup *ret) {
        ret->key.group = g->id;
        ret->key.epoch = g->epoch;
        ret->key.sequence = key->n_bytes ? 0 : key->sequence;
        memcpy(ret->key.name, key->bytes, key->n_bytes);
        ret->n_bytes = (uint32_t)offsetof(struct meeting_key, name) + key->n_bytes;
        ret->hash = secret_hash(r, &ret->key, ret->n_bytes);
}

struct meeting *meeting_find(const struct rendezvous *r, const struct lookup *l) {
        struct meeting *m;
        HASH_FIND_BYHASHVALUE(hh, r->meetings, &l->key, l->n_bytes, l->hash, m);
        return m;
}

static size_t meeting_bytes(const struct group *g) {
        return sizeof(struct meeting) + g->world_size * sizeof(struct half *);
}

static struct meeting *meeting_take(struct rendezvous *r, struct circle *c) {
        struct list *link = list_take_first(&c->pool);
        if (link) {
                r->pooled_bytes -= meeting_bytes(&c->group);
                return list_entry(link, struct meeting, group_link);
        }
        if (!clocks_reserve(&r->clocks, c->group.uid, ALARM_DEADLINE))
                return NULL;
        struct meeting *m = malloc(meeting_bytes(&c->group));
        if (m)
                clocks_enter(&r->clocks, c->group.uid, ALARM_DEADLINE);
        return m;
}

static void meeting_init(struct meeting *m, struct circle *c) {
        memset(m, 0, meeting_bytes(&c->group));
        m->group = &c->group;
        m->epoch = c->group.epoch;
        m->halves = (struct half **)(void *)(m + 1);
        alarm_init(&m->deadline);
        list_init(&m->group_link);
        list_init(&m->outcome_link);
}

static struct meeting *lack_memory(struct error *err) {
        error_init(err, STATUS_NO_MEMORY);
        error_set_detail(err, "tuttid has no memory for this collective");
        return NULL;
}

struct meeting *meeting_make(struct rendezvous *r, struct circle *c, struct error *err) {
        struct charge charge = { 0 };
        if (quota_charge(r->quotas, &charge, c->group.uid, QUOTA_MEMORY_BYTES, meeting_bytes(&c->group),
                    err) != STATUS_OK)
                return NULL;
        struct meeting *m = meeting_take(r, c);
        if (!m) {
                charge_release(&charge);
                return lack_memory(err);
        }
        meeting_init(m, c);
        m->charge = charge;
        c->group.n_references++;
        return m;
}

struct meeting *meeting_new(struct rendezvous *r, struct circle *c, const struct lookup *l,
        const struct key *key, struct error *err) {
        struct meeting *m = meeting_make(r, c, err);
        if (!m)
                return NULL;
        m->key = *key;
        memcpy(&m->hash_key, &l->key, l->n_bytes);
        m->hash_key_bytes = l->n_bytes;
        int table_oom_ = 0;
        HASH_ADD_KEYPTR_BYHASHVALUE(hh, r->meetings, &m->hash_key, m->hash_key_bytes, l->hash, m);
        if (table_oom_) {
                meeting_recycle(r, m);
                return lack_memory(err);
        }
        list_append(&c->group.meetings, &m->group_link);
        if (c->oldest == &c->group.meetings)
                c->oldest = &m->group_link;
        c->group.n_meetings++;
        return m;
}

void meeting_detach(struct rendezvous *r, struct meeting *m) {
        struct circle *c = circle_of(m->group);
        HASH_DEL(r->meetings, m);
        clocks_set(&r->clocks, c->group.uid, ALARM_DEADLINE, &m->deadline, ALARM_NEVER);
        if (c->oldest == &m->group_link)
                c->oldest = m->group_link.next;
        list_unlink(&m->group_link);
        m->group->n_meetings--;
}

static void meeting_free(struct rendezvous *r, struct meeting *m) {
        clocks_leave(&r->clocks, m->group->uid, ALARM_DEADLINE);
        free(m);
}

void meeting_recycle(struct rendezvous *r, struct meeting *m) {
        struct circle *c = circle_of(m->group);
        rankset_for_each (rank, &m->have) {
                rendezvous_half_free(r, m->halves[rank]);
        }
        error_free(r, m->group, m->error);
        list_unlink(&m->group_link);
        list_unlink(&m->outcome_link);
        charge_release(&m->charge);
        c->group.n_references--;
        size_t n_bytes = meeting_bytes(&c->group);
        if (r->pooled_bytes + n_bytes > MAX_POOLED_BYTES) {
                meeting_free(r, m);
                return;
        }
        r->pooled_bytes += n_bytes;
        pool_put(&c->pool, &m->group_link);
}

void circle_drain_pool(struct rendezvous *r, struct circle *c) {
        struct list *link;
        while ((link = list_take_first(&c->pool))) {
                r->pooled_bytes -= meeting_bytes(&c->group);
                meeting_free(r, list_entry(link, struct meeting, group_link));
        }
}

/* --- who is who --- */

struct party *party_find(const struct rendezvous *r, uint64_t session) {
        struct party *party;
        HASH_FIND(hh, r->parties, &session, sizeof(session), party);
        return party;
}

const struct member *rendezvous_next_member(
        const struct rendezvous *r, uint64_t session, const struct member *after) {
        const struct party *party = party_find(r, session);
        if (!party)
                return NULL;
        const struct list *next = after ? after->session_link.next : party->members.next;
        return next == &party->members ? NULL : list_entry(next, struct member, session_link);
}

struct party *party_get(struct rendezvous *r, uint64_t session) {
        struct party *party = party_find(r, session);
        if (party)
                return party;
        party = malloc(sizeof(*party));
        if (!party)
                return NULL;
        party->session = session;
        list_init(&party->members);
        int is_in;
        TABLE_ADD(r->parties, party, session, is_in);
        if (is_in)
                return party;
        free(party);
        return NULL;
}

void party_drop(struct rendezvous *r, struct party *party) {
        if (!party || !list_is_empty(&party->members))
                return;
        HASH_DEL(r->parties, party);
        free(party);
}

struct member *rendezvous_find_member(struct rendezvous *r, uint64_t session, uint64_t membership) {
        struct member *member;
        HASH_FIND(hh, r->members, &membership, sizeof(membership), member);
        return member && member->session == session ? member : NULL;
}

static enum status refuse_member(
        const struct member *member, enum status status, const char *detail, struct error *err) {
        error_init(err, status);
        group_describe(member->group, err);
        err->rank = (int32_t)member->rank;
        err->field = FIELD_MEMBERSHIP;
        err->loss = member->loss;
        error_set_detail(err, "%s", detail);
        return status;
}

static enum status refuse_lost(const struct member *member, uint64_t now_ns, struct error *err) {
        struct rankset about = { { 0 } };
        refuse_member(member, STATUS_REPLICA_LOST, member->why, err);
        rankset_add(&about, member->rank);
        group_add_reports(member->group, &about, now_ns, err);
        err->age_ns = now_ns - member->lost_ns;
        return STATUS_REPLICA_LOST;
}

enum status member_find_alive(struct rendezvous *r, uint64_t session, uint64_t membership, uint64_t now_ns,
        struct member **ret, struct error *err) {
        struct member *member = rendezvous_find_member(r, session, membership);
        if (!member) {
                error_init(err, STATUS_NOT_FOUND);
                return error_set(err, STATUS_NOT_FOUND, FIELD_MEMBERSHIP,
                        "this connection has no such membership; join first");
        }
        switch (member->state) {
        case MEMBER_ALIVE: break;
        case MEMBER_LEFT: return refuse_member(member, STATUS_LEFT, "", err);
        case MEMBER_LOST: return refuse_lost(member, now_ns, err);
        case MEMBER_JOINING:
        case MEMBER_ABSENT:
                return refuse_member(
                        member, STATUS_NOT_FOUND, "the join has not been answered yet; wait for it", err);
        }
        *ret = member;
        return STATUS_OK;
}

/* --- looking --- */

struct group *rendezvous_next_group(const struct rendezvous *r, const struct group *after) {
        const struct list *link = &r->groups;
        if (after)
                link = &list_entry(after, const struct circle, group)->all_link;
        return link->next == &r->groups ? NULL : &list_entry(link->next, struct circle, all_link)->group;
}

uint32_t rendezvous_n_groups(const struct rendezvous *r) {
        return r->n_groups;
}
