/* A storm of everything that the protocol knows, in any state and with any numbers, beside an honest group
 * (P17). */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "meeting.h"
#include "raw.h"
#include "stage.h"
#include "unit.h"

struct storm {
        struct host *h;
        struct raw *clients[4];
        uint64_t seed, memberships[16];
        unsigned int n_memberships;
};

static uint32_t any(struct storm *s, uint32_t n) {
        s->seed ^= s->seed << 13;
        s->seed ^= s->seed >> 7;
        s->seed ^= s->seed << 17;
        return (uint32_t)(s->seed >> 20) % n;
}

static uint64_t odd(struct storm *s) {
        static const uint64_t numbers[] = { 0, 1, 2, 3, 64, 4096, MAX_ENTRIES, UINT64_C(1) << 31, UINT32_MAX,
                UINT64_C(1) << 47, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX };
        return numbers[any(s, ARRAY_SIZE(numbers))];
}

static int any_descriptor(struct storm *s) {
        int fd = -1, ends[2];
        switch (any(s, 6)) {
        case 0: fd = open("/dev/null", O_RDWR | O_CLOEXEC); break;
        case 1:
                ck_assert_int_eq(pipe(ends), 0);
                close(ends[0]);
                fd = ends[1];
                break;
        case 2: fd = raw_memfd(any(s, 5) * UINT64_C(4096)); break;
        case 3:
                fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
                ck_assert_int_eq(ftruncate(fd, (off_t)1 << 40), 0);
                break;
        case 4:
                fd = raw_memfd(8192);
                ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
                break;
        case 5: fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); break;
        }
        ck_assert_int_ge(fd, 0);
        return fd;
}

static uint64_t any_membership(struct storm *s) {
        return s->n_memberships && any(s, 8) ? s->memberships[any(s, 16)] : odd(s);
}

static struct request any_join(struct storm *s) {
        static const char *const names[] = { "a", "b", "c", "", "\x01" };
        struct request r = raw_join_request(names[any(s, any(s, 8) ? 3 : 5)], any(s, 3), 1 + any(s, 3));
        if (any(s, 10) == 0)
                r.join.rank = (uint32_t)odd(s);
        if (any(s, 10) == 0)
                r.join.world_size = (uint32_t)odd(s);
        r.join.join_timeout_ns = any(s, 2) ? 1 + any(s, 1000000) : odd(s);
        r.join.on_death = (enum on_death)any(s, 4);
        r.join.on_leave = (enum on_leave)any(s, 4);
        r.join.has_default_timeout = any(s, 2);
        r.join.default_timeout_ns = odd(s);
        return r;
}

static struct request any_registration(struct storm *s) {
        return (struct request){ .type = REQUEST_REGISTER,
                .reg = { .buffer = any(s, 6) ? any(s, 8) : odd(s),
                        .size_bytes = any(s, 3) ? any(s, 3) * 4096 : odd(s),
                        .access = (enum access)any(s, 5),
                        .kind = any(s, 8) ? BUFFER_KIND_MEMFD : (enum buffer_kind)any(s, 5),
                        .n_descriptors = any(s, 30) ? 1 : any(s, 4),
                        .device = any(s, 12) ? "" : "GPU:0" } };
}

static struct entry any_entry(struct storm *s) {
        struct entry e = raw_entry(any(s, 8), any(s, 2000));
        if (any(s, 3))
                return e;
        e.dtype = (enum dtype)any(s, N_DTYPE);
        e.destination = (enum destination)any(s, DESTINATION_SAME + 1);
        e.destination_rank = (uint32_t)any(s, 4);
        e.n_dims = any(s, MAX_DIMS + 2);
        e.shape[any(s, MAX_DIMS)] = odd(s);
        e.input.offset_bytes = odd(s);
        e.output.buffer = any(s, 8);
        e.output.offset_bytes = any(s, 2) ? any(s, 2000) : odd(s);
        return e;
}

static struct request any_submission(struct storm *s) {
        static struct entry entries[300];
        uint32_t n = any(s, 4) ? 1 : any(s, ARRAY_SIZE(entries));
        for (uint32_t i = 0; i < n; i++)
                entries[i] = any_entry(s);
        struct request r = raw_submit_request(&(struct raw_member){ any_membership(s), 1 }, "k", entries);
        r.submit.key.bytes[0] = (char)('k' + any(s, 4));
        if (any(s, 4) == 0)
                r.submit.key = key_sequence(any(s, 3));
        r.submit.has_key = any(s, 12);
        r.submit.epoch = any(s, 9) ? 1 : odd(s);
        r.submit.signature.kind = (enum kind)(any(s, 4) ? 1 + any(s, 4) : any(s, N_KIND));
        if (any(s, 6) == 0)
                r.submit.signature.op = (enum op)any(s, N_OP);
        r.submit.signature.root = any(s, 9) ? any(s, 3) : (uint32_t)odd(s);
        r.submit.signature.n_entries = any(s, 40) ? n : (uint32_t)odd(s);
        r.submit.has_timeout = any(s, 2);
        r.submit.timeout_ns = any(s, 2) ? any(s, 1000000) : odd(s);
        r.submit.n_part_entries = n;
        r.submit.more = any(s, 40) == 0;
        if (any(s, 10) == 0)
                r.submit.refused = (enum status)any(s, N_STATUS);
        return r;
}

