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

/* A use of the key at hand. */
struct number {
        uint64_t number;
        bool is_done, are_inputs_kept;
};

struct bench {
        struct resume *const *members;
        uint32_t n_members;
        struct item *items;     /* by key */
        uint32_t *failures;     /* [n_members]: of the key at hand */
        struct number *numbers; /* of it, in order */
        uint32_t n_numbers;
        struct owed *owed; /* [MAX_OWED] */
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
        uint32_t fewest, most; /* failures that a member has counted */
        bool has_unnumbered;   /* somebody has a half of this key that has not begun */
        enum status status;    /* of one of them */
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

static int compare_numbers(const void *a, const void *b) {
        const struct number *x = a, *y = b;
        return (x->number > y->number) - (x->number < y->number);
}

/* Done anywhere is done everywhere; kept is what all keep. */
static void note_numbers(struct bench *b, struct run *run) {
        uint32_t n = 0;
        run->has_unnumbered = false;
        for (uint32_t i = 0; i < run->n; i++) {
                const struct page_report *r = run->items[i].report;
                if (r->request == 0)
                        continue;
                run->has_unnumbered |= r->state == PAGE_FREE;
                b->numbers[n++] = (struct number){ r->collective, r->state == PAGE_DONE, r->is_kept };
        }
        qsort(b->numbers, n, sizeof(*b->numbers), compare_numbers);
        b->n_numbers = 0;
        for (uint32_t i = 0; i < n; i++) {
                struct number *last = b->n_numbers ? &b->numbers[b->n_numbers - 1] : NULL;
                if (!last || last->number != b->numbers[i].number) {
                        b->numbers[b->n_numbers++] = b->numbers[i];
                        continue;
                }
                last->is_done |= b->numbers[i].is_done;
                last->are_inputs_kept &= b->numbers[i].are_inputs_kept;
        }
}

static const struct number *find_number(const struct bench *b, uint64_t number) {
        const struct number key = { .number = number };
        return bsearch(&key, b->numbers, b->n_numbers, sizeof(key), compare_numbers);
}

enum verdict { VERDICT_AGAIN, VERDICT_DONE, VERDICT_LOST };

/* Something may have run where everybody who is here with this key has the number. */
static enum verdict decide_begun(const struct bench *b, const struct run *run, const struct page_report *r) {
        if (r->state == PAGE_FREE)
                return VERDICT_AGAIN;
        const struct number *use = find_number(b, r->collective);
        if (use && use->is_done)
                return VERDICT_DONE;
        if (run->has_unnumbered || r->collective == 0 || !use || use->are_inputs_kept)
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
                verdicts[i] = decide_begun(b, run, run->items[i].report);
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

/* Below the fewest failures nobody owes anything, and at each level above somebody does. */
static void note_debts(struct bench *b, struct run *run) {
        run->fewest = UINT32_MAX;
        for (uint32_t i = 0; i < b->n_members; i++)
                if (b->failures[i] < run->fewest)
                        run->fewest = b->failures[i];
        for (uint32_t level = run->fewest; level < run->most && b->n_owed < MAX_OWED; level++) {
                struct owed owed = { .key = run->items[0].report->key, .status = run->status };
                for (uint32_t i = 0; i < b->n_members; i++)
                        if (b->failures[i] <= level)
                                rankset_add(&owed.debtors, b->members[i]->rank);
                b->owed[b->n_owed++] = owed; /* of one debtor at least */
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
                note_numbers(b, &run);
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
        CLEANUP_FREE struct number *numbers = malloc(n_items * sizeof(*numbers));
        CLEANUP_FREE struct owed *owed = malloc(MAX_OWED * sizeof(*owed));
        if (!items || !verdicts || !failures || !numbers || !owed)
                return -ENOMEM;
        struct bench b = { members, n, items, failures, numbers, 0, owed, 0 };
        decide_all(&b, verdicts);
        *ret_n_owed = b.n_owed;
        *ret_owed = take_pointer(owed);
        return 0;
}
