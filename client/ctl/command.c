#include "ctl.h"

#include <stdarg.h>
#include <string.h>

void command_print_help(const struct command *self, FILE *out) {
        fprintf(out, "usage: tuttictl %s\n\n%s.\n", self->usage, self->summary);
        if (*self->help)
                fprintf(out, "\n%s", self->help);
}

int command_misused(const struct command *self, const char *format, ...) {
        size_t n = strlen(format);
        va_list args;

        fprintf(stderr, "tuttictl %s: ", self->name);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fprintf(stderr, "%s\nusage: tuttictl %s\n", n && format[n - 1] == '?' ? "" : ".", self->usage);
        return CTL_USAGE;
}
