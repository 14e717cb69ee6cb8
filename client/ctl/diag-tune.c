#include "diag-tune.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "json.h"
#include "rows.h"

#define N_WARM     2
#define N_ROUNDS   9
#define MAX_POINTS 24
#define NEVER      (UINT64_C(1) << 50)

enum way { ONE_DEVICE, LIBRARY, N_WAYS };
static const char *const way_names[] = { "one_device", "library" };

struct point {
        uint64_t n_bytes, ns[N_WAYS]; /* medians */
};

/* Of one number of GPUs. */
struct measurement {
        uint32_t n_gpus, n_points;
        struct point points[MAX_POINTS];
};

struct gpus {
        uint32_t n;
        char uuids[MAX_TUNE_GPUS][64];
};

/* --- a replica --- */

struct player {
        struct tutti_group *g;
        struct tutti_buffer *b;
        uint32_t rank;
};

static uint64_t now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
        const uint64_t *x = a, *y = b;
        return (*x > *y) - (*x < *y);
}

/* false: it has failed, and said so. */
static bool time_way(const struct player *p, uint64_t n_bytes, enum way way, uint64_t *ret) {
        const struct tutti_value v = TUTTI_VALUE(.buffer = p->b, .dtype = TUTTI_F32, .n_dims = 1,
                .shape = { n_bytes / sizeof(float) });
        const struct tutti_options options = TUTTI_OPTIONS(.algorithm = way_names[way]);
        uint64_t took[N_ROUNDS];
        for (int i = -N_WARM; i < N_ROUNDS; i++) {
                struct tutti_work *w;
                uint64_t begun = now_ns();
                enum tutti_status status =
                        tutti_all_reduce_start(p->g, NULL, TUTTI_SUM, &v, &v, &options, &w);
                if (status == TUTTI_OK) {
                        status = tutti_work_wait(w, 60);
                        if (status != TUTTI_OK && p->rank == 0)
                                fprintf(stderr, "%s of %llu bytes: %s\n", way_names[way],
                                        (unsigned long long)n_bytes, tutti_status_name(status));
                        tutti_work_free(w);
                }
                if (status != TUTTI_OK)
                        return false;
                if (i >= 0)
                        took[i] = now_ns() - begun;
        }
        qsort(took, N_ROUNDS, sizeof(*took), compare);
        *ret = took[N_ROUNDS / 2];
        return true;
}

static bool play(const struct player *p, uint64_t up_to_bytes, int out) {
        for (uint64_t n_bytes = TUNE_LEAST; n_bytes <= up_to_bytes; n_bytes *= 2) {
                struct point point = { .n_bytes = n_bytes };
                for (enum way way = ONE_DEVICE; way < N_WAYS; way++)
                        if (!time_way(p, n_bytes, way, &point.ns[way]))
                                return false;
                if (p->rank == 0 && write(out, &point, sizeof(point)) != sizeof(point))
                        return false;
        }
        return true;
}

static int say_failed(uint32_t rank, const char *what) {
        fprintf(stderr, "replica %u of the measurement: %s: %s\n", rank, what, tutti_error());
        return EXIT_FAILURE;
}

