/* libtutti before a server that answers as it likes. Whatever it says, the library neither crashes nor waits
 * for one that has hung up, sends only what is well formed, and leaves no descriptor open.
 *
 * An input is the length of the client's program (one byte), the program, and the server's script. An
 * instruction of the program is a byte, see client_step; behind its end the client closes. For each request
 * the script says in a byte what the server does (bits 0-2, see serve_request), what descriptor it adds (bits
 * 3-4), whether it does something more (bit 5), and whether it says after that that the connection goes to
 * the next server, which it is from then on (bit 6); behind its end the server is honest. A request that does
 * not come for a while makes it hang up, so nothing waits for ever. The client goes on (reconnect) where bit
 * 7 of its first instruction is set; whom it connects to anew answers nothing. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tutti/admin.h>
#include <tutti/tutti.h>
#include <unistd.h>
#include "base/fd.h"
#include "wire/channel.h"
#include "wire/codec.h"
#include "descriptors.h"

#define PAGE_BYTES   (STATUS_PAGE_SLOTS * sizeof(struct page_slot))
#define MAX_STEPS    40
#define MAX_REQUESTS 200
#define PATIENCE_MS  30
#define RECONNECT    0.05
#define N_WORKS      8
#define N_BUFFERS    4
#define N_FLOATS     64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
        const uint8_t *data;
        size_t size;
};

struct server {
        struct bytes script;
        int fd;
        uint8_t in[MAX_PACKET_BYTES], out[MAX_PACKET_BYTES];
        struct arena arena, scratch;
};

struct client {
        struct bytes program;
        struct tutti *t;
        struct tutti_group *group;
        struct tutti_buffer *buffers[N_BUFFERS];
        struct tutti_work *works[N_WORKS];
        struct tutti_prepared *prepared; /* goes with the group */
};

static char socket_path[64];
static int listener = -1, descriptors[4];

/* --- what never changes --- */

static void remove_directory(void) {
        unlink(socket_path);
        *strrchr(socket_path, '/') = '\0';
        rmdir(socket_path);
}

static void listen_once(void) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        const char *tmp = getenv("TMPDIR");
        CHECK(snprintf(socket_path, sizeof(socket_path), "%s/fuzz-XXXXXX", tmp ? tmp : "/tmp") < 50);
        CHECK(mkdtemp(socket_path));
        strcat(socket_path, "/s.sock");
        memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
        listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
        CHECK(listen(listener, 4) == 0);
        atexit(remove_directory);
}

static int make_memfd(off_t n_bytes) {
        int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(fd >= 0 && ftruncate(fd, n_bytes) == 0);
        return fd;
}

