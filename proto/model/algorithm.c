#include "model/algorithm.h"

#include <string.h>

static const char *const words[N_ALGORITHM] = {
        [ALGORITHM_UNSPECIFIED] = "",
        [ALGORITHM_ONE_DEVICE] = "one_device",
        [ALGORITHM_HIERARCHICAL_COPY] = "hierarchical_copy",
        [ALGORITHM_LIBRARY] = "library",
        [ALGORITHM_COLLECT] = "collect",
        [ALGORITHM_GATHER] = "gather",
};

const char *algorithm_word(enum algorithm_name algorithm) {
        return (unsigned int)algorithm < N_ALGORITHM ? words[algorithm] : "?";
}

enum algorithm_name algorithm_parse(const char *word) {
        if (strcmp(word, "auto") == 0)
                return ALGORITHM_UNSPECIFIED;
        enum algorithm_name i = ALGORITHM_UNSPECIFIED;
        while (i < N_ALGORITHM && strcmp(word, words[i]) != 0)
                i++;
        return i;
}
