/* What doctor makes of a host: the facts that it reads from a tree of files, and its judgement of facts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ctl-answers.h"
#include "ctl.h"
#include "doctor.h"
#include "unit.h"

static const struct tutti_answer status_answer = { sizeof(status_rows) / sizeof(*status_rows), status_rows };

static const struct host_facts well = { .release = "6.1.0-18-amd64",
        .n_open_files = 1024,
        .n_daemon_open_files = 524288,
        .huge_pages = "within_size",
        .n_numa_nodes = 1,
        .shm_bytes = 64 << 20,
        .uid = 1000,
        .outer_uid = 1000,
        .overflow_uid = 65534,
        .is_uid_mapped = true,
        .is_directory_there = true,
        .socket = "/run/tutti/tuttid.sock",
        .directory = "/run/tutti" };

static const struct tutti_row calm_rows[] = { DAEMON_ROW, DEVICE_ROW("CPU:0", 0, "") };
static const struct tutti_answer calm = { sizeof(calm_rows) / sizeof(*calm_rows), calm_rows };
static const struct tutti_answer no_quota;

static struct diagnosis look(const struct doctor_view *v, const char *check) {
        struct diagnosis d;

        for (size_t i = 0; doctor_check(v, i, &d); i++)
                if (strcmp(d.check, check) == 0)
                        return d;
        ck_abort_msg("there is no check %s", check);
        return d;
}

/* Of facts that are well but for what `spoil` does: the verdict, the exit code and part of the advice. */
static void expect(const struct host_facts *f, const char *check, enum verdict verdict, const char *advice) {
        const struct doctor_view v = { .facts = f, .status = &calm, .quota = &no_quota, .why = "" };
        const struct diagnosis d = look(&v, check);

        ck_assert_msg(d.verdict == verdict, "%s: %u, %s", check, d.verdict, d.text.s);
        ck_assert_msg(strstr(d.advice.s, advice) != NULL, "\"%s\" is not in: %s", advice, d.advice.s);
        ck_assert_int_eq((d.advice.used > 0), (verdict >= VERDICT_NOTE));
        ck_assert_int_eq(doctor_exit(&v), verdict == VERDICT_FATAL     ? CTL_FAILING
                                          : verdict == VERDICT_FINDING ? CTL_WARNING
                                                                       : CTL_WELL);
}

#define EXPECT(check, verdict, advice, ...)                                                                  \
        do {                                                                                                 \
                struct host_facts f = well;                                                                  \
                __VA_ARGS__;                                                                                 \
                expect(&f, check, verdict, advice);                                                          \
        } while (0)

START_TEST(a_host_that_is_well_has_no_findings) {
        const struct doctor_view v = { .facts = &well, .status = &calm, .quota = &no_quota, .why = "" };
        struct diagnosis d;
        size_t n = 0;

        for (; doctor_check(&v, n, &d); n++) {
                ck_assert_msg(d.verdict <= VERDICT_NOTE, "%s: %s", d.check, d.text.s);
                ck_assert_uint_gt(d.text.used, 0);
        }
        ck_assert_uint_eq(n, 22);
        ck_assert_int_eq(doctor_exit(&v), CTL_WELL);
}
END_TEST

START_TEST(what_the_kernel_lacks_is_fatal) {
        EXPECT("kernel", VERDICT_FATAL, "6.1", strcpy(f.release, "5.15.0"));
        EXPECT("kernel", VERDICT_FATAL, "6.1", strcpy(f.release, "6.0.9"));
        EXPECT("kernel", VERDICT_FINE, "", strcpy(f.release, "7.0"));
        EXPECT("memfd-seals", VERDICT_FATAL, "memfd_create", f.e_memfd_seals = EPERM);
        EXPECT("pidfd", VERDICT_FATAL, "pidfd_open", f.e_pidfd = ENOSYS);
        EXPECT("peer-pidfd", VERDICT_NOTE, "6.5", f.e_peer_pidfd = ENOPROTOOPT);
}
END_TEST

