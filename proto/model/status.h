/* What happened to a request: the closed list, the same on the wire and in tutti.h. It only grows, at its
 * end. */
#pragma once

enum status {
        STATUS_OK = 0,
        STATUS_INVALID,
        STATUS_UNSUPPORTED,
        STATUS_MISMATCH,
        STATUS_ALREADY_PENDING,
        STATUS_TIMEOUT,
        STATUS_EXPIRED,
        STATUS_ABORTED,
        STATUS_CANCELLED,
        STATUS_PEER_REFUSED,
        STATUS_REPLICA_LOST,
        STATUS_LEFT,
        STATUS_OUTPUT_LOST,
        STATUS_QUOTA,
        STATUS_LIMIT,
        STATUS_PERMISSION,
        STATUS_VERSION,
        STATUS_BAD_FD,
        STATUS_NOT_FOUND,
        STATUS_NO_MEMORY,
        STATUS_BUSY,
        STATUS_FORKED,
        STATUS_NO_DAEMON,
        STATUS_DAEMON_LOST,
        STATUS_DRAINING,
        STATUS_DEVICE_LOST,
        STATUS_INTERNAL,
        N_STATUS,
        STATUS_PENDING = 255, /* from wait and test, never on the wire */
};

/* "OK", "INVALID", ...; "?" for what is not on the list. Never NULL. */
const char *status_name(enum status status);
