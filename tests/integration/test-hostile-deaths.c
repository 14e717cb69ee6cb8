/* A table of deaths: a replica is killed at every point of a collective, while the others do this or that,
 * under both policies (P5). Each cell says exactly what the survivors hear; an honest group beside them meets
 * on; afterwards every counter is where it began (P18, P20).
 *
 * R0 is the victim, a process of its own. R1 and R2 are connections of the test, but where R1 dies too. Two
 * keys are in play: "k", at which the victim dies, and "n", at which the others are. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
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

/* What became of a request. */
struct heard {
        uint64_t request;
        enum status status;
        uint64_t contributors; /* of the first 64 ranks */
        enum loss loss;
        int32_t rank;
        uint32_t pid;
        struct raw_member member; /* of a join */
};

/* A replica as a bare connection. Buffer 1 is for "k", 2 for "n" and "m", 3 for another group. */
struct actor {
        uint32_t rank;
        struct raw *raw;
        struct raw_member member;
        float *data[4];
        uint64_t sizes[4]; /* in elements */
        struct heard heard[16];
        unsigned int n_heard;
};

struct cell {
        struct stage stage;
        struct host_counters counters; /* as they were */
        int n_descriptors;
        const struct point *point;
        enum others others;
        enum on_death on_death;
        struct actor actors[3];      /* [0] only before there is a group */
        struct replica *victim, *r1; /* r1: where it dies too */
        uint32_t pids[2];
        uint64_t k[3], n[3]; /* requests, by rank */
};

static char cell_name[160];

