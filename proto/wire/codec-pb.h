/* What the files of the codec share: the bounded unpacker, and the pieces that several messages have in
 * common.
 *
 * Private to wire/codec-*.c, and the only place that includes the generated header. `x_in` makes plain C of a
 * generated struct, `x_out` the reverse. */
#pragma once

#include "base/arena.h"
#include "tutti.pb-c.h"
#include "wire/channel.h"
#include "wire/message.h"

/* Longer strings are cut on arrival: they are for people, or are refused as too long anyway. */
#define MAX_STRING_BYTES 1024

/* --- unpacking and packing --- */

/* Unpacks a message from the arena alone. 0, -EPROTO, or -E2BIG when the arena was too small. */
int pb_unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t n_bytes,
        struct arena *arena, ProtobufCMessage **ret) MUST_USE;

/* Packs into `buf` of MAX_PACKET_BYTES. 0, -EMSGSIZE, or -EINVAL when the message would be empty. */
int pb_pack(const ProtobufCMessage *message, void *buf, size_t *ret_bytes) MUST_USE;

/* Bytes of an element of a repeated field whose number is below 16: tag, length, message. */
size_t pb_element_bytes(const ProtobufCMessage *message);

/* --- words --- */

/* `value` where this version knows it (0..n-1), else `otherwise`: a number off the wire never indexes
 * anything. */
static inline unsigned int known_or(int value, unsigned int n, unsigned int otherwise) {
        return (unsigned int)value < n ? (unsigned int)value : otherwise;
}

/* Unknown words become N_KIND, N_OP, N_DTYPE: not known to any table, and so refused by whoever reads them.
 */
static inline enum kind kind_in(int value) {
        return (enum kind)known_or(value, N_KIND, N_KIND);
}

static inline enum op op_in(int value) {
        return (enum op)known_or(value, N_OP, N_OP);
}

static inline enum dtype dtype_in(int value) {
        return (enum dtype)known_or(value, N_DTYPE, N_DTYPE);
}

/* A status that is not known is a failure of which nothing else is known. */
static inline enum status status_in(int value) {
        return (enum status)known_or(value, N_STATUS, STATUS_INTERNAL);
}

static inline enum field field_in(int value) {
        return (enum field)known_or(value, N_FIELD, FIELD_UNSPECIFIED);
}

static inline enum loss loss_in(int value) {
        return (enum loss)known_or(value, LOSS_WENT + 1, LOSS_UNSPECIFIED);
}

static inline enum process_state process_state_in(int value) {
        return (enum process_state)known_or(value, PROCESS_ABSENT + 1, PROCESS_UNKNOWN);
}

/* What is not known is no better than the plainest. */
static inline enum stream_order order_in(int value) {
        return (enum stream_order)known_or(value, ORDER_EVENTS + 1, ORDER_HOST);
}

/* Policies are refused when they are not known, never guessed: one beyond the last. */
static inline enum on_death on_death_in(int value) {
        return (enum on_death)known_or(value, ON_DEATH_SHRINK + 1, ON_DEATH_SHRINK + 1);
}

/* --- pieces --- */

/* Cuts in place. Never NULL. */
const char *string_in(char *s);
char *string_out(const char *s);

/* false when the key is absent or of a wrong length; *ret is then sequence 0. */
bool key_in(const Tutti__V1__Key *m, struct key *ret);
void key_out(const struct key *key, Tutti__V1__Key *m);

/* false when it names ranks beyond the largest world. */
bool ranks_in(const ProtobufCBinaryData *m, struct rankset *ret);
/* `bytes` must live as long as the message. */
ProtobufCBinaryData ranks_out(const struct rankset *s, uint8_t bytes[MAX_WORLD / 8]);

/* A set of dimensions; one that is named twice counts once. */
uint16_t axes_in(const uint32_t *axes, size_t n);
/* How many they are. */
size_t axes_out(uint16_t axes, uint32_t ret[MAX_DIMS + 1]);

Tutti__V1__Signal *signal_out(const struct msg_signal *s, Tutti__V1__Signal *m);

struct report_box {
        Tutti__V1__ReplicaReport message;
        Tutti__V1__Key key;
};

void report_in(const Tutti__V1__ReplicaReport *m, struct replica_report *ret);
void report_out(const struct replica_report *r, struct report_box *box);

/* Reports of at most MAX_ERROR_REPLICAS replicas. */
struct reports_box {
        struct report_box boxes[MAX_ERROR_REPLICAS];
        Tutti__V1__ReplicaReport *list[MAX_ERROR_REPLICAS];
        size_t n;
};

