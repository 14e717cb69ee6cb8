/* `tuttictl run`: starts N replicas of a program and is answerable for them until the last one has ended.
 *
 *   parse -> tuttid (private or found) -> start replicas -> turns of poll() until all have ended -> sweep up
 *
 * Each replica leads a process group. What is left of its group is killed when it ends; what escaped from its
 * group is adopted (the launcher is a subreaper) and killed at the end. Should the launcher itself be killed,
 * the kernel kills the replicas (PR_SET_PDEATHSIG), and a private tuttid sees its pipe close.
 * Single-threaded. */
#pragma once

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "run-output.h"

/* AUTO: with more than one replica, rank 0 speaks as if it had been started by hand, the others with a
 * prefix. ALL: everybody with a prefix. NONE: everybody has the launcher's own output. */
enum prefix { PREFIX_AUTO, PREFIX_ALL, PREFIX_NONE };

struct run_options {
        uint32_t n;
        const char *job, *socket; /* NULL: not given */
        enum prefix prefix;
        bool is_private;
        uint64_t grace_ns; /* between TERM and KILL */
        char **program;    /* argv of the replicas */
};

struct replica {
        pid_t pid; /* 0: not started */
        bool is_over;
        int wait_status;
};

/* A tuttid of this launcher's own. */
struct private_tuttid {
        char directory[108], socket[108]; /* "": none */
        int directory_fd;                 /* holds the lock that tells others that we live */
        int stdin_fd;                     /* tuttid ends when it closes */
        pid_t pid;                        /* 0: not started, or over */
        int wait_status;
        struct stream stream; /* its stderr */
};

#define LAUNCH_MORE_POLLS 4 /* tuttid's stderr, signals, both sinks */

struct launch {
        const struct run_options *options;
        char socket[108], job[64];
        struct replica *replicas;
        uint32_t n_started, n_alive;
        struct stream *streams; /* two a replica, -1 where none */
        uint32_t n_streams;
        struct pollfd *polls; /* [n_streams + LAUNCH_MORE_POLLS] */
        struct sink out, err;
        struct private_tuttid tuttid;
        int signal_fd;
        sigset_t old_mask;
        int last_signal;     /* the last one that was passed on; 0: none */
        uint64_t told_ns;    /* when the last one came that means an end; 0: none */
        bool is_ending;      /* the others were told to end */
        uint64_t kill_at_ns; /* 0: no KILL is due */
        int exit_code;       /* of the first replica that failed */
};

/* run-loop.c: one turn: waits for at most timeout_ms (-1: no limit), forwards output, signals and ends. */
void launch_turn(struct launch *l, int timeout_ms);
/* Reads what is left in the streams and closes them, and puts out all that is kept: as long as that takes,
 * but for a second when the launcher has been told to end. */
void launch_finish(struct launch *l);
uint64_t monotonic_ns(void);

/* run-replicas.c */
/* Starts all. 0 or, reported, the exit code. */
int replicas_start(struct launch *l);
/* To the process group of everybody who is still there. */
void replicas_signal(struct launch *l, int signal);
/* TERM now, KILL after the grace. */
void replicas_end(struct launch *l);
/* Takes note of every child that has ended. */
void replicas_reap(struct launch *l);
/* Kills and reaps what replicas left behind, for five seconds at most, and names what stays; a signal to end
 * ends it sooner. Only after the last one has ended. */
void replicas_sweep(struct launch *l);
/* "exit code 3", "signal 9 (SIGKILL)". */
void describe_end(char *buf, size_t size, int wait_status);

/* run-private.c */
/* Starts a tuttid and waits until it serves; l->socket is its socket. 0 or, reported, the exit code. */
int private_start(struct launch *l);
/* Ends it and removes its directory. */
void private_stop(struct launch *l);

/* A line of the launcher's own, on stderr. */
void launch_say(struct launch *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