START_TEST(limits_are_compared_with_the_quotas) {
        static const struct tutti_row rows[] = {
                { .type = TUTTI_ROW_QUOTA, .quota = { .name = "connections", .limit = 1000 } },
                { .type = TUTTI_ROW_QUOTA, .quota = { .name = "descriptors", .limit = 9000 } },
        };
        struct host_facts host = well;
        struct doctor_view v = { .facts = &host, .status = &calm, .quota = &ANSWER(rows), .why = "" };
        struct diagnosis d;

        EXPECT("open-files", VERDICT_FINDING, "ulimit -n", f.n_open_files = 32);
        EXPECT("tuttid-files", VERDICT_FINDING, "LimitNOFILE=4416", f.n_daemon_open_files = 4096);
        EXPECT("tuttid-files", VERDICT_ABSENT, "", f.n_daemon_open_files = 0);
        host.n_daemon_open_files = 10063;
        d = look(&v, "tuttid-files");
        ck_assert_int_eq(d.verdict, VERDICT_FINDING);
        ck_assert_ptr_nonnull(strstr(d.advice.s, "LimitNOFILE=10064"));
        host.n_daemon_open_files = 10064;
        ck_assert_int_eq(look(&v, "tuttid-files").verdict, VERDICT_FINE);
}
END_TEST

START_TEST(hardware_is_told_and_gpus_matter_only_where_they_are) {
        EXPECT("huge-pages", VERDICT_NOTE, "within_size", strcpy(f.huge_pages, "never"));
        EXPECT("huge-pages", VERDICT_NOTE, "vm.nr_hugepages", strcpy(f.huge_pages, "never"));
        EXPECT("huge-pages", VERDICT_ABSENT, "", f.huge_pages[0] = '\0');
        EXPECT("numa", VERDICT_NOTE, "numactl", f.n_numa_nodes = 2);
        EXPECT("iommu", VERDICT_FINE, "", f.n_iommus = 1; f.iommu_translates = true);
        EXPECT("iommu", VERDICT_ABSENT, "", f.n_iommus = 0);
        EXPECT("gpu", VERDICT_ABSENT, "", f.n_nvidia_gpus = 0);
        EXPECT("gpu", VERDICT_FINDING, "modprobe", f.n_nvidia_gpus = 1);
        EXPECT("mps", VERDICT_ABSENT, "", f.has_mps = false);
        EXPECT("mps", VERDICT_FINE, "", f.has_mps = true);
        EXPECT("mps", VERDICT_FINDING, "nvidia-cuda-mps-control -d", f.has_mps = f.is_mps_stale = true);
        EXPECT("memlock", VERDICT_ABSENT, "", f.memlock_bytes = 1);
        struct host_facts f = well;
        f.n_nvidia_gpus = f.n_iommus = 1;
        f.iommu_translates = true;
        strcpy(f.nvidia_driver, "580");
        expect(&f, "iommu", VERDICT_NOTE, "iommu=pt");
        expect(&f, "gpu", VERDICT_FINE, "");
}
END_TEST

/* --- a host with GPUs --- */

#define GPU_ROW(name_, failing_, why_)                                                                       \
        {                                                                                                    \
                .type = TUTTI_ROW_DEVICE, .device = {                                                        \
                        .name = (name_),                                                                     \
                        .uuid = "",                                                                          \
                        .paths = "vmm-made vmm-fd",                                                          \
                        .describe = "H100",                                                                  \
                        .why = (why_),                                                                       \
                        .failing = (failing_),                                                               \
                }                                                                                            \
        }
#define FALLBACK_ROW(what_, why_)                                                                            \
        {                                                                                                    \
                .type = TUTTI_ROW_FALLBACK, .fallback = {                                                    \
                        .what = (what_),                                                                     \
                        .why = (why_),                                                                       \
                }                                                                                            \
        }

static struct host_facts with_gpus(void) {
        struct host_facts f = well;

        strcpy(f.nvidia_driver, "580.159");
        f.n_nvidia_gpus = 2;
        f.memlock_bytes = f.daemon_memlock_bytes = UINT64_MAX;
        return f;
}

/* With what tuttid answers; `part` stands in the advice, or in the text where there is none. */
static void expect_gpu(const struct host_facts *f, const struct tutti_answer *status, const char *check,
        enum verdict verdict, const char *part) {
        const struct doctor_view v = { .facts = f, .status = status, .quota = &no_quota, .why = "" };
        const struct diagnosis d = look(&v, check);

        ck_assert_msg(d.verdict == verdict, "%s: %u, %s", check, d.verdict, d.text.s);
        ck_assert_int_eq((d.advice.used > 0), (verdict >= VERDICT_NOTE));
        ck_assert_msg(strstr(d.text.s, part) || strstr(d.advice.s, part), "\"%s\" is in neither: %s -> %s",
                part, d.text.s, d.advice.s);
}

