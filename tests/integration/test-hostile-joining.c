/* Deaths on the way to a group: before the hello, before the join, while the group forms. What tuttid holds
 * is afterwards what it was, and the group forms all the same. */
#include <stdio.h>
#include "actor.h"
#include "meeting.h"
#include "stage.h"

struct play {
        struct stage stage;
        struct stage_mark mark;
        enum on_death on_death;
        struct actor actors[3];
        uint64_t n[3]; /* requests */
};

enum early { CONNECTED, GREETED, JOINING, N_EARLY };

/* `n` says how far it goes. */
static void die_early(struct replica *me) {
        const struct play *c = me->arg;
        struct actor a = { .rank = me->rank };
        a.raw = me->n == CONNECTED ? raw_connect(me->socket) : raw_open(me->socket);
        if (me->n == JOINING)
                actor_ask_to_join(&a, "table", 3, c->on_death);
        replica_say(me, "there");
        replica_hear(me, "never");
}

static void spawn_doomed(struct play *c, enum early point, uint32_t n, struct replica **ret) {
        for (uint32_t rank = 0; rank < n; rank++) {
                ret[rank] = replica_spawn(c->stage.h,
                        &(struct replica_options){ .rank = rank, .n = point, .body = die_early, .arg = c });
                replica_expect(ret[rank], "there", 10);
        }
}

/* All three are there, and meet. */
static void join_and_meet(struct play *c) {
        uint64_t joins[3];
        for (uint32_t rank = 0; rank < 3; rank++)
                joins[rank] = actor_ask_to_join(&c->actors[rank], "table", 3, c->on_death);
        for (uint32_t rank = 0; rank < 3; rank++) {
                c->actors[rank].member = raw_joined(c->actors[rank].raw, joins[rank]);
                c->n[rank] = actor_submit(&c->actors[rank], "n", 1);
        }
        for (uint32_t rank = 0; rank < 3; rank++)
                actor_expect_sum(&c->actors[rank], c->n[rank], 1, 7, 0);
}

/* One or two die on their way to the group. Who waits for a group that loses a joiner hears that, and can
 * join again; who never asked to join is not missed. */
static void play_early(struct play *c, enum early point, uint32_t n_dead) {
        struct replica *doomed[2];
        struct actor *waits = &c->actors[2];
        snprintf(actor_where, sizeof(actor_where), "%u die at point %d before there is a group", n_dead,
                point);
        spawn_doomed(c, point, n_dead, doomed);
        for (uint32_t rank = 0; rank < 3; rank++) {
                actor_open(&c->actors[rank], host_socket(c->stage.h), rank);
                actor_buffer(&c->actors[rank], 1, 1000);
        }
        uint64_t join = point == JOINING ? actor_ask_to_join(waits, "table", 3, c->on_death) : 0;
        host_expect_sessions(c->stage.h, c->mark.counters.n_sessions + 3 + n_dead);
        for (uint32_t rank = 0; rank < n_dead; rank++)
                replica_kill9(doomed[rank]);
        if (join) {
                const struct heard *h = actor_hear(waits, join);
                actor_expect_status(waits, h, STATUS_REPLICA_LOST);
                must(h->loss == LOSS_DIED && h->rank >= 0 && h->rank < (int32_t)n_dead);
        }
        host_expect_sessions(c->stage.h, c->mark.counters.n_sessions + 3);
        join_and_meet(c);
        for (uint32_t rank = 0; rank < 3; rank++)
                actor_close(&c->actors[rank]);
        stage_expect_mark(&c->stage, &c->mark, actor_where);
}

START_TEST(P1_P20_deaths_before_there_is_a_group) {
        static const enum on_death policies[] = { ON_DEATH_FAIL, ON_DEATH_SHRINK };
        static struct play c;
        stage_set(&c.stage, NULL);
        stage_set_mark(&c.stage, &c.mark);
        for (size_t i = 0; i < ARRAY_SIZE(policies); i++)
                for (int point = 0; point < N_EARLY; point++)
                        for (uint32_t n_dead = 1; n_dead <= (point == JOINING ? 1 : 2); n_dead++) {
                                c.on_death = policies[i];
                                play_early(&c, (enum early)point, n_dead);
                        }
        stage_clear(&c.stage);
}
END_TEST

/* --- many large groups end at once --- */

#define N_LARGE 24u
#define LARGE   1024u

/* One connection is all of its members. */
static void form_large(struct raw *r, uint32_t number) {
        struct reply reply;
        struct raw_member m[LARGE];
        char name[16];
        uint64_t first = 0, last = 0;
        snprintf(name, sizeof(name), "large-%u", number);
        for (uint32_t rank = 0; rank < LARGE; rank++) {
                const struct request join = raw_join_request(name, rank, LARGE);
                last = raw_send(r, &join);
                first = rank == 0 ? last : first;
        }
        for (uint32_t n = 0; n < LARGE;) {
                must(raw_take(r, &reply) && reply.status == STATUS_OK);
                if (reply.request < first)
                        continue;
                m[reply.request - first] = (struct raw_member){ reply.joined.membership, reply.joined.epoch };
                n++;
        }
        for (uint32_t rank = 0; rank < LARGE; rank++)
                last = raw_barrier(r, &m[rank], "k");
        raw_settle(r);
}

static uint32_t count_ended(struct raw *r) {
        uint64_t request = raw_query(r, WHAT_GROUPS, "", "");
        struct reply reply;
        uint32_t n = 0;
        do {
                must(raw_take(r, &reply) && reply.request == request && reply.status == STATUS_OK);
                for (uint32_t i = 0; i < reply.rows.n_rows; i++)
                        n += reply.rows.rows[i].type == ROW_GROUP && reply.rows.rows[i].group.ended;
        } while (reply.more);
        return n;
}

/* Who they were is kept rank for rank: others are answered in between. */
START_TEST(P21_large_groups_that_end_at_once_are_not_waited_for) {
        struct host *h = host_start(NULL);
        struct raw *r = raw_open(host_socket(h)), *other = raw_open(host_socket(h));
        const struct request goodbye = { .type = REQUEST_GOODBYE };
        for (uint32_t i = 0; i < N_LARGE; i++)
                form_large(r, i);
        ck_assert_uint_eq(count_ended(other), 0);
        raw_send(r, &goodbye);
        raw_settle(other);
        ck_assert_uint_lt(count_ended(other), N_LARGE);
        raw_close(r);
        double limit = seconds_now() + 20 * unit_scale();
        while (count_ended(other) < N_LARGE)
                ck_assert_double_lt(seconds_now(), limit);
        raw_close(other);
        host_stop(h);
}
END_TEST

UNIT_MAIN("hostile-joining", 60, P1_P20_deaths_before_there_is_a_group,
        P21_large_groups_that_end_at_once_are_not_waited_for)
