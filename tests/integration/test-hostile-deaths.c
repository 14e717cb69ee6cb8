/* A table of deaths: a replica is killed at every point of a collective, while the others do this or that,
 * under both policies (P5). Each cell says exactly what the survivors hear; an honest group beside them meets
 * on; afterwards every counter is where it began (P18, P20).
 *
 * R0 is the victim, a process of its own. R1 and R2 are connections of the test, but where R1 dies too. Two
 * keys are in play: "k", at which the victim dies, and "n", at which the others are. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "actor.h"
#include "meeting.h"
#include "raw.h"
#include "stage.h"
#include "unit.h"

#define SMALL 1000
#define LARGE ((uint64_t)2 << 20)

/* --- the table --- */

enum act {
        ACT_JOINED,
        ACT_REGISTERING,
        ACT_REGISTERED,
        ACT_HALF_A_BATCH,
        ACT_SUBMIT,
        ACT_SUBMIT_UNREGISTER,
        ACT_LEAVE,
        ACT_ABORT,
        ACT_QUERY,
        ACT_READ_HALF,
        ACT_BUSY,
};

/* The halves of R1 and R2 of key "k". */
enum halves {
        HALVES_NONE,
        HALVES_OPEN,     /* R1's before the death, R2's after it */
        HALVES_BEFORE,   /* before the victim's, which seals */
        HALVES_BEHIND,   /* behind the victim's: R2's seals */
        HALVES_GIVEN_UP, /* R1's; then the victim aborts */
};

static const struct point {
        const char *name;
        enum act act;
        enum halves halves;
        uint64_t n;      /* elements of "k" */
        bool is_awaited; /* the others have their results before it dies */
} points[] = {
        { "joined", ACT_JOINED },
        { "registering", ACT_REGISTERING },
        { "registered", ACT_REGISTERED },
        { "half a batch sent", ACT_HALF_A_BATCH },
        { "submitted first", ACT_SUBMIT, HALVES_OPEN, SMALL },
        { "submitted last", ACT_SUBMIT, HALVES_BEFORE, SMALL },
        { "sealed and running", ACT_SUBMIT, HALVES_BEHIND, LARGE },
        { "unregistering while it runs", ACT_SUBMIT_UNREGISTER, HALVES_BEFORE, LARGE },
        { "result unread", ACT_SUBMIT, HALVES_BEHIND, SMALL, .is_awaited = true },
        { "leaving", ACT_LEAVE },
        { "aborting", ACT_ABORT, HALVES_GIVEN_UP, SMALL },
        { "querying", ACT_QUERY },
        { "reply half read", ACT_READ_HALF },
        { "busy", ACT_BUSY },
};

/* What the others do when it dies. */
enum others { THEY_WAIT, THEY_COME, THEY_COME_LATER, THEY_RUN, THEY_DIE, THEY_LEAVE, THEY_ABORT };

static const char *const others_names[] = {
        [THEY_WAIT] = "wait",
        [THEY_COME] = "are coming",
        [THEY_COME_LATER] = "come later",
        [THEY_RUN] = "run in another group",
        [THEY_DIE] = "die too",
        [THEY_LEAVE] = "leave",
        [THEY_ABORT] = "abort",
};

/* --- who plays --- */

/* Of R1 and R2 buffer 1 is for "k", 2 for "n" and "m", 3 for another group. */
struct cell {
        struct stage stage;
        struct stage_mark mark;
        const struct point *point;
        enum others others;
        enum on_death on_death;
        struct actor actors[3];      /* not [0] */
        struct replica *victim, *r1; /* r1: where it dies too */
        uint32_t pids[2];
        uint64_t k[3], n[3]; /* requests, by rank */
};

static uint64_t buffer_of(const char *key) {
        return strcmp(key, "k") == 0 ? 1 : 2;
}

/* --- those who die --- */

static void half_a_batch(struct actor *a) {
        const struct entry entry = raw_entry(1, 10);
        struct request r = raw_submit_request(&a->member, "batch", &entry);
        r.submit.signature.kind = KIND_BATCH_REDUCE;
        r.submit.signature.n_entries = 2;
        r.submit.more = true;
        raw_send(a->raw, &r);
}

/* The first packet of an answer that has more; the others stay in the socket. */
static void read_half(struct actor *a) {
        struct reply reply;
        for (int i = 0; i < 4; i++)
                raw_query(a->raw, WHAT_DUMP, "test", "honest");
        ck_assert(raw_take(a->raw, &reply));
}