void reports_out(const struct replica_report *reports, uint32_t n, struct reports_box *box);
uint32_t reports_in(
        Tutti__V1__ReplicaReport *const *list, size_t n, struct replica_report ret[MAX_ERROR_REPLICAS]);

/* --- joining, also after a restart (codec-join.c) --- */

struct join_box {
        Tutti__V1__Join message;
        uint8_t members[MAX_WORLD / 8], lost[MAX_WORLD / 8];
};

struct msg_join join_in(const Tutti__V1__Join *m);
void join_out(const struct msg_join *j, struct join_box *box);

/* 0 or -E2BIG. */
int pages_in(const Tutti__V1__Pages *m, struct arena *arena, struct msg_pages *ret) MUST_USE;
/* Takes from `scratch`; false: it is too small. */
bool pages_out(const struct msg_pages *p, struct arena *scratch, Tutti__V1__Pages *m);

/* --- rows (codec-rows.c, codec-rows-in.c) --- */

/* A row's message with everything it refers to. */
struct row_box {
        Tutti__V1__Row message;
        union {
                Tutti__V1__DaemonRow daemon;
                Tutti__V1__DeviceRow device;
                Tutti__V1__GroupRow group;
                Tutti__V1__MemberRow member;
                Tutti__V1__PendingRow pending;
                Tutti__V1__StatsRow stats;
                Tutti__V1__RecordRow record;
                Tutti__V1__FallbackRow fallback;
                Tutti__V1__QuotaRow quota;
                Tutti__V1__PlanRow plan;
                Tutti__V1__ClassRow class_;
                Tutti__V1__GroupFallbackRow group_fallback;
                Tutti__V1__DumpRow dump;
                Tutti__V1__LossesRow losses;
                Tutti__V1__ResultRow result;
                Tutti__V1__BufferRow buffer;
                Tutti__V1__HistogramRow histogram;
        };
        Tutti__V1__Key key;
        uint8_t have[MAX_WORLD / 8], missing[MAX_WORLD / 8];
        struct reports_box reports;
        Tutti__V1__Holder holders[MAX_ROW_HOLDERS];
        Tutti__V1__Holder *holder_list[MAX_ROW_HOLDERS];
};

void row_out(const struct row *row, struct row_box *box);
/* 0, -EPROTO, or -E2BIG. */
int row_in(const Tutti__V1__Row *m, struct arena *arena, struct row *ret) MUST_USE;

/* --- entries (codec-entry.c) --- */

/* An entry's message with everything it refers to. */
struct entry_box {
        Tutti__V1__Entry message;
        Tutti__V1__Place input, output, indices, output_indices;
        Tutti__V1__Sparse sparse;
        Tutti__V1__Destinations destinations;
        uint8_t ranks[MAX_WORLD / 8];
        char device[DEVICE_NAME_BYTES];
};

/* `ret` is cleared before. */
void entry_in(const Tutti__V1__Entry *m, struct entry *ret);
/* `box` refers to the entry. */
void entry_out(const struct entry *e, struct entry_box *box);

/* --- requests of a few fields (codec-request-rest.c) --- */

struct msg_make_result make_result_in(const Tutti__V1__MakeResult *m);
void make_result_out(const struct msg_make_result *r, Tutti__V1__MakeResult *m, Tutti__V1__Key *key);
struct msg_release_result release_result_in(const Tutti__V1__ReleaseResult *m);
void release_result_out(const struct msg_release_result *r, Tutti__V1__ReleaseResult *m);
void open_signals_out(const struct msg_open_signals *o, Tutti__V1__OpenSignals *m);
struct msg_control control_in(const Tutti__V1__Control *m);
void control_out(const struct msg_control *c, Tutti__V1__Control *m);

/* Rows of one packet: bounds what encoding takes from the scratch arena. */
#define MAX_PART_ROWS 1024
/* Entries of one packet: bounds what decoding takes from the arena of the other side, and of its time. */
#define MAX_PART_ENTRIES 512

/* --- submissions (codec-submit.c) --- */

/* The message of a submission with what it refers to. */
struct submit_box {
        Tutti__V1__Submit message;
        Tutti__V1__Options options;
        char device[DEVICE_NAME_BYTES];
        Tutti__V1__Key key;
        Tutti__V1__Signal signal;
        uint32_t axes[MAX_DIMS + 1];
        Tutti__V1__Entry **list;
        struct entry_box *entries;
};

/* 0, -E2BIG. */
int submit_in(const Tutti__V1__Submit *m, struct arena *arena, struct msg_submit *ret) MUST_USE;
/* false: `scratch` is full. */
bool submit_out(const struct msg_submit *s, struct arena *scratch, struct submit_box *box) MUST_USE;
