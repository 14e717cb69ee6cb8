/* Which algorithm is chosen, why, and what becomes of wishes and demands. */
#include "algorithms/packing.h"
#include "planner-choice.h"
#include "problem.h"

static const uint8_t dgx1[8] = { 0x1e, 0x2d, 0x4b, 0x87, 0xe1, 0xd2, 0xb4, 0x78 };

static struct choice choose_by(const struct made_problem *m, const struct plan_rules *rules) {
        static struct error err;
        struct choice choice;
        enum status status = planner_choose(rules, &m->problem, &choice, &err);
        ck_assert_msg(status == STATUS_OK, "%s", err.detail);
        return choice;
}

static enum algorithm_name chosen(const struct made_problem *m) {
        return choose_by(m, &PLAN_RULES_DEFAULT).algorithm->name;
}

static void assert_refused(const struct made_problem *m, enum status status, const char *part) {
        static struct error err;
        struct choice choice;
        ck_assert_int_eq(planner_choose(&PLAN_RULES_DEFAULT, &m->problem, &choice, &err), status);
        ck_assert_int_eq(err.field, FIELD_OPTIONS);
        ck_assert_msg(strstr(err.detail, part), "\"%s\" is not in: %s", part, err.detail);
}

/* TensorFlow 1.12's four tables. */
START_TEST(TA5_the_links_of_a_DGX_1_choose_hierarchical_copy) {
        uint8_t links[8];
        struct made_problem *m = problem_make(8, 1);
        problem_add(m, DTYPE_F32, 10);
        problem_on_gpus(m, 8, dgx1);
        ck_assert_int_eq(chosen(m), ALGORITHM_HIERARCHICAL_COPY);
        ck_assert_uint_eq(choose_by(m, &PLAN_RULES_DEFAULT).signature.options.packing.num_packs, 8);
        m->signature.options.packing.bytes_per_pack = 7; /* what the caller says of packs counts */
        ck_assert_uint_eq(choose_by(m, &PLAN_RULES_DEFAULT).signature.options.packing.num_packs, 0);
        m->signature.options.packing.bytes_per_pack = 0;
        for (unsigned int i = 0; i < 8; i++) /* each list may name the device itself, too */
                links[i] = dgx1[i] | (uint8_t)(1u << i);
        problem_on_gpus(m, 8, links);
        ck_assert_int_eq(chosen(m), ALGORITHM_HIERARCHICAL_COPY);
        for (unsigned int i = 0; i < 8; i++) /* rotated */
                links[i] = dgx1[(i + 1) % 8];
        problem_on_gpus(m, 8, links);
        ck_assert_int_ne(chosen(m), ALGORITHM_HIERARCHICAL_COPY);
        problem_on_gpus(m, 4, dgx1); /* four of its eight, all linked */
        ck_assert_int_eq(chosen(m), ALGORITHM_ONE_DEVICE);
        free(m);
}
END_TEST

START_TEST(on_GPUs_size_links_and_library_decide) {
        static const uint8_t none[4] = { 0 };
        struct made_problem *small = problem_make(4, 1), *large = problem_make(4, 1);
        problem_add(small, DTYPE_F32, 65535);
        problem_add(large, DTYPE_F32, 65536); /* 256 KiB */
        problem_on_gpus(small, 4, NULL);
        problem_on_gpus(large, 4, NULL);
        ck_assert_int_eq(chosen(small), ALGORITHM_ONE_DEVICE);
        ck_assert_int_eq(chosen(large), ALGORITHM_LIBRARY);
        ck_assert_int_eq(
                choose_by(large, &(struct plan_rules){ .library_from_bytes = 1 << 20 }).algorithm->name,
                ALGORITHM_ONE_DEVICE);
        large->signature.options.reproducible = true;
        ck_assert_int_eq(chosen(large), ALGORITHM_ONE_DEVICE);
        large->signature.options.reproducible = false;
        large->signature.options.check_numerics = true; /* the library cannot */
        ck_assert_int_eq(chosen(large), ALGORITHM_ONE_DEVICE);
        problem_on_gpus(small, 4, none);
        problem_on_gpus(large, 4, none);
        ck_assert_int_eq(chosen(small), ALGORITHM_LIBRARY);
        small->topology.has_library = false;
        small->topology.why_no_library = "libnccl.so.2 is not there";
        ck_assert_int_eq(chosen(small), ALGORITHM_HIERARCHICAL_COPY);
        small->signature.options.reproducible = true;
        ck_assert_int_eq(chosen(small), ALGORITHM_ONE_DEVICE);
        small->signature.options.reproducible = false;
        small->signature.options.check_overflow = true;
        ck_assert_int_eq(chosen(small), ALGORITHM_ONE_DEVICE);
        ck_assert_str_eq(choose_by(small, &PLAN_RULES_DEFAULT).why,
                "there is no peer access: values go by way of host memory");
        problem_on_gpus(large, 1, NULL); /* all on one */
        ck_assert_int_eq(chosen(large), ALGORITHM_ONE_DEVICE);
        large->homes[2] = 0; /* and one replica on the host */
        ck_assert_int_eq(chosen(large), ALGORITHM_ONE_DEVICE);
        ck_assert_str_eq(choose_by(large, &PLAN_RULES_DEFAULT).why, "one GPU reads all values");
        free(small);
        free(large);
}
END_TEST

