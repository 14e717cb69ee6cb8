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

struct list *turns_take(struct turns *t) {
        list_for_each_safe (it, tmp, &t->waiting) {
                struct turn *turn = list_entry(it, struct turn, link);
                struct list *node = list_take_first(&turn->nodes);
                list_unlink(&turn->link);
                if (!list_is_empty(&turn->nodes))
                        list_append(&t->waiting, &turn->link);
                if (node)
                        return node;
        }
        return NULL;
}
