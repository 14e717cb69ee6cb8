/* What on this host helps or hinders tutti, and what to do about it.
 *
 * Two halves: facts are looked up (doctor-facts.c), and judged (doctor.c), so that every judgement can be
 * tested on any machine. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "print.h"

/* How it is here. `e_...`: 0 when it works, else the errno that says why not. */
struct host_facts {
        char release[64]; /* of the kernel: "6.1.0-18-amd64" */
        int e_memfd_seals, e_pidfd, e_peer_pidfd, e_userfaultfd;
        bool has_seccomp_filter;
        uint64_t n_open_files;        /* soft limit of this process */
        uint64_t n_daemon_open_files; /* hard limit of tuttid, which raises its soft one to it; 0: cannot be
                                         seen */
        char huge_pages[16];          /* of shared memory: "never", "advise", ...; "": not in this kernel */
        uint64_t n_pool_pages, n_pool_free; /* of the kernel's pool of 2 MiB pages */
        uint32_t n_numa_nodes, n_iommus, n_nvidia_gpus;
        bool iommu_translates;  /* for some device, rather than passing addresses through */
        char nvidia_driver[32]; /* its version; "": not loaded */
        char nvidia_file[32];   /* the first file of the driver that cannot be opened; "": all can */
        int e_nvidia_file;
        uint64_t memlock_bytes, daemon_memlock_bytes; /* soft limits; the latter 0: cannot be seen */
        bool has_own_pids;                            /* a pid namespace other than the host's */
        bool has_mps, is_mps_stale;                   /* stale: its pipes are there, it is not */
        char container[16];                           /* "docker", "podman", "kubernetes"; "": none noticed */
        uint64_t shm_bytes;                           /* of /dev/shm */
        uint32_t uid, overflow_uid, outer_uid;        /* outer: as the host counts this user */
        bool is_uid_mapped, has_own_uids; /* a user namespace that counts otherwise than its host */
        bool is_directory_there, is_socket_mounted, is_directory_mounted; /* of the socket */
        char socket[108], directory[108];
};

/* Looks. `root` is "", or where tests keep a tree like /proc and /sys; `socket` is the path where tuttid is
 * sought, `daemon_pid` tuttid's as this process sees it (0: not known). */
void facts_look(struct host_facts *f, const char *root, const char *socket, uint32_t daemon_pid);

struct doctor_view {
        const struct host_facts *facts;
        const struct tutti_answer *status, *quota; /* NULL: tuttid cannot be asked */
        enum tutti_status reached;                 /* and then why, */
        const char *why;                           /* in libtutti's words */
};

/* In rising order. */
enum verdict {
        VERDICT_FINE,
        VERDICT_ABSENT,  /* not here, and not needed */
        VERDICT_NOTE,    /* worth knowing */
        VERDICT_FINDING, /* should be put right */
        VERDICT_FATAL,   /* tutti cannot run like this */
        N_VERDICTS
};

struct diagnosis {
        const char *check;
        enum verdict verdict;
        struct line text, advice; /* advice: empty but with NOTE, FINDING and FATAL */
};

/* The checks of GPUs and what they need (doctor-gpu.c). */
void doctor_iommu(const struct doctor_view *v, struct diagnosis *d);
void doctor_gpu_driver(const struct doctor_view *v, struct diagnosis *d);
void doctor_gpu_worker(const struct doctor_view *v, struct diagnosis *d);
void doctor_gpu_paths(const struct doctor_view *v, struct diagnosis *d);
void doctor_gpu_memory(const struct doctor_view *v, struct diagnosis *d);
void doctor_memlock(const struct doctor_view *v, struct diagnosis *d);
void doctor_mps(const struct doctor_view *v, struct diagnosis *d);

/* "EACCES". */
const char *doctor_error_name(int e);

/* The i-th check, in the order of a page; false behind the last. */
bool doctor_check(const struct doctor_view *v, size_t i, struct diagnosis *ret);
/* CTL_WELL, CTL_WARNING with a finding, CTL_FAILING with a fatal one. */
int doctor_exit(const struct doctor_view *v);
void doctor_print(const struct doctor_view *v, const struct page *page);
json_t *doctor_json(const struct doctor_view *v);

/* One diagnosis, for pages that have others beside them. */
void diagnosis_print(const struct diagnosis *d, const struct page *page);
json_t *diagnosis_json(const struct diagnosis *d);

struct query;

/* All that doctor looks up, and the answers that it refers to. */
struct doctor_asked {
        struct doctor_view view;
        struct host_facts facts;
        struct tutti_answer *status, *quota;
        char why[1024];
};

/* Connects too; q->t stays open, where it could be. */
void doctor_ask(struct query *q, struct doctor_asked *ret);
void doctor_asked_deinit(struct doctor_asked *a);
