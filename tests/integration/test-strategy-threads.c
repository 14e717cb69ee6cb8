/* A run for whose replicas there are not enough threads: all hear of it at once, also those of other
 * processes, and the next run works. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include "strategies.h"

#define ENOUGH 1000

/* How many threads this process may make still. */
static atomic_int n_threads_left = ENOUGH;

/* The executable's comes before the C library's. */
int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*start)(void *arg), void *arg) {
        typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        create_fn create;
        *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
        return atomic_fetch_sub(&n_threads_left, 1) > 0 ? create(ret, attr, start, arg) : EAGAIN;
}

static enum tutti_status do_nothing(struct tutti_merge *m, void *userdata) {
        (void)m;
        (void)userdata;
        return TUTTI_OK;
}

static enum tutti_status meet_nobody(struct tutti_context *c, void *userdata) {
        (void)c;
        (void)userdata;
        return TUTTI_OK;
}

static enum tutti_status merge(struct tutti_context *c, void *userdata) {
        (void)userdata;
        return tutti_context_merge_call(c, &TUTTI_MERGE(.fn = do_nothing));
}

static enum tutti_status reduce(struct tutti_context *c, void *userdata) {
        float x = 1;
        const struct tutti_value v = float_at(&x, 1);
        (void)userdata;
        return tutti_context_all_reduce(c, TUTTI_SUM, &TUTTI_ENTRY(.input = &v, .output = &v), 1, NULL);
}

/* The first process is the one that lacks them. */
static void lack_threads(struct replica *me) {
        static const tutti_replica_fn fns[] = { meet_nobody, merge, reduce };
        struct tutti_strategy *s = strategy_of(me);
        int n_local = (int)tutti_strategy_n_local(s);
        for (int n = 0; n < n_local; n++)
                for (size_t i = 0; i < sizeof(fns) / sizeof(*fns); i++) {
                        double begun = seconds_now();
                        atomic_store(&n_threads_left, me->rank == 0 ? n : ENOUGH);
                        enum tutti_status status = tutti_strategy_run(s, fns[i], NULL);
                        atomic_store(&n_threads_left, ENOUGH);
                        expect_said(status, me->rank == 0 ? TUTTI_NO_MEMORY : TUTTI_MISMATCH);
                        ck_assert_double_lt(seconds_now() - begun, 5 * unit_scale());
                        if (me->rank == 0)
                                expect_in(tutti_strategy_error(), "there is no thread for it");
                        expect_said(tutti_strategy_run(s, fns[i], NULL), TUTTI_OK);
                }
        tutti_strategy_close(s);
}

START_TEST(TE1_replicas_without_a_thread_end_the_run_for_all_at_once) {
        run_in_all_shapes(lack_threads, 2);
}
END_TEST

UNIT_MAIN("strategy-threads", 60, TE1_replicas_without_a_thread_end_the_run_for_all_at_once)
