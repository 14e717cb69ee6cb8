/* What the files of the conductor share: conductor.c (the turn and the corridor), conductor-requests.c (one
 * packet), conductor-submit.c (halves), conductor-results.c (result objects), conductor-signals.c (signal
 * pages), conductor-devices.c (GPUs), conductor-collective.c (from sealed to told), conductor-queries.c
 * (answers), conductor-rows.c (what is in them), conductor-control.c (what people do), conductor-prepared.c
 * (halves that are kept), conductor-lane.c (what runs without a packet), conductor-lane-session.c (for whom),
 * conductor-ended.c (what ended unsealed), conductor-fallbacks.c (what was not done as was wished),
 * conductor-handover.c (connections from one tuttid to the next). */
#pragma once

#include "base/arena.h"
#include "base/turns.h"
#include "conductor.h"
#include "session-page.h"
#include "wire/codec.h"

#define PACKETS_A_TURN 16
/* Work is counted in entries looked at, of which a thousand take a fraction of a millisecond. */
#define PACKET_WORK    16   /* of a packet, beside its entries; of looking at a session at all */
#define REPLY_WORK     8    /* of an answer; twice as much with an error */
#define LOOKS_A_WORK   8    /* meetings that are walked through in the time of an entry */
#define END_WORK       64   /* of the end of a session */
#define ROW_WORK       4    /* of a row of an answer, for which files in /proc may be read */
#define ACCEPTS_A_TURN 4    /* where no more wait than a turn can serve; else 1, or they would pile up */
#define READY_A_TURN   32   /* TURN_WORK / PACKET_WORK */
#define SLICE_ENTRIES  256  /* of one half or collective at a time */
#define PLAN_WORK      1024 /* planner_work: what is more is planned elsewhere */
#define SESSION_WORK   256  /* after which other users have their turn */
#define TURN_WORK      512  /* after which the loop looks for news */
#define MAX_TASKS      64   /* kept to be used again */
#define TASK_BYTES     (256u << 10) /* with plans of this size at most */
#define RUN_WORK       2            /* of what the lane has run, beside its halves */
#define RUNS_A_TURN    32           /* at a time */
#define ROWS_A_TURN    32           /* of all answers together: some 60 us */
#define ROWS_A_MS      64           /* in the long run */
#define ROWS_AT_ONCE   256          /* after some silence: an answer of so many is not held up */

/* Of a connection from the tuttid before: a client may have as many submissions unfinished as its status page
 * has slots, and begin them all without reading. */
#define MAX_DROPPED (4u * STATUS_PAGE_SLOTS)

#define MAX_REPLAYED       64 /* ranks of a collective whose plan is kept */
#define MAX_REPLAYED_BYTES (4u << 20)

/* On which GPUs the values of a sealed collective are, and what these can do just now. */
struct homes {
        uint32_t of[MAX_WORLD];
        struct topology topology;
};

/* A collective of many entries, made into a plan on a thread of the engine. It has a planner of its own,
 * whose scratch memory goes with it. */
struct planning {
        struct chore chore;
        struct meeting *meeting;
        struct planner *planner;
        struct problem problem;
        enum status status;
        struct error error;
        uint32_t ranks[MAX_WORLD];
        const struct entry *entries[MAX_WORLD];
        double weights[MAX_WORLD];
        struct homes homes;
};

/* Memory that is given back on a thread of the engine, since a hundred megabytes of it take milliseconds; it
 * stays charged until then. Either a half or a task. */
struct burial {
        struct chore chore;
        struct half *half;
        struct task *task;
        struct charge charge;
};

