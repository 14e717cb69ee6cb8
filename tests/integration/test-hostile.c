/* Clients that know the protocol and mean harm: beside them an honest group meets, with right results and
 * without waiting for them; afterwards everything is given back (P17, P18, P21). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "meeting.h"
#include "raw.h"
#include "replica.h"
#include "unit.h"

/* --- the honest ones --- */

struct shared {
        _Atomic unsigned int n_met;
        _Atomic bool is_over;
        _Atomic double worst; /* seconds that a meeting took */
};

static struct shared *shared;

static void meet_until_told(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "honest"));
        floats_init(me->t, &f, 1000);
        for (bool is_over = false; !is_over;) {
                double begin = seconds_now();
                floats_meet(g, NULL, &f, (float)(me->rank + 1), 3);
                double took = seconds_now() - begin;
                if (took > atomic_load(&shared->worst))
                        atomic_store(&shared->worst, took);
                /* Rank 0 decides for both. */
                f.data[0] = atomic_load(&shared->is_over);
                expect_status(tutti_broadcast(g, NULL, 0, &f.value), TUTTI_OK);
                is_over = f.data[0] > 0;
                atomic_fetch_add(&shared->n_met, 1);
                seconds_sleep(0.0005);
        }
}

struct stage {
        struct host *h;
        struct replica *honest[2];
};

static void stage_set(struct stage *s, const char *const *args) {
        shared = memory_shared(sizeof(*shared));
        s->h = host_start(args);
        replicas_spawn(s->h, 2, meet_until_told, NULL, s->honest);
}

static void expect_progress(void) {
        unsigned int n = atomic_load(&shared->n_met);
        double limit = seconds_now() + 5 * unit_scale();
        while (atomic_load(&shared->n_met) < n + 4) {
                ck_assert_msg(seconds_now() < limit, "the honest group stands still");
                seconds_sleep(0.001);
        }
}

static void stage_clear(struct stage *s) {
        expect_progress();
        atomic_store(&shared->is_over, true);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(s->honest[i], 10), 0);
        host_expect_counters_zero(s->h);
        host_stop(s->h);
}

/* From here on no meeting of theirs may take long. */
static void watch_begin(void) {
        expect_progress();
        atomic_store(&shared->worst, 0);
}

static void watch_end(double seconds) {
        expect_progress();
        ck_assert_msg(atomic_load(&shared->worst) < seconds * unit_scale(),
                "a meeting of the honest group took %g s", atomic_load(&shared->worst));
}

/* --- descriptors that block when they are closed --- */

struct lingering {
        int listener, sender, receiver;
};

