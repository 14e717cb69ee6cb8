#include "smaps.h"

#include <stdio.h>
#include <string.h>
#include "unit.h"

uint64_t smaps_bytes(int pid, const char *line) {
        char path[64], text[512];
        unsigned long long kib;
        uint64_t sum = 0;
        size_t n = strlen(line);
        snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (fgets(text, sizeof(text), f))
                if (strncmp(text, line, n) == 0 && sscanf(text + n, "%llu", &kib) == 1)
                        sum += (uint64_t)kib << 10;
        fclose(f);
        return sum;
}

uint64_t smaps_bytes_of_pool(int pid) {
        return smaps_bytes(pid, "Shared_Hugetlb:") + smaps_bytes(pid, "Private_Hugetlb:");
}
