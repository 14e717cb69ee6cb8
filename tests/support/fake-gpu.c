#include "fake-gpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "unit.h"

struct fake_gpu *fake_gpu_new(uint32_t n_devices) {
        char path[512];
        snprintf(path, sizeof(path), "%s/fake-gpu", unit_directory());
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, sizeof(struct fake_gpu)), 0);
        struct fake_gpu *fake = mmap(NULL, sizeof(*fake), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(fake, MAP_FAILED);
        close(fd);
        fake->n_devices = n_devices;
        ck_assert_int_eq(setenv("FAKE_GPU", path, 1), 0);
        return fake;
}

const char *fake_gpu_path(void) {
        return BUILT_FAKE_GPU;
}

const char *fake_gpu_setting(void) {
        return "gpu.worker=" BUILT_FAKE_GPU;
}

const char *fake_gpu_uuid(uint32_t k) {
        static char uuid[2][64];
        static uint32_t next;
        char *buf = uuid[next++ % 2];
        snprintf(buf, sizeof(uuid[0]), "GPU-fa4e0000-0000-0000-0000-%012u", k);
        return buf;
}