/* What it says last. Nothing of it is waited for but what it must know to go on. */
static void act(struct actor *a, enum act what) {
        const struct request abort = { .type = REQUEST_ABORT,
                .abort = { a->member.membership, true, raw_key("k"), "given up" } };
        switch (what) {
        case ACT_JOINED:
        case ACT_REGISTERED: break;
        case ACT_REGISTERING: raw_register(a->raw, 9, raw_memfd(4 * LARGE), 4 * LARGE); break;
        case ACT_HALF_A_BATCH: half_a_batch(a); break;
        case ACT_SUBMIT: actor_submit(a, "k", 1); break;
        case ACT_SUBMIT_UNREGISTER:
                actor_submit(a, "k", 1);
                raw_send(a->raw, &(struct request){ .type = REQUEST_UNREGISTER, .buffer = 1 });
                break;
        case ACT_LEAVE:
                raw_send(a->raw,
                        &(struct request){ .type = REQUEST_LEAVE, .membership = a->member.membership });
                break;
        case ACT_ABORT:
                actor_submit(a, "k", 1);
                raw_send(a->raw, &abort);
                break;
        case ACT_QUERY: raw_query(a->raw, WHAT_STATUS, "", ""); break;
        case ACT_READ_HALF: read_half(a); break;
        case ACT_BUSY:
                raw_send(a->raw, &(struct request){ .type = REQUEST_BUSY,
                                         .busy = { a->member.membership, "dying", UINT64_MAX } });
                break;
        }
}

/* Joins; then does as it is told: submits a key, or acts. */
static void be_a_puppet(struct replica *me) {
        const struct cell *c = me->arg;
        struct actor a;
        actor_open(&a, me->socket, me->rank);
        a.member = raw_joined(a.raw, actor_ask_to_join(&a, "table", 3, c->on_death));
        if (c->point->act != ACT_JOINED || me->rank > 0) {
                actor_buffer(&a, 1, c->point->n ? c->point->n : SMALL);
                actor_buffer(&a, 2, SMALL);
        }
        replica_say(me, "joined");
        for (;;) {
                const char *what = replica_hear_any(me);
                bool is_act = strcmp(what, "act") == 0;
                if (is_act)
                        act(&a, c->point->act);
                else
                        actor_submit(&a, what, buffer_of(what));
                /* A half that tuttid has not seen when another member's death strikes seals nothing. */
                if (!is_act || (c->point->halves != HALVES_NONE && !c->point->is_awaited))
                        actor_expect_known(&a);
                replica_say(me, "there");
        }
}

static struct replica *spawn_puppet(struct cell *c, uint32_t rank) {
        return replica_spawn(
                c->stage.h, &(struct replica_options){ .rank = rank, .n = 3, .body = be_a_puppet, .arg = c });
}

static void pull(struct replica *r, const char *what) {
        replica_tell(r, what);
        replica_expect(r, "there", 10);
}

static void kill_them(struct cell *c) {
        struct replica *all[2] = { c->victim, c->r1 };
        for (int i = 0; i < 2; i++)
                if (all[i]) {
                        c->pids[i] = (uint32_t)all[i]->pid;
                        replica_signal(all[i], SIGKILL);
                }
        for (int i = 0; i < 2; i++)
                if (all[i])
                        ck_assert_int_eq(replica_end(all[i], 5), 128 + SIGKILL);
        c->victim = c->r1 = NULL;
}

/* --- the play --- */

static uint64_t submit(struct cell *c, uint32_t rank, const char *key) {
        if (rank == 1 && c->others == THEY_DIE) {
                pull(c->r1, key);
                return 0;
        }
        return actor_submit(&c->actors[rank], key, buffer_of(key));
}

static void set_the_scene(struct cell *c) {
        uint64_t joins[3];
        c->victim = spawn_puppet(c, 0);
        if (c->others == THEY_DIE)
                c->r1 = spawn_puppet(c, 1);
        for (uint32_t rank = c->others == THEY_DIE ? 2 : 1; rank < 3; rank++) {
                actor_open(&c->actors[rank], host_socket(c->stage.h), rank);
                actor_buffer(&c->actors[rank], 1, c->point->n ? c->point->n : SMALL);
                actor_buffer(&c->actors[rank], 2, SMALL);
                if (c->others == THEY_RUN)
                        actor_buffer(&c->actors[rank], 3, LARGE);
                joins[rank] = actor_ask_to_join(&c->actors[rank], "table", 3, c->on_death);
        }
        replica_expect(c->victim, "joined", 10);
        if (c->r1)
                replica_expect(c->r1, "joined", 10);
        for (uint32_t rank = c->r1 ? 2 : 1; rank < 3; rank++)
                c->actors[rank].member = raw_joined(c->actors[rank].raw, joins[rank]);
}