/* A TCP connection to ourselves, full, whose reader reads nothing: who closes its sender last waits. */
static void lingering_init(struct lingering *l, int seconds) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof(address);
        const struct linger linger = { 1, seconds };
        const int few = 2048;
        static char bytes[65536];
        l->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(l->listener, 0);
        ck_assert_int_eq(setsockopt(l->listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
        ck_assert_int_eq(bind(l->listener, (struct sockaddr *)&address, n), 0);
        ck_assert_int_eq(listen(l->listener, 1), 0);
        ck_assert_int_eq(getsockname(l->listener, (struct sockaddr *)&address, &n), 0);
        l->sender = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(l->sender, (struct sockaddr *)&address, n), 0);
        l->receiver = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC);
        ck_assert_int_ge(l->receiver, 0);
        while (send(l->sender, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
                ;
        ck_assert_int_eq(setsockopt(l->sender, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
}

/* Whoever holds the sender is released. */
static void lingering_deinit(struct lingering *l) {
        fd_close(&l->listener);
        fd_close(&l->receiver);
        fd_close(&l->sender);
}

static const struct request nothing = { .type = REQUEST_UNREGISTER, .buffer = 7 };

/* The ways into tuttid, or into its sockets. What is sent is read when tuttid goes on. */
static struct raw *by_a_message(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_send_fds(r, &nothing, &fd, 1);
        return r;
}

static struct raw *by_an_empty_packet(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_send_bytes(r, "", 0, &fd, 1);
        return r;
}

static struct raw *by_a_packet_that_is_too_long(struct host *h, int fd) {
        static char bytes[MAX_PACKET_BYTES + 1];
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_send_bytes(r, bytes, sizeof(bytes), &fd, 1);
        return r;
}

static struct raw *among_too_many(struct host *h, int fd) {
        int fds[MAX_RECEIVED_FDS];
        struct raw *r = raw_open(host_socket(h));
        for (int i = 0; i < MAX_RECEIVED_FDS; i++)
                fds[i] = STDERR_FILENO;
        fds[MAX_RECEIVED_FDS - 1] = fd;
        kill(host_pid(h), SIGSTOP);
        raw_send_bytes(r, "x", 1, fds, MAX_RECEIVED_FDS);
        return r;
}

static struct raw *behind_a_mistake(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_hello(r); /* the second: what follows is never read */
        raw_send_fds(r, &nothing, &fd, 1);
        return r;
}

static struct raw *behind_a_held_submission(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        struct raw_member m = raw_join(r, "held", 0, 1);
        kill(host_pid(h), SIGSTOP);
        raw_register(r, 1, raw_memfd(4096), 4096);
        raw_submit(r, &m, "a", 1, 4);
        raw_send_bytes(r, "no message", 10, NULL, 0);
        raw_send_fds(r, &nothing, &fd, 1);
        return r;
}

/* The connections of this user are all taken. */
static struct raw *before_it_is_turned_away(struct host *h, int fd) {
        kill(host_pid(h), SIGSTOP);
        struct raw *r = raw_connect(host_socket(h));
        raw_send_bytes(r, "x", 1, &fd, 1);
        return r;
}

/* tuttid is the last to hold what blocks for three seconds; the honest group does not wait for a third of
 * that. */
static void send_what_lingers(struct stage *s, struct raw *(*way)(struct host *, int)) {
        struct lingering l;
        lingering_init(&l, (int)(3 * unit_scale()));
        watch_begin();
        struct raw *r = way(s->h, l.sender);
        fd_close(&l.sender);
        kill(host_pid(s->h), SIGCONT);
        seconds_sleep(0.1);
        raw_close(r);
        watch_end(1);
        lingering_deinit(&l);
}

START_TEST(P21_no_way_leads_a_descriptor_that_blocks_to_the_loop) {
        static struct raw *(*const ways[])(struct host *, int) = { by_a_message, by_an_empty_packet,
                by_a_packet_that_is_too_long, among_too_many, behind_a_mistake, behind_a_held_submission };
        struct stage s;
        stage_set(&s, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
                send_what_lingers(&s, ways[i]);
        stage_clear(&s);
}
END_TEST

START_TEST(P21_nor_does_one_of_a_guest_who_is_turned_away) {
        struct stage s;
        struct raw *last = NULL;
        stage_set(&s, (const char *[]){ "--set", "quota.connections=4", NULL });
        expect_progress();
        struct raw *one = raw_open(host_socket(s.h));
        for (int i = 0; i < 100 && !last; i++) /* that of the last question may still be there */
                last = raw_open(host_socket(s.h));
        send_what_lingers(&s, before_it_is_turned_away);
        raw_close(one);
        raw_close(last);
        stage_clear(&s);
}
END_TEST

static void kill_behind_it(struct replica *me) {
        struct lingering *l = me->arg;
        struct raw *r = raw_open(me->socket);
        replica_say(me, "ready");
        replica_hear(me, "send");     /* tuttid stands still */
        for (int i = 0; i < 100; i++) /* more than is read of the dead */
                raw_send(r, &nothing);
        raw_send_fds(r, &nothing, &l->sender, 1);
        fd_close(&l->sender);
        replica_say(me, "sent");
        pause();
}

START_TEST(P21_nor_does_one_that_the_dead_have_left) {
        struct stage s;
        struct lingering l;
        stage_set(&s, NULL);
        lingering_init(&l, (int)(3 * unit_scale()));
        struct replica *r =
                replica_spawn(s.h, &(struct replica_options){ .n = 1, .body = kill_behind_it, .arg = &l });
        fd_close(&l.sender);
        replica_expect(r, "ready", 5);
        watch_begin();
        kill(host_pid(s.h), SIGSTOP);
        replica_tell(r, "send");
        replica_expect(r, "sent", 5);
        replica_kill9(r);
        kill(host_pid(s.h), SIGCONT);
        seconds_sleep(0.1);
        watch_end(1);
        lingering_deinit(&l);
        stage_clear(&s);
}
END_TEST

/* It would take a minute. */
START_TEST(P21_a_descriptor_that_does_not_close_does_not_keep_tuttid_from_ending) {
        struct lingering l;
        struct host *h = host_start(NULL);
        lingering_init(&l, 60);
        struct raw *r = by_a_message(h, l.sender);
        fd_close(&l.sender);
        kill(host_pid(h), SIGCONT);
        seconds_sleep(0.1);
        host_end(h);
        raw_close(r);
        lingering_deinit(&l);
        host_stop(h);
}
END_TEST

/* --- other users --- */

static void let_everybody_in(const struct host *h) {
        if (getuid() != 0)
                unit_skip("needs root, to be several users");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
        ck_assert_int_eq(chmod(host_socket(h), 0666), 0);
}

static void become(uint32_t uid) {
        ck_assert_int_eq(setgid(uid), 0);
        ck_assert_int_eq(setuid(uid), 0);
}

static uint64_t used_of(struct raw *r, const char *quota) {
        const struct reply reply = raw_expect(r, raw_query(r, WHAT_QUOTA, "", ""), STATUS_OK);
        for (uint32_t i = 0; i < reply.rows.n_rows; i++)
                if (strcmp(reply.rows.rows[i].quota.name, quota) == 0)
                        return reply.rows.rows[i].quota.used;
        ck_abort_msg("no quota %s", quota);
}

/* Within two seconds; with what the honest ones may hold at the moment, where they are of this user too. */
static void expect_used(struct raw *r, const char *quota, uint64_t used) {
        double limit = seconds_now() + 2 * unit_scale();
        uint64_t now;
        while ((now = used_of(r, quota)) < used || now > used + 2)
                ck_assert_msg(seconds_now() < limit, "%s: %llu, not %llu", quota, (unsigned long long)now,
                        (unsigned long long)used);
}

static void stick(struct replica *me) {
        struct lingering l;
        become(1000);
        lingering_init(&l, (int)(10 * unit_scale()));
        struct raw *r = raw_open(me->socket);
        replica_say(me, "ready");
        replica_hear(me, "send");
        raw_send_fds(r, &nothing, &l.sender, 1);
        fd_close(&l.sender);
        replica_say(me, "sent");
        replica_hear(me, "end");
        ck_assert_uint_eq(used_of(r, "descriptors"), 3); /* socket, pidfd, and what does not close */
        raw_close(r);
        lingering_deinit(&l);
}

static void send_strangers(struct replica *me) {
        become(1001);
        struct raw *r = raw_open(me->socket);
        for (int i = 0; i < 100; i++) {
                const int fds[] = { STDIN_FILENO, STDERR_FILENO };
                raw_expect(r, raw_send_fds(r, &nothing, fds, 2), STATUS_NOT_FOUND);
        }
        expect_used(r, "descriptors", 2);
        raw_close(r);
}

START_TEST(P21_the_closer_of_one_user_is_not_anothers) {
        struct host *h = host_start(NULL);
        let_everybody_in(h);
        struct replica *bad = replica_spawn(h, &(struct replica_options){ .n = 1, .body = stick });
        replica_expect(bad, "ready", 5);
        kill(host_pid(h), SIGSTOP);
        replica_tell(bad, "send");
        replica_expect(bad, "sent", 5);
        kill(host_pid(h), SIGCONT);
        seconds_sleep(0.05);
        struct replica *good = replica_spawn(h, &(struct replica_options){ .n = 1, .body = send_strangers });
        ck_assert_int_eq(replica_end(good, 5), 0);
        replica_tell(bad, "end");
        ck_assert_int_eq(replica_end(bad, 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void be_nobody(struct replica *me) {
        become(65534);
        struct raw *r = raw_connect(me->socket);
        raw_hello(r);
        raw_expect_ejected(r, STATUS_PERMISSION);
        raw_close(r);
}

START_TEST(G6_the_overflow_uid_is_turned_away) {
        struct host *h = host_start(NULL);
        let_everybody_in(h);
        struct replica *r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = be_nobody });
        ck_assert_int_eq(replica_end(r, 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- what a client makes tuttid hold --- */

START_TEST(P18_refused_registrations_are_charged) {
        struct stage s;
        stage_set(&s, (const char *[]){ "--set", "quota.descriptors=100", NULL });
        expect_progress();
        struct raw *r = raw_open(host_socket(s.h));
        const struct request bad = { .type = REQUEST_REGISTER,
                .reg = { .size_bytes = 1, .access = ACCESS_IN, .kind = BUFFER_KIND_MEMFD, .device = "" } };
        struct request numbered = bad;
        for (uint64_t i = 1; i <= 1000; i++) {
                numbered.reg.buffer = i;
                raw_expect(r, raw_send(r, &numbered), STATUS_BAD_FD);
        }
        ck_assert_uint_eq(used_of(r, "descriptors"), 100);
        raw_expect(r, raw_send(r, &(struct request){ .type = REQUEST_UNREGISTER, .buffer = 1 }), STATUS_OK);
        ck_assert_uint_eq(used_of(r, "descriptors"), 99);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* Memory for the entries of a large submission is charged before they come. */
START_TEST(P18_announced_entries_are_charged) {
        struct stage s;
        stage_set(&s, (const char *[]){ "--set", "quota.pending=1500", NULL });
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        const struct entry entry = raw_entry(1, 1);
        struct request large = raw_submit_request(&(struct raw_member){ 1, 1 }, "a", &entry);
        large.submit.signature.kind = KIND_BATCH_REDUCE;
        large.submit.signature.n_entries = MAX_ENTRIES;
        large.submit.more = true;
        raw_send(a, &large);
        expect_used(b, "pending", MAX_ENTRIES / 64);
        large.request = b->next_request++;
        raw_expect(b, raw_send(b, &large), STATUS_NOT_FOUND); /* no such membership: rule 1 comes first */
        large.submit.more = false;                            /* ... and what else comes of it is dropped */
        raw_send(b, &large);
        expect_used(b, "pending", MAX_ENTRIES / 64);
        struct raw_member m = raw_join(b, "alone", 0, 1);
        large.request = 0;
        large.submit.membership = m.membership;
        large.submit.more = true;
        raw_expect(b, raw_send(b, &large), STATUS_QUOTA);
        raw_close(a);
        expect_used(b, "pending", 0);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

START_TEST(P9_more_unfinished_submissions_than_the_page_has_slots_are_refused) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct request join = raw_join_request("pair", 0, 2);
        uint64_t first = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "pair", 1, 2), ma = raw_joined(a, first);
        char key[16];
        for (int i = 0; i < STATUS_PAGE_SLOTS; i++) {
                snprintf(key, sizeof(key), "k%d", i);
                first = raw_barrier(a, &ma, key);
        }
        raw_expect(a, raw_barrier(a, &ma, "one more"), STATUS_LIMIT);
        const struct reply told = raw_expect(b, raw_barrier(b, &mb, "one more"), STATUS_EXPIRED);
        ck_assert_int_eq(told.error->cause, STATUS_PEER_REFUSED);
        raw_expect(b, raw_barrier(b, &mb, key), STATUS_OK);
        raw_expect(a, first, STATUS_OK);
        raw_expect(b, raw_barrier(b, &mb, "k0"), STATUS_OK);
        ck_assert(raw_is_silent(b, 0));
        uint64_t again = raw_barrier(a, &ma, "there is room again");
        raw_expect(b, raw_barrier(b, &mb, "there is room again"), STATUS_OK);
        raw_expect(a, again, STATUS_OK);
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

/* --- questions --- */

static uint32_t count_rows(struct raw *r, uint64_t request, enum row_type type) {
        struct reply reply;
        uint32_t n = 0;
        do {
                ck_assert(raw_take(r, &reply));
                ck_assert_uint_eq(reply.request, request);
                ck_assert_int_eq(reply.status, STATUS_OK);
                for (uint32_t i = 0; i < reply.rows.n_rows; i++)
                        n += reply.rows.rows[i].type == type;
        } while (reply.more);
        return n;
}

START_TEST(a_group_can_be_asked_about_while_it_forms) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        const struct request join = raw_join_request("half", 1, 3);
        raw_send(r, &join);
        const struct reply reply = raw_expect(r, raw_query(r, WHAT_GROUPS, "test", "half"), STATUS_OK);
        ck_assert_uint_eq(reply.rows.n_rows, 4);
        ck_assert(reply.rows.rows[0].group.forming);
        for (uint32_t rank = 0; rank < 3; rank++) {
                const struct row_member *m = &reply.rows.rows[1 + rank].member;
                ck_assert_uint_eq(m->rank, rank);
                ck_assert_str_eq(m->group, "half");
                ck_assert_int_eq(m->state, rank == 1 ? PROCESS_ALIVE : PROCESS_ABSENT);
        }
        ck_assert_uint_eq(count_rows(r, raw_query(r, WHAT_STATS, "test", "half"), ROW_MEMBER), 3);
        raw_expect(r, raw_query(r, WHAT_STATUS, "", ""), STATUS_OK);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

#define N_CROWDS 16

/* Sixteen groups of a thousand, by one connection. */
static void join_crowds(struct raw *r) {
        char name[16];
        for (int i = 0; i < N_CROWDS; i++) {
                uint64_t last = 0;
                snprintf(name, sizeof(name), "crowd %d", i);
                for (uint32_t rank = 0; rank < MAX_WORLD; rank++) {
                        const struct request join = raw_join_request(name, rank, MAX_WORLD);
                        last = raw_send(r, &join);
                }
                raw_expect(r, last, STATUS_OK);
        }
}

START_TEST(P21_long_answers_let_others_through) {
        struct stage s;
        struct raw *deaf[8];
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        join_crowds(r);
        watch_begin();
        for (size_t i = 0; i < ARRAY_SIZE(deaf); i++) { /* who never read theirs */
                deaf[i] = raw_open(host_socket(s.h));
                for (int k = 0; k < 10; k++)
                        raw_query(deaf[i], WHAT_GROUPS, "", "");
        }
        uint32_t n = count_rows(r, raw_query(r, WHAT_GROUPS, "", ""), ROW_MEMBER);
        ck_assert_uint_eq(n, N_CROWDS * MAX_WORLD + 2); /* and the honest ones */
        ck_assert_uint_eq(count_rows(r, raw_query(r, WHAT_STATS, "test", "crowd 3"), ROW_MEMBER), MAX_WORLD);
        watch_end(0.1);
        struct host_counters c;
        host_counters(s.h, &c);
        ck_assert_uint_eq(c.n_ejected, 0);
        for (size_t i = 0; i < ARRAY_SIZE(deaf); i++)
                raw_close(deaf[i]);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* --- everything in the wrong state --- */

static enum status ask(struct raw *r, const struct request *request) {
        return raw_await(r, raw_send(r, request)).status;
}

static enum status leave(struct raw *r, const struct raw_member *m) {
        return ask(r, &(struct request){ .type = REQUEST_LEAVE, .membership = m->membership });
}

static enum status busy(struct raw *r, const struct raw_member *m, uint64_t duration_ns) {
        return ask(r, &(struct request){ .type = REQUEST_BUSY, .busy = { m->membership, "", duration_ns } });
}

static enum status abort_key(struct raw *r, const struct raw_member *m, const char *key) {
        return ask(r, &(struct request){ .type = REQUEST_ABORT,
                              .abort = { m->membership, true, raw_key(key), "for no reason" } });
}

static enum status submit(struct raw *r, const struct raw_member *m, const char *key, uint64_t buffer) {
        return raw_await(r, raw_submit(r, m, key, buffer, 16)).status;
}

START_TEST(P19_what_is_another_sessions_cannot_be_touched) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct raw_member ma = raw_join(a, "a", 0, 1), mb = raw_join(b, "b", 0, 1);
        raw_buffer(a, 1, raw_memfd(4096), 4096);
        for (uint64_t m = 0; m < 20; m++) { /* the honest ones' too */
                const struct raw_member foreign = { m, 1 };
                if (m == mb.membership)
                        continue;
                ck_assert_int_eq(leave(b, &foreign), STATUS_NOT_FOUND);
                ck_assert_int_eq(busy(b, &foreign, UINT64_MAX), STATUS_NOT_FOUND);
                ck_assert_int_eq(abort_key(b, &foreign, "a"), STATUS_NOT_FOUND);
                ck_assert_int_eq(submit(b, &foreign, "a", 1), STATUS_NOT_FOUND);
        }
        ck_assert_int_eq(submit(b, &mb, "a", 1), STATUS_NOT_FOUND); /* the buffer is a's */
        ck_assert_int_eq(ask(b, &nothing), STATUS_NOT_FOUND);
        ck_assert_int_eq(submit(a, &ma, "a", 1), STATUS_OK);
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

START_TEST(a_membership_that_is_over_is_over) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        const struct request join = raw_join_request("a", 0, 1);
        struct raw_member m = raw_join(r, "a", 0, 1), old = { m.membership, m.epoch + 1 };
        ck_assert_int_eq(ask(r, &join), STATUS_BUSY);
        raw_buffer(r, 1, raw_memfd(4096), 4096);
        raw_expect(r, raw_register(r, 1, raw_memfd(8192), 8192), STATUS_LIMIT);
        ck_assert_int_eq(submit(r, &old, "a", 1), STATUS_REPLICA_LOST);
        ck_assert_int_eq(busy(r, &m, UINT64_MAX), STATUS_OK);
        ck_assert_int_eq(submit(r, &m, "a", 1), STATUS_OK);
        ck_assert_int_eq(leave(r, &m), STATUS_OK);
        ck_assert_int_ne(leave(r, &m), STATUS_OK);
        ck_assert_int_ne(submit(r, &m, "a", 1), STATUS_OK);
        ck_assert_int_ne(busy(r, &m, 1), STATUS_OK);
        ck_assert_int_ne(abort_key(r, &m, "a"), STATUS_OK);
        m = raw_join(r, "a", 0, 1); /* formed anew */
        ck_assert_int_eq(submit(r, &m, "a", 1), STATUS_OK);
        raw_send(r, &(struct request){ .type = REQUEST_GOODBYE });
        ck_assert_int_ne(submit(r, &m, "a", 1), STATUS_OK);
        m = raw_join(r, "b", 0, 1); /* a goodbye ends memberships, not words */
        ck_assert_int_eq(submit(r, &m, "a", 1), STATUS_OK);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

START_TEST(P6_deadlines_of_any_size_are_deadlines) {
        static const uint64_t never[] = { 0, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63 };
        struct stage s;
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct request join = raw_join_request("pair", 0, 2);
        join.join.join_timeout_ns = UINT64_MAX;
        join.join.has_default_timeout = true;
        join.join.default_timeout_ns = 1;
        uint64_t first = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "pair", 1, 2), ma = raw_joined(a, first);
        for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
                struct request half = raw_submit_request(&ma, "never", NULL);
                half.submit.has_timeout = true;
                half.submit.timeout_ns = never[i];
                first = raw_send(a, &half);
                ck_assert(raw_is_silent(a, 0.05));
                raw_expect(b, raw_barrier(b, &mb, "never"), STATUS_OK);
                raw_expect(a, first, STATUS_OK);
        }
        raw_expect(a, raw_barrier(a, &ma, "soon"), STATUS_TIMEOUT);
        ck_assert_int_eq(busy(b, &mb, UINT64_MAX), STATUS_OK); /* stops that clock */
        first = raw_barrier(a, &ma, "busy");
        ck_assert(raw_is_silent(a, 0.05));
        ck_assert_int_eq(busy(b, &mb, 1), STATUS_OK);
        raw_expect(a, first, STATUS_TIMEOUT);
        join = raw_join_request("alone", 0, 2);
        join.join.join_timeout_ns = 1;
        raw_expect(a, raw_send(a, &join), STATUS_TIMEOUT);
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

/* Whoever lets 4,096 collectives pass is out of step; nobody else is. */
START_TEST(P3_a_storm_of_keys_meets_the_limit_of_debts) {
        struct stage s;
        char key[16];
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct request join = raw_join_request("pair", 0, 2);
        join.join.on_death = ON_DEATH_SHRINK;
        uint64_t first = raw_send(a, &join);
        join.join.rank = 1;
        struct raw_member mb = raw_joined(b, raw_send(b, &join)), ma = raw_joined(a, first);
        for (int i = 0; i < 4096; i++) {
                snprintf(key, sizeof(key), "k%d", i);
                first = raw_barrier(a, &ma, key);
                ck_assert_int_eq(abort_key(a, &ma, key), STATUS_OK);
        }
        expect_used(a, "pending", 4096);
        raw_expect(b, raw_barrier(b, &mb, "k0"), STATUS_EXPIRED); /* paid: there is room for one more */
        raw_barrier(a, &ma, "k0");
        ck_assert_int_eq(abort_key(a, &ma, "k0"), STATUS_OK);
        ck_assert(raw_is_silent(b, 0.05));
        raw_barrier(a, &ma, "last");
        ck_assert_int_eq(abort_key(a, &ma, "last"), STATUS_OK);
        raw_expect_ejected(b, STATUS_LIMIT);
        expect_used(a, "pending", 0);
        raw_expect(a, raw_barrier(a, &ma, "k1"), STATUS_OK); /* it goes on alone */
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

/* --- ending --- */

START_TEST(waiting_clients_do_not_keep_tuttid_from_ending) {
        struct host *h = host_start(NULL);
        struct raw *a = raw_open(host_socket(h)), *b = raw_open(host_socket(h));
        struct request join = raw_join_request("pair", 0, 2);
        uint64_t n = UINT64_C(4) << 20, first = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "pair", 1, 2), ma = raw_joined(a, first);
        struct reply reply;
        join = raw_join_request("half", 0, 2);
        raw_send(b, &join);
        raw_buffer(a, 1, raw_memfd(4 * n), 4 * n);
        raw_buffer(b, 1, raw_memfd(4 * n), 4 * n);
        uint64_t waits = raw_barrier(a, &ma, "waits"), runs = raw_submit(a, &ma, "runs", 1, n);
        raw_submit(b, &mb, "runs", 1, n);
        raw_expect(b, raw_query(b, WHAT_STATUS, "", ""), STATUS_OK);
        host_end(h);
        /* What ran has run to its end. */
        raw_expect(a, runs, STATUS_OK);
        while (raw_take(a, &reply))
                ck_assert(reply.request != waits || reply.status != STATUS_OK);
        raw_close(a);
        raw_close(b);
        host_stop(h);
}
END_TEST

/* --- a storm --- */

struct storm {
        struct host *h;
        struct raw *clients[4];
        uint64_t seed, memberships[16];
        unsigned int n_memberships;
};

static uint32_t any(struct storm *s, uint32_t n) {
        s->seed ^= s->seed << 13;
        s->seed ^= s->seed >> 7;
        s->seed ^= s->seed << 17;
        return (uint32_t)(s->seed >> 20) % n;
}

static uint64_t odd(struct storm *s) {
        static const uint64_t numbers[] = { 0, 1, 2, 3, 64, 4096, MAX_ENTRIES, UINT64_C(1) << 31, UINT32_MAX,
                UINT64_C(1) << 47, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX };
        return numbers[any(s, ARRAY_SIZE(numbers))];
}

static int any_descriptor(struct storm *s) {
        int fd = -1, ends[2];
        switch (any(s, 6)) {
        case 0: fd = open("/dev/null", O_RDWR | O_CLOEXEC); break;
        case 1:
                ck_assert_int_eq(pipe(ends), 0);
                close(ends[0]);
                fd = ends[1];
                break;
        case 2: fd = raw_memfd(any(s, 5) * UINT64_C(4096)); break;
        case 3:
                fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
                ck_assert_int_eq(ftruncate(fd, (off_t)1 << 40), 0);
                break;
        case 4:
                fd = raw_memfd(8192);
                ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
                break;
        case 5: fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); break;
        }
        ck_assert_int_ge(fd, 0);
        return fd;
}

static uint64_t any_membership(struct storm *s) {
        return s->n_memberships && any(s, 8) ? s->memberships[any(s, 16)] : odd(s);
}

static struct request any_join(struct storm *s) {
        static const char *const names[] = { "a", "b", "c", "", "\x01" };
        struct request r = raw_join_request(names[any(s, any(s, 8) ? 3 : 5)], any(s, 3), 1 + any(s, 3));
        if (any(s, 10) == 0)
                r.join.rank = (uint32_t)odd(s);
        if (any(s, 10) == 0)
                r.join.world_size = (uint32_t)odd(s);
        r.join.join_timeout_ns = any(s, 2) ? 1 + any(s, 1000000) : odd(s);
        r.join.on_death = (enum on_death)any(s, 4);
        r.join.on_leave = (enum on_leave)any(s, 4);
        r.join.has_default_timeout = any(s, 2);
        r.join.default_timeout_ns = odd(s);
        return r;
}

static struct request any_registration(struct storm *s) {
        return (struct request){ .type = REQUEST_REGISTER,
                .reg = { .buffer = any(s, 6) ? any(s, 8) : odd(s),
                        .size_bytes = any(s, 3) ? any(s, 3) * 4096 : odd(s),
                        .access = (enum access)any(s, 5),
                        .kind = any(s, 8) ? BUFFER_KIND_MEMFD : (enum buffer_kind)any(s, 5),
                        .n_descriptors = any(s, 30) ? 1 : any(s, 4),
                        .device = any(s, 12) ? "" : "GPU:0" } };
}

static struct entry any_entry(struct storm *s) {
        struct entry e = raw_entry(any(s, 8), any(s, 2000));
        if (any(s, 3))
                return e;
        e.dtype = (enum dtype)any(s, N_DTYPE);
        e.destination = (enum destination)any(s, DESTINATION_SAME + 1);
        e.destination_rank = (uint32_t)any(s, 4);
        e.n_dims = any(s, MAX_DIMS + 2);
        e.shape[any(s, MAX_DIMS)] = odd(s);
        e.input.offset_bytes = odd(s);
        e.output.buffer = any(s, 8);
        e.output.offset_bytes = any(s, 2) ? any(s, 2000) : odd(s);
        return e;
}

static struct request any_submission(struct storm *s) {
        static struct entry entries[300];
        uint32_t n = any(s, 4) ? 1 : any(s, ARRAY_SIZE(entries));
        for (uint32_t i = 0; i < n; i++)
                entries[i] = any_entry(s);
        struct request r = raw_submit_request(&(struct raw_member){ any_membership(s), 1 }, "k", entries);
        r.submit.key.bytes[0] = (char)('k' + any(s, 4));
        if (any(s, 4) == 0)
                r.submit.key = key_sequence(any(s, 3));
        r.submit.has_key = any(s, 12);
        r.submit.epoch = any(s, 9) ? 1 : odd(s);
        r.submit.signature.kind = (enum kind)(any(s, 4) ? 1 + any(s, 4) : any(s, N_KIND));
        if (any(s, 6) == 0)
                r.submit.signature.op = (enum op)any(s, N_OP);
        r.submit.signature.root = any(s, 9) ? any(s, 3) : (uint32_t)odd(s);
        r.submit.signature.n_entries = any(s, 40) ? n : (uint32_t)odd(s);
        r.submit.has_timeout = any(s, 2);
        r.submit.timeout_ns = any(s, 2) ? any(s, 1000000) : odd(s);
        r.submit.n_part_entries = n;
        r.submit.more = any(s, 40) == 0;
        if (any(s, 10) == 0)
                r.submit.refused = (enum status)any(s, N_STATUS);
        return r;
}

static struct request any_request(struct storm *s) {
        struct request r = { .type = REQUEST_NONE };
        switch (any(s, 16)) {
        case 0:
        case 1:
        case 2: return any_join(s);
        case 3:
        case 4: return any_registration(s);
        case 5:
        case 6:
        case 7:
        case 8: return any_submission(s);
        case 9:
                r.type = REQUEST_ABORT;
                r.abort = (struct msg_abort){ any_membership(s), any(s, 9), raw_key("k"), "\x1b[31mred\n" };
                break;
        case 10:
                r.type = REQUEST_BUSY;
                r.busy = (struct msg_busy){ any_membership(s), "\x1b[31mred\n", odd(s) };
                break;
        case 11:
                r.type = REQUEST_QUERY;
                r.query = (struct msg_query){ (enum what)any(s, WHAT_QUOTA + 2), any(s, 2) ? "test" : "",
                        any(s, 2) ? "a" : "" };
                break;
        case 12:
                r.type = REQUEST_LEAVE;
                r.membership = any_membership(s);
                break;
        case 13:
                r.type = REQUEST_UNREGISTER;
                r.buffer = any(s, 8);
                break;
        case 14:
                if (any(s, 20) == 0)
                        r.type = REQUEST_GOODBYE;
                break;
        case 15:
                if (any(s, 20) == 0)
                        r = (struct request){ .type = REQUEST_HELLO,
                                .hello = { any(s, 3), any(s, 3), "", "" } };
                else
                        r.type = (enum request_type)(REQUEST_REJOIN + any(s, REQUEST_PAGES - REQUEST_REJOIN));
                break;
        }
        return r;
}

/* false: tuttid does not read now, or is not there. */
static bool storm_say(struct storm *s, struct raw *r) {
        const struct request request = any_request(s);
        int fds[MAX_PACKET_FDS + 2];
        uint32_t n = request.type == REQUEST_REGISTER && any(s, 30) ? 1 : 0;
        if (any(s, 40) == 0)
                n = any(s, ARRAY_SIZE(fds));
        for (uint32_t i = 0; i < n; i++)
                fds[i] = any_descriptor(s);
        bool is_sent = raw_try_send(r, &request, fds, n);
        for (uint32_t i = 0; i < n; i++)
                close(fds[i]);
        return is_sent;
}

static bool storm_listen(struct storm *s, struct raw *r) {
        struct reply reply;
        while (!raw_is_silent(r, 0)) {
                if (!raw_take(r, &reply) || reply.request == 0)
                        return false;
                if (reply.type == REPLY_JOINED && reply.status == STATUS_OK)
                        s->memberships[s->n_memberships++ % 16] = reply.joined.membership;
        }
        return true;
}

static void storm_step(struct storm *s) {
        struct raw **r = &s->clients[any(s, ARRAY_SIZE(s->clients))];
        if (!*r) {
                *r = raw_connect(host_socket(s->h));
                if (any(s, 20))
                        raw_hello(*r);
        }
        for (uint32_t n = any(s, 20); n > 0 && storm_say(s, *r); n--)
                ;
        if (any(s, 100) && (any(s, 3) == 0 || storm_listen(s, *r)))
                return;
        raw_close(*r);
        *r = NULL;
}

START_TEST(P17_a_storm_of_everything_harms_nobody_else) {
        struct stage stage;
        struct storm s = { .seed = 88172645463325252 };
        stage_set(&stage, NULL);
        s.h = stage.h;
        watch_begin();
        for (double end = seconds_now() + 1.5; seconds_now() < end;)
                storm_step(&s);
        watch_end(0.5);
        for (size_t i = 0; i < ARRAY_SIZE(s.clients); i++)
                raw_close(s.clients[i]);
        ck_assert_uint_gt(s.n_memberships, 0);
        stage_clear(&stage);
}
END_TEST

UNIT_MAIN("hostile", 60, P21_no_way_leads_a_descriptor_that_blocks_to_the_loop,
        P21_nor_does_one_of_a_guest_who_is_turned_away, P21_nor_does_one_that_the_dead_have_left,
        P21_a_descriptor_that_does_not_close_does_not_keep_tuttid_from_ending,
        P21_the_closer_of_one_user_is_not_anothers, G6_the_overflow_uid_is_turned_away,
        P18_refused_registrations_are_charged, P18_announced_entries_are_charged,
        P9_more_unfinished_submissions_than_the_page_has_slots_are_refused,
        a_group_can_be_asked_about_while_it_forms, P21_long_answers_let_others_through,
        P19_what_is_another_sessions_cannot_be_touched, a_membership_that_is_over_is_over,
        P6_deadlines_of_any_size_are_deadlines, P3_a_storm_of_keys_meets_the_limit_of_debts,
        waiting_clients_do_not_keep_tuttid_from_ending, P17_a_storm_of_everything_harms_nobody_else)
