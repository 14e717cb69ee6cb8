#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/check.h"
#include "lib/driver.h"
#include "lib/failure.h"

/* The version whose calls are meant: the oldest driver that has them all. */
#define DRIVER_VERSION 12000

#define DRIVER_CALLS(X)                                                                                      \
        X(cuInit)                                                                                            \
        X(cuDriverGetVersion)                                                                                \
        X(cuGetErrorName)                                                                                    \
        X(cuGetErrorString)                                                                                  \
        X(cuCtxGetCurrent)                                                                                   \
        X(cuCtxPushCurrent)                                                                                  \
        X(cuCtxPopCurrent)                                                                                   \
        X(cuCtxSynchronize)                                                                                  \
        X(cuCtxGetDevice)                                                                                    \
        X(cuDeviceGet)                                                                                       \
        X(cuDeviceGetCount)                                                                                  \
        X(cuDevicePrimaryCtxRetain)                                                                          \
        X(cuCtxSetCurrent)                                                                                   \
        X(cuDeviceGetUuid)                                                                                   \
        X(cuDeviceGetAttribute)                                                                              \
        X(cuPointerGetAttribute)                                                                             \
        X(cuMemGetAddressRange)                                                                              \
        X(cuMemRetainAllocationHandle)                                                                       \
        X(cuMemExportToShareableHandle)                                                                      \
        X(cuMemImportFromShareableHandle)                                                                    \
        X(cuMemRelease)                                                                                      \
        X(cuMemAddressReserve)                                                                               \
        X(cuMemAddressFree)                                                                                  \
        X(cuMemMap)                                                                                          \
        X(cuMemUnmap)                                                                                        \
        X(cuMemSetAccess)                                                                                    \
        X(cuIpcGetMemHandle)                                                                                 \
        X(cuMemHostRegister)                                                                                 \
        X(cuMemHostUnregister)                                                                               \
        X(cuMemHostGetDevicePointer)                                                                         \
        X(cuMemcpyDtoHAsync)                                                                                 \
        X(cuMemcpyHtoD)                                                                                      \
        X(cuStreamSynchronize)                                                                               \
        X(cuStreamGetCtx)                                                                                    \
        X(cuStreamWaitEvent)                                                                                 \
        X(cuEventRecord)                                                                                     \
        X(cuEventDestroy)                                                                                    \
        X(cuIpcOpenEventHandle)                                                                              \
        X(cuStreamWriteValue64)                                                                              \
        X(cuStreamWaitValue64)

/* The functions, and the process in which they work. */
static struct {
#define MEMBER(name) __typeof__(name) *name;
        DRIVER_CALLS(MEMBER)
#undef MEMBER
        pid_t pid; /* 0: not opened */
} driver;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* --- opening --- */

typedef CUresult (*get_address)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* The name of what is missing, or NULL. */
static const char *find_calls(get_address get) {
#define CALL(name) { #name, (void **)&driver.name },
        static const struct {
                const char *name;
                void **at;
        } calls[] = { DRIVER_CALLS(CALL) };
#undef CALL
        CUdriverProcAddressQueryResult ignored;
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
                if (get(calls[i].name, calls[i].at, DRIVER_VERSION, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                            &ignored) != CUDA_SUCCESS ||
                        !*calls[i].at)
                        return calls[i].name;
        return NULL;
}

static enum status refuse_call(CUresult r, const char *call, struct error *err);

static enum status open_library(void *library, struct error *err) {
        get_address get;
        *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
        if (!get)
                return refuse(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                        "the NVIDIA driver is older than CUDA 12, which device memory needs; install 525 or "
                        "newer");
        const char *missing = find_calls(get);
        if (missing)
                return refuse(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                        "the NVIDIA driver lacks %s, which device memory needs; install a newer one",
                        missing);
        CUresult r = driver.cuInit(0);
        if (r != CUDA_SUCCESS)
                return refuse_call(r, "cuInit", err);
        driver.pid = getpid();
        return STATUS_OK;
}