START_TEST(gpus_that_tuttid_serves_are_fine) {
        static const struct tutti_row rows[] = { DAEMON_ROW, GPU_ROW("GPU:0", 0, ""),
                GPU_ROW("GPU:1", 0, "") };
        static const struct tutti_answer served = ANSWER(rows);
        struct host_facts f = with_gpus();

        expect_gpu(&f, &served, "gpu", VERDICT_FINE, "580.159");
        expect_gpu(&f, &served, "gpu-worker", VERDICT_FINE, "serves 2 GPUs");
        expect_gpu(&f, &served, "gpu-paths", VERDICT_FINE, "reach each other");
        expect_gpu(&f, &served, "gpu-memory", VERDICT_FINE, "vmm-made vmm-fd");
        expect_gpu(&f, &served, "memlock", VERDICT_FINE, "all the memory it wants");
        expect_gpu(&f, &served, "mps", VERDICT_NOTE, "CUDA_MPS_PIPE_DIRECTORY");
        f.has_mps = true;
        expect_gpu(&f, &served, "mps", VERDICT_FINE, "side by side");
        expect_gpu(&f, NULL, "gpu-worker", VERDICT_ABSENT, "cannot be seen");
}
END_TEST

START_TEST(what_keeps_tuttid_from_gpus_is_named_with_what_to_do) {
        static const struct tutti_row off[] = { DAEMON_ROW,
                FALLBACK_ROW("gpu", "no CUDA driver: no such file") },
                                      one_off[] = { DAEMON_ROW, GPU_ROW("GPU:0", 0, ""),
                                              GPU_ROW("GPU:1", 1, "its test took more than 3000 ms") },
                                      no_path[] = { DAEMON_ROW, GPU_ROW("GPU:0", 0, ""),
                                              GPU_ROW("GPU:1", 0, ""),
                                              FALLBACK_ROW("GPU:0-GPU:1", "off: word 1 of the pattern") },
                                      unpinned[] = { DAEMON_ROW, GPU_ROW("GPU:0", 0, ""),
                                              FALLBACK_ROW("pinned", "pinned=no (memlock 8 MiB < 256 MiB)") };
        struct host_facts f = with_gpus();

        expect_gpu(&f, &ANSWER(off), "gpu-worker", VERDICT_FINDING, "no CUDA driver: no such file");
        expect_gpu(&f, &ANSWER(off), "gpu-worker", VERDICT_FINDING, "gpu.enabled = no");
        expect_gpu(&f, &calm, "gpu-worker", VERDICT_ABSENT, "gpu.enabled");
        expect_gpu(&f, &ANSWER(one_off), "gpu-worker", VERDICT_FINDING, "GPU:1 is off: its test took");
        expect_gpu(&f, &ANSWER(no_path), "gpu-paths", VERDICT_NOTE, "GPU:0-GPU:1: off: word 1");
        expect_gpu(&f, &ANSWER(no_path), "gpu-paths", VERDICT_NOTE, "topo -p2p");
        f.daemon_memlock_bytes = 8 << 20;
        expect_gpu(&f, &ANSWER(one_off), "memlock", VERDICT_NOTE, "LimitMEMLOCK=infinity");
        expect_gpu(&f, &ANSWER(unpinned), "memlock", VERDICT_FINDING, "memlock 8 MiB < 256 MiB"); /* F8 */
        f.has_own_pids = true;
        expect_gpu(&f, &calm, "gpu-memory", VERDICT_NOTE, "tutti_cuda_buffer_alloc");
        strcpy(f.nvidia_file, "/dev/nvidia-uvm");
        f.e_nvidia_file = EACCES;
        expect_gpu(&f, &calm, "gpu", VERDICT_FINDING, "/dev/nvidia-uvm cannot be opened (EACCES)");
        expect_gpu(&f, &calm, "gpu", VERDICT_FINDING, "who owns /dev/nvidia*");
        strcpy(f.container, "docker");
        expect_gpu(&f, &calm, "gpu", VERDICT_FINDING, "--gpus all");
}
END_TEST

START_TEST(traps_of_containers_are_named_G6) {
        EXPECT("container", VERDICT_FINDING, "-v /run/tutti:/run/tutti:ro", strcpy(f.container, "docker");
                f.is_directory_there = false);
        EXPECT("container", VERDICT_FINE, "", strcpy(f.container, "docker"));
        EXPECT("socket", VERDICT_FINDING, "instead: /run/tutti", f.is_socket_mounted = true);
        EXPECT("dev-shm", VERDICT_FINE, "", f.shm_bytes = 1);
        EXPECT("user", VERDICT_NOTE, "same user outside", f.has_own_uids = true; f.outer_uid = 100000);
        EXPECT("user", VERDICT_NOTE, "inside would refuse", f.is_uid_mapped = false);
        struct host_facts f = well;
        struct doctor_view v = { .facts = &f, .reached = TUTTI_PERMISSION, .why = "PERMISSION: uid 65534" };
        f.uid = 65534;
        ck_assert_int_eq(look(&v, "user").verdict, VERDICT_FATAL);
        ck_assert_int_eq(doctor_exit(&v), CTL_FAILING);
}
END_TEST

