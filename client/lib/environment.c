#include "lib/environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/text.h"
#include "lib/failure.h"

/* The variable, or NULL when it is unset or empty. */
static const char *variable(const char *name) {
        const char *value = name ? secure_getenv(name) : NULL;
        return value && *value ? value : NULL;
}

/* --- the socket --- */

#define SYSTEM_SOCKET "/run/tutti/tuttid.sock"

enum status socket_path_check(const char *path, struct error *err) {
        size_t n = strlen(path);
        if (n <= MAX_SOCKET_PATH_BYTES)
                return STATUS_OK;
        refuse(err, STATUS_LIMIT, FIELD_UNSPECIFIED,
                "the socket path has %zu bytes; a socket address holds %d: %s", n, MAX_SOCKET_PATH_BYTES,
                path);
        err->used = n;
        err->limit = MAX_SOCKET_PATH_BYTES;
        return STATUS_LIMIT;
}

static bool may_exist(const char *path) {
        struct stat st;
        return stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

static enum status copy_path(const char *path, char *buf, size_t size, struct error *err) {
        enum status status = socket_path_check(path, err);
        if (status != STATUS_OK)
                return status;
        if (strlen(path) >= size)
                return refuse(err, STATUS_LIMIT, FIELD_SIZE, "the socket path needs %zu bytes, %zu are there",
                        strlen(path) + 1, size);
        memcpy(buf, path, strlen(path) + 1);
        return STATUS_OK;
}

enum status environment_reconnect(double *ret, struct error *err) {
        const char *given = variable("TUTTI_RECONNECT");
        char *end = NULL;
        *ret = given ? strtod(given, &end) : 0;
        if (given && (*end || !(*ret >= 0 && *ret < 1e6)))
                return refuse(err, STATUS_INVALID, FIELD_TIMEOUT,
                        "TUTTI_RECONNECT is \"%s\"; it is a number of seconds, 0 to 1000000", given);
        return STATUS_OK;
}

enum status environment_yield(uint64_t *ret_ns, struct error *err) {
        const char *given = variable("TUTTI_YIELD");
        char *end = NULL;
        double us = given ? strtod(given, &end) : 0;
        if (given && (*end || !(us >= 0 && us <= 1000)))
                return refuse(err, STATUS_INVALID, FIELD_UNSPECIFIED,
                        "TUTTI_YIELD is \"%s\"; it is a number of microseconds, 0 to 1000", given);
        if (given)
                *ret_ns = (uint64_t)(us * 1e3);
        return STATUS_OK;
}

enum status environment_huge_pages(bool *ret, struct error *err) {
        const char *given = variable("TUTTI_HUGE_PAGES");
        *ret = given && strcmp(given, "yes") == 0;
        if (given && !*ret && strcmp(given, "no") != 0)
                return refuse(err, STATUS_INVALID, FIELD_UNSPECIFIED,
                        "TUTTI_HUGE_PAGES is \"%s\"; it is yes or no", given);
        return STATUS_OK;
}

enum status environment_socket_path(char *buf, size_t size, struct error *err) {
        const char *given = variable("TUTTI_SOCKET");
        if (given)
                return copy_path(given, buf, size, err);
        if (may_exist(SYSTEM_SOCKET))
                return copy_path(SYSTEM_SOCKET, buf, size, err);

        char own[4096] = "";
        const char *runtime = variable("XDG_RUNTIME_DIR");
        if (runtime && snprintf(own, sizeof(own), "%s/tutti/tuttid.sock", runtime) < (int)sizeof(own) &&
                may_exist(own))
                return copy_path(own, buf, size, err);

        struct text places;
        text_init(&places, buf, size);
        text_add(&places, SYSTEM_SOCKET);
        if (runtime)
                text_add(&places, ", %s", own);
        return refuse(err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED,
                "there is no tuttid socket at %s%s%s. Start tuttid, or set TUTTI_SOCKET to its path",
                SYSTEM_SOCKET, runtime ? " or " : " (XDG_RUNTIME_DIR is not set)", own);
}

/* --- the job --- */

static enum status take_job(
        const char *from, const char *value, char ret[MAX_NAME_BYTES], struct error *err) {
        size_t n = strlen(value);
        if (n < MAX_NAME_BYTES) {
                memcpy(ret, value, n + 1);
                return STATUS_OK;
        }
        refuse(err, STATUS_LIMIT, FIELD_JOB,
                "the job name from %s has %zu bytes, more than %d. Set TUTTI_JOB to a shorter one", from, n,
                MAX_NAME_BYTES - 1);
        err->used = n;
        err->limit = MAX_NAME_BYTES - 1;
        return STATUS_LIMIT;
}

static enum status take_job_pair(
        const char *const names[2], char between, char ret[MAX_NAME_BYTES], struct error *err) {
        char from[64], value[1024];
        snprintf(from, sizeof(from), "%s and %s", names[0], names[1]);
        snprintf(value, sizeof(value), "%s%c%s", variable(names[0]), between, variable(names[1]));
        return take_job(from, value, ret, err);
}

enum status environment_job(char ret[MAX_NAME_BYTES], struct error *err) {
        static const char *const master[2] = { "MASTER_ADDR", "MASTER_PORT" };
        static const char *const slurm[2] = { "SLURM_JOB_ID", "SLURM_STEP_ID" };
        const char *value;

        if ((value = variable("TUTTI_JOB")))
                return take_job("TUTTI_JOB", value, ret, err);
        if ((value = variable("TORCHELASTIC_RUN_ID")) && strcmp(value, "none") != 0)
                return take_job("TORCHELASTIC_RUN_ID", value, ret, err);
        if (variable(master[0]) && variable(master[1]))
                return take_job_pair(master, ':', ret, err);
        if ((value = variable("PMIX_NAMESPACE")))
                return take_job("PMIX_NAMESPACE", value, ret, err);
        if (variable(slurm[0]) && variable(slurm[1]))
                return take_job_pair(slurm, '.', ret, err);
        return refuse(err, STATUS_INVALID, FIELD_JOB,
                "name the job: no launcher's environment does. Set TUTTI_JOB, or give `job` to tutti_join");
}

/* --- rank and world size --- */

/* How a launcher tells. A second name is looked at first, and is the narrower one. */
struct launcher {
        const char *name, *rank, *size, *size_of_step;
        const char *local_size, *local_size_too; /* must equal the size, where set */
        const char *n_hosts, *n_hosts_of_step;   /* must be 1, where set */
};

static const struct launcher launchers[] = {
        { .name = "tutti", .rank = "TUTTI_RANK", .size = "TUTTI_WORLD_SIZE" },
        { .name = "torchrun", .rank = "RANK", .size = "WORLD_SIZE", .local_size = "LOCAL_WORLD_SIZE" },
        { .name = "Open MPI",
                .rank = "OMPI_COMM_WORLD_RANK",
                .size = "OMPI_COMM_WORLD_SIZE",
                .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE" },
        { .name = "PMI",
                .rank = "PMI_RANK",
                .size = "PMI_SIZE",
                .local_size = "MPI_LOCALNRANKS",
                .local_size_too = "PMI_LOCAL_SIZE" },
        { .name = "SLURM",
                .rank = "SLURM_PROCID",
                .size = "SLURM_NTASKS",
                .size_of_step = "SLURM_STEP_NUM_TASKS",
                .n_hosts = "SLURM_NNODES",
                .n_hosts_of_step = "SLURM_STEP_NUM_NODES" },
        /* PMIx itself puts no size into the environment: it serves only those who give one. */
        { .name = "PMIx", .rank = "PMIX_RANK" },
};

/* *ret is -1 when the variable is not set. */
static enum status read_number(const char *name, int32_t *ret, struct error *err) {
        const char *value = name ? secure_getenv(name) : NULL;
        *ret = -1;
        if (!value)
                return STATUS_OK;
        char *end;
        errno = 0;
        long n = strtol(value, &end, 10);
        if (value[0] < '0' || value[0] > '9' || *end || errno || n > INT32_MAX)
                return refuse(err, STATUS_INVALID, FIELD_UNSPECIFIED,
                        "the environment variable %s=%s is not a whole number", name, value);
        *ret = (int32_t)n;
        return STATUS_OK;
}

static enum status read_either(const char *first, const char *second, int32_t *ret, struct error *err) {
        enum status status = read_number(first, ret, err);
        if (status != STATUS_OK || *ret >= 0)
                return status;
        return read_number(second, ret, err);
}

static enum status check_one_host(const struct launcher *l, int32_t size, struct error *err) {
        int32_t local, n_hosts;
        enum status status = read_either(l->local_size, l->local_size_too, &local, err);
        if (status == STATUS_OK)
                status = read_either(l->n_hosts_of_step, l->n_hosts, &n_hosts, err);
        if (status != STATUS_OK)
                return status;
        if (local >= 0 && size >= 0 && local != size)
                return refuse(err, STATUS_UNSUPPORTED, FIELD_WORLD_SIZE,
                        "one host for now: %s started %d replicas in all (%s) and %d on this host (%s)",
                        l->name, size, l->size, local, l->local_size);
        if (n_hosts >= 0 && n_hosts != 1)
                return refuse(err, STATUS_UNSUPPORTED, FIELD_WORLD_SIZE,
                        "one host for now: %s started this job on %d hosts (%s)", l->name, n_hosts,
                        l->n_hosts);
        return STATUS_OK;
}

static enum status take_seat(const struct launcher *l, struct seat *seat, struct error *err) {
        int32_t rank, size;
        enum status status = read_number(l->rank, &rank, err);
        if (status == STATUS_OK)
                status = read_either(l->size_of_step, l->size, &size, err);
        if (status == STATUS_OK)
                status = check_one_host(l, size, err);
        if (status != STATUS_OK)
                return status;
        if (seat->rank < 0)
                seat->rank = rank;
        if (seat->world_size < 0 && size < 0)
                return refuse(err, STATUS_INVALID, FIELD_WORLD_SIZE,
                        "%s is set but %s is not. Set it, or give `world_size` to tutti_join", l->rank,
                        l->size ? l->size : "no world size that goes with it");
        if (seat->world_size < 0)
                seat->world_size = size;
        return STATUS_OK;
}

enum status environment_seat(struct seat *seat, struct error *err) {
        if (seat->rank >= 0 && seat->world_size >= 0)
                return STATUS_OK;
        for (size_t i = 0; i < ARRAY_SIZE(launchers); i++)
                if (secure_getenv(launchers[i].rank))
                        return take_seat(&launchers[i], seat, err);
        return refuse(err, STATUS_INVALID, seat->rank < 0 ? FIELD_RANK : FIELD_WORLD_SIZE,
                "%s neither given nor in a launcher's environment (TUTTI_RANK and TUTTI_WORLD_SIZE, "
                "torchrun, "
                "Open MPI, PMI, SLURM). Start with `tuttictl run`, or give it to tutti_join",
                seat->rank < 0 ? "the rank is" : "the world size is");
}
