#include "quota.h"

#include <errno.h>
#include <stdlib.h>
#include "base/table.h"

struct quota_user {
        struct quotas *quotas;
        uint32_t uid;
        uint64_t n_charges; /* the user lives while there are any, or while it is remembered */
        uint64_t used[N_QUOTA], refused[N_QUOTA], lost[LOSS_EJECTED + 1];
        bool is_worth_remembering;
        UT_hash_handle hh;
};

/* Limits of one user, other than everybody's. */
struct override {
        uint32_t uid;
        uint64_t limits[N_QUOTA];
        UT_hash_handle hh;
};

struct quotas {
        uint64_t limits[N_QUOTA], totals[N_QUOTA];
        struct override *overrides;
        struct quota_user *users;
        uint32_t n_remembered; /* users without charges */
};

const char *quota_name(enum quota quota) {
        switch (quota) {
        case QUOTA_CONNECTIONS: return "connections";
        case QUOTA_DESCRIPTORS: return "descriptors";
        case QUOTA_MAPPED_BYTES: return "mapped-bytes";
        case QUOTA_PENDING: return "pending";
        case QUOTA_GROUPS: return "groups";
        case QUOTA_RECORDER_BYTES: return "recorder-bytes";
        case QUOTA_RESULT_BYTES: return "result-bytes";
        case QUOTA_REPLY_BYTES: return "reply-bytes";
        case QUOTA_MEMORY_BYTES: return "memory-bytes";
        case N_QUOTA: break;
        }
        return "?";
}

static void set_limits(uint64_t of[N_QUOTA], const struct quota_limits *limits) {
        of[QUOTA_CONNECTIONS] = limits->connections;
        of[QUOTA_DESCRIPTORS] = limits->descriptors;
        of[QUOTA_MAPPED_BYTES] = limits->mapped_bytes;
        of[QUOTA_PENDING] = limits->pending;
        of[QUOTA_GROUPS] = limits->groups;
        of[QUOTA_RECORDER_BYTES] = limits->recorder_bytes;
        of[QUOTA_RESULT_BYTES] = limits->result_bytes;
        of[QUOTA_REPLY_BYTES] = limits->reply_bytes;
        of[QUOTA_MEMORY_BYTES] = limits->memory_bytes;
}

int quotas_new(struct quotas **ret, const struct quota_limits *limits) {
        struct quotas *q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        set_limits(q->limits, limits);
        *ret = q;
        return 0;
}

static void drop_overrides(struct quotas *q) {
        struct override *o, *tmp;
        HASH_ITER (hh, q->overrides, o, tmp) {
                HASH_DEL(q->overrides, o);
                free(o);
        }
}

void quotas_set_limits(struct quotas *q, const struct quota_limits *limits) {
        set_limits(q->limits, limits);
        drop_overrides(q);
}

int quotas_override(struct quotas *q, uint32_t uid, const struct quota_limits *limits) {
        struct override *o = calloc(1, sizeof(*o));
        if (!o)
                return -ENOMEM;
        o->uid = uid;
        set_limits(o->limits, limits);
        int is_in;
        TABLE_ADD(q->overrides, o, uid, is_in);
        if (is_in)
                return 0;
        free(o);
        return -ENOMEM;
}

void quotas_free(struct quotas *q) {
        if (!q)
                return;
        struct quota_user *user, *tmp;
        HASH_ITER (hh, q->users, user, tmp) {
                CHECK(user->n_charges == 0);
                HASH_DEL(q->users, user);
                free(user);
        }
        drop_overrides(q);
        free(q);
}

static struct quota_user *user_find(const struct quotas *q, uint32_t uid) {
        struct quota_user *user;
        HASH_FIND(hh, q->users, &uid, sizeof(uid), user);
        return user;
}

static struct quota_user *user_new(struct quotas *q, uint32_t uid) {
        struct quota_user *user = calloc(1, sizeof(*user));
        if (!user)
                return NULL;
        user->quotas = q;
        user->uid = uid;
        int is_in;
        TABLE_ADD(q->users, user, uid, is_in);
        if (is_in)
                return user;
        free(user);
        return NULL;
}

static enum status charge_fail(struct error *err, enum status status) {
        if (err)
                error_init(err, status);
        return status;
}

/* The user has no charges any more. */
static void user_forget(struct quota_user *user) {
        struct quotas *q = user->quotas;
        if (user->is_worth_remembering && q->n_remembered < QUOTA_MAX_REMEMBERED) {
                q->n_remembered++;
                return;
        }
        HASH_DEL(q->users, user);
        free(user);
}

/* Of a user that had nothing here yet it is told, and not counted where memory is short. */
static void count_refusal(struct quotas *q, struct quota_user *user, uint32_t uid, enum quota quota) {
        bool is_new = !user;
        if (is_new && !(user = user_new(q, uid)))
                return;
        user->is_worth_remembering = true;
        user->refused[quota]++;
        if (is_new)
                user_forget(user);
}

