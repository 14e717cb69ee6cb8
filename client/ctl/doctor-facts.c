#include "doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; Debian 12's headers lack it */
#endif

#define NVIDIA_VENDOR "0x10de"

/* --- small files --- */

static FILE *open_file(const char *root, const char *path) {
        char full[512];

        snprintf(full, sizeof(full), "%s%s", root, path);
        return fopen(full, "re");
}

/* Its first line; "" where there is none. */
static void read_line(const char *root, const char *path, char *line, size_t size) {
        FILE *f = open_file(root, path);

        line[0] = '\0';
        if (!f)
                return;
        if (fgets(line, (int)size, f))
                line[strcspn(line, "\n")] = '\0';
        else
                line[0] = '\0';
        fclose(f);
}

static bool is_there(const char *root, const char *path) {
        char full[512];

        snprintf(full, sizeof(full), "%s%s", root, path);
        return access(full, F_OK) == 0;
}

/* Calls `look` for each entry of a directory. */
static void each_entry(struct host_facts *f, const char *root, const char *path,
        void (*look)(struct host_facts *f, const char *root, const char *name)) {
        char full[512];
        const struct dirent *entry;
        DIR *d;

        snprintf(full, sizeof(full), "%s%s", root, path);
        d = opendir(full);
        if (!d)
                return;
        while ((entry = readdir(d)))
                if (entry->d_name[0] != '.')
                        look(f, root, entry->d_name);
        closedir(d);
}

/* --- what the kernel lets us do --- */

static int close_or_errno(int fd) {
        if (fd < 0)
                return errno;
        close(fd);
        return 0;
}

static int try_memfd_seals(void) {
        int fd = memfd_create("tuttictl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING), e = 0;

        if (fd < 0)
                return errno;
        if (ftruncate(fd, 4096) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
                e = errno;
        else if (!(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK))
                e = EINVAL;
        close(fd);
        return e;
}

static int try_peer_pidfd(void) {
        int fds[2], pidfd = -1, e = 0;
        socklen_t n = sizeof(pidfd);

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
                return errno;
        if (getsockopt(fds[0], SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) < 0)
                e = errno;
        else
                close(pidfd);
        close(fds[0]);
        close(fds[1]);
        return e;
}

static int try_userfaultfd(void) {
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY), e = 0;
        struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };

        if (fd < 0)
                return errno;
        if (ioctl(fd, UFFDIO_API, &api) < 0)
                e = errno;
        close(fd);
        return e;
}

static void look_at_kernel(struct host_facts *f, const char *root) {
        struct utsname name;
        char line[128];
        FILE *status = open_file(root, "/proc/self/status");

        if (uname(&name) == 0)
                snprintf(f->release, sizeof(f->release), "%.63s", name.release);
        f->e_memfd_seals = try_memfd_seals();
        f->e_pidfd = close_or_errno((int)syscall(SYS_pidfd_open, getpid(), 0));
        f->e_peer_pidfd = try_peer_pidfd();
        f->e_userfaultfd = try_userfaultfd();
        while (status && fgets(line, sizeof(line), status))
                if (strncmp(line, "Seccomp:", 8) == 0)
                        f->has_seccomp_filter = atoi(line + 8) == 2;
        if (status)
                fclose(status);
}

/* --- limits --- */

/* A line of /proc/PID/limits. */
static void look_at_daemon_limit(struct host_facts *f, const char *line) {
        unsigned long long soft, hard;
        char word[16];

        if (sscanf(line, "Max open files %llu %llu", &soft, &hard) == 2)
                f->n_daemon_open_files = hard;
        if (sscanf(line, "Max locked memory %15s", word) == 1)
                f->daemon_memlock_bytes =
                        strcmp(word, "unlimited") == 0 ? UINT64_MAX : strtoull(word, NULL, 10);
}

/* Only of a process that is tuttid: in another pid namespace the number is somebody else's. */
static void look_at_daemon(struct host_facts *f, const char *root, uint32_t pid) {
        char path[64], line[256];
        FILE *limits;

        snprintf(path, sizeof(path), "/proc/%u/comm", pid);
        read_line(root, path, line, sizeof(line));
        if (strcmp(line, "tuttid") != 0)
                return;
        snprintf(path, sizeof(path), "/proc/%u/limits", pid);
        limits = open_file(root, path);
        while (limits && fgets(line, sizeof(line), limits))
                look_at_daemon_limit(f, line);
        if (limits)
                fclose(limits);
}

