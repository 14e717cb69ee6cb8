/* The host backend as the engine sees it. */
#include "backends/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "backends/host/host-float.h"
#include "backends/guard.h"
#include "backends/host/host-private.h"
#include "backends/host/kernels.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

static void host_free(struct backend *b) {
        struct host_backend *h = host_backend_of(b);
        if (!h)
                return;
        fd_close(&h->userfaultfd);
        free(h);
}

static void host_describe(const struct backend *b, char *buf, size_t size) {
        const struct host_backend *h = (const struct host_backend *)b;
        snprintf(buf, size, "%s, %s", isa_name(h->isa),
                h->userfaultfd < 0 ? "unguarded" : "guarded by userfaultfd");
}

/* The state stays as it is made here; run_chunk looks again, since a library may change it. */
static int host_thread_init(struct backend *b) {
        (void)b;
        struct float_state ignored;
        float_state_enter(&ignored);
        return guard_thread_init();
}

static const char *host_fallback(const struct backend *b) {
        const struct host_backend *h = (const struct host_backend *)b;
        return h->fallback[0] ? h->fallback : NULL;
}

static const struct backend_ops host_ops = {
        .name = "host",
        .free = host_free,
        .describe = host_describe,
        .thread_init = host_thread_init,
        .import = host_import,
        .release = host_release,
        .make = host_make,
        .unmake = host_unmake,
        .make_scratch = host_make_scratch,
        .free_scratch = host_free_scratch,
        .run_chunk = host_run_chunk,
        .fallback = host_fallback,
};

/* USER_MODE_ONLY needs no privilege: it says nothing of faults inside system calls, and all ours are in
 * kernels. A descriptor or negative errno. */
static int open_userfaultfd(void) {
        CLEANUP_FD int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
        struct uffdio_api api = {
                .api = UFFD_API,
                .features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MISSING_HUGETLBFS,
        };
        if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
                return -errno;
        return fd_take(&fd);
}

/* Without userfaultfd tuttid still survives a hole, but pays for the page. */
void host_note_fallback(struct host_backend *h, enum isa wanted, int uffd) {
        struct text t;
        text_init(&t, h->fallback, sizeof(h->fallback));
        if (h->isa < wanted)
                text_add(&t, "isa: %s was asked for, this processor has %s%s", config_isa_word(wanted),
                        isa_name(h->isa), h->isa == ISA_SCALAR ? " only" : "");
        if (uffd < 0)
                text_add(&t, "%sunguarded: userfaultfd is denied (%s)", h->fallback[0] ? "; " : "",
                        strerrorname_np(-uffd));
}

int host_backend_new(struct backend **ret, enum isa isa) {
        int r = guard_install();
        if (r < 0)
                return r;
        struct host_backend *h = calloc(1, sizeof(*h));
        if (!h)
                return -ENOMEM;
        h->base.ops = &host_ops;
        h->isa = kernels_isa(isa);
        int uffd = open_userfaultfd();
        h->userfaultfd = uffd < 0 ? -1 : uffd;
        host_note_fallback(h, isa, uffd);
        *ret = &h->base;
        return 0;
}
