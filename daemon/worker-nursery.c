#include "worker-nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "wire/channel.h"

#define WORKER_SOCKET 3
#define GOODBYE_MS    2000

struct nursery {
        int socket;
        pid_t pid;
};

enum errand { ERRAND_SPAWN, ERRAND_KILL };

struct order {
        enum errand errand;
        pid_t pid;
};

static void nursery_cleanup(struct nursery *n) {
        if (n->socket >= 0)
                close(n->socket);
        free(n);
}

DEFINE_CLEANUP(struct nursery, nursery_cleanup)

/* --- in the nursery --- */

static void close_from(unsigned int first) {
        if (syscall(SYS_close_range, first, ~0U, 0) < 0)
                for (unsigned int fd = first; fd < 65536; fd++)
                        close((int)fd);
}

/* In the child: becomes the worker. */
_Noreturn static void become_worker(const char *program, int socket, pid_t nursery) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != nursery)
                _exit(126); /* it went before the signal was set */
        if (dup2(socket, WORKER_SOCKET) < 0)
                _exit(126);
        fcntl(WORKER_SOCKET, F_SETFD, 0);
        close_from(WORKER_SOCKET + 1);
        setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1); /* GPU:k is the k of nvidia-smi */
        execl(program, "tuttid-gpu", "--socket=3", (char *)NULL);
        _exit(127);
}

static void tell(int socket, const struct nursery_news *news) {
        struct pollfd p = { .fd = socket, .events = POLLOUT };
        while (channel_send(socket, news, sizeof(*news), &news->socket, news->socket >= 0) == -EAGAIN)
                poll(&p, 1, -1);
}

static void spawn(int socket, const char *program) {
        struct nursery_news news = { .socket = -1 };
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
                news.error = errno;
                tell(socket, &news);
                return;
        }
        pid_t self = getpid(), pid = fork();
        if (pid == 0)
                become_worker(program, ends[1], self);
        if (pid < 0)
                news.error = errno;
        else
                news = (struct nursery_news){ .pid = pid, .socket = ends[0] };
        tell(socket, &news);
        close(ends[0]);
        close(ends[1]);
}

/* Only of what it has started and not yet buried: such a pid names nobody else. */
static void reap(int socket) {
        struct nursery_news news = { .has_ended = true, .socket = -1 };
        while ((news.pid = waitpid(-1, &news.status, WNOHANG)) > 0)
                tell(socket, &news);
}

static bool is_child(pid_t pid) {
        siginfo_t info;
        return pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* false: tuttid's end is closed. */
static bool obey(int socket, const char *program) {
        _Alignas(struct order) static uint8_t buf[MAX_PACKET_BYTES];
        struct packet packet;
        struct order order;
        int r = channel_receive(socket, buf, &packet);
        if (r == -EAGAIN)
                return true;
        if (r <= 0 || packet.n_bytes != sizeof(order))
                return false;
        memcpy(&order, buf, sizeof(order));
        if (order.errand == ERRAND_SPAWN)
                spawn(socket, program);
        else if (order.errand == ERRAND_KILL && is_child(order.pid))
                kill(order.pid, SIGKILL);
        packet_close_fds(&packet);
        return true;
}

/* The workers have seen their sockets close too, and have a second to give back what they have; then they are
 * killed with this process. */
_Noreturn static void say_goodbye(void) {
        for (int i = 0; i < 100 && waitpid(-1, NULL, WNOHANG) >= 0; i++)
                poll(NULL, 0, 10);
        _exit(0);
}

static void settle_down(void) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_NAME, "tuttid-nursery");
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGCHLD, SIG_DFL);
        int null = open("/dev/null", O_RDWR);
        if (null >= 0)
                dup2(null, STDIN_FILENO);
}

_Noreturn static void nursery_main(int tuttids, const char *program, pid_t tuttid) {
        sigset_t child;
        int socket = fcntl(tuttids, F_DUPFD_CLOEXEC, WORKER_SOCKET + 1);
        settle_down();
        if (socket < 0 || getppid() != tuttid || dup2(socket, WORKER_SOCKET) < 0)
                _exit(1);
        socket = WORKER_SOCKET;
        fcntl(socket, F_SETFD, FD_CLOEXEC);
        close_from(WORKER_SOCKET + 1);
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child, NULL);
        int children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
        if (children < 0)
                _exit(1);
        struct pollfd p[2] = { { .fd = socket, .events = POLLIN }, { .fd = children, .events = POLLIN } };
        for (;;) {
                struct signalfd_siginfo info;
                if (poll(p, 2, -1) < 0)
                        continue;
                while (read(children, &info, sizeof(info)) > 0)
                        ;
                reap(socket);
                if (p[0].revents && !obey(socket, program))
                        say_goodbye();
        }
}

/* --- in tuttid --- */

int nursery_new(struct nursery **ret, const char *program) {
        CLEANUP(nursery_cleanupp) struct nursery *n = calloc(1, sizeof(*n));
        int ends[2];
        if (!n)
                return -ENOMEM;
        n->socket = -1;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
                return -errno;
        n->socket = ends[0];
        pid_t tuttid = getpid();
        n->pid = fork();
        if (n->pid == 0)
                nursery_main(ends[1], program, tuttid);
        int r = n->pid < 0 ? -errno : 0;
        close(ends[1]);
        if (r < 0)
                return r;
        *ret = take_pointer(n);
        return 0;
}

void nursery_dismiss(struct nursery *n) {
        shutdown(n->socket, SHUT_WR);
}

void nursery_free(struct nursery *n) {
        if (!n)
                return;
        uint8_t last_words[sizeof(struct nursery_news)];
        struct pollfd p = { .fd = n->socket, .events = POLLIN };
        nursery_dismiss(n);
        while (poll(&p, 1, GOODBYE_MS) > 0 &&
                recv(n->socket, last_words, sizeof(last_words), MSG_DONTWAIT) > 0)
                ;
        waitpid(n->pid, NULL, WNOHANG); /* denied to who is confined: then it is init's to bury */
        fd_close(&n->socket);
        free(n);
}

int nursery_socket(const struct nursery *n) {
        return n->socket;
}

static int nursery_order(struct nursery *n, const struct order *order) {
        return channel_send(n->socket, order, sizeof(*order), NULL, 0);
}

int nursery_spawn(struct nursery *n) {
        return nursery_order(n, &(struct order){ .errand = ERRAND_SPAWN });
}

void nursery_kill(struct nursery *n, pid_t pid) {
        int r = nursery_order(n, &(struct order){ .errand = ERRAND_KILL, .pid = pid });
        (void)r; /* then it has ended itself, and its children with it */
}

int nursery_take(struct nursery *n, struct nursery_news *ret) {
        _Alignas(struct nursery_news) uint8_t buf[MAX_PACKET_BYTES];
        struct packet packet;
        int r = channel_receive(n->socket, buf, &packet);
        if (r > 0 && packet.n_bytes != sizeof(*ret))
                r = -EPROTO;
        if (r > 0) {
                memcpy(ret, buf, sizeof(*ret));
                ret->socket = packet.n_fds ? fd_take(&packet.fds[0]) : -1;
        }
        packet_close_fds(&packet);
        return r;
}