static void look_at_limits(struct host_facts *f, const char *root, uint32_t daemon_pid) {
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
                f->n_open_files = limit.rlim_cur;
        if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
                f->memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
        if (daemon_pid)
                look_at_daemon(f, root, daemon_pid);
}

/* --- hardware --- */

#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static uint64_t pool_count(const char *root, const char *path) {
        char line[64];

        read_line(root, path, line, sizeof(line));
        return strtoull(line, NULL, 10);
}

static void look_at_pool(struct host_facts *f, const char *root) {
        uint64_t n_reserved = pool_count(root, POOL "resv_hugepages");

        f->n_pool_pages = pool_count(root, POOL "nr_hugepages");
        f->n_pool_free = pool_count(root, POOL "free_hugepages");
        f->n_pool_free -= f->n_pool_free > n_reserved ? n_reserved : f->n_pool_free;
}

/* The chosen one of "always within_size advise [never] deny force". */
static void look_at_huge_pages(struct host_facts *f, const char *root) {
        char line[128], *begin, *end;

        look_at_pool(f, root);

        read_line(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", line, sizeof(line));
        begin = strchr(line, '[');
        end = begin ? strchr(begin, ']') : NULL;
        if (end)
                snprintf(f->huge_pages, sizeof(f->huge_pages), "%.*s", (int)(end - begin - 1), begin + 1);
}

static void count_node(struct host_facts *f, const char *root, const char *name) {
        f->n_numa_nodes += strncmp(name, "node", 4) == 0 && name[4] >= '0' && name[4] <= '9';
}

static void count_iommu(struct host_facts *f, const char *root, const char *name) {
        f->n_iommus++;
}

/* "DMA" and "DMA-FQ" translate, "identity" does not. */
static void look_at_iommu_group(struct host_facts *f, const char *root, const char *name) {
        char path[300], type[32];

        snprintf(path, sizeof(path), "/sys/kernel/iommu_groups/%s/type", name);
        read_line(root, path, type, sizeof(type));
        f->iommu_translates |= strncmp(type, "DMA", 3) == 0;
}

static void look_at_pci(struct host_facts *f, const char *root, const char *name) {
        char path[300], vendor[16], class[16];

        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", name);
        read_line(root, path, vendor, sizeof(vendor));
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/class", name);
        read_line(root, path, class, sizeof(class));
        f->n_nvidia_gpus += strcmp(vendor, NVIDIA_VENDOR) == 0 && strncmp(class, "0x03", 4) == 0;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  ...": the first word that begins with a digit. */
static void look_at_driver(struct host_facts *f, const char *root) {
        char line[256], *save = NULL;

        read_line(root, "/proc/driver/nvidia/version", line, sizeof(line));
        for (const char *w = strtok_r(line, " \t", &save); w; w = strtok_r(NULL, " \t", &save))
                if (*w >= '0' && *w <= '9') {
                        snprintf(f->nvidia_driver, sizeof(f->nvidia_driver), "%s", w);
                        break;
                }
}

static void try_nvidia_file(struct host_facts *f, const char *root, const char *name) {
        char path[512];
        int e;

        if (*f->nvidia_file)
                return;
        snprintf(path, sizeof(path), "%s/dev/%s", root, name);
        e = close_or_errno(open(path, O_RDWR | O_CLOEXEC));
        if (!e)
                return;
        snprintf(f->nvidia_file, sizeof(f->nvidia_file), "/dev/%.20s", name);
        f->e_nvidia_file = e;
}

/* "nvidia0" and the like: one for each GPU. */
static void look_at_node(struct host_facts *f, const char *root, const char *name) {
        if (strncmp(name, "nvidia", 6) == 0 && name[6] >= '0' && name[6] <= '9')
                try_nvidia_file(f, root, name);
}

static void look_at_nvidia_files(struct host_facts *f, const char *root) {
        try_nvidia_file(f, root, "nvidiactl");
        try_nvidia_file(f, root, "nvidia-uvm");
        each_entry(f, root, "/dev", look_at_node);
}

/* Its pipes stay when it is killed. Seen from a pid namespace of one's own its number says nothing. */
static void look_at_mps(struct host_facts *f, const char *root) {
        const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
        char path[512], pid[16];

        if (!pipes || !*pipes)
                pipes = "/tmp/nvidia-mps";
        snprintf(path, sizeof(path), "%s/control", pipes);
        f->has_mps = is_there(root, path);
        snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", pipes);
        read_line(root, path, pid, sizeof(pid));
        snprintf(path, sizeof(path), "/proc/%lu", strtoul(pid, NULL, 10));
        f->is_mps_stale = f->has_mps && *pid && !f->has_own_pids && !is_there(root, path);
}

/* The host's own pid namespace has this number in every kernel (PROC_PID_INIT_INO). */
static void look_at_pids(struct host_facts *f, const char *root) {
        char path[512], name[64];
        ssize_t n;

        snprintf(path, sizeof(path), "%s/proc/self/ns/pid", root);
        n = readlink(path, name, sizeof(name) - 1);
        if (n < 0)
                return;
        name[n] = '\0';
        f->has_own_pids = strcmp(name, "pid:[4026531836]") != 0;
}

static void look_at_hardware(struct host_facts *f, const char *root) {
        look_at_huge_pages(f, root);
        each_entry(f, root, "/sys/devices/system/node", count_node);
        each_entry(f, root, "/sys/class/iommu", count_iommu);
        each_entry(f, root, "/sys/kernel/iommu_groups", look_at_iommu_group);
        each_entry(f, root, "/sys/bus/pci/devices", look_at_pci);
        look_at_driver(f, root);
        look_at_nvidia_files(f, root);
        look_at_pids(f, root);
        look_at_mps(f, root);
}

/* --- containers and users --- */

static const char *container_name(const char *root) {
        if (getenv("KUBERNETES_SERVICE_HOST"))
                return "kubernetes";
        if (is_there(root, "/run/.containerenv"))
                return "podman";
        return is_there(root, "/.dockerenv") ? "docker" : "";
}

/* Lines of "inside outside how-many". */
static void look_at_uids(struct host_facts *f, const char *root) {
        unsigned long long inside, outside, n;
        char line[128];
        FILE *map = open_file(root, "/proc/self/uid_map");

        f->uid = f->outer_uid = geteuid();
        f->is_uid_mapped = !map;
        while (map && fscanf(map, "%llu %llu %llu", &inside, &outside, &n) == 3) {
                f->has_own_uids |= inside != outside;
                if (f->uid < inside || f->uid >= inside + n)
                        continue;
                f->is_uid_mapped = true;
                f->outer_uid = (uint32_t)(f->uid - inside + outside);
        }
        if (map)
                fclose(map);
        read_line(root, "/proc/sys/kernel/overflowuid", line, sizeof(line));
        f->overflow_uid = *line ? (uint32_t)strtoul(line, NULL, 10) : 65534;
}

/* Blanks in the paths of mountinfo are "\040". */
static void unescape(char *path) {
        char *to = path;

        for (const char *from = path; *from; from++)
                if (from[0] == '\\' && from[1] && from[2] && from[3]) {
                        *to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
                        from += 3;
                } else {
                        *to++ = *from;
                }
        *to = '\0';
}

static void look_at_mounts(struct host_facts *f, const char *root) {
        FILE *mounts = open_file(root, "/proc/self/mountinfo");
        char line[1024], path[512];

        while (mounts && fgets(line, sizeof(line), mounts)) {
                if (sscanf(line, "%*s %*s %*s %*s %511s", path) != 1)
                        continue;
                unescape(path);
                f->is_socket_mounted |= strcmp(path, f->socket) == 0;
                f->is_directory_mounted |= strcmp(path, f->directory) == 0;
        }
        if (mounts)
                fclose(mounts);
}

static void look_at_socket(struct host_facts *f, const char *root, const char *socket) {
        const char *slash = strrchr(socket, '/');

        snprintf(f->socket, sizeof(f->socket), "%.107s", socket);
        snprintf(f->directory, sizeof(f->directory), "%.*s",
                slash ? (int)(slash > socket ? slash - socket : 1) : 1, slash ? socket : ".");
        f->is_directory_there = is_there(root, f->directory);
        look_at_mounts(f, root);
}

void facts_look(struct host_facts *f, const char *root, const char *socket, uint32_t daemon_pid) {
        struct statvfs shm;
        char path[512];

        memset(f, 0, sizeof(*f));
        look_at_kernel(f, root);
        look_at_limits(f, root, daemon_pid);
        look_at_hardware(f, root);
        snprintf(f->container, sizeof(f->container), "%s", container_name(root));
        snprintf(path, sizeof(path), "%s/dev/shm", root);
        if (statvfs(path, &shm) == 0)
                f->shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
        look_at_uids(f, root);
        look_at_socket(f, root, socket);
}
