/* The memory cannot be taken away from who has it, nor be made smaller: it carries the seals that keep others
 * from doing so. */
#include "loan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/check.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/memfd.h"

#define SEALS          (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define FIRST_RETRY_NS (10 * NS_PER_MS)
#define LAST_RETRY_NS  (10 * NS_PER_S)
#define LOOKS_A_TURN   64

struct loan {
        struct loans *loans;
        uint32_t n_refs;
        void *at;
        size_t n_bytes;
        int fd;
        uint64_t delay_ns; /* before it is looked at again */
        struct alarm alarm;
        struct charge descriptor, memory;
};

struct loans {
        struct quotas *quotas;
        uint32_t n, n_lent;
        struct heap lingering;
};

int loans_new(struct loans **ret, struct quotas *quotas) {
        struct loans *l = calloc(1, sizeof(*l));
        if (!l)
                return -ENOMEM;
        l->quotas = quotas;
        heap_init(&l->lingering);
        *ret = l;
        return 0;
}

/* Half-built ones too. */
static void loan_free(struct loan *loan) {
        if (loan->at)
                munmap(loan->at, loan->n_bytes);
        fd_close(&loan->fd);
        charge_release(&loan->descriptor);
        charge_release(&loan->memory);
        free(loan);
}

static struct loan *loans_take_due(struct loans *l, uint64_t now_ns) {
        struct alarm *a = heap_take_due(&l->lingering, now_ns);
        return a ? list_entry(a, struct loan, alarm) : NULL;
}

static void loan_end(struct loan *loan) {
        loan->loans->n--;
        loan_free(loan);
}

void loans_free(struct loans *l) {
        struct loan *loan;
        if (!l)
                return;
        CHECK(l->n_lent == 0);
        while ((loan = loans_take_due(l, ALARM_NEVER - 1)))
                loan_end(loan);
        heap_deinit(&l->lingering);
        free(l);
}

/* --- making --- */

/* What the client writes is there from the beginning: where its first store falls is not ours to pay late. */
static int loan_fill(struct loan *loan, enum loan_access access) {
        const int populate = access == LOAN_WRITE ? MAP_POPULATE : 0;
        if (ftruncate(loan->fd, (off_t)loan->n_bytes) < 0)
                return -errno;
        if (access == LOAN_WRITE && fallocate(loan->fd, 0, 0, (off_t)loan->n_bytes) < 0)
                return -errno;
        void *at = mmap(NULL, loan->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, loan->fd, 0);
        if (at == MAP_FAILED)
                return -errno;
        loan->at = at;
        /* After our own mapping. */
        const int seals = SEALS | (access == LOAN_READ ? F_SEAL_FUTURE_WRITE : 0);
        return fcntl(loan->fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

static int loan_open(struct loan *loan, const struct loan_ask *ask, int *ret_fd) {
        loan->fd = memfd_new(ask->name, 0);
        int r = loan->fd < 0 ? loan->fd : loan_fill(loan, ask->access);
        if (r < 0)
                return r;
        r = memfd_open_anew(loan->fd, O_RDONLY);
        if (r >= 0)
                *ret_fd = r;
        return r < 0 ? r : 0;
}

static enum status loan_charge(struct loan *loan, uint32_t uid, struct error *err) {
        struct quotas *q = loan->loans->quotas;
        enum status status =
                quota_charge(q, &loan->memory, uid, QUOTA_MEMORY_BYTES, loan->n_bytes + sizeof(*loan), err);
        return status == STATUS_OK ? quota_charge(q, &loan->descriptor, uid, QUOTA_DESCRIPTORS, 1, err)
                                   : status;
}

static enum status fail(struct error *err, const struct loan_ask *ask, int r) {
        enum status status = r == -EMFILE || r == -ENFILE ? STATUS_LIMIT : STATUS_NO_MEMORY;
        return error_set(err, status, FIELD_UNSPECIFIED, "%s of %zu bytes cannot be made: %s", ask->name,
                ask->n_bytes, strerror(-r));
}

enum status loan_make(
        struct loans *l, const struct loan_ask *ask, struct loan **ret, int *ret_fd, struct error *err) {
        struct loan *loan = calloc(1, sizeof(*loan));
        if (!loan)
                return fail(err, ask, -ENOMEM);
        *loan = (struct loan){ .loans = l, .n_refs = 1, .n_bytes = ask->n_bytes, .fd = -1 };
        alarm_init(&loan->alarm);
        enum status status = loan_charge(loan, ask->uid, err);
        int r = status == STATUS_OK ? heap_reserve(&l->lingering, l->n + 1) : 0;
        if (status == STATUS_OK && r == 0)
                r = loan_open(loan, ask, ret_fd);
        if (r < 0)
                status = fail(err, ask, r);
        if (status != STATUS_OK) {
                loan_free(loan);
                return status;
        }
        l->n++;
        l->n_lent++;
        *ret = loan;
        return STATUS_OK;
}

/* --- lent --- */

void *loan_memory(const struct loan *loan) {
        return loan->at;
}

struct loan *loan_ref(struct loan *loan) {
        loan->n_refs++;
        return loan;
}

void loan_unref(struct loan *loan) {
        if (!loan || --loan->n_refs > 0)
                return;
        munmap(loan->at, loan->n_bytes);
        loan->at = NULL;
        loan->loans->n_lent--;
        heap_set(&loan->loans->lingering, &loan->alarm, 0); /* looked at in the next turn */
}

void loan_keep(struct loans *l, int fd, struct charge *descriptor, struct charge *memory) {
        struct loan *loan = fd < 0 ? NULL : calloc(1, sizeof(*loan));
        if (!loan || heap_reserve(&l->lingering, l->n + 1) < 0) {
                free(loan);
                fd_close(&fd);
                charge_release(descriptor);
                charge_release(memory);
                return;
        }
        *loan = (struct loan){ .loans = l, .fd = fd, .descriptor = *descriptor, .memory = *memory };
        *descriptor = *memory = (struct charge){ 0 };
        alarm_init(&loan->alarm);
        heap_set(&l->lingering, &loan->alarm, 0);
        l->n++;
}

/* --- lingering --- */

uint32_t loans_n_lingering(const struct loans *l) {
        return l->n - l->n_lent;
}

uint64_t loans_next_ns(const struct loans *l) {
        return heap_next_ns(&l->lingering);
}

void loans_expire(struct loans *l, uint64_t now_ns) {
        struct loan *loan;
        for (int i = 0; i < LOOKS_A_TURN && (loan = loans_take_due(l, now_ns)); i++) {
                if (!memfd_is_had(loan->fd)) {
                        loan_end(loan);
                        continue;
                }
                uint64_t delay_ns = loan->delay_ns ? 2 * loan->delay_ns : FIRST_RETRY_NS;
                loan->delay_ns = delay_ns < LAST_RETRY_NS ? delay_ns : LAST_RETRY_NS;
                heap_set(&l->lingering, &loan->alarm, now_ns + loan->delay_ns);
        }
}