START_TEST(on_a_host_it_is_the_pass_in_rank_order_whatever_it_is_called) {
        static const enum implementation implementations[] = { IMPLEMENTATION_UNSPECIFIED,
                IMPLEMENTATION_AUTO, IMPLEMENTATION_RING, IMPLEMENTATION_NCCL };
        struct made_problem *m = problem_make(4, 2);
        problem_add(m, DTYPE_F32, 1 << 20);
        for (size_t i = 0; i < ARRAY_SIZE(implementations); i++) {
                m->signature.options.implementation = implementations[i];
                struct choice choice = choose_by(m, &PLAN_RULES_DEFAULT);
                ck_assert_int_eq(choice.algorithm->name, ALGORITHM_ONE_DEVICE);
                ck_assert_int_eq(choice.algorithm->order, ORDER_RANK);
                if (implementations[i] == IMPLEMENTATION_RING)
                        ck_assert_str_eq(choice.why, "on a host, RING is the pass in rank order");
                ck_assert_str_eq(
                        choice.fallback, implementations[i] == IMPLEMENTATION_NCCL
                                                 ? "NCCL was asked for, but host devices have no library"
                                                 : "");
        }
        free(m);
}
END_TEST

START_TEST(a_demand_is_met_or_refused) {
        struct made_problem *m = problem_make(4, 2);
        problem_add(m, DTYPE_F32, 8);
        m->signature.options.algorithm = ALGORITHM_HIERARCHICAL_COPY;
        ck_assert_int_eq(chosen(m), ALGORITHM_HIERARCHICAL_COPY);
        m->signature.options.check_inputs = true;
        assert_refused(m, STATUS_UNSUPPORTED, "hierarchical_copy cannot do this batch_reduce: check_inputs");
        m->signature.options = (struct options){ .algorithm = ALGORITHM_LIBRARY };
        assert_refused(m, STATUS_UNSUPPORTED, "host devices have no library");
        m->signature.options = (struct options){ .has_place = true, .place = 1 };
        ck_assert_int_eq(chosen(m), ALGORITHM_ONE_DEVICE);
        m->signature.options.place = 2;
        assert_refused(m, STATUS_INVALID, "CPU:2 is to reduce, but this tuttid has CPU:0 to CPU:1");
        m->signature.options = (struct options){ .algorithm = ALGORITHM_LIBRARY };
        m->signature.kind = KIND_BROADCAST; /* what is no reduction goes its way */
        ck_assert_int_eq(chosen(m), ALGORITHM_ONE_DEVICE);
        m->signature.kind = KIND_BATCH_REDUCE;
        m->signature.op = OP_MEAN;
        m->signature.options = (struct options){ .algorithm = ALGORITHM_HIERARCHICAL_COPY };
        problem_add(m, DTYPE_I64, 1);
        assert_refused(m, STATUS_UNSUPPORTED, "64-bit integers");
        free(m);
}
END_TEST

START_TEST(a_wish_of_the_configuration_is_met_or_a_fallback) {
        const struct plan_rules rules = { .algorithm = ALGORITHM_HIERARCHICAL_COPY };
        struct made_problem *m = problem_make(4, 2);
        problem_add(m, DTYPE_F32, 8);
        ck_assert_int_eq(choose_by(m, &rules).algorithm->name, ALGORITHM_HIERARCHICAL_COPY);
        m->signature.options.reproducible = true;
        ck_assert_int_eq(choose_by(m, &rules).algorithm->name, ALGORITHM_ONE_DEVICE);
        m->signature.options = (struct options){ .check_overflow = true };
        struct choice choice = choose_by(m, &rules);
        ck_assert_int_eq(choice.algorithm->name, ALGORITHM_ONE_DEVICE);
        ck_assert_str_eq(choice.fallback, "plan.algorithm is hierarchical_copy, but check_overflow looks at "
                                          "all inputs of an element at once");
        m->signature.options = (struct options){ .algorithm = ALGORITHM_ONE_DEVICE };
        ck_assert_int_eq(choose_by(m, &rules).algorithm->name, ALGORITHM_ONE_DEVICE);
        free(m);
}
END_TEST

