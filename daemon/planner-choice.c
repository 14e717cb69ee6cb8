#include "planner-choice.h"

#include <stdio.h>
#include <string.h>
#include "algorithms/places.h"

static const struct algorithm *const algorithms[] = { &algorithm_one_device, &algorithm_hierarchical_copy,
        &algorithm_library, &algorithm_collect, &algorithm_gather };

static const struct algorithm *find(enum algorithm_name name) {
        for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++)
                if (algorithms[i]->name == name)
                        return algorithms[i];
        return NULL;
}

/* --- the table --- */

enum placement { ON_HOST = 1, ON_ONE_GPU = 2, ON_GPUS = 4, ON_BOTH = 8, ANYWHERE = 15 };
enum size { ANY_SIZE, SMALL, LARGE }; /* below, from plan.library-from on */
enum capability { ANY_DEVICES, DGX1_LINKS, LIBRARY, WITHIN_REACH };

struct rule {
        bool is_reduction; /* else any kind */
        enum size size;
        unsigned int placements;
        enum capability capability;
        enum algorithm_name algorithm;
        bool packs_for_each_device; /* num_packs, where the options say nothing of packs */
        const char *why;
};

/* The first line that fits, and whose algorithm can do it, holds. docs/algorithms.md shows it. */
static const struct rule rules_table[] = {
        { false, ANY_SIZE, ANYWHERE, ANY_DEVICES, ALGORITHM_COLLECT, false,
                "a merge_call lays everybody's values side by side" },
        { false, ANY_SIZE, ANYWHERE, ANY_DEVICES, ALGORITHM_GATHER, false,
                "a gather copies each value to where it belongs" },
        { false, ANY_SIZE, ON_HOST, ANY_DEVICES, ALGORITHM_ONE_DEVICE, false,
                "host devices reach all memory, so one pass in rank order is the least work" },
        { false, ANY_SIZE, ON_ONE_GPU | ON_BOTH, WITHIN_REACH, ALGORITHM_ONE_DEVICE, false,
                "one GPU reads all values" },
        { true, ANY_SIZE, ON_GPUS, DGX1_LINKS, ALGORITHM_HIERARCHICAL_COPY, true,
                "the links are those of a DGX-1" },
        { true, LARGE, ON_GPUS, LIBRARY, ALGORITHM_LIBRARY, false,
                "it is large enough for the library to be faster" },
        { false, ANY_SIZE, ON_GPUS, WITHIN_REACH, ALGORITHM_ONE_DEVICE, false,
                "one kernel reads all values over peer access" },
        { true, ANY_SIZE, ON_GPUS | ON_BOTH, LIBRARY, ALGORITHM_LIBRARY, false,
                "there is no peer access, and the library finds its way" },
        { true, ANY_SIZE, ANYWHERE, ANY_DEVICES, ALGORITHM_HIERARCHICAL_COPY, false,
                "there is no peer access: sums go by way of host memory" },
        { false, ANY_SIZE, ANYWHERE, ANY_DEVICES, ALGORITHM_ONE_DEVICE, false,
                "there is no peer access: values go by way of host memory" },
};

static enum placement placement_of(const struct problem *problem) {
        uint32_t n_gpus = 0, first = 0;
        bool has_host = !problem->homes, has_many = false;
        for (uint32_t i = 0; problem->homes && i < problem->n_ranks; i++) {
                has_host |= problem->homes[i] < DEVICE_GPU;
                if (problem->homes[i] < DEVICE_GPU)
                        continue;
                has_many |= n_gpus > 0 && problem->homes[i] != first;
                first = problem->homes[i];
                n_gpus++;
        }
        if (n_gpus == 0)
                return ON_HOST;
        if (has_host)
                return ON_BOTH;
        return has_many ? ON_GPUS : ON_ONE_GPU;
}

static bool has_capability(const struct problem *problem, enum capability capability) {
        switch (capability) {
        case ANY_DEVICES: break;
        case DGX1_LINKS: return topology_is_dgx1(problem->topology);
        case LIBRARY: return problem->topology->has_library;
        case WITHIN_REACH: return problem_is_near(problem, problem_worker(problem));
        }
        return true;
}

static bool is_reduction(const struct problem *problem) {
        return kind_reduces(problem->signature->kind);
}

static uint32_t count_gpus(const struct problem *problem) {
        uint64_t seen = 0;
        for (uint32_t i = 0; problem->homes && i < problem->n_ranks; i++)
                if (problem->homes[i] >= DEVICE_GPU)
                        seen |= UINT64_C(1) << (problem->homes[i] - DEVICE_GPU) % 64;
        return (uint32_t)__builtin_popcountll(seen);
}

