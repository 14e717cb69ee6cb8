/* What tuttid-gpu finds of links between GPUs reaches the planner, and `tuttictl plan` shows what comes of it
 * (TA5: TensorFlow 1.12's link tables). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/admin.h>
#include "gpu-host.h"
#include "program.h"
#include "unit.h"

/* tf-semantics.md 2.8. */
#define DGX1    "0-1,0-2,0-3,1-2,1-3,2-3,4-5,4-6,4-7,5-6,5-7,6-7,0-4,1-5,2-6,3-7"
#define ROTATED "1-2,1-3,1-4,2-3,2-4,3-4,5-6,5-7,5-0,6-7,6-0,7-0,1-5,2-6,3-7,4-0"
#define EIGHT   "GPU:0,GPU:1,GPU:2,GPU:3,GPU:4,GPU:5,GPU:6,GPU:7"

/* `peers` reach each other, those in `links` over links of their own. */
static struct host *start(const char *n_devices, const char *peers, const char *links, const char *more) {
        setenv("FAKECUDA_PEERS", peers, 1);
        setenv("FAKECUDA_LINKS", links, 1);
        return gpu_host_start(n_devices, (const char *[]){ more ? "--set" : NULL, more, NULL });
}

static void ask(struct host *h, const char *const *words, struct program *p) {
        const char *argv[24] = { program_tuttictl(), "plan", "--socket", host_socket(h) };
        for (int n = 4; *words; n++)
                argv[n] = *words++;
        program_run(argv, 10, p);
}

#define ASK(h, p, ...) ask(h, (const char *[]){ __VA_ARGS__, NULL }, p)

/* The devices are there when they are tested. */
static void wait_for_gpus(struct host *h) {
        struct program p;
        for (int i = 0; i < 300 * unit_scale(); i++) {
                ASK(h, &p, "-n", "1", "--on", "GPU:0", "f32");
                int code = p.code;
                program_deinit(&p);
                if (code == 0)
                        return;
        }
        ck_abort_msg("there is no GPU:0");
}

static void expect_part(const struct program *p, const char *part) {
        ck_assert_msg(p->code == 0, "%d: %s", p->code, p->err);
        ck_assert_msg(strstr(p->out, part), "\"%s\" is not in: %s", part, p->out);
}

/* 400,000 bytes: large enough for the library, where nothing speaks against it. */
static void expect_choice(struct host *h, const char *devices, const char *n, const char *part) {
        struct program p;
        wait_for_gpus(h);
        ASK(h, &p, "-n", n, "--on", devices, "f32[100000]");
        expect_part(&p, part);
        program_deinit(&p);
}

START_TEST(TA5_the_links_of_a_DGX_1_choose_hierarchical_copy_with_a_pack_for_each_GPU) {
        struct program p;
        struct host *h = start("8", DGX1, DGX1, NULL);
        expect_choice(h, EIGHT, "8", "hierarchical_copy, because the links are those of a DGX-1\n");
        ASK(h, &p, "-n", "8", "--on", EIGHT, "f32[8]");
        for (int k = 0; k < 8; k++) { /* a pack's total is at home on each */
                char part[64];
                snprintf(part, sizeof(part), "reduce SUM f32 x1  GPU:%d scratch", k);
                if (!strstr(p.out, part))
                        snprintf(part, sizeof(part), "GPU:%d: reduce SUM f32 x1", k);
                expect_part(&p, part);
        }
        program_deinit(&p);
        program_run(
                (const char *[]){ program_tuttictl(), "status", "--json", "--socket", host_socket(h), NULL },
                10, &p);
        ck_assert_msg(strstr(p.out, "NVLink to 1,2,3,4") && strstr(p.out, "NVLink to 3,4,5,6"), "%s", p.out);
        program_deinit(&p);
        gpu_host_stop(h);
}
END_TEST

