/* The overlap rule (P14) by a table and against a naive oracle, and the plans of one_device as printed text.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "failing.h"
#include "planner.h"

#define MAX_RANKS   4
#define MAX_VALUES  6
#define CHUNK_BYTES 4096

/* A sealed collective under construction. */
struct meeting_room {
        struct signature signature;
        uint32_t n_ranks, ranks[MAX_RANKS];
        struct entry entries[MAX_RANKS][MAX_VALUES];
        const struct entry *pointers[MAX_RANKS];
        uint32_t divisor;
        double weights[MAX_RANKS];
        uint32_t device;
        uint64_t slot_offset_bytes;
};

static void room_init(struct meeting_room *room, enum kind kind, uint32_t n_ranks, uint32_t n_entries) {
        memset(room, 0, sizeof(*room));
        room->signature = (struct signature){ .kind = kind, .op = OP_SUM, .n_entries = n_entries };
        room->n_ranks = room->divisor = n_ranks;
        for (uint32_t i = 0; i < n_ranks; i++) {
                room->ranks[i] = i;
                room->pointers[i] = room->entries[i];
        }
}

/* What all halves say of entry `e`. */
static void room_set_value(struct meeting_room *room, uint32_t e, enum dtype dtype, uint64_t count) {
        for (uint32_t i = 0; i < room->n_ranks; i++) {
                struct entry *entry = &room->entries[i][e];
                entry->dtype = dtype;
                entry->destination = DESTINATION_ALL;
                entry->n_dims = 1;
                entry->shape[0] = count;
        }
}

/* The bytes of `entry` at `at_bytes` of a file; the buffer's id is the file's, times ten. */
static void set_place(const struct entry *entry, struct place *place, uint64_t file, uint64_t at_bytes) {
        uint64_t n_bytes = entry->shape[0] * dtype_bytes(entry->dtype);
        *place = (struct place){ .buffer = file * 10,
                .offset_bytes = at_bytes,
                .file = file,
                .span = { .offset_bytes = at_bytes, .n_bytes = n_bytes } };
}

static void room_set_places(
        struct meeting_room *room, uint32_t i, uint32_t e, struct place input, struct place output) {
        struct entry *entry = &room->entries[i][e];
        if (input.file)
                set_place(entry, &entry->input, input.file, input.offset_bytes);
        if (output.file)
                set_place(entry, &entry->output, output.file, output.offset_bytes);
}

static struct place at(uint64_t file, uint64_t offset_bytes) {
        return (struct place){ .file = file, .offset_bytes = offset_bytes };
}

static enum status room_plan(
        const struct meeting_room *room, struct planner *planner, struct plan *plan, struct error *err) {
        struct problem problem = {
                .signature = &room->signature,
                .n_ranks = room->n_ranks,
                .ranks = room->ranks,
                .entries = room->pointers,
                .weights = room->weights,
                .divisor = room->divisor,
                .n_devices = 2,
                .device = room->device,
                .slot_offset_bytes = room->slot_offset_bytes,
        };
        return planner_plan(planner, &problem, plan, err);
}

/* --- overlaps --- */

struct spots {
        uint64_t in_file, in_at, out_file, out_at; /* file 0: none */
};

/* Two replicas with `n_entries` values of f32[count] each. */
struct overlap_case {
        const char *name;
        uint64_t count;
        uint32_t n_entries;
        struct spots spots[2][2]; /* [rank][entry] */
        enum kind kind;
        enum destination destination; /* of entry 0; RANK is rank 0 */
        const char *refusal;          /* how the text begins, or NULL */
};

