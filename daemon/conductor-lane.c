/* What is run on the lane: which collectives may be, when, and what becomes of them here.
 *
 * A collective of kept halves whose plan is kept as well is *taught* to the lane when it has ended well: a
 * standing meeting with halves of its own speaks for it from then on. Its group's road is opened when
 * rendezvous has nothing of the group any more, and closed by the first packet that it may hear of. What the
 * lane has run comes back as a number, a key and times: they are filled into the standing meeting, which the
 * recorder and the counters see as they see every other one. */
#include "conductor-lane.h"
#include "conductor-log.h"

#include <stdlib.h>
#include "base/table.h"

struct standing_part {
        struct list link; /* in prepared.standings */
        struct standing *standing;
};

struct standing {
        struct lane_set set;
        struct road *road;
        struct prepared *first;
        struct task *task; /* first's */
        struct meeting *meeting;
        bool is_doomed; /* the lane still runs it; then it goes */
        struct charge charge;
        uint64_t numbers[LANE_MAX_RANKS];
        struct slot_user *users[LANE_MAX_RANKS];
        struct standing_part parts[LANE_MAX_RANKS]; /* [lane.n_places of its road] */
};

struct road {
        struct lane_road lane;
        uint64_t key; /* its group's id */
        UT_hash_handle hh;
        struct group *group;
        uint32_t n_standings;
        const struct lane_set *running; /* when it was closed, the lane still ran it */
        bool is_slow; /* memory stood still under a run: workers do what comes, who are several (P21) */
        bool is_open, is_doomed; /* doomed: its group has changed; it goes when nothing runs */
        struct charge charge;
};

static struct road *road_of(const struct lane_road *lane) {
        return list_entry(lane, struct road, lane);
}

static struct standing *standing_of(const struct lane_set *set) {
        return list_entry(set, struct standing, set);
}

void conductor_pause_lanes(struct conductor *c) {
        if (c->house.lanes)
                lanes_pause(c->house.lanes);
}

void conductor_lanes_go_on(struct conductor *c) {
        if (c->house.lanes)
                lanes_go_on(c->house.lanes);
}

struct lanes_stats conductor_lane_stats(const struct conductor *c) {
        return c->house.lanes ? lanes_stats(c->house.lanes) : (struct lanes_stats){ 0 };
}

/* --- standing meetings --- */

bool standing_is_running(const struct standing *s) {
        return s->road->running == &s->set;
}

static void standing_free(struct conductor *c, struct standing *s) {
        struct meeting *m = s->meeting;
        if (s->is_doomed)
                s->first->is_out = false;
        rankset_for_each (rank, &m->have) {
                if (m->halves[rank])
                        conductor_end_prepared(c, m->halves[rank]);
        }
        rendezvous_release(c->house.rendezvous, m, &c->outcome);
        charge_release(&s->charge);
        free(s);
}

void conductor_drop_standing(struct conductor *c, struct standing *s) {
        if (!s || s->is_doomed)
                return;
        CHECK(!s->road->is_open);
        list_unlink(&s->set.link);
        for (uint32_t i = 0; i < s->road->lane.n_places; i++)
                list_unlink(&s->parts[i].link);
        s->first->standing = NULL;
        s->road->n_standings--;
        s->is_doomed = standing_is_running(s);
        s->first->is_out |= s->is_doomed;
        if (!s->is_doomed)
                standing_free(c, s);
}

void conductor_drop_standings(struct conductor *c, struct prepared *p) {
        struct list *first;
        while ((first = p->standings.next) != &p->standings)
                conductor_drop_standing(c, list_entry(first, struct standing_part, link)->standing);
}

static bool give_halves(struct conductor *c, struct meeting *m, const struct meeting *like) {
        rankset_for_each (rank, &m->have) {
                m->halves[rank] = conductor_speak_for(c, like->halves[rank]->prepared);
                if (!m->halves[rank])
                        return false;
        }
        return true;
}

/* NULL: there is no memory for it, or its user may not have it. */
static struct standing *standing_new(struct conductor *c, struct road *road, const struct meeting *like) {
        struct standing *s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        s->road = road;
        list_init(&s->set.link);
        error_init(&c->error, STATUS_OK);
        const size_t n_bytes = sizeof(*s) + like->n_halves * rendezvous_half_bytes(0);
        if (quota_charge(c->house.quotas, &s->charge, road->group->uid, QUOTA_MEMORY_BYTES, n_bytes,
                    &c->error) == STATUS_OK)
                s->meeting = rendezvous_stand(c->house.rendezvous, road->group, &like->have, &c->error);
        if (s->meeting && give_halves(c, s->meeting, like)) {
                s->meeting->divisor = like->divisor;
                return s;
        }
        if (s->meeting) {
                standing_free(c, s);
                return NULL;
        }
        charge_release(&s->charge);
        free(s);
        return NULL;
}

