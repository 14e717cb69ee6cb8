/* What a group and its works know, and how they come back to a new tuttid (reconnect.h). */
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "lib/group.h"
#include "lib/half.h"
#include "lib/open.h"
#include "lib/reconnect.h"
#include "lib/region.h"
#include "lib/work.h"
#include "wire/codec.h"

/* In one packet: with keys at their longest they fit. */
#define PART_REPORTS 256

/* --- the old page --- */

static void end_with(struct tutti *t, struct call *call, enum status status, const char *why) {
        struct error e;
        refuse(&e, status, FIELD_UNSPECIFIED, "%s", why);
        call_end(t, call, status, failure_new(&e));
}

/* Of a reply that has not come nothing is known but that it was OK. */
static void end_done(struct tutti *t, struct tutti_work *w) {
        const struct tutti_group *g = w->kept.group;
        w->done = (struct msg_done){ .collective = w->kept.collective, .op = w->kept.submit.signature.op };
        if (g) {
                w->done.contributors = g->members;
                w->done.n_contributors = rankset_count(&g->members);
        }
        call_end(t, &w->call, STATUS_OK, NULL);
}

static enum status status_of_page(uint32_t word) {
        return word < N_STATUS && word != STATUS_OK ? (enum status)word : STATUS_INTERNAL;
}

/* A slot that is the request's, or nothing. */
static void look_at_page(const struct tutti *t, const struct call *call, struct kept *k) {
        const struct page_slot *slot = t->page ? &t->page[call->request % STATUS_PAGE_SLOTS] : NULL;
        if (!slot || atomic_load(&slot->request) != call->request)
                return;
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == PAGE_FREE || state > PAGE_FAILED)
                return;
        k->state = (enum page_state)state;
        k->collective = atomic_load(&slot->collective);
        uint32_t both = atomic_load(&slot->status);
        k->status = status_of_page(both & 0xffff);
        k->cause = k->status == STATUS_EXPIRED ? status_of_page(both >> 16) : STATUS_OK;
}

static struct page_report report_of(const struct tutti_work *w) {
        const struct kept *k = &w->kept;
        bool is_repeatable = k->is_repeatable &&
                             !(w->staging.piece && w->is_detached && staging_is_written_over(&w->staging));
        return (struct page_report){ .request = w->call.request,
                .collective = k->state == PAGE_FREE ? 0 : k->collective,
                .state = k->state,
                .status = k->state != PAGE_FAILED       ? STATUS_OK
                          : k->status == STATUS_EXPIRED ? k->cause
                                                        : k->status,
                .has_key = true,
                .key = k->submit.key,
                .is_kept = is_repeatable };
}

/* How it had failed: from the page alone, for the words went with tuttid. */
static void end_failed(struct tutti *t, struct tutti_work *w, const struct kept *page) {
        struct error e;
        bool is_lost = page->status == STATUS_OUTPUT_LOST;
        refuse(&e, page->status, FIELD_UNSPECIFIED, "%s",
                is_lost ? "tuttid was killed while it ran, in place: the inputs are not what they were"
                        : "it had ended before tuttid was restarted");
        e.outputs_undefined = is_lost;
        e.cause = page->cause;
        e.has_key = true;
        e.key = w->kept.submit.key;
        e.kind = w->kept.submit.signature.kind;
        if (w->kept.group)
                group_sign(w->kept.group, &e);
        call_end(t, &w->call, page->status, failure_new(&e));
}

/* It ends here and now; the others, who may not know of it, will be told when the group comes back. */
static void end_known(struct tutti *t, struct tutti_work *w) {
        struct tutti_group *g = w->kept.group;
        if (w->kept.state == PAGE_FAILED) { /* which is counted, by key */
                const struct kept page = w->kept;
                end_failed(t, w, &page);
                return;
        }
        if (g && !g->ended)
                g->ended = calloc(STATUS_PAGE_SLOTS, sizeof(*g->ended));
        if (g && g->ended && g->n_ended < STATUS_PAGE_SLOTS)
                g->ended[g->n_ended++] = report_of(w);
        end_done(t, w);
}

