/* tuttid is killed or stopped, and another one follows: with `reconnect` clients see nothing but a delay, or
 * OUTPUT_LOST, all alike, where it was killed in the middle of a reduction in place (P9, M1). */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N         4
#define RECONNECT 20.0

struct shared {
        _Atomic uint32_t n_steps[N], n_lost[N], n_ended;
        _Atomic uint64_t sums[N]; /* of the parameters, at the end */
        _Atomic uint32_t statuses[N];
        _Atomic double longest[N];
};

static struct shared *shared;

static struct host *begin(const char *const *args) {
        shared = memory_shared(sizeof(*shared));
        return host_start(args);
}

static void open_again_and_again(struct replica *me, double seconds) {
        expect_status(
                tutti_open_with(&TUTTI_OPEN(.socket_path = me->socket, .reconnect = seconds), &me->t), TUTTI_OK);
}

static struct tutti_group *join(struct replica *me, const char *group) {
        struct tutti_group *g;
        expect_status(tutti_join(me->t,
                              &TUTTI_JOIN(.group = group, .job = "test", .rank = (int32_t)me->rank,
                                      .world_size = (int32_t)me->n, .join_timeout = 15, .default_timeout = 20),
                              &g),
                TUTTI_OK);
        return g;
}

static uint32_t fewest_steps(uint32_t n) {
        uint32_t fewest = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++)
                if (atomic_load(&shared->n_steps[i]) < fewest)
                        fewest = atomic_load(&shared->n_steps[i]);
        return fewest;
}

static void expect_ends(struct replica *const *r, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
}

/* --- a thousand steps --- */

#define N_STEPS  1000
#define N_FLOATS ((size_t)1 << 16)

static uint64_t mix(uint64_t z) {
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        return z ^ z >> 31;
}

/* Depends on rank, step and parameters, so that one wrong number changes all that follow. */
static void make_gradient(const struct replica *me, uint32_t step, const float *w, float *g, size_t n) {
        for (size_t i = 0; i < n; i++) {
                uint64_t z = mix(step * UINT64_C(1000003) + i * 31 + me->rank * 7 + 1);
                g[i] = (float)(z >> 40) * 0x1p-24f - w[i] * (0.25f + 0.125f * (float)me->rank);
        }
}

static uint64_t sum_up(const float *w, size_t n) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) {
                uint32_t bits;
                memcpy(&bits, &w[i], sizeof(bits));
                sum = mix(sum + bits + 0x9e3779b97f4a7c15);
        }
        return sum;
}

static void note_longest(const struct replica *me, double seconds) {
        if (seconds > atomic_load(&shared->longest[me->rank]))
                atomic_store(&shared->longest[me->rank], seconds);
}

static enum tutti_status mean_of(const struct replica *me, struct tutti_group *g, const struct tutti_value *v) {
        double before = seconds_now();
        enum tutti_status status = tutti_all_reduce(g, NULL, TUTTI_MEAN, v, v);
        note_longest(me, seconds_now() - before);
        return status;
}

/* What is lost is made anew, as a trainer would. */
static void step_in_place(const struct replica *me, struct tutti_group *g, uint32_t step, float *w,
        struct floats *f) {
        enum tutti_status status;
        do {
                make_gradient(me, step, w, f->data, f->n);
                status = mean_of(me, g, &f->value);
                if (status == TUTTI_OUTPUT_LOST)
                        atomic_fetch_add(&shared->n_lost[me->rank], 1);
        } while (status == TUTTI_OUTPUT_LOST);
        ck_assert_msg(status == TUTTI_OK, "step %u: %s: %s", step, tutti_status_name(status), tutti_error());
        for (size_t i = 0; i < f->n; i++)
                w[i] += 0.0625f * f->data[i];
        atomic_store(&shared->n_steps[me->rank], step + 1);
}

static void train_in_place(struct replica *me) {
        struct floats f;
        open_again_and_again(me, RECONNECT);
        struct tutti_group *g = join(me, "train");
        uint64_t epoch = tutti_epoch(g);
        float *w = calloc(N_FLOATS, sizeof(*w));
        floats_init(me->t, &f, N_FLOATS);
        for (uint32_t step = 0; step < N_STEPS; step++)
                step_in_place(me, g, step, w, &f);
        atomic_store(&shared->sums[me->rank], sum_up(w, N_FLOATS));
        ck_assert_uint_eq(tutti_epoch(g), epoch);
        free(w);
        replica_say(me, "trained");
        replica_hear(me, "end");
}

static uint64_t expect_equal_sums(uint32_t n) {
        uint64_t sum = atomic_load(&shared->sums[0]);
        for (uint32_t i = 1; i < n; i++)
                ck_assert_uint_eq(atomic_load(&shared->sums[i]), sum);
        return sum;
}

static void finish(struct host *h, struct replica *const *r, uint32_t n) {
        replicas_expect(r, n, "trained", 40);
        replicas_tell(r, n, "end");
        expect_ends(r, n);
        host_expect_counters_zero(h);
}

static uint64_t train_undisturbed(struct host *h, void (*body)(struct replica *me)) {
        struct replica *r[N];
        replicas_spawn(h, N, body, NULL, r);
        finish(h, r, N);
        uint64_t sum = expect_equal_sums(N);
        memset(shared, 0, sizeof(*shared));
        return sum;
}

/* By turns of kill -9 at random moments. */
static uint32_t kill_until_trained(struct host *h, void (*stop)(struct host *h)) {
        uint32_t n_kills = 0;
        while (fewest_steps(N) < N_STEPS) {
                seconds_sleep((20000 + (double)(rand() % 100000)) / 1e6);
                if (fewest_steps(N) > N_STEPS - 50)
                        break;
                stop(h);
                host_start_again(h);
                n_kills++;
        }
        return n_kills;
}

static void train_disturbed(void (*body)(struct replica *me), void (*stop)(struct host *h)) {
        struct replica *r[N];
        struct host *h = begin(NULL);
        uint64_t sum = train_undisturbed(h, body);
        srand((unsigned int)getpid());
        replicas_spawn(h, N, body, NULL, r);
        uint32_t n_kills = kill_until_trained(h, stop);
        finish(h, r, N);
        ck_assert_uint_ge(n_kills, 2);
        ck_assert_uint_eq(expect_equal_sums(N), sum);
        for (uint32_t i = 1; i < N; i++)
                ck_assert_uint_eq(atomic_load(&shared->n_lost[i]), atomic_load(&shared->n_lost[0]));
        host_stop(h);
}

START_TEST(M1_P9_a_thousand_steps_in_place_end_bit_equal_though_tuttid_is_killed_again_and_again) {
        train_disturbed(train_in_place, host_kill9);
}
END_TEST

UNIT_MAIN("reconnect", 120,
        M1_P9_a_thousand_steps_in_place_end_bit_equal_though_tuttid_is_killed_again_and_again)