/* --- roads --- */

static struct road *road_find(const struct conductor *c, uint64_t group) {
        struct road *road;
        HASH_FIND(hh, c->roads, &group, sizeof(group), road);
        return road;
}

static void road_free(struct road *road) {
        charge_release(&road->charge);
        free(road);
}

static void take_places(struct conductor *c, struct road *road, const struct meeting *m) {
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                const struct lane_place place = {
                        .lane = session_find(c->house.sessions, half->session)->lane,
                        .session = half->session,
                        .membership = half->membership,
                        .rank = (uint32_t)rank
                };
                lane_road_add(c->house.lanes, &road->lane, &place);
        }
}

/* NULL: likewise. */
static struct road *road_new(struct conductor *c, const struct meeting *m) {
        struct road *road = calloc(1, sizeof(*road));
        int is_in = 0;
        if (!road)
                return NULL;
        lane_road_init(&road->lane);
        road->group = m->group;
        road->key = m->group->id;
        road->lane.epoch = m->epoch;
        error_init(&c->error, STATUS_OK);
        if (quota_charge(c->house.quotas, &road->charge, m->group->uid, QUOTA_MEMORY_BYTES, sizeof(*road),
                    &c->error) == STATUS_OK)
                TABLE_ADD(c->roads, road, key, is_in);
        if (!is_in) {
                road_free(road);
                return NULL;
        }
        take_places(c, road, m);
        return road;
}

/* What was started there becomes a Start like any other. When tuttid ends it is left unanswered, as a packet
 * is that nobody reads any more: its peers may be gone, who had been told DRAINING. */
static void conductor_pass(struct conductor *c, const struct lane_start *start) {
        struct session *s = session_find(c->house.sessions, start->session);
        const struct request r = { .request = start->request,
                .type = REQUEST_START,
                .start = { .prepared = start->prepared,
                        .membership = start->membership,
                        .epoch = start->epoch,
                        .has_key = start->has_key,
                        .key = start->key,
                        .has_timeout = start->has_timeout,
                        .timeout_ns = start->timeout_ns } };
        if (!s || c->is_over)
                return;
        s->on_lane->passed = start->request;
        if (start->request == 0)
                conductor_eject(c, s, STATUS_INVALID, "request number 0 is reserved");
        else
                conductor_handle_start(c, s, &r, c->now_ns > start->seen_ns ? c->now_ns - start->seen_ns : 0);
}

/* Whose start may be in the run that is under way: the road may be forgotten before it ends. */
static void note_running(struct conductor *c, const struct road *road, int more) {
        for (uint32_t i = 0; i < road->lane.n_places; i++) {
                struct session *s = session_find(c->house.sessions, road->lane.places[i].session);
                if (s && s->on_lane)
                        s->on_lane->n_running += (uint32_t)more;
        }
}

static void road_close(struct conductor *c, struct road *road) {
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        if (!road->is_open)
                return;
        road->running = lane_road_close(c->house.lanes, &road->lane, starts, &n);
        road->is_open = false;
        c->n_running += road->running != NULL;
        note_running(c, road, road->running != NULL);
        rendezvous_set_next_number(road->group, road->lane.next_number);
        (void)conductor_pull_lane(c, LANE_MAX_RUNS); /* all but what still runs */
        for (uint32_t i = 0; i < n; i++)
                conductor_pass(c, &starts[i]);
}

static void road_forget(struct conductor *c, struct road *road) {
        road_close(c, road);
        list_for_each_safe (it, tmp, &road->lane.sets)
                conductor_drop_standing(c, standing_of(list_entry(it, struct lane_set, link)));
        lane_road_deinit(c->house.lanes, &road->lane);
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it loses its way in uthash */
        HASH_DEL(c->roads, road);
        road->is_doomed = true;
        if (!road->running)
                road_free(road);
}

void conductor_leave_lane(struct conductor *c, struct session *s) {
        struct lane_start start;
        if (!s->lane)
                return;
        for (struct lane_place *p = lane_next_place(s->lane, NULL); p; p = lane_next_place(s->lane, p))
                road_close(c, road_of(p->road));
        if (lane_take_start(c->house.lanes, s->lane, &start))
                conductor_pass(c, &start);
}

