/* For architectures whose control word we do not know by name. */
#include "backends/host/host-float.h"

void float_state_enter(struct float_state *ret_before) {
        ret_before->is_changed = fegetenv(&ret_before->other) == 0;
        fesetenv(FE_DFL_ENV);
}

void float_state_leave(const struct float_state *before) {
        if (before->is_changed)
                fesetenv(&before->other);
}