START_TEST(whether_holes_are_guarded_is_for_tuttid_to_say) {
        struct host_facts host = well;
        struct doctor_view v = { .facts = &host, .status = &status_answer, .quota = &no_quota, .why = "" };

        EXPECT("userfaultfd", VERDICT_FINE, "", f.e_userfaultfd = EPERM);
        ck_assert_int_eq(look(&v, "userfaultfd").verdict, VERDICT_FINDING);
        ck_assert_int_eq(look(&v, "fallbacks").verdict, VERDICT_NOTE);
        v.status = NULL;
        ck_assert_int_eq(look(&v, "userfaultfd").verdict, VERDICT_FINE);
        host.e_userfaultfd = EPERM;
        ck_assert_int_eq(look(&v, "userfaultfd").verdict, VERDICT_FINDING);
}
END_TEST

START_TEST(a_tuttid_that_cannot_be_asked_is_a_finding) {
        struct doctor_view v = {
                .facts = &well, .reached = TUTTI_NO_DAEMON, .why = "NO_DAEMON: no tuttid answers.\nStart it."
        };
        struct diagnosis d = look(&v, "tuttid");

        ck_assert_int_eq(d.verdict, VERDICT_FINDING);
        ck_assert_str_eq(d.text.s, "cannot be asked: NO_DAEMON: no tuttid answers.");
        ck_assert_str_eq(d.advice.s, "Start it.");
        ck_assert_int_eq(doctor_exit(&v), CTL_WARNING);
}
END_TEST

START_TEST(the_worst_comes_first_on_the_page) {
        struct host_facts f = well;
        const struct doctor_view v = { .facts = &f, .status = &calm, .quota = &no_quota, .why = "" };
        struct page page = { 0 };
        char *text;
        size_t n;

        strcpy(f.release, "5.10.0");
        f.is_socket_mounted = true;
        page.out = open_memstream(&text, &n);
        doctor_print(&v, &page);
        fclose(page.out);
        ck_assert_msg(
                strncmp(text,
                        "FATAL    kernel       Linux 5.10.0\n"
                        "                   -> tutti needs Linux 6.1 or newer: upgrade the kernel\n"
                        "finding  socket       the socket itself is mounted: when tuttid starts again,\n"
                        "                      this one is dead\n"
                        "                   -> mount its directory instead: /run/tutti\n"
                        "absent   iommu        no IOMMU is in use\n",
                        300) == 0,
                "%s", text);
        free(text);
}
END_TEST

/* --- facts from files --- */

static void put(const char *path, const char *text) {
        char full[512];
        FILE *f;

        snprintf(full, sizeof(full), "%s%s", unit_directory(), path);
        for (char *slash = full + strlen(unit_directory()) + 1; (slash = strchr(slash, '/')); slash++) {
                *slash = '\0';
                mkdir(full, 0700);
                *slash = '/';
        }
        f = fopen(full, "we");
        ck_assert_ptr_nonnull(f);
        fputs(text, f);
        fclose(f);
}