void conductor_forget_roads(struct conductor *c, struct session *s) {
        struct lane_place *p;
        conductor_leave_lane(c, s);
        while (s->lane && (p = lane_next_place(s->lane, NULL)))
                road_forget(c, road_of(p->road));
}

void conductor_forget_all_roads(struct conductor *c) {
        struct road *road, *next;
        for (road = c->roads; road; road = next) {
                next = road->hh.next;
                road_forget(c, road);
        }
}

void conductor_offer_road(struct conductor *c, struct group *g) {
        struct road *road = c->roads && !c->has_packet ? road_find(c, g->id) : NULL;
        if (!road || road->is_open || road->running || road->is_slow || road->n_standings == 0 ||
                c->is_draining || g->epoch != road->lane.epoch || !rendezvous_is_quiet(g))
                return;
        road->lane.next_number = g->next_number;
        road->is_open = true;
        lane_road_open(c->house.lanes, &road->lane);
}

/* --- teaching --- */

/* Of what was forgotten meanwhile nobody would take the standing away. */
static bool are_kept(const struct meeting *m) {
        rankset_for_each (rank, &m->have) {
                if (m->halves[rank]->prepared->is_forgotten)
                        return false;
        }
        return true;
}

static bool has_lanes(const struct conductor *c, const struct meeting *m) {
        rankset_for_each (rank, &m->have) {
                const struct session *s = session_find(c->house.sessions, m->halves[rank]->session);
                if (!s || !s->lane || s->is_going)
                        return false;
        }
        return true;
}

/* All of them give its slots back without a packet, or none is there. */
static bool has_slot_users(const struct meeting *m) {
        rankset_for_each (rank, &m->have) {
                if (m->halves[rank]->object && !conductor_slot_user(m->halves[rank]))
                        return false;
        }
        return true;
}

/* Small, of all members, without anything to be told beside its end. */
static bool may_run_on_lane(const struct conductor *c, const struct meeting *m, const struct plan *plan) {
        const struct half *half = m->halves[rankset_next(&m->have, 0)];
        const struct options *o = &half->signature.options;
        return !c->is_draining && !c->has_packet && m->epoch == m->group->epoch &&
               m->n_halves <= LANE_MAX_RANKS && rankset_is_equal(&m->group->alive, &m->have) &&
               plan->n_scratch == 0 && plan->n_extents == 0 && !o->check_numerics && !o->check_overflow &&
               !o->check_inputs && are_kept(m) && has_lanes(c, m) && has_slot_users(m) &&
               plan->moved_bytes <= lanes_most_moved_bytes(c->house.lanes);
}

static bool is_of(const struct road *road, const struct meeting *m) {
        uint32_t i = 0;
        if (road->lane.epoch != m->epoch || road->lane.n_places != m->n_halves)
                return false;
        rankset_for_each (rank, &m->have) {
                const struct lane_place *p = &road->lane.places[i++];
                if (p->rank != (uint32_t)rank || p->session != m->halves[rank]->session ||
                        p->membership != m->halves[rank]->membership)
                        return false;
        }
        return true;
}

/* A road of members as they once were goes. */
static struct road *road_for(struct conductor *c, const struct meeting *m) {
        struct road *road = road_find(c, m->group->id);
        if (road && is_of(road, m))
                return road;
        if (road && road->is_open)
                return NULL;
        if (road)
                road_forget(c, road);
        return road_new(c, m);
}

void conductor_teach_lane(struct conductor *c, struct prepared *first, struct meeting *m) {
        if (first->standing || m->status != STATUS_OK || !may_run_on_lane(c, m, &first->task->plan))
                return;
        struct road *road = road_for(c, m);
        if (!road || road->n_standings == LANE_MAX_SETS)
                return;
        struct standing *s = standing_new(c, road, m);
        if (!s)
                return;
        uint32_t i = 0;
        rankset_for_each (rank, &m->have) {
                struct prepared *p = m->halves[rank]->prepared;
                s->numbers[i] = p->key.number;
                if (p->half->object) {
                        s->set.slots = result_slots(p->half->object);
                        s->users[i] = conductor_slot_user(p->half);
                }
                s->parts[i].standing = s;
                list_append(&p->standings, &s->parts[i].link);
                i++;
        }
        plan_cut(&first->task->plan, lanes_chunk_bytes(c->house.lanes, &first->task->plan));
        s->set.plan = &first->task->plan;
        s->set.numbers = s->numbers;
        s->set.users = s->users;
        s->first = first;
        s->task = first->task;
        first->standing = s;
        list_append(&road->lane.sets, &s->set.link);
        road->n_standings++;
}

/* --- what has run --- */

