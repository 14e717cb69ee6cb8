/* Streams: a group has one for each device while it has runs under way, so that who never signals holds up
 * its own group alone. Then the next group may have them. */
#include <stdlib.h>
#include "backends/cuda/cuda-private.h"

/* Streams of a device are mapped to at most 32 queues of its hardware (CUDA_DEVICE_MAX_CONNECTIONS, CUDA
 * programming guide); two in one queue would wait for each other. One is left for `own`. */
#define MAX_LANES 31

static struct lane *find(struct list *lanes, uint64_t group) {
        list_for_each (it, lanes) {
                struct lane *lane = list_entry(it, struct lane, link);
                if (lane->group == group)
                        return lane;
        }
        return NULL;
}

static struct lane *make(struct cuda *c) {
        struct lane *lane = c->n_lanes < MAX_LANES ? calloc(1, sizeof(*lane)) : NULL;
        if (!lane)
                return NULL;
        list_init(&lane->link);
        c->n_lanes++;
        return lane;
}

struct lane *cuda_lane_take(struct cuda *c, uint64_t group) {
        struct lane *lane = find(&c->busy_lanes, group);
        if (!lane) {
                lane = find(&c->idle_lanes, group);
                if (!lane && !list_is_empty(&c->idle_lanes))
                        lane = list_entry(c->idle_lanes.next, struct lane, link);
                if (!lane)
                        lane = make(c);
                if (!lane)
                        return NULL;
                list_unlink(&lane->link);
                list_append(&c->busy_lanes, &lane->link);
                lane->group = group;
        }
        lane->n_runs++;
        return lane;
}

void cuda_lane_give(struct cuda *c, struct lane *lane) {
        if (!lane || --lane->n_runs > 0)
                return;
        list_unlink(&lane->link);
        list_append(&c->idle_lanes, &lane->link);
}

static CUstream make_stream(struct cuda *c, struct cuda_device *d) {
        CUstream stream = NULL;
        if (cuda_enter(c, d) < 0 || cuda_check(c, c->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                                            "cuStreamCreate") < 0)
                return NULL;
        return stream;
}

CUstream cuda_lane_stream(struct cuda *c, struct lane *lane, struct cuda_device *d) {
        if (!lane->streams[d->index])
                lane->streams[d->index] = make_stream(c, d);
        return lane->streams[d->index];
}

static void close_lane(struct cuda *c, struct lane *lane) {
        for (uint32_t i = 0; i < c->n_devices; i++)
                if (lane->streams[i] && cuda_enter(c, &c->devices[i]) == 0)
                        cuda_note(c, c->driver.cuStreamDestroy(lane->streams[i]), "cuStreamDestroy");
        list_unlink(&lane->link);
        free(lane);
}

void cuda_lanes_close(struct cuda *c) {
        list_splice(&c->idle_lanes, &c->busy_lanes);
        list_for_each_safe (it, tmp, &c->idle_lanes)
                close_lane(c, list_entry(it, struct lane, link));
}
