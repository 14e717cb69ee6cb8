/* Faults: what is to go wrong in which call. Those of the environment belong to this process alone; those of
 * the page were set by a test, for one process or for many, which then count their calls together. */
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct fake_fault own_faults[FAKE_MAX_FAULTS];
static int n_own;

static void bad_setting(const char *variable, const char *text) {
        fprintf(stderr, "fakecuda: %s does not say call:number[=CODE]: %s\n", variable, text);
        abort();
}

/* "cuMemAlloc:3+=CUDA_ERROR_OUT_OF_MEMORY" */
static void parse(const char *variable, enum fake_action action, const char *text, size_t n_chars) {
        char spec[128], *end;
        if (n_chars >= sizeof(spec) || n_own == FAKE_MAX_FAULTS)
                bad_setting(variable, text);
        memcpy(spec, text, n_chars);
        spec[n_chars] = 0;
        const char *colon = strchr(spec, ':');
        if (!colon)
                bad_setting(variable, spec);
        struct fake_fault *f = &own_faults[n_own++];
        bool is_any = spec[0] == '*';
        f->call = is_any ? N_FAKE_CALLS : fake_call_find(spec, (unsigned int)(colon - spec));
        unsigned long n = strtoul(colon + 1, &end, 10);
        f->repeats = *end == '+' || action == FAKE_SLOW;
        end += *end == '+';
        f->code = *end == '=' ? fake_error_named(end + 1, strlen(end + 1)) : 0;
        if ((f->call == N_FAKE_CALLS && !is_any) || (*end && *end != '=') || f->code < 0 || n == 0)
                bad_setting(variable, spec);
        f->action = action;
        f->ms = action == FAKE_SLOW ? (uint32_t)n : 0;
        atomic_store(&f->n_left, action == FAKE_SLOW ? 1 : (int64_t)n);
        atomic_store(&f->is_armed, 1);
}

static void read_variable(const char *variable, enum fake_action action) {
        const char *text = getenv(variable);
        while (text && *text) {
                size_t n = strcspn(text, ",");
                parse(variable, action, text, n);
                text += n + (text[n] == ',');
        }
}

/* FAKECUDA_ONLY=NAME: the faults of the environment are for the program of this name alone. */
static bool is_for_me(void) {
        const char *only = getenv("FAKECUDA_ONLY");
        const char *name = strrchr(program_invocation_name, '/');
        return !only || !*only || !strcmp(only, name ? name + 1 : program_invocation_name);
}

void fake_faults_init(void) {
        if (n_own || !is_for_me())
                return;
        read_variable("FAKECUDA_FAIL", FAKE_FAIL);
        read_variable("FAKECUDA_STICKY", FAKE_STICKY);
        read_variable("FAKECUDA_HANG", FAKE_HANG);
        read_variable("FAKECUDA_STALL", FAKE_STALL);
        read_variable("FAKECUDA_SLOW", FAKE_SLOW);
        read_variable("FAKECUDA_ASYNC", FAKE_ASYNC);
}

static bool is_same_call(uint32_t of_fault, enum fake_call call) {
        if (of_fault == N_FAKE_CALLS)
                return call < CALL_ncclGetVersion && call != CALL_cuGetErrorName &&
                       call != CALL_cuGetErrorString;
        return of_fault == call || (of_fault == CALL_cuLaunchKernel && call == CALL_cuLaunchKernelEx);
}

static bool strikes(struct fake_fault *f, enum fake_call call) {
        if (!atomic_load(&f->is_armed) || !is_same_call(f->call, call) ||
                !fake_process_is(fake.process, f->who))
                return false;
        int64_t left = atomic_fetch_sub(&f->n_left, 1);
        return left == 1 || (left < 1 && f->repeats);
}

static void sleep_ms(uint32_t ms) {
        nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static void apply(struct fake_fault *f, struct fake_verdict *v) {
        switch ((enum fake_action)f->action) {
        case FAKE_FAIL: v->result = (CUresult)f->code; break;
        case FAKE_STICKY: v->sticky = f; break;
        case FAKE_HANG:
                while (atomic_load(&f->is_armed))
                        sleep_ms(5);
                break;
        case FAKE_STALL: v->stall = f; break;
        case FAKE_SLOW: v->slow_ms += f->ms; break;
        case FAKE_ASYNC: v->async = f; break;
        case FAKE_TRY: fake_try_all(fake.page); break;
        }
}

/* Calls that put work into a stream: their work is slow or sticks, they themselves return. */
static bool adds_work(enum fake_call call) {
        const char *name = fake_call_name(call);
        size_t n = strlen(name);
        return strstr(name, "Value") || strstr(name, "Launch") || call == CALL_cuStreamBatchMemOp ||
               call == CALL_cuEventRecord || call == CALL_cuStreamWaitEvent || call == CALL_ncclAllReduce ||
               call == CALL_ncclReduce || call == CALL_ncclBroadcast || !strncmp(name, "cuMemcpy", 8) ||
               !strncmp(name, "cuMemset", 8) || (n > 5 && !strcmp(name + n - 5, "Async"));
}

struct fake_verdict fake_judge(enum fake_call call) {
        struct fake_verdict v = { .result = CUDA_SUCCESS };
        if (!fake.process)
                return v;
        for (int i = 0; i < n_own; i++)
                if (strikes(&own_faults[i], call))
                        apply(&own_faults[i], &v);
        for (int i = 0; i < FAKE_MAX_FAULTS; i++)
                if (strikes(&fake.page->faults[i], call))
                        apply(&fake.page->faults[i], &v);
        if (adds_work(call))
                return v;
        if (v.slow_ms)
                sleep_ms(v.slow_ms);
        if (v.sticky) {
                v.result = v.sticky->code ? (CUresult)v.sticky->code : CUDA_ERROR_ILLEGAL_ADDRESS;
                fake_stick(v.result);
        }
        return v;
}

static bool holds(struct fake_hold *h, enum fake_call call) {
        return atomic_load(&h->is_armed) && (h->call == N_FAKE_CALLS || is_same_call(h->call, call)) &&
               fake_process_is(fake.process, h->who);
}

bool fake_is_held(enum fake_call call) {
        for (int i = 0; i < FAKE_MAX_HOLDS; i++)
                if (holds(&fake.page->holds[i], call) && atomic_load(&fake.page->holds[i].n_allowed) <= 0)
                        return true;
        return false;
}

bool fake_takes_allowance(enum fake_call call) {
        for (int i = 0; i < FAKE_MAX_HOLDS; i++) {
                struct fake_hold *h = &fake.page->holds[i];
                if (holds(h, call) && atomic_fetch_sub(&h->n_allowed, 1) <= 0) {
                        atomic_fetch_add(&h->n_allowed, 1);
                        return false;
                }
        }
        return true;
}