START_TEST(TA5_four_GPUs_of_a_DGX_1_choose_the_library) {
        struct host *h = start("4", DGX1, DGX1, NULL);
        expect_choice(h, "GPU:0,GPU:1,GPU:2,GPU:3", "4", "library, because it is large enough");
        gpu_host_stop(h);
}
END_TEST

START_TEST(TA5_a_rotated_table_chooses_the_library) {
        struct host *h = start("8", ROTATED, ROTATED, NULL);
        expect_choice(h, EIGHT, "8", "library, because it is large enough");
        gpu_host_stop(h);
}
END_TEST

START_TEST(TA5_the_same_ways_without_links_of_their_own_choose_the_library) {
        struct host *h = start("8", DGX1, "none", NULL);
        expect_choice(h, EIGHT, "8", "library, because it is large enough");
        gpu_host_stop(h);
}
END_TEST

START_TEST(TA5_a_link_more_is_no_DGX_1) {
        struct host *h = start("8", "all", DGX1 ",0-7", NULL);
        expect_choice(h, EIGHT, "8", "library, because it is large enough");
        gpu_host_stop(h);
}
END_TEST

/* --- and it works --- */

static void on_a_dgx1(struct replica *me) {
        gpu_use_device((int)me->rank);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        for (int i = 0; i < 3; i++) {
                gpu_fill(b, (float)me->rank);
                ck_assert_msg(gpu_reduce(g, NULL, b, GPU_COUNT) == TUTTI_OK, "%s", tutti_error());
                gpu_expect(b, 28, 8);
        }
        gpu_leave(me, b);
}

START_TEST(TA5_eight_replicas_on_a_DGX_1_have_the_sum) {
        struct host *h = start("8", DGX1, DGX1, NULL);
        run_replicas(h, 8, on_a_dgx1, NULL);
        ck_assert_uint_eq(fakecuda_calls(gpu_control, "tuttid-gpu", "ncclAllReduce"), 0);
        gpu_host_stop(h);
}
END_TEST

/* --- plans on GPUs --- */

START_TEST(a_plan_on_GPUs_is_printed_with_its_reason) {
        struct program p;
        struct host *h = start("2", "all", "none", NULL);
        wait_for_gpus(h);
        ASK(h, &p, "-n", "4", "--on", "GPU:0,GPU:1", "f32[10]");
        ck_assert_str_eq(p.out, "one_device, because one kernel reads all values over peer access\n\n"
                                "one_device order=rank GPU:0: 1 step, 1 chunk of 256 KiB, moves 320 bytes\n"
                                "reduce SUM f32 x10  R0 b1+0, R1 b1+0, R2 b1+0, R3 b1+0 -> "
                                "R0 b2+0, R1 b2+0, R2 b2+0, R3 b2+0\n");
        program_deinit(&p);
        ASK(h, &p, "-n", "2", "--on", "GPU:1", "f32[10]");
        expect_part(&p, "one_device order=rank GPU:1: ");
        program_deinit(&p);
        ASK(h, &p, "-n", "2", "--on", "CPU:0,GPU:1", "f32[10]");
        expect_part(&p, "one_device order=rank GPU:1: ");
        program_deinit(&p);
        ASK(h, &p, "-n", "2", "--on", "GPU:0,GPU:2", "f32[10]");
        ck_assert_int_eq(p.code, 1);
        ck_assert_msg(strstr(p.err, "there is no device GPU:2"), "%s", p.err);
        program_deinit(&p);
        gpu_host_stop(h);
}
END_TEST

START_TEST(P15_the_fallback_of_a_plan_on_GPUs_says_why) {
        struct program p;
        struct host *h = start("2", "none", "none", "plan.algorithm=library");
        wait_for_gpus(h);
        ASK(h, &p, "-n", "2", "--on", "GPU:0,GPU:1", "--op", "BAND", "u8[10]");
        expect_part(&p, "fallback: plan.algorithm is library, but ");
        expect_part(&p, "because there is no peer access: ");
        program_deinit(&p);
        ASK(h, &p, "-n", "2", "--on", "GPU:0,GPU:1", "--json", "f32[10]");
        expect_part(&p, "\"algorithm\": \"library\"");
        program_deinit(&p);
        gpu_host_stop(h);
}
END_TEST