struct conductor {
        struct house house;
        uint64_t started_ns, now_ns; /* now: of this turn */
        bool is_draining, is_over;   /* draining: it is being stopped; over: all sessions are ended */
        char drained_by[64];         /* it takes no new groups, by whose wish; "": it does */
        uint64_t drained_ns;
        struct outcome outcome;
        struct list chores;  /* to be given to the engine */
        struct list ejected; /* struct session.eject_link: to be ended when the outcome is settled */
        struct list tasks;   /* free ones, and how many */
        uint32_t n_tasks;
        struct list queries;           /* struct query.link: answers that can go on */
        uint32_t n_rows_left;          /* that this turn may still write for them */
        uint32_t n_rows_saved;         /* that may be written before answers have to wait, as of rows_ns */
        uint64_t rows_ns, answered_ns; /* answered: when rows were last written, or began to be due */
        bool has_worked;               /* this turn: on a submission, or on what the engine has done */
        uint64_t work;                 /* of this turn */
        bool is_more_done;             /* by the engine than this turn has looked at */
        struct turns ended;            /* struct meeting.outcome_link: unsealed, and nobody is told yet */
        struct turns over;             /* struct group.outcome_link: their records are to be closed */
        uint32_t n_closed;             /* members whose records this turn has closed */
        uint64_t told_work;            /* of this turn, for these: beside `work` */
        struct list returning;         /* struct meeting.outcome_link: told, and not given back yet */
        struct list dropped;       /* struct half.pool_link: of no meeting any more, and not given back yet */
        struct prepared *prepared; /* kept halves, by session and number */
        struct list forgotten;     /* struct prepared.link: in no use, and not given back yet */
        uint64_t last_prepared, n_started, n_replayed;
        struct road *roads;       /* by group */
        uint64_t n_on_lane;       /* collectives that were run there */
        bool has_packet;          /* it is settled what came before one: no road is opened */
        uint64_t n_assisted;      /* of them, by several threads */
        struct lane_run lane_run; /* at hand */
        uint32_t n_running;       /* planned or run elsewhere */
        struct arena request_arena, scratch;
        uint8_t in[MAX_PACKET_BYTES], out[MAX_PACKET_BYTES];
        struct error error;        /* of the request at hand */
        uint32_t ranks[MAX_WORLD]; /* of the problem at hand */
        const struct entry *entries[MAX_WORLD];
        double weights[MAX_WORLD];
        uint64_t extents[MAX_PART_EXTENTS], firsts[MAX_PART_EXTENTS]; /* of the reply at hand */
        struct homes homes;
};

/* Handles one packet of a session; takes of its descriptors what it needs. */
void conductor_handle_packet(struct conductor *c, struct session *s, struct packet *packet);
/* Descriptors that nobody took: closed on a thread of their own, since that can block. Who sends more of them
 * than its user may have is ejected. */
void conductor_close_strangers(struct conductor *c, struct session *s, struct packet *packet);
/* A part of a submission, or one that is kept: to rendezvous when it is whole. */
void conductor_handle_submit(struct conductor *c, struct session *s, const struct request *r);
/* held_ns: for how long it was on the lane before. */
void conductor_handle_start(
        struct conductor *c, struct session *s, const struct request *r, uint64_t held_ns);
/* Goes on with a submission that waited for imports. */
void conductor_handle_held(struct conductor *c, struct session *s);
/* Gives back what up to *n of a half's entries hold, from the last one on; *n counts down. */
void conductor_return_entries(struct conductor *c, struct half *half, uint32_t *n);
/* ... of all of them, and the half to its pool: what is left after a slice, with conductor_give_back. */
void conductor_drop_half(struct conductor *c, struct half *half);
/* Up to *n entries of the halves that were dropped; *n counts down. */
void conductor_give_back_dropped(struct conductor *c, uint32_t *n);

/* Answers. A session that is gone is no error; one that reads nothing is ejected. */
void conductor_reply(struct conductor *c, struct session *s, const struct reply *reply);
/* false: it is too long for a packet, and was not sent. */
bool conductor_reply_if_it_fits(struct conductor *c, struct session *s, const struct reply *reply) MUST_USE;
void conductor_reply_fd(struct conductor *c, struct session *s, const struct reply *reply, int fd);
void conductor_reply_status(struct conductor *c, struct session *s, uint64_t request, enum status status,
        const struct error *err);
/* Begins an answer: a session is not read until it is complete. */
void conductor_query(struct conductor *c, struct session *s, uint64_t request, const struct msg_query *ask);
/* How many rows this turn may write. Answers as a whole have a share of the loop's time, and for a
 * millisecond they wait for a turn that has nothing else to do: so who asks for long ones again and again
 * waits, and not who works (docs/observability.md). */