static const struct overlap_case overlap_cases[] = {
        { "a file for each", 4, 1, { { { 1, 0, 2, 0 } }, { { 3, 0, 4, 0 } } } },
        { "in place", 4, 1, { { { 1, 0, 1, 0 } }, { { 2, 0, 2, 0 } } } },
        { "in place in one file, side by side", 4, 1, { { { 1, 16, 1, 16 } }, { { 1, 0, 1, 0 } } } },
        { "inputs are the same", 4, 1, { { { 1, 0, 2, 0 } }, { { 1, 0, 3, 0 } } } },
        { "inputs share a part", 4, 1, { { { 1, 0, 2, 0 } }, { { 1, 8, 3, 0 } } } },
        { "all adjacent", 4, 1, { { { 1, 0, 1, 16 } }, { { 1, 48, 1, 32 } } } },
        { "the same bytes of different files", 4, 1, { { { 1, 0, 2, 0 } }, { { 2, 16, 1, 16 } } } },
        { "an output on the other's input", 4, 1, { { { 1, 0, 2, 0 } }, { { 3, 0, 1, 0 } } },
                .refusal = "output of R1 (entry 0) overlaps the input of R0 (entry 0)" },
        { "an output's last element on the other's input", 4, 1, { { { 1, 12, 2, 0 } }, { { 3, 0, 1, 0 } } },
                .refusal = "output of R1 (entry 0) overlaps the input of R0 (entry 0)" },
        { "an output's first element on the other's input", 4, 1, { { { 1, 0, 2, 0 } }, { { 3, 0, 1, 12 } } },
                .refusal = "output of R1 (entry 0) overlaps the input of R0 (entry 0)" },
        { "two outputs are the same", 4, 1, { { { 1, 0, 3, 0 } }, { { 2, 0, 3, 0 } } },
                .refusal = "output of R0 (entry 0) overlaps the output of R1 (entry 0)" },
        { "two outputs share a part", 4, 1, { { { 1, 0, 3, 8 } }, { { 2, 0, 3, 0 } } },
                .refusal = "output of R1 (entry 0) overlaps the output of R0 (entry 0)" },
        { "in place, shifted up", 4, 1, { { { 1, 0, 1, 4 } }, { { 2, 0, 2, 0 } } },
                .refusal = "output of R0 (entry 0) overlaps the input of R0 (entry 0)" },
        { "in place, shifted down", 4, 1, { { { 1, 0, 1, 0 } }, { { 2, 4, 2, 0 } } },
                .refusal = "output of R1 (entry 0) overlaps the input of R1 (entry 0)" },
        { "in place on memory that the other reads", 4, 1, { { { 1, 0, 1, 0 } }, { { 1, 0, 2, 0 } } },
                .refusal = "output of R0 (entry 0) overlaps the input of R1 (entry 0)" },
        { "in place, both in the same memory", 4, 1, { { { 1, 0, 1, 0 } }, { { 1, 0, 1, 0 } } },
                .refusal = "output of R0 (entry 0) overlaps the input of R1 (entry 0)" },
        { "an output on another entry's input", 4, 2,
                { { { 1, 0, 2, 0 }, { 1, 16, 1, 0 } }, { { 3, 0, 4, 0 }, { 3, 16, 4, 16 } } },
                .refusal = "output of R0 (entry 1) overlaps the input of R0 (entry 0)" },
        { "an output on another entry's output", 4, 2,
                { { { 1, 0, 2, 0 }, { 1, 16, 2, 16 } }, { { 3, 0, 4, 4 }, { 3, 16, 4, 0 } } },
                .refusal = "output of R1 (entry 1) overlaps the output of R1 (entry 0)" },
        { "entries exchanged in place", 4, 2,
                { { { 1, 0, 1, 16 }, { 1, 16, 1, 0 } }, { { 3, 0, 3, 0 }, { 3, 16, 3, 16 } } },
                .refusal = "output of R0 (entry 1) overlaps the input of R0 (entry 0)" },
        { "D13: no elements, anywhere", 0, 1, { { { 1, 8, 1, 4 } }, { { 1, 8, 1, 8 } } } },
        { "an output that is not received", 4, 1, { { { 1, 0, 2, 0 } }, { { 3, 0, 1, 0 } } },
                .destination = DESTINATION_RANK },
        { "an output that is received by one", 4, 1, { { { 1, 0, 3, 0 } }, { { 3, 0, 1, 0 } } },
                .destination = DESTINATION_RANK,
                .refusal = "output of R0 (entry 0) overlaps the input of R1 (entry 0)" },
        { "broadcast: what the others have as input", 4, 1, { { { 1, 0, 0, 0 } }, { { 2, 0, 2, 4 } } },
                .kind = KIND_BROADCAST },
        { "broadcast: into the root's memory", 4, 1, { { { 1, 0, 0, 0 } }, { { 0, 0, 1, 0 } } },
                .kind = KIND_BROADCAST,
                .refusal = "output of R1 (entry 0) overlaps the input of R0 (entry 0)" },
        { "broadcast: the root has its own already", 4, 1, { { { 1, 0, 1, 0 } }, { { 0, 0, 2, 0 } } },
                .kind = KIND_BROADCAST },
};

