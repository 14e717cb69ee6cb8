#include "ctl.h"

#include <stdarg.h>

void command_print_help(const struct command *self, FILE *out) {
        fprintf(out, "usage: tuttictl %s\n\n%s.\n", self->usage, self->summary);
        if (*self->help)
                fprintf(out, "\n%s", self->help);
}

int command_misused(const struct command *self, const char *format, ...) {
        va_list args;

        fprintf(stderr, "tuttictl %s: ", self->name);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fprintf(stderr, ".\nusage: tuttictl %s\n", self->usage);
        return CTL_USAGE;
}