static void capture(struct tutti *t, struct call *call) {
        struct tutti_work *w = work_of(call);
        struct tutti_group *g = w->kept.group;
        look_at_page(t, call, &w->kept);
        if (g && w->kept.collective > g->last_number && w->kept.submit.epoch == g->epoch)
                g->last_number = w->kept.collective;
        if (w->kept.state == PAGE_DONE || w->kept.state == PAGE_FAILED)
                end_known(t, w);
        else if (!g || atomic_load(&g->has_left) || g->lost)
                end_with(t, call, STATUS_DAEMON_LOST, "this membership had ended before");
}

/* The membership has gone with the tuttid that was to make it. */
static void forget_parting(struct tutti *t, struct tutti_group *g) {
        if (g->parting == PARTING_JOINS && !g->resuming.is_ended)
                call_end(t, &g->resuming, STATUS_DAEMON_LOST, NULL);
        g->parting = PARTING_NONE;
}

void resume_capture(struct tutti *t) {
        for (size_t i = 0; i < ARRAY_SIZE(t->slots); i++)
                if (t->slots[i])
                        capture(t, t->slots[i]);
        list_for_each (it, &t->groups) {
                struct tutti_group *g = list_entry(it, struct tutti_group, node);
                free(take_pointer(g->reports));
                g->n_reports = g->n_told = 0;
                forget_parting(t, g);
        }
}

/* --- packets --- */

static bool encode(struct tutti *t, const struct request *request, int fd, struct resume_packet *ret) {
        ret->fd = fd;
        ret->is_hello = request->type == REQUEST_HELLO;
        return codec_encode_request(request, &t->scratch, t->send_bytes, &ret->n_bytes) == 0;
}

static void number_again(struct tutti *t, struct call *call) {
        call->request = t->next_request++;
        call->is_held = false;
        list_append(&t->others, &call->node);
}

static bool next_hello(struct tutti *t, struct resume_packet *ret) {
        struct call *hello = &t->reconnect->hello;
        if (!hello->is_held)
                return false;
        struct request request = { .type = REQUEST_HELLO };
        fd_close(&t->reconnect->pidfd);
        t->reconnect->pidfd = open_fill_hello(t->socket, &request.hello);
        number_again(t, hello);
        request.hello.may_be_handed_over = true;
        request.request = hello->request;
        return encode(t, &request, t->reconnect->pidfd, ret);
}

/* One that was refused stays so. One of which nothing was heard is asked for under its number, for which
 * somebody may wait. */
static bool register_again(struct tutti *t, struct region *r, struct resume_packet *ret) {
        struct request request = { .type = REQUEST_REGISTER,
                .reg = { .buffer = r->id,
                        .size_bytes = r->size_bytes,
                        .access = r->access,
                        .kind = BUFFER_KIND_MEMFD,
                        .n_descriptors = 1,
                        .device = "",
                        .stands_for = "",
                        .why = r->why,
                        .pages = r->pages } };
        r->sent_in = t->reconnect->n_ends;
        if (region_refusal(r))
                return false;
        if (r->registering.is_ended) {
                call_deinit(&r->registering);
                call_init(&r->registering, CALL_PLAIN);
                number_again(t, &r->registering);
        }
        r->registering.is_held = false;
        request.request = r->registering.request;
        return encode(t, &request, r->fd, ret);
}

static bool next_region(struct tutti *t, struct resume_packet *ret) {
        list_for_each (it, &t->registrations) {
                struct region *r = list_entry(it, struct region, registration);
                if (r->sent_in != t->reconnect->n_ends && register_again(t, r, ret))
                        return true;
        }
        return false;
}

/* --- what a group tells --- */

/* false: no memory. */
static bool group_make_reports(struct tutti *t, struct tutti_group *g) {
        g->reports = malloc((2 * STATUS_PAGE_SLOTS + MAX_KEY_FAILURES) * sizeof(*g->reports));
        if (!g->reports)
                return false;
        for (uint32_t i = 0; i < g->n_ended; i++)
                g->reports[g->n_reports++] = g->ended[i];
        for (uint32_t i = 0; i < g->n_failed; i++)
                g->reports[g->n_reports++] = (struct page_report){ .has_key = true,
                        .key = g->failed[i].key,
                        .n_failed = g->failed[i].n,
                        .status = g->failed[i].status };
        for (size_t i = 0; i < ARRAY_SIZE(t->slots); i++)
                if (t->slots[i] && work_of(t->slots[i])->kept.group == g &&
                        work_of(t->slots[i])->kept.submit.epoch == g->epoch)
                        g->reports[g->n_reports++] = report_of(work_of(t->slots[i]));
        return true;
}

