/* Modules and kernels. An image is only looked at to see that it is one; the kernels are those of the CPU
 * build (kernel.h), found by their names. */
#include "fake.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

/* A library is a module of no context. */
struct fake_module {
        struct fake_handle handle;
        struct fake_context *context;
};

enum { MAX_REGISTERED = 64, MAX_STATIC_SHARED = 48 << 10, MAX_SHARED = 227 << 10 };

/* --- which kernels there are --- */

static const struct fake_kernel *registered[MAX_REGISTERED];
static int n_registered;

FAKE_PUBLIC int fakecuda_register_kernel(const struct fake_kernel *kernel) {
        int r = -ENOSPC;
        pthread_mutex_lock(&fake.lock);
        if (n_registered < MAX_REGISTERED) {
                registered[n_registered++] = kernel;
                r = 0;
        }
        pthread_mutex_unlock(&fake.lock);
        return r;
}

static const struct fake_kernel *find_kernel(const char *name) {
        for (int i = n_registered - 1; i >= 0; i--)
                if (!strcmp(registered[i]->name, name))
                        return registered[i];
        if (&fakecuda_kernels)
                for (size_t i = 0; i < fakecuda_kernels.n_kernels; i++)
                        if (!strcmp(fakecuda_kernels.kernels[i].name, name))
                                return &fakecuda_kernels.kernels[i];
        return NULL;
}

/* --- modules --- */

/* A fat binary (with or without its wrapper), a cubin, or PTX. */
static bool is_image(const void *image) {
        static const unsigned char fat[] = { 0x50, 0xed, 0x55, 0xba }, wrapper[] = { 0xb1, 0x43, 0x62, 0x46 };
        const char *text = image;
        if (!image)
                return false;
        if (!memcmp(image, fat, 4) || !memcmp(image, wrapper, 4) || !memcmp(image, "\177ELF", 4))
                return true;
        while (isspace((unsigned char)*text))
                text++;
        return !strncmp(text, "//", 2) || !strncmp(text, ".version", 8);
}

