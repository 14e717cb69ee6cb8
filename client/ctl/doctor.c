/* Each check says what it found and, where something should be done, what: a person who reads it at night
 * need not know why. */
#include "doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "ctl.h"
#include "rows.h"

#define OLDEST_MAJOR 6
#define OLDEST_MINOR 1
/* What one process needs at most, beside its own files: sockets, eventfds, pidfds, arenas. */
#define OWN_FILES 64
/* What tuttid needs beside its clients'. */
#define DAEMON_FILES        64
#define DEFAULT_CONNECTIONS 256
#define DEFAULT_DESCRIPTORS 4096

const char *doctor_error_name(int e) {
        const char *name = strerrorname_np(e);

        return name ? name : "?";
}

/* --- kernel --- */

static void check_kernel(const struct doctor_view *v, struct diagnosis *d) {
        char *end;
        unsigned long major = strtoul(v->facts->release, &end, 10), minor = 0;

        if (*end == '.')
                minor = strtoul(end + 1, NULL, 10);
        line_add(&d->text, "Linux %s", v->facts->release);
        if (major > OLDEST_MAJOR || (major == OLDEST_MAJOR && minor >= OLDEST_MINOR))
                return;
        d->verdict = VERDICT_FATAL;
        line_add(&d->advice, "tutti needs Linux %d.%d or newer: upgrade the kernel", OLDEST_MAJOR,
                OLDEST_MINOR);
}

static void check_memfd_seals(const struct doctor_view *v, struct diagnosis *d) {
        int e = v->facts->e_memfd_seals;

        if (!e) {
                line_add(&d->text, "memory can be shared and sealed");
                return;
        }
        line_add(&d->text, "memory cannot be shared and sealed (%s)", doctor_error_name(e));
        d->verdict = VERDICT_FATAL;
        line_add(&d->advice,
                "let the sandbox (seccomp profile, SELinux) allow memfd_create and fcntl F_ADD_SEALS");
}

static void check_pidfd(const struct doctor_view *v, struct diagnosis *d) {
        int e = v->facts->e_pidfd;

        if (!e) {
                line_add(&d->text, "deaths are seen at once");
                return;
        }
        line_add(&d->text, "deaths cannot be seen (%s)", doctor_error_name(e));
        d->verdict = VERDICT_FATAL;
        line_add(&d->advice, "let the sandbox (seccomp profile) allow pidfd_open");
}

static void check_peer_pidfd(const struct doctor_view *v, struct diagnosis *d) {
        int e = v->facts->e_peer_pidfd;

        if (!e) {
                line_add(&d->text, "SO_PEERPIDFD: the kernel names who connects");
                return;
        }
        d->verdict = VERDICT_NOTE;
        line_add(&d->text, "no SO_PEERPIDFD (%s): clients send their own pidfd", doctor_error_name(e));
        line_add(&d->advice, "nothing; Linux 6.5 and newer have it");
}

static const struct tutti_row_fallback *unguarded(const struct tutti_answer *status) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(status, TUTTI_ROW_FALLBACK, row)))
                if (strstr(row->fallback.why, "unguarded"))
                        return &row->fallback;
        return NULL;
}

/* It is tuttid that needs it: where it can be asked, its word counts. */
static void check_userfaultfd(const struct doctor_view *v, struct diagnosis *d) {
        int e = v->facts->e_userfaultfd;

        if (v->status ? !unguarded(v->status) : !e) {
                line_add(&d->text, "holes in clients' memory are guarded");
                if (e)
                        line_add(&d->text, " by tuttid; here userfaultfd is denied, which does no harm");
                return;
        }
        d->verdict = VERDICT_FINDING;
        line_add(&d->text, "userfaultfd is denied%s", v->status ? " to tuttid" : "");
        if (e)
                line_add(&d->text, " (%s)", doctor_error_name(e));
        line_add(&d->text, ": a hole in a client's memory is filled at tuttid's expense");
        line_add(&d->advice, "run tuttid outside the sandbox, or let its seccomp profile allow userfaultfd "
                             "(a kernel without CONFIG_USERFAULTFD cannot)");
}

/* --- limits --- */

static uint64_t quota_limit(const struct doctor_view *v, const char *name, uint64_t otherwise) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(v->quota, TUTTI_ROW_QUOTA, row)))
                if (strcmp(row->quota.name, name) == 0)
                        return row->quota.limit;
        return otherwise;
}

static void check_open_files(const struct doctor_view *v, struct diagnosis *d) {
        uint64_t n = v->facts->n_open_files;

        line_add(&d->text, "a process may have %s files open", count(n).s);
        if (n >= OWN_FILES)
                return;
        d->verdict = VERDICT_FINDING;
        line_add(&d->advice,
                "replicas need some tens of descriptors beside their own files: `ulimit -n 1024`");
}

