/* tutti_cuda_follow: until the caller's stream waits for the result, or the result is there. */
#include <tutti/cuda.h>
#include "lib/order.h"
#include "lib/work.h"

/* The collective is on its way: its stream waits from here on. */
static enum tutti_status follow(struct tutti_work *w) {
        struct error err;
        enum status status = order_follow(w->t, &w->order, &err);
        order_end_follow(w->t, &w->order);
        return status == STATUS_OK ? TUTTI_OK : thread_fail(&err);
}

enum tutti_status tutti_cuda_follow(struct tutti_work *w, double seconds) {
        if (!w || seconds != seconds)
                return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "%s",
                        w ? "the limit of the wait is not a number" : "there is no work to follow");
        struct tutti *t = w->t;
        if (fork_guard_is_child(t->guard))
                return thread_say_forked();
        uint64_t deadline_ns = deadline_in(seconds);
        pthread_mutex_lock(&t->lock);
        enum order_kind kind = order_of_use(t, &w->order);
        enum wait_end end =
                kind == ORDER_KIND_EVENTS ? connection_wait_launched(t, &w->call, deadline_ns) : WAIT_ENDED;
        bool is_launched = kind == ORDER_KIND_EVENTS && end == WAIT_ENDED && !w->call.is_ended;
        if (is_launched)
                order_hold(t, &w->order);
        pthread_mutex_unlock(&t->lock);
        if (kind == ORDER_KIND_TIMELINE)
                return TUTTI_OK;
        if (is_launched)
                return follow(w);
        if (end == WAIT_CANCELLED)
                return TUTTI_CANCELLED;
        return tutti_work_wait(w, end == WAIT_ENDED && kind == ORDER_KIND_EVENTS ? 0 : seconds);
}