/* Of as many GPUs, or of the most that are fewer. */
static uint64_t library_from_bytes(const struct plan_rules *rules, const struct problem *problem) {
        const struct threshold *best = NULL;
        uint32_t n_gpus = count_gpus(problem);
        if (rules->library_from_bytes != LIBRARY_AUTO)
                return rules->library_from_bytes;
        for (uint64_t i = 0; rules->tuning && i < rules->tuning->n; i++) {
                const struct threshold *t = &rules->tuning->thresholds[i];
                if (t->n_gpus <= n_gpus && (!best || t->n_gpus > best->n_gpus))
                        best = t;
        }
        return best ? best->bytes : LIBRARY_FROM_BYTES;
}

/* Asked of the few that it matters to: there may be many entries to add up. */
static bool has_size(const struct problem *problem, enum size size, const struct plan_rules *rules) {
        if (size == ANY_SIZE)
                return true;
        bool is_large = signature_bytes(problem->signature, problem->entries[0]) >=
                        library_from_bytes(rules, problem);
        return is_large == (size == LARGE);
}

static bool rule_holds(const struct rule *r, const struct plan_rules *rules, const struct problem *problem) {
        if ((r->is_reduction && !is_reduction(problem)) || !(r->placements & placement_of(problem)) ||
                !has_size(problem, r->size, rules))
                return false;
        return has_capability(problem, r->capability) && !find(r->algorithm)->unfit(problem);
}

static bool says_packs(const struct packing *p) {
        return p->num_packs || (p->small_bytes && p->small_group) || p->bytes_per_pack;
}

static enum status refuse_kind(const struct problem *problem, struct error *err) {
        enum kind kind = problem->signature->kind;
        enum algorithm_name nearest = kind == KIND_GATHER ? ALGORITHM_GATHER : ALGORITHM_ONE_DEVICE;
        const char *unfit = find(nearest)->unfit(problem);
        error_init(err, STATUS_UNSUPPORTED);
        return error_set(err, STATUS_UNSUPPORTED, FIELD_KIND, "no algorithm of this tuttid does this %s: %s",
                kind_name(kind), unfit ? unfit : "the table of choices has no line for it");
}

static enum status by_table(const struct plan_rules *rules, const struct problem *problem, struct choice *ret,
        struct error *err) {
        for (size_t i = 0; i < ARRAY_SIZE(rules_table); i++) {
                const struct rule *r = &rules_table[i];
                if (!rule_holds(r, rules, problem))
                        continue;
                ret->algorithm = find(r->algorithm);
                ret->why = r->why;
                if (r->packs_for_each_device && !says_packs(&ret->signature.options.packing))
                        ret->signature.options.packing.num_packs = problem->topology->n_devices;
                return STATUS_OK;
        }
        return refuse_kind(problem, err);
}

/* --- demands and wishes --- */

static enum status by_demand(
        const struct problem *problem, enum algorithm_name name, struct choice *ret, struct error *err) {
        ret->algorithm = find(name);
        ret->why = "the options say so";
        const char *unfit = ret->algorithm->unfit(problem);
        if (!unfit)
                return STATUS_OK;
        error_init(err, STATUS_UNSUPPORTED);
        return error_set(err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                "%s cannot do this %s: %s. Leave the algorithm out, or see `tuttictl plan` for what there is",
                algorithm_word(name), kind_name(problem->signature->kind), unfit);
}

/* Whether it can be met. */
static bool by_wish(
        const struct problem *problem, enum algorithm_name name, const char *whose, struct choice *ret) {
        const char *unfit = find(name)->unfit(problem);
        if (unfit) {
                snprintf(ret->fallback, sizeof(ret->fallback), "%s, but %s", whose, unfit);
                return false;
        }
        ret->algorithm = find(name);
        return true;
}

static bool by_implementation(const struct problem *problem, struct choice *ret) {
        switch (problem->signature->options.implementation) {
        case IMPLEMENTATION_UNSPECIFIED:
        case IMPLEMENTATION_AUTO: return false;
        case IMPLEMENTATION_RING:
                ret->why = "on a host, RING is the pass in rank order";
                if (placement_of(problem) == ON_HOST)
                        return by_wish(problem, ALGORITHM_ONE_DEVICE, "RING was asked for", ret);
                snprintf(ret->fallback, sizeof(ret->fallback),
                        "RING was asked for, but on GPUs the library decides how values go round");
                return false;
        case IMPLEMENTATION_NCCL:
                ret->why = "NCCL was asked for";
                return by_wish(problem, ALGORITHM_LIBRARY, "NCCL was asked for", ret);
        }
        return false;
}