void conductor_allow_rows(struct conductor *c);
/* When answers under way go on: now, or when they have a share again; ALARM_NEVER: there are none. */
uint64_t conductor_answers_next_ns(const struct conductor *c);
/* Writes a turn's share of the answers under way. Whether one was completed, and its session is to be read
 * again. */
bool conductor_go_on_answering(struct conductor *c);
/* The session has taken all that was sent. */
void conductor_reader_is_back(struct conductor *c, struct session *s);
/* The session ends; harmless where nothing was asked. */
void conductor_drop_query(struct session *s);

/* What the people who run the host ask for. OK, PERMISSION, NOT_FOUND, INVALID, UNSUPPORTED; c->error says
 * why. */
enum status conductor_control(struct conductor *c, struct session *s, const struct msg_control *ask);
/* An admin, or of the user that tuttid runs as: may drain it. */
bool conductor_may_control(const struct session *s);

/* Ends a session. */
void conductor_end_session(struct conductor *c, struct session *s, enum loss loss, const char *why);
/* The same, and its socket is the caller's. */
int conductor_end_without_socket(struct conductor *c, struct session *s, enum loss loss, const char *why);
/* Closes a socket that is no session's (any more). With it closes what the client has sent and nobody has
 * read, which can block: then the closer does it. */
void conductor_close_socket(struct conductor *c, uint64_t session, uint32_t uid, int socket);
/* The same, and ends the connection though others may have the socket too. */
void conductor_hang_up(struct conductor *c, uint64_t session, uint32_t uid, int socket);
/* Sessions have come or gone. */
void conductor_note_users(struct conductor *c);
/* Until nothing follows from anything any more. */
void conductor_settle(struct conductor *c);

/* LIMIT: it is tuttid that is short of them. */
enum status conductor_refuse_no_descriptor(struct error *err);
/* Ends the session at the end of this turn with one last error packet. */
void conductor_eject(struct conductor *c, struct session *s, enum status status, const char *format, ...)
        PRINTF_LIKE(4, 5);

/* --- result objects (conductor-results.c) --- */

void conductor_make_result(struct conductor *c, struct session *s, const struct request *r);
enum status conductor_release_result(
        struct conductor *c, struct session *s, const struct msg_release_result *ask);
/* Tells whoever waited for an object. */
void conductor_answer_results(struct conductor *c);
/* An output of an entry names a result object: keeps it for this half, of which it must be the only one. */
enum status conductor_use_result(struct conductor *c, struct half *half, const struct entry *e,
        struct place *output, const struct half_view *v);
/* Where a sealed collective is made, if it goes to an object; UNSUPPORTED where that cannot be. */
enum status conductor_go_to_object(struct conductor *c, const struct meeting *m, struct problem *problem);
/* The slot that it is written to, and where that begins; BUSY when none is free. */
enum status conductor_take_slot(struct conductor *c, struct meeting *m, uint64_t *ret_offset_bytes);
/* Whether a half that comes again may go there: in host memory, by a member that is attached. True where it
 * goes to none. */
bool conductor_may_go_to_object(const struct half *half);
/* Of a half that goes to an object; NULL: its member gives slots back by packets. */
struct slot_user *conductor_slot_user(const struct half *half);
/* The collective has ended: with OK its contributors hold the slot. */
void conductor_end_slot(struct conductor *c, struct meeting *m);

/* As the configuration has them now: it may be read again at any time. */
struct plan_rules conductor_rules(const struct conductor *c);
void conductor_set_rules(const struct conductor *c, struct planner *planner);

/* A collective has ended with OK by a plan that has a fallback: counted, and the first of its kind logged
 * (conductor-fallbacks.c). */
void conductor_note_fallback(struct conductor *c, const struct meeting *m, const struct plan *plan);

/* Kept in a pool, or freed. */
void conductor_put_task(struct conductor *c, struct task *t);

/* --- halves that are kept (conductor-prepared.c) --- */

