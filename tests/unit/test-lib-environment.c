/* What launchers say, and what is made of it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "unit.h"
#include "lib/environment.h"

/* Sets the variables of one launcher: "NAME=value", ended by NULL. Tests run in processes of their own. */
static void set(const char *first, ...) {
        va_list args;
        va_start(args, first);
        for (const char *v = first; v; v = va_arg(args, const char *)) {
                char name[128];
                size_t n = strcspn(v, "=");
                snprintf(name, sizeof(name), "%.*s", (int)n, v);
                ck_assert_int_eq(setenv(name, v + n + 1, 1), 0);
        }
        va_end(args);
}

static void assert_job(const char *job) {
        struct error err;
        char found[MAX_NAME_BYTES] = "";
        ck_assert_int_eq(environment_job(found, &err), STATUS_OK);
        ck_assert_str_eq(found, job);
}

static void assert_seat(int32_t rank, int32_t world_size) {
        struct error err;
        struct seat seat = { -1, -1 };
        enum status status = environment_seat(&seat, &err);
        ck_assert_msg(status == STATUS_OK, "%s", err.detail);
        ck_assert_int_eq(seat.rank, rank);
        ck_assert_int_eq(seat.world_size, world_size);
}

static void assert_no_seat(enum status status, enum field field, const char *part) {
        struct error err;
        struct seat seat = { -1, -1 };
        ck_assert_int_eq(environment_seat(&seat, &err), status);
        ck_assert_int_eq(err.status, status);
        ck_assert_int_eq(err.field, field);
        ck_assert_msg(strstr(err.detail, part), "\"%s\" is not in: %s", part, err.detail);
}

/* --- jobs --- */

START_TEST(the_job_comes_from_the_first_that_names_it) {
        struct error err;
        char job[MAX_NAME_BYTES];
        ck_assert_int_eq(environment_job(job, &err), STATUS_INVALID);
        ck_assert_int_eq(err.field, FIELD_JOB);
        ck_assert_ptr_nonnull(strstr(err.detail, "name the job"));
        set("SLURM_JOB_ID=12", "SLURM_STEP_ID=3", NULL);
        assert_job("12.3");
        set("PMIX_NAMESPACE=prterun-1", NULL);
        assert_job("prterun-1");
        set("MASTER_ADDR=localhost", NULL);
        assert_job("prterun-1");
        set("MASTER_PORT=29500", NULL);
        assert_job("localhost:29500");
        set("TORCHELASTIC_RUN_ID=none", NULL);
        assert_job("localhost:29500");
        set("TORCHELASTIC_RUN_ID=run-7", NULL);
        assert_job("run-7");
        set("TUTTI_JOB=mine", NULL);
        assert_job("mine");
        set("TUTTI_JOB=", NULL);
        assert_job("run-7");
}
END_TEST

START_TEST(a_job_of_64_bytes_is_LIMIT) {
        struct error err;
        char name[65], job[MAX_NAME_BYTES] = "";
        memset(name, 'x', 64);
        name[64] = '\0';
        setenv("TUTTI_JOB", name, 1);
        ck_assert_int_eq(environment_job(job, &err), STATUS_LIMIT);
        ck_assert_uint_eq(err.used, 64);
        ck_assert_uint_eq(err.limit, 63);
        ck_assert_ptr_nonnull(strstr(err.detail, "TUTTI_JOB"));
        setenv("TUTTI_JOB", name + 1, 1);
        assert_job(name + 1);
}
END_TEST

/* --- ranks --- */

START_TEST(rank_and_size_come_from_the_first_launcher_that_is_there) {
        assert_no_seat(STATUS_INVALID, FIELD_RANK, "tuttictl run");
        set("SLURM_PROCID=1", "SLURM_NTASKS=5", "SLURM_NNODES=1", NULL);
        assert_seat(1, 5);
        set("PMI_RANK=2", "PMI_SIZE=6", NULL);
        assert_seat(2, 6);
        set("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=7", "OMPI_COMM_WORLD_LOCAL_SIZE=7", NULL);
        assert_seat(3, 7);
        set("RANK=4", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=8", NULL);
        assert_seat(4, 8);
        set("TUTTI_RANK=5", "TUTTI_WORLD_SIZE=9", NULL);
        assert_seat(5, 9);
}
END_TEST

START_TEST(what_is_given_is_not_looked_up) {
        struct error err;
        struct seat seat = { 3, 4 };
        set("TUTTI_RANK=x", NULL);
        ck_assert_int_eq(environment_seat(&seat, &err), STATUS_OK);
        set("TUTTI_RANK=1", "TUTTI_WORLD_SIZE=8", NULL);
        seat = (struct seat){ 6, -1 };
        ck_assert_int_eq(environment_seat(&seat, &err), STATUS_OK);
        ck_assert_int_eq(seat.rank, 6);
        ck_assert_int_eq(seat.world_size, 8);
        seat = (struct seat){ -1, 2 };
        ck_assert_int_eq(environment_seat(&seat, &err), STATUS_OK);
        ck_assert_int_eq(seat.rank, 1);
        ck_assert_int_eq(seat.world_size, 2);
}
END_TEST

START_TEST(several_hosts_are_unsupported) {
        set("SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_NNODES=2", NULL);
        assert_no_seat(STATUS_UNSUPPORTED, FIELD_WORLD_SIZE, "one host for now");
        set("SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NUM_TASKS=4", NULL); /* a step on one of them */
        assert_seat(1, 4);
        set("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_SIZE=4", NULL);
        assert_no_seat(STATUS_UNSUPPORTED, FIELD_WORLD_SIZE, "OMPI_COMM_WORLD_LOCAL_SIZE");
        set("RANK=0", "WORLD_SIZE=16", "LOCAL_WORLD_SIZE=8", NULL);
        assert_no_seat(
                STATUS_UNSUPPORTED, FIELD_WORLD_SIZE, "16 replicas in all (WORLD_SIZE) and 8 on this host");
        unsetenv("LOCAL_WORLD_SIZE");
        assert_seat(0, 16);
}
END_TEST

START_TEST(a_malformed_number_is_named_with_its_value) {
        static const char *const wrong[] = { "", "x", "-1", "+1", " 1", "1 ", "1.5", "0x1", "2147483648",
                "99999999999999999999" };
        set("TUTTI_WORLD_SIZE=4", NULL);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
                char expected[64];
                setenv("TUTTI_RANK", wrong[i], 1);
                snprintf(expected, sizeof(expected), "TUTTI_RANK=%s is not a whole number", wrong[i]);
                assert_no_seat(STATUS_INVALID, FIELD_UNSPECIFIED, expected);
        }
        set("TUTTI_RANK=2147483647", "TUTTI_WORLD_SIZE=4x", NULL);
        assert_no_seat(STATUS_INVALID, FIELD_UNSPECIFIED, "TUTTI_WORLD_SIZE=4x");
        unsetenv("TUTTI_WORLD_SIZE");
        assert_no_seat(STATUS_INVALID, FIELD_WORLD_SIZE, "TUTTI_WORLD_SIZE is not");
}
END_TEST

