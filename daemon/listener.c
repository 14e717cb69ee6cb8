#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/heap.h"

#define BACKLOG     1024
#define SOCKET_MODE 0660
#define SHUT_NS     (20 * NS_PER_MS)

/* When descriptors have run out: for a guest, and for the look at what it brings. */
#define N_SPARES 2

struct listener {
        struct doorbell bell;
        char path[MAX_SOCKET_PATH + 1];
        int socket, lock, spares[N_SPARES];
        uv_poll_t poll;
        bool is_watching, is_bound, is_kept_alive;
        bool is_rung;        /* somebody may wait to be let in */
        uint64_t open_at_ns; /* the door is shut until then at least; 0: it is open */
};

static int why_errno(char *why, size_t why_bytes, const char *what, const char *path) {
        int r = -errno;
        snprintf(why, why_bytes, "%s %s: %s", what, path, strerror(-r));
        return r;
}

static void lock_path(const char *path, char *buf, size_t size) {
        size_t n = strlen(path);
        if (n > 5 && strcmp(path + n - 5, ".sock") == 0)
                n -= 5;
        snprintf(buf, size, "%.*s.lock", (int)n, path);
}

static long lock_holder(int fd) {
        char buf[32] = "";
        ssize_t n = pread(fd, buf, sizeof(buf) - 1, 0);
        return n > 0 ? strtol(buf, NULL, 10) : 0;
}

/* The lock is taken before anything at the path is looked at, so two starts cannot remove each other's
 * socket. */
static int listener_lock(struct listener *l, char *why, size_t why_bytes) {
        char path[MAX_SOCKET_PATH + 8], pid[32];
        lock_path(l->path, path, sizeof(path));
        /* For nobody else to open: whoever can may hold it, and keep tuttid from starting. */
        l->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (l->lock < 0 || fchmod(l->lock, 0600) < 0)
                return why_errno(why, why_bytes, "cannot open the lock", path);
        if (flock(l->lock, LOCK_EX | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK)
                        return why_errno(why, why_bytes, "cannot lock", path);
                snprintf(why, why_bytes,
                        "already running, pid %ld: another tuttid serves %s; stop it, or choose another "
                        "--socket",
                        lock_holder(l->lock), l->path);
                return -EALREADY;
        }
        int n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
        if (ftruncate(l->lock, 0) < 0 || pwrite(l->lock, pid, (size_t)n, 0) < 0)
                return why_errno(why, why_bytes, "cannot write the lock", path);
        return 0;
}

static int listener_clear_path(const struct listener *l, char *why, size_t why_bytes) {
        struct stat st;
        if (lstat(l->path, &st) < 0)
                return errno == ENOENT ? 0 : why_errno(why, why_bytes, "cannot look at", l->path);
        if (!S_ISSOCK(st.st_mode)) {
                snprintf(why, why_bytes,
                        "%s is there and is not a socket; it was left alone. Move it away, or choose another "
                        "--socket",
                        l->path);
                return -EEXIST;
        }
        return unlink(l->path) < 0 ? why_errno(why, why_bytes, "cannot remove the old socket", l->path) : 0;
}

static int listener_give_to_group(const struct listener *l, const char *group, char *why, size_t why_bytes) {
        if (group[0] == '\0')
                return 0;
        const struct group *g = getgrnam(group);
        if (!g) {
                snprintf(why, why_bytes,
                        "there is no group \"%s\" on this host; create it (groupadd %s), or choose another "
                        "--group",
                        group, group);
                return -EINVAL;
        }
        return chown(l->path, (uid_t)-1, g->gr_gid) < 0
                       ? why_errno(why, why_bytes, "cannot give to the group", l->path)
                       : 0;
}

static int listener_bind(struct listener *l, const char *group, char *why, size_t why_bytes) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        memcpy(address.sun_path, l->path, strlen(l->path) + 1);
        l->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (l->socket < 0)
                return why_errno(why, why_bytes, "cannot make a socket for", l->path);
        mode_t mask = umask(0777 & ~SOCKET_MODE);
        int r = bind(l->socket, (const struct sockaddr *)&address, sizeof(address)) < 0
                        ? why_errno(why, why_bytes, "cannot bind", l->path)
                        : 0;
        umask(mask);
        if (r < 0)
                return r;
        l->is_bound = true;
        r = listener_give_to_group(l, group, why, why_bytes);
        if (r < 0)
                return r;
        return listen(l->socket, BACKLOG) < 0 ? why_errno(why, why_bytes, "cannot listen at", l->path) : 0;
}

static void listener_on_poll(uv_poll_t *handle, int status, int events) {
        struct listener *l = handle->data;
        l->is_rung = true;
        doorbell_ring(&l->bell);
}