/* ENDED: keeps the half of this rank, if it asks for that and may be kept; its is_kept says whether. */
void conductor_keep_half(struct conductor *c, struct meeting *m, uint32_t rank);
/* A half that was started has ended; harmless with others. */
void conductor_end_prepared(struct conductor *c, struct half *half);
enum status conductor_unprepare(struct conductor *c, struct session *s, uint64_t number);
void conductor_unprepare_all(struct conductor *c, struct session *s);
/* Gives up to *n entries of forgotten ones back, and counts down. Whether there are more. */
bool conductor_return_prepared(struct conductor *c, uint32_t *n);
/* How many are kept. */
uint32_t conductor_n_prepared(const struct conductor *c);
/* What a Start asks for, to be submitted; where nothing is kept under its number, to be refused with
 * c->error. NULL: memory is short. */
struct half *conductor_new_start(
        struct conductor *c, const struct session *s, const struct request *r, bool *ret_is_known);
enum status conductor_check_start(struct conductor *c, const struct half *half);
/* Forgets what goes to this object, or to any (0), by this membership. */
void conductor_unprepare_results(
        struct conductor *c, struct session *s, uint64_t membership, uint64_t result);
/* The task of an earlier collective of the very same kept halves, with its plan, for conductor_replay; NULL:
 * there is none. */
struct task *conductor_find_plan(const struct conductor *c, const struct meeting *m);
/* It runs again, into this slot. */
void conductor_replay(struct conductor *c, struct meeting *m, uint64_t slot_offset_bytes);
/* ENDED and told: keeps its task for the next one, if it may be kept; m->task is NULL then. */
void conductor_put_plan(struct conductor *c, struct meeting *m);

/* Carries out what rendezvous has decided. Sessions that are ejected by it stay until the end of the turn. */
void conductor_settle_outcome(struct conductor *c);
/* Behind conductor_leave_lane: what was started before this packet was there before it. */
void conductor_settle_before_packet(struct conductor *c);

/* --- the lane (conductor-lane.c) --- */

void conductor_open_lane(struct conductor *c, struct session *s, const struct request *r);
/* The client of this session sleeps on what it has started there. */
void conductor_handle_ring(struct conductor *c, struct session *s, const struct request *r);
/* Before anything that rendezvous hears of this session: closes the roads of its groups, and hands over what
 * was started on them. Harmless without a lane. */
void conductor_leave_lane(struct conductor *c, struct session *s);
/* The same, for good: who is in these groups changes. */
void conductor_forget_roads(struct conductor *c, struct session *s);
/* The same for all groups. */
void conductor_forget_all_roads(struct conductor *c);
/* A collective of the group has ended by rendezvous: the lane takes over, where it may. */
void conductor_offer_road(struct conductor *c, struct group *g);
/* Takes up to n of what has run; LANE_MAX_RUNS: all that had. Whether there was anything. */
bool conductor_pull_lane(struct conductor *c, uint32_t n);
/* Between these two who holds which slots may be looked at, also of groups that are on the lane. */
void conductor_pause_lanes(struct conductor *c);
void conductor_lanes_go_on(struct conductor *c);
/* What has happened there since the start; nothing where there is none. */
struct lanes_stats conductor_lane_stats(const struct conductor *c);
/* Behind conductor_forget_roads: the session goes. */
void conductor_end_lane(struct conductor *c, struct session *s);

/* --- GPUs (conductor-devices.c) --- */

/* Fills in where the memory lies that *ask registers, and how it is reached; or `refused` of *ask, which is
 * kept in *ret_refused. */
void conductor_find_device(struct conductor *c, struct buffer_ask *ask, struct error *ret_refused);
/* Of what is made on this device (its number). */
uint64_t conductor_granularity(const struct conductor *c, uint32_t device);
/* An import of device memory has ended well. */
void conductor_reply_registered(struct conductor *c, struct session *s, const struct buffer_news *news);
/* To whoever does it: the engine, or the GPU process. */
void conductor_do(struct conductor *c, struct chore *chore);
/* A chore came back from the GPU process: false where the engine has to do the rest. */
bool conductor_chore_is_over(const struct chore *chore);
/* Gives a sealed collective to the GPU process. */
void conductor_launch(struct conductor *c, struct meeting *m, struct task *t);
/* A run on a GPU has failed: c->error tells. Its status for all. */
enum status conductor_explain_failure(struct conductor *c, const struct meeting *m, const struct task *t);
/* Where the values of a sealed collective are, and who reaches them: nothing where no GPU has to do with it.
 */
