#include "recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/table.h"
#include "recorder-record.h"
#include "recorder-ring.h"

/* 64 KiB and four doublings, and who the members were. */
#define MAX_CHARGES 6

struct recording {
        struct recorder *recorder;
        uint64_t group; /* its id */
        uint32_t uid, world_size;
        char job[MAX_NAME_BYTES], name[MAX_NAME_BYTES], secret[MAX_SECRET_BYTES];
        enum on_death on_death;
        bool is_brief;
        uint64_t first_epoch, epoch, n_done, n_failed, n_bytes;
        uint64_t n_dropped; /* records that are not there any more, or never were */
        uint64_t n_gone;    /* of these, those that once were */
        uint64_t last_done_ns, ended_ns;
        struct ring ring;
        uint8_t *members; /* of an ended group; NULL: not known */
        uint64_t member_bytes;
        uint64_t number;                    /* of an ended group: the how manieth it was */
        struct charge charges[MAX_CHARGES]; /* of the ring: what each growth has added; of `members` */
        uint32_t n_charges;
        struct list link; /* of living, or of ended in the order of their ends */
        UT_hash_handle hh;
};

struct recorder {
        struct quotas *quotas;
        struct recording *by_group;
        struct list living, ended;
        uint64_t n_ended;     /* ever */
        struct error refusal; /* of a charge; nobody reads it */
        uint8_t bytes[MAX_RECORD_BYTES];
        uint64_t arrivals[MAX_WORLD];
};

int recorder_new(struct recorder **ret, struct quotas *quotas) {
        struct recorder *r = calloc(1, sizeof(*r));
        if (!r)
                return -ENOMEM;
        r->quotas = quotas;
        list_init(&r->living);
        list_init(&r->ended);
        *ret = r;
        return 0;
}

static void recording_free(struct recording *rec) {
        HASH_DEL(rec->recorder->by_group, rec);
        list_unlink(&rec->link);
        ring_deinit(&rec->ring);
        free(rec->members);
        for (uint32_t i = 0; i < rec->n_charges; i++)
                charge_release(&rec->charges[i]);
        free(rec);
}

static void free_all(struct list *recordings) {
        list_for_each_safe (it, tmp, recordings)
                recording_free(list_entry(it, struct recording, link));
}

void recorder_free(struct recorder *r) {
        if (!r)
                return;
        free_all(&r->living);
        free_all(&r->ended);
        free(r);
}

/* --- ended groups --- */

/* Frees the one of this user that ended first, but not `keep`; false: there is none. */
static bool free_oldest_ended(struct recorder *r, uint32_t uid, const struct recording *keep) {
        list_for_each (it, &r->ended) {
                struct recording *rec = list_entry(it, struct recording, link);
                if (rec->uid != uid || rec == keep)
                        continue;
                recording_free(rec);
                return true;
        }
        return false;
}

static uint32_t count_ended(const struct recorder *r, uint32_t uid) {
        uint32_t n = 0;
        list_for_each (it, &r->ended)
                n += list_entry(it, struct recording, link)->uid == uid;
        return n;
}

static void end_recording(struct recorder *r, struct recording *rec, uint64_t now_ns) {
        rec->ended_ns = now_ns;
        rec->number = ++r->n_ended;
        list_unlink(&rec->link);
        list_append(&r->ended, &rec->link);
        if (count_ended(r, rec->uid) > RECORDER_MAX_ENDED)
                free_oldest_ended(r, rec->uid, rec);
}

static struct recording *find_recording(const struct recorder *r, uint64_t group_id) {
        struct recording *rec;
        HASH_FIND(hh, r->by_group, &group_id, sizeof(group_id), rec);
        return rec;
}

static bool is_kept(const struct recording *rec) {
        return rec && rec->ring.n_records > 0 && !rec->is_brief;
}

bool recorder_keeps(const struct recorder *r, uint64_t group_id) {
        return is_kept(find_recording(r, group_id));
}

/* --- adding --- */

static struct recording *make_recording(struct recorder *r, const struct group *g) {
        CLEANUP_FREE struct recording *rec = calloc(1, sizeof(*rec));
        bool is_in;
        if (!rec)
                return NULL;
        *rec = (struct recording){
                .recorder = r,
                .group = g->id,
                .uid = g->uid,
                .world_size = g->world_size,
                .on_death = g->on_death,
                .is_brief = g->brief_record,
        };
        text_copy(rec->job, sizeof(rec->job), g->job);
        text_copy(rec->name, sizeof(rec->name), g->name);
        text_copy(rec->secret, sizeof(rec->secret), g->secret);
        TABLE_ADD(r->by_group, rec, group, is_in);
        if (!is_in)
                return NULL;
        list_append(&r->living, &rec->link);
        return take_pointer(rec);
}

