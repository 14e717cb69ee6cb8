/* SSE, AVX and AVX-512 obey MXCSR alone; fenv.h would also reload the x87 unit, which is slow. */
#include <xmmintrin.h>
#include "backends/host/host-float.h"

#define MXCSR_WANTED 0x1f80u /* as at the start of a process: all exceptions masked */
#define MXCSR_FLAGS  0x003fu /* what has happened so far */

void float_state_enter(struct float_state *ret_before) {
        ret_before->control = _mm_getcsr();
        ret_before->is_changed = (ret_before->control & ~MXCSR_FLAGS) != MXCSR_WANTED;
        if (ret_before->is_changed)
                _mm_setcsr(MXCSR_WANTED);
}

void float_state_leave(const struct float_state *before) {
        if (before->is_changed)
                _mm_setcsr(before->control);
}