static void check_daemon_files(const struct doctor_view *v, struct diagnosis *d) {
        uint64_t n = v->facts->n_daemon_open_files,
                 needed = quota_limit(v, "connections", DEFAULT_CONNECTIONS) +
                          quota_limit(v, "descriptors", DEFAULT_DESCRIPTORS) + DAEMON_FILES;

        if (!n) {
                d->verdict = VERDICT_ABSENT;
                line_add(&d->text, "tuttid's limit of open files cannot be seen from here");
                return;
        }
        line_add(&d->text, "tuttid may have %s files open", count(n).s);
        if (n >= needed)
                return;
        d->verdict = VERDICT_FINDING;
        line_add(&d->text, "; one user's quotas of connections and descriptors allow more than that");
        line_add(
                &d->advice, "start tuttid with LimitNOFILE=%" PRIu64 " or more, or lower the quotas", needed);
}

/* --- hardware --- */

static void check_huge_pages(const struct doctor_view *v, struct diagnosis *d) {
        const char *huge = v->facts->huge_pages;

        if (v->facts->n_pool_pages)
                line_add(&d->text, "%s of the %s huge pages of the pool are free; ",
                        count(v->facts->n_pool_free).s, count(v->facts->n_pool_pages).s);
        else
                line_add(&d->text, "no pool of huge pages; ");
        if (!*huge) {
                d->verdict = VERDICT_ABSENT;
                line_add(&d->text, "this kernel has no transparent ones for shared memory");
                return;
        }
        line_add(&d->text, "transparent ones for shared memory: %s", huge);
        if (strcmp(huge, "never") != 0 && strcmp(huge, "deny") != 0 && strcmp(huge, "advise") != 0)
                return;
        d->verdict = VERDICT_NOTE;
        line_add(&d->advice,
                "large buffers take fewer pages where trainers ask for huge ones (TUTTI_HUGE_PAGES=yes; "
                "`sysctl vm.nr_hugepages=N` sets some aside), or after "
                "`echo within_size >/sys/kernel/mm/transparent_hugepage/shmem_enabled`");
}

static void check_numa(const struct doctor_view *v, struct diagnosis *d) {
        uint32_t n = v->facts->n_numa_nodes;

        if (n <= 1) {
                line_add(&d->text, "all memory is equally near");
                return;
        }
        d->verdict = VERDICT_NOTE;
        line_add(&d->text, "%u NUMA nodes: tuttid's workers and a client's memory may lie apart", n);
        line_add(&d->advice, "where one node has cores enough, run tuttid and its clients on it "
                             "(`numactl --cpunodebind=0 --membind=0`, or NUMAPolicy= and CPUAffinity=)");
}

/* --- containers and users --- */

static void check_container(const struct doctor_view *v, struct diagnosis *d) {
        const struct host_facts *f = v->facts;

        if (!*f->container) {
                d->verdict = VERDICT_ABSENT;
                line_add(&d->text, "not in a container, as far as can be seen%s",
                        f->has_seccomp_filter ? "; a seccomp filter is on" : "");
                return;
        }
        line_add(&d->text, "in a container (%s)", f->container);
        if (f->is_directory_there)
                return;
        d->verdict = VERDICT_FINDING;
        line_add(&d->text, ", and the directory of the socket is not in it");
        line_add(&d->advice, "mount it: `-v /run/tutti:/run/tutti:ro`; nothing else is shared");
}

static void check_socket_mount(const struct doctor_view *v, struct diagnosis *d) {
        const struct host_facts *f = v->facts;

        if (!f->is_directory_there) {
                d->verdict = VERDICT_ABSENT;
                line_add(&d->text, "there is no directory ");
                line_add_safe(&d->text, f->directory);
                return;
        }
        if (!f->is_socket_mounted) {
                line_add(&d->text, "the socket's directory is ");
                line_add_safe(&d->text, f->directory);
                line_add(&d->text, "%s", f->is_directory_mounted ? ", which is mounted" : "");
                return;
        }
        d->verdict = VERDICT_FINDING;
        line_add(&d->text, "the socket itself is mounted: when tuttid starts again, this one is dead");
        line_add(&d->advice, "mount its directory instead: ");
        line_add_safe(&d->advice, f->directory);
}

static void check_shm(const struct doctor_view *v, struct diagnosis *d) {
        if (!v->facts->shm_bytes) {
                d->verdict = VERDICT_ABSENT;
                line_add(&d->text, "no /dev/shm; tutti does not use it");
                return;
        }
        line_add(&d->text, "/dev/shm has %s; tutti does not use it, so its size does not matter",
                bytes_text(v->facts->shm_bytes).s);
}

