#include "base/regret.h"

#include "base/clock.h"

#define LATE_NS     NS_PER_MS
#define GOOD_NS     (30 * NS_PER_MS / 1000)
#define LATE_SHARE  8
#define BANK_NS     (int64_t) NS_PER_MS
#define MAX_BANK_NS (4 * BANK_NS)
#define OFF_NS      (100 * NS_PER_MS)
#define MAX_OFF_NS  (500 * NS_PER_MS)

void regret_init(struct regret *r) {
        *r = (struct regret){ .bank_ns = BANK_NS };
}

bool regret_may_yield(const struct regret *r, uint64_t now_ns) {
        return now_ns >= r->off_until_ns;
}

static void note_late(struct regret *r, uint64_t late_ns, uint64_t now_ns) {
        r->bank_ns -= (int64_t)(late_ns / LATE_SHARE);
        if (r->bank_ns >= 0)
                return;
        r->off_ns = r->off_ns ? 2 * r->off_ns : OFF_NS;
        if (r->off_ns > MAX_OFF_NS)
                r->off_ns = MAX_OFF_NS;
        r->off_until_ns = now_ns + r->off_ns;
        r->bank_ns = 0;
}

void regret_note(struct regret *r, uint64_t late_ns, uint64_t now_ns) {
        if (late_ns >= LATE_NS) {
                note_late(r, late_ns, now_ns);
                return;
        }
        r->bank_ns += (int64_t)GOOD_NS;
        if (r->bank_ns > MAX_BANK_NS)
                r->bank_ns = MAX_BANK_NS;
        if (r->bank_ns > MAX_BANK_NS / 2)
                r->off_ns = 0;
}
