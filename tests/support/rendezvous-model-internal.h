/* What the files of the model share. */
#pragma once

#include "rendezvous-model.h"

void model_tell_status(struct model *m, uint64_t request, enum status status, enum status cause, int rank);
/* Bit r: rank r is JOINING or ALIVE. */
unsigned int model_present(const struct model_group *g);
/* Ended unsealed: all who are there are told, the others owe. */
void model_end_meeting(struct model *m, struct model_group *g, struct model_meeting *meeting,
        enum status status, enum status cause, int rank);
/* FORMING: all who have joined are told. */
void model_unform(struct model *m, struct model_group *g, enum status status, int rank);
