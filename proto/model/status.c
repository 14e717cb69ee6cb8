#include "model/status.h"

static const char *const names[N_STATUS] = {
        [STATUS_OK] = "OK",
        [STATUS_INVALID] = "INVALID",
        [STATUS_UNSUPPORTED] = "UNSUPPORTED",
        [STATUS_MISMATCH] = "MISMATCH",
        [STATUS_ALREADY_PENDING] = "ALREADY_PENDING",
        [STATUS_TIMEOUT] = "TIMEOUT",
        [STATUS_EXPIRED] = "EXPIRED",
        [STATUS_ABORTED] = "ABORTED",
        [STATUS_CANCELLED] = "CANCELLED",
        [STATUS_PEER_REFUSED] = "PEER_REFUSED",
        [STATUS_REPLICA_LOST] = "REPLICA_LOST",
        [STATUS_LEFT] = "LEFT",
        [STATUS_OUTPUT_LOST] = "OUTPUT_LOST",
        [STATUS_QUOTA] = "QUOTA",
        [STATUS_LIMIT] = "LIMIT",
        [STATUS_PERMISSION] = "PERMISSION",
        [STATUS_VERSION] = "VERSION",
        [STATUS_BAD_FD] = "BAD_FD",
        [STATUS_NOT_FOUND] = "NOT_FOUND",
        [STATUS_NO_MEMORY] = "NO_MEMORY",
        [STATUS_BUSY] = "BUSY",
        [STATUS_FORKED] = "FORKED",
        [STATUS_NO_DAEMON] = "NO_DAEMON",
        [STATUS_DAEMON_LOST] = "DAEMON_LOST",
        [STATUS_DRAINING] = "DRAINING",
        [STATUS_DEVICE_LOST] = "DEVICE_LOST",
        [STATUS_INTERNAL] = "INTERNAL",
};

const char *status_name(enum status status) {
        if (status == STATUS_PENDING)
                return "PENDING";
        return (unsigned int)status < N_STATUS ? names[status] : "?";
}
