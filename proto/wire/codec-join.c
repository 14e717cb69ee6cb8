/* Joining, also again after a restart of tuttid, with what a member knows of its unfinished requests. */
#include <errno.h>
#include "wire/codec-pb.h"

/* Ranks beyond the largest world are none. */
static struct rankset world_ranks_in(const ProtobufCBinaryData *m) {
        struct rankset s = { { 0 } };
        return ranks_in(m, &s) ? s : (struct rankset){ { 0 } };
}

struct msg_join join_in(const Tutti__V1__Join *m) {
        return (struct msg_join){ .job = string_in(m->job),
                .group = string_in(m->group),
                .secret = string_in(m->secret),
                .world_size = m->world_size,
                .rank = m->rank,
                .join_timeout_ns = m->join_timeout_ns,
                .on_death = on_death_in((int)m->on_death),
                .on_leave = known_or((int)m->on_leave, ON_LEAVE_ZERO_FILL + 1, ON_LEAVE_ZERO_FILL + 1),
                .has_default_timeout = m->has_default_timeout,
                .default_timeout_ns = m->default_timeout_ns,
                .resume_epoch = m->resume_epoch,
                .resume_number = m->resume_number,
                .resume_members = world_ranks_in(&m->resume_members),
                .resume_lost = world_ranks_in(&m->resume_lost),
                .brief_record = m->brief_record };
}

void join_out(const struct msg_join *j, struct join_box *box) {
        Tutti__V1__Join *m = &box->message;
        tutti__v1__join__init(m);
        m->job = string_out(j->job);
        m->group = string_out(j->group);
        m->secret = string_out(j->secret);
        m->world_size = j->world_size;
        m->rank = j->rank;
        m->join_timeout_ns = j->join_timeout_ns;
        m->on_death = (Tutti__V1__OnDeath)j->on_death;
        m->on_leave = (Tutti__V1__OnLeave)j->on_leave;
        m->has_default_timeout = j->has_default_timeout;
        m->default_timeout_ns = j->default_timeout_ns;
        m->brief_record = j->brief_record;
        if (j->resume_epoch == 0)
                return;
        m->resume_epoch = j->resume_epoch;
        m->resume_number = j->resume_number;
        m->resume_members = ranks_out(&j->resume_members, box->members);
        m->resume_lost = ranks_out(&j->resume_lost, box->lost);
}

static void page_report_in(const Tutti__V1__PageSlot *m, struct page_report *ret) {
        *ret = (struct page_report){ .request = m->request,
                .collective = m->collective,
                .state = known_or((int)m->state, PAGE_FAILED + 1, PAGE_FREE),
                .status = status_in((int)m->status),
                .is_kept = m->kept,
                .n_failed = m->n_failed < UINT32_MAX ? (uint32_t)m->n_failed : UINT32_MAX };
        ret->has_key = key_in(m->key, &ret->key);
}

int pages_in(const Tutti__V1__Pages *m, struct arena *arena, struct msg_pages *ret) {
        if (m->n_slots > MAX_PART_REPORTS)
                return -E2BIG;
        struct page_report *reports = arena_calloc(arena, m->n_slots, sizeof(*reports));
        if (!reports && m->n_slots > 0)
                return -E2BIG;
        for (size_t i = 0; i < m->n_slots; i++)
                page_report_in(m->slots[i], &reports[i]);
        *ret = (struct msg_pages){ (uint32_t)m->n_slots, reports };
        return 0;
}

struct page_slot_box {
        Tutti__V1__PageSlot message;
        Tutti__V1__Key key;
};

static void page_report_out(const struct page_report *r, struct page_slot_box *box) {
        Tutti__V1__PageSlot *m = &box->message;
        tutti__v1__page_slot__init(m);
        m->request = r->request;
        m->collective = r->collective;
        m->state = (uint32_t)r->state;
        m->status = (Tutti__V1__Status)r->status;
        m->kept = r->is_kept;
        m->n_failed = r->n_failed;
        if (!r->has_key)
                return;
        key_out(&r->key, &box->key);
        m->key = &box->key;
}

bool pages_out(const struct msg_pages *p, struct arena *scratch, Tutti__V1__Pages *m) {
        struct page_slot_box *boxes = arena_calloc(scratch, p->n_reports, sizeof(*boxes));
        Tutti__V1__PageSlot **list = arena_calloc(scratch, p->n_reports, sizeof(*list));
        tutti__v1__pages__init(m);
        if (!boxes || !list)
                return p->n_reports == 0;
        for (uint32_t i = 0; i < p->n_reports; i++) {
                page_report_out(&p->reports[i], &boxes[i]);
                list[i] = &boxes[i].message;
        }
        m->n_slots = p->n_reports;
        m->slots = list;
        return true;
}