/* Charges `amount` more; what ended groups of the same user hold goes first, unless this one is not worth it.
 */
static bool charge_recording(struct recorder *r, struct recording *rec, uint64_t amount) {
        struct charge *charge = &rec->charges[rec->n_charges];
        enum status status;
        do
                status = quota_charge(r->quotas, charge, rec->uid, QUOTA_RECORDER_BYTES, amount, &r->refusal);
        while (status == STATUS_QUOTA && !rec->is_brief && free_oldest_ended(r, rec->uid, rec));
        if (status != STATUS_OK)
                return false;
        rec->n_charges++;
        return true;
}

/* false: it is as large as it may be, as its user may have, or as memory allows. */
static bool grow(struct recorder *r, struct recording *rec) {
        uint64_t had = rec->ring.capacity, capacity = had ? 2 * had : RECORDER_FIRST_BYTES;
        if (capacity > RECORDER_MAX_BYTES || !charge_recording(r, rec, capacity - had))
                return false;
        if (ring_grow(&rec->ring, capacity) == 0)
                return true;
        charge_release(&rec->charges[--rec->n_charges]);
        return false;
}

static void drop_oldest(struct recording *rec) {
        ring_drop(&rec->ring);
        rec->n_dropped++;
        rec->n_gone++;
}

static bool make_room(struct recorder *r, struct recording *rec, size_t n_bytes) {
        if (rec->ring.n_records == MAX_RECORDS)
                drop_oldest(rec);
        while (!ring_fits(&rec->ring, n_bytes)) {
                if (grow(r, rec))
                        continue;
                if (!rec->ring.n_records)
                        return false;
                drop_oldest(rec);
        }
        return true;
}

void recorder_add(struct recorder *r, const struct meeting *m) {
        struct recording *rec = find_recording(r, m->group->id);
        if (!rec)
                rec = make_recording(r, m->group);
        if (!rec)
                return;
        if (!rec->first_epoch || rec->first_epoch > m->epoch)
                rec->first_epoch = m->epoch;
        if (rec->epoch < m->epoch) /* what an older one had sealed may end later */
                rec->epoch = m->epoch;
        rec->last_done_ns = m->done_ns;
        if (m->status == STATUS_OK)
                rec->n_done++;
        else
                rec->n_failed++;
        size_t n = record_write(m, r->bytes);
        if (make_room(r, rec, n))
                ring_append(&rec->ring, r->bytes, n);
        else
                rec->n_dropped++;
}

/* --- the members of an ended group --- */

/* As few bytes as they take: they are written twice, the first time to be counted. */
static void keep_members(struct recorder *r, struct recording *rec, const struct recorder_end *end) {
        uint64_t n_bytes = 0;
        for (uint32_t i = 0; i < end->n_members; i++)
                n_bytes += member_write(&end->members[i], end->now_ns, r->bytes);
        if (!n_bytes || !charge_recording(r, rec, n_bytes))
                return;
        rec->members = malloc(n_bytes);
        if (!rec->members) {
                charge_release(&rec->charges[--rec->n_charges]);
                return;
        }
        for (uint32_t i = 0; i < end->n_members; i++) {
                size_t n = member_write(&end->members[i], end->now_ns, r->bytes);
                memcpy(rec->members + rec->member_bytes, r->bytes, n);
                rec->member_bytes += n;
        }
}

void recorder_end_group(struct recorder *r, const struct recorder_end *end) {
        struct recording *rec = find_recording(r, end->group);
        if (!is_kept(rec)) {
                if (rec)
                        recording_free(rec);
                return;
        }
        rec->n_bytes = end->n_bytes;
        end_recording(r, rec, end->now_ns);
        keep_members(r, rec, end);
}

/* --- reading --- */

static uint64_t age(uint64_t now_ns, uint64_t then_ns) {
        return now_ns > then_ns ? now_ns - then_ns : 0;
}

static bool tells_of(const struct recording *rec, uint64_t epoch) {
        return epoch == RECORDER_NEWEST || (rec->first_epoch <= epoch && epoch <= rec->epoch);
}