#define must(condition)                                                                                      \
        ck_assert_msg((condition), "in the cell \"%s\": %s does not hold", cell_name, #condition)

static void actor_open(struct actor *a, const char *socket, uint32_t rank) {
        *a = (struct actor){ .rank = rank, .raw = raw_open(socket) };
}

static void actor_buffer(struct actor *a, uint64_t buffer, uint64_t n) {
        int fd = raw_memfd(n * sizeof(float));
        a->data[buffer] = mmap(NULL, n * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        must(a->data[buffer] != MAP_FAILED);
        for (uint64_t i = 0; i < n; i++)
                a->data[buffer][i] = (float)(a->rank + 1);
        a->sizes[buffer] = n;
        raw_buffer(a->raw, buffer, fd, n * sizeof(float));
}

static uint64_t actor_ask_to_join(struct actor *a, const char *group, const struct cell *c, uint32_t world) {
        struct request join = raw_join_request(group, a->rank, world);
        join.join.on_death = c->on_death;
        return raw_send(a->raw, &join);
}

static uint64_t actor_submit(struct actor *a, const char *key) {
        uint64_t buffer = strcmp(key, "k") == 0 ? 1 : 2;
        return raw_submit(a->raw, &a->member, key, buffer, a->sizes[buffer]);
}

static void actor_close(struct actor *a) {
        if (!a->raw)
                return;
        raw_send(a->raw, &(struct request){ .type = REQUEST_GOODBYE });
        raw_close(a->raw);
        for (size_t i = 0; i < ARRAY_SIZE(a->data); i++)
                if (a->data[i])
                        munmap(a->data[i], a->sizes[i] * sizeof(float));
        *a = (struct actor){ 0 };
}

static void note(struct actor *a, const struct reply *r) {
        struct heard *h = &a->heard[a->n_heard++ % ARRAY_SIZE(a->heard)];
        *h = (struct heard){ .request = r->request, .status = r->status, .rank = -1 };
        if (r->status == STATUS_OK && r->type == REPLY_JOINED)
                h->member = (struct raw_member){ r->joined.membership, r->joined.epoch };
        if (r->status == STATUS_OK && r->type == REPLY_DONE)
                h->contributors = r->done.contributors.words[0];
        if (!r->error)
                return;
        h->loss = r->error->loss;
        h->rank = r->error->rank;
        if (r->error->n_replicas)
                h->pid = r->error->replicas[0].pid;
}

/* Answers come in any order. */
static const struct heard *actor_hear(struct actor *a, uint64_t request) {
        struct reply reply;
        for (;;) {
                for (size_t i = 0; i < ARRAY_SIZE(a->heard); i++)
                        if (a->heard[i].request == request)
                                return &a->heard[i];
                ck_assert_msg(raw_take(a->raw, &reply), "in the cell \"%s\": R%u was hung up on", cell_name,
                        a->rank);
                note(a, &reply);
        }
}

/* All that it has said so far is known to tuttid. */
static void actor_expect_known(struct actor *a) {
        must(actor_hear(a, raw_query(a->raw, WHAT_QUOTA, "", ""))->status == STATUS_OK);
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
        case ACT_SUBMIT: actor_submit(a, "k"); break;
        case ACT_SUBMIT_UNREGISTER:
                actor_submit(a, "k");
                raw_send(a->raw, &(struct request){ .type = REQUEST_UNREGISTER, .buffer = 1 });
                break;
        case ACT_LEAVE:
                raw_send(a->raw,
                        &(struct request){ .type = REQUEST_LEAVE, .membership = a->member.membership });
                break;
        case ACT_ABORT:
                actor_submit(a, "k");
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
        a.member = raw_joined(a.raw, actor_ask_to_join(&a, "table", c, 3));
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
                        actor_submit(&a, what);
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
        return actor_submit(&c->actors[rank], key);
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
                joins[rank] = actor_ask_to_join(&c->actors[rank], "table", c, 3);
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
        uint64_t n = actor_submit(a, "n");
        must(actor_hear(a, raw_send(a->raw, &abort))->status == STATUS_OK);
        must(actor_hear(a, n)->status == STATUS_ABORTED);
        must(actor_hear(b, actor_submit(b, "n"))->status == STATUS_EXPIRED);
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

static void expect_data(const struct actor *a, uint64_t buffer, float value) {
        uint64_t i = 0;
        while (i < a->sizes[buffer] && a->data[buffer][i] == value)
                i++;
        ck_assert_msg(i == a->sizes[buffer], "in the cell \"%s\": R%u has %g at %llu, not %g", cell_name,
                a->rank, (double)a->data[buffer][i], (unsigned long long)i, (double)value);
}

static void expect_status_of(const struct actor *a, const struct heard *h, enum status status) {
        ck_assert_msg(h->status == status, "in the cell \"%s\": R%u heard %s, not %s", cell_name, a->rank,
                status_name(h->status), status_name(status));
}

/* OK, and who is in it: 1, 2 and 3 are their values. Of two that die at once, the second's half may have been
 * sealed by the death of the first. */
static void expect_sum(struct cell *c, struct actor *a, uint64_t request, uint64_t buffer, uint64_t ranks) {
        const struct heard *h = actor_hear(a, request);
        uint64_t or_ranks = c->others == THEY_DIE ? ranks | 2 : ranks;
        float sum = 0;
        expect_status_of(a, h, STATUS_OK);
        for (uint32_t rank = 0; rank < 3; rank++)
                sum += h->contributors >> rank & 1 ? (float)(rank + 1) : 0;
        ck_assert_msg(h->contributors == ranks || h->contributors == or_ranks,
                "in the cell \"%s\": R%u heard of contributors %llx, not %llx", cell_name, a->rank,
                (unsigned long long)h->contributors, (unsigned long long)ranks);
        expect_data(a, buffer, sum);
}

/* Whose death, and that nothing was written. */
static void expect_lost(struct cell *c, struct actor *a, uint64_t request, uint64_t buffer) {
        const struct heard *h = actor_hear(a, request);
        expect_status_of(a, h, STATUS_REPLICA_LOST);
        must(h->loss == LOSS_DIED);
        must(h->rank == 0 || (h->rank == 1 && c->others == THEY_DIE));
        must(h->pid == c->pids[h->rank]);
        expect_data(a, buffer, (float)(a->rank + 1));
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
                expect_status_of(a, actor_hear(a, c->k[1]), STATUS_LEFT);
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
                        expect_status_of(a, actor_hear(a, c->k[rank]), STATUS_ABORTED);
                        must(actor_hear(a, c->k[rank])->rank == 0);
                } else {
                        expect_sum(c, a, c->k[rank], 1, 7);
                }
        }
}

/* --- afterwards --- */

static uint64_t sum_of_quotas(const struct host_counters *c) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < c->n_quotas; i++)
                if (!strstr(c->quotas[i].name, "recorder") && !strstr(c->quotas[i].name, "pending"))
                        sum += c->quotas[i].used;
        return sum;
}

