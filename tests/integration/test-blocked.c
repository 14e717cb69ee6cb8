/* Memory that stands still under a run (P21): a client punches its whole memory out while it is reduced, and
 * who reads it has to wait until the kernel is through with that. It blocks one worker, is logged, and nobody
 * else waits. When the memory is a hole the culprit is ejected, as ever (P16). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/available.h"
#include "meeting.h"
#include "raw.h"
#include "stage.h"
#include "unit.h"

#define OTHER_UID    54321
#define N_FLOATS     ((uint64_t)128 << 20)
#define N_BYTES      (N_FLOATS * sizeof(float)) /* of each of two */
#define FILE_BYTES   (6 * N_BYTES) /* of which the buffer is a part; 0.3 s and more to punch out */
#define NEEDED_BYTES (FILE_BYTES + 2 * N_BYTES)
#define N_TRIES      8
#define BLOCKED      "stood still for"

/* Two of one group reduce; meanwhile the memory of one goes. */
static void punch_under_a_run(struct replica *me, int try) {
        struct raw *peers[2];
        struct raw_member members[2];
        uint64_t joins[2];
        struct reply reply;
        int fd = raw_memfd(FILE_BYTES), kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        char name[32];
        snprintf(name, sizeof(name), "still %d", try);
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct request join = raw_join_request(name, rank, 2);
                peers[rank] = raw_open(me->socket);
                joins[rank] = raw_send(peers[rank], &join);
        }
        for (uint32_t rank = 0; rank < 2; rank++)
                members[rank] = raw_joined(peers[rank], joins[rank]);
        raw_buffer(peers[0], 1, fd, N_BYTES);
        raw_buffer(peers[1], 1, raw_memfd(N_BYTES), N_BYTES);
        for (uint32_t rank = 0; rank < 2; rank++)
                raw_submit(peers[rank], &members[rank], "run", 1, N_FLOATS);
        seconds_sleep(0.01 * try * unit_scale()); /* somewhere in its middle */
        double begin = seconds_now();
        ck_assert_int_eq(fallocate(kept, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, FILE_BYTES), 0);
        printf("# P21 punching %llu MiB out took %.0f ms\n", (unsigned long long)(FILE_BYTES >> 20),
                (seconds_now() - begin) * 1e3);
        fflush(stdout);
        (void)!raw_take(peers[1], &reply); /* OK, where the run was through before */
        close(kept);
        for (int i = 0; i < 2; i++)
                raw_close(peers[i]);
}

static void punch_when_told(struct replica *me) {
        ck_assert_int_eq(setresuid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
        for (int try = 1;; try++) {
                replica_hear(me, "go");
                punch_under_a_run(me, try);
                replica_say(me, "tried");
        }
}

static void need_means(void) {
        uint64_t available = memory_available_bytes();
        if (geteuid() != 0)
                unit_skip("a second user takes root");
        if (available < NEEDED_BYTES)
                unit_skip("%llu MiB of memory are available, %llu are needed",
                        (unsigned long long)(available >> 20), (unsigned long long)(NEEDED_BYTES >> 20));
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
}

START_TEST(P21_memory_that_stands_still_is_logged_and_delays_nobody_else) {
        struct stage s;
        need_means();
        stage_set(&s, (const char *[]){ "--set", "cpu.workers=2", NULL });
        struct replica *r =
                replica_spawn(s.h, &(struct replica_options){ .rank = 0, .n = 1, .body = punch_when_told });
        for (int try = 0; try < N_TRIES && !strstr(host_log(s.h), BLOCKED); try++) {
                replica_tell(r, "go");
                const struct pace beside = stage_measure_pace(2);
                replica_expect(r, "tried", 20);
                printf("# P21 beside a user whose memory is punched out: p99 %.2f ms, worst %.1f ms\n",
                        beside.p99 * 1e3, beside.worst * 1e3);
                ck_assert_double_le(beside.p99, 0.1 * unit_scale());
        }
        replica_kill9(r);
        host_expect_sessions(s.h, 2);
        bool is_blocked = strstr(host_log(s.h), BLOCKED);
        if (is_blocked)
                ck_assert_ptr_nonnull(strstr(host_log(s.h), "the group is confined to one worker"));
        stage_clear(&s);
        if (!is_blocked)
                unit_skip(
                        "in %d tries this kernel made nobody wait for 100 ms for memory that was punched out",
                        N_TRIES);
}
END_TEST

UNIT_MAIN("blocked", 120, P21_memory_that_stands_still_is_logged_and_delays_nobody_else)
