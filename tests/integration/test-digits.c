/* The main job as a person starts it: `tuttictl run -n N -- digits`, through a real tuttid. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host.h"
#include "program.h"
#include "unit.h"

#define MAX_ARGS 16

/* tuttictl run on the host `h`: `args` follow the "--". */
static void launch(const struct host *h, const char *n, const char *const *args, struct program *ret) {
        const char *argv[MAX_ARGS] = { program_tuttictl(), "run", "-n", n, "--socket", host_socket(h), "--" };
        size_t n_args = 7;
        while (*args && n_args < MAX_ARGS - 1)
                argv[n_args++] = *args++;
        program_run(argv, 60, ret);
}

/* What rank 0 prints at the end. */
struct findings {
        double accuracy, alone, difference;
        char sha256[17];
        unsigned int n_replicas;
};

static void read_findings(const struct program *p, struct findings *ret) {
        const char *accuracy = strstr(p->out, "test accuracy"),
                   *identity = strstr(p->out, "parameters of all");
        ck_assert_msg(accuracy && identity, "%s\n%s", p->out, p->err);
        ck_assert_int_eq(sscanf(accuracy,
                                 "test accuracy %lf %%  (alone in one process: %lf %%, largest difference of "
                                 "a weight %lf)",
                                 &ret->accuracy, &ret->alone, &ret->difference),
                3);
        ck_assert_int_eq(
                sscanf(identity, "parameters of all %u replicas: identical to the bit (sha256 %16[0-9a-f]",
                        &ret->n_replicas, ret->sha256),
                2);
        ck_assert_uint_eq(strlen(ret->sha256), 16);
}

/* A sanitizer makes the example's own arithmetic ten times slower: a tenth of the steps shows the same. */
static const char *n_steps(void) {
        return unit_scale() > 1 ? "40" : "400";
}

static void train(const struct host *h, const char *n, struct findings *ret) {
        struct program p;
        launch(h, n, (const char *const[]){ BUILT_DIGITS, "--steps", n_steps(), NULL }, &p);
        ck_assert_msg(p.code == 0, "exit code %d\n%s\n%s", p.code, p.out, p.err);
        read_findings(&p, ret);
        program_deinit(&p);
}

START_TEST(D7_four_replicas_learn_digits_and_hold_the_same_bits) {
        struct host *h = host_start(NULL);
        struct program p;
        struct findings f;

        launch(h, "4", (const char *const[]){ BUILT_DIGITS, NULL }, &p);
        ck_assert_msg(p.code == 0, "exit code %d\n%s\n%s", p.code, p.out, p.err);
        read_findings(&p, &f);
        ck_assert_double_ge(f.accuracy, 95.0);
        ck_assert_uint_eq(f.n_replicas, 4);
        ck_assert_ptr_nonnull(strstr(p.out, "digits: 4 replicas x 359 images, 64-128-10 network"));
        ck_assert_ptr_nonnull(strstr(p.out, "step  400/400"));
        ck_assert_ptr_nonnull(strstr(p.out, "where the time went, per step:   compute "));
        ck_assert_ptr_nonnull(strstr(p.out, "most often last: "));
        program_deinit(&p);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* The sums of tuttid are those of one process that adds in rank order. */
START_TEST(P10_the_result_is_that_of_one_process) {
        static const char *const sizes[] = { "1", "2", "3", "4", "7" };
        struct host *h = host_start(NULL);
        struct findings f;

        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
                train(h, sizes[i], &f);
                ck_assert_uint_eq(f.n_replicas, strtoul(sizes[i], NULL, 10));
                ck_assert_double_eq(f.difference, 0.0);
                ck_assert_double_eq(f.accuracy, f.alone);
        }
        host_stop(h);
}
END_TEST

START_TEST(D6_one_sha256_whatever_the_run) {
        static const char *const one_worker[] = { "--workers", "1", NULL };
        struct findings first, again, restarted, other;
        struct host *h = host_start(NULL);

        train(h, "4", &first);
        train(h, "4", &again);
        host_kill9(h);
        host_start_again(h);
        train(h, "4", &restarted);
        host_stop(h);
        h = host_start(one_worker);
        train(h, "4", &other);
        host_stop(h);
        ck_assert_str_eq(first.sha256, again.sha256);
        ck_assert_str_eq(first.sha256, restarted.sha256);
        ck_assert_str_eq(first.sha256, other.sha256);
}
END_TEST

START_TEST(B8_a_replica_with_another_network_is_refused_for_all) {
        static const char *const odd[] = { "/bin/sh", "-c",
                "exec " BUILT_DIGITS " --hidden $((128 + (TUTTI_RANK == 2)))", NULL };
        struct host *h = host_start(NULL);
        struct findings f;
        struct program p;

        launch(h, "4", odd, &p);
        ck_assert_int_eq(p.code, 1);
        ck_assert_msg(
                strstr(p.err, "MISMATCH") && strstr(p.err, "shape") && strstr(p.err, "R2"), "%s", p.err);
        program_deinit(&p);
        train(h, "4", &f); /* P7 */
        ck_assert_uint_eq(f.n_replicas, 4);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(without_tuttid_it_says_so) {
        static const char *const argv[] = { BUILT_DIGITS, NULL };
        struct program p;

        setenv("TUTTI_SOCKET", "/nowhere/tuttid.sock", 1);
        program_run(argv, 10, &p);
        ck_assert_int_eq(p.code, 1);
        ck_assert_str_eq(p.out, "");
        ck_assert_msg(
                strncmp(p.err, "digits: connecting: ", 20) == 0 && strstr(p.err, "/nowhere/tuttid.sock"),
                "%s", p.err);
        program_deinit(&p);
}
END_TEST

UNIT_MAIN("digits", 120, D7_four_replicas_learn_digits_and_hold_the_same_bits,
        P10_the_result_is_that_of_one_process, D6_one_sha256_whatever_the_run,
        B8_a_replica_with_another_network_is_refused_for_all, without_tuttid_it_says_so)
