#include <stdlib.h>
#include "gpu-host.h"
#include "meeting.h"
#include "place.h"
#include "unit.h"

static uint32_t n_devices;
static bool has_host_members;
static bool is_on_gpu; /* this replica */

struct host *place_start(uint32_t variant, const char *const *arguments) {
        (void)arguments;
        n_devices = variant % PLACE_VARIANTS == 0 ? 1 : 3;
        has_host_members = variant % PLACE_VARIANTS == 2;
        setenv("FAKECUDA_PEERS", "all", 1);
        return gpu_host_start(n_devices == 1 ? "1" : "3", NULL);
}

void place_stop(struct host *h) {
        gpu_host_stop(h);
}

struct tutti_buffer *place_alloc(struct replica *me, size_t n_bytes) {
        struct tutti_buffer *b;
        is_on_gpu = !has_host_members || me->rank % 2 == 0;
        if (is_on_gpu) {
                gpu_use_device((int)(me->rank % n_devices));
                return gpu_take_buffer(me->t, n_bytes / sizeof(float) + 1);
        }
        expect_status(tutti_buffer_alloc(me->t, n_bytes, &b), TUTTI_OK);
        return b;
}

void place_leave(struct replica *me) {
        if (is_on_gpu)
                gpu_leave(me, NULL);
}