/* The whole life of the process. */
static int replica(const struct diag_tune_ask *ask, const struct gpus *gpus, const struct player *like,
        uint32_t n, int out) {
        struct player p = *like;
        struct tutti *t;
        char job[64];
        snprintf(job, sizeof(job), "tuttictl-tune-%d-%u", (int)getppid(), n);
        if (tutti_admin_use_gpu(gpus->uuids[p.rank]) != TUTTI_OK)
                return say_failed(p.rank, gpus->uuids[p.rank]);
        if (tutti_open(ask->socket, &t) != TUTTI_OK)
                return say_failed(p.rank, "no connection");
        if (tutti_cuda_buffer_alloc(t, ask->up_to_bytes, &p.b) != TUTTI_OK)
                return say_failed(p.rank, "no device memory");
        const struct tutti_join_args args = TUTTI_JOIN(.group = "tune", .job = job, .rank = (int32_t)p.rank,
                .world_size = (int32_t)n, .join_timeout = 60, .brief_record = 1);
        if (tutti_join(t, &args, &p.g) != TUTTI_OK)
                return say_failed(p.rank, "no group");
        bool is_well = play(&p, ask->up_to_bytes, out);
        tutti_group_free(p.g);
        tutti_buffer_free(p.b);
        tutti_close(t);
        return is_well ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* --- all of them --- */

static bool start_replicas(
        const struct diag_tune_ask *ask, const struct gpus *gpus, uint32_t n, const int ends[2], pid_t *ret) {
        fflush(NULL); /* what stands in a buffer would be written by each */
        for (uint32_t rank = 0; rank < n; rank++) {
                ret[rank] = fork();
                if (ret[rank] < 0)
                        return false;
                if (ret[rank] > 0)
                        continue;
                const struct player like = { .rank = rank };
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(ends[0]);
                _exit(replica(ask, gpus, &like, n, ends[1]));
        }
        return true;
}

static void read_points(int in, struct measurement *m) {
        struct point point;
        while (m->n_points < MAX_POINTS && read(in, &point, sizeof(point)) == sizeof(point))
                m->points[m->n_points++] = point;
}

static bool end_replicas(const pid_t *pids, uint32_t n) {
        bool is_well = true;
        for (uint32_t i = 0; i < n && pids[i] > 0; i++) {
                int status = 0;
                if (waitpid(pids[i], &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
                        is_well = false;
        }
        return is_well;
}

static bool measure(
        const struct diag_tune_ask *ask, const struct gpus *gpus, uint32_t n, struct measurement *m) {
        pid_t pids[MAX_TUNE_GPUS] = { 0 };
        int ends[2];
        *m = (struct measurement){ .n_gpus = n };
        if (pipe(ends) < 0)
                return false;
        bool is_well = start_replicas(ask, gpus, n, ends, pids);
        close(ends[1]);
        if (is_well)
                read_points(ends[0], m);
        for (uint32_t i = 0; !is_well && i < n && pids[i] > 0; i++)
                kill(pids[i], SIGKILL); /* of those that were started, when not all could be */
        close(ends[0]);
        return end_replicas(pids, n) && is_well && m->n_points > 0;
}

/* The smallest size from which on the library was faster at every size. */
static uint64_t threshold_of(const struct measurement *m) {
        uint64_t from = NEVER;
        for (uint32_t i = m->n_points; i-- > 0;) {
                if (m->points[i].ns[LIBRARY] >= m->points[i].ns[ONE_DEVICE])
                        return from;
                from = m->points[i].n_bytes;
        }
        return from;
}

/* --- what there is --- */

static enum tutti_status look(struct tutti *t, struct gpus *ret) {
        struct tutti_answer *a;
        enum tutti_status status = tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a);
        if (status != TUTTI_OK)
                return status;
        for (const struct tutti_row *r = NULL; (r = rows_next(a, TUTTI_ROW_DEVICE, r));)
                if (*r->device.uuid && !r->device.failing && ret->n < MAX_TUNE_GPUS)
                        snprintf(ret->uuids[ret->n++], sizeof(ret->uuids[0]), "%s", r->device.uuid);
        tutti_answer_free(a);
        return TUTTI_OK;
}

/* Whether tuttid has a library at all; otherwise why not. */
static bool has_library(struct tutti *t, const struct gpus *gpus, char *why, size_t size) {
        char devices[2 * sizeof(gpus->uuids[0])];
        const struct tutti_value value = TUTTI_VALUE(.dtype = TUTTI_F32, .n_dims = 1, .shape = { 1024 });
        const struct tutti_options options = TUTTI_OPTIONS(.algorithm = way_names[LIBRARY]);
        struct tutti_answer *a;
        snprintf(devices, sizeof(devices), "%s,%s", gpus->uuids[0], gpus->uuids[1]);
        enum tutti_status status = tutti_admin_plan(t,
                &TUTTI_PLAN_QUESTION(.kind = TUTTI_KIND_REDUCE, .op = TUTTI_SUM, .world_size = 2,
                        .values = &value, .n_values = 1, .options = &options, .devices = devices),
                &a);
        if (status == TUTTI_OK)
                tutti_answer_free(a);
        else
                snprintf(why, size, "%s", tutti_error());
        return status == TUTTI_OK;
}

/* CTL_WELL: *ret and no text, or why there is nothing to tune. */
static int find_out(const struct diag_tune_ask *ask, struct gpus *ret, char why[512]) {
        struct tutti *t;
        char reason[400];
        why[0] = '\0';
        enum tutti_status status = tutti_open(ask->socket, &t);
        if (status != TUTTI_OK) {
                fprintf(stderr, "%s\n", tutti_error());
                return status == TUTTI_PERMISSION ? CTL_NOT_ALLOWED : CTL_UNREACHABLE;
        }
        status = look(t, ret);
        if (status != TUTTI_OK)
                fprintf(stderr, "%s\n", tutti_error());
        else if (ret->n < 2)
                snprintf(why, 512,
                        "nothing to tune: what is tuned is the size from which on several GPUs leave a "
                        "reduction to NCCL, and this tuttid serves %u. Reductions in host memory are one "
                        "pass "
                        "at any size",
                        ret->n);
        else if (!has_library(t, ret, reason, sizeof(reason)))
                snprintf(why, 512, "nothing to tune: %s", reason);
        tutti_close(t);
        return status == TUTTI_OK ? CTL_WELL : CTL_WARNING;
}

/* --- the file --- */

static bool write_text(FILE *f, const struct measurement *list, uint32_t n) {
        fprintf(f, "# tutti tuning 1\n# Measured by `tuttictl diag --tune` on this host; "
                   "docs/configuration.md.\n");
        for (uint32_t i = 0; i < n; i++) {
                for (uint32_t k = 0; k < list[i].n_points; k++)
                        fprintf(f, "# %u GPUs, %llu bytes: one_device %llu ns, library %llu ns\n",
                                list[i].n_gpus, (unsigned long long)list[i].points[k].n_bytes,
                                (unsigned long long)list[i].points[k].ns[ONE_DEVICE],
                                (unsigned long long)list[i].points[k].ns[LIBRARY]);
                fprintf(f, "library-from %u %llu\n", list[i].n_gpus,
                        (unsigned long long)threshold_of(&list[i]));
        }
        return fflush(f) == 0 && !ferror(f);
}

/* Whole or not at all: tuttid may read it at any time. */
static int write_file(const char *path, const struct measurement *list, uint32_t n) {
        char fresh[4096];
        if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
                return -ENAMETOOLONG;
        FILE *f = fopen(fresh, "we");
        if (!f)
                return -errno;
        bool is_well = write_text(f, list, n);
        is_well &= fclose(f) == 0;
        if (is_well && rename(fresh, path) == 0)
                return 0;
        int r = errno ? -errno : -EIO;
        unlink(fresh);
        return r;
}

/* --- telling --- */

static json_t *point_json(const struct point *p) {
        json_t *j = json_object();
        json_put(&j, "bytes", json_count(p->n_bytes));
        json_put(&j, "one_device_ns", json_count(p->ns[ONE_DEVICE]));
        json_put(&j, "library_ns", json_count(p->ns[LIBRARY]));
        return j;
}

static json_t *measurement_json(const struct measurement *m) {
        json_t *j = json_object(), *points = json_array();
        uint64_t from = threshold_of(m);
        for (uint32_t i = 0; i < m->n_points; i++)
                json_array_append_new(points, point_json(&m->points[i]));
        json_put(&j, "gpus", json_count(m->n_gpus));
        json_put(&j, "library_from", from == NEVER ? json_null() : json_count(from));
        json_put(&j, "points", points);
        return j;
}

static int tell_json(
        struct query *q, const char *path, const struct measurement *list, uint32_t n, const char *why) {
        json_t *j = json_object(), *thresholds = json_array();
        for (uint32_t i = 0; i < n; i++)
                json_array_append_new(thresholds, measurement_json(&list[i]));
        json_put(&j, "file", n ? json_text(path) : json_null());
        json_put(&j, "why", json_text_or_null(why));
        json_put(&j, "thresholds", thresholds);
        return query_put_json(q, j, CTL_WELL);
}

static void tell_text(const char *path, const struct measurement *list, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
                uint64_t from = threshold_of(&list[i]);
                printf("%2u GPUs  NCCL %s%s\n", list[i].n_gpus, from == NEVER ? "was never faster" : "from ",
                        from == NEVER ? "" : bytes_text(from).s);
        }
        printf("\nWritten to %s. tuttid reads it there when plan.tuning says so (it does by default) and it "
               "is\n"
               "started or reloaded: systemctl reload tuttid, or SIGHUP.\n",
                path);
}

static int tell(struct query *q, const char *path, const struct measurement *list, uint32_t n) {
        if (q->json)
                return tell_json(q, path, list, n, "");
        tell_text(path, list, n);
        return CTL_WELL;
}

static int tell_nothing(struct query *q, const char *why) {
        if (q->json)
                return tell_json(q, "", NULL, 0, why);
        printf("%s.\n", why);
        return CTL_WELL;
}

/* 2, 4, 8 ..., and all. */
static uint32_t next_number(uint32_t n, uint32_t all) {
        if (n == all)
                return 0;
        return n * 2 < all ? n * 2 : all;
}

int diag_tune(struct query *q, const struct diag_tune_ask *ask) {
        static struct measurement list[8];
        struct gpus gpus = { 0 };
        uint32_t n = 0;
        char why[512];
        int code = find_out(ask, &gpus, why);
        if (code != CTL_WELL)
                return code;
        if (why[0])
                return tell_nothing(q, why);
        for (uint32_t n_gpus = 2; n_gpus && n < 8; n_gpus = next_number(n_gpus, gpus.n))
                if (!measure(ask, &gpus, n_gpus, &list[n++])) {
                        fprintf(stderr, "measuring %u GPUs has failed; %s is as it was.\n", n_gpus,
                                ask->path);
                        return CTL_FAILING;
                }
        int r = write_file(ask->path, list, n);
        if (r < 0) {
                fprintf(stderr, "%s cannot be written: %s; name another place with --tuning.\n", ask->path,
                        strerror(-r));
                return CTL_IO;
        }
        return tell(q, ask->path, list, n);
}
