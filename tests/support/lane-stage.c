#include "lane-stage.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"

static void on_bell(void *data) {
        ((struct lane_stage *)data)->n_bells++;
}

void lane_stage_init(struct lane_stage *st) {
        lane_stage_init_assisted(st, 0);
}

static const struct quota_limits limits = { .descriptors = 1000, .memory_bytes = 1 << 30 };

void lane_stage_init_assisted(struct lane_stage *st, uint32_t n_assistants) {
        const struct doorbell bell = { .ring = on_bell, .data = st };
        *st = (struct lane_stage){ .fake = fake_backend_new() };
        CHECK(uv_loop_init(&st->loop) == 0);
        CHECK(quotas_new(&st->quotas, &limits) == 0 && loans_new(&st->loans, st->quotas) == 0);
        const struct lanes_options options = { .n_assistants = n_assistants, .linger_ns = NS_PER_MS / 20 };
        CHECK(lanes_new(&st->lanes, &st->loop, fake_backend_ops(st->fake), &bell, &options) == 0);
}

void lane_stage_stop(struct lane_stage *st) {
        lanes_stop(st->lanes);
        uv_run(&st->loop, UV_RUN_DEFAULT);
}

void lane_stage_deinit(struct lane_stage *st) {
        lanes_free(st->lanes);
        loans_free(st->loans);
        quotas_free(st->quotas);
        CHECK(uv_loop_close(&st->loop) == 0);
        uv_library_shutdown(); /* libuv's own pipe for signals */
        fake_backend_free(st->fake);
}

bool lane_stage_is_watching(struct lane_stage *st) {
        pthread_mutex_lock(&st->lanes->lock);
        bool is_watching = !list_is_empty(&st->lanes->watched);
        pthread_mutex_unlock(&st->lanes->lock);
        return is_watching;
}

/* --- sets --- */

void stage_set_init(struct stage_set *s, const struct stage_set_shape *shape) {
        const struct step step = {
                .kind = STEP_COPY, .dtype = DTYPE_U8, .n_inputs = 1, .n_outputs = 1, .count = shape->name
        };
        plan_init(&s->plan);
        CHECK(plan_add_step(&s->plan, &step));
        plan_freeze(&s->plan, 64);
        s->plan.n_chunks = s->plan.parts[0].n_chunks = shape->n_chunks;
        s->set = (struct lane_set){ .plan = &s->plan, .numbers = s->numbers };
        list_init(&s->set.link);
        for (uint32_t i = 0; i < STAGE_MAX_PLACES; i++)
                s->numbers[i] = shape->first_number + i;
}

void stage_set_deinit(struct stage_set *s) {
        list_unlink(&s->set.link);
        plan_deinit(&s->plan);
}

/* --- clients --- */

void stage_make_pages(struct lane_stage *st, struct lane_ask *ask, int *ret_page, int *ret_slot) {
        const struct loan_ask slot = { .access = LOAN_WRITE, .name = "slot", .n_bytes = LANE_PAGE_BYTES };
        CHECK(page_make(st->loans, 0, &ask->page, ret_page, NULL) == STATUS_OK);
        CHECK(loan_make(st->loans, &slot, &ask->slot, ret_slot, NULL) == STATUS_OK);
}

void stage_client_init(struct lane_stage *st, struct stage_client *c, uint64_t session) {
        int page, slot;
        *c = (struct stage_client){ 0 };
        struct lane_ask ask = { .session = session };
        stage_make_pages(st, &ask, &page, &slot);
        CHECK(lane_new(st->lanes, &ask, &c->lane, &c->bell) == 0);
        close(page);
        close(slot);
        c->page = page_slots(ask.page);
        c->board = page_board(ask.page);
        c->slot = loan_memory(ask.slot);
        c->page_loan = ask.page;
        loan_unref(ask.slot);
}

bool stage_client_end(struct lane_stage *st, struct stage_client *c) {
        uint32_t n_before = st->lanes->n_lanes;
        lane_free(st->lanes, c->lane);
        loan_unref(c->page_loan);
        bool is_gone = st->lanes->n_lanes < n_before;
        close(c->bell);
        *c = (struct stage_client){ .bell = -1 };
        return is_gone;
}

void stage_write(struct stage_client *c, const struct stage_start *start) {
        uint64_t words[LANE_KEY_WORDS] = { start->number };
        size_t n_bytes = start->name ? strlen(start->name) : 0;
        CHECK(n_bytes <= sizeof(words));
        if (start->name)
                memcpy(words, start->name, n_bytes);
        atomic_store_explicit(&c->slot->request, start->request, memory_order_relaxed);
        atomic_store_explicit(&c->slot->prepared, start->prepared, memory_order_relaxed);
        atomic_store_explicit(&c->slot->membership, start->membership, memory_order_relaxed);
        atomic_store_explicit(&c->slot->epoch, start->epoch, memory_order_relaxed);
        atomic_store_explicit(&c->slot->key_bytes, n_bytes, memory_order_relaxed);
        for (size_t i = 0; i < LANE_KEY_WORDS && i * sizeof(uint64_t) < n_bytes + (n_bytes == 0); i++)
                atomic_store_explicit(&c->slot->key[i], words[i], memory_order_relaxed);
}

void stage_bump(struct stage_client *c) {
        atomic_store(&c->slot->start, ++c->n_starts);
}

void stage_ring(struct stage_client *c) {
        static const uint64_t one = 1;
        CHECK(write(c->bell, &one, sizeof(one)) == sizeof(one));
}

void stage_settle(struct lane_stage *st, struct stage_client *c) {
        uint64_t n_before = lanes_stats(st->lanes).n_rings;
        stage_ring(c);
        while (lanes_stats(st->lanes).n_rings == n_before || lane_stage_is_watching(st))
                sched_yield();
}

bool stage_start(struct stage_client *c, const struct stage_start *start) {
        stage_write(c, start);
        stage_bump(c);
        bool must_ring = !atomic_load(&c->board->is_watched);
        if (must_ring)
                stage_ring(c);
        return must_ring;
}

enum page_state stage_page(const struct stage_client *c, uint64_t request) {
        const struct page_slot *slot = &c->page[request % STATUS_PAGE_SLOTS];
        if (atomic_load_explicit(&slot->request, memory_order_acquire) != request)
                return PAGE_FREE;
        return (enum page_state)atomic_load_explicit(&slot->state, memory_order_acquire);
}

enum stage_end stage_look(const struct stage_client *c, uint64_t request) {
        if (stage_page(c, request) == PAGE_DONE)
                return STAGE_DONE;
        return atomic_load(&c->board->passed) == c->n_starts ? STAGE_PASSED : STAGE_STARTED;
}
