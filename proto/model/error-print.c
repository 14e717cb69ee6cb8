/* The sentences of each status. The first line says what happened and to whom, the next ones what holds now
 * and what to do. */
#include "model/error-words.h"

#include <inttypes.h>
#include <string.h>

/* --- refusals: this call cannot be done --- */

static void print_refusal(const struct error *e, const char *advice, struct text *t) {
        say_complaint(e, t);
        say_end(e, advice, t);
}

static void print_limit(const struct error *e, struct text *t) {
        say_complaint(e, t);
        if (e->limit)
                text_add(t, " %" PRIu64 " asked, at most %" PRIu64 ".", e->used, e->limit);
        say_end(e,
                e->field == FIELD_DESCRIPTOR ? "Close descriptors, or raise the limit of open files."
                                             : "This limit is the same for everybody: ask for less.",
                t);
}

static void print_quota(const struct error *e, struct text *t) {
        say_plain(t, e->detail[0] ? e->detail : "a quota");
        text_add(t, ": this user has %" PRIu64 " of %" PRIu64 ".", e->used, e->limit);
        say_end(e, "Give some back, or ask whoever runs this host for a higher limit.", t);
}

static void print_busy(const struct error *e, struct text *t) {
        say_complaint(e, t);
        for (uint32_t i = 0; i < e->n_replicas && i < MAX_ERROR_REPLICAS; i++) {
                text_add(t, " In the way: ");
                say_report(&e->replicas[i], t);
                text_add(t, ".");
        }
        if (e->has_key && e->field == FIELD_DESTINATIONS) { /* no slot of a result object is free */
                say_end(e,
                        "Release results before you submit: hold none but the latest, one less than there "
                        "are "
                        "slots.",
                        t);
                return;
        }
        text_add(t, "\n%s",
                e->has_key ? "Wait until it has ended; it goes on unharmed."
                           : "End what is in the way, or wait until it has ended, and try again.");
}

static void print_already_pending(const struct error *e, struct text *t) {
        if (e->rank >= 0)
                text_add(t, "R%" PRId32, e->rank);
        else
                text_add(t, "this replica");
        if (!error_is_of_collective(e)) { /* a call that forms the group anew */
                text_add(t, " ");
                say_plain(t, e->detail);
                text_add(t, ".\nThat call goes on unharmed: its answer is the one to wait for.");
                return;
        }
        text_add(t, " has already submitted this key");
        say_ago(e, t);
        text_add(t, ", and that use has not ended.");
        say_more_detail(e, t);
        text_add(t,
                "\nThe first submission goes on unharmed. Wait for it before you use the key again, or use "
                "another key.");
}

/* --- the meeting failed --- */

static void print_mismatch(const struct error *e, struct text *t) {
        if (e->n_classes) {
                say_difference(e, t);
                say_more_detail(e, t);
        } else
                say_complaint(e, t);
        say_end(e,
                error_is_of_collective(e) ? ""
                : e->n_classes            ? "The group is as it was: all call the same, and none alone."
                                          : "Only this join was refused: ask for what the others asked for.",
                t);
        for (uint32_t i = 0; i < e->n_replicas && i < MAX_ERROR_REPLICAS; i++)
                if (e->replicas[i].pid)
                        text_add(t, " R%" PRIu32 " is pid %" PRIu32 " (uid %" PRIu32 ").",
                                e->replicas[i].rank, e->replicas[i].pid, e->replicas[i].uid);
}

static void print_timeout(const struct error *e, struct text *t) {
        if (e->rank >= 0)
                text_add(t, "R%" PRId32 " waited ", e->rank);
        else
                text_add(t, "this wait took ");
        text_add_duration(t, e->age_ns);
        text_add(t, ", its limit. ");
        say_presence(e, t);
        say_known_difference(e, t);
        say_more_detail(e, t);
        if (error_is_of_collective(e))
                say_end(e, "Who comes to this use of the key from now on gets EXPIRED.", t);
        else if (e->detail[0])
                text_add(t,
                        "\nThe group is as it was, and the others wait on: start who is missing, and call "
                        "again.");
        else
                text_add(t, "\nStart the missing replicas, or allow a longer join timeout.");
}

static const char *loss_verb(enum loss loss) {
        switch (loss) {
        case LOSS_DIED: return "ended";
        case LOSS_DISCONNECTED: return "closed its connection";
        case LOSS_EJECTED: return "was ejected by tuttid";
        case LOSS_WENT: return "left the group";
        case LOSS_UNSPECIFIED: break;
        }
        return "was lost";
}