static struct fake_module *new_module(const void *image, struct fake_context *context, CUresult *ret_error) {
        struct fake_module *m = NULL;
        *ret_error = CUDA_ERROR_INVALID_IMAGE;
        if (is_image(image)) {
                m = fake_handle_new(FAKE_MODULE, sizeof(*m));
                *ret_error = m ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (m)
                m->context = context;
        return m;
}

static CUresult load(const void *image, CUmodule *ret) {
        CUresult r;
        const struct fake_module *m = new_module(image, fake_current(), &r);
        if (m)
                *ret = (CUmodule)m->handle.id;
        return r;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *ret, const void *image) {
        CUresult r = fake_enter(CALL_cuModuleLoadData, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r : fake_leave(ret ? load(image, ret) : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuModuleLoadDataEx(
        CUmodule *ret, const void *image, unsigned int n, CUjit_option *options, void **values) {
        CUresult r = fake_enter(CALL_cuModuleLoadDataEx, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r : fake_leave(ret ? load(image, ret) : CUDA_ERROR_INVALID_VALUE);
}

static void free_module(struct fake_module *m) {
        struct fake_handle *h, *next;
        HASH_ITER (hh, fake.handles, h, next) {
                if (h->kind != FAKE_FUNCTION || ((struct fake_function *)h)->module != m)
                        continue;
                fake_handle_retire(h);
                free(h);
        }
        fake_handle_retire(&m->handle);
        free(m);
}

void fake_modules_end(const struct fake_context *context) {
        struct fake_handle *h = fake.handles;
        while (h) {
                bool is_it = h->kind == FAKE_MODULE && ((struct fake_module *)h)->context == context;
                if (is_it)
                        free_module((struct fake_module *)h);
                h = is_it ? fake.handles : h->hh.next; /* with a module its functions go: begin again */
        }
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
        CUresult r = fake_enter(CALL_cuModuleUnload, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_module *m = fake_handle_find(FAKE_MODULE, module);
        if (!m || !m->context)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        free_module(m);
        return fake_leave(CUDA_SUCCESS);
}

static CUresult find_function(struct fake_module *m, const char *name, struct fake_function **ret) {
        if (!m)
                return CUDA_ERROR_INVALID_HANDLE;
        const struct fake_kernel *kernel = name ? find_kernel(name) : NULL;
        if (!kernel)
                return name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
        struct fake_function *f = fake_handle_new(FAKE_FUNCTION, sizeof(*f));
        if (!f)
                return CUDA_ERROR_OUT_OF_MEMORY;
        f->kernel = kernel;
        f->context = m->context;
        f->module = m;
        *ret = f;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *ret, CUmodule module, const char *name) {
        CUresult r = fake_enter(CALL_cuModuleGetFunction, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_function *f = NULL;
        r = ret ? find_function(fake_handle_find(FAKE_MODULE, module), name, &f) : CUDA_ERROR_INVALID_VALUE;
        if (f)
                *ret = (CUfunction)f->handle.id;
        return fake_leave(r);
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *ret, const void *image, CUjit_option *options, void **values,
        unsigned int n, CUlibraryOption *library_options, void **library_values, unsigned int n_library) {
        CUresult r = fake_enter(CALL_cuLibraryLoadData, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_module *m = ret ? new_module(image, NULL, &r) : NULL;
        if (m)
                *ret = (CUlibrary)m->handle.id;
        return fake_leave(ret ? r : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
        CUresult r = fake_enter(CALL_cuLibraryUnload, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_module *m = fake_handle_find(FAKE_MODULE, library);
        if (!m || m->context)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        free_module(m);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *ret, CUlibrary library, const char *name) {
        CUresult r = fake_enter(CALL_cuLibraryGetKernel, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_function *f = NULL;
        r = ret ? find_function(fake_handle_find(FAKE_MODULE, library), name, &f) : CUDA_ERROR_INVALID_VALUE;
        if (f)
                *ret = (CUkernel)f->handle.id;
        return fake_leave(r);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *ret, CUkernel kernel) {
        CUresult r = fake_enter(CALL_cuKernelGetFunction, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_function *k = fake_handle_find(FAKE_FUNCTION, kernel);
        struct fake_function *f = k ? fake_handle_new(FAKE_FUNCTION, sizeof(*f)) : NULL;
        if (!f)
                return fake_leave(k ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE);
        f->kernel = k->kernel;
        f->module = k->module;
        f->context = fake_current();
        *ret = (CUfunction)f->handle.id;
        return fake_leave(CUDA_SUCCESS);
}

/* --- properties of kernels --- */

CUresult CUDAAPI cuFuncGetAttribute(int *ret, CUfunction_attribute attribute, CUfunction function) {
        CUresult r = fake_enter(CALL_cuFuncGetAttribute, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_function *f = fake_handle_find(FAKE_FUNCTION, function);
        if (!ret || !f)
                return fake_leave(f ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
        switch ((int)attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *ret = 1024; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *ret = 32; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *ret = 90; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
                *ret = f->max_dynamic_bytes ? f->max_dynamic_bytes : MAX_STATIC_SHARED;
                break;
        default: *ret = 0;
        }
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
        CUresult r = fake_enter(CALL_cuFuncSetAttribute, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_function *f = fake_handle_find(FAKE_FUNCTION, function);
        if (!f)
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
                return fake_leave(CUDA_SUCCESS);
        if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > MAX_SHARED)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        f->max_dynamic_bytes = value;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *n_bytes) {
        CUresult r = fake_enter(CALL_cuFuncGetParamInfo, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_function *f = fake_handle_find(FAKE_FUNCTION, function);
        if (!f || !offset || index >= f->kernel->n_args)
                return fake_leave(f ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
        *offset = 0;
        for (size_t i = 0; i <= index; i++) {
                size_t n = f->kernel->arg_bytes[i], alignment = n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
                *offset = (*offset + alignment - 1) & ~(alignment - 1);
                if (i < index)
                        *offset += n;
        }
        if (n_bytes)
                *n_bytes = f->kernel->arg_bytes[index];
        return fake_leave(CUDA_SUCCESS);
}

static int blocks_at_once(int n_threads) {
        int n = 2048 / n_threads;
        return n > 32 ? 32 : n;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(
        int *ret, CUfunction function, int n_threads, size_t shared_bytes) {
        CUresult r = fake_enter(CALL_cuOccupancyMaxActiveBlocksPerMultiprocessor, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!fake_handle_find(FAKE_FUNCTION, function))
                return fake_leave(CUDA_ERROR_INVALID_HANDLE);
        if (!ret || n_threads <= 0)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = n_threads > 1024 || shared_bytes > MAX_SHARED ? 0 : blocks_at_once(n_threads);
        return fake_leave(CUDA_SUCCESS);
}
