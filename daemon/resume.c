#include "resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"

/* --- what a member says --- */

struct resume *resume_new(void) {
        return calloc(1, sizeof(struct resume));
}

void resume_free(struct resume *resume) {
        if (!resume)
                return;
        charge_release(&resume->charge);
        free(resume->reports);
        free(resume);
}

uint64_t resume_bytes(const struct resume *resume) {
        return sizeof(*resume) + resume->capacity * sizeof(*resume->reports);
}

static int make_room(struct resume *resume, uint32_t n) {
        uint32_t capacity = resume->capacity ? resume->capacity : 16;
        while (capacity < n)
                capacity *= 2;
        if (capacity == resume->capacity)
                return 0;
        struct page_report *reports = realloc(resume->reports, capacity * sizeof(*reports));
        if (!reports)
                return -ENOMEM;
        resume->reports = reports;
        resume->capacity = capacity;
        return 0;
}

int resume_add(struct resume *resume, const struct msg_pages *pages) {
        if (pages->n_reports > MAX_REPORTS - resume->n)
                return -E2BIG;
        int r = make_room(resume, resume->n + pages->n_reports);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < pages->n_reports; i++)
                if (pages->reports[i].has_key)
                        resume->reports[resume->n++] = pages->reports[i];
        return 0;
}

void resume_end(struct resume *resume, enum status status) {
        for (uint32_t i = 0; i < resume->n; i++) {
                struct page_report *r = &resume->reports[i];
                if (r->state == PAGE_DONE || r->state == PAGE_FAILED)
                        continue;
                r->state = PAGE_FAILED;
                r->status = status;
        }
}

/* --- all reports of one key --- */

struct item {
        struct page_report *report;
        uint32_t member; /* index */
};

struct bench {
        struct resume *const *members;
        uint32_t n_members;
        struct item *items; /* by key */
        uint32_t *failures; /* [n_members]: of the key at hand */
        struct owed *owed;  /* [MAX_OWED] */
        uint32_t n_owed;
};

