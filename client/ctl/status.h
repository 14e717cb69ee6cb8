/* How tuttid is, and who is missing. */
#pragma once

#include <stdbool.h>
#include <jansson.h>
#include "print.h"

/* `status` is an answer to TUTTI_ADMIN_STATUS, `stats` one to TUTTI_ADMIN_STATS. */
struct status_view {
        const struct tutti_answer *status, *stats;
};

/* The collective that keeps a group waiting longest, NULL when none does. */
const struct tutti_row_pending *status_oldest(const struct status_view *v, const struct tutti_row_group *g);
bool status_is_stalled(const struct status_view *v, const struct tutti_row_group *g);
unsigned int status_count_stalled(const struct status_view *v);
/* `begin`, and who is lost, of many the first eight: " R2 (pid 4711, died 12 s ago)". Returns how many are;
 * of none it adds nothing. `stats` is an answer to STATS. */
uint32_t line_add_losses(
        struct line *l, const struct tutti_answer *stats, const struct tutti_row_group *g, const char *begin);
/* Who waits for the group to be formed anew, and for whom; nothing where nobody does. */
void line_add_reform(struct line *l, const struct tutti_row_group *g);
/* What was wished for in it and is not done, how often and when last. */
void line_add_group_fallback(struct line *l, const struct tutti_row_group_fallback *f);
/* In the order in which they need looking at. Ended groups have no face. */
enum group_face { FACE_STALLED, FACE_FAILED, FACE_FORMING, FACE_WAITING, FACE_OK, N_FACES };

enum group_face status_face(const struct status_view *v, const struct tutti_row_group *g);
const char *group_face_label(enum group_face face);
enum tone group_face_tone(enum group_face face);

/* Reports of missing replicas end after eight; adds the ranks of the others: " and R12-R19". */
void line_add_unreported(struct line *l, const struct tutti_row_pending *p);

void status_print(const struct status_view *v, const struct page *page);
json_t *status_json(const struct status_view *v);