static void build_case(struct meeting_room *room, const struct overlap_case *c) {
        room_init(room, c->kind ? c->kind : KIND_BATCH_REDUCE, 2, c->n_entries);
        for (uint32_t e = 0; e < c->n_entries; e++) {
                room_set_value(room, e, DTYPE_F32, c->count);
                for (uint32_t i = 0; i < 2; i++) {
                        const struct spots *s = &c->spots[i][e];
                        room_set_places(room, i, e, at(s->in_file, s->in_at), at(s->out_file, s->out_at));
                        if (c->destination && e == 0)
                                room->entries[i][e].destination = c->destination;
                }
        }
}

static void check_case(const struct overlap_case *c, enum status status, const struct error *err) {
        ck_assert_msg(status == (c->refusal ? STATUS_INVALID : STATUS_OK), "%s: %s %s", c->name,
                status_name(status), status == STATUS_OK ? "" : err->detail);
        if (!c->refusal)
                return;
        unsigned int rank, entry;
        ck_assert_int_eq(sscanf(c->refusal, "output of R%u (entry %u)", &rank, &entry), 2);
        ck_assert_msg(
                strncmp(err->detail, c->refusal, strlen(c->refusal)) == 0, "%s: %s", c->name, err->detail);
        ck_assert_int_eq(err->status, STATUS_INVALID);
        ck_assert_int_eq(err->field, FIELD_OVERLAP);
        ck_assert_int_eq(err->rank, (int)rank);
        ck_assert_int_eq(err->entry, (int)entry);
}

START_TEST(P14_overlaps_are_refused_and_nothing_else) {
        static struct meeting_room room;
        static struct error err;
        struct planner *planner;
        struct plan plan;

        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        for (size_t i = 0; i < ARRAY_SIZE(overlap_cases); i++) {
                build_case(&room, &overlap_cases[i]);
                check_case(&overlap_cases[i], room_plan(&room, planner, &plan, &err), &err);
        }
        planner_free(planner);
        plan_deinit(&plan);
}
END_TEST

START_TEST(a_refusal_names_ranks_entries_buffers_and_bytes) {
        static struct meeting_room room;
        static struct error err;
        struct planner *planner;
        struct plan plan;

        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        room_init(&room, KIND_REDUCE, 2, 1);
        room.ranks[0] = 3;
        room.ranks[1] = 1000;
        room_set_value(&room, 0, DTYPE_F64, 100);
        room_set_places(&room, 0, 0, at(7, 0), at(8, 0));
        room_set_places(&room, 1, 0, at(9, 0), at(7, 792));
        ck_assert_int_eq(room_plan(&room, planner, &plan, &err), STATUS_INVALID);
        ck_assert_str_eq(err.detail, "output of R1000 (entry 0) overlaps the input of R3 (entry 0): bytes "
                                     "792..1591 of R1000's buffer 70 "
                                     "and bytes 0..799 of R3's buffer 70 share memory. An output may share "
                                     "it only with its own replica's "
                                     "input of the same entry, exactly");
        ck_assert_int_eq(err.rank, 1000);
        planner_free(planner);
        plan_deinit(&plan);
}
END_TEST

/* --- against an oracle --- */

static uint64_t random_state = 7;

static uint64_t draw(uint64_t limit) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random_state >> 33) % limit;
}

static void build_random(struct meeting_room *room) {
        static const enum dtype dtypes[] = { DTYPE_U8, DTYPE_F16, DTYPE_F32, DTYPE_F64 };
        bool is_broadcast = draw(4) == 0;
        uint64_t n_files = 1 + draw(6), n_bytes = 16 << draw(6);

        room_init(room, is_broadcast ? KIND_BROADCAST : KIND_BATCH_REDUCE, 1 + draw(MAX_RANKS),
                is_broadcast ? 1 : 1 + draw(MAX_VALUES));
        room->signature.root = draw(room->n_ranks);
        for (uint32_t e = 0; e < room->signature.n_entries; e++) {
                enum dtype dtype = dtypes[draw(ARRAY_SIZE(dtypes))];
                uint64_t size = dtype_bytes(dtype), destination = draw(room->n_ranks);
                bool is_for_one = !is_broadcast && draw(4) == 0;
                room_set_value(room, e, dtype, draw(8));
                for (uint32_t i = 0; i < room->n_ranks; i++) {
                        struct place input = at(1 + draw(n_files), draw(n_bytes) * size);
                        struct place output = at(1 + draw(n_files), draw(n_bytes) * size);
                        room_set_places(room, i, e, input, draw(3) ? input : output);
                        if (is_for_one) {
                                room->entries[i][e].destination = DESTINATION_RANK;
                                room->entries[i][e].destination_rank = destination;
                        }
                }
        }
}