/* What the honest ones and the question itself hold is always the same, but for what is pending. */
static bool is_where_it_began(const struct cell *c, char *why, size_t why_bytes) {
        const struct host_counters *then = &c->counters;
        struct host_counters now;
        int n_descriptors = host_n_descriptors(c->stage.h);
        host_counters(c->stage.h, &now);
        snprintf(why, why_bytes,
                "%d descriptors (then %d), %u sessions (%u), %u groups (%u), %llu bytes (%llu), %llu buffers "
                "(%llu), %llu pending, %llu charged (%llu), %llu ejected (%llu)",
                n_descriptors, c->n_descriptors, now.n_sessions, then->n_sessions, now.n_groups,
                then->n_groups, (unsigned long long)now.mapped_bytes, (unsigned long long)then->mapped_bytes,
                (unsigned long long)now.n_buffers, (unsigned long long)then->n_buffers,
                (unsigned long long)now.n_pending, (unsigned long long)sum_of_quotas(&now),
                (unsigned long long)sum_of_quotas(then), (unsigned long long)now.n_ejected,
                (unsigned long long)then->n_ejected);
        return n_descriptors == c->n_descriptors && now.n_sessions == then->n_sessions &&
               now.n_groups == then->n_groups && now.mapped_bytes == then->mapped_bytes &&
               now.n_buffers == then->n_buffers && now.n_pending <= 2 &&
               sum_of_quotas(&now) == sum_of_quotas(then) && now.n_ejected == then->n_ejected;
}

static void expect_where_it_began(const struct cell *c) {
        double limit = seconds_now() + 2 * unit_scale();
        char why[512];
        while (!is_where_it_began(c, why, sizeof(why))) {
                ck_assert_msg(seconds_now() < limit, "in the cell \"%s\": %s", cell_name, why);
                seconds_sleep(0.002);
        }
}

static void play(struct cell *c) {
        memset(c->k, 0, sizeof(c->k));
        memset(c->n, 0, sizeof(c->n));
        snprintf(cell_name, sizeof(cell_name), "on_death=%s: dies %s; the others %s",
                c->on_death == ON_DEATH_FAIL ? "fail" : "shrink", c->point->name, others_names[c->others]);

        set_the_scene(c);
        play_k(c);
        play_n_before(c);
        kill_them(c);
        if (c->others == THEY_COME)
                c->n[2] = submit(c, 2, "n");
        host_expect_sessions(c->stage.h, c->counters.n_sessions + (c->others == THEY_DIE ? 1 : 2));
        play_after(c);
        expect_k(c);
        expect_n(c);
        for (uint32_t rank = 1; rank < 3; rank++)
                actor_close(&c->actors[rank]);
        expect_where_it_began(c);
}