/* Whoever uses device memory keeps the library loaded, so it stays open. */
static enum status open_driver(struct error *err) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library)
                return refuse(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                        "device memory needs the NVIDIA driver, and this process cannot open it (%s); in a "
                        "container, start it with the GPUs (--gpus)",
                        dlerror());
        enum status status = open_library(library, err);
        if (status != STATUS_OK)
                dlclose(library);
        return status;
}

enum status driver_begin(struct error *err) {
        enum status status = STATUS_OK;
        pthread_mutex_lock(&opening);
        if (driver.pid == 0)
                status = open_driver(err);
        else if (driver.pid != getpid())
                status = refuse(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED,
                        "CUDA was used before this process was forked, and does not work in it; start "
                        "processes by spawn");
        pthread_mutex_unlock(&opening);
        return status;
}

static bool is_usable(void) {
        return driver.pid == getpid();
}

/* --- errors --- */

static enum status status_of(CUresult r) {
        switch ((int)r) {
        case CUDA_ERROR_OUT_OF_MEMORY: return STATUS_NO_MEMORY;
        case CUDA_ERROR_INVALID_VALUE:
        case CUDA_ERROR_INVALID_HANDLE:
        case CUDA_ERROR_INVALID_CONTEXT:
        case CUDA_ERROR_INVALID_DEVICE:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: return STATUS_INVALID;
        case CUDA_ERROR_NOT_SUPPORTED:
        case CUDA_ERROR_NOT_PERMITTED:
        case CUDA_ERROR_NO_DEVICE:
        case CUDA_ERROR_OPERATING_SYSTEM: return STATUS_UNSUPPORTED;
        default: return STATUS_DEVICE_LOST; /* this process's, also in its own eyes */
        }
}

static enum status refuse_call(CUresult r, const char *call, struct error *err) {
        const char *name = NULL, *words = NULL;
        if (driver.cuGetErrorName(r, &name) != CUDA_SUCCESS || !name)
                name = "unknown error";
        if (driver.cuGetErrorString(r, &words) != CUDA_SUCCESS || !words)
                words = "";
        return refuse(err, status_of(r), FIELD_BUFFER, "%s failed: %s (%s)", call, name, words);
}

static enum status check(CUresult r, const char *call, struct error *err) {
        return r == CUDA_SUCCESS ? STATUS_OK : refuse_call(r, call, err);
}

#define TRY(err, name, ...) check(driver.name(__VA_ARGS__), #name, err)

/* --- places --- */