static void set_up_once(struct server *s) {
        if (listener >= 0)
                return;
        listen_once();
        descriptors[0] = make_memfd(PAGE_BYTES);
        descriptors[1] = make_memfd(4096);
        descriptors[2] = open("/dev/null", O_RDWR | O_CLOEXEC);
        descriptors[3] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        arena_init(&s->arena, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        arena_init(&s->scratch, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        CHECK(descriptors[2] >= 0 && descriptors[3] >= 0 && s->arena.base && s->scratch.base);
}

static uint8_t take(struct bytes *b) {
        if (b->size == 0)
                return 0;
        b->size--;
        return *b->data++;
}

/* --- the server --- */

/* false: the client has closed, or lets us wait. */
static bool server_take(struct server *s, struct request *ret) {
        struct pollfd p = { .fd = s->fd, .events = POLLIN };
        struct packet packet;
        if (poll(&p, 1, PATIENCE_MS) <= 0)
                return false;
        int r = channel_receive(s->fd, s->in, &packet);
        packet_close_fds(&packet);
        if (r <= 0)
                return false;
        arena_reset(&s->arena);
        CHECK(codec_decode_request(s->in, packet.n_bytes, &s->arena, ret) == 0);
        return true;
}

static void server_send(struct server *s, size_t n_bytes, int fd) {
        if (n_bytes == 0)
                return;
        int r = channel_send(s->fd, s->out, n_bytes, &fd, fd >= 0);
        (void)r; /* the client may be gone, or not read */
}

/* What a tuttid would say. */
static struct reply honest_reply(const struct request *r) {
        static const struct row row = { .type = ROW_DAEMON,
                .daemon = { .version = "fuzz", .socket = "", .isa = "scalar" } };
        struct reply reply = { .request = r->request };
        if (r->type == REQUEST_HELLO) {
                reply.type = REPLY_WELCOME;
                reply.welcome = (struct msg_welcome){
                        .version = 1, .server = "fuzz", .n_descriptors = 1, .status_slots = STATUS_PAGE_SLOTS
                };
        } else if (r->type == REQUEST_JOIN) {
                reply.type = REPLY_JOINED;
                reply.joined = (struct msg_joined){ 7, 1, r->join.rank, r->join.world_size };
        } else if (r->type == REQUEST_SUBMIT) {
                reply.type = REPLY_DONE;
                reply.done = (struct msg_done){
                        .contributors = rankset_first(2), .n_contributors = 2, .op = OP_SUM, .last_rank = 1
                };
        } else if (r->type == REQUEST_QUERY) {
                reply.type = REPLY_ROWS;
                reply.rows.rows = &row;
                reply.rows.n_rows = 1;
        }
        return reply;
}

static size_t encode(struct server *s, const struct reply *reply) {
        size_t n_bytes;
        return codec_encode_reply(reply, &s->scratch, s->out, &n_bytes) == 0 ? n_bytes : 0;
}

static void flip(struct server *s, size_t n_bytes) {
        for (int n = take(&s->script) % 8; n >= 0; n--) {
                size_t at = take(&s->script) | (size_t)take(&s->script) << 8;
                uint8_t with = take(&s->script);
                if (n_bytes)
                        s->out[at % n_bytes] ^= with;
        }
}

static size_t any_bytes(struct server *s) {
        size_t n = take(&s->script);
        for (size_t i = 0; i < n; i++)
                s->out[i] = take(&s->script);
        return n;
}

/* An error with data in most of its fields, also such as tuttid never sends. */
static size_t refusal(struct server *s, struct reply *reply) {
        struct error e;
        enum status status = (enum status)(take(&s->script) % (N_STATUS + 2));
        error_init(&e, status);
        e.cause = (enum status)(take(&s->script) % N_STATUS);
        e.field = (enum field)(take(&s->script) % N_FIELD);
        e.entry = take(&s->script) - 1;
        e.rank = (uint32_t)take(&s->script) - 1;
        e.n_replicas = take(&s->script) % (MAX_ERROR_REPLICAS + 1);
        e.n_classes = take(&s->script) % (MAX_ERROR_CLASSES + 1);
        reply->status = status;
        reply->error = &e;
        return encode(s, reply);
}

/* false: it hangs up. */
static bool serve_request(struct server *s, const struct request *r, uint8_t what) {
        struct reply reply = honest_reply(r);
        int fd = descriptors[what >> 3 & 3];
        bool has_fd = what >> 3 & 3 || reply.type == REPLY_WELCOME;
        size_t n_bytes;
        switch (what & 7) {
        case 0: n_bytes = encode(s, &reply); break;
        case 1: flip(s, n_bytes = encode(s, &reply)); break;
        case 2: n_bytes = any_bytes(s); break;
        case 3: n_bytes = refusal(s, &reply); break;
        case 4: return true;
        case 5: return false;
        case 6:
                reply.more = true;
                n_bytes = encode(s, &reply);
                break;
        default:
                reply.request = r->request - take(&s->script) % 4 + take(&s->script) % 4;
                n_bytes = encode(s, &reply);
                break;
        }
        server_send(s, n_bytes, has_fd ? fd : -1);
        return true;
}

static void hand_over(struct server *s) {
        server_send(s, encode(s, &(struct reply){ .type = REPLY_HAND_OVER }), -1);
}

static bool is_answered(const struct request *r) {
        return r->type != REQUEST_GOODBYE && !(r->type == REQUEST_SUBMIT && r->submit.more);
}

static void *serve(void *data) {
        struct server *s = data;
        struct request request;
        s->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        CHECK(s->fd >= 0);
        bool goes_on = true;
        for (int i = 0; goes_on && i < MAX_REQUESTS && server_take(s, &request); i++) {
                uint8_t what;
                do {
                        what = take(&s->script);
                        if ((what & 7) || is_answered(&request))
                                goes_on = serve_request(s, &request, what);
                        if (goes_on && what & 64)
                                hand_over(s);
                } while (goes_on && what & 32);
        }
        fd_close(&s->fd);
        return NULL;
}

/* Who has connected anew in vain must not be served in the place of the next client. */
static void forget_guests(void) {
        struct pollfd p = { .fd = listener, .events = POLLIN };
        while (poll(&p, 1, 0) > 0) {
                int guest = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                fd_close(&guest);
        }
}

/* --- the client --- */

static void client_join(struct client *c) {
        const struct tutti_join_args args =
                TUTTI_JOIN(.group = "g", .job = "j", .rank = 0, .world_size = 2, .secret = "");
        if (!c->group)
                (void)!tutti_join(c->t, &args, &c->group);
}

static void client_buffer(struct client *c, struct tutti_buffer **b) {
        if (*b) {
                tutti_buffer_free(*b);
                *b = NULL;
        } else if (take(&c->program) & 1) {
                (void)!tutti_buffer_from_fd(c->t, descriptors[1], 0, TUTTI_IN, b);
        } else {
                (void)!tutti_buffer_alloc(c->t, N_FLOATS * sizeof(float), b);
        }
}

static void client_submit(struct client *c, struct tutti_work **w) {
        struct tutti_value value = TUTTI_VALUE(.buffer = c->buffers[take(&c->program) % N_BUFFERS],
                .dtype = TUTTI_F32, .n_dims = 1, .shape = { N_FLOATS });
        const struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &value, .output = &value),
                TUTTI_ENTRY(.input = &value, .destinations = { .where = TUTTI_TO_RANK, .rank = 1 }) };
        tutti_work_free(*w);
        *w = NULL;
        uint8_t what = take(&c->program);
        switch (what >= 0xf0 ? 4 + what % 2 : what % 4) {
        case 0: (void)!tutti_all_reduce_start(c->group, "a", TUTTI_SUM, &value, &value, NULL, w); break;
        case 1: (void)!tutti_broadcast_start(c->group, NULL, 1, &value, NULL, w); break;
        case 2: (void)!tutti_batch_reduce_start(c->group, "b", TUTTI_SUM, entries, 2, NULL, w); break;
        case 3: (void)!tutti_barrier_start(c->group, NULL, NULL, w); break;
        case 4:
                tutti_prepared_free(c->prepared);
                c->prepared = NULL;
                (void)!tutti_prepare_batch_reduce(c->group, TUTTI_SUM, entries, 2, NULL, &c->prepared);
                break;
        case 5: (void)!tutti_prepared_start(c->prepared, "c", w); break;
        }
}