static bool next_pages(struct tutti *t, struct tutti_group *g, struct resume_packet *ret) {
        uint32_t n = g->n_reports - g->n_told;
        if (n > PART_REPORTS)
                n = PART_REPORTS;
        const struct request request = { .request = t->next_request++,
                .type = REQUEST_PAGES,
                .pages = { .n_reports = n, .reports = g->reports + g->n_told } };
        g->n_told += n;
        return encode(t, &request, -1, ret);
}

static bool next_join(struct tutti *t, struct tutti_group *g, struct resume_packet *ret) {
        struct request request = { .type = REQUEST_JOIN, .join = g->ask };
        g->sent_in = t->reconnect->n_ends;
        free(take_pointer(g->reports));
        call_drop(t, &g->resuming);
        call_deinit(&g->resuming);
        call_init(&g->resuming, CALL_RESUME);
        number_again(t, &g->resuming);
        request.request = g->resuming.request;
        request.join.resume_epoch = g->epoch;
        request.join.resume_number = g->last_number;
        request.join.resume_members = g->members;
        request.join.resume_lost = g->lost_members;
        return encode(t, &request, -1, ret);
}

static void end_group_calls(struct tutti *t, struct tutti_group *g, enum status status, struct failure *f) {
        for (size_t i = 0; i < ARRAY_SIZE(t->slots); i++)
                if (t->slots[i] && work_of(t->slots[i])->kept.group == g)
                        call_end(t, t->slots[i], status, failure_ref(f));
        list_for_each_safe (it, tmp, &t->others) {
                struct call *call = list_entry(it, struct call, node);
                if (call->group == g)
                        call_end(t, call, status, failure_ref(f));
        }
}

static void lose_group(struct tutti *t, struct tutti_group *g, const struct error *why) {
        struct error e = *why;
        group_sign(g, &e);
        g->lost = failure_new(&e);
        g->lost_status = why->status;
        end_group_calls(t, g, why->status, g->lost);
}

static bool next_of_group(struct tutti *t, struct tutti_group *g, struct resume_packet *ret) {
        struct error e;
        if (g->is_forgetful || (!g->reports && !group_make_reports(t, g))) {
                refuse(&e, STATUS_REPLICA_LOST, FIELD_GROUP, "%s",
                        g->is_forgetful ? "tuttid was restarted, and more keys had failed in this epoch than "
                                          "are remembered"
                                        : "tuttid was restarted, and there is no memory to resume the group");
                g->sent_in = t->reconnect->n_ends;
                lose_group(t, g, &e);
                return false;
        }
        return g->n_told < g->n_reports ? next_pages(t, g, ret) : next_join(t, g, ret);
}

/* What one that was left has begun to tell goes on: without their Join its Pages would be another group's. */
static bool next_group(struct tutti *t, struct resume_packet *ret) {
        list_for_each (it, &t->groups) {
                struct tutti_group *g = list_entry(it, struct tutti_group, node);
                bool is_wanted = !atomic_load(&g->has_left) || g->parting == PARTING_JOINS;
                if (g->sent_in == t->reconnect->n_ends || !is_wanted || g->lost_status)
                        continue;
                if (next_of_group(t, g, ret))
                        return true;
        }
        return false;
}

/* --- what was held --- */

void resume_set_membership(struct request *request, uint64_t membership) {
        if (request->type == REQUEST_SUBMIT)
                request->submit.membership = membership;
        else if (request->type == REQUEST_LEAVE)
                request->membership = membership;
        else if (request->type == REQUEST_ABORT)
                request->abort.membership = membership;
        else if (request->type == REQUEST_BUSY)
                request->busy.membership = membership;
        else if (request->type == REQUEST_REJOIN || request->type == REQUEST_SHRINK)
                request->reform.membership = membership;
}

