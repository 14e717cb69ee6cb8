/* What the files of rendezvous-play share. */
#pragma once

#include "rendezvous-model.h"
#include "rendezvous-play.h"

#define TICK_NS      1000
#define MAX_STEPS    4000
#define N_SESSIONS   4
#define N_HANDLES    16
#define N_NAMES      3
#define N_KEYS       6
#define MAX_RUNNING  512
#define MANY_RUNNING 40 /* from here on they end first */

struct play {
        const uint8_t *bytes;
        size_t n_bytes;
        struct model *model;
        struct quotas *quotas;
        struct rendezvous *r;
        struct outcome out;
        uint64_t now_ns, last_request, last_session;
        uint64_t sessions[N_SESSIONS];
        struct model_handle handles[N_HANDLES];
        uint64_t memberships[N_HANDLES]; /* the real ones; 0: not known */
        unsigned int n_handles;          /* ever made; the last N_HANDLES are kept */
        struct meeting *running[MAX_RUNNING];
        int n_running;
        uint64_t group_ids[MAX_STEPS * MODEL_WORLD + 1]; /* of life */
        uint64_t ejected[MODEL_EVENTS];
        int n_ejected;
        struct event events[MODEL_EVENTS];
        int n_events;
        struct play_counts *counts;
        char *why;
        size_t why_bytes;
        bool is_wrong;
};

/* Notes the first difference; the run ends there. */
void play_differ(struct play *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct key play_key(int key);

/* What was heard in this step, and what there is after it, against the model. */
void play_compare(struct play *p);
