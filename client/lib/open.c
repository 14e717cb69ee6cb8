#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "lib/arguments.h"
#include "lib/environment.h"
#include "lib/group.h"
#include "lib/object.h"
#include "lib/open.h"
#include "lib/order.h"
#include "lib/reconnect.h"
#include "lib/region.h"
#include "lib/work.h"

/* From Linux 6.5; Debian 12's headers lack it. */
#define TUTTI_SO_PEERPIDFD 77

/* A tuttid that does not take the connection, or does not answer, is none. */
#define CONNECT_SECONDS 10

/* --- connecting --- */

static void add_user(struct text *t) {
        char buf[1024];
        struct passwd entry, *found = NULL;
        if (getpwuid_r(geteuid(), &entry, buf, sizeof(buf), &found) == 0 && found)
                text_add(t, "%s", found->pw_name);
        else
                text_add(t, "uid %u", geteuid());
}

static void add_group(struct text *t, gid_t gid) {
        char buf[4096];
        struct group entry, *found = NULL;
        if (getgrgid_r(gid, &entry, buf, sizeof(buf), &found) == 0 && found)
                text_add(t, "%s", found->gr_name);
        else
                text_add(t, "gid %u", gid);
}

/* The first few: who is in very many groups knows them. */
static void add_own_groups(struct text *t) {
        gid_t gids[64];
        int n = getgroups(ARRAY_SIZE(gids), gids);
        add_group(t, getegid());
        for (int i = 0, n_said = 1; i < n && n_said < 8; i++)
                if (gids[i] != getegid()) {
                        text_add(t, ", ");
                        add_group(t, gids[i]);
                        n_said++;
                }
}

/* Nobody joins the group of root for this, and usermod knows users by name. */
static void add_remedy(struct text *t, gid_t gid) {
        char buf[1024];
        struct passwd entry, *found = NULL;
        if (gid == 0) {
                text_add(t, ". It is root's own: run as root, or have a tuttid whose socket is its users'");
                return;
        }
        if (getpwuid_r(geteuid(), &entry, buf, sizeof(buf), &found) != 0 || !found) {
                text_add(
                        t, ". A user without a name on this host cannot be put into it: run with that group");
                return;
        }
        text_add(t, ". Ask an administrator for `usermod -aG ");
        add_group(t, gid);
        text_add(t, " %s`, then log in again", found->pw_name);
}

static enum status say_permission(const char *path, struct error *err) {
        char buf[sizeof(err->detail)];
        struct text t;
        struct stat st;
        text_init(&t, buf, sizeof(buf));
        text_add(&t, "cannot reach %s: permission denied. ", path);
        if (stat(path, &st) == 0) {
                text_add(&t, "The socket belongs to group \"");
                add_group(&t, st.st_gid);
                text_add(&t, "\"; you (");
                add_user(&t);
                text_add(&t, ") are in: ");
                add_own_groups(&t);
                add_remedy(&t, st.st_gid);
        } else {
                text_add(&t, "A directory on the way is closed to you (");
                add_user(&t);
                text_add(&t, ")");
        }
        return refuse(err, STATUS_PERMISSION, FIELD_UNSPECIFIED, "%s", buf);
}

static enum status say_unreachable(const char *path, int e, struct error *err) {
        switch (e) {
        case EACCES:
        case EPERM: return say_permission(path, err);
        case ENOENT:
        case ENOTDIR:
                return refuse(err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED, "There is no socket at %s", path);
        case ECONNREFUSED:
                return refuse(err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED,
                        "Nobody listens at %s: tuttid is starting, or has ended without removing it", path);
        case EPROTOTYPE:
                return refuse(err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED,
                        "The socket at %s is not one of tuttid", path);
        case EAGAIN:
                return refuse(err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED,
                        "tuttid at %s has taken no connection for %d s", path, CONNECT_SECONDS);
        case EMFILE:
        case ENFILE:
                return refuse(err, STATUS_LIMIT, FIELD_DESCRIPTOR,
                        "no descriptor is left for a socket: %s. Raise RLIMIT_NOFILE", strerror(e));
        case ENOMEM:
        case ENOBUFS: return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "a socket could not be made");
        }
        return refuse(
                err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED, "Cannot connect to %s: %s", path, strerror(e));
}

/* `path` fits. Blocking, so that a full backlog is waited for, though not for ever. */
static int connect_to(const char *path, int *ret) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        const struct timeval limit = { .tv_sec = CONNECT_SECONDS };
        memcpy(address.sun_path, path, strlen(path) + 1);
        CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
                return -errno;
        while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                if (errno != EINTR)
                        return -errno;
        int r = fd_set_nonblock(fd);
        if (r < 0)
                return r;
        *ret = fd_take(&fd);
        return 0;
}

