/* The handler leaves by siglongjmp. That is sound because only kernels run inside the guard: they hold no
 * lock, allocate nothing, and call nothing but memcpy. The signal mask is not saved on the way in, which
 * would cost a system call for each chunk: SA_NODEFER leaves SIGBUS unblocked in the handler, and the way out
 * puts back the mask that the fault has interrupted, in case somebody wrapped our handler in one that blocks
 * more (ThreadSanitizer does). */
#include "backends/guard.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

struct guard {
        volatile sig_atomic_t is_armed;
        const struct guarded_work *work;
        const struct memory *culprit;
        sigjmp_buf exit;
};

static _Thread_local struct guard guard;
static struct sigaction previous_action;

/* Back to what was there before. A fault happens again when we return, and then meets that; a signal that
 * somebody sent has to be sent again. */
static void pass_on(int signal, const siginfo_t *info) {
        sigaction(SIGBUS, &previous_action, NULL);
        if (info->si_code <= 0)
                raise(signal);
}

static void on_sigbus(int signal, siginfo_t *info, void *context) {
        const ucontext_t *interrupted = context;
        const struct memory *owner = NULL;
        /* si_addr has a meaning only in a signal that the kernel made of a fault. */
        if (guard.is_armed && info->si_code > 0)
                owner = guard.work->find_owner(guard.work, info->si_addr);
        if (!owner) {
                pass_on(signal, info);
                return;
        }
        guard.is_armed = 0;
        guard.culprit = owner;
        pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
        siglongjmp(guard.exit, 1);
}

int guard_install(void) {
        struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER }, old;
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGBUS, &action, &old) < 0)
                return -errno;
        if (!(old.sa_flags & SA_SIGINFO) || old.sa_sigaction != on_sigbus)
                previous_action = old;
        return 0;
}

int guard_thread_init(void) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGBUS);
        return -pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

bool guard_run(const struct guarded_work *work, const struct memory **ret_culprit) {
        CHECK(!guard.is_armed);
        guard.work = work;
        if (sigsetjmp(guard.exit, 0)) {
                *ret_culprit = guard.culprit;
                return false;
        }
        guard.is_armed = 1;
        atomic_signal_fence(memory_order_seq_cst);
        work->run(work);
        atomic_signal_fence(memory_order_seq_cst);
        guard.is_armed = 0;
        return true;
}
