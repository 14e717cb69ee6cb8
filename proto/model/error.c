#include "model/error.h"

#include <stdarg.h>
#include <stdio.h>

void error_init(struct error *e, enum status status) {
        *e = (struct error){ .status = status, .entry = -1, .rank = -1 };
}

static void set_detail(struct error *e, const char *format, va_list args) {
        char detail[sizeof(e->detail)];
        vsnprintf(detail, sizeof(detail), format, args);
        text_copy(e->detail, sizeof(e->detail), detail);
}

void error_set_detail(struct error *e, const char *format, ...) {
        va_list args;
        va_start(args, format);
        set_detail(e, format, args);
        va_end(args);
}

enum status error_set(struct error *e, enum status status, enum field field, const char *format, ...) {
        e->status = status;
        e->field = field;
        va_list args;
        va_start(args, format);
        set_detail(e, format, args);
        va_end(args);
        return status;
}

const char *process_state_name(enum process_state state) {
        switch (state) {
        case PROCESS_UNKNOWN: return "unknown";
        case PROCESS_ALIVE: return "alive";
        case PROCESS_STOPPED: return "stopped";
        case PROCESS_DEAD: return "dead";
        case PROCESS_ABSENT: return "absent";
        }
        return "?";
}

const char *loss_name(enum loss loss) {
        switch (loss) {
        case LOSS_UNSPECIFIED: return "unspecified";
        case LOSS_DIED: return "died";
        case LOSS_DISCONNECTED: return "disconnected";
        case LOSS_EJECTED: return "ejected";
        case LOSS_WENT: return "went";
        }
        return "?";
}
