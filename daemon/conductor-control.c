/* What the people who run the host do: drain, kick, the level of the log. */
#include "conductor-internal.h"

#include <string.h>
#include <unistd.h>
#include "base/log.h"

#define KICK_WHY_BYTES 96 /* a member keeps no more */

bool conductor_may_control(const struct session *s) {
        return s->viewer.is_admin || s->uid == geteuid();
}

static enum status refuse_who_may_not(const struct session *s, const char *what, struct error *err) {
        return error_set(err, STATUS_PERMISSION, FIELD_UNSPECIFIED,
                "uid %u may not %s; admins (daemon.admins) and the user that tuttid runs as may", s->uid,
                what);
}

/* --- draining --- */

static enum status control_drain(struct conductor *c, const struct session *s, struct error *err) {
        if (!conductor_may_control(s))
                return refuse_who_may_not(s, "drain tuttid", err);
        if (c->drained_by[0])
                return STATUS_OK;
        struct text t;
        text_init(&t, c->drained_by, sizeof(c->drained_by));
        text_add(&t, "uid %u (pid %u)", s->uid, s->pid);
        c->drained_ns = c->now_ns;
        log_notice("drained by %s: no new groups; %u that are there go on", c->drained_by,
                rendezvous_n_groups(c->house.rendezvous));
        rendezvous_end_forming(c->house.rendezvous, c->now_ns, &c->outcome);
        return STATUS_OK;
}

static enum status control_undrain(struct conductor *c, const struct session *s, struct error *err) {
        if (!conductor_may_control(s))
                return refuse_who_may_not(s, "end that tuttid is drained", err);
        if (c->drained_by[0])
                log_notice("uid %u (pid %u) ends the draining: new groups are taken again", s->uid, s->pid);
        c->drained_by[0] = '\0';
        return STATUS_OK;
}

/* --- kicking --- */

static const struct group *find_seen(
        const struct conductor *c, const struct viewer *viewer, const struct msg_control *ask) {
        const struct rendezvous *r = c->house.rendezvous;
        for (const struct group *g = rendezvous_next_group(r, NULL); g; g = rendezvous_next_group(r, g))
                if (viewer_sees(viewer, g->uid, g->secret) && strcmp(g->job, ask->job) == 0 &&
                        strcmp(g->name, ask->group) == 0)
                        return g;
        return NULL;
}

/* Whoever hears of it is of the group's user: an admin of another uid is named, since that is no user's
 * secret, but not his process. */
static void describe_kick(const struct session *s, const struct group *g, const char *why, struct text *t) {
        text_add(t, "kicked by uid %u", s->uid);
        if (s->uid != g->uid)
                text_add(t, " (an admin)");
        else
                text_add(t, " (pid %u)", s->pid);
        if (why[0] != '\0')
                text_add(t, ": %s", why);
}

static enum status control_kick(
        struct conductor *c, const struct session *s, const struct msg_control *ask, struct error *err) {
        struct viewer viewer = s->viewer;
        viewer.uid = ask->has_user ? ask->user : s->uid;
        viewer.sees_all = viewer.is_admin; /* who merely observes acts as if it did not */
        if (viewer.uid != s->uid && !viewer.is_admin)
                return error_set(err, STATUS_PERMISSION, FIELD_UNSPECIFIED,
                        "uid %u kicks within its own groups alone; who may elsewhere stands in daemon.admins",
                        s->uid);
        const struct group *g = find_seen(c, &viewer, ask);
        if (!g)
                return error_set(err, STATUS_NOT_FOUND, FIELD_GROUP,
                        "no group \"%s/%s\" of %s; `tuttictl groups` lists them", ask->job, ask->group,
                        ask->has_user ? "that user" : "yours");
        const struct member *m = ask->rank < g->world_size ? &g->members[ask->rank] : NULL;
        struct session *guilty = m && (m->state == MEMBER_ALIVE || m->state == MEMBER_JOINING)
                                         ? session_find(c->house.sessions, m->session)
                                         : NULL;
        if (!guilty)
                return error_set(err, STATUS_NOT_FOUND, FIELD_RANK,
                        "nobody is R%u of \"%s/%s\"; `tuttictl groups` tells who is there", ask->rank,
                        ask->job, ask->group);
        char why[KICK_WHY_BYTES];
        struct text t;
        text_init(&t, why, sizeof(why));
        describe_kick(s, g, ask->text, &t);
        conductor_eject(c, guilty, STATUS_REPLICA_LOST, "%s", why);
        return STATUS_OK;
}

/* --- the log --- */

static enum status control_log_level(
        const struct session *s, const struct msg_control *ask, struct error *err) {
        enum log_level level, before = log_level();
        if (!conductor_may_control(s))
                return refuse_who_may_not(s, "change what tuttid logs", err);
        if (log_level_parse(ask->text, &level) < 0)
                return error_set(err, STATUS_INVALID, FIELD_UNSPECIFIED,
                        "\"%s\" is no level; there are error, warning, notice, info and debug", ask->text);
        log_set_level(level > before ? level : before); /* so that it is said, whichever is quieter */
        if (level != before)
                log_notice("uid %u (pid %u) changes the level of this log from %s to %s", s->uid, s->pid,
                        log_level_name(before), log_level_name(level));
        log_set_level(level);
        return STATUS_OK;
}

enum status conductor_control(struct conductor *c, struct session *s, const struct msg_control *ask) {
        struct error *err = &c->error;
        error_init(err, STATUS_OK);
        switch (ask->verb) {
        case VERB_DRAIN: return control_drain(c, s, err);
        case VERB_UNDRAIN: return control_undrain(c, s, err);
        case VERB_KICK: return control_kick(c, s, ask, err);
        case VERB_LOG_LEVEL: return control_log_level(s, ask, err);
        case VERB_UNSPECIFIED: break;
        }
        return error_set(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                "tuttid %s does not know what is to be done; drain, undrain, kick and log-level are what it "
                "does",
                TUTTI_VERSION);
}