static bool oracle_reads(const struct meeting_room *room, uint32_t i) {
        return room->signature.kind != KIND_BROADCAST || room->signature.root == i;
}

static bool oracle_writes(const struct meeting_room *room, uint32_t i, uint32_t e) {
        const struct entry *entry = &room->entries[i][e];
        return entry->destination == DESTINATION_ALL || entry->destination_rank == i;
}

/* Whether they share a byte, byte by byte. */
static bool oracle_shares(const struct place *a, const struct place *b) {
        if (a->file != b->file)
                return false;
        for (uint64_t i = 0; i < a->span.n_bytes; i++)
                for (uint64_t j = 0; j < b->span.n_bytes; j++)
                        if (a->span.offset_bytes + i == b->span.offset_bytes + j)
                                return true;
        return false;
}

/* Whether the output of (i, e) is wrong because of the half j's entry f. */
static bool oracle_conflicts(
        const struct meeting_room *room, uint32_t i, uint32_t e, uint32_t j, uint32_t f) {
        const struct place *output = &room->entries[i][e].output;
        const struct entry *other = &room->entries[j][f];
        bool is_self = i == j && e == f;
        bool is_in_place = is_self && output->file == other->input.file &&
                           output->offset_bytes == other->input.offset_bytes;

        if (!oracle_writes(room, i, e))
                return false;
        if (oracle_reads(room, j) && !is_in_place && oracle_shares(output, &other->input))
                return true;
        return oracle_writes(room, j, f) && !is_self && oracle_shares(output, &other->output);
}

static bool oracle_allows(const struct meeting_room *room) {
        for (uint32_t i = 0; i < room->n_ranks; i++)
                for (uint32_t e = 0; e < room->signature.n_entries; e++)
                        for (uint32_t j = 0; j < room->n_ranks; j++)
                                for (uint32_t f = 0; f < room->signature.n_entries; f++)
                                        if (oracle_conflicts(room, i, e, j, f))
                                                return false;
        return true;
}

START_TEST(P14_agrees_with_a_naive_oracle) {
        static struct meeting_room room;
        static struct error err;
        unsigned int n_allowed = 0, n_refused = 0, i, e, j, f;
        struct planner *planner;
        struct plan plan;

        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        for (int round = 0; round < 20000; round++) {
                build_random(&room);
                enum status status = room_plan(&room, planner, &plan, &err);
                ck_assert_msg(status == (oracle_allows(&room) ? STATUS_OK : STATUS_INVALID), "round %d: %s",
                        round, status == STATUS_OK ? "OK" : err.detail);
                if (status == STATUS_OK) {
                        n_allowed++;
                        continue;
                }
                n_refused++;
                const char *format =
                        strstr(err.detail, "overlaps the input")
                                ? "output of R%u (entry %u) overlaps the input of R%u (entry %u)"
                                : "output of R%u (entry %u) overlaps the output of R%u (entry %u)";
                ck_assert_int_eq(sscanf(err.detail, format, &i, &e, &j, &f), 4);
                ck_assert_msg(oracle_conflicts(&room, i, e, j, f), "round %d: %s", round, err.detail);
        }
        ck_assert_uint_gt(n_allowed, 2000);
        ck_assert_uint_gt(n_refused, 2000);
        planner_free(planner);
        plan_deinit(&plan);
}
END_TEST

/* --- plans as text --- */

static void check_plan(const struct meeting_room *room, const char *expected) {
        static struct error err;
        struct planner *planner;
        struct plan plan;
        struct text t;
        char buf[2048];

        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        enum status status = room_plan(room, planner, &plan, &err);
        ck_assert_msg(status == STATUS_OK, "%s", err.detail);
        text_init(&t, buf, sizeof(buf));
        plan_print(&plan, &t);
        ck_assert_str_eq(buf, expected);
        planner_free(planner);
        plan_deinit(&plan);
}

