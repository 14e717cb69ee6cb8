/* A runner around Check: one suite of one test at a time, so that its point is printed as soon as it is
 * known.
 *
 * Check forks the test, limits its time, and afterwards kills the process group of it; what it cannot do is
 * done here: TAP with skips, descriptors, directories, and assertions in processes that the test forks. */
#define UNIT_RAW_CHECK
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_BYTES          2048
#define MAX_DIRECTORY_BYTES 64 /* leaves room for "/host-1/tuttid.sock" in the 107 bytes of a socket path */

/* Memory that the runner shares with the test's process. */
struct outcome {
        bool reached_end; /* a test that calls exit(0) half-way has not passed */
        char skip_reason[TEXT_BYTES];
};

static struct {
        char directory[MAX_DIRECTORY_BYTES];
        struct outcome *outcome;
        int n_descriptors; /* of the test's process, before the test */
} running;

static struct {
        const char *name; /* NULL in the test's own process */
        char *failure;
        size_t failure_bytes;
} child;

/* --- descriptors --- */

static int visit_descriptors(void (*visit)(int fd, void *arg), void *arg) {
        DIR *dir = opendir("/proc/self/fd");
        int n = 0;
        if (!dir)
                return -errno;
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
                int fd = atoi(e->d_name);
                if (e->d_name[0] == '.' || fd == dirfd(dir))
                        continue;
                n++;
                if (visit)
                        visit(fd, arg);
        }
        closedir(dir);
        return n;
}

int unit_count_descriptors(void) {
        return visit_descriptors(NULL, NULL);
}

static void add_target(int fd, void *arg) {
        char link[64], target[128], *text = arg;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof(target) - 1);
        size_t used = strlen(text);
        target[n > 0 ? n : 0] = '\0';
        snprintf(text + used, TEXT_BYTES - used, " %d=%s", fd, target);
}

static void before_test(void) {
        running.n_descriptors = unit_count_descriptors();
}

static void after_test(void) {
        char text[TEXT_BYTES] = "";
        int n = unit_count_descriptors();
        running.outcome->reached_end = true;
        if (n == running.n_descriptors)
                return;
        visit_descriptors(add_target, text);
        ck_abort_msg(
                "%d descriptors were open before the test, %d after it:%s", running.n_descriptors, n, text);
}

/* --- directories --- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
        (void)st;
        (void)type;
        (void)at;
        return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

static int make_directory(void) {
        const char *base = getenv("TUTTI_TEST_BASE");
        if (!base || strlen(base) > MAX_DIRECTORY_BYTES - sizeof("/tutti-test-XXXXXX"))
                base = "/tmp";
        snprintf(running.directory, sizeof(running.directory), "%s/tutti-test-XXXXXX", base);
        if (!mkdtemp(running.directory))
                return -errno;
        return setenv("TMPDIR", running.directory, 1) == 0 ? 0 : -errno;
}

static void remove_directory(void) {
        if (getenv("TUTTI_TEST_KEEP"))
                printf("# kept: %s\n", running.directory);
        else if (nftw(running.directory, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
                printf("# cannot remove %s: %s\n", running.directory, strerror(errno));
}

const char *unit_directory(void) {
        return running.directory;
}

/* --- what a test may call --- */

double unit_scale(void) {
        const char *s = getenv("TUTTI_TEST_SCALE");
        double scale = s ? atof(s) : 1;
        return scale >= 1 ? scale : 1;
}

void unit_skip(const char *format, ...) {
        va_list args;
        va_start(args, format);
        vsnprintf(running.outcome->skip_reason, TEXT_BYTES, format, args);
        va_end(args);
        _exit(0);
}

void unit_become_child(const char *name, char *failure, size_t failure_bytes) {
        child.name = name;
        child.failure = failure;
        child.failure_bytes = failure_bytes;
        /* Check's handler would end the whole test. */
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
}

void unit_mark_point(const char *file, int line) {
        if (!child.name)
                _mark_point(file, line);
}