/* The newest stands last. */
static struct recording *find_newest(const struct list *recordings, const struct viewer *viewer,
        const char *job, const char *group, uint64_t epoch) {
        for (struct list *it = recordings->prev; it != recordings; it = it->prev) {
                struct recording *rec = list_entry(it, struct recording, link);
                if (viewer_sees(viewer, rec->uid, rec->secret) && strcmp(rec->job, job) == 0 &&
                        strcmp(rec->name, group) == 0 && tells_of(rec, epoch))
                        return rec;
        }
        return NULL;
}

struct recording *recorder_find(
        struct recorder *r, const struct viewer *viewer, const char *job, const char *group, uint64_t epoch) {
        struct recording *rec = find_newest(&r->living, viewer, job, group, epoch);
        return rec ? rec : find_newest(&r->ended, viewer, job, group, epoch);
}

static uint64_t last_epoch_in(const struct list *recordings, const struct recorder_name *name) {
        uint64_t last = 0;
        list_for_each (it, recordings) {
                const struct recording *rec = list_entry(it, const struct recording, link);
                if (rec->uid == name->uid && rec->epoch > last && strcmp(rec->secret, name->secret) == 0 &&
                        strcmp(rec->job, name->job) == 0 && strcmp(rec->name, name->group) == 0)
                        last = rec->epoch;
        }
        return last;
}

uint64_t recorder_last_epoch(const struct recorder *r, const struct recorder_name *name) {
        uint64_t living = last_epoch_in(&r->living, name), ended = last_epoch_in(&r->ended, name);
        return living > ended ? living : ended;
}

struct recording *recorder_find_group(struct recorder *r, uint64_t group_id) {
        return find_recording(r, group_id);
}

uint64_t recording_group(const struct recording *rec) {
        return rec->group;
}

struct row_dump recording_describe(const struct recording *rec) {
        return (struct row_dump){
                .first_epoch = rec->first_epoch, .last_epoch = rec->epoch, .ended = rec->number > 0
        };
}

uint64_t recording_number(const struct recording *rec) {
        return rec->number;
}

struct record_cursor recording_begin(const struct recording *rec) {
        return (struct record_cursor){ rec->ring.tail, rec->n_gone };
}

uint64_t recording_end(const struct recording *rec) {
        return rec->n_gone + rec->ring.n_records;
}

bool recording_next(
        struct recording *rec, struct record_cursor *cursor, uint64_t now_ns, struct row_record *ret) {
        size_t n;
        if (cursor->position < rec->ring.tail)
                *cursor = recording_begin(rec);
        const uint8_t *bytes = ring_next(&rec->ring, &cursor->position, &n);
        if (!bytes)
                return false;
        cursor->number++;
        record_read(bytes, now_ns, rec->recorder->arrivals, ret);
        ret->job = rec->job;
        ret->group = rec->name;
        ret->dropped = rec->n_dropped;
        ret->shortened = rec->n_dropped > 0 && rec->ring.n_records < MAX_RECORDS;
        return true;
}

static struct recording *next_seen(
        const struct list *recordings, const struct viewer *viewer, struct list *at) {
        for (; at != recordings; at = at->next) {
                struct recording *rec = list_entry(at, struct recording, link);
                if (viewer_sees(viewer, rec->uid, rec->secret))
                        return rec;
        }
        return NULL;
}

struct recording *recorder_next_ended(struct recorder *r, const struct viewer *viewer,
        const struct recording *after, uint64_t now_ns, struct row_group *ret) {
        struct recording *rec = next_seen(&r->ended, viewer, after ? after->link.next : r->ended.next);
        if (!rec)
                return NULL;
        *ret = (struct row_group){ .job = rec->job,
                .group = rec->name,
                .uid = rec->uid,
                .world_size = rec->world_size,
                .epoch = rec->epoch,
                .on_death = rec->on_death,
                .n_done = rec->n_done,
                .n_failed = rec->n_failed,
                .bytes = rec->n_bytes,
                .ended = true,
                .age_ns = age(now_ns, rec->ended_ns),
                .last_done_age_ns = age(now_ns, rec->last_done_ns) };
        return rec;
}

bool recording_next_member(
        const struct recording *rec, uint64_t *cursor, uint64_t now_ns, struct row_member *ret) {
        if (*cursor >= rec->member_bytes)
                return false;
        *ret = (struct row_member){ .job = rec->job,
                .group = rec->name,
                .busy = "",
                .waits = "",
                .uid = rec->uid,
                .ended_epoch = rec->epoch };
        *cursor += member_read(rec->members + *cursor, now_ns, ret);
        return true;
}