static int listener_watch(struct listener *l, uv_loop_t *loop) {
        int r = uv_poll_init(loop, &l->poll, l->socket);
        if (r < 0)
                return r;
        l->poll.data = l;
        l->is_watching = true;
        return uv_poll_start(&l->poll, UV_READABLE, listener_on_poll);
}

/* One that was passed on is bound, listens, and has its mode and group from whoever made it. */
static int listener_make_socket(struct listener *l, const char *group, char *why, size_t why_bytes) {
        if (l->socket >= 0)
                return 0;
        int r = listener_clear_path(l, why, why_bytes);
        return r < 0 ? r : listener_bind(l, group, why, why_bytes);
}

static bool listener_fill_spares(struct listener *l) {
        bool has_all = true;
        for (int i = 0; i < N_SPARES; i++) {
                if (l->spares[i] < 0)
                        l->spares[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                has_all &= l->spares[i] >= 0;
        }
        return has_all;
}

static void listener_close_spares(struct listener *l) {
        for (int i = 0; i < N_SPARES; i++)
                fd_close(&l->spares[i]);
}

static int listener_set_up(
        struct listener *l, uv_loop_t *loop, const struct config *config, char *why, size_t why_bytes) {
        size_t n = strlen(config->socket);
        if (n > MAX_SOCKET_PATH) {
                snprintf(why, why_bytes, "the socket path has %zu bytes, the limit is %d: %s", n,
                        MAX_SOCKET_PATH, config->socket);
                return -ENAMETOOLONG;
        }
        memcpy(l->path, config->socket, n + 1);
        (void)listener_fill_spares(l); /* again when somebody comes */
        int r = listener_lock(l, why, why_bytes);
        if (r == 0)
                r = listener_make_socket(l, config->socket_group, why, why_bytes);
        if (r == 0 && (r = listener_watch(l, loop)) < 0)
                snprintf(why, why_bytes, "cannot watch %s: %s", l->path, strerror(-r));
        return r;
}

int listener_new(struct listener **ret, uv_loop_t *loop, const struct listener_setting *setting, char *why,
        size_t why_bytes) {
        CLEANUP_FD int passed_on = setting->passed_on;
        struct listener *l = calloc(1, sizeof(*l));
        if (!l) {
                snprintf(why, why_bytes, "short of memory");
                return -ENOMEM;
        }
        l->bell = setting->bell;
        l->is_kept_alive = setting->is_kept_alive;
        l->lock = -1;
        for (int i = 0; i < N_SPARES; i++)
                l->spares[i] = -1;
        l->socket = fd_take(&passed_on);
        int r = listener_set_up(l, loop, setting->config, why, why_bytes);
        if (r < 0) {
                listener_close(l);
                uv_run(loop, UV_RUN_NOWAIT);
                listener_free(l);
                return r;
        }
        *ret = l;
        return 0;
}

int listener_socket(const struct listener *l) {
        return l->socket;
}

/* --- guests --- */

/* The door would ring on, and nobody could be let in or sent away. */
static void listener_shut(struct listener *l, uint64_t now_ns) {
        l->is_rung = false;
        l->open_at_ns = now_ns + SHUT_NS;
        uv_poll_stop(&l->poll);
}

int listener_accept(struct listener *l, uint64_t now_ns) {
        if (!l->is_watching || !l->is_rung)
                return -EAGAIN;
        if (!listener_fill_spares(l)) {
                listener_shut(l, now_ns);
                return -EAGAIN;
        }
        int fd = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
                return fd;
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                return -EMFILE;
        l->is_rung = false; /* nobody is left */
        return -EAGAIN;
}

int listener_accept_by_spare(struct listener *l, uint64_t now_ns) {
        listener_close_spares(l);
        int fd = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
                return fd;
        listener_shut(l, now_ns); /* for memory, or another thread was faster; or the guest has gone */
        return -EAGAIN;
}

uint64_t listener_next_ns(const struct listener *l) {
        return l->is_watching && l->open_at_ns ? l->open_at_ns : ALARM_NEVER;
}

void listener_expire(struct listener *l, uint64_t now_ns) {
        if (listener_next_ns(l) > now_ns)
                return;
        l->open_at_ns = now_ns + SHUT_NS;
        if (listener_fill_spares(l) && uv_poll_start(&l->poll, UV_READABLE, listener_on_poll) == 0)
                l->open_at_ns = 0;
}

void listener_close(struct listener *l) {
        if (l->is_watching) {
                l->is_watching = false;
                uv_close((uv_handle_t *)&l->poll, NULL);
        }
        if (l->is_bound) {
                l->is_bound = false;
                if (!l->is_kept_alive)
                        unlink(l->path);
        }
}

void listener_free(struct listener *l) {
        if (!l)
                return;
        fd_close(&l->socket);
        fd_close(&l->lock);
        listener_close_spares(l);
        free(l);
}