START_TEST(P15_a_hint_that_a_demand_leaves_no_room_for_is_a_fallback) {
        static const struct {
                struct options options;
                const char *fallback;
        } cases[] = {
                { { .reproducible = true, .implementation = IMPLEMENTATION_NCCL },
                        "NCCL was asked for, but reproducible was demanded" },
                { { .reproducible = true, .implementation = IMPLEMENTATION_RING }, "" },
                { { .reproducible = true, .implementation = IMPLEMENTATION_AUTO }, "" },
                { { .algorithm = ALGORITHM_ONE_DEVICE, .implementation = IMPLEMENTATION_NCCL },
                        "NCCL was asked for, but one_device was demanded" },
                { { .algorithm = ALGORITHM_HIERARCHICAL_COPY, .implementation = IMPLEMENTATION_RING },
                        "RING was asked for, but hierarchical_copy was demanded" },
                { { .has_place = true, .place = 1, .implementation = IMPLEMENTATION_NCCL },
                        "NCCL was asked for, but a device was demanded" },
                { { .has_place = true, .place = 1 }, "" },
        };
        struct made_problem *m = problem_make(4, 2);
        problem_add(m, DTYPE_F32, 8);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                m->signature.options = cases[i].options;
                ck_assert_str_eq(choose_by(m, &PLAN_RULES_DEFAULT).fallback, cases[i].fallback);
        }
        free(m);
}
END_TEST

START_TEST(islands_are_halves_or_what_reaches_each_other) {
        static const uint8_t none[4] = { 0 }, pairs[5] = { 4, 8, 1, 2, 0 };
        const struct {
                uint32_t n;
                const uint8_t *links; /* NULL: all */
                uint32_t n_islands, islands[8];
        } cases[] = {
                { 1, NULL, 1, { 0 } },
                { 2, NULL, 2, { 0, 1 } },
                { 3, NULL, 2, { 0, 1, 1 } },
                { 7, NULL, 2, { 0, 0, 0, 1, 1, 1, 1 } },
                { 8, dgx1, 2, { 0, 0, 0, 0, 1, 1, 1, 1 } },
                { 4, none, 4, { 0, 1, 2, 3 } },
                { 5, pairs, 3, { 0, 1, 0, 1, 2 } },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct made_problem *m = problem_make(1, 1);
                uint32_t islands[MAX_TOPOLOGY];
                problem_on_gpus(m, cases[i].n, cases[i].links);
                ck_assert_uint_eq(topology_islands(&m->topology, m->topology.devices, cases[i].n, islands),
                        cases[i].n_islands);
                ck_assert_mem_eq(islands, cases[i].islands, cases[i].n * sizeof(*islands));
                free(m);
        }
}
END_TEST

/* --- how much there is to do --- */

static void check_work(const struct made_problem *m, uint64_t most) {
        uint64_t n_bytes = signature_bytes(&m->signature, m->entries[0]);
        uint64_t work = planner_work(&m->problem, n_bytes), charged = planner_bytes(&m->problem, n_bytes);
        struct planner *planner;
        struct plan plan;
        struct error err;
        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, m->problem.n_devices, 4096), 0);
        ck_assert_int_eq(planner_plan(planner, &m->problem, &plan, &err), STATUS_OK);
        uint64_t taken = plan.n_steps * sizeof(struct step) + plan.n_operands * sizeof(struct operand);
        ck_assert_msg(charged >= taken && charged / 8 <= taken, "%llu bytes for %llu",
                (unsigned long long)charged, (unsigned long long)taken);
        ck_assert_msg(2 * work >= plan.n_operands / 2 && work <= most, "%llu for %u operands",
                (unsigned long long)work, plan.n_operands);
        plan_deinit(&plan);
        planner_free(planner);
}

START_TEST(P18_P21_packs_and_rounds_are_work) {
        struct made_problem *m = problem_make(4, 3);
        problem_add(m, DTYPE_F32, 20000);
        check_work(m, 4); /* one step for all */
        m->signature.options.algorithm = ALGORITHM_HIERARCHICAL_COPY;
        check_work(m, 50);
        m->signature.options.packing.num_packs = 10000;
        check_work(m, 1000000);
        ck_assert_uint_ge(planner_work(&m->problem, 80000), 40000);
        m->signature.options.packing.num_packs = 0;
        problem_add(m, DTYPE_F32, UINT64_C(256) << 20); /* a gigabyte: 256 rounds */
        check_work(m, 10000);
        ck_assert_uint_ge(planner_work(&m->problem, UINT64_C(1) << 30), 1024);
        m->signature.options.algorithm =
                ALGORITHM_ONE_DEVICE; /* which cuts nothing, whatever is said of packs */
        m->signature.options.packing.num_packs = MAX_ENTRIES;
        check_work(m, 8);
        free(m);
}
END_TEST

