/* tuttid confines itself, and leaves its clients' data out of its dumps (P15 P16 P21). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

/* A number of /proc/PID/task/TID/status. */
static int status_of(pid_t pid, const char *thread, const char *name) {
        char path[400], line[256], format[64];
        int value = -1;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, thread);
        snprintf(format, sizeof(format), "%s: %%d", name);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (value < 0 && fgets(line, sizeof(line), f))
                if (sscanf(line, format, &value) != 1)
                        value = -1;
        fclose(f);
        return value;
}

/* Every thread has this; returns how many there are. */
static int expect_threads(pid_t pid, int seccomp, int no_new_privs) {
        char path[64];
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/task", pid);
        DIR *dir = opendir(path);
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
                if (e->d_name[0] == '.')
                        continue;
                ck_assert_int_eq(status_of(pid, e->d_name, "Seccomp"), seccomp);
                ck_assert_int_eq(status_of(pid, e->d_name, "NoNewPrivs"), no_new_privs);
                n++;
        }
        closedir(dir);
        return n;
}

/* Why it is unconfined, as status tells; "" : it is confined. */
static void why_unconfined(struct host *h, char *ret, size_t size) {
        struct tutti *t;
        struct tutti_answer *a;
        ret[0] = '\0';
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_FALLBACK && strcmp(a->rows[i].fallback.what, "confine") == 0)
                        snprintf(ret, size, "%s", a->rows[i].fallback.why);
        tutti_answer_free(a);
        tutti_close(t);
}

START_TEST(P21_every_thread_of_tuttid_is_confined) {
        char why[128];
        struct host *h = host_start((const char *[]){ "--workers", "3", NULL });
        why_unconfined(h, why, sizeof(why));
        if (strstr(why, "built")) {
                host_stop(h);
                unit_skip("tuttid is %s", why);
        }
        ck_assert_str_eq(why, "");
        ck_assert_int_ge(
                expect_threads(host_pid(h), 2, 1), 1 + 3 + 2 + 1); /* loop, workers, memory, closer */
        host_stop(h);
}
END_TEST

START_TEST(P15_who_is_not_confined_says_so) {
        char why[128], myself[16];
        struct program p;
        snprintf(myself, sizeof(myself), "%d", getpid());
        struct host *h = host_start((const char *[]){ "--set", "daemon.confine=no", NULL });
        why_unconfined(h, why, sizeof(why));
        ck_assert_str_eq(why, "unconfined: daemon.confine is no");
        expect_threads(host_pid(h), 0, status_of(getpid(), myself, "NoNewPrivs"));
        expect_in(host_log(h), why);
        program_run(
                (const char *[]){ program_tuttictl(), "status", "--socket", host_socket(h), NULL }, 10, &p);
        expect_in(p.out, "unconfined");
        program_deinit(&p);
        host_stop(h);
}
END_TEST

/* --- dumps --- */

static void hold_memory(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, (size_t)1 << 20);
        floats_meet(g, NULL, &f, 1, 1);
        replica_say(me, "there");
        replica_hear(me, "end");
}

/* Mappings of client memory in this process; none is for a dump. */
static int count_undumped(pid_t pid) {
        char path[64], line[512];
        int n = 0;
        bool is_client = false;
        snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (fgets(line, sizeof(line), f)) {
                if (strstr(line, " /memfd:"))
                        is_client = strstr(line, "/memfd:tutti-status") == NULL;
                if (!is_client || strncmp(line, "VmFlags:", 8) != 0)
                        continue;
                ck_assert_msg(strstr(line, " dd ") != NULL, "it would be dumped: %s", line);
                is_client = false;
                n++;
        }
        fclose(f);
        return n;
}

START_TEST(P16_client_memory_is_left_out_of_dumps) {
        struct host *h = host_start(NULL);
        ck_assert_int_eq(count_undumped(host_pid(h)), 0);
        struct replica *r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = hold_memory });
        replica_expect(r, "there", 10);
        ck_assert_int_ge(count_undumped(host_pid(h)), 1);
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
        host_stop(h);
}
END_TEST

/* --- descriptors --- */

START_TEST(P18_a_table_of_descriptors_that_one_user_can_fill_is_said_at_the_start) {
        struct rlimit limit;
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
        if (limit.rlim_max < 1024)
                unit_skip("this process may have %llu descriptors", (unsigned long long)limit.rlim_max);
        struct host *h = host_start((const char *[]){ "--set", "quota.descriptors=512", NULL });
        ck_assert_ptr_null(strstr(host_log(h), "quota.descriptors"));
        host_stop(h);
        limit = (struct rlimit){ .rlim_cur = 600, .rlim_max = 600 };
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        h = host_start((const char *[]){ "--set", "quota.descriptors=512", NULL });
        expect_in(host_log(h), "quota.descriptors is 512, and this process may have 600");
        host_stop(h);
}
END_TEST

UNIT_MAIN("confine", 30, P21_every_thread_of_tuttid_is_confined, P15_who_is_not_confined_says_so,
        P16_client_memory_is_left_out_of_dumps,
        P18_a_table_of_descriptors_that_one_user_can_fill_is_said_at_the_start)