/* A half whose inputs in plain memory may be gone is of no use to anybody: the peers hear of it. */
static void withdraw(struct kept *k) {
        k->submit.refused = STATUS_OUTPUT_LOST;
        k->submit.signature.n_entries = 0;
}

static bool next_part(struct tutti *t, struct call *call, struct resume_packet *ret) {
        struct reconnect *r = t->reconnect;
        struct kept *k = &work_of(call)->kept;
        struct request request = { .request = call->request, .type = REQUEST_SUBMIT, .submit = k->submit };
        const uint32_t n = k->submit.signature.n_entries;
        request.submit.membership = k->group->membership;
        request.submit.entries = n > 0 ? k->entries + r->n_sent : NULL;
        request.submit.n_part_entries = n - r->n_sent;
        if (n > 1) {
                uint32_t n_window = n - r->n_sent < WINDOW_ENTRIES ? n - r->n_sent : WINDOW_ENTRIES;
                request.submit.n_part_entries =
                        codec_entries_that_fit(k->entries + r->n_sent, n_window, &t->scratch);
        }
        r->n_sent += request.submit.n_part_entries;
        request.submit.more = r->n_sent < n;
        r->sending = request.submit.more ? call : NULL;
        if (!request.submit.more)
                r->n_sent = 0;
        call->is_held = false;
        return encode(t, &request, -1, ret);
}

static bool next_held(struct tutti *t, struct call *call, struct resume_packet *ret) {
        if (!call->is_held || !reconnect_may_send(t, call))
                return false;
        if (call->type == CALL_WORK)
                return work_of(call)->kept.group && next_part(t, call, ret);
        if (!call->again)
                return false;
        struct request request = *call->again;
        request.request = call->request;
        if (call->group)
                resume_set_membership(&request, call->group->membership);
        call->is_held = false;
        return encode(t, &request, -1, ret);
}

/* What is left of it. */
static bool say_busy(struct tutti *t, struct tutti_group *g, struct resume_packet *ret) {
        uint64_t now = clock_now_ns(), until = atomic_load(&g->busy_until_ns);
        g->is_busy_untold = false;
        if (until <= now)
                return false;
        const struct request request = { .request = t->next_request++,
                .type = REQUEST_BUSY,
                .busy = { .membership = g->membership, .why = g->busy_why, .duration_ns = until - now } };
        return encode(t, &request, -1, ret);
}

static bool next_busy(struct tutti *t, struct resume_packet *ret) {
        list_for_each (it, &t->groups) {
                struct tutti_group *g = list_entry(it, struct tutti_group, node);
                if (g->is_busy_untold && g->is_back && say_busy(t, g, ret))
                        return true;
        }
        return false;
}

static bool say_leave(struct tutti *t, struct tutti_group *g, struct resume_packet *ret) {
        const struct request request = {
                .request = t->next_request++, .type = REQUEST_LEAVE, .membership = g->membership
        };
        g->parting = PARTING_NONE;
        return encode(t, &request, -1, ret);
}

/* Those that were here for that alone go. */
static bool next_leave(struct tutti *t, struct resume_packet *ret) {
        list_for_each_safe (it, tmp, &t->groups) {
                struct tutti_group *g = list_entry(it, struct tutti_group, node);
                if (g->parting == PARTING_LEAVES)
                        return say_leave(t, g, ret);
                if (g->is_freed && g->parting == PARTING_NONE) {
                        list_unlink(&g->node);
                        group_destroy(g);
                }
        }
        return false;
}

static bool next_call(struct tutti *t, struct resume_packet *ret) {
        list_for_each (it, &t->others)
                if (next_held(t, list_entry(it, struct call, node), ret))
                        return true;
        for (size_t i = 0; i < ARRAY_SIZE(t->slots); i++)
                if (t->slots[i] && next_held(t, t->slots[i], ret))
                        return true;
        return false;
}

