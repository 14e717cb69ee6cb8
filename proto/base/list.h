/* An intrusive doubly linked list with a head that is itself a node.
 *
 * A node that is in no list points to itself, so unlinking twice is harmless and a destructor can always
 * unlink. Nothing allocates. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
        struct list *prev, *next;
};

#define LIST_INIT(name)                                                                                      \
        { &(name), &(name) }

/* The struct that embeds `node` as `member`. */
#define list_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

#define list_for_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)

/* `it` may be unlinked, and freed, in the body. */
#define list_for_each_safe(it, tmp, head)                                                                    \
        for (struct list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)

static inline void list_init(struct list *l) {
        l->prev = l->next = l;
}

static inline bool list_is_empty(const struct list *l) {
        return l->next == l;
}

/* Puts `node`, which must be in no list, at the end of `head`. */
static inline void list_append(struct list *head, struct list *node) {
        node->prev = head->prev;
        node->next = head;
        head->prev->next = node;
        head->prev = node;
}

static inline void list_unlink(struct list *node) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
        list_init(node);
}

/* Takes the first node out, or NULL when the list is empty. */
static inline struct list *list_take_first(struct list *head) {
        struct list *first = head->next;
        if (first == head)
                return NULL;
        list_unlink(first);
        return first;
}

static inline size_t list_length(const struct list *head) {
        size_t n = 0;
        for (const struct list *it = head->next; it != head; it = it->next)
                n++;
        return n;
}

/* Moves all nodes of `from` to the end of `to`. */
static inline void list_splice(struct list *to, struct list *from) {
        if (list_is_empty(from))
                return;
        from->next->prev = to->prev;
        to->prev->next = from->next;
        from->prev->next = to;
        to->prev = from->prev;
        list_init(from);
}
