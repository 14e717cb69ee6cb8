/* The bytes are what clients do to the lane and what the loop thread does with it, a letter each (see play);
 * the thread runs meanwhile. Whatever they do: only sets are run, under one key and in their epoch; the
 * numbers of a road grow by one; nothing is run or handed over twice; no slot is written that a member has
 * not given back; and afterwards honest clients meet. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lane-stage.h"

#define N_CLIENTS   4
#define N_ROADS     3
#define N_SETS      2
#define N_SLOTS     2
#define SLOT_ROAD   1    /* whose first set goes to a result object */
#define MAX_WRITTEN 2048 /* fewer than there are slots in a page */
#define MAX_NEW     32

#define EXPECT(expression)                                                                                   \
        do {                                                                                                 \
                if (!(expression)) {                                                                         \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #expression);                     \
                        abort();                                                                             \
                }                                                                                            \
        } while (0)

/* What was written into a slot, by its request. */
struct written {
        uint64_t session;
        struct stage_start start;
        bool is_exact; /* nobody has touched it since; it is copied as it is or not at all */
        uint32_t n_starts;
};

struct player {
        bool is_there;
        struct stage_client client;
        uint64_t session, n_changes,
                n_used;            /* changes of its start word; starts that were run or handed over */
        uint64_t n_turns[N_SLOTS]; /* of the bits in its word */
        struct written *entry;     /* that stands in the slot; NULL: none */
};

struct way {
        struct lane_road lane;
        struct stage_set sets[N_SETS];
        const struct lane_set *running;
        uint64_t next_number, n_runs;
        struct slot all[N_SLOTS];
        struct slots slots;
        struct slot_user users[N_CLIENTS], *of[N_CLIENTS];
        uint64_t n_leases[N_SLOTS], n_turns_before[N_CLIENTS][N_SLOTS];
};

struct world {
        struct lane_stage stage;
        struct player players[N_CLIENTS];
        struct way *ways[N_ROADS];
        struct way *doomed; /* its last run is under way: there is one thread */
        uint32_t n_new;
        bool is_held;
        struct written entries[MAX_WRITTEN]; /* [request - 1] */
        uint32_t n_entries;
        char names[4][MAX_KEY_BYTES + 1];
};

/* Who is on which road: two of the same clients, and one that shares a client with them. */
static const uint32_t members[N_ROADS][N_CLIENTS + 1] = { { 2, 0, 1 }, { 2, 0, 1 }, { 3, 1, 2, 3 } };

static uint64_t membership_of(uint32_t road, uint32_t client) {
        return 10 + 10 * road + client;
}

/* --- what has happened is held against what was written --- */

static struct written *find_entry(struct world *w, uint64_t request, uint64_t session) {
        if (request == 0 || request > w->n_entries)
                return NULL;
        struct written *e = &w->entries[request - 1];
        return e->is_exact && e->session == session ? e : NULL;
}

static struct player *find_player(struct world *w, uint64_t session) {
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                if (w->players[i].is_there && w->players[i].session == session)
                        return &w->players[i];
        return NULL;
}

static bool is_key(const struct key *key, const struct stage_start *start) {
        if (!start->name)
                return key->n_bytes == 0 && key->sequence == start->number;
        return key->n_bytes == strlen(start->name) && memcmp(key->bytes, start->name, key->n_bytes) == 0;
}

static void note_use(struct world *w, uint64_t session) {
        struct player *p = find_player(w, session);
        if (p)
                EXPECT(++p->n_used <= p->n_changes);
}

static void note_handed(struct world *w, const struct lane_start *s) {
        const struct written *e = find_entry(w, s->request, s->session);
        EXPECT(!s->has_key || s->key.n_bytes <= MAX_KEY_BYTES);
        if (e)
                EXPECT(s->has_key && is_key(&s->key, &e->start) && s->prepared == e->start.prepared &&
                        s->membership == e->start.membership && s->epoch == e->start.epoch);
        note_use(w, s->session);
}

static struct way *find_way(struct world *w, const struct lane_road *road) {
        for (uint32_t i = 0; i < N_ROADS; i++)
                if (w->ways[i] && &w->ways[i]->lane == road)
                        return w->ways[i];
        EXPECT(w->doomed && &w->doomed->lane == road);
        return w->doomed;
}

static void check_half(struct world *w, const struct lane_run *run, uint32_t place) {
        const struct lane_place *p = &run->road->places[place];
        const struct written *e = find_entry(w, run->requests[place], p->session);
        const struct player *player = find_player(w, p->session);
        EXPECT(run->requests[place] != 0);
        if (e)
                EXPECT(e->start.membership == p->membership && e->start.epoch == run->road->epoch &&
                        e->start.prepared == run->set->numbers[place] && is_key(&run->key, &e->start));
        if (e && player && e->n_starts == 1)
                EXPECT(stage_page(&player->client, run->requests[place]) == PAGE_DONE);
        note_use(w, p->session);
}

