/* What the hot path does, piece by piece, so that its instructions can be counted (micro.py, under callgrind,
 * which counts the same on a busy machine as on a quiet one).
 *
 *     tutti-micro PIECE N     does it N times and nothing else in between
 *     tutti-micro --list
 *
 * What N times cost, less what they cost with another N, is told from everything around them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "backends/host/kernels.h"
#include "planner.h"
#include "rendezvous.h"
#include "wire/channel.h"
#include "wire/codec.h"

#define N_RANKS 4
#define N_BATCH 161 /* gradients of a ResNet-50 */

static void need(int is_right, const char *what) {
        if (is_right)
                return;
        fprintf(stderr, "tutti-micro: %s went wrong\n", what);
        exit(1);
}

static struct entry make_entry(uint64_t count) {
        return (struct entry){ .dtype = DTYPE_F32,
                .destination = DESTINATION_ALL,
                .n_dims = 1,
                .shape = { count },
                .input = { .buffer = 1, .offset_bytes = 4096 },
                .output = { .buffer = 1, .offset_bytes = 4096 } };
}

/* --- codec --- */

struct codec_desk {
        struct arena arena;
        uint8_t packet[MAX_PACKET_BYTES];
};

static struct codec_desk *desk_new(void) {
        struct codec_desk *d = calloc(1, sizeof(*d));
        void *memory = malloc(CODEC_ARENA_BYTES);
        need(d && memory, "memory");
        arena_init(&d->arena, memory, CODEC_ARENA_BYTES);
        return d;
}

static void submit_both_ways(unsigned long n, uint32_t n_entries) {
        struct codec_desk *d = desk_new();
        static struct entry entries[N_BATCH];
        for (uint32_t i = 0; i < n_entries; i++)
                entries[i] = make_entry(1024);
        struct request request = { .request = 17,
                .type = REQUEST_SUBMIT,
                .submit = { .membership = 3,
                        .epoch = 1,
                        .has_key = true,
                        .key = key_sequence(12345),
                        .signature = { .kind = KIND_BATCH_REDUCE, .op = OP_SUM, .n_entries = n_entries },
                        .n_part_entries = n_entries,
                        .entries = entries } };
        for (unsigned long i = 0; i < n; i++) {
                struct request read;
                size_t n_bytes;
                need(codec_encode_request(&request, &d->arena, d->packet, &n_bytes) == 0, "encoding");
                need(codec_decode_request(d->packet, n_bytes, &d->arena, &read) == 0 &&
                                read.submit.n_part_entries == n_entries,
                        "decoding");
                arena_reset(&d->arena);
        }
}

static void codec_submit(unsigned long n) {
        submit_both_ways(n, 1);
}

static void codec_submit_batch(unsigned long n) {
        submit_both_ways(n, N_BATCH);
}

static void codec_done(unsigned long n) {
        struct codec_desk *d = desk_new();
        struct reply reply = { .request = 17,
                .status = STATUS_OK,
                .type = REPLY_DONE,
                .done = { .collective = 12345,
                        .n_contributors = N_RANKS,
                        .op = OP_SUM,
                        .wait_ns = 20000,
                        .run_ns = 5000 } };
        for (unsigned long r = 0; r < N_RANKS; r++)
                rankset_add(&reply.done.contributors, (unsigned int)r);
        for (unsigned long i = 0; i < n; i++) {
                struct reply read;
                size_t n_bytes;
                need(codec_encode_reply(&reply, &d->arena, d->packet, &n_bytes) == 0, "encoding");
                need(codec_decode_reply(d->packet, n_bytes, &d->arena, &read) == 0 &&
                                read.done.collective == 12345,
                        "decoding");
                arena_reset(&d->arena);
        }
}

/* --- rendezvous --- */

struct meeting_place {
        struct quotas *quotas;
        struct rendezvous *r;
        struct outcome out;
        struct group *group;
};

static void place_join(struct meeting_place *p) {
        struct error err;
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                const struct join join = { .session = 100 + rank,
                        .request = 1,
                        .uid = 1000,
                        .pid = 4700 + rank,
                        .ask = { .job = "dp",
                                .group = "train",
                                .secret = "",
                                .world_size = N_RANKS,
                                .rank = rank } };
                need(rendezvous_join(p->r, &join, 1, &p->out, &err) == STATUS_OK, "joining");
        }
        struct list *link = list_take_first(&p->out.formed);
        need(link != NULL, "forming");
        p->group = list_entry(link, struct group, outcome_link);
}

static void place_open(struct meeting_place *p) {
        const struct rendezvous_settings settings = { .default_timeout_ns = UINT64_C(600000000000) };
        const struct quota_limits limits = { .pending = 65536, .groups = 1024, .memory_bytes = 1 << 30 };
        need(quotas_new(&p->quotas, &limits) == 0 && rendezvous_new(&p->r, &settings, p->quotas) == 0,
                "memory");
        outcome_init(&p->out);
        place_join(p);
}