static int compare_keys(const struct key *a, const struct key *b) {
        if (a->n_bytes != b->n_bytes)
                return a->n_bytes < b->n_bytes ? -1 : 1;
        if (a->n_bytes > 0)
                return memcmp(a->bytes, b->bytes, a->n_bytes);
        return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

static int compare_items(const void *a, const void *b) {
        const struct item *x = a, *y = b;
        return compare_keys(&x->report->key, &y->report->key);
}

struct run {
        struct item *items;
        uint32_t n;
        uint32_t most;      /* failures that some member has counted */
        enum status status; /* of one of them */
};

static void count_failures(struct bench *b, struct run *run) {
        memset(b->failures, 0, b->n_members * sizeof(*b->failures));
        run->most = 0;
        run->status = STATUS_OK;
        for (uint32_t i = 0; i < run->n; i++) {
                const struct page_report *r = run->items[i].report;
                uint32_t *failures = &b->failures[run->items[i].member];
                uint32_t n = r->request == 0 ? r->n_failed : r->state == PAGE_FAILED;
                *failures = n > UINT32_MAX - *failures ? UINT32_MAX : *failures + n;
                if (n > 0 && (run->status == STATUS_OK || *failures > run->most))
                        run->status = r->status;
                if (*failures > run->most)
                        run->most = *failures;
        }
}

static bool is_done(const struct run *run, uint64_t number) {
        for (uint32_t i = 0; i < run->n; i++)
                if (run->items[i].report->request != 0 && run->items[i].report->state == PAGE_DONE &&
                        run->items[i].report->collective == number)
                        return true;
        return false;
}

/* Something may have run: everybody who is here with this key has the number. */
static bool may_have_run(const struct run *run, uint64_t number) {
        for (uint32_t i = 0; i < run->n; i++) {
                const struct page_report *r = run->items[i].report;
                if (r->request != 0 && r->state == PAGE_FREE)
                        return false;
        }
        return number != 0;
}

static bool inputs_are_kept(const struct run *run, uint64_t number) {
        for (uint32_t i = 0; i < run->n; i++) {
                const struct page_report *r = run->items[i].report;
                if (r->request != 0 && r->collective == number && !r->is_kept)
                        return false;
        }
        return true;
}

enum verdict { VERDICT_AGAIN, VERDICT_DONE, VERDICT_LOST };

static enum verdict decide_begun(const struct run *run, const struct page_report *r) {
        if (r->state == PAGE_FREE)
                return VERDICT_AGAIN;
        if (is_done(run, r->collective))
                return VERDICT_DONE;
        if (!may_have_run(run, r->collective) || inputs_are_kept(run, r->collective))
                return VERDICT_AGAIN;
        return VERDICT_LOST;
}

static void set_state(struct page_report *r, enum page_state state, enum status status) {
        r->state = state;
        r->status = status;
}

/* What is lost counts as a failure for all who have it alike, so it changes no debts. */
static void decide_run(struct bench *b, const struct run *run, enum verdict *verdicts) {
        for (uint32_t i = 0; i < run->n; i++) /* all, before any of them changes */
                verdicts[i] = decide_begun(run, run->items[i].report);
        for (uint32_t i = 0; i < run->n; i++) {
                struct page_report *r = run->items[i].report;
                uint32_t *failures = &b->failures[run->items[i].member];
                if (r->request == 0 || r->state == PAGE_FAILED)
                        continue;
                if (verdicts[i] == VERDICT_DONE) {
                        set_state(r, PAGE_DONE, STATUS_OK);
                } else if (*failures < run->most) {
                        /* What has a number was there itself; anything else is late. */
                        bool is_late = r->state == PAGE_FREE;
                        set_state(r, PAGE_FAILED, is_late ? STATUS_EXPIRED : run->status);
                        r->cause = run->status;
                        ++*failures;
                } else if (verdicts[i] == VERDICT_LOST) {
                        set_state(r, PAGE_FAILED, STATUS_OUTPUT_LOST);
                } else {
                        set_state(r, PAGE_FREE, STATUS_OK);
                }
        }
}

static void note_debts(struct bench *b, const struct run *run) {
        for (uint32_t level = 0; level < run->most && b->n_owed < MAX_OWED; level++) {
                struct owed owed = { .key = run->items[0].report->key, .status = run->status };
                for (uint32_t i = 0; i < b->n_members; i++)
                        if (b->failures[i] <= level)
                                rankset_add(&owed.debtors, b->members[i]->rank);
                if (!rankset_is_empty(&owed.debtors))
                        b->owed[b->n_owed++] = owed;
        }
}

/* --- all keys --- */

static uint32_t collect(const struct bench *b) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < b->n_members; i++)
                for (uint32_t k = 0; k < b->members[i]->n; k++)
                        b->items[n++] = (struct item){ &b->members[i]->reports[k], i };
        return n;
}

static void decide_all(struct bench *b, enum verdict *verdicts) {
        uint32_t n = collect(b);
        qsort(b->items, n, sizeof(*b->items), compare_items);
        for (uint32_t from = 0, to; from < n; from = to) {
                for (to = from + 1; to < n && compare_items(&b->items[from], &b->items[to]) == 0; to++)
                        ;
                struct run run = { .items = &b->items[from], .n = to - from };
                count_failures(b, &run);
                decide_run(b, &run, verdicts);
                note_debts(b, &run);
        }
}

int resume_decide(struct resume *const *members, uint32_t n, struct owed **ret_owed, uint32_t *ret_n_owed) {
        size_t n_items = 1;
        for (uint32_t i = 0; i < n; i++)
                n_items += members[i]->n;
        CLEANUP_FREE struct item *items = malloc(n_items * sizeof(*items));
        CLEANUP_FREE enum verdict *verdicts = malloc(n_items * sizeof(*verdicts));
        CLEANUP_FREE uint32_t *failures = malloc((n + 1) * sizeof(*failures));
        CLEANUP_FREE struct owed *owed = malloc(MAX_OWED * sizeof(*owed));
        if (!items || !verdicts || !failures || !owed)
                return -ENOMEM;
        struct bench b = { members, n, items, failures, owed, 0 };
        decide_all(&b, verdicts);
        *ret_n_owed = b.n_owed;
        *ret_owed = take_pointer(owed);
        return 0;
}
