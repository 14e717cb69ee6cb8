/* Runs work so that a bad access in it does not end the process: it breaks the contexts, as on a device. */
#include "fake.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>

static __thread sigjmp_buf *escape;
static struct sigaction old_segv, old_bus;

static void on_bad_access(int number, siginfo_t *info, void *context) {
        if (escape)
                siglongjmp(*escape, 1);
        const struct sigaction *old = number == SIGBUS ? &old_bus : &old_segv;
        if (old->sa_flags & SA_SIGINFO)
                old->sa_sigaction(number, info, context);
        else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN)
                old->sa_handler(number);
        else
                signal(number, SIG_DFL); /* on return it happens again */
}

/* Again before each piece of work: the program may have set a handler of its own meanwhile. */
static void install(int number, struct sigaction *old) {
        struct sigaction now, action = { .sa_sigaction = on_bad_access, .sa_flags = SA_SIGINFO | SA_NODEFER };
        sigaction(number, NULL, &now);
        if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bad_access)
                return;
        sigemptyset(&action.sa_mask);
        sigaction(number, &action, old);
}

void fake_guard_begin(void) {
        install(SIGSEGV, &old_segv);
        install(SIGBUS, &old_bus);
}

void fake_guard_end(void) {
        struct sigaction now;
        sigaction(SIGSEGV, NULL, &now);
        if (now.sa_sigaction == on_bad_access)
                sigaction(SIGSEGV, &old_segv, NULL);
        sigaction(SIGBUS, NULL, &now);
        if (now.sa_sigaction == on_bad_access)
                sigaction(SIGBUS, &old_bus, NULL);
}

void fake_guarded(void (*run)(void *), void *argument) {
        sigjmp_buf here;
        if (sigsetjmp(here, 1)) {
                escape = NULL;
                fake_stick(CUDA_ERROR_ILLEGAL_ADDRESS);
                return;
        }
        escape = &here;
        run(argument);
        escape = NULL;
}