START_TEST(P10_a_reduction_reads_in_rank_order) {
        static struct meeting_room room;
        room_init(&room, KIND_REDUCE, 3, 1);
        room.ranks[1] = 5; /* those in between are gone */
        room.ranks[2] = 7;
        room_set_value(&room, 0, DTYPE_F32, 1000);
        room_set_places(&room, 0, 0, at(9, 0), at(9, 0));
        room_set_places(&room, 1, 0, at(3, 64), at(4, 0));
        room_set_places(&room, 2, 0, at(1, 4), at(2, 8));
        check_plan(&room,
                "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 23.4 KiB\n"
                "reduce SUM f32 x1000  R0 b90+0, R5 b30+64, R7 b10+4 -> R0 b90+0, R5 b40+0, R7 b20+8\n");
}
END_TEST

START_TEST(a_batch_has_a_step_for_each_entry_that_somebody_receives) {
        static struct meeting_room room;
        room_init(&room, KIND_BATCH_REDUCE, 2, 4);
        room.signature.op = OP_MEAN;
        room.divisor = 4; /* two that left count as zeros */
        room_set_value(&room, 0, DTYPE_F16, 10);
        room_set_value(&room, 1, DTYPE_F32, 0);
        room_set_value(&room, 2, DTYPE_F64, 20);
        room_set_value(&room, 3, DTYPE_F64, 30);
        for (uint32_t i = 0; i < 2; i++) {
                for (uint32_t e = 0; e < 4; e++)
                        room_set_places(&room, i, e, at(1 + i, 1024 * e), at(1 + i, 1024 * e));
                room.entries[i][2].destination = DESTINATION_RANK;
                room.entries[i][2].destination_rank = 3; /* who is gone */
                room.entries[i][3].destination = DESTINATION_RANKS;
                rankset_add(&room.entries[i][3].destination_ranks, 1);
        }
        check_plan(&room, "one_device order=rank CPU:0: 2 steps, 1 chunk of 4 KiB, moves 800 bytes\n"
                          "reduce MEAN/4 f16 x10  R0 b10+0, R1 b20+0 -> R0 b10+0, R1 b20+0\n"
                          "reduce MEAN/4 f64 x30  R0 b10+3072, R1 b20+3072 -> R1 b20+3072\n");
}
END_TEST

START_TEST(a_broadcast_copies_to_all_but_the_root_itself) {
        static struct meeting_room room;
        room_init(&room, KIND_BROADCAST, 3, 1);
        room.signature.root = 1;
        room_set_value(&room, 0, DTYPE_I64, 4);
        room_set_places(&room, 0, 0, at(0, 0), at(1, 0));
        room_set_places(&room, 1, 0, at(2, 0), at(2, 0));
        room_set_places(&room, 2, 0, at(5, 0), at(3, 16));
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 96 bytes\n"
                          "copy i64 x4  R1 b20+0 -> R0 b10+0, R2 b30+16\n");
        /* The root may want a copy of its own elsewhere. */
        room_set_places(&room, 1, 0, at(2, 0), at(2, 32));
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 128 bytes\n"
                          "copy i64 x4  R1 b20+0 -> R0 b10+0, R1 b20+32, R2 b30+16\n");
}
END_TEST

START_TEST(P12_a_mean_of_integers_says_where_it_goes) {
        static struct meeting_room room;
        room_init(&room, KIND_REDUCE, 2, 1);
        room.signature.op = OP_MEAN;
        room_set_value(&room, 0, DTYPE_U8, 100);
        room_set_places(&room, 0, 0, at(1, 0), at(2, 0));
        room_set_places(&room, 1, 0, at(3, 0), at(4, 0));
        room.signature.options.rounding = ROUNDING_FLOOR;
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 400 bytes\n"
                          "reduce MEAN/2 floor u8 x100  R0 b10+0, R1 b30+0 -> R0 b20+0, R1 b40+0\n");
        room.signature.options.rounding = ROUNDING_UNSPECIFIED;
        room.entries[0][0].output_dtype = room.entries[1][0].output_dtype = DTYPE_F32;
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 1000 bytes\n"
                          "reduce MEAN/2 u8>f32 x100  R0 b10+0, R1 b30+0 -> R0 b20+0, R1 b40+0\n");
}
END_TEST

