#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *expression, const char *file, int line) {
        fprintf(stderr, "%s:%d: assumption does not hold: %s\n", file, line, expression);
        abort();
}
