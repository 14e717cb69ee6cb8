#include "config-tuning.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/cleanup.h"

#define HEAD      "# tutti tuning 1"
#define MAX_LINE  200
#define MAX_BYTES (UINT64_C(1) << 50)

/* NULL, or what is wrong with the line, which has no newline any more. */
static const char *take_line(struct tuning *t, const char *line) {
        char name[40], rest;
        unsigned int n_gpus;
        unsigned long long n_bytes;
        if (line[strspn(line, " \t")] == '\0' || line[0] == '#')
                return NULL;
        if (sscanf(line, "%39s %u %llu %c", name, &n_gpus, &n_bytes, &rest) != 3)
                return "write NAME GPUS BYTES";
        if (strcmp(name, "library-from") != 0)
                return "the only threshold is library-from";
        if (n_gpus < 2 || n_gpus > MAX_TUNED_GPUS)
                return "the number of GPUs is from 2 to 64";
        if (n_bytes > MAX_BYTES)
                return "at most 1024 TiB";
        for (uint64_t i = 0; i < t->n; i++)
                if (t->thresholds[i].n_gpus == n_gpus)
                        return "this number of GPUs stands there twice";
        t->thresholds[t->n++] = (struct threshold){ n_gpus, n_bytes };
        return NULL;
}

static bool cut_line(char *line) {
        char *end = strchr(line, '\n');
        if (end)
                *end = '\0';
        return end != NULL;
}

static void close_file(FILE **f) {
        if (*f)
                fclose(*f);
}

int tuning_read(struct tuning *ret, const char *path, char *why, size_t why_bytes) {
        char line[MAX_LINE];
        const char *wrong = NULL;
        int n = 0;
        *ret = (struct tuning){ 0 };
        CLEANUP(close_file) FILE *f = path[0] ? fopen(path, "re") : NULL;
        if (!f && (path[0] == '\0' || errno == ENOENT))
                return 0;
        if (!f) {
                int r = -errno;
                snprintf(why, why_bytes, "%s: cannot be read: %s", path, strerror(-r));
                return r;
        }
        while (!wrong && fgets(line, sizeof(line), f)) {
                bool is_whole = cut_line(line) || feof(f);
                n++;
                if (n == 1 && strcmp(line, HEAD) != 0)
                        wrong = "it does not begin with \"" HEAD "\"";
                else
                        wrong = is_whole ? take_line(ret, line) : "the line is too long";
        }
        if (!wrong && !ferror(f))
                return 0;
        snprintf(why, why_bytes, "%s:%d: %s; `tuttictl diag --tune` writes it anew", path, n,
                wrong ? wrong : "cannot be read");
        return -EINVAL;
}