/* Each host device is asked to reduce what is on a GPU. */
static void ask_each_device(struct replica *me) {
        struct tutti_group *g;
        char device[16];
        gpu_use_device(0);
        g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { GPU_COUNT });
        for (int k = 0; k < 20; k++) {
                const struct tutti_options o = TUTTI_OPTIONS(.device = device);
                struct tutti_work *w;
                snprintf(device, sizeof(device), "CPU:%d", k);
                ck_assert_int_eq(tutti_all_reduce_start(g, NULL, TUTTI_SUM, &v, &v, &o, &w), TUTTI_OK);
                ck_assert_msg(
                        tutti_work_wait(w, -1) == TUTTI_OK, "%s: %s", device, tutti_work_error(w)->text);
                tutti_work_free(w);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
        tutti_group_free(g);
        gpu_leave(me, b);
}

START_TEST(P15_P18_twenty_reasons_are_nine_rows) {
        struct tutti *t;
        struct tutti_answer *a;
        uint32_t n = 0;
        uint64_t n_others = 0, n_own = 0;
        struct host *h = start("1", "none", "none", "cpu.devices=20");
        struct replica *r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = ask_each_device });
        replica_expect(r, "done", 60);
        ck_assert_int_eq(tutti_open(host_socket(h), &t), TUTTI_OK);
        ck_assert_int_eq(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                if (a->rows[i].type != TUTTI_ROW_GROUP_FALLBACK)
                        continue;
                const struct tutti_row_group_fallback *f = &a->rows[i].group_fallback;
                n++;
                *(f->why[0] ? &n_own : &n_others) += f->n;
        }
        ck_assert_uint_eq(n, 9);
        ck_assert_uint_eq(n_own, 8);
        ck_assert_uint_eq(n_others, 12);
        tutti_answer_free(a);
        tutti_close(t);
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 20), 0);
        gpu_host_stop(h);
}
END_TEST

static void expect_limit(struct host *h, const char *how, const char *value) {
        struct program p;
        ASK(h, &p, "-n", "2", how, "--on", "GPU:0,GPU:1", value);
        ck_assert_msg(p.code == 1 && strstr(p.err, "LIMIT"), "%d: %s", p.code, p.err);
        program_deinit(&p);
}

/* Without peer access a value goes in rounds of 4 MiB, which a question makes as many of as it likes. */
START_TEST(P21_a_plan_of_a_million_rounds_is_not_shown) {
        struct program p;
        struct host *h = start("2", "none", "none", NULL);
        wait_for_gpus(h);
        expect_limit(h, "--reproducible", "f32[1000000000000]");
        expect_limit(h, "--broadcast", "f32[1000000000000]");
        ASK(h, &p, "-n", "2", "--reproducible", "--on", "GPU:0,GPU:1", "f32[10000000]");
        expect_part(&p, "one_device order=rank GPU:0: ");
        program_deinit(&p);
        gpu_host_stop(h);
}
END_TEST

UNIT_MAIN("gpu-links", 120, TA5_the_links_of_a_DGX_1_choose_hierarchical_copy_with_a_pack_for_each_GPU,
        TA5_four_GPUs_of_a_DGX_1_choose_the_library, TA5_a_rotated_table_chooses_the_library,
        TA5_the_same_ways_without_links_of_their_own_choose_the_library, TA5_a_link_more_is_no_DGX_1,
        TA5_eight_replicas_on_a_DGX_1_have_the_sum, a_plan_on_GPUs_is_printed_with_its_reason,
        P15_the_fallback_of_a_plan_on_GPUs_says_why, P21_a_plan_of_a_million_rounds_is_not_shown,
        P15_P18_twenty_reasons_are_nine_rows)