static enum status charge_refuse(struct error *err, enum quota quota, uint64_t used, uint64_t limit) {
        error_init(err, STATUS_QUOTA);
        error_set_detail(err, "%s", quota_name(quota));
        err->used = used;
        err->limit = limit;
        return STATUS_QUOTA;
}

/* `charge` says of which quota and how much. */
static enum status charge_take(
        struct quotas *q, struct charge *charge, uint32_t uid, uint64_t reserve, struct error *err) {
        enum quota quota = charge->quota;
        CHECK(!charge->user && quota < N_QUOTA);
        struct quota_user *user = user_find(q, uid);
        uint64_t used = user ? user->used[quota] : 0, limit = quota_limit(q, uid, quota);
        if (used > limit + reserve || charge->amount > limit + reserve - used) {
                if (!err)
                        return STATUS_QUOTA;
                count_refusal(q, user, uid, quota);
                return charge_refuse(err, quota, used, limit);
        }
        bool is_remembered = user && user->n_charges == 0;
        if (!user && !(user = user_new(q, uid)))
                return charge_fail(err, STATUS_NO_MEMORY);
        q->n_remembered -= is_remembered;
        user->n_charges++;
        user->used[quota] += charge->amount;
        q->totals[quota] += charge->amount;
        charge->user = user;
        return STATUS_OK;
}

enum status quota_charge(struct quotas *q, struct charge *charge, uint32_t uid, enum quota quota,
        uint64_t amount, struct error *err) {
        CHECK(!charge->user);
        *charge = (struct charge){ .quota = quota, .amount = amount };
        return charge_take(q, charge, uid, 0, err);
}

static uint64_t reserve_of(uint64_t limit) {
        return limit / 8 > QUOTA_MIN_RESERVE ? limit / 8 : QUOTA_MIN_RESERVE;
}

enum status quota_charge_reserve(struct quotas *q, struct charge *charge, uint32_t uid, enum quota quota,
        uint64_t amount, struct error *err) {
        CHECK(!charge->user && quota < N_QUOTA);
        *charge = (struct charge){ .quota = quota, .amount = amount };
        return charge_take(q, charge, uid, reserve_of(quota_limit(q, uid, quota)), err);
}

uint32_t charge_uid(const struct charge *charge) {
        return charge->user ? charge->user->uid : 0;
}

void charge_lower(struct charge *charge, uint64_t amount) {
        CHECK(charge->user && amount <= charge->amount);
        struct quota_user *user = charge->user;
        user->used[charge->quota] -= charge->amount - amount;
        user->quotas->totals[charge->quota] -= charge->amount - amount;
        charge->amount = amount;
}

void charge_release(struct charge *charge) {
        struct quota_user *user = charge->user;
        if (!user)
                return;
        charge_lower(charge, 0);
        *charge = (struct charge){ 0 };
        if (--user->n_charges == 0)
                user_forget(user);
}

uint64_t quota_used(const struct quotas *q, uint32_t uid, enum quota quota) {
        const struct quota_user *user = user_find(q, uid);
        return user ? user->used[quota] : 0;
}

uint64_t quota_refused(const struct quotas *q, uint32_t uid, enum quota quota) {
        const struct quota_user *user = user_find(q, uid);
        return user ? user->refused[quota] : 0;
}

void quota_count_loss(struct quotas *q, uint32_t uid, enum loss loss) {
        struct quota_user *user = user_find(q, uid);
        if (!user || loss > LOSS_EJECTED)
                return;
        user->is_worth_remembering = true;
        user->lost[loss]++;
}

uint64_t quota_losses(const struct quotas *q, uint32_t uid, enum loss loss) {
        const struct quota_user *user = user_find(q, uid);
        return user && loss <= LOSS_EJECTED ? user->lost[loss] : 0;
}

uint64_t quota_limit(const struct quotas *q, uint32_t uid, enum quota quota) {
        struct override *o = NULL;
        if (q->overrides)
                HASH_FIND(hh, q->overrides, &uid, sizeof(uid), o);
        return o ? o->limits[quota] : q->limits[quota];
}

uint32_t quota_users(const struct quotas *q) {
        return HASH_COUNT(q->users) - q->n_remembered;
}

uint32_t quota_list_users(const struct quotas *q, uint32_t *uids, uint32_t n) {
        uint32_t i, n_here = 0, n_gone = 0;
        struct quota_user *user, *tmp;
        HASH_ITER (hh, q->users, user, tmp) {
                i = user->n_charges ? n_here++ : quota_users(q) + n_gone++;
                if (i < n)
                        uids[i] = user->uid;
        }
        return n_here + n_gone;
}

uint64_t quota_total(const struct quotas *q, enum quota quota) {
        return q->totals[quota];
}