static void begin(struct cell *c, enum on_death on_death) {
        *c = (struct cell){ .on_death = on_death };
        stage_set(&c->stage, NULL);
        stage_expect_progress();
        host_counters(c->stage.h, &c->counters);
        seconds_sleep(0.1); /* the question's own connection goes */
        c->n_descriptors = host_n_descriptors(c->stage.h);
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

/* --- before there is a group --- */

enum early { CONNECTED, GREETED, JOINING, N_EARLY };

/* `n` says how far it goes. */
static void die_early(struct replica *me) {
        const struct cell *c = me->arg;
        struct actor a = { .rank = me->rank };
        a.raw = me->n == CONNECTED ? raw_connect(me->socket) : raw_open(me->socket);
        if (me->n == JOINING)
                actor_ask_to_join(&a, "table", c, 3);
        replica_say(me, "there");
        replica_hear(me, "never");
}

static void spawn_doomed(struct cell *c, enum early point, uint32_t n, struct replica **ret) {
        for (uint32_t rank = 0; rank < n; rank++) {
                ret[rank] = replica_spawn(c->stage.h,
                        &(struct replica_options){ .rank = rank, .n = point, .body = die_early, .arg = c });
                replica_expect(ret[rank], "there", 10);
        }
}

/* All three are there, and meet. */
static void join_and_meet(struct cell *c) {
        uint64_t joins[3];
        for (uint32_t rank = 0; rank < 3; rank++)
                joins[rank] = actor_ask_to_join(&c->actors[rank], "table", c, 3);
        for (uint32_t rank = 0; rank < 3; rank++) {
                c->actors[rank].member = raw_joined(c->actors[rank].raw, joins[rank]);
                c->n[rank] = actor_submit(&c->actors[rank], "n");
        }
        for (uint32_t rank = 0; rank < 3; rank++)
                expect_sum(c, &c->actors[rank], c->n[rank], 2, 7);
}

/* One or two die on their way to the group. Who waits for a group that loses a joiner hears that, and can
 * join again; who never asked to join is not missed. */
static void play_early(struct cell *c, enum early point, uint32_t n_dead) {
        struct replica *doomed[2];
        struct actor *waits = &c->actors[2];
        snprintf(cell_name, sizeof(cell_name), "%u die at point %d before there is a group", n_dead, point);
        spawn_doomed(c, point, n_dead, doomed);
        for (uint32_t rank = 0; rank < 3; rank++) {
                actor_open(&c->actors[rank], host_socket(c->stage.h), rank);
                actor_buffer(&c->actors[rank], 2, SMALL);
        }
        uint64_t join = point == JOINING ? actor_ask_to_join(waits, "table", c, 3) : 0;
        host_expect_sessions(c->stage.h, c->counters.n_sessions + 3 + n_dead);
        for (uint32_t rank = 0; rank < n_dead; rank++)
                replica_kill9(doomed[rank]);
        if (join) {
                const struct heard *h = actor_hear(waits, join);
                expect_status_of(waits, h, STATUS_REPLICA_LOST);
                must(h->loss == LOSS_DIED && h->rank >= 0 && h->rank < (int32_t)n_dead);
        }
        host_expect_sessions(c->stage.h, c->counters.n_sessions + 3);
        join_and_meet(c);
        for (uint32_t rank = 0; rank < 3; rank++)
                actor_close(&c->actors[rank]);
        expect_where_it_began(c);
}

START_TEST(P1_P20_deaths_before_there_is_a_group) {
        static const enum on_death policies[] = { ON_DEATH_FAIL, ON_DEATH_SHRINK };
        static struct cell c;
        begin(&c, ON_DEATH_FAIL);
        for (size_t i = 0; i < ARRAY_SIZE(policies); i++)
                for (int point = 0; point < N_EARLY; point++)
                        for (uint32_t n_dead = 1; n_dead <= (point == JOINING ? 1 : 2); n_dead++) {
                                c.on_death = policies[i];
                                play_early(&c, (enum early)point, n_dead);
                        }
        stage_clear(&c.stage);
}
END_TEST

UNIT_MAIN("hostile-deaths", 120, P5_P20_deaths_at_every_point_under_fail,
        P5_P20_deaths_at_every_point_under_shrink, P1_P20_deaths_before_there_is_a_group)
