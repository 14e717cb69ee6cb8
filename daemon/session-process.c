#include "session-process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"

uint32_t process_of_pidfd(int fd) {
        char path[64], buf[1024];
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
        CLEANUP_FD int info = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = info < 0 ? -1 : read(info, buf, sizeof(buf) - 1);
        if (n <= 0)
                return 0;
        buf[n] = '\0';
        const char *line = strstr(buf, "\nPid:");
        long pid = line ? strtol(line + 5, NULL, 10) : 0;
        return pid > 0 ? (uint32_t)pid : 0;
}

char process_state_letter(uint32_t pid) {
        char path[64], buf[512];
        snprintf(path, sizeof(path), "/proc/%u/stat", pid);
        CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);
        if (n <= 0)
                return '\0';
        buf[n] = '\0';
        const char *end = strrchr(buf, ')');
        return end && end[1] == ' ' ? end[2] : '\0';
}