int open_connect_now(const char *path, int *ret) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        memcpy(address.sun_path, path, strlen(path) + 1);
        CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        *ret = fd_take(&fd);
        return 0;
}

static bool is_directory_owner(const char *path, uid_t uid) {
        char directory[MAX_SOCKET_PATH_BYTES + 3];
        struct stat st;
        memcpy(directory, path, strlen(path) + 1);
        char *slash = strrchr(directory, '/');
        if (!slash)
                strcpy(directory, ".");
        else
                slash[slash == directory] = '\0';
        return stat(directory, &st) == 0 && st.st_uid == uid;
}

/* Nobody else's server gets our memory. */
enum status open_check_server(int socket, const char *path, struct error *err) {
        struct ucred peer;
        socklen_t n = sizeof(peer);
        if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
                return refuse(err, STATUS_INTERNAL, FIELD_UNSPECIFIED, "SO_PEERCRED: %s", strerror(errno));
        if (peer.uid == 0 || peer.uid == geteuid() || is_directory_owner(path, peer.uid))
                return STATUS_OK;
        return refuse(err, STATUS_PERMISSION, FIELD_UNSPECIFIED,
                "the server at %s runs as uid %u, which is neither root, nor you, nor the owner of the "
                "directory: not trusted with your memory",
                path, peer.uid);
}

/* --- the greeting --- */

/* Where the kernel cannot give tuttid a pidfd of its peer, we send one. -1: it can, or there is none. */
static int own_pidfd_if_needed(int socket) {
        int pidfd = -1;
        socklen_t n = sizeof(pidfd);
        if (getsockopt(socket, SOL_SOCKET, TUTTI_SO_PEERPIDFD, &pidfd, &n) == 0) {
                fd_close(&pidfd);
                return -1;
        }
        return errno == ENOPROTOOPT ? (int)syscall(SYS_pidfd_open, getpid(), 0) : -1;
}

static enum status say_no_answer(enum status status, const struct call *call, struct error *err) {
        if (call->failure)
                *err = call->failure->error;
        else
                error_init(err, status);
        if (status != STATUS_DAEMON_LOST)
                return status;
        const char *why = call->failure ? call->failure->error.detail : "";
        return refuse(err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED,
                "The server closed the connection before it had answered%s%s", *why ? ". " : "", why);
}

int open_fill_hello(int socket, struct msg_hello *ret) {
        int pidfd = own_pidfd_if_needed(socket);
        const char *secret = secure_getenv("TUTTI_JOB_SECRET");
        *ret = (struct msg_hello){ .min_version = PROTOCOL_MIN,
                .max_version = PROTOCOL_MAX,
                .client = "libtutti " LIBTUTTI_VERSION,
                .process = program_invocation_short_name,
                .secret = secret ? secret : "",
                .n_descriptors = pidfd >= 0 };
        return pidfd;
}

static enum status greet(struct tutti *t, const char *path, double reconnect, struct error *err) {
        struct request request = { .type = REQUEST_HELLO };
        CLEANUP_FD int pidfd = open_fill_hello(t->socket, &request.hello);
        request.hello.may_be_handed_over = reconnect > 0;
        struct call call;
        call_init(&call, CALL_WELCOME);
        enum status status = send_request(t, &request, &call, pidfd, err);
        if (status != STATUS_OK)
                return status;
        pthread_mutex_lock(&t->lock);
        enum wait_end end = connection_wait(t, &call, deadline_in(CONNECT_SECONDS));
        call_drop(t, &call);
        pthread_mutex_unlock(&t->lock);
        if (end != WAIT_ENDED)
                return refuse(err, STATUS_NO_DAEMON, FIELD_UNSPECIFIED,
                        "tuttid at %s has not answered for %d s", path, CONNECT_SECONDS);
        status = call.status == STATUS_OK ? STATUS_OK : say_no_answer(call.status, &call, err);
        call_deinit(&call);
        return status;
}

static enum status find_path(const char *given, char ret[MAX_SOCKET_PATH_BYTES + 1], struct error *err) {
        if (!given) {
                /* Its list of places looked at is for others; the error says them too. */
                char places[4096 + 64];
                enum status status = environment_socket_path(places, sizeof(places), err);
                if (status == STATUS_OK)
                        memcpy(ret, places, strlen(places) + 1);
                return status;
        }
        enum status status = socket_path_check(given, err);
        if (status == STATUS_OK)
                memcpy(ret, given, strlen(given) + 1);
        return status;
}

