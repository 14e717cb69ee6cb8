#include "algorithms/topology.h"

#include "model/device.h"

void topology_of_host(struct topology *ret, uint32_t n) {
        CHECK(n <= MAX_TOPOLOGY);
        *ret = (struct topology){ .n_devices = n, .why_no_library = "host devices have no library" };
        for (uint32_t i = 0; i < n; i++) {
                ret->devices[i] = i;
                for (uint32_t k = 0; k < n; k++)
                        ret->links[i][k] = LINK_SAME;
        }
}

uint32_t topology_find(const struct topology *t, uint32_t device) {
        for (uint32_t i = 0; i < t->n_devices; i++)
                if (t->devices[i] == device)
                        return i;
        return NO_PLACE;
}

bool topology_reaches(const struct topology *t, uint32_t a, uint32_t b) {
        uint32_t from = topology_find(t, a), to = topology_find(t, b);
        if (a == b || b < DEVICE_GPU)
                return true;
        return from != NO_PLACE && to != NO_PLACE && t->links[from][to] != LINK_NONE;
}

bool topology_is_full(const struct topology *t, const uint32_t *devices, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < n; k++)
                        if (!topology_reaches(t, devices[i], devices[k]))
                                return false;
        return true;
}

/* --- DGX-1 --- */

#define N_DGX1 8

/* Bit k of row i: i and k are linked. */
static const uint8_t dgx1[N_DGX1] = { 0x1e, 0x2d, 0x4b, 0x87, 0xe1, 0xd2, 0xb4, 0x78 };

bool topology_is_dgx1(const struct topology *t) {
        uint32_t first = 0;
        while (first < t->n_devices && t->devices[first] < DEVICE_GPU)
                first++;
        if (t->n_devices - first < N_DGX1)
                return false;
        for (uint32_t i = 0; i < N_DGX1; i++)
                for (uint32_t k = 0; k < N_DGX1; k++)
                        if (i != k && (t->links[first + i][first + k] == LINK_NVLINK) != (dgx1[i] >> k & 1))
                                return false;
        return true;
}

/* --- islands --- */

static bool fits(const struct topology *t, const uint32_t *devices, uint32_t which, uint32_t island,
        const uint32_t *islands) {
        for (uint32_t i = 0; i < which; i++)
                if (islands[i] == island && !(topology_reaches(t, devices[which], devices[i]) &&
                                                    topology_reaches(t, devices[i], devices[which])))
                        return false;
        return true;
}

uint32_t topology_islands(
        const struct topology *t, const uint32_t *devices, uint32_t n, uint32_t *ret_island) {
        uint32_t n_islands = 0;
        if (n > 1 && topology_is_full(t, devices, n)) {
                for (uint32_t i = 0; i < n; i++)
                        ret_island[i] = i >= n / 2;
                return 2;
        }
        for (uint32_t i = 0; i < n; i++) {
                uint32_t island = 0;
                while (island < n_islands && !fits(t, devices, i, island, ret_island))
                        island++;
                ret_island[i] = island;
                n_islands += island == n_islands;
        }
        return n_islands;
}
