/* What the files of this room share: worker.c (the life of the process), worker-memory.c (what it has, and
 * shall have), worker-send.c (what is on its way there), worker-take.c (what it says). */
#pragma once

#include "base/clock.h"
#include "base/table.h"
#include "worker-protocol.h"
#include "worker.h"

#define WORKER_QUEUE_NS   (5 * NS_PER_S)    /* how long work waits for a new process */
#define WORKER_ASK_NS     (1 * NS_PER_S)    /* of silence, after which it is asked */
#define WORKER_HANG_NS    (3 * NS_PER_S)    /* of silence, after which it is killed */
#define WORKER_START_NS   (60 * NS_PER_S)   /* for the driver to start, and the self-test */
#define WORKER_TEST_NS    (3 * NS_PER_S)    /* for each device and path of that */
#define WORKER_STEADY_NS  (10 * NS_PER_S)   /* a process that has served for so long is a good one */
#define WORKER_BURY_NS    (1 * NS_PER_S)    /* for one that was killed to be gone */
#define WORKER_PAUSE_NS   (100 * NS_PER_MS) /* before the second attempt; doubled with each */
#define WORKER_MAX_PAUSES 5                 /* 1.6 s */
#define WORKER_MAX_STARTS 8                 /* in a row that never served: then it is off */
#define WORKER_NS_PER_GIB                                                                                    \
        (1 * NS_PER_S)    /* pinning host memory is slow, and takes the process's one thread                 \
                           */
#define WORKER_PACKETS 64 /* of one turn */
#define WORKER_NEVER   UINT64_MAX

enum worker_state { WORKER_IS_OFF, WORKER_WAITING, WORKER_STARTING, WORKER_TESTING, WORKER_SERVING };

/* Memory that the process has or shall have, by its number: in the outbox, among the unanswered, or in no
 * list. */
struct held {
        struct list link;
        uint64_t number;
        struct memory
                *memory;     /* device memory: ours until its chore took it back; host memory: the engine's */
        struct chore *chore; /* IMPORT or RELEASE that waits for the answer */
        bool is_host;        /* not made here */
        bool is_sent;        /* IMPORT, to this process; then RELEASE: */
        bool is_leaving, is_release_sent;
        bool was_there;     /* in this process or one before */
        bool is_bad;        /* it is not tried again */
        bool has_failed;    /* host memory: a plan that names this number is refused, and the next one that
                               begins gives it another */
        uint32_t n_answers; /* awaited */
        int fd;             /* borrowed: it lives as long as the memory */
        enum access access;
        enum memory_path path;
        uint32_t device;
        uint64_t session, buffer, n_bytes;
        uint64_t handle_offset_bytes;
        uint8_t handle[MEMORY_HANDLE_BYTES];
        UT_hash_handle hh;
};

/* A task that the process has, by its ticket. */
struct seat {
        struct task *task; /* NULL: free */
        uint32_t use;      /* a ticket names one use of it */
};

struct workers {
        struct doorbell bell;
        struct nursery *nursery;
        uv_poll_t news;
        int events;   /* an epoll of the nursery's socket and the process's: a uv_poll_t is bound to one
                         descriptor */
        bool is_rung; /* there may be something to read */
        bool has_news, is_stopped, takes_ipc, awaits_room, is_shared;
        enum log_level log_level;
        enum confine confine;
        uint64_t hang_limit_ns;
        uint64_t culprit; /* the ticket of the run that broke the process; 0: none is known */
        enum worker_state state;
        char why[WORKER_TEXT_BYTES];
        int socket;
        pid_t pid, last_pid; /* pid 0: it has ended */
        uint64_t now_ns;     /* of the last turn */
        uint64_t at_ns;      /* when this state was entered */
        uint64_t start_ns;   /* WAITING: when it is started */
        uint64_t lost_ns;    /* since when nobody serves; WORKER_NEVER: somebody does */
        uint64_t heard_ns;   /* the last sign of life, or when one was first needed */
        uint64_t eof_ns;     /* since when its socket is closed; WORKER_NEVER: it is not */
        bool is_busy;        /* heard_ns counts */
        bool is_asked;       /* for a sign of life */
        bool is_burying;     /* the last one has not ended yet */
        bool needs_settings, needs_ping;
        uint32_t n_fails, n_restarts; /* fails: starts in a row that came to nothing */
        bool has_served;
        /* what there is */
        struct gpu_device devices[MAX_GPU_DEVICES];
        uint32_t n_devices;
        struct engine_device_stats stats[MAX_GPU_DEVICES];
        struct gpu_fallback fallbacks[MAX_GPU_FALLBACKS];
        uint32_t n_fallbacks;
        /* what it has */
        struct held *helds;
        uint64_t last_number;
        uint32_t n_failed;              /* helds that have */
        uint64_t pinned_bytes;          /* of host memory that is on its way in */
        struct list outbox, unanswered; /* struct held */
        struct list queue;              /* struct task: not sent, or not all of it */
        struct worker_cursor cursor;    /* of the first */
        uint32_t n_imported;            /* operands of the first whose memory is known there */
        struct seat *seats;
        uint32_t n_seats, n_running;
        struct list launched_tasks, done_tasks, done_chores;
        uint32_t n_open;
        union worker_packet *in, *out;
        size_t n_out_bytes; /* of a packet that the socket did not take; 0: none */
        bool is_last_part;  /* it is the last of the first task's */
        int out_fd;         /* that goes with it */
};

/* --- worker.c --- */

/* It cannot go on with this process: what it had is lost, and another is started. */
void workers_lose(struct workers *w, const char *format, ...) PRINTF_LIKE(2, 3);
/* For good: nothing is gained by another one. */
void workers_give_up(struct workers *w, const char *why);
/* Its socket is closed: how it ended, the nursery will say. */
void workers_await_end(struct workers *w);
/* Something has been heard or begun. */
void workers_note_life(struct workers *w);
void workers_enter(struct workers *w, enum worker_state state);
/* Watches its socket for room as well. */
void workers_await_room(struct workers *w, uint32_t events);
/* Something is under way there, so that it must give signs of life. */
bool workers_is_busy(const struct workers *w);

/* --- worker-memory.c --- */

struct held *workers_find_held(const struct workers *w, uint64_t number);
/* Host memory of a plan that begins: known by a number from now on. false: memory is short. */
bool workers_hold(struct workers *w, struct memory *m);
void workers_answer(struct workers *w, const struct worker_chore_done *answer, int *fd);
/* The process is gone, or there has been none for too long. */
void workers_lose_memory(struct workers *w);
void workers_refuse_memory(struct workers *w);
void workers_finish_chore(struct workers *w, struct chore *c, enum status status, const char *why);
uint64_t held_pinned_bytes(const struct held *h);
void held_fill_import(const struct held *h, struct worker_import *ret, int *ret_fd);

/* --- worker-send.c --- */

/* As much as the socket takes. */
void workers_flush(struct workers *w);
void workers_finish_task(struct workers *w, struct task *t, enum status status, const char *why);
/* All that it had; all that waits. */
void workers_lose_tasks(struct workers *w, const char *why);
void workers_refuse_tasks(struct workers *w, const char *why);
bool workers_is_out(const struct task *t);
struct task *workers_take_seat(struct workers *w, uint64_t ticket);
struct task *workers_find_seat(struct workers *w, uint64_t ticket);

/* --- worker-take.c --- */

/* Reads up to WORKER_PACKETS; whether there may be more. */
bool workers_read(struct workers *w);