START_TEST(D12_weights_stand_in_the_plan) {
        static struct meeting_room room;
        room_init(&room, KIND_REDUCE, 3, 1);
        room.signature.op = OP_MEAN;
        room.signature.options.has_weight = true;
        room_set_value(&room, 0, DTYPE_F32, 10);
        for (uint32_t i = 0; i < 3; i++) {
                room_set_places(&room, i, 0, at(1 + i, 0), at(1 + i, 0));
                room.weights[i] = i / 2.0;
        }
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 240 bytes\n"
                          "reduce MEAN/1.5 f32 x10  R0 b10+0 *0, R1 b20+0 *0.5, R2 b30+0 *1 -> "
                          "R0 b10+0, R1 b20+0, R2 b30+0\n");
        room.signature.op = OP_SUM;
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 240 bytes\n"
                          "reduce SUM f32 x10  R0 b10+0 *0, R1 b20+0 *0.5, R2 b30+0 *1 -> "
                          "R0 b10+0, R1 b20+0, R2 b30+0\n");
}
END_TEST

/* Whether a collective with these two weights is refused, and why. */
static void check_weights(enum op op, double a, double b, const char *refusal) {
        static struct meeting_room room;
        static struct error err;
        struct planner *planner;
        struct plan plan;
        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        room_init(&room, KIND_REDUCE, 2, 1);
        room.signature.op = op;
        room.signature.options.has_weight = true;
        room_set_value(&room, 0, DTYPE_F64, 10);
        for (uint32_t i = 0; i < 2; i++)
                room_set_places(&room, i, 0, at(1 + i, 0), at(1 + i, 0));
        room.weights[0] = a;
        room.weights[1] = b;
        enum status status = room_plan(&room, planner, &plan, &err);
        ck_assert_int_eq(status, refusal ? STATUS_INVALID : STATUS_OK);
        if (refusal) {
                ck_assert_int_eq(err.field, FIELD_OPTIONS);
                ck_assert_msg(strstr(err.detail, refusal) != NULL, "%s", err.detail);
        }
        planner_free(planner);
        plan_deinit(&plan);
}

START_TEST(D12_a_mean_of_nothing_is_refused) {
        check_weights(OP_MEAN, 0, 0, "the weights of all 2 contributions are 0");
        check_weights(OP_MEAN, 0, -0.0, "the weights of all 2 contributions are 0");
        check_weights(OP_MEAN, 0, 0x1p-1074, NULL);
        check_weights(OP_SUM, 0, 0, NULL);
        check_weights(OP_MEAN, 0x1.8p1023, 0x1.8p1023, "more than f64 can hold");
        check_weights(OP_SUM, 0x1.8p1023, 0x1.8p1023, "more than f64 can hold");
}
END_TEST

/* Also what nobody receives is looked at. */
START_TEST(D11_checks_stand_in_the_plan) {
        static struct meeting_room room;
        room_init(&room, KIND_BROADCAST, 1, 1);
        room_set_value(&room, 0, DTYPE_F32, 8);
        room_set_places(&room, 0, 0, at(1, 0), at(0, 0));
        room.signature.options.check_numerics = true;
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 32 bytes\n"
                          "copy f32 x8  R0 b10+0 ->   check_numerics\n");
        room_init(&room, KIND_REDUCE, 1, 1);
        room_set_value(&room, 0, DTYPE_I8, 8);
        room_set_places(&room, 0, 0, at(1, 0), at(2, 0));
        room.signature.options.check_numerics = room.signature.options.check_overflow = true;
        check_plan(&room, "one_device order=rank CPU:0: 1 step, 1 chunk of 4 KiB, moves 16 bytes\n"
                          "reduce SUM i8 x8  R0 b10+0 -> R0 b20+0  check_numerics  check_overflow\n");
}
END_TEST

/* Entry `e` of all halves goes to the result object 7, at this offset of a slot. */
static void room_set_object(struct meeting_room *room, uint32_t e, uint64_t offset_bytes) {
        static char object;
        for (uint32_t i = 0; i < room->n_ranks; i++) {
                struct place *output = &room->entries[i][e].output;
                set_place(&room->entries[i][e], output, UINT64_MAX - 7, offset_bytes);
                output->buffer = 0;
                output->result = 7;
                output->object = (struct result *)(void *)&object;
        }
}

