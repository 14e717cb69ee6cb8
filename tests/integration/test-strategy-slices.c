/* Sparse values in the strategy layer: in threads of one process, and in several processes. */
#include "strategies.h"

/* Each replica brings the row of its rank. */
static void reduce_slices(struct replica *me) {
        uint32_t n_local = me->n == 1 ? MAX_LOCAL : 2;
        struct tutti_strategy *s = strategy_in(me, n_local);
        uint32_t n = tutti_strategy_num_replicas_in_sync(s), l = tutti_strategy_n_local(s);
        float rows[MAX_LOCAL], all[MAX_LOCAL][16];
        int64_t ids[MAX_LOCAL], all_ids[MAX_LOCAL][16];
        struct tutti_value in[MAX_LOCAL], out[MAX_LOCAL], in_ids[MAX_LOCAL], out_ids[MAX_LOCAL];
        uint64_t n_rows = 0;
        for (uint32_t i = 0; i < l; i++) {
                ids[i] = me->rank * l + i;
                rows[i] = (float)ids[i];
                in[i] = float_at(&rows[i], 1);
                out[i] = float_at(all[i], 16);
                in_ids[i] = TUTTI_VALUE(.memory = &ids[i], .dtype = TUTTI_I64, .n_dims = 1, .shape = { 1 });
                out_ids[i] =
                        TUTTI_VALUE(.memory = all_ids[i], .dtype = TUTTI_I64, .n_dims = 1, .shape = { 16 });
                in[i].indices = &in_ids[i];
                out[i].indices = &out_ids[i];
                in[i].dense_rows = out[i].dense_rows = 16;
        }
        expect_status(tutti_strategy_reduce_to(s, TUTTI_SUM,
                              &TUTTI_REDUCTION(.values = in, .outputs = out, .ret_extent = &n_rows), NULL),
                TUTTI_OK);
        ck_assert_uint_eq(n_rows, n);
        for (uint32_t i = 0; i < l; i++)
                for (uint32_t r = 0; r < n; r++)
                        ck_assert(all[i][r] == (float)r && all_ids[i][r] == r);
        tutti_strategy_close(s);
}

START_TEST(TB8_slices_are_reduced_and_their_number_is_told) {
        board_init();
        struct host *h = host_start(NULL);
        for (uint32_t n_processes = 1; n_processes <= 4; n_processes++)
                run_replicas(h, n_processes, reduce_slices, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("strategy-slices", 60, TB8_slices_are_reduced_and_their_number_is_told)