static void client_look(struct client *c, struct tutti_work *w) {
        struct tutti_result result;
        uint8_t what = take(&c->program) % 4;
        if (!w)
                return;
        enum tutti_status status = what == 0   ? tutti_work_wait(w, 0)
                                   : what == 1 ? tutti_work_wait(w, -1)
                                   : what == 2 ? tutti_work_test(w)
                                               : tutti_work_cancel(w);
        (void)status;
        CHECK(memchr(tutti_work_error(w)->text, '\0', 65536));
        (void)!tutti_work_result(w, &result);
}

static void client_ask(struct client *c) {
        struct tutti_answer *answer = NULL;
        if (tutti_admin_ask(c->t, TUTTI_ADMIN_STATUS, NULL, NULL, &answer) != TUTTI_OK)
                return;
        for (uint32_t i = 0; i < answer->n_rows; i++)
                if (answer->rows[i].type == TUTTI_ROW_DAEMON)
                        CHECK(strlen(answer->rows[i].daemon.version) < 4096);
        tutti_answer_free(answer);
}

static void client_step(struct client *c) {
        uint8_t what = take(&c->program);
        struct tutti_work **w = &c->works[(what >> 4) % N_WORKS];
        switch (what & 15) {
        case 0:
        case 1: client_join(c); break;
        case 2:
        case 3: client_buffer(c, &c->buffers[(what >> 4) % N_BUFFERS]); break;
        case 4:
        case 5:
        case 6: client_submit(c, w); break;
        case 7:
        case 8:
        case 9: client_look(c, *w); break;
        case 10: (void)!tutti_abort(c->group, "a", "no reason"); break;
        case 11: (void)!tutti_busy(c->group, "why", 1); break;
        case 12: (void)!tutti_leave(c->group); break;
        case 13: client_ask(c); break;
        case 14: (void)!tutti_dispatch(c->t); break;
        case 15:
                tutti_group_free(c->group);
                c->group = NULL;
                c->prepared = NULL;
                break;
        }
        CHECK(memchr(tutti_error(), '\0', 65536));
}

static enum tutti_status client_open(struct client *c) {
        bool goes_on = c->program.size > 0 && c->program.data[0] & 128;
        return tutti_open_with(
                &TUTTI_OPEN(.socket_path = socket_path, .reconnect = goes_on ? RECONNECT : -1), &c->t);
}

static void run_client(struct client *c) {
        if (client_open(c) != TUTTI_OK)
                return;
        for (int i = 0; i < MAX_STEPS && c->program.size > 0; i++)
                client_step(c);
        for (int i = 0; i < N_WORKS; i++)
                tutti_work_free(c->works[i]);
        tutti_close(c->t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static struct server s;
        struct client c = { 0 };
        pthread_t thread;
        set_up_once(&s);
        unsigned int n_before = count_descriptors();
        size_t n_program = size ? data[0] : 0, n_rest = size ? size - 1 : 0;
        if (n_program > n_rest)
                n_program = n_rest;
        c.program = (struct bytes){ data + (size > 0), n_program };
        s.script = (struct bytes){ data + (size > 0) + n_program, n_rest - n_program };
        CHECK(pthread_create(&thread, NULL, serve, &s) == 0);
        run_client(&c);
        CHECK(pthread_join(thread, NULL) == 0);
        forget_guests();
        CHECK(count_descriptors() == n_before);
        return 0;
}
