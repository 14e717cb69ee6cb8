#include "lib/waiting.h"

#define US UINT64_C(1000)

#define LONGEST_NS   (5000 * US) /* of wall time: a deadline or a death must not wait for a budget */
#define OWN_YIELD_NS (5 * US / 2)
#define OTHERS_NS    US /* what a yield counts for in which somebody else ran */
#define FIRST_NS     (10 * US)

void waiting_init(struct waiting *w, uint64_t budget_ns) {
        *w = (struct waiting){ .budget_ns = budget_ns, .usual_ns = FIRST_NS };
        regret_init(&w->regret);
}

bool waiting_may_yield(const struct waiting *w, uint64_t now_ns) {
        return w->usual_ns <= w->budget_ns && regret_may_yield(&w->regret, now_ns);
}

void patience_begin(struct patience_left *p, const struct waiting *w, uint64_t now_ns) {
        *p = (struct patience_left){ .budget_ns = w->budget_ns, .began_ns = now_ns, .last_ns = now_ns };
}

bool patience_goes_on(struct patience_left *p, uint64_t now_ns) {
        uint64_t took_ns = now_ns - p->last_ns;
        p->spent_ns += took_ns < OWN_YIELD_NS ? took_ns : OTHERS_NS;
        p->last_ns = now_ns;
        return p->spent_ns <= p->budget_ns && now_ns - p->began_ns <= LONGEST_NS;
}

/* By an eighth. */
void waiting_learn(struct waiting *w, uint64_t wait_ns) {
        w->usual_ns = wait_ns > w->usual_ns ? w->usual_ns + (wait_ns - w->usual_ns) / 8
                                            : w->usual_ns - (w->usual_ns - wait_ns) / 8;
}

void waiting_learn_noticed(
        struct waiting *w, const struct patience_left *p, uint64_t done_ns, uint64_t now_ns) {
        waiting_learn(w, p->spent_ns);
        regret_note(&w->regret, now_ns > done_ns ? now_ns - done_ns : 0, now_ns);
}