static struct request any_request(struct storm *s) {
        struct request r = { .type = REQUEST_NONE };
        switch (any(s, 16)) {
        case 0:
        case 1:
        case 2: return any_join(s);
        case 3:
        case 4: return any_registration(s);
        case 5:
        case 6:
        case 7:
        case 8: return any_submission(s);
        case 9:
                r.type = REQUEST_ABORT;
                r.abort = (struct msg_abort){ any_membership(s), any(s, 9), raw_key("k"), "\x1b[31mred\n" };
                break;
        case 10:
                r.type = REQUEST_BUSY;
                r.busy = (struct msg_busy){ any_membership(s), "\x1b[31mred\n", odd(s) };
                break;
        case 11:
                r.type = REQUEST_QUERY;
                r.query = (struct msg_query){ (enum what)any(s, WHAT_QUOTA + 2), any(s, 2) ? "test" : "",
                        any(s, 2) ? "a" : "" };
                break;
        case 12:
                r.type = REQUEST_LEAVE;
                r.membership = any_membership(s);
                break;
        case 13:
                r.type = REQUEST_UNREGISTER;
                r.buffer = any(s, 8);
                break;
        case 14:
                if (any(s, 20) == 0)
                        r.type = REQUEST_GOODBYE;
                break;
        case 15:
                if (any(s, 20) == 0)
                        r = (struct request){ .type = REQUEST_HELLO,
                                .hello = { any(s, 3), any(s, 3), "", "" } };
                else
                        r.type = (enum request_type)(REQUEST_REJOIN + any(s, REQUEST_PAGES - REQUEST_REJOIN));
                if (r.type == REQUEST_REJOIN || r.type == REQUEST_SHRINK)
                        r.reform = (struct msg_reform){ any_membership(s),
                                any(s, 2) ? any(s, 1000000) : odd(s) };
                break;
        }
        return r;
}

/* false: tuttid does not read now, or is not there. */
static bool storm_say(struct storm *s, struct raw *r) {
        const struct request request = any_request(s);
        int fds[MAX_PACKET_FDS + 2];
        uint32_t n = request.type == REQUEST_REGISTER && any(s, 30) ? 1 : 0;
        if (any(s, 40) == 0)
                n = any(s, ARRAY_SIZE(fds));
        for (uint32_t i = 0; i < n; i++)
                fds[i] = any_descriptor(s);
        bool is_sent = raw_try_send(r, &request, fds, n);
        for (uint32_t i = 0; i < n; i++)
                close(fds[i]);
        return is_sent;
}

static bool storm_listen(struct storm *s, struct raw *r) {
        struct reply reply;
        while (!raw_is_silent(r, 0)) {
                if (!raw_take(r, &reply) || reply.request == 0)
                        return false;
                if (reply.type == REPLY_JOINED && reply.status == STATUS_OK)
                        s->memberships[s->n_memberships++ % 16] = reply.joined.membership;
        }
        return true;
}

static void storm_step(struct storm *s) {
        struct raw **r = &s->clients[any(s, ARRAY_SIZE(s->clients))];
        if (!*r) {
                *r = raw_connect(host_socket(s->h));
                if (any(s, 20))
                        raw_hello(*r);
        }
        for (uint32_t n = any(s, 20); n > 0 && storm_say(s, *r); n--)
                ;
        if (any(s, 100) && (any(s, 3) == 0 || storm_listen(s, *r)))
                return;
        raw_close(*r);
        *r = NULL;
}

START_TEST(P17_a_storm_of_everything_harms_nobody_else) {
        struct stage stage;
        struct storm s = { .seed = 88172645463325252 };
        stage_set(&stage, NULL);
        s.h = stage.h;
        watch_begin();
        for (double end = seconds_now() + 1.5; seconds_now() < end;)
                storm_step(&s);
        watch_end(0.5);
        for (size_t i = 0; i < ARRAY_SIZE(s.clients); i++)
                raw_close(s.clients[i]);
        ck_assert_uint_gt(s.n_memberships, 0);
        stage_clear(&stage);
}
END_TEST

UNIT_MAIN("hostile-storm", 60, P17_a_storm_of_everything_harms_nobody_else)