START_TEST(P14_a_result_object_is_written_once_in_its_slot_and_on_its_device) {
        static struct meeting_room room;
        room_init(&room, KIND_BATCH_REDUCE, 3, 2);
        room.device = 1;
        room.slot_offset_bytes = 8192;
        for (uint32_t e = 0; e < 2; e++) {
                room_set_value(&room, e, DTYPE_F32, 10);
                for (uint32_t i = 0; i < 3; i++)
                        room_set_places(&room, i, e, at(1 + i, 40 * e), at(0, 0));
        }
        room_set_object(&room, 0, 64);
        room_set_object(&room, 1, 104);
        check_plan(&room, "one_device order=rank CPU:1: 2 steps, 1 chunk of 4 KiB, moves 320 bytes\n"
                          "reduce SUM f32 x10  R0 b10+0, R1 b20+0, R2 b30+0 -> result 7+8256\n"
                          "reduce SUM f32 x10  R0 b10+40, R1 b20+40, R2 b30+40 -> result 7+8296\n");
        room.entries[0][0].destination = room.entries[1][0].destination = room.entries[2][0].destination =
                DESTINATION_DEVICE;
        room.signature.kind = KIND_BROADCAST;
        room.signature.op = OP_UNSPECIFIED;
        room.signature.n_entries = 1;
        room.signature.root = 2;
        check_plan(&room, "one_device order=rank CPU:1: 1 step, 1 chunk of 4 KiB, moves 80 bytes\n"
                          "copy f32 x10  R2 b30+0 -> result 7+8256\n");
}
END_TEST

/* Rank r's part lies r times 64 bytes (40, rounded up) behind the entry's offset; ranks that are not there
 * leave a gap. */
START_TEST(a_merge_call_lays_everybodys_values_side_by_side) {
        static struct meeting_room room;
        room_init(&room, KIND_MERGE_CALL, 2, 2);
        room.signature.op = OP_UNSPECIFIED;
        room.ranks[1] = 3;
        room.slot_offset_bytes = 8192;
        room_set_value(&room, 0, DTYPE_F32, 10);
        room_set_value(&room, 1, DTYPE_F32, 0);
        for (uint32_t e = 0; e < 2; e++) {
                for (uint32_t i = 0; i < 2; i++)
                        room_set_places(&room, i, e, at(1 + i, 40 * e), at(0, 0));
                room_set_object(&room, e, 256 * e);
        }
        check_plan(&room, "collect order=rank CPU:0: 2 steps, 1 chunk of 4 KiB, moves 160 bytes\n"
                          "copy f32 x10  R0 b10+0 -> result 7+8192\n"
                          "copy f32 x10  R3 b20+0 -> result 7+8384\n");
}
END_TEST

START_TEST(P14_entries_may_not_overlap_in_a_slot) {
        static struct meeting_room room;
        static struct error err;
        struct planner *planner;
        struct plan plan;
        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        room_init(&room, KIND_BATCH_REDUCE, 2, 2);
        for (uint32_t e = 0; e < 2; e++) {
                room_set_value(&room, e, DTYPE_F32, 10);
                for (uint32_t i = 0; i < 2; i++)
                        room_set_places(&room, i, e, at(1 + i, 40 * e), at(0, 0));
                room_set_object(&room, e, 36 * e);
        }
        ck_assert_int_eq(room_plan(&room, planner, &plan, &err), STATUS_INVALID);
        ck_assert_int_eq(err.field, FIELD_OVERLAP);
        ck_assert_ptr_nonnull(strstr(err.detail, "bytes 0..39 of a slot of the result object 7"));
        ck_assert_ptr_nonnull(strstr(err.detail, "bytes 36..75 of a slot of the result object 7"));
        planner_free(planner);
        plan_deinit(&plan);
}
END_TEST

START_TEST(nothing_to_do_is_an_empty_plan) {
        static const char empty[] =
                "one_device order=rank CPU:0: 0 steps, 0 chunks of 4 KiB, moves 0 bytes\n";
        static struct meeting_room room;
        room_init(&room, KIND_BARRIER, 4, 0);
        check_plan(&room, empty);

        room_init(&room, KIND_REDUCE, 2, 1); /* D13 */
        room_set_value(&room, 0, DTYPE_F32, 0);
        for (uint32_t i = 0; i < 2; i++)
                room_set_places(&room, i, 0, at(1, 0), at(1, 0));
        check_plan(&room, empty);

        room_init(&room, KIND_BROADCAST, 1, 1); /* alone */
        room_set_value(&room, 0, DTYPE_F32, 8);
        room_set_places(&room, 0, 0, at(1, 0), at(0, 0));
        check_plan(&room, empty);
}
END_TEST