START_TEST(facts_are_read_from_files) {
        struct host_facts f;

        put("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        put("/proc/77/comm", "tuttid\n");
        put("/proc/77/limits",
                "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024   524288   files\n"
                "Max locked memory         8388608   unlimited   bytes\n");
        put("/proc/78/comm", "bash\n");
        put("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                "always within_size [advise] never deny force\n");
        put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
        put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n");
        put("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "100\n");
        put("/sys/devices/system/node/node0/x", "");
        put("/sys/devices/system/node/node1/x", "");
        put("/sys/devices/system/node/online", "0-1\n");
        put("/sys/class/iommu/dmar0/x", "");
        put("/sys/kernel/iommu_groups/3/type", "DMA-FQ\n");
        put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
        put("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
        put("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
        put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  Tue\n");
        put("/run/.containerenv", "");
        put("/proc/sys/kernel/overflowuid", "4242\n");
        put("/proc/self/uid_map", "         0     100000      65536\n");
        put("/proc/self/mountinfo",
                "36 35 98:0 / / rw - ext4 /dev/sda rw\n37 36 0:5 / /srv/my\\040run ro - tmpfs tmpfs rw\n"
                "38 36 0:5 / /srv/my\\040run/tuttid.sock ro - tmpfs tmpfs rw\n");
        put("/srv/my run/x", "");
        unsetenv("KUBERNETES_SERVICE_HOST");
        facts_look(&f, unit_directory(), "/srv/my run/tuttid.sock", 77);
        ck_assert(f.has_seccomp_filter);
        ck_assert_uint_eq(f.n_daemon_open_files, 524288);
        ck_assert_str_eq(f.huge_pages, "advise");
        ck_assert_uint_eq(f.n_pool_pages, 512);
        ck_assert_uint_eq(f.n_pool_free, 400);
        ck_assert_uint_eq(f.n_numa_nodes, 2);
        ck_assert_uint_eq(f.n_iommus, 1);
        ck_assert(f.iommu_translates);
        ck_assert_uint_eq(f.n_nvidia_gpus, 1);
        ck_assert_str_eq(f.nvidia_driver, "580.159");
        ck_assert_uint_eq(f.daemon_memlock_bytes, 8388608);
        ck_assert_str_eq(f.nvidia_file, "/dev/nvidiactl");
        ck_assert_int_eq(f.e_nvidia_file, ENOENT);
        ck_assert_str_eq(f.container, "podman");
        ck_assert_uint_eq(f.overflow_uid, 4242);
        ck_assert(f.has_own_uids);
        ck_assert_uint_eq(f.outer_uid, f.uid < 65536 ? f.uid + 100000 : f.uid);
        ck_assert_str_eq(f.directory, "/srv/my run");
        ck_assert(f.is_directory_there);
        ck_assert(f.is_directory_mounted);
        ck_assert(f.is_socket_mounted);
        facts_look(&f, unit_directory(), "/tuttid.sock", 78);
        ck_assert_uint_eq(f.n_daemon_open_files, 0);
        ck_assert_str_eq(f.directory, "/");
        ck_assert(!f.is_socket_mounted);
}
END_TEST

static void link_pids(const char *target) {
        char path[512];

        put("/proc/self/ns/x", "");
        snprintf(path, sizeof(path), "%s/proc/self/ns/pid", unit_directory());
        unlink(path);
        ck_assert_int_eq(symlink(target, path), 0);
}

START_TEST(facts_of_gpus_are_read_from_files) {
        struct host_facts f;

        unsetenv("CUDA_MPS_PIPE_DIRECTORY");
        put("/dev/nvidiactl", "");
        put("/dev/nvidia-uvm", "");
        put("/dev/nvidia-caps/x", "");
        put("/proc/78/comm", "tuttid\n");
        put("/proc/78/limits", "Max locked memory         unlimited   unlimited   bytes\n");
        link_pids("pid:[4026531836]");
        facts_look(&f, unit_directory(), "/tuttid.sock", 78);
        ck_assert_str_eq(f.nvidia_file, "");
        ck_assert_uint_eq(f.daemon_memlock_bytes, UINT64_MAX);
        ck_assert(!f.has_own_pids && !f.has_mps && !f.is_mps_stale);
        put("/tmp/nvidia-mps/control", "");
        put("/tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "77\n");
        put("/dev/nvidia0/is-a-directory", "");
        facts_look(&f, unit_directory(), "/tuttid.sock", 78);
        ck_assert_str_eq(f.nvidia_file, "/dev/nvidia0");
        ck_assert_int_eq(f.e_nvidia_file, EISDIR);
        ck_assert(f.has_mps && f.is_mps_stale);
        link_pids("pid:[4026532000]");
        facts_look(&f, unit_directory(), "/tuttid.sock", 78);
        ck_assert(f.has_own_pids && f.has_mps && !f.is_mps_stale);
        link_pids("pid:[4026531836]");
        put("/proc/77/comm", "nvidia-cuda-mps\n");
        facts_look(&f, unit_directory(), "/tuttid.sock", 78);
        ck_assert(f.has_mps && !f.is_mps_stale);
}
END_TEST

UNIT_MAIN("ctl-doctor", 10, a_host_that_is_well_has_no_findings, what_the_kernel_lacks_is_fatal,
        limits_are_compared_with_the_quotas, hardware_is_told_and_gpus_matter_only_where_they_are,
        traps_of_containers_are_named_G6, whether_holes_are_guarded_is_for_tuttid_to_say,
        a_tuttid_that_cannot_be_asked_is_a_finding, the_worst_comes_first_on_the_page,
        gpus_that_tuttid_serves_are_fine, what_keeps_tuttid_from_gpus_is_named_with_what_to_do,
        facts_are_read_from_files, facts_of_gpus_are_read_from_files)