/* Nothing comes between the parts of a work. */
bool resume_next_packet(struct tutti *t, struct resume_packet *ret) {
        if (t->reconnect->sending)
                return next_part(t, t->reconnect->sending, ret);
        return next_hello(t, ret) || next_region(t, ret) || next_group(t, ret) || next_leave(t, ret) ||
               next_busy(t, ret) || next_call(t, ret);
}

/* --- a group is back --- */

/* Its inputs are as they were: those in plain memory that results have gone over are copied anew. */
static void make_ready(struct tutti_work *w) {
        if (w->kept.state == PAGE_BEGUN && w->staging.piece && staging_is_written_over(&w->staging)) {
                if (w->is_detached)
                        withdraw(&w->kept);
                else
                        staging_fill_again(&w->staging);
        }
        w->kept.state = PAGE_FREE;
        w->kept.collective = 0;
        w->n_extents = 0; /* that tuttid had told of some is nothing to the next */
}

static void judge(struct tutti *t, struct call *call) {
        struct tutti_work *w = work_of(call);
        struct kept verdict = { .state = PAGE_FREE };
        look_at_page(t, call, &verdict);
        if (verdict.state == PAGE_DONE) {
                w->kept.collective = verdict.collective;
                end_done(t, w);
        } else if (verdict.state == PAGE_FAILED) {
                end_failed(t, w, &verdict);
        } else {
                make_ready(w);
        }
}

/* The epoch that a call of this member had asked for has begun, and tuttid had no time to say so. */
static void end_reforms(struct tutti *t, struct tutti_group *g, const struct msg_joined *joined) {
        list_for_each_safe (it, tmp, &t->others) {
                struct call *call = list_entry(it, struct call, node);
                if (call->group != g || call->type != CALL_JOIN)
                        continue;
                call->joined = *joined;
                call_end(t, call, STATUS_OK, NULL);
        }
}

void resume_group(struct tutti *t, struct tutti_group *g) {
        const struct msg_joined joined = g->resuming.joined;
        if (g->parting == PARTING_JOINS) {
                g->membership = joined.membership;
                g->parting = g->resuming.status == STATUS_OK ? PARTING_LEAVES : PARTING_NONE;
                return;
        }
        if (g->resuming.status != STATUS_OK) {
                struct error e;
                error_init(&e, g->resuming.status);
                lose_group(t, g, g->resuming.failure ? &g->resuming.failure->error : &e);
                return;
        }
        g->membership = joined.membership;
        g->members = joined.members;
        g->is_back = true;
        g->is_busy_untold = true;
        g->n_ended = 0;
        for (size_t i = 0; i < ARRAY_SIZE(t->slots); i++)
                if (t->slots[i] && work_of(t->slots[i])->kept.group == g)
                        judge(t, t->slots[i]);
        if (joined.epoch > g->epoch) {
                group_begin_epoch(g, &joined);
                end_reforms(t, g, &joined);
        }
}

/* --- a handle goes --- */

static void end_left(struct tutti *t, struct tutti_group *g) {
        struct error e;
        error_init(&e, STATUS_LEFT);
        group_sign(g, &e);
        struct failure *f = failure_new(&e);
        end_group_calls(t, g, STATUS_LEFT, f);
        failure_unref(f);
}

/* Whether the tuttid that is there knows of it already, and has not answered. */
static bool is_being_joined(const struct tutti *t, const struct tutti_group *g) {
        if (g->lost_status)
                return false;
        return g->sent_in == t->reconnect->n_ends ? !g->resuming.is_ended : g->n_told > 0;
}

void resume_leave(struct tutti *t, struct tutti_group *g) {
        atomic_store(&g->has_left, true);
        if (is_being_joined(t, g))
                g->parting = PARTING_JOINS;
        else
                call_drop(t, &g->resuming);
        end_left(t, g);
}

void resume_forget_group(struct tutti *t, struct tutti_group *g) {
        if (reconnect_is_on(t) && !g->is_back)
                resume_leave(t, g);
        list_for_each (it, &t->works) {
                struct tutti_work *w = list_entry(it, struct tutti_work, node);
                if (w->kept.group != g)
                        continue;
                w->kept.group = NULL;
                w->call.group = NULL;
                kept_stop_parts(t, w);
        }
}
