/* What is asked for: whether it can be, and whether it is what is there already. */
#include "result-internal.h"

#include <string.h>
#include "base/text.h"

#define SLOT_ALIGNMENT  UINT64_C(4096)
#define DEFAULT_N_SLOTS 2

/* Names stand in texts for people: no control bytes. */
static bool is_name(const struct key *k) {
        if (k->n_bytes == 0 || k->n_bytes > MAX_RESULT_NAME_BYTES)
                return false;
        for (uint8_t i = 0; i < k->n_bytes; i++)
                if ((unsigned char)k->bytes[i] < ' ' || k->bytes[i] == 0x7f)
                        return false;
        return true;
}

static enum status check_name(const struct msg_make_result *make, struct error *err) {
        if (make->has_key && is_name(&make->key))
                return STATUS_OK;
        return error_set(err, STATUS_INVALID, FIELD_KEY,
                "the name of a result object has 1 to %d bytes, none of them a control byte",
                MAX_RESULT_NAME_BYTES);
}

static enum status refuse_limit(struct error *err, const char *what, uint64_t asked, uint64_t limit) {
        err->used = asked;
        err->limit = limit;
        return error_set(err, STATUS_LIMIT, FIELD_SIZE, "%s", what);
}

static enum status check_size(const struct msg_make_result *make, struct error *err) {
        if (make->size_bytes == 0)
                return error_set(
                        err, STATUS_INVALID, FIELD_SIZE, "a slot of a result object has at least 1 byte");
        if (make->size_bytes > MAX_RESULT_BYTES)
                return refuse_limit(
                        err, "bytes of a slot of a result object", make->size_bytes, MAX_RESULT_BYTES);
        if (make->n_slots > MAX_RESULT_SLOTS)
                return refuse_limit(err, "slots of a result object", make->n_slots, MAX_RESULT_SLOTS);
        if (make->word > LANE_WORDS)
                return refuse_limit(
                        err, "words of a lane in which slots are given back", make->word, LANE_WORDS);
        return STATUS_OK;
}

static uint32_t device_of(const struct result_ask *ask) {
        if (ask->gpu)
                return ask->gpu;
        return ask->make->device[0] ? device_parse(ask->make->device) : 0;
}

static enum status check_device(const struct result_ask *ask, struct error *err) {
        char last[DEVICE_NAME_BYTES];
        if (ask->gpu || device_of(ask) < ask->n_devices)
                return STATUS_OK;
        return error_set(err, STATUS_INVALID, FIELD_DESTINATIONS,
                "there is no device \"%.40s\" for a result object; this tuttid has CPU:0%s%s, and the "
                "GPUs that `tuttictl status` lists",
                ask->make->device, ask->n_devices > 1 ? " to " : "",
                ask->n_devices > 1 ? device_name(ask->n_devices - 1, last) : "");
}

enum status result_take_ask(const struct result_ask *ask, struct result *ret, struct error *err) {
        const struct msg_make_result *make = ask->make;
        enum status status = check_name(make, err);
        if (status == STATUS_OK)
                status = check_size(make, err);
        if (status == STATUS_OK)
                status = check_device(ask, err);
        if (status != STATUS_OK)
                return status;
        *ret = (struct result){ .slot_bytes = make->size_bytes,
                .slots = { .n = make->n_slots ? make->n_slots : DEFAULT_N_SLOTS,
                        .stride_bytes =
                                (make->size_bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT },
                .device = device_of(ask),
                .world_size = ask->world_size };
        memcpy(ret->name, make->key.bytes, make->key.n_bytes);
        return STATUS_OK;
}

static void print_kind(const struct result *r, struct error_class *class) {
        struct text t;
        text_init(&t, class->value, sizeof(class->value));
        text_add(&t, "%llu bytes x %u slots on ", (unsigned long long)r->slot_bytes, r->slots.n);
        device_print(r->device, &t);
}

enum status result_check_alike(
        const struct result *r, const struct result *asked, uint32_t rank, struct error *err) {
        if (r->slot_bytes == asked->slot_bytes && r->slots.n == asked->slots.n && r->device == asked->device)
                return STATUS_OK;
        for (uint32_t i = 0; i < r->world_size; i++)
                if (r->attached[i])
                        rankset_add(&err->classes[0].ranks, i);
        rankset_add(&err->classes[1].ranks, rank);
        print_kind(r, &err->classes[0]);
        print_kind(asked, &err->classes[1]);
        err->n_classes = 2;
        return error_set(err, STATUS_MISMATCH, FIELD_SIZE,
                "the result object \"%s\" of this group is %s, and R%u asks for %s", r->name,
                err->classes[0].value, rank, err->classes[1].value);
}
