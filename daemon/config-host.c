#include "config-host.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of all that passwd or group say of one: groups may have many members. */
#define MAX_RECORD_BYTES 65536

static int find_user(const char *name, uint32_t *ret_uid) {
        struct passwd user, *found;
        static char record[MAX_RECORD_BYTES];
        int r = getpwnam_r(name, &user, record, sizeof(record), &found);
        /* getpwnam(3): some say so by an error where nobody is found. */
        if (!found)
                return r == 0 || r == ENOENT || r == ESRCH ? -ENOENT : -r;
        *ret_uid = user.pw_uid;
        return 0;
}

const struct user_names host_users = { .find = find_user };

enum weight { WARNING, ERROR };

static void PRINTF_LIKE(3, 4) add(struct findings *f, enum weight weight, const char *format, ...) {
        struct finding *new = &f->all[f->n++];
        va_list args;
        new->is_error = weight == ERROR;
        va_start(args, format);
        vsnprintf(new->text, sizeof(new->text), format, args);
        va_end(args);
}

/* Its directory need not be there yet: a service manager may make it. */
static void look_at_socket(const struct config *c, const struct config *preset, struct findings *f) {
        char directory[CONFIG_PATH_BYTES];
        struct stat s;
        snprintf(directory, sizeof(directory), "%s", c->socket);
        char *slash = strrchr(directory, '/');
        if (strcmp(c->socket, preset->socket) == 0 || !slash || slash == directory)
                return;
        *slash = '\0';
        if (stat(directory, &s) < 0)
                add(f, WARNING, "daemon.socket = %s: the directory %s: %s; tuttid does not make it.",
                        c->socket, directory, strerror(errno));
        else if (!S_ISDIR(s.st_mode))
                add(f, ERROR, "daemon.socket = %s: %s is no directory.", c->socket, directory);
}

static void look_at_group(const struct config *c, struct findings *f) {
        struct group group, *found;
        static char record[MAX_RECORD_BYTES];
        if (c->socket_group[0] == '\0')
                return;
        int r = getgrnam_r(c->socket_group, &group, record, sizeof(record), &found);
        if (!found)
                add(f, ERROR, "daemon.group = %s: %s; use a group of this host, or make it: groupadd -r %s.",
                        c->socket_group, r ? strerror(r) : "this host has no such group", c->socket_group);
}

static void look_at_tuning(const struct config *c, const struct config *preset, struct findings *f) {
        if (c->plan_tuning[0] == '\0' || strcmp(c->plan_tuning, preset->plan_tuning) == 0)
                return;
        if (access(c->plan_tuning, F_OK) < 0)
                add(f, WARNING, "plan.tuning = %s: %s; `tuttictl diag --tune --tuning %s` writes it.",
                        c->plan_tuning, strerror(errno), c->plan_tuning);
}

static void look_at_worker(const struct config *c, struct findings *f) {
        struct stat s;
        if (c->gpu_worker[0] == '\0' || c->gpu_enabled == GPU_NO)
                return;
        int r = stat(c->gpu_worker, &s) < 0 || access(c->gpu_worker, X_OK) < 0 ? errno : 0;
        if (r == 0 && S_ISREG(s.st_mode))
                return;
        add(f, ERROR,
                "gpu.worker = %s: %s; use the path of tuttid-gpu, or leave it empty: then it is looked for "
                "beside tuttid.",
                c->gpu_worker, r ? strerror(r) : "not a program");
}

void host_look(const struct config *c, struct findings *ret) {
        struct config preset;
        config_init(&preset);
        *ret = (struct findings){ 0 };
        look_at_socket(c, &preset, ret);
        look_at_group(c, ret);
        look_at_tuning(c, &preset, ret);
        look_at_worker(c, ret);
}