static bool is_hint_met(const struct problem *problem, const struct choice *choice) {
        switch (problem->signature->options.implementation) {
        case IMPLEMENTATION_UNSPECIFIED:
        case IMPLEMENTATION_AUTO: return true;
        case IMPLEMENTATION_RING:
                return choice->algorithm->name == ALGORITHM_ONE_DEVICE && placement_of(problem) == ON_HOST;
        case IMPLEMENTATION_NCCL: return choice->algorithm->name == ALGORITHM_LIBRARY;
        }
        return true;
}

/* A hint beside a demand, which leaves no choice: often the one is the membership's and the other the call's.
 */
static void note_hint(const struct problem *problem, struct choice *ret) {
        const struct options *o = &problem->signature->options;
        if (is_hint_met(problem, ret))
                return;
        snprintf(ret->fallback, sizeof(ret->fallback), "%s was asked for, but %s was demanded",
                o->implementation == IMPLEMENTATION_NCCL ? "NCCL" : "RING",
                o->algorithm != ALGORITHM_UNSPECIFIED ? algorithm_word(o->algorithm)
                : o->has_place                        ? "a device"
                                                      : "reproducible");
}

static bool by_configuration(
        const struct plan_rules *rules, const struct problem *problem, struct choice *ret) {
        char whose[64];
        if (rules->algorithm == ALGORITHM_UNSPECIFIED)
                return false;
        snprintf(whose, sizeof(whose), "plan.algorithm is %s", algorithm_word(rules->algorithm));
        ret->why = "plan.algorithm says so";
        return by_wish(problem, rules->algorithm, whose, ret);
}

/* The device that is to reduce. */
static enum status check_place(const struct problem *problem, struct error *err) {
        const struct options *o = &problem->signature->options;
        char name[DEVICE_NAME_BYTES];
        if (!o->has_place || (o->place < problem->n_devices && o->place < DEVICE_GPU) ||
                topology_find(problem->topology, o->place) != NO_PLACE)
                return STATUS_OK;
        error_init(err, STATUS_INVALID);
        return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                "%s is to reduce, but this tuttid has CPU:0 to CPU:%u; `tuttictl status` lists its devices",
                device_name(o->place, name), problem->n_devices - 1);
}

/* What lies on GPUs is reduced by one of them, whichever host device was asked for: to the same bits. */
static enum status instead_of_host(const struct problem *given, struct choice *ret, struct error *err) {
        struct problem problem = *given;
        char asked[DEVICE_NAME_BYTES], done[DEVICE_NAME_BYTES];
        ret->signature.options.has_place = false;
        problem.signature = &ret->signature;
        enum status status = by_demand(&problem, ALGORITHM_ONE_DEVICE, ret, err);
        snprintf(ret->fallback, sizeof(ret->fallback),
                "%s was asked to reduce, but the values are on GPUs: %s does, in the same order",
                device_name(given->signature->options.place, asked), device_name(given->device, done));
        return status;
}

enum status planner_choose(const struct plan_rules *rules, const struct problem *problem, struct choice *ret,
        struct error *err) {
        const struct options *o = &problem->signature->options;
        *ret = (struct choice){ .signature = *problem->signature };
        enum status status = check_place(problem, err);
        if (status != STATUS_OK)
                return status;
        if (problem->is_bound) {
                status = by_demand(problem, ALGORITHM_ONE_DEVICE, ret, err);
                ret->why = "the result object lives on that GPU";
                return status;
        }
        if (!is_reduction(problem))
                return by_table(rules, problem, ret, err);
        if (o->has_place && o->place < DEVICE_GPU && placement_of(problem) != ON_HOST)
                return instead_of_host(problem, ret, err);
        if (o->algorithm != ALGORITHM_UNSPECIFIED || o->has_place) {
                status = by_demand(problem, o->has_place ? ALGORITHM_ONE_DEVICE : o->algorithm, ret, err);
                note_hint(problem, ret);
                return status;
        }
        if (o->reproducible) {
                status = by_demand(problem, ALGORITHM_ONE_DEVICE, ret, err);
                ret->why = "reproducible: it alone keeps the order of the ranks";
                note_hint(problem, ret);
                return status;
        }
        if (by_implementation(problem, ret) || by_configuration(rules, problem, ret))
                return STATUS_OK;
        return by_table(rules, problem, ret, err);
}

void choice_note(const struct choice *choice, struct plan *plan) {
        plan->algorithm = algorithm_word(choice->algorithm->name);
        plan->order = choice->algorithm->order;
        plan->why = choice->why;
        memcpy(plan->fallback, choice->fallback, sizeof(plan->fallback));
}