static void place_submit(struct meeting_place *p, uint32_t rank, uint64_t sequence, uint64_t now_ns) {
        struct error err;
        struct half *half = rendezvous_half_new(p->r, 1);
        const struct member *m = &p->group->members[rank];
        need(half != NULL, "memory");
        half->session = m->session;
        half->request = sequence + 1;
        half->membership = m->id;
        half->epoch = p->group->epoch;
        half->key = key_sequence(sequence);
        half->signature = (struct signature){ .kind = KIND_REDUCE, .op = OP_SUM, .n_entries = 1 };
        half->entries[0] = make_entry(1024);
        need(rendezvous_submit(p->r, half, now_ns, &p->out, &err) == STATUS_OK, "submitting");
}

/* One collective: four halves, sealed, done, released. */
static void rendezvous_round(unsigned long n) {
        struct meeting_place p;
        place_open(&p);
        for (unsigned long i = 0; i < n; i++) {
                for (uint32_t rank = 0; rank < N_RANKS; rank++)
                        place_submit(&p, rank, i, 1000 * (i + 1));
                struct list *link = list_take_first(&p.out.sealed);
                need(link != NULL, "sealing");
                struct meeting *m = list_entry(link, struct meeting, outcome_link);
                rendezvous_done(p.r, m, STATUS_OK, NULL, 1000 * (i + 1) + 500);
                rendezvous_release(p.r, m, &p.out);
        }
}

/* --- planner --- */

static void plan(unsigned long n, uint32_t n_entries) {
        static struct entry entries[N_RANKS][N_BATCH];
        const struct entry *pointers[N_RANKS];
        static const uint32_t ranks[N_RANKS] = { 0, 1, 2, 3 };
        const struct signature signature = {
                .kind = KIND_BATCH_REDUCE, .op = OP_SUM, .n_entries = n_entries
        };
        struct problem problem = { .signature = &signature,
                .n_ranks = N_RANKS,
                .ranks = ranks,
                .entries = pointers,
                .divisor = N_RANKS,
                .n_devices = 1 };
        struct planner *planner;
        struct plan made;
        struct error err;
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                pointers[rank] = entries[rank];
                for (uint32_t e = 0; e < n_entries; e++) {
                        struct entry *entry = &entries[rank][e];
                        *entry = make_entry(1024);
                        entry->input.file = entry->output.file = rank + 1;
                        entry->input.span.offset_bytes = entry->output.span.offset_bytes = UINT64_C(4096) * e;
                        entry->input.span.n_bytes = entry->output.span.n_bytes = 4096;
                }
        }
        need(planner_new(&planner, 1, 256 << 10) == 0, "memory");
        plan_init(&made);
        for (unsigned long i = 0; i < n; i++)
                need(planner_plan(planner, &problem, &made, &err) == STATUS_OK && made.n_steps == n_entries,
                        "planning");
}

static void planner_one(unsigned long n) {
        plan(n, 1);
}

static void planner_batch(unsigned long n) {
        plan(n, N_BATCH);
}

/* --- kernels --- */

/* 4 inputs of 4,096 elements, one output. The instruction set is said: callgrind hides the best of them. */
static void kernel(unsigned long n, enum isa isa, enum dtype dtype) {
        static _Alignas(64) uint8_t in[N_RANKS][4096 * 8], out[4096 * 8];
        const void *inputs[N_RANKS];
        void *outputs[1] = { out };
        for (uint32_t i = 0; i < N_RANKS; i++)
                inputs[i] = in[i];
        const struct kernel_call call = { .op = OP_SUM,
                .dtype = dtype,
                .inputs = inputs,
                .n_inputs = N_RANKS,
                .outputs = outputs,
                .n_outputs = 1,
                .count = 4096 };
        need(kernels_isa(isa) == isa, "this instruction set");
        for (unsigned long i = 0; i < n; i++)
                kernels_reduce(isa, &call);
}

static void kernel_f32_scalar(unsigned long n) {
        kernel(n, ISA_SCALAR, DTYPE_F32);
}

static void kernel_f32_avx2(unsigned long n) {
        kernel(n, ISA_AVX2, DTYPE_F32);
}

static void kernel_bf16_avx2(unsigned long n) {
        kernel(n, ISA_AVX2, DTYPE_BF16);
}

/* --- */

static const struct {
        const char *name;
        void (*run)(unsigned long n);
} pieces[] = {
        { "codec-submit", codec_submit },
        { "codec-submit-batch", codec_submit_batch },
        { "codec-done", codec_done },
        { "rendezvous", rendezvous_round },
        { "planner", planner_one },
        { "planner-batch", planner_batch },
        { "kernel-f32-scalar", kernel_f32_scalar },
        { "kernel-f32-avx2", kernel_f32_avx2 },
        { "kernel-bf16-avx2", kernel_bf16_avx2 },
};

static double now_s(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
        const size_t n_pieces = sizeof(pieces) / sizeof(*pieces);
        if (argc == 2 && strcmp(argv[1], "--list") == 0) {
                for (size_t i = 0; i < n_pieces; i++)
                        puts(pieces[i].name);
                return 0;
        }
        for (size_t i = 0; argc == 3 && i < n_pieces; i++) {
                if (strcmp(argv[1], pieces[i].name) != 0)
                        continue;
                unsigned long n = strtoul(argv[2], NULL, 10);
                double begun = now_s();
                pieces[i].run(n);
                printf("%.9f\n", (now_s() - begun) / (double)(n ? n : 1));
                return 0;
        }
        fprintf(stderr, "usage: tutti-micro --list | PIECE N\n");
        return 64;
}