static void way_free(struct way *way) {
        for (uint32_t i = 0; i < N_SETS; i++)
                stage_set_deinit(&way->sets[i]);
        free(way);
}

/* Each lease but the first of a slot was given back by each member before the next. */
static void check_slot(struct world *w, struct way *way, const struct lane_run *run) {
        EXPECT(run->slot < N_SLOTS);
        way->n_leases[run->slot]++;
        for (uint32_t i = 0; i < way->lane.n_places; i++) {
                const struct player *p = find_player(w, way->lane.places[i].session);
                if (p)
                        EXPECT(way->n_leases[run->slot] <=
                                p->n_turns[run->slot] - way->n_turns_before[i][run->slot] + 1);
        }
}

static void note_run(struct world *w, const struct lane_run *run) {
        struct way *way = find_way(w, run->road);
        EXPECT(run->set == &way->sets[0].set || run->set == &way->sets[1].set);
        EXPECT(run->number == way->next_number++);
        EXPECT(run->status == STATUS_OK && run->key.n_bytes <= MAX_KEY_BYTES);
        EXPECT(run->last_place < way->lane.n_places && run->sealed_ns <= run->done_ns);
        way->n_runs++;
        for (uint32_t i = 0; i < way->lane.n_places; i++)
                check_half(w, run, i);
        if (run->set->slots)
                check_slot(w, way, run);
        if (!way->running || run->number + 1 != way->lane.next_number)
                return;
        EXPECT(way->running == run->set);
        lane_end_slot(run);
        way->running = NULL;
        if (way != w->doomed)
                return;
        w->doomed = NULL;
        way_free(way);
}

static void take_runs(struct world *w) {
        struct lane_run run;
        while (lanes_take_run(w->stage.lanes, &run))
                note_run(w, &run);
}

/* --- the loop thread --- */

static void open_road(struct world *w, uint32_t road) {
        struct way *way = w->ways[road];
        if (way && !way->lane.is_open && !way->running)
                lane_road_open(w->stage.lanes, &way->lane);
}

static void close_road(struct world *w, uint32_t road) {
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        struct way *way = w->ways[road];
        if (!way || !way->lane.is_open)
                return;
        way->running = lane_road_close(w->stage.lanes, &way->lane, starts, &n);
        EXPECT(n <= way->lane.n_places);
        take_runs(w);
        for (uint32_t i = 0; i < n; i++)
                note_handed(w, &starts[i]);
}

static void take_refused(struct world *w) {
        struct lane_road *refused;
        while ((refused = lanes_take_refused(w->stage.lanes)))
                for (uint32_t i = 0; i < N_ROADS; i++)
                        if (w->ways[i] && &w->ways[i]->lane == refused) {
                                EXPECT(refused->is_open);
                                close_road(w, i);
                        }
}

static void give_slots(struct world *w, struct way *way, const uint32_t *who) {
        way->slots = (struct slots){ .n = N_SLOTS, .stride_bytes = 4096, .all = way->all };
        for (uint32_t i = 0; i < way->lane.n_places; i++) {
                const struct player *p = &w->players[who[i]];
                const _Atomic uint64_t *word = &lane_words(p->client.lane)[who[i]];
                way->users[i] = (struct slot_user){ .rank = i, .word = word, .heard = atomic_load(word) };
                way->of[i] = &way->users[i];
                memcpy(way->n_turns_before[i], p->n_turns, sizeof(p->n_turns));
        }
        way->sets[0].set.slots = &way->slots;
        way->sets[0].set.users = way->of;
}

static void make_road(struct world *w, uint32_t road) {
        const uint32_t *who = &members[road][1], n = members[road][0];
        for (uint32_t i = 0; i < n; i++)
                if (w->ways[road] || !w->players[who[i]].is_there)
                        return;
        struct way *way = calloc(1, sizeof(*way));
        EXPECT(way);
        way->lane.epoch = road + 1;
        way->lane.next_number = way->next_number = 1000 * road;
        lane_road_init(&way->lane);
        for (uint32_t i = 0; i < n; i++) {
                const struct lane_place place = { .lane = w->players[who[i]].client.lane,
                        .session = w->players[who[i]].session,
                        .membership = membership_of(road, who[i]),
                        .rank = i };
                lane_road_add(w->stage.lanes, &way->lane, &place);
        }
        for (uint32_t i = 0; i < N_SETS; i++) {
                stage_set_init(&way->sets[i], &(struct stage_set_shape){ 1, 1, 100 * (i + 1) });
                list_append(&way->lane.sets, &way->sets[i].set.link);
        }
        if (road == SLOT_ROAD)
                give_slots(w, way, who);
        w->ways[road] = way;
}

