/* Memory of ours, kept: making and freeing it stops a device, so a run takes what another has left. Sizes are
 * powers of two, so that few sizes are about; what lies idle is freed only when memory runs short. */
#include <errno.h>
#include <stdlib.h>
#include "backends/cuda/cuda-private.h"

#define SMALLEST_BYTES (UINT64_C(64) << 10)

static uint64_t round_up(uint64_t n_bytes) {
        uint64_t n = SMALLEST_BYTES;
        while (n < n_bytes && n < UINT64_C(1) << 62)
                n *= 2;
        return n;
}

static void free_area(struct cuda *c, struct area *a) {
        list_unlink(&a->link);
        if (a->where == ON_HOST)
                cuda_note(c, c->driver.cuMemFreeHost(a->host), "cuMemFreeHost");
        else if (cuda_enter(c, &c->devices[a->where]) == 0)
                cuda_note(c, c->driver.cuMemFree(a->at), "cuMemFree");
        free(a);
}

static uint32_t free_idle(struct cuda *c, uint32_t where) {
        uint32_t n = 0;
        list_for_each_safe (it, tmp, &c->areas) {
                struct area *a = list_entry(it, struct area, link);
                if (a->where != where)
                        continue;
                free_area(c, a);
                n++;
        }
        return n;
}

static int allocate_on_host(struct cuda *c, struct area *a) {
        void *host = NULL;
        int r = cuda_check(c,
                c->driver.cuMemHostAlloc(
                        &host, a->n_bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                "cuMemHostAlloc");
        if (r < 0)
                return r;
        a->host = host;
        r = cuda_check(c, c->driver.cuMemHostGetDevicePointer(&a->at, host, 0), "cuMemHostGetDevicePointer");
        if (r < 0)
                cuda_note(c, c->driver.cuMemFreeHost(host), "cuMemFreeHost");
        return r;
}

static int allocate(struct cuda *c, struct area *a) {
        int r = cuda_enter(c, &c->devices[a->where == ON_HOST ? 0 : a->where]);
        if (r < 0)
                return r;
        return a->where == ON_HOST ? allocate_on_host(c, a)
                                   : cuda_check(c, c->driver.cuMemAlloc(&a->at, a->n_bytes), "cuMemAlloc");
}

static struct area *find_idle(struct cuda *c, uint32_t where, uint64_t n_bytes) {
        list_for_each (it, &c->areas) {
                struct area *a = list_entry(it, struct area, link);
                if (a->where == where && a->n_bytes == n_bytes)
                        return a;
        }
        return NULL;
}

struct area *cuda_area_take(struct cuda *c, uint32_t where, uint64_t n_bytes) {
        n_bytes = round_up(n_bytes);
        struct area *a = find_idle(c, where, n_bytes);
        if (a) {
                list_unlink(&a->link);
                return a;
        }
        a = calloc(1, sizeof(*a));
        if (!a)
                return NULL;
        *a = (struct area){ .where = where, .n_bytes = n_bytes };
        list_init(&a->link);
        int r = allocate(c, a);
        if (r == -ENOMEM && free_idle(c, where) > 0)
                r = allocate(c, a);
        if (r == 0)
                return a;
        free(a);
        return NULL;
}

void cuda_area_give(struct cuda *c, struct area *a) {
        if (a)
                list_append(&c->areas, &a->link);
}

void cuda_areas_close(struct cuda *c) {
        list_for_each_safe (it, tmp, &c->areas)
                free_area(c, list_entry(it, struct area, link));
}