START_TEST(what_no_algorithm_does_is_unsupported) {
        static struct meeting_room room;
        static struct error err;
        struct planner *planner;
        struct plan plan;

        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        room_init(&room, KIND_BROADCAST, 2, 1);
        room.signature.root = 5; /* is not among them */
        room_set_value(&room, 0, DTYPE_F32, 8);
        ck_assert_int_eq(room_plan(&room, planner, &plan, &err), STATUS_UNSUPPORTED);
        ck_assert_int_eq(err.status, STATUS_UNSUPPORTED);
        ck_assert_int_eq(err.field, FIELD_KIND);
        ck_assert_ptr_nonnull(strstr(err.detail, "this broadcast: the root is not among"));
        planner_free(planner);
        plan_deinit(&plan);
}
END_TEST

/* --- memory --- */

static void build_batch(struct meeting_room *room) {
        room_init(room, KIND_BATCH_REDUCE, MAX_RANKS, MAX_VALUES);
        for (uint32_t e = 0; e < MAX_VALUES; e++) {
                room_set_value(room, e, DTYPE_F32, 16);
                for (uint32_t i = 0; i < MAX_RANKS; i++)
                        room_set_places(room, i, e, at(9 - i, 64 * (MAX_VALUES - e)), at(20 + i, 64 * e));
        }
}

START_TEST(short_memory_is_said_and_survived) {
        static struct meeting_room room;
        static struct error err;
        unsigned int n_refusals = 0;
        bool has_failed = true;

        build_batch(&room);
        for (unsigned int nth = 1; has_failed; nth++) {
                struct planner *planner;
                struct plan plan;
                plan_init(&plan);
                failing_at(nth);
                int r = planner_new(&planner, 1, CHUNK_BYTES);
                enum status status = r < 0 ? STATUS_NO_MEMORY : room_plan(&room, planner, &plan, &err);
                failing_at(0);
                has_failed = failing_has_failed();
                ck_assert_int_eq(status, has_failed ? STATUS_NO_MEMORY : STATUS_OK);
                if (r == 0) {
                        n_refusals += status == STATUS_NO_MEMORY;
                        ck_assert_int_eq(room_plan(&room, planner, &plan, &err), STATUS_OK);
                        ck_assert_uint_eq(plan.n_steps, MAX_VALUES);
                        planner_free(planner);
                }
                plan_deinit(&plan);
        }
        ck_assert_uint_ge(n_refusals, 4); /* two of the planner, two of the plan */
}
END_TEST

START_TEST(after_the_first_time_nothing_is_allocated) {
        static struct meeting_room room;
        static struct error err;
        struct planner *planner;
        struct plan plan;

        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 1, CHUNK_BYTES), 0);
        build_batch(&room);
        ck_assert_int_eq(room_plan(&room, planner, &plan, &err), STATUS_OK);
        failing_at(1);
        enum status status = room_plan(&room, planner, &plan, &err);
        failing_at(0);
        ck_assert_int_eq(status, STATUS_OK);
        ck_assert(!failing_has_failed());
        planner_free(planner);
        plan_deinit(&plan);
}
END_TEST

UNIT_MAIN("planner", 60, P14_overlaps_are_refused_and_nothing_else,
        a_refusal_names_ranks_entries_buffers_and_bytes, P14_agrees_with_a_naive_oracle,
        P10_a_reduction_reads_in_rank_order, a_batch_has_a_step_for_each_entry_that_somebody_receives,
        a_broadcast_copies_to_all_but_the_root_itself, P12_a_mean_of_integers_says_where_it_goes,
        D12_weights_stand_in_the_plan, D12_a_mean_of_nothing_is_refused, D11_checks_stand_in_the_plan,
        P14_a_result_object_is_written_once_in_its_slot_and_on_its_device,
        a_merge_call_lays_everybodys_values_side_by_side, P14_entries_may_not_overlap_in_a_slot,
        nothing_to_do_is_an_empty_plan, what_no_algorithm_does_is_unsupported,
        short_memory_is_said_and_survived, after_the_first_time_nothing_is_allocated)