static void forget_road(struct world *w, uint32_t road) {
        struct way *way = w->ways[road];
        if (!way)
                return;
        close_road(w, road);
        lane_road_deinit(w->stage.lanes, &way->lane);
        w->ways[road] = NULL;
        if (!way->running) {
                way_free(way);
                return;
        }
        EXPECT(!w->doomed);
        w->doomed = way;
}

static void new_client(struct world *w, uint32_t client) {
        struct player *p = &w->players[client];
        if (p->is_there || w->n_new == MAX_NEW)
                return;
        *p = (struct player){ .is_there = true, .session = ++w->n_new };
        stage_client_init(&w->stage, &p->client, p->session);
}

static bool take_start(struct world *w, uint32_t client) {
        struct lane_start start;
        struct player *p = &w->players[client];
        if (!p->is_there || !lane_take_start(w->stage.lanes, p->client.lane, &start))
                return false;
        EXPECT(start.session == p->session);
        note_handed(w, &start);
        return true;
}

static void free_client(struct world *w, uint32_t client) {
        struct player *p = &w->players[client];
        if (!p->is_there)
                return;
        for (uint32_t i = 0; i < N_ROADS; i++)
                for (uint32_t k = 0; w->ways[i] && k < members[i][0]; k++)
                        if (members[i][1 + k] == client)
                                forget_road(w, i);
        EXPECT(!lane_next_place(p->client.lane, NULL));
        p->is_there = false;
        (void)stage_client_end(&w->stage, &p->client);
}

/* --- clients --- */

/* Whether what was started last is copied, so that the slot may be written and what was started stays exact.
 */
static bool is_quiet(struct world *w, const struct player *p) {
        pthread_mutex_lock(&w->stage.lanes->lock);
        uint64_t start = atomic_load(&p->client.slot->start);
        bool is_quiet = start == p->client.lane->seen || start == p->client.lane->taken;
        pthread_mutex_unlock(&w->stage.lanes->lock);
        return is_quiet;
}

static void bump(struct player *p, uint64_t by) {
        p->client.n_starts += by;
        p->n_changes += by != 0;
        if (p->entry)
                p->entry->n_starts += by != 0;
        atomic_store(&p->client.slot->start, p->client.n_starts);
}

/* As libtutti does, for the place of a client on a road. */
static void start(struct world *w, uint32_t road, uint32_t place, uint32_t set, uint32_t key) {
        uint32_t client = members[road][1 + place];
        struct player *p = &w->players[client];
        if (!p->is_there || w->n_entries == MAX_WRITTEN)
                return;
        struct written *e = &w->entries[w->n_entries++];
        *e = (struct written){ .session = p->session, .is_exact = is_quiet(w, p) };
        e->start = (struct stage_start){ .request = w->n_entries,
                .prepared = 100 * (set + 1) + place,
                .membership = membership_of(road, client),
                .epoch = road + 1,
                .name = key < 4 ? NULL : w->names[key - 4],
                .number = key };
        if (p->entry && !e->is_exact)
                p->entry->is_exact = false;
        p->entry = e;
        stage_write(&p->client, &e->start);
        bump(p, 1);
        if (!atomic_load(&p->client.board->is_watched))
                stage_ring(&p->client);
}

/* A word that libtutti would not write there. A request that is made up shares no slot of the page with one
 * that is not. */
static void poke(struct player *p, uint32_t word, uint64_t value) {
        static const uint64_t values[8] = { 0, 1, 2, 11, 21, 129, UINT64_MAX, 1ull << 63 };
        struct lane_slot *slot = p->client.slot;
        value = values[value];
        if (p->entry)
                p->entry->is_exact = false;
        switch (word) {
        case 0: atomic_store(&slot->request, value * STATUS_PAGE_SLOTS); break;
        case 1: atomic_store(&slot->prepared, value + 99); break;
        case 2: atomic_store(&slot->membership, value); break;
        case 3: atomic_store(&slot->epoch, value); break;
        case 4: atomic_store(&slot->key_bytes, value); break;
        case 5: atomic_store(&slot->key[0], value); break;
        case 6: atomic_store(&slot->key[LANE_KEY_WORDS - 1], value); break;
        }
}

/* Bits of its word, whether it holds those slots or not. */
static void turn(struct world *w, uint32_t client, uint64_t bits) {
        struct player *p = &w->players[client];
        for (uint32_t slot = 0; slot < N_SLOTS; slot++)
                p->n_turns[slot] += bits >> slot & 1;
        atomic_fetch_xor(&p->client.slot->given_back[client], bits);
}

