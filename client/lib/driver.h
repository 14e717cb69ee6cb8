/* The CUDA driver, as far as libtutti needs it: opened at run time, so that the library links and runs where
 * there is none. The only room that sees cuda.h (cuda.c; cuda-absent.c where the build had no header).
 *
 * Any thread. Contexts and streams are passed on and never made: what is done here is done in the context of
 * the memory or stream that it is about, and the thread's own is as it was afterwards. After a fork nothing
 * of the driver works in the child; what lets go does nothing there. Errors say which call failed, in the
 * driver's own words. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "model/error.h"
#include "model/status.h"

#define DRIVER_UUID_BYTES   44 /* "GPU-" and 36 characters, and room for "MIG-" likewise */
#define DRIVER_HANDLE_BYTES 64

/* Opens it once. UNSUPPORTED: there is none, or it is too old; the text says what to do. */
enum status driver_begin(struct error *err) MUST_USE;

/* A device and a context on it. */
struct driver_place {
        void *context;
        int device; /* as this process numbers it */
        char uuid[DRIVER_UUID_BYTES];
        bool has_timeline; /* its streams can wait for 64-bit words */
};

/* Where the calling thread is. INVALID: no context is current. */
enum status driver_here(struct driver_place *ret, struct error *err) MUST_USE;

/* Makes the primary context of this device current, which it stays. NOT_FOUND. */
enum status driver_use(const char *uuid, struct error *err) MUST_USE;

/* An allocation, seen from a pointer into it. */
struct driver_memory {
        struct driver_place place;
        uint64_t base, n_bytes; /* of what can be exported as one */
        uint64_t id;            /* of this allocation, never used again in this process; 0: not known */
        bool is_legacy;         /* cudaMalloc's: it has a handle without capability */
        bool is_exportable;     /* cuMemCreate's, with a handle that is a descriptor */
};

/* INVALID: no device memory. */
enum status driver_look(uint64_t pointer, struct driver_memory *ret, struct error *err) MUST_USE;
/* As driver_memory.id: 0 where nothing is known of it. */
uint64_t driver_memory_id(uint64_t pointer);

/* A descriptor of the allocation that begins at `base`; UNSUPPORTED. */
enum status driver_export(uint64_t base, int *ret_fd, struct error *err) MUST_USE;
/* UNSUPPORTED where the driver refuses. */
enum status driver_legacy_handle(
        const struct driver_memory *m, uint8_t ret[DRIVER_HANDLE_BYTES], struct error *err) MUST_USE;

/* Somebody else's allocation, whole, mapped for reading and writing; the descriptor stays the caller's. */
enum status driver_map(const struct driver_place *place, int fd, uint64_t n_bytes, uint64_t *ret,
        struct error *err) MUST_USE;
/* The same, for reading alone. */
enum status driver_map_read_only(const struct driver_place *place, int fd, uint64_t n_bytes, uint64_t *ret,
        struct error *err) MUST_USE;
void driver_unmap(void *context, uint64_t pointer, uint64_t n_bytes);

/* Host memory that devices see: where they see it, for all contexts of the process. */
enum status driver_pin(
        void *context, void *memory, uint64_t n_bytes, uint64_t *ret, struct error *err) MUST_USE;
void driver_unpin(void *context, void *memory);

struct driver_copy {
        void *context, *stream;
        uint64_t device;
        void *host;
        uint64_t n_bytes;
};

/* Device to host, in the order of the stream; driver_wait tells when it is there. */
enum status driver_read(const struct driver_copy *c, struct error *err) MUST_USE;
/* Host to device; there when it returns. The stream does not count. */
enum status driver_write(const struct driver_copy *c, struct error *err) MUST_USE;

/* Until the stream has done all that it was given. The context counts where the stream is the default one. */
enum status driver_wait(void *context, void *stream, struct error *err) MUST_USE;
/* Until all of the context's have. */
void driver_wait_all(void *context);

/* An event of another process's. */
struct driver_event {
        void *context, *stream, *event;
};

/* By its handle; UNSUPPORTED where the driver refuses. */
enum status driver_event_open(
        void *context, const uint8_t handle[DRIVER_HANDLE_BYTES], void **ret, struct error *err) MUST_USE;
void driver_event_close(void *context, void *event);
/* Comes when the stream gets there. Both belong to the same context. */
enum status driver_event_record(const struct driver_event *e, struct error *err) MUST_USE;
/* The stream goes on when what was recorded last, before this call, has come. */
enum status driver_event_await(const struct driver_event *e, struct error *err) MUST_USE;
/* Whether a stream is `wanted`'s; `context` counts where it is the default one. */
bool driver_is_stream_of(void *wanted, void *context, void *stream);

/* A word of pinned memory, at `address` as devices see it. */
struct driver_word {
        void *context, *stream;
        uint64_t address, value;
};

/* The stream sets the word when it gets there; what was before it in the stream is visible then. */
enum status driver_set_word(const struct driver_word *w, struct error *err) MUST_USE;
/* The stream goes on when the word has reached the value. */
enum status driver_await_word(const struct driver_word *w, struct error *err) MUST_USE;