/* Everybody's part in "k", as far as it comes before the death. */
static void play_k(struct cell *c) {
        const struct point *p = c->point;
        bool is_early =
                p->halves == HALVES_OPEN || p->halves == HALVES_BEFORE || p->halves == HALVES_GIVEN_UP;
        if (is_early)
                c->k[1] = submit(c, 1, "k");
        if (p->halves == HALVES_GIVEN_UP && !c->r1) /* who comes after the abort has expired */
                actor_expect_known(&c->actors[1]);
        if (p->halves == HALVES_BEFORE)
                c->k[2] = submit(c, 2, "k");
        pull(c->victim, "act");
        if (p->halves == HALVES_BEHIND) {
                c->k[1] = submit(c, 1, "k");
                c->k[2] = submit(c, 2, "k");
        }
        for (uint32_t rank = 1; p->is_awaited && rank < 3; rank++)
                if (c->k[rank])
                        must(actor_hear(&c->actors[rank], c->k[rank])->status == STATUS_OK);
}

static void abort_n(struct cell *c) {
        struct actor *a = &c->actors[1], *b = &c->actors[2];
        const struct request abort = { .type = REQUEST_ABORT,
                .abort = { a->member.membership, true, raw_key("n"), "given up" } };
        uint64_t n = actor_submit(a, "n", 2);
        must(actor_hear(a, raw_send(a->raw, &abort))->status == STATUS_OK);
        must(actor_hear(a, n)->status == STATUS_ABORTED);
        must(actor_hear(b, actor_submit(b, "n", 2))->status == STATUS_EXPIRED);
}

static void begin_to_run(struct cell *c) {
        uint64_t joins[3];
        for (uint32_t rank = 1; rank < 3; rank++) {
                struct request join = raw_join_request("pair", rank - 1, 2);
                joins[rank] = raw_send(c->actors[rank].raw, &join);
        }
        for (uint32_t rank = 1; rank < 3; rank++) {
                struct actor *a = &c->actors[rank];
                const struct heard *h = actor_hear(a, joins[rank]);
                must(h->status == STATUS_OK);
                c->n[rank] = raw_submit(a->raw, &h->member, "run", 3, LARGE);
        }
}

/* ... in "n". */
static void play_n_before(struct cell *c) {
        struct actor *r1 = &c->actors[1];
        switch (c->others) {
        case THEY_WAIT:
        case THEY_DIE:
                c->n[1] = submit(c, 1, "n");
                c->n[2] = submit(c, 2, "n");
                break;
        case THEY_COME: c->n[1] = submit(c, 1, "n"); break;
        case THEY_COME_LATER: break;
        case THEY_RUN: begin_to_run(c); break;
        case THEY_LEAVE:
                /* Who leaves before "k" is sealed takes its half along. */
                if (c->k[2])
                        must(actor_hear(&c->actors[2], c->k[2])->status == STATUS_OK);
                must(actor_hear(r1, raw_send(r1->raw, &(struct request){ .type = REQUEST_LEAVE,
                                                              .membership = r1->member.membership }))
                                ->status == STATUS_OK);
                c->n[2] = submit(c, 2, "n");
                break;
        case THEY_ABORT: abort_n(c); break;
        }
}

static void expect_run(struct cell *c) {
        for (uint32_t rank = 1; rank < 3; rank++) {
                struct actor *a = &c->actors[rank];
                must(actor_hear(a, c->n[rank])->status == STATUS_OK);
                for (uint64_t i = 0; i < LARGE; i += 1021)
                        must(a->data[3][i] == 5);
        }
}

/* The death is known; who was not there yet comes now. */
static void play_after(struct cell *c) {
        if (c->others == THEY_RUN)
                expect_run(c);
        if (c->others == THEY_COME_LATER || c->others == THEY_RUN || c->others == THEY_ABORT)
                for (uint32_t rank = 1; rank < 3; rank++)
                        c->n[rank] = submit(c, rank, c->others == THEY_ABORT ? "m" : "n");
        if (c->point->halves == HALVES_OPEN)
                c->k[2] = submit(c, 2, "k");
}

/* --- the verdict --- */

/* Of two that die at once, the second's half may have been sealed by the death of the first. */
static void expect_sum(struct cell *c, struct actor *a, uint64_t request, uint64_t buffer, uint64_t ranks) {
        actor_expect_sum(a, request, buffer, ranks, c->others == THEY_DIE ? 2 & ~ranks : 0);
}

