/* All that tuttid says about itself at one moment, of every user that the exporter may see.
 *
 * Keeps its connection between scrapes; one that was lost meanwhile is opened again. One thread. */
#pragma once

#include <tutti/admin.h>

#define MAX_SCRAPED_USERS 256

/* What one user has. */
struct user_part {
        uint32_t uid;
        struct tutti_answer *status, *groups, *stats, *histograms;
};

struct scrape {
        enum tutti_status status; /* OK, or why there is nothing (tutti_error() says more) */
        double seconds;           /* that the questions took */
        int sees_all;             /* it is about every user, not about one's own alone */
        struct tutti_answer *quota;
        struct user_part users[MAX_SCRAPED_USERS];
        uint32_t n_users;
};

struct source;

struct source *source_new(const char *socket); /* NULL: as tutti_open finds it; returns NULL without memory */
void source_free(struct source *s);

/* Fills *ret, which scrape_deinit empties in any case. Who does not see all is asked for anew by the next
 * one: tuttid may have been told other things meanwhile. */
void source_scrape(struct source *s, struct scrape *ret);
void scrape_deinit(struct scrape *scrape);
