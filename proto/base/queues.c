#include "base/queues.h"

#include <stddef.h>

/* Of those that may not be taken just now: so many are looked at. */
#define MAX_LOOKS 64

void queues_init(struct queues *q) {
        list_init(&q->waiting);
        for (uint32_t i = 0; i < N_QUEUES; i++) {
                q->users[i] = (struct queue){ 0 };
                list_init(&q->users[i].link);
                list_init(&q->users[i].arrived);
        }
}

/* --- the heap: a node goes before all below it --- */

static bool goes_before(const struct queued *a, const struct queued *b) {
        return a->priority != b->priority ? a->priority > b->priority : a->ticket < b->ticket;
}

/* Two heaps become one; either may be NULL. */
static struct queued *meld(struct queued *a, struct queued *b) {
        if (!a || !b)
                return a ? a : b;
        struct queued *above = goes_before(a, b) ? a : b, *below = above == a ? b : a;
        below->next = above->child;
        below->previous = above;
        if (above->child)
                above->child->previous = below;
        above->child = below;
        above->next = above->previous = NULL;
        return above;
}

/* Siblings become one heap: in pairs from the first on, then all pairs from the last on. */
static struct queued *meld_siblings(struct queued *first) {
        struct queued *pairs = NULL, *all = NULL;
        while (first) {
                struct queued *a = first, *b = a->next;
                first = b ? b->next : NULL;
                a = meld(a, b);
                a->next = pairs;
                pairs = a;
        }
        while (pairs) {
                struct queued *pair = pairs;
                pairs = pair->next;
                pair->next = pair->previous = NULL;
                all = meld(all, pair);
        }
        return all;
}

static void heap_remove(struct queue *q, struct queued *node) {
        struct queued *below = meld_siblings(node->child);
        if (node == q->best) {
                q->best = below;
        } else {
                if (node->previous->child == node)
                        node->previous->child = node->next;
                else
                        node->previous->next = node->next;
                if (node->next)
                        node->next->previous = node->previous;
                q->best = meld(q->best, below);
        }
        node->child = node->next = node->previous = NULL;
}

/* --- one user --- */

static struct queued *queue_oldest(const struct queue *q) {
        return list_entry(q->arrived.next, struct queued, link);
}

static bool may_be_taken(const struct queue_rule *rule, const struct queued *node) {
        return !rule || rule->may(node, rule->data);
}

/* The most urgent one that may be taken. Those before it are put aside meanwhile. */
static struct queued *queue_find_best(struct queue *q, const struct queue_rule *rule) {
        struct queued *aside = NULL, *found;
        for (int n = 0; (found = q->best) && !may_be_taken(rule, found) && n < MAX_LOOKS; n++) {
                heap_remove(q, found);
                found->next = aside;
                aside = found;
        }
        if (found && !may_be_taken(rule, found))
                found = NULL;
        while (aside) {
                struct queued *node = aside;
                aside = node->next;
                node->next = NULL;
                q->best = meld(q->best, node);
        }
        return found;
}

static struct queued *queue_take(struct queue *q, const struct queue_rule *rule) {
        struct queued *oldest = queue_oldest(q), *node = NULL;
        if (q->n_passed >= MAX_PASSED && may_be_taken(rule, oldest))
                node = oldest;
        if (!node)
                node = queue_find_best(q, rule);
        if (!node)
                return NULL;
        q->n_passed = node == oldest ? 0 : q->n_passed + 1;
        heap_remove(q, node);
        list_unlink(&node->link);
        return node;
}

/* --- all of them --- */

void queues_put(struct queues *q, uint32_t uid, struct queued *node, int32_t priority) {
        struct queue *user = &q->users[uid % N_QUEUES];
        *node = (struct queued){ .priority = priority, .ticket = user->next_ticket++ };
        list_init(&node->link);
        if (list_is_empty(&user->link))
                list_append(&q->waiting, &user->link);
        list_append(&user->arrived, &node->link);
        user->best = meld(user->best, node);
}

struct queued *queues_take(struct queues *q, const struct queue_rule *rule) {
        list_for_each_safe (it, tmp, &q->waiting) {
                struct queue *user = list_entry(it, struct queue, link);
                uint32_t number = (uint32_t)(user - q->users);
                if (rule && !rule->may_user(number, rule->data))
                        continue; /* it keeps its place */
                struct queued *node = queue_take(user, rule);
                if (!node)
                        continue;
                list_unlink(&user->link);
                if (user->best)
                        list_append(&q->waiting, &user->link);
                return node;
        }
        return NULL;
}