/* Whose death, and that nothing was written. */
static void expect_lost(struct cell *c, struct actor *a, uint64_t request, uint64_t buffer) {
        const struct heard *h = actor_hear(a, request);
        actor_expect_status(a, h, STATUS_REPLICA_LOST);
        must(h->loss == LOSS_DIED);
        must(h->rank == 0 || (h->rank == 1 && c->others == THEY_DIE));
        must(h->pid == c->pids[h->rank]);
        actor_expect_data(a, buffer, (float)(a->rank + 1));
}

static bool is_left_by_victim(const struct cell *c) {
        return c->point->act == ACT_LEAVE;
}

/* Those of R1 and R2 that still are members afterwards. */
static uint64_t survivors(const struct cell *c) {
        return c->others == THEY_DIE || c->others == THEY_LEAVE ? 4 : 6;
}

static void expect_n(struct cell *c) {
        bool is_over = c->on_death == ON_DEATH_FAIL && !is_left_by_victim(c);
        /* Who left did so before, so that "n" was sealed before R1 died. */
        uint64_t ranks = is_left_by_victim(c) && c->others == THEY_DIE ? 6 : survivors(c);
        for (uint32_t rank = 1; rank < 3; rank++) {
                struct actor *a = &c->actors[rank];
                if (!c->n[rank])
                        continue;
                if (is_over)
                        expect_lost(c, a, c->n[rank], 2);
                else
                        expect_sum(c, a, c->n[rank], 2, ranks);
        }
}

static void expect_open_k(struct cell *c, struct actor *a) {
        if (a->rank == 1 && c->others == THEY_LEAVE)
                actor_expect_status(a, actor_hear(a, c->k[1]), STATUS_LEFT);
        else if (c->on_death == ON_DEATH_FAIL)
                expect_lost(c, a, c->k[a->rank], 1);
        else
                expect_sum(c, a, c->k[a->rank], 1, survivors(c));
}

static void expect_k(struct cell *c) {
        for (uint32_t rank = 1; rank < 3; rank++) {
                struct actor *a = &c->actors[rank];
                if (!c->k[rank])
                        continue;
                if (c->point->halves == HALVES_OPEN) {
                        expect_open_k(c, a);
                } else if (c->point->halves == HALVES_GIVEN_UP) {
                        actor_expect_status(a, actor_hear(a, c->k[rank]), STATUS_ABORTED);
                        must(actor_hear(a, c->k[rank])->rank == 0);
                } else {
                        expect_sum(c, a, c->k[rank], 1, 7);
                }
        }
}

/* --- the whole --- */

static void play(struct cell *c) {
        memset(c->k, 0, sizeof(c->k));
        memset(c->n, 0, sizeof(c->n));
        snprintf(actor_where, sizeof(actor_where), "on_death=%s: dies %s; the others %s",
                c->on_death == ON_DEATH_FAIL ? "fail" : "shrink", c->point->name, others_names[c->others]);

        set_the_scene(c);
        play_k(c);
        play_n_before(c);
        kill_them(c);
        if (c->others == THEY_COME)
                c->n[2] = submit(c, 2, "n");
        host_expect_sessions(c->stage.h, c->mark.counters.n_sessions + (c->others == THEY_DIE ? 1 : 2));
        play_after(c);
        expect_k(c);
        expect_n(c);
        for (uint32_t rank = 1; rank < 3; rank++)
                actor_close(&c->actors[rank]);
        stage_expect_mark(&c->stage, &c->mark, actor_where);
}

static void begin(struct cell *c, enum on_death on_death) {
        *c = (struct cell){ .on_death = on_death };
        stage_set(&c->stage, NULL);
        stage_set_mark(&c->stage, &c->mark);
}

static void play_all(enum on_death on_death) {
        static struct cell c;
        begin(&c, on_death);
        for (size_t i = 0; i < ARRAY_SIZE(points); i++)
                for (size_t k = 0; k < ARRAY_SIZE(others_names); k++) {
                        c.point = &points[i];
                        c.others = (enum others)k;
                        play(&c);
                        stage_expect_progress();
                }
        printf("# %zu deaths\n", ARRAY_SIZE(points) * ARRAY_SIZE(others_names));
        stage_clear(&c.stage);
}

START_TEST(P5_P20_deaths_at_every_point_under_fail) {
        play_all(ON_DEATH_FAIL);
}
END_TEST

START_TEST(P5_P20_deaths_at_every_point_under_shrink) {
        play_all(ON_DEATH_SHRINK);
}
END_TEST

UNIT_MAIN("hostile-deaths", 120, P5_P20_deaths_at_every_point_under_fail,
        P5_P20_deaths_at_every_point_under_shrink)
