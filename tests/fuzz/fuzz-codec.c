/* Any bytes as a request and as a reply. What decodes must keep the bounds that other rooms rely on, and must
 * be encoded and decoded again to the same; no arena is left. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include "base/check.h"
#include "model/error.h"
#include "model/signature.h"
#include "wire/channel.h"
#include "wire/codec.h"

#define GUARD       0xa5
#define GUARD_BYTES 64
/* An input of this size or less is never too long to be sent on. */
#define SMALL_BYTES 1024

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An arena between two guards. */
struct guarded {
        struct arena arena;
        uint8_t memory[GUARD_BYTES + CODEC_ARENA_BYTES + GUARD_BYTES];
};

static struct guarded first, second, scratch;
static uint8_t packet[MAX_PACKET_BYTES], again[MAX_PACKET_BYTES];

/* The rear guard begins right behind the `n_bytes` of the arena. */
static void guarded_init(struct guarded *g, size_t n_bytes) {
        memset(g->memory, GUARD, GUARD_BYTES);
        memset(g->memory + GUARD_BYTES + n_bytes, GUARD, GUARD_BYTES);
        arena_init(&g->arena, g->memory + GUARD_BYTES, n_bytes);
}

static void guarded_check(const struct guarded *g) {
        const uint8_t *rear = g->arena.base + g->arena.size_bytes;
        for (size_t i = 0; i < GUARD_BYTES; i++)
                CHECK(g->memory[i] == GUARD && rear[i] == GUARD);
        CHECK(g->arena.used_bytes <= g->arena.size_bytes);
}

/* --- what other rooms rely on --- */

static void check_string(const char *s) {
        CHECK(s && strlen(s) <= 1024);
}

static void check_key(const struct key *k) {
        char buf[1024];
        struct text t;
        CHECK(k->n_bytes <= MAX_KEY_BYTES);
        text_init(&t, buf, sizeof(buf));
        key_print(k, &t);
        CHECK(!t.is_cut);
}

/* The rules and the words for people take any half that was decoded. */
static void check_submit(const struct msg_submit *s) {
        char buf[256];
        struct text t;
        struct error err;
        int32_t entry;
        struct signature signature = s->signature;
        check_key(&s->key);
        signature.n_entries = s->n_part_entries;
        error_init(&err, STATUS_OK);
        if (signature_check(&signature, s->entries, 1, 4, &err) == STATUS_OK)
                (void)signature_bytes(&signature, s->entries);
        CHECK(signature_compare(&signature, s->entries, &signature, s->entries, &entry) == FIELD_UNSPECIFIED);
        text_init(&t, buf, sizeof(buf));
        for (int32_t i = -1; i < (int32_t)s->n_part_entries && i < 8; i++)
                for (unsigned int field = 0; field < N_FIELD; field++)
                        signature_print_field(&signature, s->entries, (enum field)field, i, &t);
}

static void check_request(const struct request *r) {
        switch (r->type) {
        case REQUEST_HELLO:
                check_string(r->hello.client);
                check_string(r->hello.process);
                check_string(r->hello.secret);
                break;
        case REQUEST_JOIN:
                check_string(r->join.job);
                check_string(r->join.group);
                check_string(r->join.secret);
                break;
        case REQUEST_REGISTER:
                check_string(r->reg.device);
                check_string(r->reg.stands_for);
                check_string(r->reg.why);
                CHECK(r->reg.handle || r->reg.n_handle_bytes == 0);
                CHECK(r->reg.pages <= PAGES_ORDINARY);
                break;
        case REQUEST_OPEN_SIGNALS: check_string(r->open_signals.device); break;
        case REQUEST_SUBMIT: check_submit(&r->submit); break;
        case REQUEST_ABORT:
                check_string(r->abort.reason);
                check_key(&r->abort.key);
                break;
        case REQUEST_BUSY: check_string(r->busy.why); break;
        case REQUEST_MAKE_RESULT:
                check_string(r->make_result.device);
                check_key(&r->make_result.key);
                break;
        case REQUEST_QUERY:
                check_string(r->query.job);
                check_string(r->query.group);
                break;
        case REQUEST_CONTROL:
                CHECK(r->control.verb <= VERB_LOG_LEVEL);
                check_string(r->control.job);
                check_string(r->control.group);
                check_string(r->control.text);
                break;
        case REQUEST_NONE:
        case REQUEST_LEAVE:
        case REQUEST_UNREGISTER:
        case REQUEST_REJOIN:
        case REQUEST_SHRINK:
        case REQUEST_PREPARE:
        case REQUEST_START:
        case REQUEST_UNPREPARE:
        case REQUEST_OPEN_LANE:
        case REQUEST_RING:
        case REQUEST_RELEASE_RESULT:
        case REQUEST_PAGES:
        case REQUEST_GOODBYE: break;
        }
}

