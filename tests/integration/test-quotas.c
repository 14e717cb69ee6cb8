/* Limits of each user, and the walls between users (P18 P19, O4 O6). What takes a second user needs root. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/admin.h>
#include <unistd.h>
#include <poll.h>
#include "meeting.h"
#include "raw.h"
#include "replica.h"
#include "unit.h"

#define OTHER_UID 54321

static void need_root(void) {
        if (geteuid() != 0)
                unit_skip("a second user takes root");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
}

/* From here on another user, of the same group: that is whom the socket is for. The test itself stays root,
 * so that its own questions to tuttid are charged to somebody else. */
static void become_other(void) {
        ck_assert_int_eq(setresuid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
}

static struct host *start(const char *limit) {
        return host_start((const char *[]){ "--set", limit, NULL });
}

static struct replica *spawn(struct host *h, void (*body)(struct replica *me)) {
        return replica_spawn(h, &(struct replica_options){ .rank = 0, .n = 1, .body = body });
}

static void end(struct replica *r) {
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
}

/* The error is QUOTA, of this name, with these numbers, as data and in words. */
static void expect_quota(const struct tutti_error_info *e, const char *name, uint64_t used, uint64_t limit) {
        char numbers[64];
        ck_assert_msg(e->status == TUTTI_QUOTA, "%s", e->text);
        snprintf(numbers, sizeof(numbers), "has %llu of %llu", (unsigned long long)used,
                (unsigned long long)limit);
        expect_in(e->text, "QUOTA");
        expect_in(e->text, name);
        expect_in(e->text, numbers);
        ck_assert_uint_eq(e->used, used);
        ck_assert_uint_eq(e->limit, limit);
}

static enum tutti_status join_alone(struct replica *me, const char *name, struct tutti_group **ret) {
        return tutti_join(replica_open(me), &TUTTI_JOIN(.group = name, .job = "test", .world_size = 1), ret);
}

/* Root's own little job, whatever the other user has used up. */
static void go_on(struct replica *me) {
        struct tutti_group *g;
        struct floats f;
        expect_status(join_alone(me, "root's", &g), TUTTI_OK);
        floats_init(me->t, &f, 1000);
        floats_meet(g, NULL, &f, 3, 3);
}

static void expect_root_unharmed(struct host *h) {
        ck_assert_int_eq(replica_end(spawn(h, go_on), 10), 0);
}

/* `body` uses up the other user's limit, says "full" and hears "end". */
static void run_against(const char *limit, void (*body)(struct replica *me)) {
        need_root();
        struct host *h = start(limit);
        struct replica *r = spawn(h, body);
        replica_expect(r, "full", 10);
        expect_root_unharmed(h);
        end(r);
        host_expect_counters_zero(h);
        host_stop(h);
}

/* --- P18 --- */

static void use_up_groups(struct replica *me) {
        struct tutti_group *a, *b, *c;
        become_other();
        expect_status(join_alone(me, "a", &a), TUTTI_OK);
        expect_status(join_alone(me, "b", &b), TUTTI_OK);
        expect_status(join_alone(me, "c", &c), TUTTI_QUOTA);
        expect_quota(tutti_error_info(), "groups", 2, 2);
        expect_status(tutti_barrier(a, NULL), TUTTI_OK); /* what is there is unharmed */
        replica_say(me, "full");
        replica_hear(me, "end");
        tutti_group_free(a);
        expect_status(join_alone(me, "c", &c), TUTTI_OK);
        expect_status(tutti_barrier(c, NULL), TUTTI_OK);
}

START_TEST(P18_O4_groups) {
        run_against("quota.groups=2", use_up_groups);
}
END_TEST

static void use_up_connections(struct replica *me) {
        struct tutti *all[4];
        struct tutti_group *g;
        become_other();
        for (int i = 0; i < 3; i++)
                expect_status(tutti_open(me->socket, &all[i]), TUTTI_OK);
        expect_status(tutti_open(me->socket, &all[3]), TUTTI_QUOTA);
        expect_quota(tutti_error_info(), "connections", 3, 3);
        expect_status(
                tutti_join(all[1], &TUTTI_JOIN(.group = "a", .job = "test", .world_size = 1), &g), TUTTI_OK);
        replica_say(me, "full");
        replica_hear(me, "end");
        tutti_close(all[0]);
        double limit = seconds_now() + 2 * unit_scale();
        while (tutti_open(me->socket, &all[0]) != TUTTI_OK)
                ck_assert_msg(seconds_now() < limit, "%s", tutti_error());
        for (int i = 0; i < 3; i++)
                tutti_close(all[i]);
}

START_TEST(P18_O4_connections) {
        run_against("quota.connections=3", use_up_connections);
}
END_TEST

/* An alloc may hear of it with its first use. */
static void use_up_memory(struct replica *me) {
        struct tutti_buffer *b, *c;
        struct floats f;
        struct tutti_group *g;
        int fds[2];
        become_other();
        for (int i = 0; i < 2; i++) {
                fds[i] = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
                ck_assert_int_eq(ftruncate(fds[i], 12 << 20), 0);
        }
        expect_status(join_alone(me, "a", &g), TUTTI_OK);
        expect_status(tutti_buffer_from_fd(me->t, fds[0], 0, TUTTI_INOUT, &b), TUTTI_OK);
        expect_status(tutti_buffer_from_fd(me->t, fds[1], 0, TUTTI_INOUT, &c), TUTTI_QUOTA);
        expect_quota(tutti_error_info(), "mapped-bytes", 12 << 20, 16 << 20);
        if (tutti_buffer_alloc(me->t, 8 << 20, &f.buffer) == TUTTI_OK) {
                f.value = TUTTI_VALUE(.buffer = f.buffer, .dtype = TUTTI_U8);
                ck_assert_int_ne(tutti_all_reduce(g, NULL, TUTTI_SUM, &f.value, &f.value), TUTTI_OK);
        }
        ck_assert_int_eq(tutti_error_info()->status, TUTTI_QUOTA);
        expect_in(tutti_error(), "mapped-bytes");
        replica_say(me, "full");
        replica_hear(me, "end");
        tutti_buffer_free(b);
        double limit = seconds_now() + 2 * unit_scale();
        while (tutti_buffer_from_fd(me->t, fds[1], 0, TUTTI_INOUT, &c) != TUTTI_OK)
                ck_assert_msg(seconds_now() < limit, "%s", tutti_error());
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        close(fds[0]);
        close(fds[1]);
}

START_TEST(P18_O4_mapped_bytes) {
        run_against("quota.mapped-bytes=16MiB", use_up_memory);
}
END_TEST

#define N_DESCRIPTORS 24

/* A connection holds three, each memory one. */
static void use_up_descriptors(struct replica *me) {
        struct tutti_buffer *all[N_DESCRIPTORS];
        enum tutti_status status = TUTTI_OK;
        int n = 0, fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        become_other();
        ck_assert_int_eq(ftruncate(fd, 4096), 0);
        replica_open(me);
        while (n < N_DESCRIPTORS &&
                (status = tutti_buffer_from_fd(me->t, fd, 0, TUTTI_INOUT, &all[n])) == TUTTI_OK)
                n++;
        ck_assert_int_eq(n, N_DESCRIPTORS - 3);
        expect_quota(tutti_error_info(), "descriptors", N_DESCRIPTORS, N_DESCRIPTORS);
        replica_say(me, "full");
        replica_hear(me, "end");
        tutti_buffer_free(all[0]);
        double limit = seconds_now() + 2 * unit_scale();
        while (tutti_buffer_from_fd(me->t, fd, 0, TUTTI_INOUT, &all[0]) != TUTTI_OK) {
                ck_assert_msg(seconds_now() < limit, "%s", tutti_error());
                seconds_sleep(0.02); /* what was refused is held until it is closed */
        }
        close(fd);
}

START_TEST(P18_O4_descriptors) {
        run_against("quota.descriptors=24", use_up_descriptors);
}
END_TEST

/* --- pending submissions --- */

#define N_PENDING 4

/* Waits for one more than there is room for; what it has submitted goes on. */
static void use_up_pending(struct replica *me, struct tutti_group *g) {
        struct tutti_work *all[N_PENDING - 1];
        char key[16];
        for (int i = 0; i < N_PENDING - 1; i++) {
                snprintf(key, sizeof(key), "key %d", i);
                expect_status(tutti_barrier_start(g, key, NULL, &all[i]), TUTTI_OK);
        }
        expect_status(tutti_barrier(g, "one more"), TUTTI_QUOTA);
        expect_quota(tutti_error_info(), "pending", N_PENDING, N_PENDING);
        ck_assert_str_eq(tutti_error_info()->key, "one more");
        replica_say(me, "full");
        for (int i = 0; i < N_PENDING - 1; i++) {
                expect_work(all[i], TUTTI_OK);
                tutti_work_free(all[i]);
        }
}

/* Rank 1 has come to the one that rank 0 is refused, and hears why it ended. */
static void hear_of_quota(struct replica *me, struct tutti_group *g) {
        char key[16];
        struct tutti_work *w;
        expect_status(tutti_barrier_start(g, "one more", NULL, &w), TUTTI_OK);
        replica_say(me, "there");
        expect_work(w, TUTTI_PEER_REFUSED);
        ck_assert_int_eq(tutti_work_error(w)->cause, TUTTI_QUOTA);
        ck_assert_int_eq(tutti_work_error(w)->rank, 0);
        tutti_work_free(w);
        replica_hear(me, "go");
        for (int i = 0; i < N_PENDING - 1; i++) {
                snprintf(key, sizeof(key), "key %d", i);
                expect_status(tutti_barrier(g, key), TUTTI_OK);
        }
}

static void submit_too_much(struct replica *me) {
        become_other();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        if (me->rank == 1) {
                hear_of_quota(me, g);
        } else {
                replica_hear(me, "go");
                use_up_pending(me, g);
        }
        expect_status(tutti_barrier(g, "one more"), TUTTI_OK);
}

START_TEST(P18_O4_pending_submissions) {
        need_root();
        struct replica *r[2];
        struct host *h = start("quota.pending=4");
        replicas_spawn(h, 2, submit_too_much, NULL, r);
        replica_expect(r[1], "there", 10);
        host_expect_pending(h, 1);
        replica_tell(r[0], "go");
        replica_expect(r[0], "full", 10);
        expect_root_unharmed(h);
        replica_tell(r[1], "go");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- what it takes of tuttid's own memory --- */

#define N_ENTRIES 4000

/* A half of 4,000 entries is some 2 MB; a small one goes on. */
static void use_up_own_memory(struct replica *me) {
        static struct tutti_value values[N_ENTRIES];
        static struct tutti_entry entries[N_ENTRIES];
        struct floats f;
        struct tutti_group *g;
        become_other();
        expect_status(join_alone(me, "a", &g), TUTTI_OK);
        floats_init(me->t, &f, N_ENTRIES);
        for (uint32_t i = 0; i < N_ENTRIES; i++) {
                values[i] = TUTTI_VALUE(.buffer = f.buffer, .dtype = TUTTI_F32, .offset = i * sizeof(float),
                        .n_dims = 1, .shape = { 1 });
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        expect_status(tutti_batch_reduce(g, "many", TUTTI_SUM, entries, N_ENTRIES), TUTTI_QUOTA);
        expect_in(tutti_error(), "memory-bytes");
        ck_assert_uint_eq(tutti_error_info()->limit, 1 << 20);
        ck_assert_uint_gt(tutti_error_info()->used, 0); /* the group and its members */
        expect_status(tutti_batch_reduce(g, "many", TUTTI_SUM, entries, 100), TUTTI_OK);
        replica_say(me, "full");
        replica_hear(me, "end");
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(P18_O4_memory_bytes) {
        run_against("quota.memory-bytes=1MiB", use_up_own_memory);
}
END_TEST

static bool has_hung_up(const struct raw *r) {
        struct pollfd p = { .fd = r->fd };
        return poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR);
}

/* Asks and asks, and reads none of the answers, until it is put out; its neighbour is not. */
static void leave_replies_unread(struct replica *me) {
        const struct request leave = { .type = REQUEST_LEAVE, .membership = 999 };
        uint64_t most = 0;
        become_other();
        struct raw *silent = raw_open(me->socket), *reader = raw_open(me->socket);
        for (unsigned int i = 1; !has_hung_up(silent); i++) {
                (void)!raw_try_send(silent, &leave, NULL, 0);
                uint64_t used = i % 100 ? 0 : raw_used(reader, "reply-bytes");
                most = used > most ? used : most;
        }
        ck_assert_uint_gt(most, 0);
        ck_assert_uint_le(most, 1 << 20);
        raw_close(silent);
        raw_expect_used(reader, "reply-bytes", 0);
        replica_say(me, "full");
        replica_hear(me, "end");
        raw_close(reader);
}

START_TEST(P18_O4_reply_bytes) {
        need_root();
        struct host *h = start("quota.reply-bytes=1MiB");
        struct replica *r = spawn(h, leave_replies_unread);
        replica_expect(r, "full", 20);
        expect_in(host_log(h), "is ejected: QUOTA");
        expect_in(host_log(h), "reply-bytes has ");
        expect_root_unharmed(h);
        end(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- P19: users do not see each other --- */

static uint32_t count_rows(struct tutti *t, enum tutti_admin_what what, enum tutti_row_type type) {
        struct tutti_answer *a;
        uint32_t n = 0;
        expect_status(tutti_admin_ask(t, what, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                n += a->rows[i].type == type;
                if (a->rows[i].type == TUTTI_ROW_MEMBER)
                        ck_assert_uint_eq(a->rows[i].member.uid, geteuid());
                if (a->rows[i].type == TUTTI_ROW_QUOTA)
                        ck_assert_uint_eq(a->rows[i].quota.uid, geteuid());
        }
        tutti_answer_free(a);
        return n;
}

static void look_around_as_other(struct replica *me) {
        struct tutti_answer *a;
        struct tutti_group *g;
        become_other();
        replica_open(me);
        ck_assert_uint_eq(count_rows(me->t, TUTTI_ADMIN_GROUPS, TUTTI_ROW_GROUP), 0);
        ck_assert_uint_eq(count_rows(me->t, TUTTI_ADMIN_GROUPS, TUTTI_ROW_MEMBER), 0);
        ck_assert_uint_eq(count_rows(me->t, TUTTI_ADMIN_STATUS, TUTTI_ROW_PENDING), 0);
        ck_assert_uint_eq(count_rows(me->t, TUTTI_ADMIN_STATS, TUTTI_ROW_STATS), 0);
        ck_assert_uint_gt(count_rows(me->t, TUTTI_ADMIN_QUOTA, TUTTI_ROW_QUOTA), 0);
        expect_status(tutti_admin_ask(me->t, TUTTI_ADMIN_DUMP, "test", "secret", &a), TUTTI_NOT_FOUND);
        expect_status(tutti_admin_ask(me->t, TUTTI_ADMIN_GROUPS, "test", "secret", &a), TUTTI_NOT_FOUND);
        /* The same words are another group of mine, and its keys are its own. */
        expect_status(join_alone(me, "secret", &g), TUTTI_OK);
        ck_assert_uint_eq(tutti_epoch(g), 1);
        expect_status(tutti_abort(g, "mine", "not yours"), TUTTI_NOT_FOUND);
        expect_status(tutti_barrier(g, "mine"), TUTTI_OK);
        ck_assert_uint_eq(count_rows(me->t, TUTTI_ADMIN_GROUPS, TUTTI_ROW_GROUP), 1);
}

static void keep_a_secret(struct replica *me) {
        struct tutti_work *w;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "secret"));
        if (me->rank == 0) {
                expect_status(tutti_barrier_start(g, "mine", NULL, &w), TUTTI_OK);
                replica_say(me, "waiting");
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
                return;
        }
        replica_hear(me, "end");
        expect_status(tutti_barrier(g, "mine"), TUTTI_OK);
}

START_TEST(P19_O6_another_users_groups_can_be_neither_seen_nor_touched) {
        need_root();
        struct replica *r[2];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, keep_a_secret, NULL, r);
        replica_expect(r[0], "waiting", 10);
        host_expect_pending(h, 1);
        struct replica *other = spawn(h, look_around_as_other);
        ck_assert_int_eq(replica_end(other, 10), 0);
        end(r[1]);
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("quotas", 30, P18_O4_groups, P18_O4_connections, P18_O4_mapped_bytes, P18_O4_descriptors,
        P18_O4_pending_submissions, P18_O4_memory_bytes, P18_O4_reply_bytes,
        P19_O6_another_users_groups_can_be_neither_seen_nor_touched)