void unit_assert_failed(const char *file, int line, const char *expression, const char *format, ...) {
        char text[TEXT_BYTES] = "";
        if (format) {
                va_list args;
                va_start(args, format);
                vsnprintf(text, sizeof(text), format, args);
                va_end(args);
        }
        if (!child.name)
                _ck_assert_failed(file, line, expression, "%s", format ? text : expression);
        fprintf(stderr, "%s: %s:%d: %s\n", child.name, file, line, format ? text : expression);
        if (child.failure && child.failure[0] == '\0')
                snprintf(child.failure, child.failure_bytes, "%s: %s:%d: %s", child.name, file, line,
                        format ? text : expression);
        exit(1);
}

/* --- the runner --- */

static void print_lines(const char *file, int line, const char *text) {
        printf("#   %s:%d: ", file, line);
        for (; *text; text++)
                if (*text == '\n')
                        printf("\n#   ");
                else
                        putchar(*text);
        putchar('\n');
}

/* Why the test that has run has not passed; NULL when it has. */
static const char *why_not(TestResult *result) {
        if (tr_rtype(result) != CK_PASS)
                return tr_msg(result);
        if (running.outcome->reached_end || running.outcome->skip_reason[0])
                return NULL;
        return "exited with 0 before its end";
}

/* Prints the point of a test that has run. Whether it passed or was skipped. */
static bool report(size_t number, const char *suite, const TTest *test, TestResult *result) {
        const char *why = why_not(result), *skip = running.outcome->skip_reason;
        printf("%sok %zu - %s: %s%s%s\n", why ? "not " : "", number, suite, test->name,
                !why && skip[0] ? " # SKIP " : "", why ? "" : skip);
        if (why && tr_lfile(result))
                print_lines(tr_lfile(result), tr_lno(result), why);
        else if (why)
                print_lines(test->file, test->line, why);
        return !why;
}

static bool run_one(size_t number, const char *suite_name, const TTest *test, double seconds) {
        Suite *suite = suite_create(suite_name);
        TCase *tcase = tcase_create(test->name);
        bool passed = false;
        tcase_set_timeout(tcase, seconds * unit_scale());
        tcase_add_checked_fixture(tcase, before_test, after_test);
        tcase_add_test(tcase, test);
        suite_add_tcase(suite, tcase);

        SRunner *runner = srunner_create(suite);
        memset(running.outcome, 0, sizeof(*running.outcome));
        srunner_run_all(runner, CK_SILENT);
        TestResult **results = srunner_results(runner);
        if (srunner_ntests_run(runner) == 1)
                passed = report(number, suite_name, test, results[0]);
        free(results);
        srunner_free(runner);
        return passed;
}

/* What a launcher around the tests has set is not for the replicas in them. */
static void forget_launchers(void) {
        static const char *const variables[] = { "TUTTI_SOCKET", "TUTTI_JOB", "TUTTI_JOB_SECRET",
                "TUTTI_RANK", "TUTTI_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "RANK",
                "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_NAMESPACE", "PMIX_RANK",
                "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS" };
        for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
                unsetenv(variables[i]);
}

static bool is_wanted(const TTest *test) {
        const char *only = getenv("TUTTI_TEST_ONLY");
        return !only || !*only || fnmatch(only, test->name, 0) == 0;
}

int unit_main(const char *suite, const TTest *const *tests, size_t n_tests, double seconds) {
        size_t n_wanted = 0, number = 0, n_failed = 0;
        setvbuf(stdout, NULL, _IOLBF, 0);
        forget_launchers();
        running.outcome = mmap(
                NULL, sizeof(*running.outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (running.outcome == MAP_FAILED) {
                printf("Bail out! mmap: %s\n", strerror(errno));
                return 1;
        }
        for (size_t i = 0; i < n_tests; i++)
                n_wanted += is_wanted(tests[i]);
        printf("1..%zu%s\n", n_wanted, n_wanted ? "" : " # SKIP no test of that name here");
        for (size_t i = 0; i < n_tests; i++) {
                if (!is_wanted(tests[i]))
                        continue;
                int r = make_directory();
                if (r < 0) {
                        printf("Bail out! %s: %s\n", running.directory, strerror(-r));
                        return 1;
                }
                n_failed += !run_one(++number, suite, tests[i], seconds);
                remove_directory();
        }
        return n_failed > 0;
}