/* "R2 (pid 4711, uid 1000) ended 4 ms ago; it last finished \"grad/7\" 10 ms ago." */
static void say_loss(const struct error *e, struct text *t) {
        int64_t rank = e->rank;
        if (rank < 0 && e->n_replicas)
                rank = e->replicas[0].rank;
        const struct replica_report *r = error_find_report(e, rank);
        say_replica(e, rank, t);
        text_add(t, "%s %s", r || e->status == STATUS_EXPIRED ? "" : " (pid and uid not known)",
                loss_verb(e->loss));
        if (e->status != STATUS_EXPIRED) /* there the age is that of the collective's end */
                say_ago(e, t);
        if (r && r->has_last) {
                text_add(t, "; it ");
                say_last(r, t);
        } else if (r)
                text_add(t, "; it had finished nothing");
        text_add(t, ".");
        say_more_detail(e, t);
}

/* Nobody needs to have been lost: the submission counted in an epoch that is over. */
static void print_old_epoch(const struct error *e, struct text *t) {
        say_plain(t, e->detail);
        text_add(t,
                ".\nThe buffers are unchanged. Submit it again, in the new epoch, where it is still wanted.");
}

static void print_replica_lost(const struct error *e, struct text *t) {
        if (e->loss == LOSS_UNSPECIFIED && e->rank < 0 && e->detail[0]) {
                print_old_epoch(e, t);
                return;
        }
        say_loss(e, t);
        say_known_difference(e, t);
        if (!error_is_of_collective(e)) {
                text_add(t,
                        "\nNothing goes on in this group until it is formed anew: join again, all together.");
                return;
        }
        text_add(t, "\n");
        if (!rankset_is_empty(&e->have)) {
                rankset_print(&e->have, t);
                text_add(t, " got this error. ");
        }
        text_add(t, "%s",
                e->outputs_undefined
                        ? "It had begun: its outputs are undefined, fill them anew before you use them."
                        : "The buffers are unchanged.");
        text_add(t,
                "\nWith on_death=fail the group takes nothing more until it is formed anew, by tutti_rejoin "
                "together with a newcomer or by tutti_shrink without; with on_death=shrink it goes on "
                "without the lost.");
}

static void say_abort(const struct error *e, struct text *t) {
        say_replica(e, e->rank, t);
        text_add(t, " gave it up");
        if (e->detail[0]) {
                text_add(t, ": ");
                text_add_quoted(t, e->detail, strnlen(e->detail, sizeof(e->detail)));
        }
        text_add(t, ".");
}

static void print_aborted(const struct error *e, struct text *t) {
        say_abort(e, t);
        say_known_difference(e, t);
        say_end(e, "", t);
}

/* "the half of R1 (pid 12, uid 1000) was refused with UNSUPPORTED: dtype of entry 3: c64 is not done." */
static void say_refused_half(const struct error *e, enum status with, struct text *t) {
        text_add(t, "the half of ");
        say_replica(e, e->rank, t);
        text_add(t, " was refused");
        if (with != STATUS_OK)
                text_add(t, " with %s", status_name(with));
        text_add(t, ": ");
        say_complaint(e, t);
}

static void print_peer_refused(const struct error *e, struct text *t) {
        say_refused_half(e, e->cause, t);
        say_known_difference(e, t);
        say_end(e, "The refused call is the one to correct.", t);
}

static void say_old_wait(const struct error *e, struct text *t) {
        if (e->rank >= 0)
                text_add(t, "R%" PRId32, e->rank);
        else
                text_add(t, "Somebody");
        text_add(t, " had waited as long as its limit allows");
        if (!rankset_is_empty(&e->missing)) {
                text_add(t, ", for ");
                say_missing(e, t);
        }
        text_add(t, ".");
        say_more_detail(e, t);
}

/* Why a collective had ended, from the old error that EXPIRED carries on. */
static void say_old_reason(const struct error *e, struct text *t) {
        if (e->cause == STATUS_TIMEOUT)
                say_old_wait(e, t);
        else if (e->cause == STATUS_REPLICA_LOST)
                say_loss(e, t);
        else if (e->cause == STATUS_ABORTED)
                say_abort(e, t);
        else if (e->cause == STATUS_MISMATCH)
                say_difference(e, t);
        else if (e->cause == STATUS_PEER_REFUSED)
                say_refused_half(e, STATUS_OK, t);
        else
                say_complaint(e, t);
}

static void print_expired(const struct error *e, struct text *t) {
        text_add(t, "this half came too late: the collective had ended with %s", status_name(e->cause));
        say_ago(e, t);
        text_add(t, ".\n");
        say_old_reason(e, t);
        text_add(t,
                "\nThis submission joined nothing, and its buffers are unchanged. The key is free: its next "
                "use is a new collective.");
}

/* --- the connection, the daemon, the machine --- */

static void print_output_lost(const struct error *e, struct text *t) {
        text_add(t, "%s",
                e->field == FIELD_SHAPE
                        ? "it was done, but what its result is, tuttid has not told to the end."
                        : "it was begun in place, and is not known to have been done when tuttid ended.");
        say_more_detail(e, t);
        text_add(t,
                "\nIts outputs hold neither the old nor the new values: fill them anew before you submit it "
                "again.");
}

