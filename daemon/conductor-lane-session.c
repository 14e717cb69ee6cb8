/* The lane of one session: asked for, rung, ended. */
#include "conductor-lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"

static enum status refuse_lane(struct conductor *c, int r) {
        enum status status = r == -EMFILE || r == -ENFILE ? STATUS_LIMIT : STATUS_NO_MEMORY;
        return error_set(&c->error, status, FIELD_UNSPECIFIED, "its lane cannot be made: %s", strerror(-r));
}

/* Its bell; the page of its slot is charged by itself. */
static enum status charge_lane(struct conductor *c, const struct session *s, struct lane_answer *a) {
        enum status status =
                quota_charge(c->house.quotas, &a->descriptor, s->uid, QUOTA_DESCRIPTORS, 1, &c->error);
        if (status == STATUS_OK)
                status = quota_charge(
                        c->house.quotas, &a->memory, s->uid, QUOTA_MEMORY_BYTES, sizeof(*a), &c->error);
        return status;
}

static void answer_free(struct lane_answer *a) {
        charge_release(&a->descriptor);
        charge_release(&a->memory);
        free(a);
}

static enum status make_lane(struct conductor *c, struct session *s, int *ret_slot, int *ret_bell) {
        const struct loan_ask ask = {
                .uid = s->uid, .access = LOAN_WRITE, .name = "tutti-lane", .n_bytes = LANE_PAGE_BYTES
        };
        struct loan *slot = NULL;
        struct lane_answer *a = calloc(1, sizeof(*a));
        if (!a)
                return refuse_lane(c, -ENOMEM);
        enum status status = charge_lane(c, s, a);
        if (status == STATUS_OK)
                status = loan_make(c->house.loans, &ask, &slot, ret_slot, &c->error);
        if (status == STATUS_OK) {
                const struct lane_ask lane = { .session = s->id, .page = session_page(s), .slot = slot };
                int r = lane_new(c->house.lanes, &lane, &s->lane, ret_bell);
                if (r < 0)
                        status = refuse_lane(c, r);
                else
                        results_set_words(c->house.results, s->id, lane_words(s->lane));
        }
        loan_unref(slot); /* it is the lane's */
        if (status != STATUS_OK)
                answer_free(a);
        else
                s->on_lane = a;
        return status;
}

void conductor_open_lane(struct conductor *c, struct session *s, const struct request *r) {
        CLEANUP_FD int slot = -1;
        CLEANUP_FD int bell = -1;
        enum status status;
        error_init(&c->error, STATUS_OK);
        if (!c->house.lanes)
                status = error_set(
                        &c->error, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED, "this tuttid has no lane");
        else if (s->lane)
                status = error_set(&c->error, STATUS_BUSY, FIELD_UNSPECIFIED, "this connection has its lane");
        else
                status = make_lane(c, s, &slot, &bell);
        if (status != STATUS_OK) {
                conductor_reply_status(c, s, r->request, status, &c->error);
                return;
        }
        struct reply reply = { .request = r->request,
                .status = STATUS_OK,
                .more = true,
                .type = REPLY_LANE,
                .lane = { .n_descriptors = 1, .n_slots = 1 } };
        conductor_reply_fd(c, s, &reply, slot);
        reply.more = false;
        conductor_reply_fd(c, s, &reply, bell);
}

void conductor_handle_ring(struct conductor *c, struct session *s, const struct request *r) {
        struct lane_answer *a = s->on_lane;
        if (a && a->passed == r->request) /* it is answered as all Starts are */
                return;
        if (a && a->ran == r->request) {
                a->ran = 0;
                const struct reply reply = {
                        .request = r->request, .status = STATUS_OK, .type = REPLY_DONE, .done = a->done
                };
                conductor_reply(c, s, &reply);
                return;
        }
        if (a && a->n_running > 0) {
                a->wanted = r->request;
                return;
        }
        error_init(&c->error, STATUS_OK);
        enum status status = error_set(&c->error, STATUS_INVALID, FIELD_UNSPECIFIED,
                "no request %llu was started in the lane of this connection", (unsigned long long)r->request);
        conductor_reply_status(c, s, r->request, status, &c->error);
}

void conductor_end_lane(struct conductor *c, struct session *s) {
        if (!s->lane)
                return;
        lane_free(c->house.lanes, s->lane);
        answer_free(s->on_lane);
        s->lane = NULL;
        s->on_lane = NULL;
}