/* Where tuttid stands outside of this user namespace it may know who this is all the same. */
static void check_user(const struct doctor_view *v, struct diagnosis *d) {
        const struct host_facts *f = v->facts;
        bool is_nobody = !f->is_uid_mapped || f->uid == f->overflow_uid;

        if (is_nobody && !v->status) {
                d->verdict = VERDICT_FATAL;
                line_add(&d->text, "uid %u stands for all users that are not mapped; tuttid refuses it",
                        f->uid);
                line_add(&d->advice, "run as a user of one's own, whom the user namespace maps");
        } else if (is_nobody) {
                d->verdict = VERDICT_NOTE;
                line_add(&d->text, "this user is not mapped here; tuttid, outside, knows who it is");
                line_add(&d->advice, "nothing; a tuttid inside would refuse it");
        } else if (f->has_own_uids) {
                d->verdict = VERDICT_NOTE;
                line_add(&d->text, "uid %u here is uid %u outside: tuttid counts by what it sees", f->uid,
                        f->outer_uid);
                line_add(&d->advice, "replicas of one group must be the same user outside");
        } else {
                line_add(&d->text, "uid %u, counted alike by everybody", f->uid);
        }
}

/* --- tuttid --- */

/* What libtutti says has a line about what happened and, mostly, one about what to do. */
static void report_unreachable(const struct doctor_view *v, struct diagnosis *d) {
        size_t n = strcspn(v->why, "\n");

        d->verdict = VERDICT_FINDING;
        line_add(&d->text, "cannot be asked: %.*s", (int)n, v->why);
        if (v->why[n])
                line_add_safe(&d->advice, v->why + n + 1);
        else
                line_add(&d->advice, "put that right: every client would fail in the same way");
}

static void check_tuttid(const struct doctor_view *v, struct diagnosis *d) {
        const struct tutti_row *row = rows_next(v->status, TUTTI_ROW_DAEMON, NULL);

        if (!row) {
                report_unreachable(v, d);
                return;
        }
        line_add(
                &d->text, "tuttid %s answers, up %s", row->daemon.version, duration(row->daemon.uptime_ns).s);
        if (row->daemon.draining) {
                d->verdict = VERDICT_FINDING;
                line_add(&d->text, "; draining: ");
                line_add_drain(&d->text, &row->daemon);
                line_add(
                        &d->advice, "start it again; or, where somebody drained it, `tuttictl drain --undo`");
        } else if (strcmp(row->daemon.version, tutti_version()) != 0) {
                d->verdict = VERDICT_NOTE;
                line_add(&d->text, "; libtutti here is %s", tutti_version());
                line_add(&d->advice, "nothing, while they understand each other; better upgrade the older");
        }
}

static void check_fallbacks(const struct doctor_view *v, struct diagnosis *d) {
        const struct tutti_row *row = NULL;

        if (!v->status) {
                d->verdict = VERDICT_ABSENT;
                line_add(&d->text, "tuttid's fallbacks cannot be seen");
                return;
        }
        while ((row = rows_next(v->status, TUTTI_ROW_FALLBACK, row))) {
                line_add(&d->text, d->text.used ? "; " : "");
                line_add_safe(&d->text, row->fallback.what);
                line_add(&d->text, ": ");
                line_add_safe(&d->text, row->fallback.why);
        }
        if (!d->text.used) {
                line_add(&d->text, "everything runs as it should");
                return;
        }
        d->verdict = VERDICT_NOTE;
        line_add(&d->advice, "nothing, where that is meant; results are the same");
}

static const struct {
        const char *name;
        void (*check)(const struct doctor_view *v, struct diagnosis *d);
} checks[] = {
        { "kernel", check_kernel },
        { "memfd-seals", check_memfd_seals },
        { "pidfd", check_pidfd },
        { "peer-pidfd", check_peer_pidfd },
        { "userfaultfd", check_userfaultfd },
        { "open-files", check_open_files },
        { "tuttid-files", check_daemon_files },
        { "huge-pages", check_huge_pages },
        { "numa", check_numa },
        { "iommu", doctor_iommu },
        { "gpu", doctor_gpu_driver },
        { "gpu-worker", doctor_gpu_worker },
        { "gpu-paths", doctor_gpu_paths },
        { "gpu-memory", doctor_gpu_memory },
        { "memlock", doctor_memlock },
        { "mps", doctor_mps },
        { "container", check_container },
        { "socket", check_socket_mount },
        { "dev-shm", check_shm },
        { "user", check_user },
        { "tuttid", check_tuttid },
        { "fallbacks", check_fallbacks },
};

bool doctor_check(const struct doctor_view *v, size_t i, struct diagnosis *ret) {
        if (i >= sizeof(checks) / sizeof(*checks))
                return false;
        memset(ret, 0, sizeof(*ret));
        ret->check = checks[i].name;
        checks[i].check(v, ret);
        return true;
}

static enum verdict worst_of(const struct doctor_view *v) {
        enum verdict worst = VERDICT_FINE;
        struct diagnosis d;

        for (size_t i = 0; doctor_check(v, i, &d); i++)
                worst = d.verdict > worst ? d.verdict : worst;
        return worst;
}

int doctor_exit(const struct doctor_view *v) {
        switch (worst_of(v)) {
        case VERDICT_FINE:
        case VERDICT_ABSENT:
        case VERDICT_NOTE: return CTL_WELL;
        case VERDICT_FINDING: return CTL_WARNING;
        case VERDICT_FATAL:
        case N_VERDICTS: return CTL_FAILING;
        }
        return CTL_FAILING;
}