static void print_uuid(const CUuuid *uuid, char ret[DRIVER_UUID_BYTES]) {
        const unsigned char *b = (const unsigned char *)uuid->bytes;
        snprintf(ret, DRIVER_UUID_BYTES,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
                b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static enum status describe_device(CUdevice device, struct driver_place *ret, struct error *err) {
        CUuuid uuid;
        int value = 0;
        enum status status = TRY(err, cuDeviceGetUuid, &uuid, device);
        if (status == STATUS_OK)
                status = TRY(err, cuDeviceGetAttribute, &value,
                        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device);
        if (status != STATUS_OK)
                return status;
        ret->device = device;
        ret->has_timeline = value != 0;
        print_uuid(&uuid, ret->uuid);
        return STATUS_OK;
}

enum status driver_here(struct driver_place *ret, struct error *err) {
        CUcontext context = NULL;
        CUdevice device;
        enum status status = driver_begin(err);
        if (status == STATUS_OK)
                status = TRY(err, cuCtxGetCurrent, &context);
        if (status == STATUS_OK && !context)
                status = refuse(err, STATUS_INVALID, FIELD_BUFFER,
                        "no CUDA context is current in this thread: call cudaSetDevice or cuCtxSetCurrent "
                        "first");
        if (status == STATUS_OK)
                status = TRY(err, cuCtxGetDevice, &device);
        if (status != STATUS_OK)
                return status;
        ret->context = context;
        return describe_device(device, ret, err);
}

enum status driver_use(const char *uuid, struct error *err) {
        int n = 0;
        CUcontext context = NULL;
        enum status status = driver_begin(err);
        if (status == STATUS_OK)
                status = TRY(err, cuDeviceGetCount, &n);
        for (int i = 0; status == STATUS_OK && i < n; i++) {
                struct driver_place place;
                CUdevice device;
                status = TRY(err, cuDeviceGet, &device, i);
                if (status == STATUS_OK)
                        status = describe_device(device, &place, err);
                if (status != STATUS_OK || strcmp(place.uuid, uuid) != 0)
                        continue;
                status = TRY(err, cuDevicePrimaryCtxRetain, &context, device);
                return status == STATUS_OK ? TRY(err, cuCtxSetCurrent, context) : status;
        }
        return status != STATUS_OK
                       ? status
                       : refuse(err, STATUS_NOT_FOUND, FIELD_BUFFER, "this process sees no device %s", uuid);
}

/* Makes `context` current; NULL leaves the thread's own. */
static enum status enter(void *context, struct error *err) {
        return context ? TRY(err, cuCtxPushCurrent, context) : STATUS_OK;
}

static void leave(void *context) {
        CUcontext popped;
        if (context)
                (void)!driver.cuCtxPopCurrent(&popped);
}

/* A call within a context. */
#define WITHIN(context, err, name, ...)                                                                      \
        ({                                                                                                   \
                enum status status_ = enter(context, err);                                                   \
                if (status_ == STATUS_OK) {                                                                  \
                        status_ = TRY(err, name, __VA_ARGS__);                                               \
                        leave(context);                                                                      \
                }                                                                                            \
                status_;                                                                                     \
        })

/* --- memory of the caller --- */

/* What is not known of a pointer is 0. */
#define LOOK(ret, attribute, pointer)                                                                        \
        (driver.cuPointerGetAttribute(ret, CU_POINTER_ATTRIBUTE_##attribute, pointer) == CUDA_SUCCESS)

uint64_t driver_memory_id(uint64_t pointer) {
        unsigned long long id;
        return is_usable() && LOOK(&id, BUFFER_ID, pointer) ? id : 0;
}

static bool is_device_memory(uint64_t pointer) {
        unsigned int type = 0, is_managed = 0;
        return LOOK(&type, MEMORY_TYPE, pointer) && type == CU_MEMORYTYPE_DEVICE &&
               !(LOOK(&is_managed, IS_MANAGED, pointer) && is_managed);
}

/* Memory of cuMemCreate belongs to no context; then it is the thread's own. */
static enum status find_place(uint64_t pointer, struct driver_place *ret, struct error *err) {
        CUcontext context = NULL;
        int ordinal = 0;
        CUdevice device;
        if (!LOOK(&context, CONTEXT, pointer) || !context) {
                enum status status = driver_here(ret, err);
                if (status != STATUS_OK)
                        return status;
                context = ret->context;
        }
        ret->context = context;
        if (!LOOK(&ordinal, DEVICE_ORDINAL, pointer))
                ordinal = 0;
        enum status status = TRY(err, cuDeviceGet, &device, ordinal);
        return status == STATUS_OK ? describe_device(device, ret, err) : status;
}

enum status driver_look(uint64_t pointer, struct driver_memory *ret, struct error *err) {
        unsigned int is_legacy = 0;
        unsigned long long types = 0;
        CUdeviceptr base;
        size_t n_bytes;
        enum status status = driver_begin(err);
        if (status != STATUS_OK)
                return status;
        if (!is_device_memory(pointer))
                return refuse(err, STATUS_INVALID, FIELD_BUFFER,
                        "%#llx is no device memory of this process (host and managed memory are handed over "
                        "as plain values)",
                        (unsigned long long)pointer);
        *ret = (struct driver_memory){ .id = driver_memory_id(pointer) };
        status = find_place(pointer, &ret->place, err);
        if (status == STATUS_OK)
                status = WITHIN(ret->place.context, err, cuMemGetAddressRange, &base, &n_bytes, pointer);
        if (status != STATUS_OK)
                return status;
        ret->base = base;
        ret->n_bytes = n_bytes;
        ret->is_legacy = LOOK(&is_legacy, IS_LEGACY_CUDA_IPC_CAPABLE, pointer) && is_legacy;
        ret->is_exportable = LOOK(&types, ALLOWED_HANDLE_TYPES, pointer) &&
                             (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        return STATUS_OK;
}

enum status driver_export(uint64_t base, int *ret_fd, struct error *err) {
        CUmemGenericAllocationHandle handle;
        int fd = -1;
        enum status status = TRY(err, cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)base);
        if (status == STATUS_OK) {
                status = TRY(err, cuMemExportToShareableHandle, &fd, handle,
                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
                (void)!driver.cuMemRelease(handle);
        }
        if (status == STATUS_OK)
                *ret_fd = fd;
        else
                err->status = status = STATUS_UNSUPPORTED;
        return status;
}

enum status driver_legacy_handle(
        const struct driver_memory *m, uint8_t ret[DRIVER_HANDLE_BYTES], struct error *err) {
        CUipcMemHandle handle = { { 0 } };
        _Static_assert(sizeof(handle) == DRIVER_HANDLE_BYTES, "a legacy handle is of the wire's size");
        enum status status = WITHIN(m->place.context, err, cuIpcGetMemHandle, &handle, m->base);
        if (status == STATUS_OK)
                memcpy(ret, &handle, sizeof(handle));
        else
                err->status = status = STATUS_UNSUPPORTED;
        return status;
}

/* --- memory of tuttid's --- */

/* Somebody else's allocation on its way to an address of ours. */
struct mapping {
        const struct driver_place *place;
        CUmemAccess_flags access;
        uint64_t n_bytes;
};

static enum status map_at(
        CUdeviceptr at, const struct mapping *m, CUmemGenericAllocationHandle h, struct error *err) {
        const uint64_t n_bytes = m->n_bytes;
        const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                 .id = m->place->device },
                .flags = m->access };
        enum status status = TRY(err, cuMemMap, at, n_bytes, 0, h, 0);
        if (status != STATUS_OK)
                return status;
        status = TRY(err, cuMemSetAccess, at, n_bytes, &access, 1);
        if (status != STATUS_OK)
                (void)!driver.cuMemUnmap(at, n_bytes);
        return status;
}

static enum status map_handle(
        const struct mapping *m, CUmemGenericAllocationHandle h, uint64_t *ret, struct error *err) {
        CUdeviceptr at;
        enum status status = TRY(err, cuMemAddressReserve, &at, m->n_bytes, 0, 0, 0);
        if (status != STATUS_OK)
                return status;
        status = map_at(at, m, h, err);
        if (status == STATUS_OK)
                *ret = at;
        else
                (void)!driver.cuMemAddressFree(at, m->n_bytes);
        return status;
}

static enum status map_descriptor(const struct mapping *m, int fd, uint64_t *ret, struct error *err) {
        CUmemGenericAllocationHandle handle;
        enum status status = enter(m->place->context, err);
        if (status != STATUS_OK)
                return status;
        status = TRY(err, cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (status == STATUS_OK) {
                status = map_handle(m, handle, ret, err);
                (void)!driver.cuMemRelease(handle); /* the mapping keeps it */
        }
        leave(m->place->context);
        return status;
}

enum status driver_map(
        const struct driver_place *p, int fd, uint64_t n_bytes, uint64_t *ret, struct error *err) {
        const struct mapping m = { p, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, n_bytes };
        return map_descriptor(&m, fd, ret, err);
}

enum status driver_map_read_only(
        const struct driver_place *p, int fd, uint64_t n_bytes, uint64_t *ret, struct error *err) {
        const struct mapping m = { p, CU_MEM_ACCESS_FLAGS_PROT_READ, n_bytes };
        return map_descriptor(&m, fd, ret, err);
}

void driver_unmap(void *context, uint64_t pointer, uint64_t n_bytes) {
        struct error ignored;
        if (!is_usable() || enter(context, &ignored) != STATUS_OK)
                return;
        (void)!driver.cuMemUnmap(pointer, n_bytes);
        (void)!driver.cuMemAddressFree(pointer, n_bytes);
        leave(context);
}

/* --- host memory --- */

enum status driver_pin(void *context, void *memory, uint64_t n_bytes, uint64_t *ret, struct error *err) {
        CUdeviceptr at = 0;
        enum status status = enter(context, err);
        if (status != STATUS_OK)
                return status;
        status = TRY(err, cuMemHostRegister, memory, n_bytes,
                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        if (status == STATUS_OK) {
                status = TRY(err, cuMemHostGetDevicePointer, &at, memory, 0);
                if (status != STATUS_OK)
                        (void)!driver.cuMemHostUnregister(memory);
        }
        leave(context);
        if (status == STATUS_OK)
                *ret = at;
        return status;
}

void driver_unpin(void *context, void *memory) {
        struct error ignored;
        if (!is_usable() || enter(context, &ignored) != STATUS_OK)
                return;
        (void)!driver.cuMemHostUnregister(memory);
        leave(context);
}

enum status driver_read(const struct driver_copy *c, struct error *err) {
        return WITHIN(c->context, err, cuMemcpyDtoHAsync, c->host, c->device, c->n_bytes, c->stream);
}

enum status driver_write(const struct driver_copy *c, struct error *err) {
        return WITHIN(c->context, err, cuMemcpyHtoD, c->device, c->host, c->n_bytes);
}

/* --- streams --- */

/* The default stream is that of the current context; any other knows its own. */
static void *context_of(void *context, void *stream) {
        CUcontext own = NULL;
        if (stream && driver.cuStreamGetCtx(stream, &own) == CUDA_SUCCESS && own)
                return own;
        return context;
}

enum status driver_wait(void *context, void *stream, struct error *err) {
        return WITHIN(context_of(context, stream), err, cuStreamSynchronize, stream);
}

void driver_wait_all(void *context) {
        struct error ignored;
        if (!is_usable() || enter(context, &ignored) != STATUS_OK)
                return;
        (void)!driver.cuCtxSynchronize();
        leave(context);
}

enum status driver_set_word(const struct driver_word *w, struct error *err) {
        return WITHIN(context_of(w->context, w->stream), err, cuStreamWriteValue64, w->stream, w->address,
                w->value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

enum status driver_await_word(const struct driver_word *w, struct error *err) {
        return WITHIN(context_of(w->context, w->stream), err, cuStreamWaitValue64, w->stream, w->address,
                w->value, CU_STREAM_WAIT_VALUE_GEQ);
}

/* --- events --- */

enum status driver_event_open(
        void *context, const uint8_t handle[DRIVER_HANDLE_BYTES], void **ret, struct error *err) {
        CUipcEventHandle h;
        CUevent event = NULL;
        _Static_assert(sizeof(h) == DRIVER_HANDLE_BYTES, "a handle is of the wire's size");
        memcpy(&h, handle, sizeof(h));
        enum status status = WITHIN(context, err, cuIpcOpenEventHandle, &event, h);
        if (status == STATUS_OK)
                *ret = event;
        else
                err->status = status = STATUS_UNSUPPORTED;
        return status;
}

void driver_event_close(void *context, void *event) {
        struct error ignored;
        if (!event || !is_usable() || enter(context, &ignored) != STATUS_OK)
                return;
        (void)!driver.cuEventDestroy(event);
        leave(context);
}

enum status driver_event_record(const struct driver_event *e, struct error *err) {
        return WITHIN(e->context, err, cuEventRecord, e->event, e->stream);
}

enum status driver_event_await(const struct driver_event *e, struct error *err) {
        return WITHIN(e->context, err, cuStreamWaitEvent, e->stream, e->event, 0);
}

bool driver_is_stream_of(void *wanted, void *context, void *stream) {
        return context_of(context, stream) == wanted;
}
