#include "cuda-kernels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

static const struct fake_kernel *find(const char *name) {
        for (size_t i = 0; i < fakecuda_kernels.n_kernels; i++)
                if (strcmp(fakecuda_kernels.kernels[i].name, name) == 0)
                        return &fakecuda_kernels.kernels[i];
        return NULL;
}

void run_launch(const struct cuda_launch *l) {
        const struct fake_kernel *kernel = find(cuda_kernel_name(l->kernel));
        ck_assert_msg(kernel, "there is no kernel %s", cuda_kernel_name(l->kernel));
        ck_assert_uint_eq(kernel->n_args, 1);
        ck_assert_uint_le(kernel->arg_bytes[0], sizeof(l->args));
        kernel->run((const void *const[]){ &l->args }, l->grid, l->block);
}

void run_step(struct cuda_step *s) {
        struct cuda_launch launches[CUDA_STEP_LAUNCHES];
        uint64_t n_bytes = cuda_step_table_bytes(s);
        s->table = n_bytes ? malloc(n_bytes) : NULL;
        s->table_at = address_of(s->table);
        int n = cuda_step_prepare(s, launches);
        ck_assert_msg(n >= 0, "%s %s: no kernel", op_name(s->op), dtype_name(s->dtype));
        for (int i = 0; i < n; i++)
                run_launch(&launches[i]);
        free(s->table);
        s->table = NULL;
}