void conductor_locate(
        const struct conductor *c, const struct meeting *m, struct homes *homes, struct problem *ret);
/* The same where homes->of is filled in, and ret->device is the first GPU among them. */
void conductor_reach(const struct conductor *c, struct homes *homes, struct problem *ret);
/* Which order of streams can be had just now. */
void conductor_offer_signals(struct conductor *c);

/* --- signal pages (conductor-signals.c) --- */

void conductor_open_signals(struct conductor *c, struct session *s, const struct request *r);
/* A chore of a page has ended. */
void conductor_signals_done(struct conductor *c, struct chore *chore);
/* Whose stream may wait for the result now is told so. */
void conductor_launched(struct conductor *c, const struct task *t);
/* Every entry is leased: where the half brings a signal, keeps the page for it. */
enum status conductor_use_signal(struct conductor *c, struct half *half);
/* Gives the page back; harmless where there is none. */
void conductor_end_signal(struct conductor *c, struct half *half);
/* The half is told of an end that its stream has not heard of from the worker. */
void conductor_say_done(struct conductor *c, const struct half *half);

/* Where an end has more lengths to tell than a packet holds: they are told by and by, and conductor_told
 * follows. false: they are few. */
bool conductor_tell_in_parts(struct conductor *c, struct meeting *m) MUST_USE;
/* A share of what has ended unsealed, and of long ends, once that much in a turn. */
void conductor_tell_ended(struct conductor *c);
/* Whether there is more of it. */
bool conductor_has_ended(const struct conductor *c);
/* Of groups that are over, as many as this turn has room for. */
void conductor_close_records(struct conductor *c);
/* A new epoch has begun: its members are told so, behind what has ended before it. */
void conductor_tell_formed(struct conductor *c, struct group *g);
/* The group is over: what is to be told of it later goes into its record. conductor-rows.c */
void conductor_end_record(struct conductor *c, const struct group *g);
void conductor_formed(struct conductor *c, struct group *g);
/* Fills in what only the host knows of the replicas in an error: alive, stopped, dead. */
void conductor_probe(struct conductor *c, const struct group *g, uint32_t n, struct replica_report *reports);

/* What the member of this half is told of an OK. */
struct msg_done conductor_describe_done(const struct meeting *m, const struct half *half);
/* The end of one half, to its session. */
void conductor_tell_half(struct conductor *c, const struct meeting *m, uint32_t index, int rank);
/* All its members have heard all: begins to give it back. */
void conductor_told(struct conductor *c, struct meeting *m);
/* PAGE_FAILED for all, before any reply. */
void conductor_fail_pages(struct conductor *c, const struct meeting *m);
/* Memory failed under a run: whose it was goes, the others learn that their outputs may be half written.
 * c->error tells. */
void conductor_blame(struct conductor *c, const struct meeting *m, const struct task *t);

/* SEALED: made into a plan, and given to the engine unless there is nothing to do. */
void conductor_run(struct conductor *c, struct meeting *m);
/* A task came back from the engine: its collective ends. */
void conductor_task_done(struct conductor *c, struct task *t);
/* ENDED: tells every member, keeps the record, begins to give everything back. */
void conductor_finish(struct conductor *c, struct meeting *m);
/* Gives up to `n` entries of the halves that were dropped and of the collectives that are told back. */
void conductor_give_back(struct conductor *c, uint32_t n);
/* Hands to the engine what rendezvous leaves to be freed. */
void conductor_bury_halves(struct conductor *c);
/* A CHORE_THINK came back from the engine: a planning or a burial. */
void conductor_thought(struct conductor *c, struct chore *chore);
