#include "worker-protocol.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "config.h"
#include "worker-records.h"

/* Raised whenever what is said, or what it means, changes. */
#define WORKER_DIALECT 3

const char *worker_build(void) {
        static char build[WORKER_BUILD_BYTES];
        snprintf(build, sizeof(build), "tutti %s, dialect %d.%zu", TUTTI_VERSION, WORKER_DIALECT,
                sizeof(struct record_step) + sizeof(struct record_operand) + sizeof(struct worker_run) +
                        sizeof(struct worker_import) + sizeof(struct worker_run_done) +
                        sizeof(struct worker_device));
        return build;
}

uint32_t worker_record_bytes(uint32_t record) {
        static const uint32_t bytes[N_RECORD] = {
                [RECORD_SIGNALS] = sizeof(struct record_signal),
                [RECORD_SCRATCH] = sizeof(struct record_scratch),
                [RECORD_STEPS] = sizeof(struct record_step),
                [RECORD_OPERANDS] = sizeof(struct record_operand),
                [RECORD_STRIDES] = sizeof(uint64_t),
        };
        return record < N_RECORD ? bytes[record] : 0;
}

/* --- lengths --- */

static size_t part_bytes(const struct worker_part *p) {
        return offsetof(struct worker_part, records) + (size_t)p->n_records * worker_record_bytes(p->record);
}

static size_t sums_bytes(const struct worker_sums *s) {
        return offsetof(struct worker_sums, sums) + (size_t)s->n * sizeof(*s->sums);
}

static size_t lengths_bytes(const struct worker_lengths *l) {
        return offsetof(struct worker_lengths, lengths) + (size_t)l->n * sizeof(*l->lengths);
}

/* Without what comes behind, in those that have a tail. */
static size_t fixed_bytes(uint32_t verb) {
        static const size_t bytes[] = {
                [WORKER_SETTINGS] = sizeof(struct worker_settings),
                [WORKER_IMPORT] = sizeof(struct worker_import),
                [WORKER_RELEASE] = sizeof(struct worker_release),
                [WORKER_RUN] = sizeof(struct worker_run),
                [WORKER_PART] = offsetof(struct worker_part, records),
                [WORKER_PING] = sizeof(struct worker_ping),
                [WORKER_HELLO] = sizeof(struct worker_hello),
                [WORKER_DEVICE] = sizeof(struct worker_device),
                [WORKER_FALLBACK] = sizeof(struct worker_fallback),
                [WORKER_READY] = sizeof(struct worker_ready),
                [WORKER_OFF] = sizeof(struct worker_off),
                [WORKER_CHORE_DONE] = sizeof(struct worker_chore_done),
                [WORKER_RUN_LAUNCHED] = sizeof(struct worker_run_launched),
                [WORKER_SUMS] = offsetof(struct worker_sums, sums),
                [WORKER_LENGTHS] = offsetof(struct worker_lengths, lengths),
                [WORKER_RUN_DONE] = sizeof(struct worker_run_done),
                [WORKER_PONG] = sizeof(struct worker_ping),
        };
        return verb < ARRAY_SIZE(bytes) ? bytes[verb] : 0;
}

size_t worker_packet_bytes(const union worker_packet *p) {
        if (p->head.verb == WORKER_PART)
                return part_bytes(&p->part);
        if (p->head.verb == WORKER_LENGTHS)
                return lengths_bytes(&p->lengths);
        return p->head.verb == WORKER_SUMS ? sums_bytes(&p->sums) : fixed_bytes(p->head.verb);
}

/* --- what they hold --- */

static bool is_text(const char *s, size_t size) {
        return memchr(s, '\0', size) != NULL;
}

static bool import_is_well(const struct worker_import *i) {
        uint32_t n_fds = i->head.n_fds;
        if (i->number == 0 || i->access > ACCESS_INOUT)
                return false;
        switch (i->path) {
        case PATH_MEMFD:
        case PATH_EVENTS:
        case PATH_VMM_FD: return n_fds == 1;
        case PATH_VMM_MADE: return n_fds <= 1;
        case PATH_CUDA_IPC: return n_fds == 0;
        }
        return false;
}

static bool run_is_well(const struct worker_run *r) {
        return r->head.ticket != 0 && r->order <= ORDER_LIBRARY && r->has_sums <= 1 && r->is_shared <= 1 &&
               r->chunk_bytes > 0 && r->chunk_bytes % 64 == 0 && r->n_signals <= WORKER_MAX_RECORDS &&
               r->n_scratch <= WORKER_MAX_RECORDS && r->n_steps > 0 && r->n_steps <= WORKER_MAX_RECORDS &&
               r->n_operands <= WORKER_MAX_RECORDS && r->n_strides <= WORKER_MAX_RECORDS &&
               r->n_lengths <= WORKER_MAX_RECORDS;
}

