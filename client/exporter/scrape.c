#include "scrape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct source {
        /* NULL: not connected. A connection that has asked about one user asks about no other's list again,
         * so there are two. */
        struct tutti *lists, *about;
        char *socket;
};

struct source *source_new(const char *socket) {
        struct source *s = calloc(1, sizeof(*s));
        if (s && socket && !(s->socket = strdup(socket))) {
                free(s);
                return NULL;
        }
        return s;
}

static void disconnect(struct source *s) {
        if (s->lists)
                tutti_close(s->lists);
        if (s->about)
                tutti_close(s->about);
        s->lists = s->about = NULL;
}

void source_free(struct source *s) {
        if (!s)
                return;
        disconnect(s);
        free(s->socket);
        free(s);
}

static double now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whose things there are: the asker's own first, as tuttid knows him, who may have another number in here. An
 * admin hears of everybody's quota, and so of everybody. */
static void list_users(struct scrape *scrape) {
        for (uint32_t i = 0; i < scrape->quota->n_rows; i++) {
                const struct tutti_row *row = &scrape->quota->rows[i];
                uint32_t at = 0;
                if (row->type != TUTTI_ROW_QUOTA)
                        continue;
                while (at < scrape->n_users && scrape->users[at].uid != row->quota.uid)
                        at++;
                if (at == scrape->n_users && at < MAX_SCRAPED_USERS)
                        scrape->users[scrape->n_users++].uid = row->quota.uid;
        }
}

static enum tutti_status ask_about(struct tutti *t, struct user_part *user) {
        struct {
                enum tutti_admin_what what;
                struct tutti_answer **ret;
        } questions[] = { { TUTTI_ADMIN_STATUS, &user->status }, { TUTTI_ADMIN_GROUPS, &user->groups },
                { TUTTI_ADMIN_STATS, &user->stats }, { TUTTI_ADMIN_HISTOGRAMS, &user->histograms } };
        enum tutti_status status = tutti_admin_set_user(t, user->uid);
        for (size_t i = 0; status == TUTTI_OK && i < sizeof(questions) / sizeof(*questions); i++)
                status = tutti_admin_ask(t, questions[i].what, NULL, NULL, questions[i].ret);
        return status;
}

/* As tuttid says in each answer about its state. */
static int sees_all(const struct scrape *scrape) {
        const struct tutti_answer *a = scrape->n_users ? scrape->users[0].status : NULL;
        for (uint32_t i = 0; a && i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_DAEMON)
                        return a->rows[i].daemon.sees_all;
        return 0;
}

static enum tutti_status ask_all(struct source *s, struct scrape *scrape) {
        enum tutti_status status = TUTTI_OK;
        if (!s->lists)
                status = tutti_open(s->socket, &s->lists);
        if (status == TUTTI_OK && !s->about)
                status = tutti_open(s->socket, &s->about);
        if (status == TUTTI_OK)
                status = tutti_admin_ask(s->lists, TUTTI_ADMIN_QUOTA, NULL, NULL, &scrape->quota);
        if (status == TUTTI_OK)
                list_users(scrape);
        for (uint32_t i = 0; status == TUTTI_OK && i < scrape->n_users; i++)
                status = ask_about(s->about, &scrape->users[i]);
        return status;
}

void source_scrape(struct source *s, struct scrape *ret) {
        double begin = now();
        memset(ret, 0, sizeof(*ret));
        ret->status = ask_all(s, ret);
        if (ret->status == TUTTI_DAEMON_LOST) { /* another one may serve since the last scrape */
                disconnect(s);
                scrape_deinit(ret);
                ret->status = ask_all(s, ret);
        }
        ret->sees_all = sees_all(ret);
        if (ret->status != TUTTI_OK || !ret->sees_all)
                disconnect(s); /* what is left of it would answer with what it asked, or was, before */
        ret->seconds = now() - begin;
}

void scrape_deinit(struct scrape *scrape) {
        for (uint32_t i = 0; i < scrape->n_users; i++) {
                tutti_answer_free(scrape->users[i].status);
                tutti_answer_free(scrape->users[i].groups);
                tutti_answer_free(scrape->users[i].stats);
                tutti_answer_free(scrape->users[i].histograms);
        }
        tutti_answer_free(scrape->quota);
        memset(scrape, 0, sizeof(*scrape));
}
