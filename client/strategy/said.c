#include "strategy/strategy.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char said[2048];

const char *tutti_strategy_error(void) {
        return said;
}

enum tutti_status say(enum tutti_status status, const char *format, ...) {
        char text[1900];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        (void)snprintf(said, sizeof(said), "%s: %s", tutti_status_name(status), text);
        return status;
}

enum tutti_status say_text(enum tutti_status status, const char *text) {
        if (status != TUTTI_OK)
                (void)snprintf(said, sizeof(said), "%s", text);
        return status;
}

enum tutti_status say_last(enum tutti_status status) {
        return say_text(status, tutti_error());
}
