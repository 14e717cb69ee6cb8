#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "unit.h"

#define DIRECTORY "/sys/kernel/mm/hugepages/hugepages-2048kB"
#define PATIENCE  60 /* s, for other tests that have it */

/* Puts it back when `end` is closed, that is when the test has ended or has called pool_give_back. */
static struct {
        pid_t pid;
        int end;
} keeper = { .end = -1 };

static uint64_t count(const char *name) {
        char path[128];
        unsigned long long n = 0;
        snprintf(path, sizeof(path), DIRECTORY "/%s", name);
        FILE *f = fopen(path, "re");
        if (!f)
                return 0;
        if (fscanf(f, "%llu", &n) != 1)
                n = 0;
        fclose(f);
        return n;
}

/* 0 or errno. */
static int set_size(uint64_t n) {
        char text[32];
        int fd = open(DIRECTORY "/nr_hugepages", O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return errno;
        int n_bytes = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)n);
        int e = write(fd, text, (size_t)n_bytes) == n_bytes ? 0 : errno;
        close(fd);
        return e;
}

uint64_t pool_free(void) {
        uint64_t n = count("free_hugepages"), n_promised = count("resv_hugepages");
        return n > n_promised ? n - n_promised : 0;
}

static int lock_pool(void) {
        int fd = open(DIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                unit_skip("this kernel has no pool of 2 MiB pages");
        for (int tenths = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tenths++) {
                if (tenths == 10 * PATIENCE) {
                        close(fd);
                        unit_skip("another test has the pool of huge pages");
                }
                nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        }
        return fd;
}

/* A page that somebody still has is only marked to go, and may come back to the pool all the same, while
 * processes of a test that failed are ending. */
static int put_back(uint64_t size) {
        int e = 0;
        for (int tenths = 0; e == 0 && count("nr_hugepages") != size && tenths < 100; tenths++) {
                e = set_size(size);
                if (count("nr_hugepages") != size)
                        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        }
        return e;
}

/* Nobody shall wait for the end of a socket that only the keeper has. */
static void close_all_but(int a, int b) {
        for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
                if (fd != a && fd != b)
                        close(fd);
}

/* A process of its own, which no end of the test takes with it, holds the lock as well. */
static void keep(int lock, uint64_t size) {
        int ends[2];
        char ignored;
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        keeper.pid = fork();
        ck_assert_int_ge(keeper.pid, 0);
        if (keeper.pid == 0) {
                setsid();
                close_all_but(ends[0], lock);
                while (read(ends[0], &ignored, 1) < 0 && errno == EINTR)
                        continue;
                _exit(put_back(size));
        }
        close(ends[0]);
        close(lock);
        keeper.end = ends[1];
}

void pool_give_back(void) {
        int status;
        if (keeper.end < 0)
                return;
        close(keeper.end);
        keeper.end = -1;
        ck_assert_int_eq(waitpid(keeper.pid, &status, 0), keeper.pid);
        ck_assert_int_eq(status, 0);
}

void pool_take(uint64_t n_free) {
        int lock = lock_pool();
        uint64_t size = count("nr_hugepages"), n_used = size - pool_free();
        if (size == n_used + n_free && count("nr_overcommit_hugepages") == 0) {
                keep(lock, size); /* nothing to be changed, but nobody else shall */
                return;
        }
        int e = count("nr_overcommit_hugepages") ? EBUSY : set_size(n_used + n_free);
        if (e) {
                close(lock);
                unit_skip("the pool of huge pages may not be changed here (%s)", strerror(e));
        }
        keep(lock, size);
        if (pool_free() != n_free) {
                pool_give_back();
                unit_skip("memory for %llu huge pages cannot be found", (unsigned long long)n_free);
        }
}
