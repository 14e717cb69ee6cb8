/* Built without cuda.h: the same functions, of which one says so and the others are never reached. */
#include "base/check.h"
#include "lib/driver.h"
#include "lib/failure.h"

static enum status refuse_all(struct error *err) {
        return refuse(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                "this libtutti was built without cuda.h, so it knows no device memory; build it where the "
                "CUDA toolkit is");
}

enum status driver_begin(struct error *err) {
        return refuse_all(err);
}

enum status driver_here(struct driver_place *ret, struct error *err) {
        (void)ret;
        return refuse_all(err);
}

enum status driver_look(uint64_t pointer, struct driver_memory *ret, struct error *err) {
        (void)pointer;
        (void)ret;
        return refuse_all(err);
}

uint64_t driver_memory_id(uint64_t pointer) {
        (void)pointer;
        return 0;
}

enum status driver_export(uint64_t base, int *ret_fd, struct error *err) {
        (void)base;
        (void)ret_fd;
        return refuse_all(err);
}

enum status driver_legacy_handle(
        const struct driver_memory *m, uint8_t ret[DRIVER_HANDLE_BYTES], struct error *err) {
        (void)m;
        (void)ret;
        return refuse_all(err);
}

enum status driver_map(
        const struct driver_place *place, int fd, uint64_t n_bytes, uint64_t *ret, struct error *err) {
        (void)place;
        (void)fd;
        (void)n_bytes;
        (void)ret;
        return refuse_all(err);
}

enum status driver_map_read_only(
        const struct driver_place *p, int fd, uint64_t n_bytes, uint64_t *ret, struct error *err) {
        return driver_map(p, fd, n_bytes, ret, err);
}

void driver_unmap(void *context, uint64_t pointer, uint64_t n_bytes) {
        (void)context;
        (void)pointer;
        (void)n_bytes;
}

enum status driver_pin(void *context, void *memory, uint64_t n_bytes, uint64_t *ret, struct error *err) {
        (void)context;
        (void)memory;
        (void)n_bytes;
        (void)ret;
        return refuse_all(err);
}

void driver_unpin(void *context, void *memory) {
        (void)context;
        (void)memory;
}

enum status driver_read(const struct driver_copy *c, struct error *err) {
        (void)c;
        return refuse_all(err);
}

enum status driver_write(const struct driver_copy *c, struct error *err) {
        (void)c;
        return refuse_all(err);
}

enum status driver_wait(void *context, void *stream, struct error *err) {
        (void)context;
        (void)stream;
        return refuse_all(err);
}

void driver_wait_all(void *context) {
        (void)context;
}

enum status driver_set_word(const struct driver_word *w, struct error *err) {
        (void)w;
        return refuse_all(err);
}

enum status driver_await_word(const struct driver_word *w, struct error *err) {
        (void)w;
        return refuse_all(err);
}

enum status driver_use(const char *uuid, struct error *err) {
        (void)uuid;
        return refuse_all(err);
}

enum status driver_event_open(
        void *context, const uint8_t handle[DRIVER_HANDLE_BYTES], void **ret, struct error *err) {
        (void)context;
        (void)handle;
        (void)ret;
        return refuse_all(err);
}

void driver_event_close(void *context, void *event) {
        (void)context;
        (void)event;
}

enum status driver_event_record(const struct driver_event *e, struct error *err) {
        (void)e;
        return refuse_all(err);
}

enum status driver_event_await(const struct driver_event *e, struct error *err) {
        (void)e;
        return refuse_all(err);
}

bool driver_is_stream_of(void *wanted, void *context, void *stream) {
        (void)wanted;
        (void)context;
        (void)stream;
        return false;
}
