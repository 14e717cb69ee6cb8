#include "lib/failure.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "model/field.h"
#include "model/status.h"

/* --- what tutti.h shows of the model --- */

void key_show(const struct key *k, char *buf, size_t size) {
        struct text t;
        text_init(&t, buf, size);
        key_print(k, &t);
        if (t.used >= 2 && buf[0] == '"') {
                memmove(buf, buf + 1, t.used - 2);
                buf[t.used - 2] = '\0';
        }
}

struct tutti_ranks ranks_show(const struct rankset *s) {
        struct tutti_ranks ranks;
        _Static_assert(sizeof(ranks) == sizeof(*s), "a set of ranks looks the same on both sides");
        memcpy(&ranks, s, sizeof(ranks));
        return ranks;
}

static void show_replica(const struct replica_report *r, char *last_key, struct tutti_replica *ret) {
        if (r->has_last)
                key_show(&r->last_key, last_key, KEY_TEXT_BYTES);
        *ret = (struct tutti_replica){
                .rank = r->rank,
                .pid = r->pid,
                .uid = r->uid,
                .state = (enum tutti_process_state)r->state,
                .last_key = r->has_last ? last_key : NULL,
                .last_age = (double)r->last_age_ns / 1e9,
                .busy = r->busy[0] ? r->busy : NULL,
        };
}

static void show_lists(struct failure *f) {
        const struct error *e = &f->error;
        f->info.n_classes = e->n_classes < MAX_ERROR_CLASSES ? e->n_classes : MAX_ERROR_CLASSES;
        f->info.classes = f->classes;
        for (uint32_t i = 0; i < f->info.n_classes; i++)
                f->classes[i] = (struct tutti_error_class){ .ranks = ranks_show(&e->classes[i].ranks),
                        .value = e->classes[i].value };
        f->info.n_replicas = e->n_replicas < MAX_ERROR_REPLICAS ? e->n_replicas : MAX_ERROR_REPLICAS;
        f->info.replicas = f->replicas;
        for (uint32_t i = 0; i < f->info.n_replicas; i++)
                show_replica(&e->replicas[i], f->last_keys[i], &f->replicas[i]);
}

static void show(struct failure *f) {
        const struct error *e = &f->error;
        if (e->has_key)
                key_show(&e->key, f->key, sizeof(f->key));
        error_print(e, f->text, sizeof(f->text));
        f->info = (struct tutti_error_info){
                .status = (enum tutti_status)e->status,
                .cause = (enum tutti_status)e->cause,
                .field = (enum tutti_field)e->field,
                .field_name = field_name(e->field),
                .loss = (enum tutti_loss)e->loss,
                .outputs_undefined = e->outputs_undefined,
                .job = e->job,
                .group = e->group,
                .key = f->key,
                .epoch = e->epoch,
                .entry = e->entry,
                .rank = e->rank,
                .have = ranks_show(&e->have),
                .missing = ranks_show(&e->missing),
                .age = (double)e->age_ns / 1e9,
                .used = e->used,
                .limit = e->limit,
                .detail = e->detail,
                .text = f->text,
        };
        show_lists(f);
}

struct failure *failure_new(const struct error *e) {
        struct failure *f = calloc(1, sizeof(*f));
        if (!f)
                return NULL;
        atomic_init(&f->n_refs, 1);
        f->error = *e;
        show(f);
        return f;
}

struct failure *failure_ref(struct failure *f) {
        if (f)
                atomic_fetch_add_explicit(&f->n_refs, 1, memory_order_relaxed);
        return f;
}

void failure_unref(struct failure *f) {
        if (f && atomic_fetch_sub_explicit(&f->n_refs, 1, memory_order_acq_rel) == 1)
                free(f);
}

/* --- what can be said without memory --- */

static struct tutti_error_info bare[N_STATUS + 1]; /* the last: a status that is not on the list */
static pthread_once_t bare_once = PTHREAD_ONCE_INIT;

static void bare_init(void) {
        for (unsigned int i = 0; i < ARRAY_SIZE(bare); i++)
                bare[i] = (struct tutti_error_info){
                        .status = (enum tutti_status)i,
                        .field_name = field_name(FIELD_UNSPECIFIED),
                        .job = "",
                        .group = "",
                        .key = "",
                        .entry = -1,
                        .rank = -1,
                        .detail = "",
                        .text = i == STATUS_OK ? "" : status_name((enum status)i),
                };
}

const struct tutti_error_info *failure_info(const struct failure *f, enum status status) {
        if (f)
                return &f->info;
        pthread_once(&bare_once, bare_init);
        return &bare[(unsigned int)status < N_STATUS ? (unsigned int)status : N_STATUS];
}

/* The arguments may point into *e. */
static void refuse_with(
        struct error *e, enum status status, enum field field, const char *format, va_list args) {
        char detail[sizeof(e->detail)];
        vsnprintf(detail, sizeof(detail), format, args);
        error_init(e, status);
        error_set(e, status, field, "%s", detail);
}

enum status refuse(struct error *e, enum status status, enum field field, const char *format, ...) {
        va_list args;
        va_start(args, format);
        refuse_with(e, status, field, format, args);
        va_end(args);
        return status;
}

enum status refuse_no_descriptor(struct error *e, const char *what) {
        struct rlimit limit = { 0 };
        getrlimit(RLIMIT_NOFILE, &limit);
        return refuse(e, STATUS_LIMIT, FIELD_DESCRIPTOR,
                "%s could not be received: this process has no descriptor left (RLIMIT_NOFILE = %llu)", what,
                (unsigned long long)limit.rlim_cur);
}

/* --- each thread's last failed call --- */

struct last {
        enum status status;
        struct failure *failure;
};

static _Thread_local struct last last;
static pthread_key_t last_key;
static pthread_once_t last_once = PTHREAD_ONCE_INIT;

static void last_free(void *failure) {
        last.failure = NULL;
        failure_unref(failure);
}

static void last_init(void) {
        CHECK(pthread_key_create(&last_key, last_free) == 0);
}

/* The key's value is the same failure once more, so that it goes with the thread. */
enum tutti_status thread_fail_with(enum status status, struct failure *f) {
        pthread_once(&last_once, last_init);
        failure_unref(last.failure);
        last = (struct last){ .status = status, .failure = f };
        if (pthread_setspecific(last_key, f) != 0) {
                last.failure = NULL;
                failure_unref(f);
        }
        return (enum tutti_status)status;
}

enum tutti_status thread_fail(const struct error *e) {
        return thread_fail_with(e->status, failure_new(e));
}

enum tutti_status thread_say(enum status status, enum field field, const char *format, ...) {
        struct error e;
        va_list args;
        va_start(args, format);
        refuse_with(&e, status, field, format, args);
        va_end(args);
        return thread_fail(&e);
}

enum tutti_status thread_say_forked(void) {
        struct error e;
        error_init(&e, STATUS_FORKED);
        return thread_fail(&e);
}

const char *tutti_error(void) {
        return failure_info(last.failure, last.status)->text;
}

const struct tutti_error_info *tutti_error_info(void) {
        return failure_info(last.failure, last.status);
}