static bool part_is_well(const struct worker_part *p) {
        return p->record < N_RECORD && p->n_records > 0 &&
               p->n_records <= WORKER_PART_BYTES / worker_record_bytes(p->record);
}

static bool device_is_well(const struct worker_device *d) {
        uint8_t has[3];
        memcpy(&has[0], &d->report.has_timeline, 1);
        memcpy(&has[1], &d->report.has_library, 1);
        memcpy(&has[2], &d->report.has_events, 1);
        const uint64_t granularity = d->report.granularity;
        return d->device < d->n_devices && d->n_devices <= MAX_GPU_DEVICES && has[0] <= 1 && has[1] <= 1 &&
               has[2] <= 1 && (granularity & (granularity - 1)) == 0 &&
               is_text(d->report.uuid, sizeof(d->report.uuid)) &&
               is_text(d->report.name, sizeof(d->report.name)) &&
               is_text(d->report.describe, sizeof(d->report.describe)) &&
               is_text(d->report.ways, sizeof(d->report.ways)) &&
               is_text(d->report.why, sizeof(d->report.why));
}

static bool said_by_tuttid_is_well(const union worker_packet *p) {
        switch ((enum worker_verb)p->head.verb) {
        case WORKER_SETTINGS:
                return p->settings.takes_ipc <= 1 && p->settings.log_level <= LOG_LEVEL_DEBUG &&
                       p->settings.confine <= CONFINE_NO;
        case WORKER_IMPORT: return import_is_well(&p->import);
        case WORKER_RELEASE: return p->release.number != 0;
        case WORKER_RUN: return run_is_well(&p->run);
        case WORKER_PART: return part_is_well(&p->part);
        case WORKER_PING: return true;
        case WORKER_HELLO:
        case WORKER_DEVICE:
        case WORKER_FALLBACK:
        case WORKER_READY:
        case WORKER_OFF:
        case WORKER_CHORE_DONE:
        case WORKER_RUN_LAUNCHED:
        case WORKER_SUMS:
        case WORKER_LENGTHS:
        case WORKER_RUN_DONE:
        case WORKER_PONG: break;
        }
        return false;
}

/* What forbids a run is all that can be wrong with what clients have brought. */
static bool run_done_is_well(const struct worker_run_done *d) {
        return d->status < N_STATUS && d->is_untouched <= 1 && is_text(d->why, sizeof(d->why)) &&
               (d->status != STATUS_INVALID || findings_forbid(&d->found));
}

static bool said_by_gpu_is_well(const union worker_packet *p) {
        switch ((enum worker_verb)p->head.verb) {
        case WORKER_HELLO: return is_text(p->hello.build, sizeof(p->hello.build));
        case WORKER_DEVICE: return device_is_well(&p->device);
        case WORKER_FALLBACK:
                return is_text(p->fallback.report.what, sizeof(p->fallback.report.what)) &&
                       is_text(p->fallback.report.why, sizeof(p->fallback.report.why));
        case WORKER_OFF: return p->off.is_final <= 1 && is_text(p->off.why, sizeof(p->off.why));
        case WORKER_CHORE_DONE:
                return p->chore_done.status < N_STATUS &&
                       is_text(p->chore_done.why, sizeof(p->chore_done.why));
        case WORKER_SUMS: return p->sums.n <= WORKER_SUMS_A_PART;
        case WORKER_LENGTHS: return p->lengths.n <= WORKER_LENGTHS_A_PART;
        case WORKER_RUN_DONE: return run_done_is_well(&p->run_done);
        case WORKER_READY:
        case WORKER_RUN_LAUNCHED:
        case WORKER_PONG: return true;
        case WORKER_SETTINGS:
        case WORKER_IMPORT:
        case WORKER_RELEASE:
        case WORKER_RUN:
        case WORKER_PART:
        case WORKER_PING: break;
        }
        return false;
}

static uint32_t most_fds(const union worker_packet *p) {
        return p->head.verb == WORKER_IMPORT || p->head.verb == WORKER_CHORE_DONE ? 1 : 0;
}

int worker_check(const union worker_packet *p, size_t n_bytes, uint32_t n_fds, enum worker_end sender) {
        if (n_bytes < sizeof(p->head) || n_bytes > sizeof(*p))
                return -EPROTO;
        size_t fixed = fixed_bytes(p->head.verb);
        if (fixed == 0 || n_bytes < fixed || p->head.n_fds != n_fds || n_fds > most_fds(p))
                return -EPROTO;
        bool is_well = sender == WORKER_END_TUTTID ? said_by_tuttid_is_well(p) : said_by_gpu_is_well(p);
        return is_well && n_bytes == worker_packet_bytes(p) ? 0 : -EPROTO;
}
