/* Gives each file of a directory to a fuzz target, as one test (TAP): without libFuzzer, so with any
 * compiler. When it crashes, the last file named is the culprit. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *read_file(const char *path, size_t *ret_bytes) {
        FILE *file = fopen(path, "rb");
        uint8_t *data = NULL;
        long n = -1;
        if (!file)
                return NULL;
        if (fseek(file, 0, SEEK_END) == 0 && (n = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0)
                data = malloc((size_t)n +
                              (n == 0)); /* exactly as long as the input, so that a sanitizer sees its end */
        if (data && fread(data, 1, (size_t)n, file) != (size_t)n) {
                free(data);
                data = NULL;
        }
        fclose(file);
        *ret_bytes = (size_t)n;
        return data;
}

static int replay(const char *path) {
        size_t n_bytes;
        uint8_t *data = read_file(path, &n_bytes);
        printf("# %s\n", path);
        if (!data) {
                printf("#   %s\n", strerror(errno));
                return -1;
        }
        LLVMFuzzerTestOneInput(data, n_bytes);
        free(data);
        return 0;
}

static int is_input(const struct dirent *entry) {
        return entry->d_name[0] != '.';
}

/* The number of inputs, or -1. */
static int replay_all(const char *directory) {
        struct dirent **entries;
        int n = scandir(directory, &entries, is_input, alphasort), n_bad = 0;
        for (int i = 0; i < n; i++) {
                char path[4096];
                snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
                n_bad += replay(path) < 0;
                free(entries[i]);
        }
        if (n >= 0)
                free(entries);
        return n_bad ? -1 : n;
}

int main(int argc, char **argv) {
        const char *directory = argc == 2 ? argv[1] : ".";
        const char *name = strrchr(directory, '/') ? strrchr(directory, '/') + 1 : directory;
        setvbuf(stdout, NULL, _IOLBF, 0);
        printf("1..1\n");
        int n = replay_all(directory);
        printf("%sok 1 - corpus of %s: %d inputs\n", n > 0 ? "" : "not ", name, n);
        return n > 0 ? 0 : 1;
}