static void check_reply(const struct reply *r) {
        char text[ERROR_TEXT_BYTES];
        CHECK(!r->error || r->status != STATUS_OK);
        if (!r->error)
                return;
        CHECK(r->error->n_classes <= MAX_ERROR_CLASSES && r->error->n_replicas <= MAX_ERROR_REPLICAS);
        CHECK(r->error->status == r->status);
        error_print(r->error, text, sizeof(text));
        CHECK(strlen(text) > strlen(status_name(r->status)));
}

/* --- there and back --- */

/* Whether encoding made a packet; it may find that there is nothing to say, or that long input has grown. */
static bool is_encoded(int r, size_t size) {
        guarded_check(&scratch);
        CHECK(scratch.arena.used_bytes == 0);
        CHECK(r == 0 || r == -EINVAL || (r == -EMSGSIZE && size > SMALL_BYTES));
        return r == 0;
}

static void try_request(const uint8_t *data, size_t size) {
        struct request one, two;
        size_t n_packet, n_again;
        guarded_init(&first, CODEC_ARENA_BYTES);
        int r = codec_decode_request(data, size, &first.arena, &one);
        guarded_check(&first);
        CHECK(r == 0 || r == -EPROTO || r == -E2BIG);
        if (r < 0)
                return;
        check_request(&one);
        if (!is_encoded(codec_encode_request(&one, &scratch.arena, packet, &n_packet), size))
                return;
        guarded_init(&second, CODEC_ARENA_BYTES);
        CHECK(codec_decode_request(packet, n_packet, &second.arena, &two) == 0);
        guarded_check(&second);
        CHECK(two.type == one.type && two.request == one.request);
        CHECK(is_encoded(codec_encode_request(&two, &scratch.arena, again, &n_again), size));
        CHECK(n_again == n_packet && memcmp(packet, again, n_packet) == 0);
}

static void try_reply(const uint8_t *data, size_t size) {
        struct reply one, two;
        size_t n_packet, n_again;
        guarded_init(&first, CODEC_ARENA_BYTES);
        int r = codec_decode_reply(data, size, &first.arena, &one);
        guarded_check(&first);
        CHECK(r == 0 || r == -EPROTO || r == -E2BIG);
        if (r < 0)
                return;
        check_reply(&one);
        if (!is_encoded(codec_encode_reply(&one, &scratch.arena, packet, &n_packet), size))
                return;
        guarded_init(&second, CODEC_ARENA_BYTES);
        CHECK(codec_decode_reply(packet, n_packet, &second.arena, &two) == 0);
        guarded_check(&second);
        CHECK(two.type == one.type && two.status == one.status);
        CHECK(is_encoded(codec_encode_reply(&two, &scratch.arena, again, &n_again), size));
        CHECK(n_again == n_packet && memcmp(packet, again, n_packet) == 0);
}

/* The same in an arena that may be too small: the first byte says how small. */
static void try_small_arena(const uint8_t *data, size_t size) {
        struct request request;
        struct reply reply;
        size_t n_bytes = size ? data[0] * 32u : 0;
        guarded_init(&first, n_bytes);
        int r = codec_decode_request(data, size, &first.arena, &request);
        guarded_check(&first);
        CHECK(r == 0 || r == -EPROTO || r == -E2BIG);
        guarded_init(&first, n_bytes);
        r = codec_decode_reply(data, size, &first.arena, &reply);
        guarded_check(&first);
        CHECK(r == 0 || r == -EPROTO || r == -E2BIG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        guarded_init(&scratch, CODEC_ARENA_BYTES);
        try_request(data, size);
        try_reply(data, size);
        try_small_arena(data, size);
        return 0;
}