START_TEST(pmix_alone_names_a_rank_but_no_size) {
        struct error err;
        struct seat seat = { -1, 4 };
        set("PMIX_RANK=2", NULL);
        assert_no_seat(STATUS_INVALID, FIELD_WORLD_SIZE, "PMIX_RANK is set");
        ck_assert_int_eq(environment_seat(&seat, &err), STATUS_OK);
        ck_assert_int_eq(seat.rank, 2);
}
END_TEST

/* --- the socket --- */

START_TEST(the_socket_is_looked_for_in_its_places_alone_G5) {
        struct error err;
        char path[256], expected[256];
        struct stat st;
        if (stat("/run/tutti/tuttid.sock", &st) == 0)
                unit_skip("a tuttid of this host is at /run/tutti");
        unsetenv("XDG_RUNTIME_DIR");
        ck_assert_int_eq(environment_socket_path(path, sizeof(path), &err), STATUS_NO_DAEMON);
        ck_assert_str_eq(path, "/run/tutti/tuttid.sock");

        setenv("XDG_RUNTIME_DIR", unit_directory(), 1);
        ck_assert_int_eq(environment_socket_path(path, sizeof(path), &err), STATUS_NO_DAEMON);
        snprintf(expected, sizeof(expected), "%s/tutti/tuttid.sock", unit_directory());
        ck_assert_ptr_nonnull(strstr(path, expected));
        ck_assert_ptr_nonnull(strstr(err.detail, expected));
        ck_assert_ptr_nonnull(strstr(err.detail, "TUTTI_SOCKET"));

        snprintf(path, sizeof(path), "%s/tutti", unit_directory());
        ck_assert_int_eq(mkdir(path, 0700), 0);
        FILE *f = fopen(expected, "w");
        ck_assert_ptr_nonnull(f);
        fclose(f);
        ck_assert_int_eq(environment_socket_path(path, sizeof(path), &err), STATUS_OK);
        ck_assert_str_eq(path, expected);
        ck_assert_int_eq(environment_socket_path(path, 8, &err), STATUS_LIMIT);

        setenv("TUTTI_SOCKET", "/nowhere/t.sock", 1); /* said: the answer, whether it is there or not */
        ck_assert_int_eq(environment_socket_path(path, sizeof(path), &err), STATUS_OK);
        ck_assert_str_eq(path, "/nowhere/t.sock");
}
END_TEST

START_TEST(huge_pages_are_wished_for_by_yes_alone_F6) {
        static const struct {
                const char *value;
                enum status status;
                bool wish;
        } cases[] = { { NULL, STATUS_OK, false }, { "", STATUS_OK, false }, { "no", STATUS_OK, false },
                { "yes", STATUS_OK, true }, { "1", STATUS_INVALID, false },
                { "Yes", STATUS_INVALID, false } };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct error err;
                bool wish = !cases[i].wish;
                unsetenv("TUTTI_HUGE_PAGES");
                if (cases[i].value)
                        setenv("TUTTI_HUGE_PAGES", cases[i].value, 1);
                ck_assert_int_eq(environment_huge_pages(&wish, &err), cases[i].status);
                ck_assert_int_eq(wish, cases[i].wish);
        }
}
END_TEST

UNIT_MAIN("lib-environment", 10, the_job_comes_from_the_first_that_names_it, a_job_of_64_bytes_is_LIMIT,
        rank_and_size_come_from_the_first_launcher_that_is_there, what_is_given_is_not_looked_up,
        several_hosts_are_unsupported, a_malformed_number_is_named_with_its_value,
        pmix_alone_names_a_rank_but_no_size, the_socket_is_looked_for_in_its_places_alone_G5,
        huge_pages_are_wished_for_by_yes_alone_F6)