/* A step for all would take a GPU that reaches all: here everything goes in rounds. */
START_TEST(P18_P21_rounds_by_way_of_host_memory_are_work) {
        static const uint8_t none[4] = { 0 };
        struct made_problem *m = problem_make(4, 1);
        problem_add(m, DTYPE_F32, UINT64_C(256) << 20); /* a gigabyte: 256 rounds */
        problem_on_gpus(m, 4, none);
        m->signature.options.reproducible = true;
        check_work(m, 10000);
        ck_assert_uint_ge(planner_work(&m->problem, UINT64_C(1) << 30), 1024);
        m->signature.kind = KIND_BROADCAST;
        m->signature.options.reproducible = false;
        check_work(m, 10000);
        ck_assert_uint_ge(planner_work(&m->problem, UINT64_C(1) << 30), 1024);
        ck_assert_uint_ge(planner_work(&m->problem, UINT64_MAX), UINT64_C(1) << 40);
        problem_on_gpus(m, 4, NULL);
        check_work(m, 4); /* all is near */
        free(m);
}
END_TEST

static void assert_not_planned(const struct made_problem *m, enum field field) {
        static struct error err;
        struct planner *planner;
        struct plan plan;
        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 2, 4096), 0);
        ck_assert_int_eq(planner_plan(planner, &m->problem, &plan, &err), STATUS_UNSUPPORTED);
        ck_assert_msg(err.field == field, "%s", err.detail);
        planner_free(planner);
        plan_deinit(&plan);
}

static void make_sparse(struct made_problem *m) {
        for (uint32_t i = 0; i < 2; i++) {
                struct entry *e = &m->entries[i][0];
                e->layout = LAYOUT_SPARSE;
                e->sparse = (struct sparse){ .index_dtype = DTYPE_I64,
                        .n_indices = 10,
                        .n_dense_dims = 1,
                        .dense_shape = { 70 },
                        .indices = { .buffer = 3, .file = 10 + i, .span = { 0, 80 } },
                        .output_indices = { .buffer = 4, .file = 20 + i, .span = { 0, 160 } } };
                e->output_extent = 20;
                e->output.span.n_bytes = 80;
        }
        m->problem.n_sparse = 1;
}

START_TEST(sparse_values_are_for_a_device_that_reaches_all_of_them) {
        static const uint8_t apart[] = { 1, 2 };
        static struct error err;
        struct made_problem *m = problem_make(2, 2);
        struct planner *planner;
        struct plan plan;
        problem_add(m, DTYPE_F32, 10);
        make_sparse(m);
        ck_assert_int_eq(chosen(m), ALGORITHM_ONE_DEVICE);
        m->signature.options.algorithm = ALGORITHM_HIERARCHICAL_COPY;
        assert_refused(m, STATUS_UNSUPPORTED, "sparse values are laid together");
        m->signature.options.algorithm = ALGORITHM_UNSPECIFIED;
        problem_on_gpus(m, 2, NULL);
        ck_assert_int_eq(chosen(m), ALGORITHM_ONE_DEVICE);
        plan_init(&plan);
        ck_assert_int_eq(planner_new(&planner, 2, 4096), 0);
        ck_assert_int_eq(planner_plan(planner, &m->problem, &plan, &err), STATUS_OK);
        ck_assert_uint_eq(plan.device, DEVICE_GPU);
        ck_assert_int_eq(plan.steps[0].kind, STEP_INDICES);
        ck_assert_uint_eq(plan.scratch[0].device, DEVICE_GPU);
        planner_free(planner);
        plan_deinit(&plan);
        problem_on_gpus(m, 2, apart);
        assert_not_planned(m, FIELD_LAYOUT);
        free(m);
}
END_TEST

UNIT_MAIN("planner-choice", 30, sparse_values_are_for_a_device_that_reaches_all_of_them,
        TA5_the_links_of_a_DGX_1_choose_hierarchical_copy, on_GPUs_size_links_and_library_decide,
        on_a_host_it_is_the_pass_in_rank_order_whatever_it_is_called, a_demand_is_met_or_refused,
        a_wish_of_the_configuration_is_met_or_a_fallback,
        P15_a_hint_that_a_demand_leaves_no_room_for_is_a_fallback,
        islands_are_halves_or_what_reaches_each_other, P18_P21_packs_and_rounds_are_work,
        P18_P21_rounds_by_way_of_host_memory_are_work)