static void fill_meeting(struct meeting *m, const struct lane_run *run) {
        const struct lane_road *road = run->road;
        m->number = run->number;
        m->key = run->key;
        m->epoch = road->epoch;
        m->sealed_ns = run->sealed_ns;
        m->done_ns = run->done_ns;
        m->first_ns = run->sealed_ns;
        m->last_rank = road->places[run->last_place].rank;
        m->has_slot = run->set->slots != NULL;
        m->slot = run->slot;
        for (uint32_t i = 0; i < road->n_places; i++) {
                struct half *half = m->halves[road->places[i].rank];
                half->request = run->requests[i];
                half->key = run->key;
                half->arrived_ns = run->arrived_ns[i];
                if (half->arrived_ns < m->first_ns)
                        m->first_ns = half->arrived_ns;
        }
}

/* Its clients see it in their pages; a packet tells only who sleeps. */
static void note_answers(struct conductor *c, const struct meeting *m) {
        uint32_t index = 0;
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                struct session *s = session_find(c->house.sessions, half->session);
                index++;
                if (!s)
                        continue;
                struct lane_answer *a = s->on_lane;
                if (a->wanted == half->request) {
                        a->wanted = 0;
                        s->n_unfinished++;
                        conductor_tell_half(c, m, index - 1, rank);
                        continue;
                }
                a->ran = half->request;
                a->done = conductor_describe_done(m, half);
        }
}

static void tell_failure(struct conductor *c, struct meeting *m, struct task *t) {
        uint32_t index = 0;
        t->status = c->lane_run.status;
        t->culprit_session = c->lane_run.culprit_session;
        t->culprit_buffer = c->lane_run.culprit_buffer;
        m->task = t;
        m->status = STATUS_REPLICA_LOST;
        conductor_blame(c, m, t);
        m->error = &c->error;
        conductor_probe(c, m->group, c->error.n_replicas, c->error.replicas);
        conductor_fail_pages(c, m);
        rankset_for_each (rank, &m->have) {
                struct session *s = session_find(c->house.sessions, m->halves[rank]->session);
                if (s) {
                        s->n_unfinished++;
                        s->on_lane->passed =
                                m->halves[rank]->request; /* a Ring for it is under way, perhaps */
                }
                conductor_tell_half(c, m, index++, rank);
        }
}

static void end_failure(struct meeting *m) {
        m->task = NULL;
        m->error = NULL;
        m->status = STATUS_OK;
}

/* Not one of the same set that has only waited to be taken: what was under way when the road was closed is
 * its last. */
static bool is_under_way(const struct road *road, const struct lane_run *run) {
        return road->running == run->set && run->number + 1 == road->lane.next_number;
}

static void conductor_ran(struct conductor *c, const struct lane_run *run) {
        struct road *road = road_of(run->road);
        struct standing *s = standing_of(run->set);
        struct meeting *m = s->meeting;
        fill_meeting(m, run);
        c->n_on_lane++;
        c->n_assisted += run->is_assisted;
        c->n_replayed++;
        c->n_started += m->n_halves;
        if (run->status == STATUS_OK)
                note_answers(c, m);
        else
                tell_failure(c, m, s->task);
        if (run->blocked_ns)
                conductor_log_blocked(m, run->blocked_ns);
        road->is_slow |= run->blocked_ns > 0;
        rendezvous_note_stood(m);
        conductor_log_end(m);
        recorder_add(c->house.recorder, m);
        stats_add(c->house.stats, m);
        if (run->status == STATUS_OK && s->task->plan.fallback[0] != '\0')
                conductor_note_fallback(c, m, &s->task->plan);
        end_failure(m);
        c->work += RUN_WORK + m->n_halves;
        if (!is_under_way(road, run)) {
                if (road->is_slow) /* *run is overwritten here */
                        road_close(c, road);
                return;
        }
        road->running = NULL;
        lane_end_slot(run);
        c->n_running--;
        note_running(c, road, -1);
        if (s->is_doomed)
                standing_free(c, s);
        if (road->is_doomed)
                road_free(road);
}

bool conductor_pull_lane(struct conductor *c, uint32_t n) {
        struct lane_road *refused;
        bool is_any = false;
        if (!c->house.lanes)
                return false;
        for (; n > 0 && lanes_take_run(c->house.lanes, &c->lane_run); n--) {
                conductor_ran(c, &c->lane_run);
                is_any = true;
        }
        while ((refused = lanes_take_refused(c->house.lanes))) {
                road_close(c, road_of(refused));
                is_any = true;
        }
        return is_any;
}
