#include "confine-filter.h"

#include <errno.h>
#include "base/cleanup.h"

DEFINE_CLEANUP(void, seccomp_release)

/* For all threads, also those of a library. A refusal is noted in the audit log, which costs only who is
 * refused. */
static int set_attributes(scmp_filter_ctx filter) {
        int r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
        if (r == 0)
                r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
        if (r == 0 && seccomp_api_get() >= 3)
                r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
        return r;
}

static int make(scmp_filter_ctx filter, int (*add_rules)(scmp_filter_ctx filter)) {
        int r = set_attributes(filter);
        if (r == 0)
                r = add_rules(filter);
        /* Its flags lie behind a pointer; without it the C library uses clone. */
        return r < 0 ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

const char *confine_load(uint32_t otherwise, int (*add_rules)(scmp_filter_ctx filter)) {
        CLEANUP(seccomp_releasep) void *filter = seccomp_init(otherwise);
        errno = 0;
        if (!filter)
                return "libseccomp is short of memory";
        int r = make(filter, add_rules);
        if (r < 0) {
                errno = -r;
                return "libseccomp cannot make the filter";
        }
        r = seccomp_load(filter);
        errno = -r;
        return r < 0 ? "the kernel takes no seccomp filter" : NULL;
}
