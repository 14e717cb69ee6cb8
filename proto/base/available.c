#include "base/available.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

static uint64_t host_available_bytes(void) {
        char line[128];
        unsigned long long kib = 0;
        FILE *f = fopen("/proc/meminfo", "re");
        if (!f)
                return 0;
        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
                        break;
        fclose(f);
        return (uint64_t)kib << 10;
}

/* The path of this process's memory group; version 2 of control groups. */
static bool find_group(char *ret, size_t size) {
        char line[512];
        bool found = false;
        FILE *f = fopen("/proc/self/cgroup", "re");
        if (!f)
                return false;
        while (!found && fgets(line, sizeof(line), f))
                if (strncmp(line, "0::/", 4) == 0) {
                        line[strcspn(line, "\n")] = '\0';
                        found = snprintf(ret, size, "/sys/fs/cgroup%s", line + 3) < (int)size;
                }
        fclose(f);
        return found;
}

/* false where the file is not there or says "max". */
static bool read_value(const char *group, const char *name, uint64_t *ret) {
        char path[640];
        unsigned long long value;
        snprintf(path, sizeof(path), "%s/%s", group, name);
        FILE *f = fopen(path, "re");
        if (!f)
                return false;
        bool found = fscanf(f, "%llu", &value) == 1;
        fclose(f);
        if (found)
                *ret = value;
        return found;
}

uint64_t memory_available_bytes(void) {
        char group[600];
        uint64_t host = host_available_bytes(), limit, used;
        if (!find_group(group, sizeof(group)) || !read_value(group, "memory.max", &limit) ||
                !read_value(group, "memory.current", &used))
                return host;
        uint64_t left = limit > used ? limit - used : 0;
        return host && host < left ? host : left;
}

uint64_t memory_total_bytes(void) {
        struct sysinfo info;
        return sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : 0;
}