static void settle(struct world *w) {
        take_runs(w);
        for (uint32_t i = 0; i < N_CLIENTS && !w->is_held; i++)
                if (w->players[i].is_there)
                        stage_settle(&w->stage, &w->players[i].client);
}

static void hold(struct world *w, bool is_held) {
        w->is_held = is_held;
        fake_hold(w->stage.fake, is_held);
}

/* --- the play --- */

struct script {
        const uint8_t *data;
        size_t size, at;
};

/* The next byte: of digits their value. */
static uint32_t next(struct script *s) {
        return s->at < s->size ? s->data[s->at++] & 7 : 0;
}

static void play_client(struct world *w, char letter, uint32_t client, struct script *s) {
        struct player *p = &w->players[client];
        uint32_t a = letter == 'w' || letter == 'b' ? next(s) : 0, b = letter == 'w' ? next(s) : 0;
        if (letter == 'n')
                new_client(w, client);
        if (!p->is_there)
                return;
        switch (letter) {
        case 'x': free_client(w, client); break;
        case 'p': (void)take_start(w, client); break;
        case 'r': stage_ring(&p->client); break;
        case 'w':
                if (a == 7)
                        turn(w, client, b);
                else
                        poke(p, a, b);
                break;
        case 'b': bump(p, a == 7 ? UINT64_MAX : a); break; /* 7: backwards */
        }
}

static void play_road(struct world *w, char letter, uint32_t road, struct script *s) {
        switch (letter) {
        case 'm': make_road(w, road); break;
        case 'o': open_road(w, road); break;
        case 'c': close_road(w, road); break;
        case 'f': forget_road(w, road); break;
        case 's': { /* one client */
                uint32_t place = next(s) % members[road][0], set = next(s) % N_SETS, key = next(s);
                start(w, road, place, set, key);
                break;
        }
        case 'e': { /* every client */
                uint32_t set = next(s) % N_SETS, key = next(s);
                for (uint32_t i = 0; i < members[road][0]; i++)
                        start(w, road, i, set, key);
                break;
        }
        }
}

static void play(struct world *w, struct script *s) {
        while (s->at < s->size) {
                char letter = (char)s->data[s->at++];
                switch (letter) {
                case 'm':
                case 'o':
                case 'c':
                case 'f':
                case 's':
                case 'e': play_road(w, letter, next(s) % N_ROADS, s); break;
                case 'n':
                case 'x':
                case 'p':
                case 'r':
                case 'w':
                case 'b': play_client(w, letter, next(s) % N_CLIENTS, s); break;
                case 't': take_runs(w); break;
                case 'u': take_refused(w); break;
                case 'h': hold(w, true); break;
                case 'g': hold(w, false); break;
                case 'z': settle(w); break;
                }
        }
}

/* Whatever was played: all of it is taken, and then honest clients meet once on each road. */
static void meet_after_all(struct world *w) {
        hold(w, false);
        for (uint32_t i = 0; i < N_ROADS; i++)
                close_road(w, i);
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                while (take_start(w, i)) /* twice, where one that was copied has been taken back */
                        ;
        for (uint32_t i = 0; i < N_ROADS && w->n_entries + N_CLIENTS < MAX_WRITTEN; i++) {
                struct way *way = w->ways[i];
                if (!way)
                        continue;
                while (way->running)
                        take_runs(w);
                uint64_t n_runs = way->n_runs;
                open_road(w, i);
                for (uint32_t k = 0; k < members[i][0]; k++)
                        start(w, i, k, 1, 7);
                settle(w);
                take_runs(w);
                EXPECT(way->n_runs == n_runs + 1);
                take_refused(w);
                EXPECT(way->lane.is_open);
        }
}

static void set_up(struct world *w) {
        static const size_t lengths[4] = { 1, 8, MAX_KEY_BYTES - 1, MAX_KEY_BYTES };
        lane_stage_init(&w->stage);
        for (uint32_t i = 0; i < 4; i++)
                memset(w->names[i], 'k', lengths[i]);
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                new_client(w, i);
        for (uint32_t i = 0; i < N_ROADS; i++)
                make_road(w, i);
}

static void tear_down(struct world *w) {
        take_runs(w);
        for (uint32_t i = 0; i < N_ROADS; i++)
                forget_road(w, i);
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                free_client(w, i);
        lane_stage_stop(&w->stage);
        take_runs(w);
        EXPECT(!w->doomed);
        lane_stage_deinit(&w->stage);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct world *w = calloc(1, sizeof(*w));
        struct script script = { data, size, 0 };
        EXPECT(w);
        set_up(w);
        play(w, &script);
        meet_after_all(w);
        tear_down(w);
        free(w);
        return 0;
}