static enum status open_path(const char *path, double reconnect, struct tutti **ret, struct error *err) {
        CLEANUP_FD int socket = -1;
        uint64_t yield_ns = WAITING_BUDGET_NS;
        bool wants_huge_pages = false;
        enum status status = environment_yield(&yield_ns, err);
        if (status == STATUS_OK)
                status = environment_huge_pages(&wants_huge_pages, err);
        if (status != STATUS_OK)
                return status;
        int r = connect_to(path, &socket);
        if (r < 0)
                return say_unreachable(path, -r, err);
        status = open_check_server(socket, path, err);
        struct tutti *t;
        if (status == STATUS_OK)
                status = connection_new(fd_take(&socket), &t, err);
        if (status != STATUS_OK)
                return status;
        const char *prepared = secure_getenv("TUTTI_PREPARED");
        waiting_init(&t->lane.waiting, yield_ns);
        t->wants_huge_pages = wants_huge_pages;
        t->halves.is_off = prepared && strcmp(prepared, "0") == 0;
        status = greet(t, path, reconnect, err);
        if (status == STATUS_OK) /* only now: a tuttid that ends before is none */
                status = reconnect_new(t, path, reconnect, err);
        if (status == STATUS_OK)
                *ret = t;
        else
                connection_free(t);
        return status;
}

/* What is not given is the environment's; less than 0 is none. */
static enum status find_reconnect(double given, double *ret, struct error *err) {
        *ret = given > 0 ? given : 0;
        if (given != given)
                return refuse(err, STATUS_INVALID, FIELD_TIMEOUT, "reconnect is in seconds, not NaN");
        return given == 0 ? environment_reconnect(ret, err) : STATUS_OK;
}

enum tutti_status tutti_open_with(const struct tutti_open_args *given, struct tutti **ret) {
        char path[MAX_SOCKET_PATH_BYTES + 1];
        struct tutti_open_args args;
        struct error err;
        double reconnect;
        if (!ret || !given || !arguments_copy(&ARGUMENTS(&args), given, given->struct_size))
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED,
                        "a place for the connection is needed, and arguments that begin with TUTTI_OPEN or "
                        "tutti_open_args_init");
        if (find_reconnect(args.reconnect, &reconnect, &err) != STATUS_OK ||
                find_path(args.socket_path, path, &err) != STATUS_OK ||
                open_path(path, reconnect, ret, &err) != STATUS_OK)
                return thread_fail(&err);
        return TUTTI_OK;
}

enum tutti_status tutti_open(const char *socket_path, struct tutti **ret) {
        return tutti_open_with(&TUTTI_OPEN(.socket_path = socket_path), ret);
}

/* --- closing --- */

static void free_all(struct tutti *t) {
        order_free(t);
        works_free(t);
        groups_free(t);
        buffers_free(t);
        regions_free(t);
        objects_free(t);
        connection_free(t);
}

/* The answers to the leaves are waited for, so that nothing is unread when the socket closes: tuttid would
 * read a reset then, and not what we said last. */
static void say_goodbye(struct tutti *t) {
        struct request request = { .type = REQUEST_GOODBYE };
        struct error err;
        list_for_each (it, &t->groups)
                group_leave_quietly(list_entry(it, struct tutti_group, node));
        if (send_has_room(t, QUIET_SECONDS))
                (void)!send_request(t, &request, NULL, -1, &err);
}

/* In a child, another thread of the parent may have been at work in these structures at the fork: then they
 * are left alone, and only the descriptors are closed. */
static void close_in_child(struct tutti *t) {
        if (pthread_mutex_trylock(&t->lock) == 0) {
                pthread_mutex_unlock(&t->lock);
                free_all(t);
                return;
        }
        fd_close(&t->epoll);
        fd_close(&t->event);
        fd_close(&t->news);
        fd_close(&t->socket);
}

void tutti_close(struct tutti *t) {
        if (!t)
                return;
        if (fork_guard_is_child(t->guard)) {
                close_in_child(t);
                return;
        }
        say_goodbye(t);
        free_all(t);
}

/* --- for an event loop --- */

enum tutti_status tutti_dispatch(struct tutti *t) {
        if (!t)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "the connection is NULL");
        if (fork_guard_is_child(t->guard))
                return thread_say_forked();
        pthread_mutex_lock(&t->lock);
        connection_dispatch(t);
        pthread_mutex_unlock(&t->lock);
        reconnect_go_on(t);
        regions_reap(t);
        return connection_check(t);
}
