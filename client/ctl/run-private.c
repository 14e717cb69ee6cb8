/* A tuttid of the launcher's own, in a directory of its own: BASE/tutti-run.XXXXXX, mode 0700, locked by
 * flock on the directory itself for as long as the launcher lives. An unlocked one belongs to a launcher that
 * was killed and is swept. Who makes a directory owns it only when it has the lock and the directory still
 * has a name: a sweeper may have come in between. */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/admin.h>
#include "ctl.h"
#include "print.h"
#include "rows.h"

#define DIRECTORY_PREFIX "tutti-run."
#define SOCKET_NAME      "tuttid.sock"
#define LOCK_NAME        "tuttid.lock"
#define START_NS         UINT64_C(2000000000)
#define STOP_NS          UINT64_C(2000000000)
#define ATTEMPTS         16

static void remove_directory(int base_fd, const char *name, int directory_fd) {
        unlinkat(directory_fd, SOCKET_NAME, 0);
        unlinkat(directory_fd, LOCK_NAME, 0);
        unlinkat(base_fd, name, AT_REMOVEDIR);
}

static bool is_mine(int fd) {
        struct stat st;

        return fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700;
}

static void sweep_one(int base_fd, const char *name) {
        int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
                return;
        if (is_mine(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0)
                remove_directory(base_fd, name, fd);
        close(fd);
}

static void sweep(const char *base) {
        DIR *d = opendir(base);
        struct dirent *entry;

        if (!d)
                return;
        while ((entry = readdir(d)))
                if (strncmp(entry->d_name, DIRECTORY_PREFIX, strlen(DIRECTORY_PREFIX)) == 0)
                        sweep_one(dirfd(d), entry->d_name);
        closedir(d);
}

static int open_locked(const char *path) {
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (fd < 0)
                return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
                return fd;
        close(fd);
        return -EAGAIN;
}

static int make_directory_in(struct private_tuttid *t, const char *base) {
        for (int i = 0; i < ATTEMPTS; i++) {
                int n = snprintf(t->directory, sizeof(t->directory), "%s/" DIRECTORY_PREFIX "XXXXXX", base),
                    fd;

                if (n < 0 || (size_t)n + sizeof("/" SOCKET_NAME) > sizeof(t->socket))
                        return -ENAMETOOLONG;
                if (!mkdtemp(t->directory))
                        return -errno;
                fd = open_locked(t->directory);
                if (fd >= 0) {
                        t->directory_fd = fd;
                        stpcpy(stpcpy(t->socket, t->directory), "/" SOCKET_NAME);
                        return 0;
                }
                if (fd != -EAGAIN && fd != -ENOENT)
                        return fd;
        }
        return -EAGAIN;
}

static int make_directory(struct launch *l) {
        const char *bases[] = { getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp" }, *last = "/tmp";
        int r = -ENOENT;

        for (size_t i = 0; i < sizeof(bases) / sizeof(*bases); i++) {
                if (!bases[i] || bases[i][0] != '/')
                        continue;
                last = bases[i];
                sweep(bases[i]);
                r = make_directory_in(&l->tuttid, bases[i]);
                if (r == 0)
                        return 0;
        }
        l->tuttid.directory[0] = l->tuttid.socket[0] = '\0';
        launch_say(l, "tuttictl run: cannot make a directory for a private tuttid in %s: %s.", last,
                strerror(-r));
        return CTL_UNREACHABLE;
}

/* $TUTTI_DAEMON, else beside tuttictl, else where it is installed. */
static int find_tuttid(struct launch *l, char *path, size_t size) {
        const char *wanted = getenv("TUTTI_DAEMON");
        ssize_t n = readlink("/proc/self/exe", path, size - sizeof("/tuttid"));
        char *slash;

        if (wanted && *wanted) {
                snprintf(path, size, "%s", wanted);
                return 0;
        }
        path[n > 0 ? n : 0] = '\0';
        slash = strrchr(path, '/');
        if (slash) {
                snprintf(slash, sizeof("/tuttid"), "/tuttid");
                if (access(path, X_OK) == 0)
                        return 0;
        }
        if (access(TUTTI_DAEMON_PATH, X_OK) == 0) {
                snprintf(path, size, "%s", TUTTI_DAEMON_PATH);
                return 0;
        }
        launch_say(l,
                "tuttictl run: no tuttid to start: neither %s nor %s is there. Name one by TUTTI_DAEMON.",
                path, TUTTI_DAEMON_PATH);
        return CTL_UNREACHABLE;
}

/* In the child. Returns only on failure. */
static void become_tuttid(const struct launch *l, const char *path, int in, int err) {
        char *argv[] = { (char *)"tuttid", (char *)"--socket", (char *)l->tuttid.socket, (char *)"--private",
                NULL };

        setpgid(0, 0);
        if (dup2(in, 0) < 0 || dup2(err, 1) < 0 || dup2(err, 2) < 0)
                return;
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
        execv(path, argv);
        dprintf(2, "cannot run %s: %s\n", path, strerror(errno));
}

static int spawn_tuttid(struct launch *l, const char *path) {
        int in[2], err[2];
        pid_t pid;

        if (pipe2(in, O_CLOEXEC) < 0)
                return -errno;
        if (pipe2(err, O_CLOEXEC) < 0) {
                close(in[0]);
                close(in[1]);
                return -errno;
        }
        pid = fork();
        if (pid == 0) {
                become_tuttid(l, path, in[0], err[1]);
                _exit(127);
        }
        close(in[0]);
        close(err[1]);
        l->tuttid.stdin_fd = in[1];
        if (pid < 0) {
                close(err[0]);
                return -errno;
        }
        l->tuttid.pid = pid;
        return stream_open(&l->tuttid.stream, err[0], &l->err, "tuttid | ");
}

/* Until it accepts a connection, ends, or 2 s have passed. */
static int wait_until_it_serves(struct launch *l, struct tutti **ret) {
        uint64_t give_up_ns = monotonic_ns() + START_NS;

        while (l->tuttid.pid && !l->last_signal) {
                if (access(l->socket, F_OK) == 0 && tutti_open(l->socket, ret) == TUTTI_OK)
                        return 0;
                if (monotonic_ns() > give_up_ns) {
                        launch_say(l, "tuttictl run: tuttid does not serve %s within 2 s.", l->socket);
                        return CTL_UNREACHABLE;
                }
                launch_turn(l, 2);
        }
        return l->last_signal ? 128 + l->last_signal : CTL_UNREACHABLE;
}

static uint32_t count_host_devices(const struct tutti_answer *a) {
        const struct tutti_row *row = NULL;
        uint32_t n = 0;

        while ((row = rows_next(a, TUTTI_ROW_DEVICE, row)))
                n += strncmp(row->device.name, "CPU:", 4) == 0;
        return n;
}

static void say_what_serves(struct launch *l, struct tutti *t) {
        struct tutti_answer *a;
        struct line devices = { 0 };
        uint32_t n;

        if (tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a) != TUTTI_OK) {
                launch_say(l, "tuttid: private, %s (%s)", l->socket, tutti_error());
                return;
        }
        n = count_host_devices(a);
        line_add_devices(&devices, a);
        launch_say(l, "tuttid: private, %s, %u host device%s %s", l->socket, n, n == 1 ? "" : "s", devices.s);
        tutti_answer_free(a);
}

int private_start(struct launch *l) {
        struct tutti *t = NULL;
        char path[4096];
        int r = find_tuttid(l, path, sizeof(path));

        if (r == 0)
                r = make_directory(l);
        if (r != 0)
                return r;
        memcpy(l->socket, l->tuttid.socket, sizeof(l->socket));
        r = spawn_tuttid(l, path);
        if (r < 0) {
                launch_say(l, "tuttictl run: cannot start %s: %s.", path, strerror(-r));
                return CTL_UNREACHABLE;
        }
        r = wait_until_it_serves(l, &t);
        if (r == 0)
                say_what_serves(l, t);
        tutti_close(t);
        return r;
}

/* Turns until it is over, or for STOP_NS. */
static void wait_until_it_ends(struct launch *l) {
        uint64_t give_up_ns = monotonic_ns() + STOP_NS;

        while (l->tuttid.pid && monotonic_ns() < give_up_ns)
                launch_turn(l, 100);
}

static void end_tuttid(struct launch *l) {
        static const int signals[] = { SIGTERM, SIGKILL };

        if (l->tuttid.stdin_fd >= 0)
                close(l->tuttid.stdin_fd);
        l->tuttid.stdin_fd = -1;
        wait_until_it_ends(l);
        for (size_t i = 0; i < sizeof(signals) / sizeof(*signals) && l->tuttid.pid; i++) {
                kill(l->tuttid.pid, signals[i]);
                wait_until_it_ends(l);
        }
}

void private_stop(struct launch *l) {
        end_tuttid(l);
        if (l->tuttid.directory_fd < 0)
                return;
        remove_directory(AT_FDCWD, l->tuttid.directory, l->tuttid.directory_fd);
        close(l->tuttid.directory_fd);
        l->tuttid.directory_fd = -1;
}