static void print_left(const struct error *e, struct text *t) {
        if (e->rank >= 0)
                text_add(t, "the membership of R%" PRId32 " has ended by leave.", e->rank);
        else
                text_add(t, "this membership has ended by leave.");
        say_more_detail(e, t);
        text_add(t, "\nJoin a group again to take part.");
}

/* A sentence of its own, the detail, and what to do. */
static void print_plain(const struct error *e, const char *sentence, const char *advice, struct text *t) {
        text_add(t, "%s", sentence);
        say_more_detail(e, t);
        text_add(t, "\n%s", advice);
}

static void print_device_lost(const struct error *e, struct text *t) {
        text_add(t, "the device that was to do it is lost.");
        say_more_detail(e, t);
        say_end(e, "Use another device until tuttid has tested it again.", t);
}

static void print_internal(const struct error *e, struct text *t) {
        text_add(t, "tutti has made a mistake of its own, not you.");
        say_more_detail(e, t);
        say_end(e, "Please report it, together with tuttid's log.", t);
}

static void print_story(const struct error *e, struct text *t) {
        switch (e->status) {
        case STATUS_OK: text_add(t, "done."); return;
        case STATUS_PENDING:
                print_plain(e, "not ended yet.", "Nothing has changed: wait or test again.", t);
                return;
        case STATUS_INVALID: print_refusal(e, "Correct the call and make it again.", t); return;
        case STATUS_UNSUPPORTED: print_refusal(e, "Ask for something that this version does.", t); return;
        case STATUS_MISMATCH: print_mismatch(e, t); return;
        case STATUS_ALREADY_PENDING: print_already_pending(e, t); return;
        case STATUS_TIMEOUT: print_timeout(e, t); return;
        case STATUS_EXPIRED: print_expired(e, t); return;
        case STATUS_ABORTED: print_aborted(e, t); return;
        case STATUS_CANCELLED:
                print_plain(e, "this process ended its wait.",
                        "The half stays submitted and its buffers stay in use until the collective ends.", t);
                return;
        case STATUS_PEER_REFUSED: print_peer_refused(e, t); return;
        case STATUS_REPLICA_LOST: print_replica_lost(e, t); return;
        case STATUS_LEFT: print_left(e, t); return;
        case STATUS_OUTPUT_LOST: print_output_lost(e, t); return;
        case STATUS_QUOTA: print_quota(e, t); return;
        case STATUS_LIMIT: print_limit(e, t); return;
        case STATUS_PERMISSION: print_refusal(e, "Ask whoever runs this host for access.", t); return;
        case STATUS_VERSION:
                print_plain(e, "this library and this tuttid have no protocol version in common.",
                        "Upgrade the older of the two.", t);
                return;
        case STATUS_BAD_FD:
                print_refusal(e,
                        "Use memory from tutti_buffer_alloc, or a memfd opened for reading and writing that "
                        "carries no write seal.",
                        t);
                return;
        case STATUS_NOT_FOUND:
                print_refusal(e, "It has ended, or it was never there: check the name.", t);
                return;
        case STATUS_NO_MEMORY:
                text_add(t, "memory is short.");
                say_more_detail(e, t);
                say_end(e, "Give some back or ask for less, and try again.", t);
                return;
        case STATUS_BUSY: print_busy(e, t); return;
        case STATUS_FORKED:
                print_plain(e, "this handle was inherited over fork.",
                        "A child may only close it: open a connection of its own after fork.", t);
                return;
        case STATUS_NO_DAEMON:
                print_plain(e, "no tuttid answers.",
                        "Start tuttid, point TUTTI_SOCKET to its socket, or run under `tuttictl run "
                        "--private`.",
                        t);
                return;
        case STATUS_DAEMON_LOST:
                print_plain(e, "tuttid has ended, or has closed this connection.",
                        "Your memory stays mapped and yours. Open a new connection and join again.", t);
                return;
        case STATUS_DRAINING:
                if (e->field == FIELD_GROUP) {
                        print_plain(e, "tuttid is drained and takes no new groups.",
                                "Join again when the people who run this host have undone that (`tuttictl "
                                "drain --undo`), or elsewhere.",
                                t);
                        return;
                }
                print_plain(e, "tuttid is being stopped and takes nothing new.",
                        "What was submitted before still runs. Connect again when tuttid is back.", t);
                return;
        case STATUS_DEVICE_LOST: print_device_lost(e, t); return;
        case STATUS_INTERNAL:
        case N_STATUS: break;
        }
        print_internal(e, t);
}

void error_print(const struct error *e, char *buf, size_t size) {
        struct text t;
        text_init(&t, buf, size);
        say_head(e, &t);
        print_story(e, &t);
}
