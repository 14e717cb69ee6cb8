#include "base/turns.h"

#include <stddef.h>

void turns_init(struct turns *t) {
        list_init(&t->waiting);
        for (uint32_t i = 0; i < N_TURNS; i++) {
                list_init(&t->users[i].link);
                list_init(&t->users[i].nodes);
        }
}

void turns_put(struct turns *t, uint32_t uid, struct list *node) {
        struct turn *turn = &t->users[uid % N_TURNS];
        if (list_is_empty(&turn->link))
                list_append(&t->waiting, &turn->link);
        list_append(&turn->nodes, node);
}

static struct list *turn_find(
        const struct turn *turn, bool (*may)(const struct list *, const void *), const void *data) {
        for (struct list *node = turn->nodes.next; node != &turn->nodes; node = node->next)
                if (!may || may(node, data))
                        return node;
        return NULL;
}

struct list *turns_take(struct turns *t, bool (*may)(const struct list *, const void *), const void *data) {
        list_for_each_safe (it, tmp, &t->waiting) {
                struct turn *turn = list_entry(it, struct turn, link);
                struct list *node = turn_find(turn, may, data);
                if (node)
                        list_unlink(node);
                else if (!list_is_empty(&turn->nodes))
                        continue; /* it keeps its place */
                list_unlink(&turn->link);
                if (!list_is_empty(&turn->nodes))
                        list_append(&t->waiting, &turn->link);
                if (node)
                        return node;
        }
        return NULL;
}

bool turns_is_empty(const struct turns *t) {
        list_for_each (it, &t->waiting)
                if (!list_is_empty(&list_entry(it, struct turn, link)->nodes))
                        return false;
        return true;
}
