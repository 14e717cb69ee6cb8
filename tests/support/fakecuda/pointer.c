/* What the driver tells of a pointer. */
#include "fake.h"

#include <string.h>

static int ordinal_of(const struct fake_range *range) {
        if (range->owner < 0)
                return range->context ? range->context->device : 0;
        for (int i = 0; i < fake.n_devices; i++)
                if (fake.contexts[i].physical == range->owner)
                        return i;
        return -1;
}

static unsigned long long handle_types(const struct fake_range *range) {
        return range->kind == FAKE_MAPPED ? range->physical->properties.requestedHandleTypes : 0;
}

/* The values that fit in 64 bits; `range` may be NULL, then they are 0. */
static uint64_t value_of(CUpointer_attribute attribute, const struct fake_range *range, CUdeviceptr pointer) {
        bool is_host = range && range->owner < 0;
        if (!range)
                return attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)-2 : 0;
        switch ((int)attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: return (uintptr_t)fake_context_handle(range->context);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return pointer;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: return is_host ? pointer : 0;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: return range->buffer_id;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return (uint64_t)ordinal_of(range);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return range->base;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return range->n_bytes;
        case CU_POINTER_ATTRIBUTE_MAPPED: return 1;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
                return fake.has_ipc && range->kind == FAKE_DEVICE_MEMORY;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return handle_types(range);
        default: return 0;
        }
}

/* How many bytes the caller's variable has; 0 for an attribute that there is not. */
static size_t bytes_of(CUpointer_attribute attribute) {
        switch ((int)attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return sizeof(int);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return 1;
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return 8;
        default: return 0;
        }
}

static void store(void *ret, CUpointer_attribute attribute, CUdeviceptr pointer) {
        uint64_t value = value_of(attribute, fake_range_find(pointer), pointer);
        memcpy(ret, &value, bytes_of(attribute)); /* little-endian, as all hosts with such a driver */
}

CUresult CUDAAPI cuPointerGetAttribute(void *ret, CUpointer_attribute attribute, CUdeviceptr pointer) {
        CUresult r = fake_enter(CALL_cuPointerGetAttribute, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret || !bytes_of(attribute) || !fake_range_find(pointer))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        store(ret, attribute, pointer);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuPointerGetAttributes(
        unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer) {
        CUresult r = fake_enter(CALL_cuPointerGetAttributes, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        for (unsigned int i = 0; i < n; i++)
                if (!attributes || !data || !data[i] || !bytes_of(attributes[i]))
                        return fake_leave(CUDA_ERROR_INVALID_VALUE);
        for (unsigned int i = 0; i < n; i++)
                store(data[i], attributes[i], pointer);
        return fake_leave(CUDA_SUCCESS);
}
